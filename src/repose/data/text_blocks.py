"""Plain text for language modelling: documents as token ids, cut into blocks.

A document is a line (in WikiText, a paragraph or a heading); empty lines are left out. It becomes [START x_1 .. x_n
END] and is cut into blocks of at most `max_tokens` predictions. A block begins with the last token of the block before
it, the first one with START. So every token except START is predicted exactly once, from the earlier tokens of its
block, and nothing is carried over from one block or document to the next.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.data.columns import Prepared, write_columns
from repose.data.lines import LineReader, check_file
from repose.data.prepare import TextEncoder
from repose.system.terminal import counted
from repose.system.token_ids import START

MAX_LINE_BYTES = 1 << 22
"""Longer lines are left out: they are damaged."""
_CHUNK = 1024  # lines tokenised together
_TOKENS = "tokens"


class TextBlocks(Prepared):
    """The blocks of a prepared text; each block is an example."""

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """(N,): predicted tokens of each block."""
        return self.columns.lengths(_TOKENS) - 1

    @property
    def src_lengths(self) -> NDArray[np.int32]:
        """(N,): input tokens of each block."""
        return self.tgt_lengths

    @cached_property
    def longest_tgt(self) -> int:
        """Tokens of the longest block; 0 if there are no blocks."""
        return int(self.tgt_lengths.max(initial=0))

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """(D,): index of the first block of each document."""
        firsts = self.columns.values[_TOKENS][self.columns.offsets[_TOKENS][:-1]]
        return np.flatnonzero(firsts == START)

    @property
    def num_bytes(self) -> int:
        """UTF-8 bytes of the documents, with one line feed for each."""
        return int(self.columns.info["num_bytes"])

    @property
    def dropped(self) -> dict[str, int]:
        """Documents that were left out, by reason."""
        too_long = self.columns.info.get("num_too_long", 0)
        return {f"longer than {MAX_LINE_BYTES:,} bytes": int(too_long)} if too_long else {}

    def batch(self, indices: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return inputs (B, T), padded with 0, and labels (N,): the token after each real token of the input."""
        ids, labels = self.columns.shifted(_TOKENS, indices)
        return ids, labels[ids != 0]


class Documents:
    """The non-empty lines of a text file, plain, .gz or .xz, read anew at each iteration.

    Raises DataError for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self.num_too_long = 0
        """Lines of more than `MAX_LINE_BYTES` that the latest pass left out."""

    def __iter__(self) -> Iterator[str]:
        self.num_too_long = 0
        for line in LineReader(self.path, MAX_LINE_BYTES):
            if line is None:
                self.num_too_long += 1
            elif line.strip():
                yield line


def write_blocks(documents: Documents, tokenizer: TextEncoder, folder: Path, *, max_tokens: int) -> str:
    """Tokenise documents and cut them into blocks, in constant memory; return a sentence with the counts."""
    counts = {"num_documents": 0, "num_tokens": 0, "num_bytes": 0}

    def blocks() -> Iterator[list[list[int]]]:
        remaining = iter(documents)
        while chunk := list(islice(remaining, _CHUNK)):
            for text, ids in zip(chunk, tokenizer.encode_batch(chunk), strict=True):
                counts["num_documents"] += 1
                counts["num_tokens"] += len(ids) - 1
                counts["num_bytes"] += len(text.encode()) + 1
                for start in range(0, len(ids) - 1, max_tokens):
                    yield [ids[start : start + max_tokens + 1]]
        if documents.num_too_long:
            counts["num_too_long"] = documents.num_too_long

    write_columns(folder, [_TOKENS], blocks(), counts)
    sentence = (
        f"{counted(counts['num_documents'], 'document')} of {counts['num_tokens']:,} tokens and "
        f"{counts['num_bytes']:,} bytes, in blocks of at most {max_tokens:,} tokens"
    )
    dropped = f", {documents.num_too_long:,} dropped (longer than {MAX_LINE_BYTES:,} bytes)"
    return sentence + dropped * (documents.num_too_long > 0)
