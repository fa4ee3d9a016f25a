"""Check a parallel corpus before training, for anything that would spoil the model or its scores.

The check reads each set once and needs about sixty bytes of memory per pair. It changes nothing, and refuses nothing
that could be trained on.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repose.data.corpus_statistics import NO_SCRIPT, CorpusStatistics, script_name
from repose.data.findings import HELD_OUT, CorpusCheck, Finding, Kind, worst_first
from repose.data.language import UNKNOWN, code_of, known_languages, short_code
from repose.data.misalignment import FEWEST_PAIRS, Slip, find_slip
from repose.data.pairs import SIDES, Pair, Side
from repose.data.readers import PairReader, UnequalLinesError, kind_of
from repose.data.tables import names_columns, plain_name
from repose.system.errors import DataError

Identify = Callable[[str], tuple[str, float]]
"""A function that identifies the language of a text: a code such as "en", and its probability from 0 to 1."""

MAX_PAIRS = 1_000_000
"""Most pairs checked in each set, from the first on."""
UNEQUAL, UNEQUAL_CHARACTERS = 2.5, 30
"""A pair is unequal if its length ratio is this many times the median ratio, or the inverse. Pairs with both sides
shorter than this many characters are exempt."""
SHORT_PAIR = 40
"""Characters of both sides together. Shorter pairs, such as "Thank you.", may well occur in two sets."""
OF_ANY_LENGTH = 0.2
"""If at least this share of a set's pairs is in another set, short pairs count, too: it is not a coincidence."""
_LEAST: Mapping[Kind, tuple[float, int]] = {
    Kind.REVERSED: (0.002, 2),
    Kind.LANGUAGE: (0.005, 3),
    Kind.SCRIPT: (0.002, 2),
    Kind.IDENTICAL: (0.005, 1),
    Kind.COPIED: (0.01, 1),
    Kind.TRAINED_ON: (0.005, 1),
    Kind.HALF_TRAINED_ON: (0.05, 1),
    Kind.VALIDATED_ON: (0.05, 1),
    Kind.ENTITIES: (0.0005, 1),
    Kind.QUOTED: (0.01, 3),
    Kind.TOKENISED: (0.1, 1),
    Kind.MARKUP: (0.001, 1),
    Kind.NUMBERED: (0.9, 10),
    Kind.PREFIX: (0.1, 10),
    Kind.CONTROL: (0.0001, 1),
    Kind.LOST: (0.005, 3),
    Kind.DECOMPOSED: (0.0001, 1),
    Kind.REPEATED: (0.02, 1),
    Kind.RETRANSLATED: (0.2, 1),
    Kind.ALTERNATIVES: (0.01, 3),
    Kind.EXPLAINED: (0.01, 3),
    Kind.UNEQUAL: (0.01, 1),
    Kind.LONG: (0.005, 1),
    Kind.WORDLESS: (0.001, 1),
}
"""Least share and least number of a finding; rarer ones are not reported. The shares are chosen so that everything that
people notice when reading the corpora of results/corpus-check.json is reported, and nothing about the clean ones."""
_NAMED = (*HELD_OUT, "train", "synthetic")
"""The sets that are in the languages of the corpus; further corpora may be in others."""
_SENTENCE = 10
"""Fewest characters in the median line of a side whose lines are sentences rather than words."""
_NAME, _NEXT_ROWS = re.compile(r"[^\W\d_]+( [^\W\d_]+)?"), 20
"""What a column name may look like, and how many rows after the first are compared with it."""
_ALIKE, _MAIN_SCRIPT = 0.9, 0.25
"""Share of lines that must begin with the same word, and of a side's lines that must be in a script to make it one of
the side's own."""
_BY_HALVES = (
    "their lengths do not show where they diverge: look at the last lines of both, then compare those in the middle, "
    "and go on in the half that does not match"
)
_MOST = 0.5
"""If a larger share of a set's lines is in scripts that the training set does not use, its files may be swapped."""
_CERTAIN, _FEWEST_SAMPLED = 0.9, 50
"""Least probability of an identified language, and fewest long lines that a side must have for a language check."""
_FEWEST_DETECTED = 3
"""Fewest long lines in one language from which a side's language is concluded."""
_NO_LANGUAGE = "zxx"
"""The code that py3langid returns for text such as numbers."""
_ALIKE_LANGUAGES = tuple(
    frozenset(codes.split()) for codes in ("ar ary arz", "bs hr sr", "cs sk", "da nn no", "id ms", "wuu yue zh")
)
"""Groups of languages that are easily mistaken for one another."""


