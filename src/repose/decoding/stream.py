"""Translate files of lines: one line out per line in, in order, and none is held back while the input pauses."""

import codecs
import contextlib
import io
import math
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple

from repose.data.lines import encoding_by_mark, is_document, on_one_line, order_of_utf_16
from repose.data.pairs import Row
from repose.data.scripts import unseen_script
from repose.decoding.parts import translate_texts
from repose.decoding.translator import Translation, Translator
from repose.system.errors import DataError

WINDOW = 1024
"""Maximum number of lines per process that are read ahead and translated together."""
PAUSE = 0.05
"""Seconds without a further line after which the lines read so far are translated."""
MAX_LINE_BYTES = 1 << 18
"""Only this much of a longer line is read; it is far more than a model can read."""
_BLOCK = 1 << 16


def _as_invalid(error: UnicodeError) -> tuple[str, int]:
    """Put, in place of what cannot be decoded, what "surrogateescape" encodes as a byte that UTF-8 lacks."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


_AS_INVALID = "repose.as_invalid"
codecs.register_error(_AS_INVALID, _as_invalid)


@dataclass
class StreamCounts:
    """Counts of lines that were read, cut and left out."""

    lines: int = 0
    truncated: int = 0
    """Lines with a sentence that is too long and has no place to split it: only its beginning was translated."""
    too_long: int = 0
    """Lines with a sentence that was translated in parts."""
    unseen: tuple[int, str] | None = None
    """The first line, from 1, whose sentences are in a script that the model's training hardly saw, and that script."""
    cut: int = 0
    """Lines longer than `MAX_LINE_BYTES`, of which the rest was not read."""
    invalid: int = 0
    """Lines with bytes that are not UTF-8, which were replaced by U+FFFD."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Lines without a result, by reason."""


def translate_lines(
    translator: Translator, source: BinaryIO, counts: StreamCounts, **how: Any
) -> Iterator[Translation]:
    """Yield one translation per line of `source` (UTF-8, split at newlines only); the sentences of a line are
    translated one by one (`repose.decoding.parts`). `how` as for `Translator.translate`. Holds at most two windows in
    memory.

    A thread reads; it may still wait for input when this ends, but `source` can be closed all the same. Raises what
    `Translator.translate` raises, and OSError if reading fails.
    """
    size = WINDOW * translator.workers
    scripts = translator.config.get("src_scripts")
    seen = set(map(str, scripts)) if isinstance(scripts, list) else None  # not every model has them
    with _read(source, size) as read:
        for window in _windows(read, size):
            lines = [_decode(line, counts) for line in window]
            for translation, parts in translate_texts(translator, lines, **how):
                counts.lines += 1
                counts.truncated += translation.truncated
                counts.too_long += parts.too_long
                if seen and counts.unseen is None and (script := unseen_script(" ".join(parts.sentences), seen)):
                    counts.unseen = (counts.lines, script)
                yield translation


def score_lines(
    translator: Translator, rows: Iterable[Row], counts: StreamCounts, *, to: str | None = None
) -> Iterator[float]:
    """Yield the log-probability in nats of each row's target given its source; nan for rows without a pair, and for
    targets longer than the model can read. A source that is too long is cut, not split, since its target belongs to all
    of it. `to` as for `Translator.score`. Raises what iterating `rows` and `Translator.score` raise."""
    limit = translator.max_length
    remaining = iter(rows)
    while window := list(islice(remaining, WINDOW)):
        pairs: dict[int, tuple[str, list[int]]] = {}
        for place, row in enumerate(window):
            counts.lines += 1
            if isinstance(row, str):
                counts.dropped[row] += 1
            elif len(tokens := translator.tgt_tokenizer.encode(row[1])) > limit + 1:
                counts.dropped[f"target longer than {limit:,} tokens"] += 1
            else:
                pairs[place] = (row[0], tokens)
        forced = translator.force([src for src, _ in pairs.values()], [tokens for _, tokens in pairs.values()], to=to)
        counts.truncated += sum(f.truncated for f in forced)
        scores = dict(zip(pairs, (f.total for f in forced), strict=True))
        yield from (scores.get(place, math.nan) for place in range(len(window)))


class DecodedLine(NamedTuple):
    """A line of a file as text."""

    text: str
    cut: bool
    """True if the line had more than `MAX_LINE_BYTES` bytes; the rest was not read."""
    invalid: bool
    """True if bytes that are not UTF-8 were replaced by U+FFFD."""


