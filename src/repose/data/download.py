"""Download one file from the first of several mirrors that serves it whole: resumed, bounded and checked.

What has arrived is kept beside the target as `<target>.part`, with `<target>.origin` saying from which address and in
which version (entity tag or date). An interrupted download goes on there by HTTP Range (RFC 9110, section 14), with
If-Range, so that a server whose file has changed since, or that knows no ranges, starts again from the first byte.
The target appears, under its own name, only once its size, checksum and content have been checked.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from repose.data.unpack import BadCopyError

Progress = Callable[[str, int, int | None], None]
"""Told (file name, bytes so far, bytes in all or None where the server does not say)."""

TIMEOUT = 30.0
"""Seconds to wait for a connection, and for the next bytes of a stalled one."""

ATTEMPTS = 3
"""How often one mirror is asked while its connections break off after some bytes."""

_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a file must be: exact size in bytes and SHA-256 where known, and never more than `max_bytes`."""

    max_bytes: int
    num_bytes: int | None = None
    sha256: str | None = None


class MirrorsFailedError(Exception):
    """No mirror served the file; `reasons` holds "host: what went wrong" for each, in the order they were tried."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


class _MirrorError(Exception):
    """This mirror cannot serve the file; the next one may."""


class _InterruptedTransferError(Exception):
    """The connection broke off, or the range was refused; asking the same mirror again may help."""


def download(
    urls: Sequence[str],
    target: Path,
    expected: Expected,
    verify: Callable[[Path], None],
    *,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
) -> str:
    """Fetch `target` from the first of `urls` whose file passes the checks and `verify`; the address that served it.

    `verify` looks into the file and raises BadCopyError where it is not what was wanted: the next mirror is tried.
    A target that is there already and passes is not downloaded again. The caller keeps others from the same target.
    Raises MirrorsFailedError when no mirror serves it, OSError when it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        try:
            _check(target, expected, verify)
            return _read_origin(target)[0] or str(target)
        except BadCopyError:
            target.unlink()
    reasons = []
    for url in urls:
        try:
            _download_from(url, target, expected, verify, progress or _silent, timeout)
            return url
        except _MirrorError as error:
            reasons.append(f"{urlsplit(url).hostname}: {error}")
    raise MirrorsFailedError(reasons)


def check_size_and_sum(path: Path, expected: Expected) -> None:
    """BadCopyError unless the file has the expected size and SHA-256."""
    size = path.stat().st_size
    if expected.num_bytes is not None and size != expected.num_bytes:
        raise BadCopyError(f"{path.name} has {size:,} bytes instead of {expected.num_bytes:,}")
    if expected.sha256 is None:
        return
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != expected.sha256:
        raise BadCopyError(f"{path.name} has the SHA-256 {sha256[:12]}… instead of {expected.sha256[:12]}…")


def _check(path: Path, expected: Expected, verify: Callable[[Path], None]) -> None:
    check_size_and_sum(path, expected)
    verify(path)


def _download_from(
    url: str,
    target: Path,
    expected: Expected,
    verify: Callable[[Path], None],
    progress: Progress,
    timeout: float,
) -> None:
    """Ask one mirror, again while its connections break off; the checked file ends as `target`."""
    part = _part(target)
    reason: Exception = _MirrorError("no attempt")
    for _ in range(ATTEMPTS):
        try:
            resumed = _transfer(url, target, expected, progress, timeout)
        except _InterruptedTransferError as error:
            reason = error
            continue
        try:
            _check(part, expected, verify)
        except BadCopyError as error:
            # A wrong file must not be resumed. One that was put together from two answers deserves a fresh start;
            # one that came in a single answer is simply what this mirror has.
            part.unlink()
            reason = error
            if resumed:
                continue
            break
        part.replace(target)
        return
    raise _MirrorError(str(reason)) from reason


