"""Translated files, kept under names that nobody guesses until they are old."""

import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Container
from pathlib import Path, PurePosixPath

from repose.serving.refusals import RequestError
from repose.serving.settings import Limits

_NAME = re.compile(r"[A-Za-z0-9_-]{22}\.[a-z]{2,5}")


def suffix_of(name: str, known: Container[str]) -> str:
    """The end of a file's name, in lower case. Raises RequestError for one that is not known."""
    suffix = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if suffix not in known:
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
