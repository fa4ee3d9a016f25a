"""Keep translated files for a limited time, under names that nobody can guess."""

import secrets
import tempfile
import time
import weakref
from collections.abc import Callable, Container
from pathlib import PurePosixPath
from typing import IO

from repose.serving.refusals import RequestError, not_found
from repose.serving.settings import Limits


def suffix_of(name: str, known: Container[str]) -> str:
    """Return the suffix of a file's name in lower case. Raises RequestError if the suffix is not in `known`."""
    suffix = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if suffix not in known:
        raise RequestError(400, f"Invalid request: file format {suffix[:16] or 'without a name'} is not supported")
    return suffix


class Downloads:
    """Translated files for download.

    The files have no names in the file system. So they are deleted by `close`, and also when the process ends, however
    it ends.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._files: dict[str, tuple[float, str, IO[bytes]]] = {}
        self.close = weakref.finalize(self, _close_all, self._files)
        """Delete all files."""

    def put(self, suffix: str, content: bytes, media_type: str) -> str:
        """Keep a file and return its name for `get`. Raises RequestError if there is no room for it."""
        try:
            file = tempfile.TemporaryFile()  # noqa: SIM115
            file.write(content)
            file.flush()
        except OSError as error:
            raise RequestError(507, f"The translated file cannot be kept: {error.strerror or error}") from error
        name = secrets.token_urlsafe(16) + suffix
        self._forget(self._limits.max_files - 1)
        self._files[name] = self._clock(), media_type, file
        return name

    def get(self, name: str) -> tuple[bytes, str]:
        """Return a file's content and media type. Raises RequestError if there is no such file, or no longer."""
        self._forget(self._limits.max_files)
        if name not in self._files:
            raise not_found()
        _, media_type, file = self._files[name]
        file.seek(0)
        return file.read(), media_type

    def _forget(self, most: int) -> None:
        """Delete files that are too old, and the oldest ones if there are more than `most`."""
        now = self._clock()
        for name, (written, _, file) in list(self._files.items()):
            if now - written > self._limits.file_seconds or len(self._files) > most:
                del self._files[name]
                file.close()


def _close_all(files: dict[str, tuple[float, str, IO[bytes]]]) -> None:
    for _, _, file in files.values():
        file.close()
    files.clear()
