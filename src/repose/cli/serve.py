"""`repose serve`: serves models over HTTP."""

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from repose.cli.options import Device, Engine, Precision, Workers
from repose.serving.settings import Batching, Limits, ServeSettings, default_req_limit
from repose.system.errors import MissingExtraError
from repose.system.terminal import say

# Models
Runs = Annotated[
    list[Path],
    Argument(help="Run directories, model directories, exports to ONNX, or hf://owner/name.", show_default=False),
]
Languages = Annotated[
    list[str] | None,
    Option(metavar="SRC:TGT", help="Languages of a model that does not say them, pt:en. Can be repeated."),
]

# Address
Host = Annotated[str, Option(envvar="LT_HOST", help="Address to listen on; 0.0.0.0 lets others in.")]
Port = Annotated[int, Option(min=0, max=65535, envvar="LT_PORT", help="0 takes any that is free.")]
UrlPrefix = Annotated[str, Option(envvar="LT_URL_PREFIX", help="Path that all others are below, as /translator.")]
TrustForwardedFor = Annotated[
    bool, Option("--trust-forwarded-for", help="Behind a proxy: take addresses from X-Forwarded-For.")
]

# Decoding and batching
BeamSize = Annotated[
    int | None, Option("--beam-size", "-b", min=1, max=64, help="1 decodes greedily (default: the model's).")
]
MaxWaitMs = Annotated[float, Option(min=0, max=1000, help="Longest wait to fill a batch under load.")]

# Limits
CharLimit = Annotated[int, Option(envvar="LT_CHAR_LIMIT", help="Characters of a text; -1: any.")]
BatchLimit = Annotated[int, Option(envvar="LT_BATCH_LIMIT", help="Texts of a request; -1: any.")]
ReqLimit = Annotated[
    int | None,
    Option(
        envvar="LT_REQ_LIMIT",
        help="Requests a minute of an address or key; -1: any (default: any on 127.0.0.1, else 300).",
    ),
]
HourlyReqLimit = Annotated[int, Option(envvar="LT_HOURLY_REQ_LIMIT", help="Likewise an hour.")]
DailyReqLimit = Annotated[int, Option(envvar="LT_DAILY_REQ_LIMIT", help="Likewise a day.")]
AlternativesLimit = Annotated[
    int, Option(envvar="LT_ALTERNATIVES_LIMIT", help="Further translations of a text; -1: any.")
]
Timeout = Annotated[float, Option(help="Seconds for a request.")]
MaxBody = Annotated[int, Option(help="Bytes of a request.")]
DrainSeconds = Annotated[float, Option(min=0, help="Time for requests in hand after SIGTERM.")]

# Access
ApiKeys = Annotated[Path | None, Option(help="File with an API key per line.")]
KeyRequired = Annotated[bool, Option("--key-required", help="Refuse requests without a key.")]
KeyUrl = Annotated[
    str | None, Option(envvar="LT_GET_API_KEY_LINK", help="Where people get a key, told to those without.")
]

# Other features
Files = Annotated[bool, Option(help="Translate files, too.")]
Page = Annotated[bool, Option(help="Have a page at /.")]
Suggestions = Annotated[Path | None, Option(help="File to append suggested translations to.")]
Metrics = Annotated[bool, Option("--metrics", envvar="LT_METRICS", help="Have /metrics for Prometheus.")]
MetricsToken = Annotated[
    str | None, Option(envvar=["REPOSE_METRICS_TOKEN", "LT_METRICS_AUTH_TOKEN"], help="What /metrics asks for.")
]
Quiet = Annotated[bool, Option("--quiet", help="Write no log (on a terminal: not even of errors).")]

_OFF = {"files": "LT_DISABLE_FILES_TRANSLATION", "page": "LT_DISABLE_WEB_UI"}
"""Maps options that are on by default to LibreTranslate's variables that turn them off."""


