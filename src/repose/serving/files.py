"""Files: translated as a whole, and kept under a name that nobody guesses until they are fetched or old."""

import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from repose.serving.refusals import RequestError
from repose.serving.settings import Limits

Translate = Callable[[str], Awaitable[str]]
"""Of a whole text."""

_NAME = re.compile(r"[A-Za-z0-9_-]{22}\.[a-z]{2,5}")


class Format(NamedTuple):
    """How files of one kind are translated."""

    media_type: str
    translate: Callable[[bytes, Translate], Awaitable[bytes]]
    """Raises RequestError for content that is not of this kind."""


async def _plain(content: bytes, translate: Translate) -> bytes:
    return (await translate(_text(content))).encode()


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(400, "Invalid request: the file is not UTF-8 text") from error


FORMATS = {".txt": Format("text/plain; charset=utf-8", _plain)}
"""By the ends of names."""


def format_of(name: str) -> str:
    """The end of a file's name, if it is of a format that is known. Raises RequestError."""
    suffix = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if suffix not in FORMATS:
        raise RequestError(400, f"Invalid request: file format {suffix[:16] or 'without a name'} is not supported")
    return suffix


class Downloads:
    """A folder of translated files, which ends with this object's `close`."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._folder: Path | None = None
        self._files: dict[str, float] = {}

    def put(self, suffix: str, content: bytes) -> str:
        """Keep a file; the name under which it can be had."""
        self._forget(self._limits.max_files - 1)
        name = secrets.token_urlsafe(16) + suffix
        (self._place() / name).write_bytes(content)
        self._files[name] = self._clock()
        return name

    def get(self, name: str) -> Path:
        """Raises RequestError where there is none, any more."""
        self._forget(self._limits.max_files)
        if not _NAME.fullmatch(name) or name not in self._files:
            raise RequestError(404, "Not Found")
        return self._place() / name

    def close(self) -> None:
        """Delete all of them."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._files = None, {}

    def _forget(self, most: int) -> None:
        """The old ones, and the oldest where there are more than so many."""
        now = self._clock()
        for name, written in list(self._files.items()):
            if now - written > self._limits.file_seconds or len(self._files) > most:
                del self._files[name]
                (self._place() / name).unlink(missing_ok=True)

    def _place(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="repose-serve-"))
        return self._folder
