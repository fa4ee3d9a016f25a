"""The tables of Moon et al. 2023 (arXiv 2310.10930), theirs beside ours."""

from collections.abc import Sequence

from repose.grids.published import Scalar
from repose.grids.published import Table as PublishedTable
from repose.report import figures
from repose.report.beside import (
    Beside,
    corpus_languages,
    file_name,
    percent,
    same_but_weight,
    size_difference,
)
from repose.report.content import Cell, Column, Table
from repose.report.runs import ReportRun
from repose.report.summaries import (
    Figure,
    Notes,
    Spread,
    over_seeds,
    spread_cell,
    text_cell,
    value_cell,
)

_DIRECTIONS = {"German": "de", "Korean": "ko", "Chinese": "zh", "Japanese": "ja", "English": "en"}
_MANY_VALIDATIONS = 20
FREE = Figure(name="BLEU", of=lambda run: figures.score(run, figures.beam(run) or "greedy", "bleu"))
"""Of the widest beam, or greedy where there is none, on the test set."""
FORCED = Figure(name="tf BLEU", of=lambda run: figures.teacher_forced(run, "tf_bleu_sentence_mean"))
"""Mean of sentence BLEUs given the reference's prefix: presumably what the paper prints."""
_CAPTION = (
    "Here: BLEU of translations from START (widest beam, sacreBLEU), and the mean of sentence BLEUs of the most "
    "probable tokens given the reference's prefix, presumably what the paper prints; mean ± standard deviation "
    "(n - 1) over n seeds; no gain over a score below 1. The paper's ± is over the last 100 epochs of one run. "
)


def _over_validations(run: ReportRun) -> float | None:
    """Mean BLEU of the last validations, of a run that had many: the paper's protocol, with translations from START."""
    found = (run.scores or {}).get("over_validations", {})
    if not isinstance(found, dict) or found.get("num_validations", 0) < _MANY_VALIDATIONS:
        return None
    return float(found["bleu"]["mean"])


OVER_VALIDATIONS = Figure(name="BLEU over validations", of=_over_validations)


def table_1(beside: Beside, entry: PublishedTable) -> Table | None:
    """BLEU by system, and how much better than the original each is."""
    systems = {system.label: beside.group(system.preset) for system in beside.published.systems}
    corpus = _corpus(beside, ("de", "en"))
    ours = {label: beside.done(group, corpus) for label, group in systems.items()}
    if not beside.asked and sum(bool(ours.get(str(row[0]))) for row in entry.rows) < 3:
        return None
    notes = Notes()
    keys = beside.protocol(entry, notes)
    shown = [FREE, FORCED]
    if any(_over_validations(run) is not None for runs in ours.values() for run in runs):
        shown.append(OVER_VALIDATIONS)
    original = {figure.name: _mean(over_seeds(ours["Original"], figure)) for figure in shown}
    rows = []
    for label, bleu, deviation, text, improvement in entry.rows:
        runs = ours.get(str(label), ())
        cells = [text_cell(str(label)), _with_deviation(text, bleu, deviation, keys), _improvement(improvement)]
        marks = _marks(runs, notes)
        cells.append(value_cell(len(runs) or None, 0, notes=marks))
        for figure in shown:
            found = over_seeds(runs, figure)
            cells += [
                spread_cell(found, 1, expected=len(runs)),
                value_cell(percent(_mean(found), original[figure.name]), 1),
            ]
        rows.append(tuple(cells))
    heads = {"BLEU": "BLEU, free-running", "tf BLEU": "tf BLEU, mean of sentences"}
    columns = [Column(name="system", numeric=False), Column(name="BLEU, paper"), _gain("paper"), Column(name="n, here")]
    for figure in shown:
        columns += [Column(name=f"{heads.get(figure.name, figure.name)}, here"), _gain(figure.name)]
    return Table(
        id=file_name(entry.id),
        title=beside.where(entry),
        columns=tuple(columns),
        rows=tuple(rows),
        caption=_CAPTION + f"Ours on {corpus}. " + entry.note,
        notes=dict(notes.sentences),
    )


def table_2(beside: Beside, entry: PublishedTable) -> Table | None:
    """BLEU of the original and of the Enhanced Transformer by direction."""
    groups = (beside.group("original"), beside.group("enhanced"))
    pairs = {corpus_languages(beside.runs, corpus): corpus for corpus in reversed(beside.runs.corpora)}
    found = {}
    for row in entry.rows:
        src, _, tgt = str(row[0]).partition(" to ")
        corpus = pairs.get((_DIRECTIONS[src], _DIRECTIONS[tgt]))
        found[row[0]] = [beside.done(group, corpus) if corpus is not None else () for group in groups]
    if not beside.asked and sum(all(runs) for runs in found.values()) < 2:
        return None
    notes = Notes()
    keys = beside.protocol(entry, notes)
    rows = []
    for direction, old, old_sd, old_text, new, new_sd, new_text, improvement in entry.rows:
        original, enhanced = found[direction]
        marks = _marks([*original, *enhanced], notes)
        cells = [
            text_cell(str(direction)),
            _with_deviation(old_text, old, old_sd, keys),
            _with_deviation(new_text, new, new_sd, ()),
            _improvement(improvement),
            value_cell(len(original) or None, 0, notes=marks),
        ]
        for figure in (FREE, FORCED):
            spreads = [over_seeds(runs, figure) for runs in (original, enhanced)]
            cells += [spread_cell(one, 1) for one in spreads]
            cells.append(value_cell(percent(_mean(spreads[1]), _mean(spreads[0])), 1))
        rows.append(tuple(cells))
    columns = [
        Column(name="direction", numeric=False),
        Column(name="original, paper", unit="BLEU"),
        Column(name="enhanced, paper", unit="BLEU"),
        _gain("paper"),
        Column(name="n, here"),
    ]
    for name in ("BLEU, free-running", "tf BLEU, mean of sentences"):
        columns += [Column(name=f"{system}, here", unit=name) for system in ("original", "enhanced")] + [_gain(name)]
    return Table(
        id=file_name(entry.id),
        title=beside.where(entry),
        columns=tuple(columns),
        rows=tuple(rows),
        caption=_CAPTION + entry.note,
        notes=dict(notes.sentences),
    )


