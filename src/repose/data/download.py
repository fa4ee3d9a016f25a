"""Download one file from the first of several mirrors that serves it completely: resumable, bounded and checked.

Bytes received so far are kept next to the target as `<target>.part`; `<target>.origin` records their address and
version (entity tag or date). An interrupted download resumes with HTTP Range (RFC 9110, section 14). It sends If-Range,
so a server that does not support ranges, or whose file has changed, starts again from the first byte. The target
appears under its own name only after its size, checksum and content have been checked.
"""

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from repose.data.unpack import MAX_UNPACKED_BYTES, BadCopyError
from repose.system.files import sha256_of

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, its bytes so far, and its total bytes (None if the server does not say)."""

TIMEOUT = 30.0
"""Seconds to wait for a connection, and for the next bytes of a stalled one."""

ATTEMPTS = 3
"""How often one mirror is tried while its connections break off after some bytes."""

_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a file must be: exact size in bytes and SHA-256 if known, and never more than `max_bytes`."""

    max_bytes: int = MAX_UNPACKED_BYTES
    num_bytes: int | None = None
    sha256: str | None = None

    def check(self, path: Path) -> None:
        """Raise BadCopyError unless the file has the expected size and SHA-256."""
        size = path.stat().st_size
        if self.num_bytes is not None and size != self.num_bytes:
            raise BadCopyError(f"{path.name} has {size:,} bytes instead of {self.num_bytes:,}")
        if self.sha256 is not None:
            sha256 = sha256_of(path)
            if sha256 != self.sha256:
                raise BadCopyError(f"{path.name} has the SHA-256 {sha256[:12]}… instead of {self.sha256[:12]}…")


class MirrorsFailedError(Exception):
    """No mirror served the file. The message lists "host: what went wrong" for each, in the order of the attempts."""


class _MirrorError(Exception):
    """This mirror did not serve the file. `again`: it may do so if asked again."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


def download(
    urls: Sequence[str],
    target: Path,
    expected: Expected,
    verify: Callable[[Path], None],
    *,
    progress: Progress | None = None,
) -> str:
    """Fetch `target` from the first of `urls` that passes all checks, and return the address that served it.

    `verify` inspects the file and raises BadCopyError if it is not the wanted one; then the next mirror is tried. An
    existing target that passes the checks is not downloaded again. The caller makes sure that no other process
    downloads to the same target. Raises MirrorsFailedError if no mirror serves the file, OSError if it cannot be
    written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    file = _Download(target, expected, verify, progress or (lambda *_: None))
    if target.exists():
        try:
            file.check(target)
            return file.origin()[0] or str(target)
        except BadCopyError:
            target.unlink()
    reasons = []
    for url in urls:
        try:
            file.fetch(url)
            return url
        except _MirrorError as error:
            reasons.append(f"{urlsplit(url).hostname}: {error}")
    raise MirrorsFailedError("; ".join(reasons))


