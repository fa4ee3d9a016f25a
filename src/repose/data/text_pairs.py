"""Sentence pairs kept as two aligned text files, read as often as needed."""

from collections.abc import Iterable, Iterator
from pathlib import Path

Pair = tuple[str, str]


class TextPairs:
    """The pairs of a split in a text folder, read anew at each iteration."""

    def __init__(self, folder: Path, split: str) -> None:
        self.paths = [folder / f"{split}.{side}" for side in ("src", "tgt")]

    def __iter__(self) -> Iterator[Pair]:
        src, tgt = (path.open(encoding="utf-8", newline="\n") for path in self.paths)
        with src, tgt:
            for a, b in zip(src, tgt, strict=True):
                yield a.removesuffix("\n"), b.removesuffix("\n")


def write_pairs(folder: Path, split: str, pairs: Iterable[Pair]) -> None:
    """Writes `<split>.src` and `<split>.tgt`; no sentence may hold a line feed."""
    src, tgt = ((folder / f"{split}.{side}").open("w", encoding="utf-8", newline="\n") for side in ("src", "tgt"))
    with src, tgt:
        for a, b in pairs:
            src.write(a + "\n")
            tgt.write(b + "\n")
