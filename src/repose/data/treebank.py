"""Dependency trees from CoNLL-U files, and their conversion to numbers: subwords, words and arcs.

The words are the treebank's own (gold tokens). Rows whose id is a range (n-m: a multiword token's surface form) or a
decimal (n.m: an empty node) are left out, as in the evaluation of basic trees. Each word is tokenised separately and
represented by its first subword. A label is the full relation, subtype included (nmod:poss).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.data.columns import Prepared, write_columns
from repose.data.lines import LineReader, check_file
from repose.data.prepare import TextEncoder
from repose.system.errors import DataError, of_extra
from repose.system.terminal import counted
from repose.system.token_ids import END, START, UNK

UNKNOWN_LABEL = "_"
"""Label 0: a label that the training trees do not have. It never counts as correct."""
MAX_LINE_BYTES, MAX_ROWS = 1 << 20, 10_000
"""Most bytes of a line, and most lines of a sentence. Larger ones are not CoNLL-U, and would be held in memory."""


@dataclass(frozen=True)
class Tree:
    """A sentence's words; `heads` count them from 1, and 0 is ROOT."""

    forms: tuple[str, ...]
    heads: tuple[int, ...]
    labels: tuple[str, ...]


class Trees:
    """The trees of a CoNLL-U file, plain, .gz or .xz, read anew at each iteration.

    Raises ConfigError without the library `conllu`, and DataError, with the line, for a sentence that is not a tree.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path

    def __iter__(self) -> Iterator[Tree]:
        lines: list[str] = []
        reader = LineReader(self.path, MAX_LINE_BYTES)
        for line in reader:
            here = f"{self.path}, line {reader.num_lines}"
            if line is None:
                raise DataError(f"{here}: longer than {MAX_LINE_BYTES:,} bytes, so no CoNLL-U")
            if line.strip():
                lines.append(line)
                if len(lines) > MAX_ROWS:
                    raise DataError(f"{here}: a sentence has more than {MAX_ROWS:,} rows: check the file")
            elif lines:
                yield from _tree(lines, f"{self.path}, sentence before line {reader.num_lines}")
                lines = []
        if lines:
            yield from _tree(lines, f"{self.path}, sentence that ends at line {reader.num_lines}")


def _tree(lines: Sequence[str], where: str) -> Iterator[Tree]:
    """Yield the tree of one sentence, or nothing if it has no words."""
    with of_extra("parsing", "reading CoNLL-U needs the library conllu"):
        import conllu
    try:
        (sentence,) = conllu.parse("\n".join(lines) + "\n\n")
    except (conllu.exceptions.ParseException, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{where} is not CoNLL-U ({reason}): check the file") from error
    words = [row for row in sentence if isinstance(row["id"], int)]
    if not words:
        return
    if not all({"form", "head", "deprel"} <= row.keys() for row in words):
        raise DataError(f"{where} is not CoNLL-U (a word has fewer than eight columns): check the file")
    if [row["id"] for row in words] != list(range(1, len(words) + 1)):
        raise DataError(f"{where} is not CoNLL-U (its words are not numbered 1, 2, 3, …): check the file")
    heads = [row["head"] for row in words]
    if any(not isinstance(head, int) or not 0 <= head <= len(words) for head in heads):
        raise DataError(f"{where} has a word whose head is not in the sentence: give a treebank with basic trees")
    if not is_tree(heads):
        raise DataError(f"{where} is not a tree with one root: give a treebank with basic trees")
    yield Tree(*(tuple(column) for column in ([row["form"] for row in words], heads, [row["deprel"] for row in words])))


def is_tree(heads: Sequence[int]) -> bool:
    """Return whether the heads of words, counted from 1, form a tree in which ROOT (0) has exactly one child."""
    if sum(head == 0 for head in heads) != 1:
        return False
    for word in range(1, len(heads) + 1):
        seen, at = {word}, heads[word - 1]
        while at:
            if at in seen:
                return False
            seen.add(at)
            at = heads[at - 1]
    return True


def label_inventory(trees: Iterable[Tree]) -> list[str]:
    """Return `UNKNOWN_LABEL`, then every label of these trees in sorted order."""
    return [UNKNOWN_LABEL, *sorted({label for tree in trees for label in tree.labels} - {UNKNOWN_LABEL})]


class Treebank(Prepared):
    """Prepared trees; each sentence is an example."""

    @cached_property
    def tgt_lengths(self) -> NDArray[np.int32]:
        """(N,): words of each sentence, the unit of losses and batch sizes."""
        return self.columns.lengths("heads")

    @cached_property
    def src_lengths(self) -> NDArray[np.int32]:
        """(N,): subwords of each sentence, START and END counted."""
        return self.columns.lengths("src")

    @property
    def labels(self) -> list[str]:
        """Names of the labels, by number."""
        return list(self.columns.info["labels"])

    def batch(self, indices: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], ...]:
        """Return src (B, S), padded with 0, and first, heads and labels (B, W), padded with -1; column 0 is ROOT.

        `first` is the column in src of a word's first subword, `heads` the column of its head; ROOT's are 0.
        """
        root = np.zeros((len(indices), 1), dtype=np.int64)
        words = (self.columns.padded(name, indices, -1) for name in ("first", "heads", "labels"))
        return self.columns.padded("src", indices), *(np.concatenate([root, column], axis=1) for column in words)


def write_treebank(
    trees: Iterable[Tree], tokenizer: TextEncoder, labels: Sequence[str], folder: Path, *, max_tokens: int | None
) -> str:
    """Write trees as numbers, leaving out sentences of more than `max_tokens`; return a sentence with the counts."""
    info: dict[str, Any] = dict.fromkeys(("num_sentences", "num_words", "num_long", "num_new_labels"), 0)
    info["labels"] = list(labels)
    number_of = {label: number for number, label in enumerate(labels)}

    def examples() -> Iterator[tuple[Sequence[int], ...]]:
        for tree in trees:
            src, first = [START], []
            for ids in tokenizer.encode_batch(tree.forms):
                first.append(len(src))
                # A form of which the tokenizer leaves nothing, such as a lone accent, still counts as a word.
                src += ids[1:-1] or [UNK]
            src.append(END)
            if max_tokens is not None and len(src) > max_tokens:
                info["num_long"] += 1
                continue
            numbers = [number_of.get(label, 0) for label in tree.labels]
            info["num_sentences"] += 1
            info["num_words"] += len(first)
            info["num_new_labels"] += numbers.count(0)
            yield src, first, tree.heads, numbers

    write_columns(folder, ["src", "first", "heads", "labels"], examples(), info)
    sentence = f"{counted(info['num_sentences'], 'sentence')} of {counted(info['num_words'], 'word')}"
    if info["num_long"]:
        sentence += f", {info['num_long']:,} dropped (longer than {max_tokens} tokens)"
    if info["num_new_labels"]:
        sentence += f", {counted(info['num_new_labels'], 'word')} with a label unknown to training"
    return sentence
