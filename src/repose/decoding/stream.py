"""Translation as a filter: lines in, as many lines out, in order, and none held back while the input pauses."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from repose.decoding.translator import Translation, Translator

WINDOW = 1024
"""Lines for each process that are read ahead and translated together at most."""
PAUSE = 0.05
"""Seconds without a further line after which what was read is translated."""


@dataclass
class StreamCounts:
    """What became of the lines."""

    lines: int = 0
    truncated: int = 0
    """Lines longer than the model reads: their beginning was translated."""
    invalid: int = 0
    """Lines with bytes that are not UTF-8, which were replaced by U+FFFD."""


def translate_lines(
    translator: Translator, source: BinaryIO, counts: StreamCounts, *, beam_size: int | None, num_hypotheses: int
) -> Iterator[Translation]:
    """One translation per line of `source` (UTF-8, split at newlines only). Holds at most two windows in memory.

    Raises what `Translator.translate` raises, and OSError where reading fails.
    """
    size = WINDOW * translator.workers
    for window in _windows(_read(source, size), size):
        lines = [_decode(line, counts) for line in window]
        for translation in translator.translate(lines, beam_size=beam_size, num_hypotheses=num_hypotheses):
            counts.lines += 1
            counts.truncated += translation.truncated
            yield translation


def _decode(line: bytes, counts: StreamCounts) -> str:
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return text.decode()
    except UnicodeDecodeError:
        counts.invalid += 1
        return text.decode(errors="replace")


def _read(source: BinaryIO, size: int) -> "queue.Queue[bytes | Exception | None]":
    """Lines as a thread reads them; None at the end."""
    lines: queue.Queue[bytes | Exception | None] = queue.Queue(size)

    def read() -> None:
        try:
            for line in source:
                lines.put(line)
            lines.put(None)
        except (OSError, ValueError) as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True, name="repose-input").start()
    return lines


def _windows(lines: "queue.Queue[bytes | Exception | None]", size: int) -> Iterator[list[bytes]]:
    """Windows that end when they are full, when the input pauses, or at its end."""
    window: list[bytes] = []
    while True:
        try:
            line = lines.get(timeout=PAUSE if window else None)
        except queue.Empty:
            yield window
            window = []
            continue
        if isinstance(line, Exception):
            raise line
        if line is None:
            if window:
                yield window
            return
        window.append(line)
        if len(window) == size:
            yield window
            window = []
