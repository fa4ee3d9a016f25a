"""Record what `repose check` finds in corpora whose text cannot be published: only counts, no lines.

For each corpus, it also measures whether the check notices one line missing from the middle of the targets, and what
share of the targets loops, by the definition used for translations (people repeat themselves, too).

    python benchmarks/corpus_check.py CORPORA --out results/corpus-check.json

CORPORA holds a folder for each corpus, with files `<split>.<language>`, compressed or not.
"""

import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from records import command_line, write
from repose.data.check import check_corpus
from repose.data.findings import Kind
from repose.data.language import identify
from repose.data.pairs import write_pairs
from repose.data.readers import PairReader
from repose.evaluation.looping import loops

SPLITS = {"train": ["train"], "valid": ["valid", "val"], "test": ["test", "test_2016_flickr"]}


def languages(folder: Path) -> list[str]:
    """Return the languages of the training set, English last, because it is paired with each of the others."""
    found = {path.name.split(".")[1] for path in folder.glob("train.*") if len(path.name.split(".")[1]) == 2}
    return sorted(found, key=lambda language: (language == "en", language))


def reader(folder: Path, split: str, pair: tuple[str, str]) -> PairReader | None:
    """Return a reader of the files of a split, or None if there are none."""
    for name in SPLITS[split]:
        files = [next(iter(folder.glob(f"{name}.{language}*")), None) for language in pair]
        if None not in files:
            return PairReader([path for path in files if path is not None])
    return None


def without_one(pairs: Iterable[tuple[str, str]], place: int) -> list[tuple[str, str]]:
    """Return the pairs after removing one target, which shifts all later ones."""
    src, tgt = map(list, zip(*pairs, strict=True))
    del tgt[place]
    return list(zip(src, tgt, strict=False))


def measure(folder: Path, pair: tuple[str, str]) -> dict[str, Any]:
    """Return the findings in a corpus."""
    sets = {split: found for split in SPLITS if (found := reader(folder, split, pair)) is not None}
    begun = time.perf_counter()
    check = check_corpus(sets, identify)
    seconds = time.perf_counter() - begun
    pairs = list(sets["train"])
    with tempfile.TemporaryDirectory() as scratch:
        write_pairs(Path(scratch), "train", without_one(pairs, len(pairs) // 2))
        moved = check_corpus({"train": PairReader([Path(scratch, f"train.{side}") for side in ("src", "tgt")])})
    slips = [found.to_json() for found in moved.findings if found.kind is Kind.SLIPPED]
    return {
        **check.to_json(),
        "seconds": round(seconds, 1),
        "line_taken_out": len(pairs) // 2 + 1,
        "slip_found": slips[0] if slips else None,
        "targets_that_loop": sum(loops(tgt) for _, tgt in pairs) / len(pairs),
    }


def main() -> None:
    """Command-line entry point: measure every corpus in a folder."""
    parser = command_line(__doc__)
    parser.add_argument("corpora", type=Path)
    arguments = parser.parse_args()
    found = {}
    for folder in sorted(path for path in arguments.corpora.iterdir() if path.is_dir()):
        *others, last = languages(folder) or [""]
        for other in others:
            found[f"{folder.name} {other}-{last}"] = measure(folder, (other, last))
    print(json.dumps(found, indent=1, ensure_ascii=False))
    write(arguments.out, found)


if __name__ == "__main__":
    main()
