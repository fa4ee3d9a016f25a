"""Further corpora and synthetic pairs to train on, each with its tag.

Their texts are in the prepared folder, as `also0`, `also1`, ..., `synthetic`. Pairs with a side that is in the
validation or test set are left out, because a related language's corpus may well translate the same talks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from repose.config.experiment import CorpusConfig, TrainingConfig
from repose.data.dataset import PairDataset
from repose.data.mixture import Mixture, temperature_shares
from repose.data.pairs import Pair, TextPairs, write_pairs
from repose.data.splits import same_sentence
from repose.data.tags import tag_pairs
from repose.data.tokenizer import Tokenizer
from repose.tasks.corpus_files import parts_of, reader_of


def write_parts(corpus: CorpusConfig, folder: Path) -> Iterator[str]:
    """Write their texts to the prepared folder; yield sentences about what was dropped. Raises DataError."""
    parts = parts_of(corpus)
    if not parts:
        return
    measured = [TextPairs(folder, split) for split in ("valid", "test") if (folder / f"{split}.src").exists()]
    held_out = {same_sentence(sentence) for pairs in measured for pair in pairs for sentence in pair}
    for part in parts:
        reader = reader_of(corpus, part.files, part.name)
        left_out = Counter[str]()
        write_pairs(folder, part.name, _without(reader, held_out, left_out))
        tag = "" if part.tag is None else f" (tag {part.tag})"
        known = left_out["known"]
        yield f"{part.name}{tag}: {reader.counts.describe()}" + (
            f", {known:,} left out that are in the validation or test set" if known else ""
        )


def _without(pairs: Iterable[Pair], held_out: set[int], left_out: Counter[str]) -> Iterator[Pair]:
    for pair in pairs:
        if held_out.isdisjoint(map(same_sentence, pair)):
            yield pair
        else:
            left_out["known"] += 1


def training_pairs(corpus: CorpusConfig, folder: Path) -> Iterator[Pair]:
    """Yield all training pairs, with their tags (`repose.data.tags`)."""
    tags = {"train": corpus.tag, **{part.name: part.tag for part in parts_of(corpus)}}
    return chain.from_iterable(tag_pairs(TextPairs(folder, name), tag) for name, tag in tags.items())


def training_text(corpus: CorpusConfig, folder: Path) -> tuple[Iterator[str], Iterator[str]]:
    """Return the source and the target sentences of all training pairs."""
    names = ["train", *(part.name for part in parts_of(corpus))]

    def side(number: int) -> Iterator[str]:
        return (pair[number] for name in names for pair in TextPairs(folder, name))

    return side(0), side(1)


def mixture(
    examples: PairDataset, tokenizer: Tokenizer, config: TrainingConfig, synthetic_tag: str | None
) -> Mixture | None:
    """Return a function from an epoch's number to the pairs that it reads; None if every epoch reads each pair once.

    Corpora are distinguished by their tags. Real ones are sampled with `corpus_temperature`, `upsample` times; every
    synthetic pair is read once.
    """
    if config.corpus_temperature == 1 and config.upsample == 1:
        return None
    groups = _groups(examples, tokenizer)
    names, counts = np.unique(groups, return_counts=True)
    numbers = dict(zip(names.tolist(), counts.tolist(), strict=True))
    synthetic = tokenizer.tags.get(synthetic_tag or "", -1)
    real = [group for group in numbers if group != synthetic]
    if real:
        shares = temperature_shares([numbers[group] for group in real], config.corpus_temperature)
        numbers |= {group: config.upsample * share for group, share in zip(real, shares, strict=True)}
    return Mixture(groups, numbers, config.seed)


def _groups(examples: PairDataset, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the id of each source's tag (N,), 0 if it has none."""
    starts = examples.columns.offsets["src"][:-1]
    second = np.asarray(examples.columns.values["src"][starts + 1], dtype=np.int64)
    return np.where(np.isin(second, list(tokenizer.tags.values())), second, 0)
