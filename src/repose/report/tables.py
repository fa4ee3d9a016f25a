"""Tables with a row for each system and corpus, and figures of runs as mean and deviation over seeds.

A mean is over those runs of a system on a corpus that have the figure; they differ only in their seed. The deviation is
their standard deviation, with n - 1. A single run has none.
"""

import math
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from repose.report.content import Cell, Column, Table
from repose.report.figures import times
from repose.report.naming import set_of
from repose.report.run_set import Absent, ReportRun, RunSet

Better = Literal["lower", "higher", ""]
Of = Callable[[ReportRun], float | None]
"""Function from a run to a figure of it."""
Kind = Callable[[ReportRun], object]
LOOKS_AHEAD_IN_TRAINING = "This model looks ahead in training; it is never marked as the best."
LOOKS_AHEAD = (
    "This model looks ahead: it sees the target tokens that it is to predict, so its teacher-forced figures "
    "measure nothing; it is never marked as the best."
)
UNLIKE = "Its runs were scored in different ways or on different sets: no mean is taken."
NONE = "–"


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of one figure over several runs."""

    mean: float
    deviation: float | None
    """Standard deviation with n - 1; None for a single run, or if a run's value is not finite."""
    n: int


@dataclass(frozen=True)
class Figure:
    """A figure that a run may have, and how to show it."""

    name: str
    of: Of
    _: KW_ONLY
    unit: str = ""
    digits: int = 2
    better: Better = ""
    """Which of two values is the better one; "" if neither is."""
    exact: bool = False
    """True for a count that does not depend on the seed: shown without a deviation, or as a range if runs differ."""
    cost: bool = False
    """True for a cost of a model. A cost needs no warning if the model looks ahead."""
    judged_by_tokens: bool = False
    """True for a figure per token, so that systems with different tokenizers cannot be compared by it."""
    free_running: bool = False
    """True for a figure of the model's own output, written without seeing later tokens. It is meaningful even for a
    model that looks ahead in training."""
    kind: Kind = lambda _run: None
    """Function from a run to how and on what the figure was measured. Values of different kinds do not compare."""
    metric: str = ""
    """For a score of translations: its name in scores.*.json, such as "bleu" or "chrf"."""
    decoding: str | None = None
    """For a score of translations: the decoding, as `figures.score` takes it."""

    def kinds(self, rows: "Sequence[Row]") -> set[object]:
        """Return the kinds of the figure among the rows' runs that have it."""
        return {self.kind(run) for row in rows for run in row.runs if self.of(run) is not None}


def count(name: str, of: Of, unit: str = "", digits: int = 0) -> Figure:
    """Return the figure for a cost that does not depend on the seed."""
    return Figure(name, of, unit=unit, digits=digits, exact=True, cost=True)


def loss(name: str, of: Of, unit: str, kind: Kind) -> Figure:
    """Return the figure for a loss, by which systems with the same tokenizer are compared."""
    return Figure(name, of, unit=unit, digits=3, better="lower", judged_by_tokens=True, kind=kind)


def accuracy(name: str, share: Of, kind: Kind) -> Figure:
    """Return the figure for a share of tokens, shown in percent."""
    return Figure(
        name, lambda run: times(100, share(run)), unit="%", digits=1, better="higher", judged_by_tokens=True, kind=kind
    )


def validated_on(run: ReportRun) -> object:
    """Return what identifies a run's validation set, which may differ between corpora with the same test set."""
    return set_of(run.experiment.corpus, "valid")


def scored_on(run: ReportRun) -> object:
    """Return what identifies the set of a run's scores: name and size. Without a test set, it is the validation set."""
    return run.split, *((run.scores or {}).get(f"num_{what}") for what in ("sentences", "words", "bytes"))


def quality(name: str, of: Of, kind: Kind, **score: Any) -> Figure:
    """Return the figure for a score of translations, 0 to 100; `score`: its `metric` and `decoding`."""
    return Figure(name, of, digits=1, better="higher", free_running=True, kind=kind, **score)


def spread(values: Sequence[float]) -> Spread | None:
    """Return mean, deviation and number of the values; None if there are none."""
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None
    return Spread(statistics.fmean(values), deviation, len(values))


def over_seeds(runs: Sequence[ReportRun], figure: Figure) -> Spread | None:
    """Return the spread of a figure over the runs that have it; None if none has, or if they were not measured in the
    same way on the same set."""
    values = [(value, figure.kind(run)) for run in runs if (value := figure.of(run)) is not None]
    return spread([value for value, _ in values]) if len({kind for _, kind in values}) < 2 else None


def number(value: float, digits: int) -> str:
    """Format a number with commas between thousands, `digits` decimals, and a minus sign instead of a hyphen."""
    return f"{value:z,.{digits}f}".replace("-", "−")  # z: no minus sign before zero, after rounding


def shown(found: Spread, digits: int, expected: int | None = None) -> str:
    """Format a spread as "34.2 ± 0.3", followed by "(n)" if the number of runs is not the expected one."""
    text = number(found.mean, digits)
    if found.deviation is not None:
        text += f" ± {number(found.deviation, digits)}"
    return text if expected is None or found.n == expected else f"{text} ({found.n})"


def spread_cell(
    found: Spread | None, digits: int, *, expected: int | None = None, notes: Sequence[str] = (), best: bool = False
) -> Cell:
    """Return a cell with a mean; a dash for None."""
    if found is None:
        return Cell(NONE, notes=notes)
    return Cell(shown(found, digits, expected), found.mean, found.deviation, found.n, notes, best)


def value_cell(value: float | None, digits: int, *, notes: Sequence[str] = ()) -> Cell:
    """Return a cell with a single number, which is not a mean over runs; a dash for None."""
    return Cell(NONE if value is None else number(value, digits), value, notes=notes)


