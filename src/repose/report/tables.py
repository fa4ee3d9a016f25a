"""Figures of runs, and their mean and deviation over seeds, as tables with a row for each system and corpus.

A mean is over the runs of a system on a corpus that have the figure; the deviation is the standard deviation over them
with n - 1, and a single run has none. The runs of a set differ in nothing but the seed.
"""

import math
import statistics
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from repose.report.collect import ReportRun, RunSet
from repose.report.content import Cell, Column, Table

Better = Literal["lower", "higher", ""]
Of = Callable[[ReportRun], float | None]
"""A figure of one run."""
LOOKS_AHEAD = (
    "This model looks ahead: it sees the target tokens that it is to predict, so that its teacher-forced figures "
    "measure nothing; it is never marked as the best."
)
NONE = "–"


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Several runs' values of one figure."""

    mean: float
    deviation: float | None
    """Standard deviation with n - 1; None for a single run, and where a run's value is no finite number."""
    n: int


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that a run has, or has not, and how it is shown."""

    name: str
    of: Of
    unit: str = ""
    digits: int = 2
    better: Better = ""
    """Which of two is the better one; "" where neither is."""
    exact: bool = False
    """Whether it is a count that seeds do not move: without a deviation where all agree, a range where they do not."""
    cost: bool = False
    """Whether it says what a model costs, so that one that looks ahead is not warned of at it."""
    judged_by_tokens: bool = False
    """Whether it counts tokens, so that systems of other tokenizers cannot be compared by it."""


def count(name: str, of: Of, unit: str = "", digits: int = 0) -> Figure:
    """A cost that seeds do not move."""
    return Figure(name=name, of=of, unit=unit, digits=digits, exact=True, cost=True)


def loss(name: str, of: Of, unit: str) -> Figure:
    """A loss by which systems of one tokenizer are compared."""
    return Figure(name=name, of=of, unit=unit, digits=3, better="lower", judged_by_tokens=True)


def accuracy(name: str, of: Of) -> Figure:
    """A share of tokens, in percent."""
    return Figure(name=name, of=of, unit="%", digits=1, better="higher", judged_by_tokens=True)


def quality(name: str, of: Of) -> Figure:
    """A score of translations, from 0 to 100."""
    return Figure(name=name, of=of, digits=1, better="higher")


@dataclass
class Notes:
    """The notes of a table: keys a, b, ... in the order in which they are first needed."""

    sentences: dict[str, str] = field(default_factory=dict)

    def key(self, sentence: str) -> str:
        """The key of a sentence, a new one where it is new."""
        for key, known in self.sentences.items():
            if known == sentence:
                return key
        number, letters = len(self.sentences), string.ascii_lowercase
        key = letters[number % 26] * (1 + number // 26)
        self.sentences[key] = sentence
        return key


def spread(values: Sequence[float]) -> Spread | None:
    """Mean, deviation and number; None of nothing."""
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None
    return Spread(mean=statistics.fmean(values), deviation=deviation, n=len(values))


def over_seeds(runs: Sequence[ReportRun], figure: Figure) -> Spread | None:
    """The spread of a figure over the runs that have it."""
    return spread([value for run in runs if (value := figure.of(run)) is not None])


def number(value: float, digits: int) -> str:
    """A number as it is read: thousands apart, so many digits after the point."""
    return f"{value:,.{digits}f}"


def shown(found: Spread, digits: int, expected: int | None = None) -> str:
    """ "34.2 ± 0.3"; with "(n)" where the number of runs is not the expected one."""
    text = number(found.mean, digits)
    if found.deviation is not None:
        text += f" ± {number(found.deviation, digits)}"
    return text if expected is None or found.n == expected else f"{text} ({found.n})"


def text_cell(text: str, *, notes: Sequence[str] = ()) -> Cell:
    """A cell that is no number."""
    return Cell(text=text, notes=tuple(notes))


def spread_cell(
    found: Spread | None, digits: int, *, expected: int | None = None, notes: Sequence[str] = (), best: bool = False
) -> Cell:
    """A cell of a mean; a dash for none."""
    if found is None:
        return Cell(text=NONE, notes=tuple(notes))
    return Cell(
        text=shown(found, digits, expected),
        value=found.mean,
        deviation=found.deviation,
        n=found.n,
        notes=tuple(notes),
        best=best,
    )


def value_cell(value: float | None, digits: int, *, notes: Sequence[str] = ()) -> Cell:
    """A cell of a single number, without runs behind it."""
    if value is None:
        return Cell(text=NONE, notes=tuple(notes))
    return Cell(text=number(value, digits), value=value, notes=tuple(notes))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A system on a corpus, and the runs that are counted."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]

    @property
    def comparable(self) -> bool:
        """Whether none of its runs looks ahead or failed an audit."""
        return not self.warning

    @property
    def warning(self) -> str:
        """What is wrong with its numbers; "" where nothing is."""
        failed = list(dict.fromkeys(check for run in self.runs for check in run.failed_checks))
        if any(run.looks_ahead for run in self.runs):
            return LOOKS_AHEAD
        return f"This model failed the audit ({', '.join(failed)}): it is never marked as the best." if failed else ""


def rows_of(runs: RunSet) -> list[Row]:
    """Every system and corpus with finished runs, corpora first."""
    pairs = [(group, corpus) for corpus in runs.corpora for group in runs.groups]
    rows = [Row(group=group, corpus=corpus, runs=runs.done(group, corpus)) for group, corpus in pairs]
    return [row for row in rows if row.runs]


Marks = Callable[[Row, Figure, Notes], list[str]]
"""Further notes of a cell: keys that `Notes.key` gave."""


def _no_marks(_row: Row, _figure: Figure, _notes: Notes) -> list[str]:
    return []


def figure_table(
    rows: Sequence[Row],
    figures: Sequence[Figure],
    *,
    name: str,
    title: str,
    caption: str,
    marks: Marks = _no_marks,
    about: Callable[[Row, Notes], list[str]] = lambda _row, _notes: [],
) -> Table:
    """A row for each of `rows`, a column for each figure that some run has; the best of each corpus marked.

    `marks` gives further notes of a figure, `about` those of a system.
    """
    notes = Notes()
    cells: dict[tuple[int, str], Spread | None] = {
        (index, figure.name): over_seeds(row.runs, figure) for index, row in enumerate(rows) for figure in figures
    }
    present = [f for f in figures if any(cells[index, f.name] is not None for index in range(len(rows)))]
    corpora = list(dict.fromkeys(row.corpus for row in rows))
    best = {(corpus, f.name): _best(rows, cells, f, corpus) for corpus in corpora for f in present}
    lines = []
    for index, row in enumerate(rows):
        warned = [notes.key(row.warning)] if row.warning else []
        line = [text_cell(row.corpus)] if len(corpora) > 1 else []
        line += [text_cell(row.group, notes=warned + about(row, notes)), value_cell(len(row.runs), 0)]
        for f in present:
            own = [*([] if f.cost else warned), *marks(row, f, notes)] if cells[index, f.name] is not None else []
            is_best = index in best[row.corpus, f.name]
            cell = spread_cell(cells[index, f.name], f.digits, expected=len(row.runs), notes=own, best=is_best)
            line.append(_counted(cell, row, f) if f.exact else cell)
        lines.append(tuple(line))
    heads = [Column(name="corpus", numeric=False)] if len(corpora) > 1 else []
    heads += [Column(name="system", numeric=False), Column(name="n", unit="runs")]
    heads += [Column(name=f.name, unit=f.unit) for f in present]
    return Table(
        id=name, title=title, columns=tuple(heads), rows=tuple(lines), caption=caption, notes=dict(notes.sentences)
    )


def _counted(cell: Cell, row: Row, figure: Figure) -> Cell:
    """The cell of an exact figure: one number, or the range."""
    found = sorted({value for run in row.runs if (value := figure.of(run)) is not None})
    text = "–".join(number(value, figure.digits) for value in dict.fromkeys((found[0], found[-1]))) if found else NONE
    return replace(cell, text=text)


def _best(rows: Sequence[Row], cells: Mapping[tuple[int, str], Spread | None], figure: Figure, corpus: str) -> set[int]:
    """The rows with the best mean, as it is shown, of at least two that may be compared."""
    means = {
        index: round(found.mean, figure.digits)
        for index, row in enumerate(rows)
        if row.corpus == corpus and row.comparable and (found := cells[index, figure.name]) is not None
        if math.isfinite(found.mean)
    }
    if not figure.better or len(means) < 2:
        return set()
    if figure.judged_by_tokens and len(tokenizers([row for row in rows if row.corpus == corpus])) > 1:
        return set()
    best = (min if figure.better == "lower" else max)(means.values())
    return {index for index, mean in means.items() if mean == best}


def tokenizers(rows: Sequence[Row]) -> set[str]:
    """Digests of the target tokenizers of these rows' runs."""
    return {run.config.digests.get("tgt", "") for row in rows for run in row.runs}
