"""The tables of Hsiao and Dutta 2024 (arXiv 2410.04731), theirs beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from repose.grids.published import Curve, Scalar
from repose.grids.published import Table as PublishedTable
from repose.report import figures
from repose.report.beside import (
    Beside,
    corpus_languages,
    file_name,
    preset_of,
    printed,
    size_difference,
    tokenizer_difference,
    words,
)
from repose.report.content import Cell, Column, Table
from repose.report.runs import ReportRun
from repose.report.summaries import Figure, Notes, over_seeds, spread, spread_cell, text_cell, value_cell

PROPOSED = ("reinforced-lookahead", "reinforced-printed", "reinforced", "reinforced-sentence", "reinforced-prefix")
"""Presets that stand for the proposed model: what it must have been, and its causal kin."""
_LOSSES = {"train_loss": ("epoch", "nll_keras"), "validation_loss": ("valid", "tf_loss_keras")}
"""Our records of the same unit: means of batch means."""
_CAUSAL = (
    "The model here is causal; the paper's must have normalised over the whole target, later tokens included, which "
    "lowers its losses."
)
_LOOKS_AHEAD = "Looks ahead, as the paper's model must have done: these losses measure nothing."


def table_1(beside: Beside, entry: PublishedTable) -> Table | None:
    """Losses, epochs and seconds by corpus: as printed, and with each of our models in the proposed one's place.

    None where nothing of ours fits and the table was not asked for.
    """
    notes = Notes()
    keys = beside.protocol(entry, notes)
    pairs = {corpus: _dataset(beside, corpus, entry) for corpus in beside.runs.corpora}
    matched = set(pairs.values())
    if not beside.asked and not matched & {str(row[0]) for row in entry.rows}:
        return None
    rows: list[tuple[Cell, ...]] = []
    for row in entry.rows:
        if beside.asked or row[0] in matched:
            rows.append((text_cell(str(row[0])), text_cell("paper", notes=keys), *map(printed, row[1:])))
            for corpus in (corpus for corpus, dataset in pairs.items() if dataset == row[0]):
                rows += _ours(beside, corpus, str(row[0]), notes, epochs=(row[3], row[7]))
    for corpus in (corpus for corpus, dataset in pairs.items() if dataset is None):
        rows += _ours(beside, corpus, corpus, notes, epochs=None)
    units = {column.name: column.unit for column in entry.columns}
    names = [column.name for column in entry.columns[1:]]
    return Table(
        id=file_name(entry.id),
        title=beside.where(entry),
        columns=(
            Column(name="corpus", numeric=False),
            Column(name="source", numeric=False),
            *(Column(name=words(name).replace("validation", "valid."), unit=units[name]) for name in names),
        ),
        rows=tuple(rows),
        caption="Rows as printed, and ours: the baseline, and the model named in the place of the proposed one. "
        "Our losses are means of batch means, as Keras reports them and the paper prints them; training losses with "
        f"dropout on. Seconds are of other machines: only the ratio of two models' compares. {entry.note}",
        notes=dict(notes.sentences),
    )


def _ours(
    beside: Beside, corpus: str, name: str, notes: Notes, *, epochs: tuple[object, object] | None
) -> list[tuple[Cell, ...]]:
    """Our rows of a corpus: one for each model in the place of the proposed one."""
    named = beside.group("baseline")
    baseline = beside.done(named, corpus)
    proposed: list[str | None] = [group for group in beside.groups(*PROPOSED) if beside.done(group, corpus)]
    rows = []
    for group in proposed or ([None] if baseline else []):
        runs = beside.done(group, corpus)
        every = [*baseline, *runs]
        keys = [notes.key(sentence) for sentence in _corpus_differences(every, epochs)]
        keys += [notes.key(sentence) for sentence in _model_differences(beside, every)]
        keys += [] if not runs or runs[0].looks_ahead else [notes.key(_CAUSAL)]
        label = f"here: {', '.join(name for name in (named, group) if name is not None)}"
        rows.append(
            (
                text_cell(name),
                text_cell(label, notes=keys),
                value_cell(figures.train_pairs(every[0]), 0),
                value_cell(figures.valid_pairs(every[0]), 0),
                *_block(baseline, notes),
                *_block(runs, notes),
            )
        )
    return rows


def _block(runs: Sequence[ReportRun], notes: Notes) -> list[Cell]:
    """Epochs, losses and seconds of a model."""
    keys = [notes.key(_LOOKS_AHEAD)] if any(not run.comparable for run in runs) else []
    columns = (
        (Figure(name="epochs", of=lambda run: float(figures.epochs(run))), 0),
        (Figure(name="train", of=lambda run: _at_end(run, "train_loss")), 2),
        (Figure(name="valid", of=lambda run: _at_end(run, "validation_loss")), 2),
        (Figure(name="seconds", of=figures.seconds_per_epoch), 1),
    )
    cells = []
    for figure, digits in columns:
        found = over_seeds(runs, figure)
        if figure.name == "epochs" and found is not None and not found.deviation:
            found = replace(found, deviation=None)
        cells.append(spread_cell(found, digits, notes=keys if found else ()))
    return cells


def _corpus_differences(runs: Sequence[ReportRun], epochs: tuple[object, object] | None) -> list[str]:
    """What keeps the data and the length of our trainings from being the paper's."""
    if epochs is None:
        return ["A corpus that the paper does not have."]
    found = []
    if not all((run.experiment.corpus.name or "").startswith("ted_hrlr") for run in runs):
        found.append("The same languages, but other data than the paper's (see the number of pairs).")
    if any(figures.epochs(run) < max(_integers(epochs)) for run in runs):
        found.append("Fewer epochs here than in the paper.")
    return found


