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
    Option(metavar="SRC:TGT", help="Languages of a model that does not state them, such as pt:en. Can be repeated."),
]

# Address
Host = Annotated[str, Option(envvar="LT_HOST", help="Address to listen on; 0.0.0.0 lets others in.")]
Port = Annotated[int, Option(min=0, max=65535, envvar="LT_PORT", help="Port to listen on; 0 chooses a free one.")]
UrlPrefix = Annotated[str, Option(envvar="LT_URL_PREFIX", help="Prefix of all paths, such as /translator.")]
TrustForwardedFor = Annotated[
    bool, Option("--trust-forwarded-for", help="Behind a proxy: take clients' addresses from X-Forwarded-For.")
]

# Decoding and batching
BeamSize = Annotated[
    int | None, Option("--beam-size", "-b", min=1, max=64, help="Beam size; 1 decodes greedily (default: the model's).")
]
MaxWaitMs = Annotated[float, Option(min=0, max=1000, help="Longest wait, in milliseconds, to fill a batch under load.")]

# Limits
CharLimit = Annotated[int, Option(envvar="LT_CHAR_LIMIT", help="Maximum number of characters in a text; -1: no limit.")]
BatchLimit = Annotated[int, Option(envvar="LT_BATCH_LIMIT", help="Maximum number of texts in a request; -1: no limit.")]
ReqLimit = Annotated[
    int | None,
    Option(
        envvar="LT_REQ_LIMIT",
        help="Maximum requests per minute per address or key; -1: no limit (default: none on 127.0.0.1, else 300).",
    ),
]
HourlyReqLimit = Annotated[int, Option(envvar="LT_HOURLY_REQ_LIMIT", help="Maximum requests per hour; -1: no limit.")]
DailyReqLimit = Annotated[int, Option(envvar="LT_DAILY_REQ_LIMIT", help="Maximum requests per day; -1: no limit.")]
AlternativesLimit = Annotated[
    int,
    Option(envvar="LT_ALTERNATIVES_LIMIT", help="Maximum number of alternative translations of a text; -1: no limit."),
]
Timeout = Annotated[float, Option(help="Maximum seconds for a request.")]
MaxBody = Annotated[int, Option(help="Maximum bytes in a request.")]
DrainSeconds = Annotated[float, Option(min=0, help="Maximum seconds to finish open requests after SIGTERM.")]

# Access
ApiKeys = Annotated[Path | None, Option(help="File with one API key per line.")]
KeyRequired = Annotated[bool, Option("--key-required", help="Refuse requests without a key.")]
KeyUrl = Annotated[
    str | None, Option(envvar="LT_GET_API_KEY_LINK", help="Where people get a key; shown to those without one.")
]

# Other features
Files = Annotated[bool, Option(help="Also translate files.")]
Page = Annotated[bool, Option(help="Serve a page at /.")]
Suggestions = Annotated[Path | None, Option(help="File to append suggested translations to.")]
Metrics = Annotated[bool, Option("--metrics", envvar="LT_METRICS", help="Serve /metrics for Prometheus.")]
MetricsToken = Annotated[
    str | None, Option(envvar=["REPOSE_METRICS_TOKEN", "LT_METRICS_AUTH_TOKEN"], help="Token that /metrics asks for.")
]
Quiet = Annotated[bool, Option("--quiet", help="Write no log (on a terminal: not even errors).")]

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
    """Serve models over HTTP, with LibreTranslate's API and a web page.

    SIGTERM stops the server when open requests are answered, after --drain-seconds at the latest.

    SIGHUP reloads models and API keys while it serves.
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
        say(f"not read: {', '.join(unread)} (docs/serving.md lists the variables that are)")
