"""The training, validation and test text of a corpus: its own sets, or sets held out from all of it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from repose.config.experiment import CorpusConfig
from repose.data import phrasebook
from repose.data.readers import Counts, read_pairs
from repose.data.splits import hold_out
from repose.data.text_pairs import TextPairs, write_pairs

Pair = tuple[str, str]
SPLITS = ("train", "valid", "test")
HELD_OUT_SHARE, MOST_HELD_OUT = 0.05, 500  # of the pairs, where the corpus has no valid or test set of its own
PHRASEBOOK = "phrasebook"


def write_texts(corpus: CorpusConfig, files: Mapping[str, list[Path]], folder: Path) -> Iterator[str]:
    """Writes `<split>.src` and `<split>.tgt`; yields sentences about what was dropped and split off.

    `files` are those of each split; the phrasebook, which is shipped, has none.
    """
    for stale in folder.glob("*"):
        stale.unlink()
    if corpus.name == PHRASEBOOK:
        shipped = phrasebook.read()
        for split, pairs in shipped.items():
            write_pairs(folder, split, pairs)
        train, valid, test = (len(shipped[split]) for split in SPLITS)
        yield f"phrasebook: {train:,} training, {valid:,} validation, {test:,} test pairs"
    for split, paths in files.items():
        counts = Counts()
        read = read_pairs(paths, src_field=corpus.src_field, tgt_field=corpus.tgt_field, counts=counts)
        write_pairs(folder, split, read)
        yield f"{split}: {counts.describe()}"
    if corpus.splits == "merged":
        _merge(folder)
    if not (folder / "valid.src").exists():
        yield _hold_out(corpus, folder)


def _merge(folder: Path) -> None:
    """Makes all sets one, which is called `train`."""
    sets = [TextPairs(folder, split) for split in SPLITS if (folder / f"{split}.src").exists()]
    write_pairs(folder, "merged", chain.from_iterable(sets))
    for pairs in sets:
        for path in pairs.paths:
            path.unlink()
    for side in ("src", "tgt"):
        (folder / f"merged.{side}").replace(folder / f"train.{side}")


def _hold_out(corpus: CorpusConfig, folder: Path) -> str:
    """Takes validation pairs, and test pairs where there are none yet, out of `train`."""
    pairs = TextPairs(folder, "train")
    total = sum(1 for _ in pairs)
    has_test = (folder / "test.src").exists()
    result = hold_out(
        pairs,
        num_valid=_number(corpus.held_out_valid, total),
        num_test=0 if has_test else _number(corpus.held_out_test, total),
        seed=corpus.split_seed,
    )
    counts = result.counts
    for split in SPLITS:
        held: Iterable[Pair] = getattr(result, split)
        if split != "test" or counts.test:
            write_pairs(folder, f"{split}.new", held)
    for path in folder.glob("*.new.*"):
        path.replace(folder / path.name.replace(".new", ""))
    sentence = (
        f"held out: {counts.valid:,} validation and {counts.test:,} test pairs, {counts.train:,} left to train on"
    )
    return sentence + (f", {counts.duplicates:,} repetitions dropped" if counts.duplicates else "")


def _number(wanted: float | None, total: int) -> int:
    """Pairs to hold out of so many: a number, a share, or what is usual."""
    if wanted is None:
        return min(MOST_HELD_OUT, max(1, int(total * HELD_OUT_SHARE)))
    return max(1, round(wanted * total)) if isinstance(wanted, float) else wanted