def _transfer(url: str, target: Path, expected: Expected, progress: Progress, timeout: float) -> bool:
    """One request and its answer into the part file; True where it continued an earlier one."""
    part = _part(target)
    offset, validator = _resumable(url, target)
    if offset and offset == expected.num_bytes:
        return True
    headers = {"User-Agent": "repose", "Accept-Encoding": "identity"}
    if offset:
        headers |= {"Range": f"bytes={offset}-", "If-Range": validator}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and offset:
                part.unlink()
                raise _InterruptedTransferError("refuses to resume") from error
            raise _MirrorError(f"HTTP {error.code} {error.reason}".rstrip()) from error
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(_network_reason(error)) from error
    with response:
        offset = _start(response, offset)
        length = response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdecimal() else None
        _check_announced(total, expected)
        if not offset:
            # An answer to a range need not repeat what the first one said (RFC 9110, section 15.3.7).
            _write_origin(target, url, response)
        _copy(response, target, offset, total, expected, progress)
    return offset > 0


def _copy(
    response: http.client.HTTPResponse,
    target: Path,
    offset: int,
    total: int | None,
    expected: Expected,
    progress: Progress,
) -> None:
    """The body of an answer into the part file, from byte `offset` on."""
    limit = expected.max_bytes if expected.num_bytes is None else expected.num_bytes
    received = offset
    with _part(target).open("ab" if offset else "wb") as file:
        progress(target.name, received, total)
        while True:
            try:
                chunk = response.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _broken_off(received, offset, total, _network_reason(error)) from error
            if not chunk:
                break
            received += len(chunk)
            if received > limit:
                file.truncate(0)
                raise _MirrorError(f"sends more than {limit:,} bytes")
            file.write(chunk)
            progress(target.name, received, total)
    if total is not None and received < total:
        raise _broken_off(received, offset, total, "closed the connection")


def _broken_off(received: int, offset: int, total: int | None, reason: str) -> Exception:
    """The error for a body that ended early: worth another attempt only where this one brought some bytes."""
    size = f"{received:,} of {total:,} bytes" if total is not None else f"{received:,} bytes"
    message = f"{reason} after {size}"
    return _InterruptedTransferError(message) if received > offset else _MirrorError(message)


def _start(response: http.client.HTTPResponse, offset: int) -> int:
    """The position that the answer's body begins at: `offset` if the range was granted, else 0.

    Raises _MirrorError for an answer that is neither the whole file nor the range asked for.
    """
    if response.status == 200:
        return 0
    granted = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if response.status == 206 and granted and int(granted[1]) == offset:
        return offset
    raise _MirrorError(f"answers with HTTP {response.status} and another part of the file than was asked for")


def _check_announced(total: int | None, expected: Expected) -> None:
    """Refuse a file of the wrong size before it is transferred."""
    if total is None:
        return
    if expected.num_bytes is not None and total != expected.num_bytes:
        raise _MirrorError(f"offers {total:,} bytes instead of {expected.num_bytes:,}")
    if total > expected.max_bytes:
        raise _MirrorError(f"offers {total:,} bytes, more than the {expected.max_bytes:,} allowed")


def _resumable(url: str, target: Path) -> tuple[int, str]:
    """(bytes at hand, validator for If-Range) of an earlier answer of this address; (0, "") where there is none."""
    part = _part(target)
    origin, validator = _read_origin(target)
    if part.exists() and origin == url and validator:
        return part.stat().st_size, validator
    return 0, ""


def _write_origin(target: Path, url: str, response: http.client.HTTPResponse) -> None:
    # If-Range needs a strong validator: a weak entity tag (W/"…") promises less than equal bytes.
    tag = response.headers.get("ETag", "")
    validator = response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
    _origin(target).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")


def _read_origin(target: Path) -> tuple[str, str]:
    """(address, validator) that the target or its part came with; empty where that is not known."""
    try:
        record = json.loads(_origin(target).read_text(encoding="utf-8"))
        return str(record["url"]), str(record["validator"])
    except (OSError, ValueError, LookupError, TypeError):
        return "", ""


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _origin(target: Path) -> Path:
    return target.with_name(target.name + ".origin")


def _network_reason(error: Exception) -> str:
    """A few words for a network failure."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "did not answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def _silent(_name: str, _done: int, _total: int | None) -> None:
    pass
