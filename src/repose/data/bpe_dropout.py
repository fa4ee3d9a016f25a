"""BPE-dropout: each epoch segments the training text differently (Provilkov et al. 2020, arXiv 1910.13267).

A BPE tokenizer builds a word from characters by repeatedly merging the pair of lowest rank. With dropout, each possible
merge is skipped with probability p at each step, so a word is sometimes split into smaller pieces. The model thus
learns the parts of rare words. The draws are a pure function of (seed, epoch).

Differs from the paper: a frequent word gets at most `MOST_SEGMENTATIONS` segmentations per epoch, and its occurrences
choose among them. All words are segmented together, one merge of each word at a time, in numpy.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from repose.data.columns import Columns
from repose.data.dataset import PairDataset
from repose.data.pairs import SIDES, Side
from repose.data.tokenizer import Tokenizer
from repose.system.errors import ConfigError
from repose.system.hashing import splitmix64, unit_interval
from repose.system.token_ids import END, START

MOST_SEGMENTATIONS = 16
_WORDS_AT_A_TIME = 1 << 14
_NONE = np.iinfo(np.int64).max

Ids = NDArray[np.int64]


class Draws:
    """Uniform random numbers made by hashing a counter: the same on every machine and with every version of numpy."""

    def __init__(self, key: str) -> None:
        digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
        self._drawn = 0

    def __call__(self, *shape: int) -> NDArray[np.float64]:
        """Return the next numbers in [0, 1)."""
        number = math.prod(shape)
        counter = np.arange(self._drawn, self._drawn + number, dtype=np.uint64)
        self._drawn += number
        return unit_interval(splitmix64(splitmix64(counter + self._keys[0]) ^ self._keys[1])).reshape(shape)


class Merges:
    """The merges of a BPE tokenizer, as arrays that are looked up by pair."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ConfigError for a tokenizer that is not BPE, or whose kind of BPE is not supported."""
        if tokenizer.kind != "bpe":
            raise ConfigError(
                f"training.bpe_dropout needs a tokenizer of kind 'bpe', not {tokenizer.kind!r}: "
                "set tokenizer.kind = 'bpe' or training.bpe_dropout = 0"
            )
        model = json.loads(tokenizer.json)["model"]
        affixes = [name for name in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(name)]
        if affixes:
            raise ConfigError(
                f"training.bpe_dropout knows no tokenizer with {affixes[0]} = {model[affixes[0]]!r}: "
                "use one of repose's own, or set training.bpe_dropout = 0"
            )
        if not tokenizer.splits_into_words:
            raise ConfigError(
                "training.bpe_dropout knows no tokenizer that merges across words (without a pre_tokenizer): "
                "use one of repose's own, or set training.bpe_dropout = 0"
            )
        vocabulary: dict[str, int] = model["vocab"]
        pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
        self.characters = {token: i for token, i in vocabulary.items() if len(token) == 1}
        self._size = 1 + max(vocabulary.values())
        keys = np.array([vocabulary[a] * self._size + vocabulary[b] for a, b in pairs], dtype=np.int64)
        order = np.argsort(keys)
        self._keys = np.append(keys[order], _NONE)
        self._ranks = np.append(order, _NONE)
        self._made = np.array([vocabulary[a + b] for a, b in pairs] or [0], dtype=np.int64)

    def ranks(self, left: Ids, right: Ids) -> Ids:
        """Return the rank of the merge of each pair, or `_NONE` if an id is -1 or no merge has this pair."""
        keys = np.where((left >= 0) & (right >= 0), left * self._size + right, -1)
        places = np.searchsorted(self._keys, keys)
        return np.where(self._keys[places] == keys, self._ranks[places], _NONE)

    def segment(self, words: Sequence[Ids], dropout: float, draws: Draws) -> list[Ids]:
        """Segment words, given as the ids of their characters, into token ids.

        With `dropout` 0 they are the tokenizer's.
        """
        segmented: list[Ids] = [np.zeros(0, dtype=np.int64)] * len(words)
        by_length = np.argsort([len(word) for word in words], kind="stable")
        for start in range(0, len(words), _WORDS_AT_A_TIME):
            chosen = by_length[start : start + _WORDS_AT_A_TIME]
            pieces = np.full((len(chosen), max(len(words[i]) for i in chosen)), -1, dtype=np.int64)
            for row, i in enumerate(chosen):
                pieces[row, : len(words[i])] = words[i]
            for row, ids in zip(chosen, self._merged(pieces, dropout, draws), strict=True):
                segmented[row] = ids
        return segmented

    def _merged(self, pieces: Ids, dropout: float, draws: Draws) -> list[Ids]:
        """Merge rows of ids, padded with -1, until no merge is left."""
        active = np.arange(len(pieces))
        while active.size and pieces.shape[1] > 1:
            rows = pieces[active]
            ranks = self.ranks(rows[:, :-1], rows[:, 1:])
            if dropout:
                ranks[draws(*ranks.shape) < dropout] = _NONE
            places = ranks.argmin(axis=1)
            best = np.take_along_axis(ranks, places[:, None], 1)[:, 0]
            merging = best != _NONE
            # A word whose possible merges are all skipped at one step is finished, as in the paper's Algorithm 1.
            active, rows, places, best = active[merging], rows[merging], places[merging], best[merging]
            columns = np.arange(rows.shape[1])
            source = np.where(columns > places[:, None], columns + 1, columns)
            moved = np.take_along_axis(np.pad(rows, ((0, 0), (0, 1)), constant_values=-1), source, 1)
            moved[np.arange(len(moved)), places] = self._made[best]
            pieces[active] = moved
        return [row[row >= 0] for row in pieces]