def _model_differences(beside: Beside, runs: Sequence[ReportRun]) -> list[str]:
    """What keeps our models from being the paper's."""
    found = []
    for run in runs:
        found.append(tokenizer_difference(run, "wordpiece", 8000))
        preset = preset_of(beside.runs, run.group)
        found.append(size_difference(run, preset) if preset is not None else None)
    return [sentence for sentence in dict.fromkeys(found) if sentence is not None]


def _integers(values: Sequence[object]) -> list[int]:
    return [value for value in values if isinstance(value, int)]


def _dataset(beside: Beside, corpus: str, entry: PublishedTable) -> str | None:
    """The row of Table 1 that a corpus stands for: that of its languages."""
    src, tgt = corpus_languages(beside.runs, corpus)
    rows = {str(row[0]) for row in entry.rows}
    return next((name for name in (corpus, f"{src}_to_{tgt}") if name in rows), None)


def _at_end(run: ReportRun, metric: str) -> float | None:
    """The last epoch's loss, as a mean of batch means."""
    return _losses(run, metric).get(figures.epochs(run))


def _losses(run: ReportRun, metric: str) -> Mapping[int, float]:
    """A loss by epoch."""
    kind, name = _LOSSES[metric]
    return {r["epoch"]: float(r[name]) for r in run.of_kind(kind) if isinstance(r.get(name), int | float)}


def curves_tables(beside: Beside, entries: Sequence[Curve]) -> list[Table]:
    """Mean losses by epoch over trials (section 3.2, Figure 3 (a)); a trial may stop before the last epoch."""
    tables = []
    for metric in dict.fromkeys(entry.metric for entry in entries):
        table = _curves_table(beside, metric, [entry for entry in entries if entry.metric == metric])
        tables += [table] if table is not None else []
    return tables


