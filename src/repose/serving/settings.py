"""Settings of `repose serve`, with defaults that are safe for a machine that strangers can reach.

The command line takes its defaults from here, so this module imports little.
"""

import math
import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from repose.system.errors import ConfigError

if TYPE_CHECKING:
    from repose.decoding.engine import EngineChoice, Precision

NO_LIMIT = -1
_REQ_LIMIT = 300
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on each request, on each client, and on all clients together. A count of -1 means no limit."""

    char_limit: int = 5_000
    """Characters per text."""
    batch_limit: int = 128
    """Texts per request."""
    alternatives_limit: int = 16
    """Alternative translations per text."""
    req_limit: int = NO_LIMIT
    """Requests per minute from an address, or with an API key. A list counts once for each of its texts."""
    hourly_req_limit: int = NO_LIMIT
    """Requests per hour, counted in the same way."""
    daily_req_limit: int = NO_LIMIT
    """Requests per day, counted in the same way."""
    wrong_key_limit: int = 10
    """Wrong API keys per minute from an address. After that many, the address is refused even with a right key."""
    max_body: int = 8 << 20
    """Bytes per request body."""
    max_bodies: int = 128 << 20
    """Bytes of all request bodies that are in memory at once."""
    max_connections: int = 1_024
    """Open connections."""
    receive_seconds: float = 15.0
    """Seconds for the head of a request to arrive, and again for its body."""
    send_seconds: float = 60.0
    """Seconds in which a client has to read 64 KiB of its answer, or the rest of it."""
    timeout: float = 30.0
    """Seconds in which a request has to be answered. The header X-Request-Timeout can lower it."""
    file_timeout: float = 600.0
    """Seconds in which a file has to be translated."""
    max_files: int = 256
    """Translated files that are kept for download."""
    file_seconds: float = 1_800.0
    """Seconds for which a translated file is kept."""
    explain_limit: int = 1_000
    """Characters of a text to explain. It is low since attention grows with the square of the length."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a limit that would refuse everything."""
        requests = ("req_limit", "hourly_req_limit", "daily_req_limit")
        for name in ("char_limit", "batch_limit", *requests, "alternatives_limit"):
            least = 0 if name == "alternatives_limit" else 1
            if (value := getattr(self, name)) != NO_LIMIT and value < least:
                raise ConfigError(f"{name} = {value}, but it should be at least {least}, or -1 for no limit")
        for name in (
            *("wrong_key_limit", "max_body", "max_bodies", "max_files", "max_connections"),
            *("timeout", "file_timeout", "file_seconds", "receive_seconds", "send_seconds"),
        ):
            if not (value := getattr(self, name)) > 0:
                raise ConfigError(f"{name} = {value}, but it should be more than 0")

    @property
    def most_alternatives(self) -> int:
        """Maximum number of alternatives that a request may want: the limit, or as many as the widest beam allows."""
        from repose.config.experiment import MAX_BEAM_SIZE

        widest = MAX_BEAM_SIZE - 1
        return widest if self.alternatives_limit == NO_LIMIT else min(widest, self.alternatives_limit)

    @property
    def max_json(self) -> int:
        """Bytes of a JSON body: enough for all texts that a request may have. Parsed JSON takes many times its size."""
        counts = self.char_limit, self.batch_limit
        return self.max_body if NO_LIMIT in counts else min(self.max_body, (64 << 10) + 6 * counts[0] * counts[1])

    @property
    def max_form(self) -> int:
        """Bytes of a URL-encoded form, which takes long to parse: twelve for each character of two texts."""
        return self.max_body if self.char_limit == NO_LIMIT else min(self.max_body, (64 << 10) + 24 * self.char_limit)

    @property
    def max_head(self) -> int:
        """Bytes of a request's head: a text in the query string takes up to twelve for each character."""
        return (64 << 10) + (12 * self.char_limit if self.char_limit > 0 else self.max_body)


def default_req_limit(host: str) -> int:
    """Return the default `req_limit` for the address that the server listens on.

    There is no limit if only this machine can reach the server.
    """
    try:
        only_here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a host name
        only_here = False
    return NO_LIMIT if only_here else _REQ_LIMIT


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How the sentences of many requests are batched."""

    max_batch_tokens: int = 4_096
    """Source tokens per batch, padding included."""
    max_batch_rows: int = 64
    """Sentences per batch."""
    max_wait: float = 0.005
    """Maximum seconds that an idle worker waits for a fuller batch, since clients that it just answered may ask again.

    It also waits at most half the time that the last batch took. A lone request never waits.
    """
    max_queue_tokens: int | None = None
    """Source tokens that may wait; requests beyond them get status 503. None: 32 batches per worker."""
    batch_seconds: float = 120.0
    """Seconds after which a worker that has not answered is replaced."""

    def queue_tokens(self, workers: int) -> int:
        """Return the limit on waiting source tokens for this number of workers."""
        return self.max_queue_tokens or 32 * workers * self.max_batch_tokens


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All settings of the server."""

    runs: tuple[Path, ...]
    """Run directories, model directories, exports to ONNX, or models on a hub."""
    languages: tuple[str, ...] = ()
    """A pair such as `pt:en` for each run whose config does not state its languages, in the order of the runs."""
    host: str = "127.0.0.1"
    port: int = 5000
    """0: any free port."""
    url_prefix: str = ""
    """Prefix of all paths, such as "/translator"; empty for none."""
    workers: int | None = None
    """Number of worker processes. None: one per core on a CPU, one on any other device."""
    device: str = "cpu"
    precision: "Precision | None" = None
    """Precision of the products with weights. None: fp32, or the precision of an export."""
    engine: "EngineChoice" = "auto"
    """torch, onnx, or auto for the faster one that is available."""
    beam_size: int | None = None
    """None: the model's default."""
    limits: Limits = field(default_factory=Limits)
    batching: Batching = field(default_factory=Batching)
    api_keys: Path | None = None
    """File with one API key per line."""
    key_required: bool = False
    key_url: str | None = None
    """Address where people get a key. Clients without one are told it."""
    suggestions: Path | None = None
    """File to which suggested translations are appended as JSON lines. None: suggestions are refused."""
    files: bool = True
    """Whether to translate files."""
    page: bool = True
    """Whether to serve the page at /."""
    metrics: bool = False
    """Whether to serve /metrics."""
    metrics_token: str | None = None
    """Token that /metrics requires as `Authorization: Bearer`."""
    trust_forwarded_for: bool = False
    """Whether a client's address is the last one in X-Forwarded-For. Only for a server behind a proxy that sets it."""
    drain_seconds: float = 20.0
    """Seconds that requests in progress may take after SIGTERM."""

    def __post_init__(self) -> None:
        """Raises ConfigError if the prefix is no path, or if `drain_seconds` is not finite."""
        if not math.isfinite(self.drain_seconds):
            raise ConfigError(f"drain_seconds = {self.drain_seconds} is not a number of seconds: write it as 3600")
        if not _PREFIX.fullmatch(self.url_prefix):
            raise ConfigError(f"url_prefix = {self.url_prefix!r} is not a path: write it as /translator")