def decoded(line: bytes) -> DecodedLine:
    """Decode a line without its line feed; a carriage return at its end is dropped."""
    data = line.removesuffix(b"\r")
    if cut := (end := MAX_LINE_BYTES) < len(data):
        while end > MAX_LINE_BYTES - 4 and data[end] & 0xC0 == 0x80:  # within a character
            end -= 1
        data = data[:end]
    try:
        return DecodedLine(data.decode(), cut, False)
    except UnicodeDecodeError:
        return DecodedLine(data.decode(errors="replace"), cut, True)


def printed(translation: Translation, number: int, *, num_hypotheses: int = 1, scores: bool = False) -> list[str]:
    """Return the lines that `repose translate` prints for line `number`, from 0: one, or one per hypothesis."""
    if num_hypotheses > 1:
        hypotheses = [(h.text, h.score) for h in translation.hypotheses] or [("", math.nan)]
        return [f"{number} ||| {on_one_line(text)} ||| {score:.4f}" for text, score in hypotheses]
    return [f"{translation.score:.4f}\t" * scores + on_one_line(translation.text)]


def _decode(line: bytes, counts: StreamCounts) -> str:
    text, cut, invalid = decoded(line)
    counts.cut += cut
    counts.invalid += invalid
    return text


@contextlib.contextmanager
def _read(source: BinaryIO, size: int) -> Iterator["queue.Queue[bytes | Exception | None]"]:
    """Yield a queue of lines that a thread reads, None at the end. On leaving, it reads at most the next block."""
    lines: queue.Queue[bytes | Exception | None] = queue.Queue(size)
    left = threading.Event()

    def read() -> None:
        try:
            with _unlocked(source) as read_block:
                blocks = in_utf_8(iter(lambda: read_block(_BLOCK), b""))
                for line in without_mark(lines_of(lambda _: next(blocks, b""))):
                    lines.put(line)
                    if left.is_set():
                        return
            lines.put(None)
        except Exception as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True, name="repose-input").start()
    try:
        yield lines
    finally:
        left.set()
        with contextlib.suppress(queue.Empty):  # the thread may be waiting for room to put one more line
            while True:
                lines.get_nowait()


@contextlib.contextmanager
def _unlocked(source: BinaryIO) -> Iterator[Callable[[int], bytes]]:
    """Yield `source.read` without the lock of a buffered file. A thread that waits for input would hold that lock, and
    Python waits for it when `source` is closed, and when the program ends."""
    raw = getattr(source, "raw", source)
    if type(raw).__name__ == "_WindowsConsoleIO":  # its descriptor gives other bytes; nobody types whole blocks
        yield raw.read
        return
    if not isinstance(raw, io.FileIO):  # in memory, or compressed
        yield source.read
        return
    descriptor = os.dup(raw.fileno())
    try:
        yield lambda size: os.read(descriptor, size)
    finally:
        os.close(descriptor)


def in_utf_8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Return blocks of the same text in UTF-8, if its byte-order mark says that it is in UTF-16; the mark stays.

    What is not valid in UTF-16 becomes a byte that is not valid in UTF-8, so that `decoded` tells of it."""
    first = next(blocks, b"")
    blocks = chain([first], blocks)
    if encoding := encoding_by_mark(first):
        blocks = codecs.iterencode(codecs.iterdecode(blocks, encoding, _AS_INVALID), "utf-8", "surrogateescape")
    return blocks


def lines_of(read_block: Callable[[int], bytes], max_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Yield lines without their line feeds, each as soon as it is complete; a long line is cut a little beyond
    `max_bytes`."""
    begun = b""
    while block := read_block(_BLOCK):
        *ended, last = block.split(b"\n")
        for line in ended:
            yield begun + line
            begun = b""
        if len(begun) <= max_bytes:
            begun += last
    if begun:
        yield begun


def without_mark(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, without the byte order mark that Windows may write at its start. Raises DataError for
    UTF-16 without a mark and UTF-32, which cannot be split into lines this way, and for documents."""
    for first in islice(lines, 1):
        if is_document(first):
            raise DataError(
                "this is not text but a file of Word, Excel or another program: translate it with `repose "
                "translate-file`, or save it as plain text in UTF-8"
            )
        order, is_utf_32 = order_of_utf_16(first), first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))
        if order or is_utf_32:
            name = "UTF-32" if is_utf_32 else "UTF-16"
            command = f"iconv -f {name.lower()}{order} -t utf-8"
            raise DataError(f"the text is in {name}: save it in UTF-8, or pipe it through `{command}`")
        yield first.removeprefix(codecs.BOM_UTF8)
    yield from lines


def _windows(lines: "queue.Queue[bytes | Exception | None]", size: int) -> Iterator[list[bytes]]:
    """Yield windows of lines: each ends when it is full, when the input pauses, or when the input ends."""
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
