"""What `repose serve` can be told, with defaults that are safe for a machine that strangers can reach.

The command line takes its defaults from here, so this loads little.
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
    """What one request, one client and all of them together may ask for. A count of -1 is no limit."""

    char_limit: int = 5_000
    """Characters of a text."""
    batch_limit: int = 128
    """Texts of a request."""
    alternatives_limit: int = 16
    """Further translations of a text."""
    req_limit: int = NO_LIMIT
    """Requests a minute of an address, or of an API key; a list counts once for each of its texts."""
    hourly_req_limit: int = NO_LIMIT
    """Likewise an hour, besides."""
    daily_req_limit: int = NO_LIMIT
    """Likewise a day, besides."""
    wrong_key_limit: int = 10
    """Wrong API keys a minute from an address; after them it is refused, right keys or wrong ones."""
    max_body: int = 8 << 20
    """Bytes of a request's body."""
    max_bodies: int = 128 << 20
    """Bytes of all bodies that are in memory at once."""
    max_connections: int = 1_024
    """Open connections."""
    receive_seconds: float = 15.0
    """For a request to arrive, its head and its body each."""
    send_seconds: float = 60.0
    """In which a client has to read 64 KiB of what was written to it, or the rest."""
    timeout: float = 30.0
    """Seconds for a request to be answered; the header X-Request-Timeout lowers it."""
    file_timeout: float = 600.0
    """Seconds for a file to be translated."""
    max_files: int = 256
    """Translated files that are kept for their downloads."""
    file_seconds: float = 1_800.0
    """Seconds for which each is kept."""
    explain_limit: int = 1_000
    """Characters of a text that is explained: attention grows with the square of the length."""

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
        """Further translations of a text that can be asked for: no beam is wider than the widest."""
        from repose.config.experiment import MAX_BEAM_SIZE

        widest = MAX_BEAM_SIZE - 1
        return widest if self.alternatives_limit == NO_LIMIT else min(widest, self.alternatives_limit)

    @property
    def max_json(self) -> int:
        """Bytes of JSON, which is many times as large once it is read: those of all texts that a request may have."""
        counts = self.char_limit, self.batch_limit
        return self.max_body if NO_LIMIT in counts else min(self.max_body, (64 << 10) + 6 * counts[0] * counts[1])

    @property
    def max_form(self) -> int:
        """Bytes of a form in one line, which takes long to read: twelve for each character of two texts."""
        return self.max_body if self.char_limit == NO_LIMIT else min(self.max_body, (64 << 10) + 24 * self.char_limit)

    @property
    def max_head(self) -> int:
        """Bytes of a request's head: a text in the query string has up to twelve for each character."""
        return (64 << 10) + (12 * self.char_limit if self.char_limit > 0 else self.max_body)


def default_req_limit(host: str) -> int:
    """Requests a minute of each client, by the address that is listened on: none where only this machine can ask."""
    try:
        only_here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        only_here = False
    return NO_LIMIT if only_here else _REQ_LIMIT


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How sentences of many requests are put together."""

    max_batch_tokens: int = 4_096
    """Source tokens of a batch, padding included."""
    max_batch_rows: int = 64
    """Sentences of a batch."""
    max_wait: float = 0.005
    """Seconds that an idle worker waits at most for those to come again whom it has answered together, and half of what
    answering them took; a lone request waits for nothing."""
    max_queue_tokens: int | None = None
    """Source tokens that may wait, beyond which requests get 503. None: 32 batches for each worker."""
    batch_seconds: float = 120.0
    """Seconds after which a worker that has not answered is given up."""

    def queue_tokens(self, workers: int) -> int:
        """The limit for so many workers."""
        return self.max_queue_tokens or 32 * workers * self.max_batch_tokens


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All of it."""

    runs: tuple[Path, ...]
    """Run directories or model directories."""
    languages: tuple[str, ...] = ()
    """`pt:en` for each run whose config does not know its languages, in the order of the runs."""
    host: str = "127.0.0.1"
    port: int = 5000
    """0: any that is free."""
    url_prefix: str = ""
    """Path that all others are below, as "/translator"; empty for none."""
    workers: int | None = None
    """Processes that translate. None: one per core on a CPU, one on any other device."""
    device: str = "cpu"
    precision: "Precision | None" = None
    """None: fp32, or as exported."""
    engine: "EngineChoice" = "auto"
    """torch, onnx, or auto: the faster one that is there."""
    beam_size: int | None = None
    """None: the model's."""
    limits: Limits = field(default_factory=Limits)
    batching: Batching = field(default_factory=Batching)
    api_keys: Path | None = None
    """File with a key per line."""
    key_required: bool = False
    key_url: str | None = None
    """Where people get a key; told to those who have none."""
    suggestions: Path | None = None
    """File that suggested translations are appended to, as JSON lines. None: they are refused."""
    files: bool = True
    """Whether files are translated."""
    page: bool = True
    """Whether there is a page at /."""
    metrics: bool = False
    """Whether there is /metrics."""
    metrics_token: str | None = None
    """What /metrics asks for as `Authorization: Bearer`."""
    trust_forwarded_for: bool = False
    """Whether the address of a client is the last one of X-Forwarded-For: behind a proxy that sets it."""
    drain_seconds: float = 20.0
    """Seconds that requests may take to end after SIGTERM."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a prefix that is no path, and where requests might never end."""
        if not math.isfinite(self.drain_seconds):
            raise ConfigError(f"drain_seconds = {self.drain_seconds} is no number of seconds: write it as 3600")
        if not _PREFIX.fullmatch(self.url_prefix):
            raise ConfigError(f"url_prefix = {self.url_prefix!r} is no path: write it as /translator")
