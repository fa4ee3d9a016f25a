"""Sentence pairs to token ids, cut or left out where they are too long, by as many processes as asked for."""

import os
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from repose.data.prepared_folder import Settings, id_bytes
from repose.system.errors import DataError
from repose.system.signals import ignore_in_helper_process

Pair = tuple[str, str]

_NO_WORDS = 2  # tokens of a sentence of which nothing but START and END is left


class Encoder(Protocol):
    """What is needed of a tokenizer (`tokenizer.Tokenizer`); must be picklable where workers are used."""

    @property
    def vocab_size(self) -> int:
        """All ids are below it."""

    @property
    def digest(self) -> str:
        """Identifies the tokenizer."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """[START … END] of each text."""


class EncodedColumn(NamedTuple):
    """One side of some pairs: the sentences' ids, one after the other, and the length of each in tokens."""

    ids: NDArray[np.unsignedinteger[Any]]
    lengths: NDArray[np.int64]


class Encoded(NamedTuple):
    """What became of a chunk of pairs."""

    columns: tuple[EncodedColumn, EncodedColumn]
    """Source and target of the pairs that are kept."""
    dropped: Counter[str]
    """Pairs left out, by reason."""
    truncated: Counter[str]
    """Kept sentences that were cut, by reason."""


def encode(pairs: Sequence[Pair], tokenizers: tuple[Encoder, Encoder], settings: Settings) -> Encoded:
    """Tokenise pairs and apply the length rule of `settings`."""
    src_limit, tgt_limit = settings.max_src_tokens, settings.max_tgt_tokens + 1
    src_long, tgt_long = f"source longer than {src_limit} tokens", f"target longer than {tgt_limit - 1} tokens"
    dropped: Counter[str] = Counter()
    truncated: Counter[str] = Counter()
    srcs: list[list[int]] = []
    tgts: list[list[int]] = []
    encoded = (
        tokenizer.encode_batch(texts) for tokenizer, texts in zip(tokenizers, zip(*pairs, strict=True), strict=True)
    )
    for src, tgt in zip(*encoded, strict=True):
        too_long = [
            reason for reason, long in ((src_long, len(src) > src_limit), (tgt_long, len(tgt) > tgt_limit)) if long
        ]
        if len(src) <= _NO_WORDS:
            dropped["source without tokens"] += 1
        elif len(tgt) <= _NO_WORDS:
            dropped["target without tokens"] += 1
        elif too_long and settings.long_pairs == "drop":
            dropped[too_long[0]] += 1
        else:
            truncated.update(too_long)
            srcs.append(src[:src_limit])
            tgts.append(tgt[:tgt_limit])
    columns = (_column(srcs, tokenizers[0].vocab_size), _column(tgts, tokenizers[1].vocab_size))
    return Encoded(columns, dropped, truncated)


def _column(sentences: list[list[int]], vocab_size: int) -> EncodedColumn:
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    ids = np.fromiter(chain.from_iterable(sentences), dtype=f"<u{id_bytes(vocab_size)}", count=int(lengths.sum()))
    return EncodedColumn(ids, lengths)


def encode_all(
    chunks: Iterable[Sequence[Pair]], tokenizers: tuple[Encoder, Encoder], settings: Settings, workers: int
) -> Iterator[Encoded]:
    """Each chunk encoded, in order, by `workers` processes (0: this one), which hold at most two chunks each."""
    iterator = iter(chunks)
    first = list(islice(iterator, 2))
    chunks = chain(first, iterator)
    if workers == 0 or len(first) < 2:  # starting a process costs more than a single chunk
        for chunk in chunks:
            yield encode(chunk, tokenizers, settings)
        return
    pending: deque[Future[Encoded]] = deque()
    try:
        # Spawned, since forking is not safe where threads run (torch's, the tokenizer library's).
        with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizers, settings)) as pool:
            for chunk in chunks:
                pending.append(pool.submit(_encode_in_worker, chunk))
                if len(pending) >= 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise DataError("a tokenising process died (out of memory?): prepare the corpus with fewer workers") from error


_worker: tuple[tuple[Encoder, Encoder], Settings]
"""Set in each worker process when it starts, so that tokenizers travel once."""


def _start_worker(tokenizers: tuple[Encoder, Encoder], settings: Settings) -> None:
    global _worker
    ignore_in_helper_process()  # Ctrl-C ends the parent, and the pool with it
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    _worker = (tokenizers, settings)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Without it the workers of a parent that was killed wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_in_worker(pairs: Sequence[Pair]) -> Encoded:
    return encode(pairs, *_worker)
