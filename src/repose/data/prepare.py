"""Tokenise sentence pairs into a prepared folder (`prepared_folder.py`), once, in constant memory."""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from repose.data.encode_pairs import EncodedColumn, Encoder, Pair, encode_all
from repose.data.prepared_folder import (
    FORMAT_VERSION,
    SIDES,
    Meta,
    PreparedCounts,
    Settings,
    Side,
    content_digest,
    is_ours,
    read_content_digest,
    read_meta,
    write_meta,
)
from repose.system.errors import ConfigError, DataError, unknown
from repose.system.files import locked

_CHUNK = 4096  # pairs tokenised together
_UNK = 1


@dataclass(frozen=True)
class PreparedReport:
    """What `prepare` did."""

    folder: Path
    counts: PreparedCounts
    digest: str
    """Of the content, as `PairDataset.digest`."""
    reused: bool
    """A finished folder of the same text, tokenizers and settings was there."""


def prepare(
    pairs: Iterable[Pair],
    src_tokenizer: Encoder,
    tgt_tokenizer: Encoder,
    folder: Path,
    *,
    max_src_tokens: int,
    max_tgt_tokens: int,
    long_pairs: Literal["drop", "truncate"],
    workers: int,
) -> PreparedReport:
    """Tokenise `pairs` into `folder`, or reuse what lies there from the same text, tokenizers and settings.

    Stored are the first `max_src_tokens` tokens of a source [START … END], so that a long source loses END, and the
    first `max_tgt_tokens` + 1 of a target (decoder input and labels then have `max_tgt_tokens`), as in the TensorFlow
    tutorial and the papers; with `long_pairs="drop"` pairs that would have to be cut are left out. Pairs of which a
    side has no tokens are left out too. `workers` processes tokenise (0: this one); their number does not change the
    result. Memory is constant in the number of pairs. To reuse a folder, `pairs` is read once, for its digest; it must
    be iterable more than once for that: of an iterator, the folder is made anew.

    The folder appears under its name when it is complete, and processes that prepare the same folder wait for each
    other. Raises `DataError` when nothing is left to store, when the folder cannot be written (a full disk) or holds
    other files, and `ConfigError` for settings that make no sense.
    """
    settings = _checked(Settings(max_src_tokens, max_tgt_tokens, long_pairs), workers)
    tokenizers = (src_tokenizer, tgt_tokenizer)
    with _sentence_for_os_errors(folder):
        folder = folder.resolve()  # so that it has a name and a parent
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not (folder.is_dir() and is_ours(folder)):
            raise DataError(f"{folder} exists and is not a prepared dataset: name another folder")
        with locked(folder.with_name(f".{folder.name}.lock")):
            if not isinstance(pairs, Iterator):
                meta = _finished(folder, settings, tokenizers)
                if meta is not None and _text_digest(pairs) == meta.text_digest:
                    return PreparedReport(folder, meta.counts, meta.digest, reused=True)
            partial = folder.with_name(f".{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)  # left by a run that was killed
            partial.mkdir()
            try:
                meta = _build(pairs, tokenizers, partial, settings, workers)
                _replace(folder, partial)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    return PreparedReport(folder, meta.counts, meta.digest, reused=False)


def _checked(settings: Settings, workers: int) -> Settings:
    if settings.long_pairs not in ("drop", "truncate"):
        raise ConfigError(unknown("treatment of long pairs", settings.long_pairs, ("drop", "truncate")))
    if settings.max_src_tokens < 2 or settings.max_tgt_tokens < 1:
        raise ConfigError(
            f"max_src_tokens = {settings.max_src_tokens} and max_tgt_tokens = {settings.max_tgt_tokens} leave no room "
            "for a word: set them to at least 2 and 1"
        )
    if workers < 0:
        raise ConfigError(f"workers is {workers}: give the number of tokenising processes, or 0 for none")
    return settings


def _finished(folder: Path, settings: Settings, tokenizers: tuple[Encoder, Encoder]) -> Meta | None:
    """The intact folder's meta, if it was made with these settings and tokenizers."""
    try:
        meta = read_meta(folder)
        intact = read_content_digest(folder) == meta.digest
    except (DataError, OSError):
        return None
    same = meta.settings == settings and (meta.src_tokenizer, meta.tgt_tokenizer) == tuple(t.digest for t in tokenizers)
    return meta if intact and same else None


def _replace(folder: Path, partial: Path) -> None:
    """Put the complete folder in its place; what was there goes first aside, since folders cannot be overwritten."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.replace(old)
    partial.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _sentence_for_os_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"cannot prepare {folder} ({reason}): make room for it or name another folder") from error


def _text_bytes(pairs: Iterable[Pair]) -> bytes:
    """An unambiguous form of the text: nothing but the pairs themselves gives the same bytes."""
    return "".join([f"{len(src)} {len(tgt)} {src}{tgt}" for src, tgt in pairs]).encode()


def _text_digest(pairs: Iterable[Pair]) -> str:
    sha = hashlib.sha256()
    for chunk in _chunks(pairs):
        sha.update(_text_bytes(chunk))
    return sha.hexdigest()


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


class _Column:
    """One side of the folder while it is written."""

    def __init__(self, folder: Path, side: Side, files: ExitStack) -> None:
        self._ids, self._offsets, self._lengths = (
            files.enter_context((folder / f"{side}.{part}").open("wb")) for part in ("ids", "offsets", "lengths")
        )
        self._shift = 1 if side == "tgt" else 0  # decoder positions are one fewer than target tokens
        self._digests = (hashlib.sha256(), hashlib.sha256())
        self._end = 0
        self.unknown = 0
        self._offsets.write(np.array([0], dtype="<i8").tobytes())

    def write(self, encoded: EncodedColumn) -> None:
        """Append sentences."""
        ids, lengths = encoded
        ends = self._end + np.cumsum(lengths)
        self._end += len(ids)
        self.unknown += int(np.count_nonzero(ids == _UNK))
        self._offsets.write(ends.astype("<i8").tobytes())
        content = (ids.tobytes(), (lengths - self._shift).astype("<i4").tobytes())
        for file, sha, data in zip((self._ids, self._lengths), self._digests, content, strict=True):
            file.write(data)
            sha.update(data)

    def finish(self) -> tuple[int, list[str]]:
        """Force the files to the disk; returns the number of ids and the digests of ids and lengths."""
        for file in (self._ids, self._offsets, self._lengths):
            file.flush()
            os.fsync(file.fileno())
        return self._end, [sha.hexdigest() for sha in self._digests]


def _build(
    pairs: Iterable[Pair], tokenizers: tuple[Encoder, Encoder], partial: Path, settings: Settings, workers: int
) -> Meta:
    """Fill the folder `partial`."""
    text = hashlib.sha256()
    read = kept = 0
    dropped: Counter[str] = Counter()
    truncated: Counter[str] = Counter()

    def watched() -> Iterator[list[Pair]]:
        nonlocal read
        for chunk in _chunks(pairs):
            text.update(_text_bytes(chunk))
            read += len(chunk)
            yield chunk

    with ExitStack() as files:
        columns = [_Column(partial, side, files) for side in SIDES]
        for encoded in encode_all(watched(), tokenizers, settings, workers):
            kept += len(encoded.columns[0].lengths)
            dropped.update(encoded.dropped)
            truncated.update(encoded.truncated)
            for column, sentences in zip(columns, encoded.columns, strict=True):
                column.write(sentences)
        if kept == 0:
            raise DataError(_nothing_left(read, dropped))
        (src_ids, src_digests), (tgt_ids, tgt_digests) = (column.finish() for column in columns)
    meta = Meta(
        format_version=FORMAT_VERSION,
        settings=settings,
        src_tokenizer=tokenizers[0].digest,
        tgt_tokenizer=tokenizers[1].digest,
        src_vocab_size=tokenizers[0].vocab_size,
        tgt_vocab_size=tokenizers[1].vocab_size,
        text_digest=text.hexdigest(),
        digest=content_digest(src_digests + tgt_digests),
        counts=PreparedCounts(
            read=read,
            kept=kept,
            dropped=dict(sorted(dropped.items())),
            truncated=dict(sorted(truncated.items())),
            src_tokens=src_ids,
            tgt_tokens=tgt_ids - kept,
            src_unknown=columns[0].unknown,
            tgt_unknown=columns[1].unknown,
        ),
    )
    write_meta(partial, meta)
    return meta


def _nothing_left(read: int, dropped: Counter[str]) -> str:
    if read == 0:
        return "there are no sentence pairs to prepare: check the corpus files"
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(dropped.items()))
    return f"none of the {read:,} sentence pairs can be used ({reasons}): check the corpus and the length limits"
