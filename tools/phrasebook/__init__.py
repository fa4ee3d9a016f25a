"""The phrasebook's grammar: draws random Portuguese-English sentence pairs from weighted templates.

`repose` ships 21,000 pairs drawn from it (`repose.data.phrasebook`), but not the grammar. `python -m phrasebook` writes
these pairs. `corpus` makes corpora of any size and seed.

`lexicon` and `inflection` hold the words, `phrases` and `clauses` build phrases and clauses from them, and `speaker`
and `drawing` draw these at random. The other modules are templates: functions that return one sentence; or two with the
same words in another order and with another meaning; or none, if the words drawn make no sense together.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from phrasebook import being, comparisons, compounds, questions, relatives, statements
from phrasebook.clauses import Sentence
from phrasebook.lexicon import load
from phrasebook.speaker import Speaker

MIN_WORDS, MAX_WORDS = 4, 14
"""Shortest and longest sentence in words, in either language."""

_WEIGHTED = (
    (22, statements.plain),
    (7, statements.negation),
    (4, statements.frequency),
    (7, questions.yes_no),
    (5, questions.who),
    (5, questions.what),
    (6, questions.where_when_why),
    (2, questions.cost),
    (8, statements.clitic),
    (8, statements.modal),
    (6, statements.passive),
    (7, being.copula),
    (3, being.job),
    (4, being.located),
    (4, being.there_is),
    (5, comparisons.comparison),
    (4, comparisons.contrast),
    (2, comparisons.superlative),
    (6, relatives.relative_person),
    (6, relatives.relative_thing),
    (4, compounds.while_),
    (4, compounds.and_),
    (4, compounds.before_after),
    (4, compounds.because),
    (5, compounds.reported),
    (3, compounds.childhood),
    (6, compounds.story),
    (2, comparisons.counted),
    (3, comparisons.date),
)


def sentences(seed: int) -> Iterator[Sentence]:
    """Yield sentence pairs without end, the same for the same seed. Pairs can repeat."""
    speaker = Speaker(load(), random.Random(seed))
    bounds = list(accumulate(weight for weight, _ in _WEIGHTED))
    while True:
        _, template = _WEIGHTED[bisect_right(bounds, speaker.share() * bounds[-1])]
        speaker.start()
        for sentence in template(speaker):
            if all(MIN_WORDS <= len(side.split()) <= MAX_WORDS for side in (sentence.pt, sentence.en)):
                yield sentence