def _curves_table(beside: Beside, metric: str, entries: Sequence[Curve]) -> Table | None:
    corpus = _one_corpus(beside)
    ours = {
        entry.id: [group for group in _stand_ins(beside, entry.system) if beside.done(group, corpus)]
        for entry in entries
    }
    if not beside.asked and not any(len(beside.done(group, corpus)) > 1 for found in ours.values() for group in found):
        return None
    notes = Notes()
    columns: list[tuple[str, list[Cell]]] = []
    longest = max(len(entry.values) for entry in entries)
    here = {
        group: [_losses(run, metric) for run in beside.done(group, corpus)]
        for found in ours.values()
        for group in found
    }
    longest = max([longest, *(max(run, default=0) for runs in here.values() for run in runs)])
    for entry in entries:
        keys = beside.protocol(entry, notes)
        label = entry.system.rpartition("/")[2]
        total = max(entry.trials)
        theirs = [
            Cell(
                text=f"{value:.2f}" + (f" ({trials})" if trials != total else ""),
                value=value,
                n=trials,
                notes=tuple(keys) if epoch == 0 else (),
            )
            for epoch, (value, trials) in enumerate(zip(entry.values, entry.trials, strict=True))
        ]
        columns.append((f"{label}, paper", theirs))
        for group in ours[entry.id]:
            runs = beside.done(group, corpus)
            sentences = _model_differences(beside, runs) + (
                [_CAUSAL] if label == "proposed" and runs[0].comparable else []
            )
            marks = [notes.key(sentence) for sentence in sentences]
            marks += [notes.key(_LOOKS_AHEAD)] if not runs[0].comparable else []
            cells = [
                spread_cell(spread([run[epoch] for run in here[group] if epoch in run]), 2, expected=len(runs))
                for epoch in range(1, longest + 1)
            ]
            columns.append((f"{group}, here", [replace(cells[0], notes=tuple(marks)), *cells[1:]]))
    rows = tuple(
        (value_cell(epoch + 1, 0), *(cells[epoch] if epoch < len(cells) else text_cell("–") for _, cells in columns))
        for epoch in range(longest)
    )
    return Table(
        id=f"reinforced-curves-{metric.replace('_', '-')}",
        title=f"{beside.where(entries[0])}: {words(metric)}",
        columns=(Column(name="epoch"), *(Column(name=name, unit=entries[0].unit) for name, _ in columns)),
        rows=rows,
        caption="Mean over trials by epoch; in brackets how many got so far, where not all did. Theirs on pt_to_en, "
        f"ours on {corpus}, as means of batch means. {entries[0].note}",
        notes=dict(notes.sentences),
    )


def _one_corpus(beside: Beside) -> str:
    """pt to en, which the trials are of, or else the first corpus."""
    corpora = beside.runs.corpora
    return next((c for c in corpora if corpus_languages(beside.runs, c) == ("pt", "en")), corpora[0])


def _stand_ins(beside: Beside, system: str) -> list[str]:
    return beside.groups("baseline") if system.endswith("/baseline") else beside.groups(*PROPOSED)


def scalars_here(beside: Beside, entries: Sequence[Scalar]) -> dict[str, tuple[str, Cell]]:
    """What our runs have for the single numbers of the paper: by id, the group and the number."""
    corpus = _one_corpus(beside)
    of = {
        "parameters": (figures.parameters, 0),
        "seconds_per_epoch": (figures.seconds_per_epoch, 2),
        "train_loss": (lambda run: _at_end(run, "train_loss"), 2),
        "validation_loss": (lambda run: _at_end(run, "validation_loss"), 2),
    }
    found: dict[str, tuple[str, Cell]] = {}
    for entry in entries:
        groups = [group for group in _stand_ins(beside, entry.system) if beside.done(group, corpus)]
        if entry.metric not in of or not groups:
            continue
        figure, digits = of[entry.metric]
        spreads = over_seeds(beside.done(groups[0], corpus), Figure(name=entry.metric, of=figure))
        if entry.metric == "parameters" and spreads is not None:
            spreads = replace(spreads, deviation=None)
        found[entry.id] = (groups[0], spread_cell(spreads, digits))
    return found