def check_corpus(
    sets: Mapping[str, PairReader],
    identify: Identify | None = None,
    languages: tuple[str, str] = (UNKNOWN, UNKNOWN),
) -> CorpusCheck:
    """Check the sets of a corpus, given by name with "train" first. Without `identify`, languages are not checked.

    `languages` are the stated languages of the sets train, valid, test and synthetic. Sets other than train, valid and
    test are also trained on. Their pairs may be in valid or test without a finding, since training leaves such pairs
    out.

    Raises DataError if a file cannot be read or has no usable pair, as its reader does.
    """
    looked_at, findings, train, valid, detected = {}, [], None, None, (UNKNOWN, UNKNOWN)
    for split, reader in sets.items():
        seen = _read(reader)
        found = [*_of_lines(seen), *_of_pairs(seen), *_of_sides(seen)]
        if kind_of(reader.files[0]) in ("csv", "tsv") and not reader.counts.header_lines:
            found += _names_in_first_row(seen)
        if train is not None and split in HELD_OUT:
            found += _trained_on(train, seen)
        if train is not None and split in _NAMED:
            found += _in_other_scripts(train, seen)
        if valid is not None and split == "test":
            found += _in_two_sets(Kind.VALIDATED_ON, np.isin(_pair_keys(seen), _pair_keys(valid)), seen)
        named = languages if split in _NAMED else (UNKNOWN, UNKNOWN)
        if identify is not None:
            is_unnamed = split == "train" and UNKNOWN in languages
            sure = _sure(seen, identify, fewest=1 if is_unnamed else _FEWEST_SAMPLED)
            found += _languages(seen, sure, identify, named)
            detected = _detected(sure) if split == "train" else detected
        for finding in worst_first(found):
            head = reader.counts.header_lines
            lines = None if finding.lines is None else finding.lines + head
            findings.append(replace(finding, split=split, line=finding.line + head, lines=lines, places=reader.places))
        train = seen if split == "train" else train
        valid = seen if split == "valid" else valid
        looked_at[split] = seen.pairs
    return CorpusCheck(looked_at, tuple(findings), detected)


def _read(reader: PairReader) -> CorpusStatistics:
    seen = CorpusStatistics()
    try:
        for row in islice(reader.rows(), MAX_PAIRS):
            seen.add(row)
    except UnequalLinesError as error:  # known only once the shorter file has ended
        slip = _slip(seen)
        if slip is None or seen.rows - slip.end > FEWEST_PAIRS:  # so few pairs at the end may fit by chance
            raise DataError(f"{error}; {_BY_HALVES}") from error
        raise DataError(f"{error}; they seem to diverge near line {slip.start + 1:,}") from error
    if seen.rows < MAX_PAIRS:
        reader.refuse_useless()
    return seen


def _slip(seen: CorpusStatistics) -> Slip | None:
    src, tgt = (seen.sides[side] for side in SIDES)
    return find_slip(seen.turned(src.lengths, tgt.lengths), seen.turned(src.numbers, tgt.numbers))


def _finding(
    kind: Kind, side: str, rows: ArrayLike, of: int, detail: str = "", *, amount: int = 0, first: int | None = None
) -> list[Finding]:
    """Return the finding about some rows in a list, or an empty list if it is too rare to report. `first`: the row to
    name as an example, if it is not the first of them."""
    least_share, least_count = _LEAST.get(kind, (0.0, 1))
    lines = np.array(rows, np.int64) + 1
    if len(lines) < max(least_count, least_share * of):
        return []
    line = int(lines[0]) if first is None else first + 1
    finding = Finding(kind=kind, split="", side=side, count=len(lines), of=of, line=line, detail=detail, amount=amount)
    return [replace(finding, lines=lines)]