class _Download:
    """A file that is being downloaded to `target`."""

    def __init__(self, target: Path, expected: Expected, verify: Callable[[Path], None], progress: Progress) -> None:
        self._target, self._expected, self._verify, self._progress = target, expected, verify, progress
        self._part, self._origin = (target.with_name(f"{target.name}.{what}") for what in ("part", "origin"))

    def check(self, path: Path) -> None:
        """Raise BadCopyError unless `path` is the wanted file."""
        self._expected.check(path)
        self._verify(path)

    def origin(self) -> tuple[str, str]:
        """Return the recorded (address, validator) of the target or its part; empty strings if not known."""
        try:
            record = json.loads(self._origin.read_text(encoding="utf-8"))
            return str(record["url"]), str(record["validator"])
        except (OSError, ValueError, LookupError, TypeError):
            return "", ""

    def fetch(self, url: str) -> None:
        """Download from one mirror, trying again while its connections break off, and put the checked file in place."""
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                self._attempt(url)
            except _MirrorError as error:
                if not (error.again and attempts_left):
                    raise
            else:
                self._part.replace(self._target)
                return

    def _attempt(self, url: str) -> None:
        """Make one request and check the resulting part file, which may begin with bytes of an earlier request."""
        origin, validator = self.origin()
        offset = self._part.stat().st_size if self._part.exists() and origin == url and validator else 0
        if not offset or offset != self._expected.num_bytes:
            offset = self._transfer(url, offset, validator)
        try:
            self.check(self._part)
        except BadCopyError as error:
            # A wrong file must not be resumed. If it was put together from two answers, start afresh; if it came in a
            # single answer, it is what this mirror has.
            self._part.unlink()
            raise _MirrorError(str(error), again=offset > 0) from error

    def _transfer(self, url: str, offset: int, validator: str) -> int:
        """Request the bytes from `offset` on; return the position at which the answer began."""
        headers = {"User-Agent": "repose", "Accept-Encoding": "identity"}
        if offset:
            headers |= {"Range": f"bytes={offset}-", "If-Range": validator}
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and offset:
                    self._part.unlink()
                    raise _MirrorError("refuses to resume", again=True) from error
                raise _MirrorError(f"HTTP {error.code} {error.reason}".rstrip()) from error
        except (OSError, http.client.HTTPException) as error:
            raise _MirrorError(_network_reason(error)) from error
        with response:
            offset, total = self._begin(response, offset)
            if not offset:  # a partial answer need not repeat the headers of the first (RFC 9110, section 15.3.7)
                # If-Range needs a strong validator: a weak entity tag (W/"…") does not guarantee identical bytes.
                tag = response.headers.get("ETag", "")
                validator = response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
                self._origin.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
            self._copy(response, offset, total)
        return offset

    def _begin(self, response: http.client.HTTPResponse, offset: int) -> tuple[int, int | None]:
        """Return where the answer's body begins and the total bytes, if known.

        The body begins at `offset` if the range was granted, else at 0. Raises _MirrorError if the answer is neither
        the whole file nor the requested range, or has a wrong size.
        """
        granted = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if response.status == 200:
            offset = 0
        elif response.status != 206 or not granted or int(granted[1]) != offset:
            raise _MirrorError(f"answers with HTTP {response.status} and another part of the file than was asked for")
        length, expected = response.headers.get("Content-Length", ""), self._expected
        if not length.isdecimal():
            return offset, None
        total = offset + int(length)
        if expected.num_bytes is not None and total != expected.num_bytes:
            raise _MirrorError(f"offers {total:,} bytes instead of {expected.num_bytes:,}")
        if total > expected.max_bytes:
            raise _MirrorError(f"offers {total:,} bytes, more than the {expected.max_bytes:,} allowed")
        return offset, total

    def _copy(self, response: http.client.HTTPResponse, offset: int, total: int | None) -> None:
        """Copy the body of an answer into the part file, from byte `offset` on."""
        limit = self._expected.max_bytes if self._expected.num_bytes is None else self._expected.num_bytes
        received, broken_off = offset, ""
        with self._part.open("ab" if offset else "wb") as file:
            self._progress(self._target.name, received, total)
            while True:
                try:
                    chunk = response.read1(_CHUNK)
                except (OSError, http.client.HTTPException) as error:
                    broken_off = _network_reason(error)
                    break
                if not chunk:
                    break
                received += len(chunk)
                if received > limit:
                    file.truncate(0)
                    raise _MirrorError(f"sends more than {limit:,} bytes")
                file.write(chunk)
                self._progress(self._target.name, received, total)
        if total is not None and received < total:
            broken_off = broken_off or "closed the connection"
        if broken_off:
            size = f"{received:,} of {total:,}" if total is not None else f"{received:,}"
            # Another attempt is worthwhile only if this one brought some bytes.
            raise _MirrorError(f"{broken_off} after {size} bytes", again=received > offset)


def _network_reason(error: Exception) -> str:
    """Describe a network failure in a few words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "did not answer in time"
    return (isinstance(cause, OSError) and cause.strerror) or str(cause) or type(cause).__name__