def comparisons(beside: Beside, entry: PublishedTable) -> Table | None:
    """By how many per cent the Enhanced Transformer is better than each other system."""
    corpus = _corpus(beside, ("de", "en"))
    systems = {system.label: beside.group(system.preset) for system in beside.published.systems}
    enhanced = over_seeds(beside.done(beside.group("enhanced"), corpus), FREE)
    notes = Notes()
    keys = beside.protocol(entry, notes)
    rows = []
    for label, improvement in entry.rows:
        other = over_seeds(beside.done(systems.get(str(label)), corpus), FREE)
        gain = percent(_mean(enhanced), _mean(other))
        rows.append((text_cell(str(label), notes=keys), _improvement(improvement), value_cell(gain, 1)))
    return Table(
        id=file_name(entry.id),
        title=beside.where(entry),
        columns=(Column(name="system", numeric=False), _gain("paper"), _gain("BLEU, free-running, here")),
        rows=tuple(rows),
        caption=entry.note,
        notes=dict(notes.sentences),
    )


def weights_table(beside: Beside, entry: Scalar | None) -> Table | None:
    """BLEU by the weight k of the residual connection, of systems alike in all else; None of fewer than two."""
    architectures = {
        group: next(run.experiment.architecture for run in beside.runs.runs if run.group == group)
        for group in beside.runs.groups
    }
    alike = [[g for g, b in architectures.items() if same_but_weight(a, b)] for a in architectures.values()]
    groups = next((same for same in alike if len(same) > 1), [])
    corpus = beside.runs.corpora[0]
    groups = sorted((g for g in groups if beside.done(g, corpus)), key=lambda g: architectures[g].residual_weight)
    if len(groups) < 2:
        return None
    notes = Notes()
    keys = [] if entry is None else beside.protocol(entry, notes)
    best = entry.value if entry is not None else None
    rows = []
    for group in groups:
        runs, k = beside.done(group, corpus), architectures[group].residual_weight
        marked = keys if k == best else []
        rows.append(
            (
                Cell(text=f"{k:g}", value=k),
                text_cell(group),
                text_cell("best of 2, 3, 4, 5" if k == best else "", notes=marked),
                value_cell(len(runs), 0),
                *(spread_cell(over_seeds(runs, figure), 1, expected=len(runs)) for figure in (FREE, FORCED)),
                spread_cell(over_seeds(runs, Figure(name="loss", of=figures.valid_loss)), 3, expected=len(runs)),
            )
        )
    where = "" if entry is None else f"{beside.where(entry)}: "
    return Table(
        id="enhanced-weights",
        title=f"{where}weight of the residual connection",
        columns=(
            Column(name="k"),
            Column(name="system", numeric=False),
            Column(name="paper", numeric=False),
            Column(name="n, here"),
            Column(name="BLEU, free-running"),
            Column(name="tf BLEU, mean of sentences"),
            Column(name="valid. loss", unit="nats per target token"),
        ),
        rows=tuple(rows),
        caption=_CAPTION + f"Ours on {corpus}.",
        notes=dict(notes.sentences),
    )


def _marks(runs: Sequence[ReportRun], notes: Notes) -> list[str]:
    """What keeps our runs from being the paper's."""
    sentences = []
    for run in runs[:1]:
        sentences.append(size_difference(run, "original"))
        if run.experiment.corpus.splits == "given":
            sentences.append("The published split here, a random one in the paper.")
        if figures.epochs(run) < 1000:
            sentences.append(f"{figures.updates(run):,} updates here; 1,000 epochs in the paper.")
    return [notes.key(sentence) for sentence in sentences if sentence is not None]


def _corpus(beside: Beside, pair: tuple[str, str]) -> str:
    """The corpus of these languages, or else the first."""
    corpora = beside.runs.corpora
    return next((c for c in corpora if corpus_languages(beside.runs, c) == pair), corpora[0])


def _mean(found: Spread | None) -> float | None:
    return None if found is None else found.mean


def _with_deviation(text: object, value: object, deviation: object, notes: Sequence[str]) -> Cell:
    """A printed mean with its deviation."""
    assert isinstance(value, int | float)
    assert isinstance(deviation, int | float)
    return Cell(text=str(text), value=float(value), deviation=float(deviation), notes=tuple(notes))


def _improvement(value: object) -> Cell:
    """A printed improvement; a dash where none is printed."""
    return value_cell(float(value), 2) if isinstance(value, int | float) else text_cell("–")


def _gain(name: str) -> Column:
    return Column(name=f"gain, {name}", unit="%")