def serve(
    context: Context,
    runs: Runs,
    lang: Languages = None,
    host: Host = ServeSettings.host,
    port: Port = ServeSettings.port,
    workers: Workers = None,
    device: Device = ServeSettings.device,
    precision: Precision = None,
    engine: Engine = ServeSettings.engine,
    beam_size: BeamSize = None,
    char_limit: CharLimit = Limits.char_limit,
    batch_limit: BatchLimit = Limits.batch_limit,
    req_limit: ReqLimit = None,
    hourly_req_limit: HourlyReqLimit = Limits.hourly_req_limit,
    daily_req_limit: DailyReqLimit = Limits.daily_req_limit,
    alternatives_limit: AlternativesLimit = Limits.alternatives_limit,
    timeout: Timeout = Limits.timeout,
    max_body: MaxBody = Limits.max_body,
    api_keys: ApiKeys = None,
    key_required: KeyRequired = False,
    key_url: KeyUrl = None,
    url_prefix: UrlPrefix = ServeSettings.url_prefix,
    files: Files = ServeSettings.files,
    page: Page = ServeSettings.page,
    suggestions: Suggestions = None,
    metrics: Metrics = False,
    metrics_token: MetricsToken = None,
    trust_forwarded_for: TrustForwardedFor = False,
    max_wait_ms: MaxWaitMs = 1000 * Batching.max_wait,
    drain_seconds: DrainSeconds = ServeSettings.drain_seconds,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP, with LibreTranslate's API and a page to translate on.

    SIGTERM ends it once requests in hand are answered, at the latest after --drain-seconds. SIGHUP reads models and API
    keys again while it serves.
    """
    if os.getpid() == 1:  # in a container, where process 1 ignores signals without a handler
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

    _tell_of_variables(context)
    _check_libraries()

    from repose.serving.log import Log
    from repose.serving.server import serve as serve_models

    settings = ServeSettings(
        runs=tuple(runs),
        languages=tuple(lang or ()),
        host=host,
        port=port,
        url_prefix=url_prefix.rstrip("/"),
        workers=workers,
        device=device,
        precision=precision,
        engine=engine,
        beam_size=beam_size,
        limits=Limits(
            char_limit=char_limit,
            batch_limit=batch_limit,
            req_limit=default_req_limit(host) if req_limit is None else req_limit,
            hourly_req_limit=hourly_req_limit,
            daily_req_limit=daily_req_limit,
            alternatives_limit=alternatives_limit,
            timeout=timeout,
            max_body=max_body,
        ),
        batching=Batching(max_wait=max_wait_ms / 1000),
        api_keys=api_keys,
        key_required=key_required,
        key_url=key_url,
        suggestions=suggestions,
        files=files and not _is_off(context, "files"),
        page=page and not _is_off(context, "page"),
        metrics=metrics or metrics_token is not None,
        metrics_token=metrics_token,
        trust_forwarded_for=trust_forwarded_for,
        drain_seconds=drain_seconds,
    )
    serve_models(settings, say, Log(None if quiet else sys.stderr))


def _check_libraries() -> None:
    """Raise MissingExtraError if a library of the extra `serve` is missing."""
    try:
        import repose.serving.log
        import repose.serving.server  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("repose"):
            raise
        raise MissingExtraError(f"serving needs {error.name}: pip install 'repose-nmt[serve]'") from error
    if find_spec("py3langid") is None:
        raise MissingExtraError("serving needs py3langid: pip install 'repose-nmt[serve]'")


def _is_off(context: Context, option: str) -> bool:
    """Return whether an option, not given on the command line, is turned off by its variable."""
    source = context.get_parameter_source(option)
    is_given = source is not None and source.name == "COMMANDLINE"
    return not is_given and os.environ.get(_OFF[option], "").strip().lower() in ("true", "1", "yes", "on", "t", "y")


def _tell_of_variables(context: Context) -> None:
    """List LibreTranslate's variables that are set but have no effect, since users expect one."""
    every = (option.envvar for option in context.command.params)
    read = {*_OFF.values(), *(name for names in every for name in ([names] if isinstance(names, str) else names or ()))}
    if unread := sorted(name for name in os.environ if name.startswith("LT_") and name not in read):
        say(f"not read: {', '.join(unread)} (docs/serving.md has the variables that are)")
