"""Draw corpora of Portuguese-English sentence pairs from the grammar, the same for the same seed.

Each Portuguese sentence has one translation, which follows from the grammar of both languages: agreement,
tense and person, word order, negation, questions, object pronouns, possessives, contractions, relative
clauses. Many sentences come with a second one of the same words in another order and another meaning
("O gato viu o cachorro.", "O cachorro viu o gato."), so that a bag of words does not suffice.

A rule decides what training sentences must not contain: one in twelve lexical combinations (a verb and its object, a
noun and its adjective …) is kept for validation and test, by the CRC-32 of its words.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from phrasebook import sentences
from phrasebook.clauses import Combination, Sentence

Pair = tuple[str, str]
"""A Portuguese sentence and its English translation."""

MAX_PAIRS = 500_000
"""Maximum number of distinct pairs from one seed."""

_RESERVED_ONE_IN = 12
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")


@dataclass(frozen=True)
class PhrasebookSplits:
    """Training, validation and test pairs; no two of them share a sentence on either side."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def is_held_out(combination: Combination) -> bool:
    """Return whether a lexical combination is kept out of training. Depends on its words only, not on the seed."""
    return zlib.crc32(" ".join(combination).encode()) % _RESERVED_ONE_IN == 0


def words(sentence: str) -> list[str]:
    """Return the words of a sentence as written, without punctuation."""
    return _WORD.findall(sentence)


def generate(num_pairs: int, *, seed: int = 0) -> list[Pair]:
    """Return distinct pairs (Portuguese, English), in the order drawn. A shorter list is a prefix of a longer one.

    Raises:
        ValueError: more pairs than the grammar can make, or fewer than none.
    """
    _check(num_pairs)
    drawn = _distinct(seed)
    return [_pair(next(drawn)) for _ in range(num_pairs)]


def splits(*, num_train: int = 20_000, num_valid: int = 500, num_test: int = 500, seed: int = 0) -> PhrasebookSplits:
    """Return training pairs without held-out combinations, and validation and test pairs with at least one each. All
    words of the latter (as written, on both sides) occur in training.

    Raises:
        ValueError: more pairs than the grammar can make, or too few training pairs to hold the words of the rest.
    """
    for num in (num_train, num_valid, num_test):
        _check(num)
    num_held = num_valid + num_test
    _check(num_train + num_held)
    train: list[Pair] = []
    waiting: list[Pair] = []
    drawn = _distinct(seed)
    while len(train) < num_train:
        sentence = next(drawn)
        if not any(map(is_held_out, sentence.combinations)):
            train.append(_pair(sentence))
        elif len(waiting) < 4 * num_held:
            waiting.append(_pair(sentence))
    known = [{word for pair in train for word in words(pair[side])} for side in (0, 1)]
    held = [pair for pair in waiting if _all_known(pair, known)][:num_held]
    patience = 2_000 + 100 * num_held
    while len(held) < num_held:
        sentence = next(drawn)
        if any(map(is_held_out, sentence.combinations)) and _all_known(_pair(sentence), known):
            held.append(_pair(sentence))
        patience -= 1
        if patience == 0:
            raise ValueError(
                f"{num_train:,} training pairs hold too few words for {num_held:,} validation and test pairs "
                "whose words were all seen in training; ask for more training pairs"
            )
    return PhrasebookSplits(train, held[:num_valid], held[num_valid:])


def as_tsv(splits: PhrasebookSplits) -> str:
    """Return the text of the file that `repose` ships: training, validation and test pairs, one per line."""
    return "".join(f"{pt}\t{en}\n" for part in (splits.train, splits.valid, splits.test) for pt, en in part)


def _check(num_pairs: int) -> None:
    if num_pairs < 0:
        raise ValueError(f"a number of sentence pairs cannot be negative, but {num_pairs:,} were asked for")
    if num_pairs > MAX_PAIRS:
        raise ValueError(
            f"the phrasebook makes at most {MAX_PAIRS:,} distinct pairs, but {num_pairs:,} were asked for; "
            "ask for fewer"
        )


def _distinct(seed: int) -> Iterator[Sentence]:
    """Yield pairs with two new sides. If "elas" and "eles" give the same "they", the first one drawn stays."""
    translations: dict[str, str] = {}
    said: set[str] = set()
    for sentence in sentences(seed):
        if sentence.pt in translations:
            assert translations[sentence.pt] == sentence.en, sentence
        elif sentence.en not in said:
            translations[sentence.pt] = sentence.en
            said.add(sentence.en)
            yield sentence


def _pair(sentence: Sentence) -> Pair:
    return sentence.pt, sentence.en


def _all_known(pair: Pair, known: list[set[str]]) -> bool:
    return all(word in known[side] for side in (0, 1) for word in words(pair[side]))
