"""Download one file from the first of several mirrors that serves it whole: resumed, bounded and checked.

What has arrived is kept beside the target as `<target>.part`, with `<target>.origin` saying from which address and in
which version (entity tag or date). An interrupted download goes on there by HTTP Range (RFC 9110, section 14), with
If-Range, so that a server whose file has changed since, or that knows no ranges, starts again from the first byte.
The target appears, under its own name, only once its size, checksum and content have been checked.
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
"""It is called with a file's name, its bytes so far, and its bytes in all (None where the server does not say)."""

TIMEOUT = 30.0
"""Seconds to wait for a connection, and for the next bytes of a stalled one."""

ATTEMPTS = 3
"""How often one mirror is asked while its connections break off after some bytes."""

_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a file must be: exact size in bytes and SHA-256 where known, and never more than `max_bytes`."""

    max_bytes: int = MAX_UNPACKED_BYTES
    num_bytes: int | None = None
    sha256: str | None = None

    def check(self, path: Path) -> None:
        """BadCopyError unless the file has the expected size and SHA-256."""
        size = path.stat().st_size
        if self.num_bytes is not None and size != self.num_bytes:
            raise BadCopyError(f"{path.name} has {size:,} bytes instead of {self.num_bytes:,}")
        if self.sha256 is not None:
            sha256 = sha256_of(path)
            if sha256 != self.sha256:
                raise BadCopyError(f"{path.name} has the SHA-256 {sha256[:12]}… instead of {self.sha256[:12]}…")


class MirrorsFailedError(Exception):
    """No mirror served the file: "host: what went wrong" of each, in the order in which they were tried."""


class _MirrorError(Exception):
    """This mirror did not serve the file; the next one may, or `again` this one."""

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
    """Fetch `target` from the first of `urls` whose file passes the checks and `verify`; the address that served it.

    `verify` looks into the file and raises BadCopyError where it is not what was wanted: the next mirror is tried.
    A target that is there already and passes is not downloaded again. The caller keeps others from the same target.
    Raises MirrorsFailedError when no mirror serves it, OSError when it cannot be written.
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
    """A file on its way to `target`."""

    def __init__(self, target: Path, expected: Expected, verify: Callable[[Path], None], progress: Progress) -> None:
        self._target, self._expected, self._verify, self._progress = target, expected, verify, progress
        self._part, self._origin = (target.with_name(f"{target.name}.{what}") for what in ("part", "origin"))

    def check(self, path: Path) -> None:
        """BadCopyError for another file than the one wanted."""
        self._expected.check(path)
        self._verify(path)

    def origin(self) -> tuple[str, str]:
        """(address, validator) that the target or its part came with; empty where that is not known."""
        try:
            record = json.loads(self._origin.read_text(encoding="utf-8"))
            return str(record["url"]), str(record["validator"])
        except (OSError, ValueError, LookupError, TypeError):
            return "", ""

    def fetch(self, url: str) -> None:
        """Ask one mirror, again while its connections break off; the checked file ends as the target."""
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
        """One request, and its checked answer in the part file, which may hold some of an earlier one."""
        origin, validator = self.origin()
        offset = self._part.stat().st_size if self._part.exists() and origin == url and validator else 0
        if not offset or offset != self._expected.num_bytes:
            offset = self._transfer(url, offset, validator)
        try:
            self.check(self._part)
        except BadCopyError as error:
            # A wrong file must not be resumed. One that was put together from two answers deserves a fresh start;
            # one that came in a single answer is simply what this mirror has.
            self._part.unlink()
            raise _MirrorError(str(error), again=offset > 0) from error

    def _transfer(self, url: str, offset: int, validator: str) -> int:
        """Ask for the bytes from `offset` on; the position that the answer began at."""
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
            if not offset:  # an answer to a range need not repeat what the first one said (RFC 9110, section 15.3.7)
                # If-Range needs a strong validator: a weak entity tag (W/"…") promises less than equal bytes.
                tag = response.headers.get("ETag", "")
                validator = response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
                self._origin.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
            self._copy(response, offset, total)
        return offset

    def _begin(self, response: http.client.HTTPResponse, offset: int) -> tuple[int, int | None]:
        """Where the answer's body begins (`offset` if the range was granted, else 0), and bytes in all, if known.

        Raises _MirrorError for an answer that is neither the whole file nor the range asked for, or of a wrong size.
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
        """The body of an answer into the part file, from byte `offset` on."""
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
            # Worth another attempt only where this one brought some bytes.
            raise _MirrorError(f"{broken_off} after {size} bytes", again=received > offset)


def _network_reason(error: Exception) -> str:
    """A few words for a network failure."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "did not answer in time"
    return (isinstance(cause, OSError) and cause.strerror) or str(cause) or type(cause).__name__