def _where(kind: Kind, side: str, mask: NDArray[np.bool_], of: int, detail: str = "", amount: int = 0) -> list[Finding]:
    """Return the finding about the rows that a mask selects."""
    return _finding(kind, side, np.flatnonzero(mask), of, detail, amount=amount)


def _of_lines(seen: CorpusStatistics) -> Iterator[Finding]:
    """Yield findings about single lines, and about the first line."""
    if seen.first is not None and _names_languages(seen.first):
        lengths = [one.lengths[one.lengths > 0] for one in seen.sides.values()]
        if min(np.median(length) for length in lengths) >= _SENTENCE:
            yield from _finding(Kind.COLUMN_NAMES, "", [seen.first_row], seen.pairs, ", ".join(seen.first))
    for (kind, side, _), tally in seen.tallies.items():
        of = seen.rows if kind is Kind.UNUSABLE else seen.pairs
        yield from _finding(kind, side, tally.rows, of, tally.detail)


def _names_languages(first: Pair) -> bool:
    """Return whether a first pair names columns, if perhaps one of them in words that are not known: "Galego" beside
    "English"."""
    names = [plain_name(side) for side in first]
    is_one_known = any(code_of(name) != name for name in names) and names[0] != names[1]
    return names_columns(first) or (is_one_known and all(map(_NAME.fullmatch, names)))


def _names_in_first_row(seen: CorpusStatistics) -> list[Finding]:
    """Find a first pair that may name a table's columns in words that are not known.

    Such a pair has one or two words on each side, without punctuation. It is in another script than the rest of a side,
    or at most half as long as the shortest of the next rows.
    """
    if seen.first is None or _names_languages(seen.first) or not all(map(_NAME.fullmatch, map(plain_name, seen.first))):
        return []
    sides = list(seen.sides.values())
    lengths = np.stack([side.lengths[side.lengths > 0] for side in sides])
    if np.median(lengths, axis=1).min() < _SENTENCE:
        return []
    scripts = [(side.scripts[seen.first_row], _own_scripts(side.scripts)) for side in sides]
    in_other_script = any(script not in (NO_SCRIPT, *own) for script, own in scripts)
    first, *rest = lengths.sum(axis=0)[: 1 + _NEXT_ROWS]
    if not in_other_script and (len(rest) < _NEXT_ROWS or min(rest) < 2 * first):
        return []
    return _finding(Kind.COLUMN_NAMES, "", [seen.first_row], seen.pairs, ", ".join(seen.first))


def _of_pairs(seen: CorpusStatistics) -> Iterator[Finding]:
    """Yield findings about directions, repetitions, lengths and slips."""
    src, tgt = seen.turned(*(seen.sides[side].lengths for side in SIDES))
    is_pair = src > 0
    if (reverse := seen.is_reversed).any():
        direction = " to ".join(script_name(int(seen.sides[side].scripts[reverse.argmax()])) for side in SIDES)
        yield from _where(Kind.REVERSED, "", reverse, seen.pairs, direction)
    repeated = _repeats(_pair_keys(seen)) & is_pair
    yield from _where(Kind.REPEATED, "", repeated, seen.pairs)
    for side in SIDES:
        yield from _where(Kind.RETRANSLATED, side, _repeats(seen.sides[side].keys) & is_pair & ~repeated, seen.pairs)
    ratios = np.log((tgt + 5.0) / (src + 5.0))
    usual = np.median(ratios[is_pair]) if seen.pairs else 0.0
    unequal = (np.abs(ratios - usual) > np.log(UNEQUAL)) & (np.maximum(src, tgt) >= UNEQUAL_CHARACTERS)
    yield from _where(Kind.UNEQUAL, "", unequal, seen.pairs)
    if slip := _slip(seen):
        rows = slip.start + np.flatnonzero(is_pair[slip.start : slip.end])
        yield from _finding(Kind.SLIPPED, "", rows, seen.pairs, amount=slip.lines, first=slip.start)


