"""Tokenise sentence pairs into a folder of token ids (`repose.data.dataset`), once, in constant memory."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from repose.data.columns import ColumnsWriter, id_type, writing_columns
from repose.data.dataset import PreparedCounts
from repose.data.pairs import SIDES, Pair
from repose.data.tags import is_tagged
from repose.system.device import check_workers
from repose.system.errors import DataError
from repose.system.token_ids import UNK

_CHUNK = 4096  # pairs tokenised together
_NO_WORDS = 2  # tokens of a sentence that holds only START and END


@dataclass(frozen=True)
class LengthLimits:
    """The most tokens of a pair, and what becomes of longer pairs."""

    max_src_tokens: int
    """Most source tokens, START and END counted."""
    max_tgt_tokens: int
    """Most decoder positions, that is labels with END counted: one less than stored target tokens."""
    long_pairs: Literal["drop", "truncate"]


class TextEncoder(Protocol):
    """The part of `tokenizer.Tokenizer` that is needed here; must be safe to call from several threads at once."""

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary; all ids are below it."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return [START … END] for each text."""


def prepare(
    pairs: Iterable[Pair],
    tokenizers: tuple[TextEncoder, TextEncoder],
    folder: Path,
    limits: LengthLimits,
    *,
    workers: int,
) -> PreparedCounts:
    """Tokenise `pairs` into `folder`, replacing what was prepared there before.

    The first `max_src_tokens` tokens of a source [START … END] are stored, so a long source loses its END. Of a target,
    the first `max_tgt_tokens` + 1 tokens are stored, so decoder input and labels have `max_tgt_tokens` each. This is as
    in the TensorFlow tutorial and the papers. With `long_pairs="drop"`, pairs that would have to be cut are left out
    instead. Pairs with a side that has no tokens are always left out. `workers` threads tokenise; their number does not
    change the result. Memory does not grow with the number of pairs.

    The folder appears under its name when it is complete; only one process at a time may prepare it.

    Raises `DataError` if nothing is left to store or the folder holds other files, `WriteError` if it cannot be written
    (for instance on a full disk), and `ConfigError` for an unreasonable number of workers on this machine.
    """
    assert limits.max_src_tokens >= 2, "START and END"
    assert limits.max_tgt_tokens >= 1, "END"
    check_workers(workers)
    folder = folder.resolve()  # so that it has a name and a parent
    types: dict[str, str] = {side: id_type(t.vocab_size) for side, t in zip(SIDES, tokenizers, strict=True)}
    with writing_columns(folder, types) as writer:
        return _build(pairs, tokenizers, writer, limits, workers)


_EncodedColumn = tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]
"""One side of some pairs: the sentences' ids, concatenated, and the length of each sentence in tokens."""


class _EncodedPairs(NamedTuple):
    """The result of encoding a chunk of pairs."""

    columns: tuple[_EncodedColumn, _EncodedColumn]
    """Source and target of the kept pairs."""
    dropped: Counter[str]
    """Pairs left out, by reason."""
    truncated: Counter[str]
    """Kept sentences that were truncated, by reason."""


def _build(
    pairs: Iterable[Pair],
    tokenizers: tuple[TextEncoder, TextEncoder],
    writer: ColumnsWriter,
    limits: LengthLimits,
    workers: int,
) -> PreparedCounts:
    """Write all columns; return counts of what became of the pairs."""
    content = {side: (hashlib.sha256(), hashlib.sha256()) for side in SIDES}  # ids, lengths (for targets: labels)
    dropped, truncated, tokens, unknown_tokens = (Counter[str]() for _ in range(4))
    for encoded in _encode_all(pairs, tokenizers, limits, workers):
        dropped.update(encoded.dropped)
        truncated.update(encoded.truncated)
        for side, (ids, lengths) in zip(SIDES, encoded.columns, strict=True):
            writer.append(side, ids, lengths)
            labels = lengths - (side == "tgt")  # decoder positions: one fewer than target tokens
            for sha, array in zip(content[side], (ids, labels.astype("<i4")), strict=True):
                sha.update(array.data)
            tokens[side] += int(labels.sum())
            unknown_tokens[side] += int(np.count_nonzero(ids == UNK))
    num_read = writer.num_examples + dropped.total()
    if num_read == 0:
        raise DataError("there are no sentence pairs to prepare: check the corpus files")
    if writer.num_examples == 0:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(dropped.items()))
        raise DataError(
            f"none of the {num_read:,} sentence pairs can be used ({reasons}): check the corpus and the length limits"
        )
    counts = PreparedCounts(
        read=num_read,
        kept=writer.num_examples,
        dropped=dict(sorted(dropped.items())),
        truncated=dict(sorted(truncated.items())),
        src_tokens=tokens["src"],
        tgt_tokens=tokens["tgt"],
        src_unknown=unknown_tokens["src"],
        tgt_unknown=unknown_tokens["tgt"],
    )
    parts = " ".join(sha.hexdigest() for side in SIDES for sha in content[side])
    writer.finish(hashlib.sha256(parts.encode()).hexdigest(), {"counts": asdict(counts)})
    return counts


def _encode(pairs: Sequence[Pair], tokenizers: tuple[TextEncoder, TextEncoder], limits: LengthLimits) -> _EncodedPairs:
    """Tokenise pairs and apply the limits."""
    src_limit, tgt_limit = limits.max_src_tokens, limits.max_tgt_tokens + 1
    src_long, tgt_long = f"source longer than {src_limit} tokens", f"target longer than {tgt_limit - 1} tokens"
    dropped: Counter[str] = Counter()
    truncated: Counter[str] = Counter()
    srcs: list[list[int]] = []
    tgts: list[list[int]] = []
    encoded = (
        tokenizer.encode_batch(texts) for tokenizer, texts in zip(tokenizers, zip(*pairs, strict=True), strict=True)
    )
    for (text, _), src, tgt in zip(pairs, *encoded, strict=True):
        too_long = [
            reason for reason, long in ((src_long, len(src) > src_limit), (tgt_long, len(tgt) > tgt_limit)) if long
        ]
        if len(src) <= _NO_WORDS + is_tagged(text):
            dropped["source without tokens"] += 1
        elif len(tgt) <= _NO_WORDS:
            dropped["target without tokens"] += 1
        elif too_long and limits.long_pairs == "drop":
            dropped[too_long[0]] += 1
        else:
            truncated.update(too_long)
            srcs.append(src[:src_limit])
            tgts.append(tgt[:tgt_limit])
    columns = (_column(srcs, tokenizers[0].vocab_size), _column(tgts, tokenizers[1].vocab_size))
    return _EncodedPairs(columns, dropped, truncated)


def _column(sentences: list[list[int]], vocab_size: int) -> _EncodedColumn:
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    ids = np.fromiter(chain.from_iterable(sentences), dtype=id_type(vocab_size), count=int(lengths.sum()))
    return ids, lengths


def _encode_all(
    pairs: Iterable[Pair], tokenizers: tuple[TextEncoder, TextEncoder], limits: LengthLimits, workers: int
) -> Iterator[_EncodedPairs]:
    """Yield the pairs encoded, in order and one chunk at a time.

    `workers` threads encode in parallel, because tokenizers release the global interpreter lock. At most two chunks per
    thread are in progress at a time.
    """
    pending: deque[Future[_EncodedPairs]] = deque()
    remaining = iter(pairs)
    threads = ThreadPoolExecutor(workers)
    try:
        while chunk := list(islice(remaining, _CHUNK)):
            pending.append(threads.submit(_encode, chunk, tokenizers, limits))
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)