@dataclass(frozen=True)
class _Text:
    """One side of a corpus as words, which each epoch segments anew."""

    merges: Merges
    characters: list[Ids]
    """The characters of each distinct word."""
    counts: Ids
    """How often each distinct word occurs."""
    words: Ids
    """The words of all sentences, concatenated, as indices into the distinct words."""
    starts: Ids
    """(N + 1,): where each sentence's words begin."""
    tags: Ids
    """(N,): the token between START and the text; 0 if there is none."""
    is_fixed: NDArray[np.bool_]
    """(N,): sentences that are read as stored. These are truncated ones, whose text does not encode to the stored
    tokens, and those with a character that is not a token itself."""

    @classmethod
    def of(cls, stored: Columns, side: Side, tokenizer: Tokenizer) -> "_Text":
        """Collect the words of stored sentences."""
        merges, numbers = Merges(tokenizer), dict[str, int]()
        words: list[int] = []
        starts, fixed, tags = [0], [], []
        known = set(tokenizer.tags.values())
        for ids in _sentences(stored, side):
            text = tokenizer.decode(ids)
            tags.append(ids[1] if ids[1] in known else 0)
            its_words = tokenizer.words(text)
            is_fixed = tokenizer.encode(text) != [i for i in ids if i not in known]
            is_fixed |= not all(merges.characters.keys() >= set(word) for word in its_words)
            fixed.append(is_fixed)
            if not is_fixed:
                words += [numbers.setdefault(word, len(numbers)) for word in its_words]
            starts.append(len(words))
        characters = [_ids(merges.characters[c] for c in word) for word in numbers]
        counts = np.bincount(_ids(words), minlength=len(numbers))
        return cls(merges, characters, counts, _ids(words), _ids(starts), _ids(tags), np.array(fixed, dtype=bool))

    def draw(self, dropout: float, draws: Draws) -> tuple[Ids, Ids]:
        """Draw token ids for all sentences, concatenated and without START and END; also return their counts, (N,)."""
        numbers = np.minimum(self.counts, MOST_SEGMENTATIONS)
        first = np.cumsum(numbers) - numbers
        words = [self.characters[i] for i in np.repeat(np.arange(len(numbers)), numbers)]
        drawn = self.merges.segment(words, dropout, draws)
        lengths = np.array([len(ids) for ids in drawn], dtype=np.int64)
        flat = np.concatenate(drawn) if drawn else np.zeros(0, dtype=np.int64)
        begins = np.cumsum(lengths) - lengths
        chosen = first[self.words] + (draws(len(self.words)) * numbers[self.words]).astype(np.int64)
        sizes = lengths[chosen]
        ends = np.cumsum(sizes)
        steps = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        of_sentence = np.diff(np.append(0, ends)[self.starts])
        return flat[np.repeat(begins[chosen], sizes) + steps], of_sentence


class BpeDropout:
    """Stored pairs, segmented differently in each epoch. Holds the corpus in memory, as words."""

    def __init__(
        self, stored: PairDataset, tokenizers: tuple[Tokenizer, Tokenizer], *, dropout: float, limits: tuple[int, int]
    ) -> None:
        """`dropout` is the probability p that a merge is skipped.

        `limits` are the most tokens read of a source (START and END counted) and of a target (labels). A sentence that
        a draw makes longer is read as stored. Raises ConfigError for tokenizers that are not BPE.
        """
        self._stored, self._dropout, self._limits = stored, dropout, limits
        self._texts = {
            side: _Text.of(stored.columns, side, tokenizer) for side, tokenizer in zip(SIDES, tokenizers, strict=True)
        }

    def epoch(self, seed: int, epoch: int) -> PairDataset:
        """Return the pairs as this epoch reads them.

        They depend only on seed and epoch, so all workers get the same.
        """
        draws = Draws(f"repose bpe dropout 1/{seed}/{epoch}")
        max_src_tokens, max_labels = self._limits
        values, offsets = dict[str, Ids](), dict[str, Ids]()
        values["src"], offsets["src"] = self._side("src", max_src_tokens, draws)
        values["tgt"], offsets["tgt"] = self._side("tgt", max_labels + 1, draws)
        columns = replace(self._stored.columns, values=values, offsets=offsets)
        return replace(self._stored, columns=columns, most=self._limits)

    def _side(self, side: Side, most: int, draws: Draws) -> tuple[Ids, Ids]:
        """Return the values and offsets of one side, in the format of `Columns`.

        `most`: tokens of a sentence, START and END counted; longer ones are read as stored.
        """
        text, stored = self._texts[side], self._stored.columns
        drawn, lengths = text.draw(self._dropout, draws)
        is_tagged = text.tags > 0
        sizes = lengths + is_tagged + 2
        is_drawn = ~text.is_fixed & (sizes <= most)
        sizes = np.where(is_drawn, sizes, stored.lengths(side))
        offsets = np.append(0, np.cumsum(sizes))
        values = np.empty(offsets[-1], dtype=np.int64)
        starts, tags, ends = offsets[:-1], offsets[:-1][is_tagged] + 1, offsets[1:] - 1
        values[starts], values[tags], values[ends] = START, text.tags[is_tagged], END
        of_drawn = np.repeat(is_drawn, sizes)
        values[~of_drawn] = stored.flat(side, np.flatnonzero(~is_drawn))
        of_drawn[np.concatenate([starts, tags, ends])] = False  # what is left are the words
        values[of_drawn] = drawn[np.repeat(is_drawn, lengths)]
        return values, offsets


def _ids(numbers: Iterable[int]) -> Ids:
    return np.fromiter(numbers, dtype=np.int64)


def _sentences(stored: Columns, side: Side) -> Iterator[list[int]]:
    offsets, values = stored.offsets[side], stored.values[side]
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield values[start:end].tolist()