def _of_sides(seen: CorpusStatistics) -> Iterator[Finding]:
    """Yield findings about each side: quotes, line numbers, common beginnings (if no tag was seen) and scripts."""
    for side in SIDES:
        one = seen.sides[side]
        if one.is_of_spreadsheet:
            yield from _finding(Kind.QUOTED, side, one.quoted.rows, seen.pairs)
        yield from _finding(Kind.NUMBERED, side, one.numbered.rows, seen.pairs, one.numbered.detail)
        first = max(one.first_words.values(), key=lambda tally: tally.count, default=None)
        if (Kind.PREFIX, side, "") in seen.tallies or first is None:
            pass
        elif first.count >= _ALIKE * seen.pairs:
            yield from _finding(Kind.PREFIX, side, first.rows, seen.pairs, first.detail)
        elif one.prefix and not (one.is_of_spreadsheet and one.prefix == '"'):
            every = np.flatnonzero(one.lengths)
            yield from _finding(Kind.PREFIX, side, every, seen.pairs, one.prefix, first=first.rows[0])
        other = (one.scripts != NO_SCRIPT) & ~np.isin(one.scripts, _own_scripts(one.scripts)) & ~seen.is_reversed
        if other.any():
            yield from _where(Kind.SCRIPT, side, other, seen.pairs, script_name(int(one.scripts[other.argmax()])))


def _in_other_scripts(train: CorpusStatistics, seen: CorpusStatistics) -> Iterator[Finding]:
    """Find sides that are mostly in another script than in the training set, as when files are swapped."""
    for side in SIDES:
        own = _own_scripts(train.sides[side].scripts)
        scripts = seen.sides[side].scripts
        other = (scripts != NO_SCRIPT) & ~np.isin(scripts, own)
        if own and other.sum() > _MOST * (scripts != NO_SCRIPT).sum():
            yield from _where(Kind.OTHER_SCRIPT, side, other, seen.pairs, script_name(int(scripts[other.argmax()])))


def _own_scripts(scripts: NDArray[np.int16]) -> list[int]:
    counts = Counter(scripts[scripts != NO_SCRIPT].tolist())
    return [script for script, count in counts.items() if count >= _MAIN_SCRIPT * counts.total()]


def _trained_on(train: CorpusStatistics, seen: CorpusStatistics) -> Iterator[Finding]:
    """Find pairs and sentences of a held-out set that are also in the training set."""
    both = np.isin(_pair_keys(seen), _pair_keys(train))
    yield from _in_two_sets(Kind.TRAINED_ON, both, seen)
    one = [np.isin(seen.sides[side].keys, train.sides[side].keys) for side in SIDES]
    half = (one[0] | one[1]) & ~both & _long_enough(seen)
    yield from _where(Kind.HALF_TRAINED_ON, "", half, seen.pairs, amount=SHORT_PAIR)


def _in_two_sets(kind: Kind, mask: NDArray[np.bool_], seen: CorpusStatistics) -> list[Finding]:
    """Return the finding about pairs in two sets: about all of them if they are many, else about the long ones."""
    mask = mask & (seen.sides["src"].lengths > 0)
    if mask.sum() >= OF_ANY_LENGTH * seen.pairs:
        return _where(kind, "", mask, seen.pairs)
    return _where(kind, "", mask & _long_enough(seen), seen.pairs, amount=SHORT_PAIR)


def _long_enough(seen: CorpusStatistics) -> NDArray[np.bool_]:
    """Mark the pairs that are long enough that they should be in one set only."""
    lengths = [seen.sides[side].lengths for side in SIDES]
    return lengths[0] + lengths[1] >= SHORT_PAIR  # rows that are not pairs have none


ByLanguage = Mapping[str, list[int]]
"""The rows of texts whose language is nearly certain, by that language."""
Sure = Mapping[Side, ByLanguage]
"""Those of each side's long lines."""