@dataclass(frozen=True)
class Row:
    """A system on a corpus, with its finished runs."""

    group: str
    corpus: str
    runs: tuple[ReportRun, ...]
    absent: tuple[Absent, ...] = ()
    """The system's other runs, which are not counted."""

    @property
    def uncounted(self) -> str:
        """The note on runs that are not counted; "" if there are none."""
        return f"Not counted: {', '.join(f'{one.name} ({one.why})' for one in self.absent)}." if self.absent else ""

    @property
    def comparable(self) -> bool:
        """True if none of its runs looks ahead or failed an audit."""
        return not self.warning

    @property
    def warning(self) -> str:
        """What is wrong with its numbers; "" if nothing is."""
        failed = list(dict.fromkeys(check for run in self.runs for check in run.failed_checks))
        if any(run.looks_ahead for run in self.runs):
            return LOOKS_AHEAD
        return f"This model failed the audit ({', '.join(failed)}): it is never marked as the best." if failed else ""


def rows_of(runs: RunSet) -> list[Row]:
    """Return a row for every system and corpus with finished runs, corpus by corpus."""
    absent = runs.absent
    return [
        Row(group, corpus, done, tuple(one for one in absent if (one.group, one.corpus) == (group, corpus)))
        for corpus in runs.corpora
        for group in runs.groups
        if (done := runs.done(group, corpus))
    ]


@cache
def _captions() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("repose.report").joinpath("captions.toml").read_text(encoding="utf-8"))


def caption(name: str) -> str:
    """Return the caption under a name in captions.toml; "" if there is none."""
    return _captions().get(name, {}).get("caption", "")


def captioned(
    name: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    like: str | None = None,
    remarks: Sequence[str] = (),
    **words: Any,
) -> Table:
    """Return a table with the title and caption of its name, or of `like`, in captions.toml; `words` fill them in."""
    texts = {key: text.format(**words) for key, text in _captions()[like or name].items()}
    title, caption = texts["title"], texts.get("caption", "")
    return Table(id=name, title=title, columns=columns, rows=rows, caption=caption, remarks=remarks)


def figure_table(
    rows: Sequence[Row],
    figures: Sequence[Figure],
    name: str,
    *,
    like: str | None = None,
    marks: Callable[[Row, Figure], Sequence[str]] = lambda _row, _figure: (),
    about: Callable[[Row], Sequence[str]] = lambda _row: (),
    **words: Any,
) -> Table:
    """Return a table with a row for each of `rows` and a column for each figure that some run has; the best value of
    each corpus is marked.

    `marks` returns further notes on a figure, `about` on a system. The other arguments are for `captioned`.
    """
    found = [{figure.name: over_seeds(row.runs, figure) for figure in figures} for row in rows]
    present = [figure for figure in figures if figure.kinds(rows)]
    several = len({row.corpus for row in rows}) > 1
    lines = []
    for row, spreads in zip(rows, found, strict=True):
        beside = [(r, s) for r, s in zip(rows, found, strict=True) if r.corpus == row.corpus]
        warned, uncounted = ([text] if text else [] for text in (row.warning, row.uncounted))
        cells = [Cell(row.corpus)] * several
        cells += [Cell(row.group, notes=[*warned, *about(row)]), value_cell(len(row.runs), 0, notes=uncounted)]
        for figure in present:
            if (mean := spreads[figure.name]) is None:
                cells.append(Cell(NONE, notes=[UNLIKE] if len(figure.kinds([row])) > 1 else []))
                continue
            text = _exact(row, figure) if figure.exact else shown(mean, figure.digits, len(row.runs))
            notes = [*([] if figure.cost else _warning_at(figure, row)), *marks(row, figure)]
            best = row.comparable and round(mean.mean, figure.digits) == _best(beside, figure)
            cells.append(Cell(text, mean.mean, mean.deviation, mean.n, notes, best))
        lines.append(cells)
    heads = [Column("corpus", numeric=False)] * several + [Column("system", numeric=False), Column("n", "runs")]
    columns = [*heads, *(Column(figure.name, figure.unit) for figure in present)]
    return captioned(name, columns, lines, like=like, **words)


def _warning_at(figure: Figure, row: Row) -> list[str]:
    """Return the warning about a figure of a system, as a list."""
    text = LOOKS_AHEAD_IN_TRAINING if figure.free_running and row.warning == LOOKS_AHEAD else row.warning
    return [text] if text else []


def _exact(row: Row, figure: Figure) -> str:
    found = sorted({value for run in row.runs if (value := figure.of(run)) is not None})
    return "–".join(number(value, figure.digits) for value in dict.fromkeys((found[0], found[-1])))


def _best(rows: Sequence[tuple[Row, Mapping[str, Spread | None]]], figure: Figure) -> float | None:
    """Return the best mean, rounded as shown, of comparable rows; None if they do not differ or cannot be compared."""
    means = {
        round(found.mean, figure.digits)
        for row, spreads in rows
        if row.comparable and (found := spreads[figure.name]) is not None and math.isfinite(found.mean)
    }
    unlike = figure.judged_by_tokens and len(tokenizers([row for row, _ in rows])) > 1
    several = len(figure.kinds([row for row, _ in rows if row.comparable])) > 1
    if not figure.better or len(means) < 2 or unlike or several:
        return None
    return min(means) if figure.better == "lower" else max(means)


def tokenizers(rows: Sequence[Row]) -> set[str]:
    """Return the digests of the target tokenizers of these rows' runs."""
    return {run.config.digests.get("tgt", "") for row in rows for run in row.runs}
