"""Translated test sentences: those that a grid names, by every system, and those on which two systems differ most."""

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from repose.report.content import Cell, Column, Sentence, SentenceComparison, Table, listed, slugs, suffixes
from repose.report.pairs import ComparedSystem
from repose.report.run_set import RunSet
from repose.report.significance import systems_of
from repose.report.tables import captioned
from repose.report.translations import hypotheses_of, texts_of
from repose.system.errors import ReposeError

_EACH_WAY, _SAMPLES = 5, 20


def chosen_sentences(runs: RunSet) -> tuple[Table, ...]:
    """Return a table of each corpus's lines that the grid names: source, reference, and the translation by each
    system's first finished run. A remark says what is missing."""
    runs = runs.translations
    tables = []
    for corpus, lines in runs.sentences.items():
        done = [seeds[0] for group in runs.groups if (seeds := runs.done(group, corpus))]
        if not done:
            continue
        texts: list[tuple[str, list[str]]] = []
        remarks = []
        try:
            texts += zip(("source", "reference"), texts_of(done[0]), strict=True)
        except ReposeError as error:
            remarks.append(f"Sources and references cannot be shown: {error}.")
        for run in done:
            try:
                texts.append((run.group, hypotheses_of(run)))
            except ReposeError as error:
                remarks.append(f"Translations of {run.group} cannot be shown: {error}.")
        number = min((len(text) for _, text in texts), default=0)
        remarks += [f"There is no line {line:,}." for line in lines if line > number > 0]
        rows = [
            [Cell(text=str(line), value=line), Cell(text=who), Cell(text=text[line - 1])]
            for line in lines
            for who, text in texts
            if line <= number
        ]
        columns = (Column("line"), Column("whose", numeric=False), Column("text", numeric=False))
        name = f"chosen-sentences-{slugs(runs.corpora)[corpus]}"
        tables.append(captioned(name, columns, rows, like="chosen-sentences", remarks=remarks, corpus=corpus))
    return tuple(tables)


def samples(runs: RunSet) -> tuple[Table, ...]:
    """Return a table of test sentences of each corpus with one system, spread over the whole set: source, reference,
    and the translation by the first finished run. There is none if the grid names lines, or if texts or translations
    are missing."""
    runs = runs.translations
    tables = []
    for corpus in runs.corpora:
        done = [run for group in runs.groups for run in runs.done(group, corpus)]
        if corpus in runs.sentences or len({run.group for run in done}) != 1:
            continue
        try:
            texts = list(zip(*texts_of(done[0]), hypotheses_of(done[0]), strict=True))
        except ReposeError:
            continue
        rows = [
            [Cell(text=str(i + 1), value=i + 1), *(Cell(text=text) for text in texts[i])]
            for i in sorted({place * len(texts) // _SAMPLES for place in range(_SAMPLES)})
            if texts
        ]
        columns = (Column("line"), *(Column(name, numeric=False) for name in ("source", "reference", "translation")))
        name = f"samples-{slugs(runs.corpora)[corpus]}"
        tables.append(captioned(name, columns, rows, like="samples", corpus=corpus))
    return tuple(tables)


def side_by_side(runs: RunSet) -> tuple[SentenceComparison, ...]:
    """Return the sentences of each corpus on which two systems differ most: up to five where one is better, then the
    other.

    The two are the baseline (without one, the first system) and the best other system by BLEU. The difference is in
    sentence-level chrF, averaged over each system's seeds, so that a single lucky seed does not decide. The translation
    shown is that of the seed closest to this average (the first of several), with its own chrF.

    Sentences are left out if the translations shown do not differ in the same direction as the averages; repeated ones
    appear once. Systems that look ahead are excluded. If texts or translations are missing, the caption says so and
    there are no sentences. A corpus with fewer than two systems has no entry.
    """
    runs = runs.translations
    found = []
    for corpus, suffix in suffixes(runs.corpora).items():
        systems, _, _ = systems_of(runs, corpus)
        pair = _pair([system.counted for system in systems if system.statistics], runs.baseline)
        if pair is not None:
            found.append(_compared(pair, f"sentences{suffix}"))
    return tuple(found)


def _pair(systems: Sequence[ComparedSystem], baseline: str | None) -> tuple[ComparedSystem, ComparedSystem] | None:
    if len(systems) < 2:
        return None
    first = next((system for system in systems if system.group == baseline), systems[0])
    others = [system for system in systems if system is not first]
    return first, max(others, key=lambda system: statistics.fmean(system.scores("bleu")))


def _compared(pair: tuple[ComparedSystem, ComparedSystem], name: str) -> SentenceComparison:
    corpus, groups = pair[0].runs[0].experiment.corpus, (pair[0].group, pair[1].group)
    seeds = [np.array([one.sentence_chrf() for one in system.statistics]) for system in pair]
    try:
        sources, references = texts_of(pair[0].runs[0])
        hypotheses = [[hypotheses_of(run) for run in system.runs] for system in pair]
    except ReposeError as error:
        sentences: tuple[Sentence, ...] = ()
        caption = f"No sentences can be shown: {error}."
    else:
        means = [one.mean(axis=0) for one in seeds]
        nearest = [np.abs(one - mean).argmin(axis=0) for one, mean in zip(seeds, means, strict=True)]
        scores = [one[seed, np.arange(len(seed))] for one, seed in zip(seeds, nearest, strict=True)]
        gains, shown = means[1] - means[0], scores[1] - scores[0]
        gains = np.where(gains * shown > 0, gains, 0.0)
        sentences = tuple(
            Sentence(
                number=i + 1,
                src=sources[i],
                reference=references[i],
                hypotheses=(hypotheses[0][nearest[0][i]][i], hypotheses[1][nearest[1][i]][i]),
                scores=(float(scores[0][i]), float(scores[1][i])),
            )
            for i in _most_different(gains, list(zip(sources, references, strict=True)))
        )
        caption = _caption(pair) if sentences else f"chrF does not distinguish {listed(groups)} on any sentence."
    return SentenceComparison(
        id=name,
        systems=groups,
        src_lang=corpus.src_lang,
        tgt_lang=corpus.tgt_lang,
        sentences=sentences,
        caption=caption,
    )


def _most_different(gains: NDArray[np.float64], texts: Sequence[tuple[str, str]]) -> list[int]:
    """Return the positions of the largest gains, in descending order, then of the largest losses."""
    chosen: list[int] = []
    seen: set[tuple[str, str]] = set()
    for signed in (gains, -gains):
        taken = 0
        for i in map(int, np.argsort(-signed, kind="stable")):
            if signed[i] <= 0 or taken == _EACH_WAY:
                break
            if texts[i] not in seen:
                seen.add(texts[i])
                chosen.append(i)
                taken += 1
    return chosen


def _caption(pair: tuple[ComparedSystem, ComparedSystem]) -> str:
    first, second = (system.group for system in pair)
    many = max(len(system.runs) for system in pair) > 1
    over = " averaged over seeds; shown is the seed nearest to that average, with its own chrF" if many else ""
    left_out = " Sentences are left out if the translations shown do not differ in the same direction." if many else ""
    return (
        f"Up to {_EACH_WAY} test sentences where {second} gains most over {first}, and up to {_EACH_WAY} where it "
        f"loses most, in sentence-level chrF{over}.{left_out} They are the extremes, not a sample."
    )