def _sure(seen: CorpusStatistics, identify: Identify, fewest: int) -> Sure:
    """Identify the languages of long lines, for sides that have at least `fewest` of them."""
    samples = {side: seen.sample(side) for side in SIDES}
    return {side: _certain(lines, identify) if len(lines) >= fewest else {} for side, lines in samples.items()}


def _certain(texts: Sequence[tuple[int, str]], identify: Identify) -> ByLanguage:
    found: dict[str, list[int]] = {}
    for row, text in texts:
        language, probability = identify(text)
        if probability >= _CERTAIN:
            found.setdefault(language, []).append(row)
    return found


def _most_common(found: ByLanguage) -> tuple[str, list[int]]:
    """Return the most frequent language and its rows."""
    return max(found.items(), key=lambda entry: len(entry[1]), default=(UNKNOWN, []))


def _detected(sure: Sure) -> tuple[str, str]:
    """Return the language of most long lines of each side; unknown if it has too few such lines."""
    languages = {}
    for side, found in sure.items():
        language, rows = _most_common(found)
        is_most = 2 * len(rows) > sum(map(len, found.values()))
        languages[side] = language if len(rows) >= _FEWEST_DETECTED and is_most else UNKNOWN
    return languages["src"], languages["tgt"]


def _languages(seen: CorpusStatistics, sure: Sure, identify: Identify, named: tuple[str, str]) -> Iterator[Finding]:
    """Find one language on both sides, lines in another language than their side, and wrongly named languages."""
    sizes = {side: len(seen.sample(side)) for side in SIDES}
    sure = {side: found if sizes[side] >= _FEWEST_SAMPLED else {} for side, found in sure.items()}
    (src, _), (tgt, rows) = (_most_common(sure[side]) for side in SIDES)
    if src == tgt != UNKNOWN:
        yield from _finding(Kind.SAME_LANGUAGE, "", rows, sizes["tgt"], tgt)
        return
    for side, usual in zip(SIDES, (src, tgt), strict=True):
        for language, rows in sure[side].items():
            if language != usual:
                yield from _finding(Kind.LANGUAGE, side, rows, sizes[side], language)
    yield from _misnamed(seen, sure, identify, named)


def _misnamed(seen: CorpusStatistics, sure: Sure, identify: Identify, named: tuple[str, str]) -> Iterator[Finding]:
    """Find sides that are in another language than stated.

    Most of a side's long lines decide; if it has few long lines, its short lines decide, joined into longer texts. A
    stated language that cannot be identified is skipped, since it would always be mistaken for another.
    """
    codes = [short_code(code) for code in named]
    for side, own, of_other in zip(SIDES, codes, reversed(codes), strict=True):
        is_joined = len(seen.sample(side)) < _FEWEST_SAMPLED
        texts = seen.sides[side].joined.texts if is_joined else seen.sample(side)
        found = _certain(texts, identify) if is_joined else sure[side]
        main, rows = _most_common(found)
        if main in (own, _NO_LANGUAGE) or len(rows) < max(_FEWEST_DETECTED, len(texts) / 2):
            continue
        if own != UNKNOWN and own not in known_languages():
            continue
        if main == of_other:
            kind = Kind.SWAPPED
        elif own != UNKNOWN and not any({main, own} <= alike for alike in _ALIKE_LANGUAGES):
            kind = Kind.MISNAMED
        else:
            continue
        for one in _finding(kind, side, rows, len(texts), main):
            yield replace(one, is_joined=is_joined)


def _pair_keys(seen: CorpusStatistics) -> NDArray[np.int64]:
    src, tgt = (seen.sides[side].keys.astype(np.uint64) for side in SIDES)
    return (src * np.uint64(0x9E3779B97F4A7C15) + tgt).astype(np.int64)


def _repeats(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the keys that occurred before."""
    _, first = np.unique(keys, return_index=True)
    repeated = np.ones(len(keys), dtype=bool)
    repeated[first] = False
    return repeated
