"""The papers' tables in their own column layout, with our numbers beside theirs and notes where the protocol differs.

The grid names the entries of `repose.grids.published` to show ([grid.report] published). If it names none, the entries
that some of our runs fit are shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from repose.grids.published import Curve, Paper, PrintedEntry, PrintedSystem, PrintedTable, Scalar, load
from repose.model.architecture import Architecture
from repose.report import figures
from repose.report.beside_papers import BesidePapers, printed, size_difference, tokenizer_difference, words
from repose.report.content import Cell, Column, Table, slug
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import (
    NONE,
    Figure,
    Of,
    Spread,
    caption,
    captioned,
    over_seeds,
    scored_on,
    spread,
    spread_cell,
    value_cell,
)
from repose.system.errors import unknown
from repose.system.terminal import counted

WEIGHT = "enhanced/best_residual_weight"


def published_tables(runs: RunSet) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Return the tables, and a sentence for each requested entry that does not exist."""
    published, runs = load(), runs.translations
    if not runs.runs:
        return (), ()
    comparison = BesidePapers(runs=runs, published=published, requested=bool(runs.published))
    entries = published.entries
    problems = [
        f"published: {unknown('entry', name, list(entries))}." for name in runs.published if name not in entries
    ]
    found = [entries[name] for name in runs.published if name in entries]
    tables = _requested(comparison, found) if comparison.requested else _fitting(comparison)
    return tuple(table for table in tables if table is not None), tuple(problems)


def _requested(comparison: BesidePapers, entries: Sequence[PrintedEntry]) -> list[Table | None]:
    """Return the tables that the grid names: printed ones one by one, then curves, then single numbers by paper."""
    tables: list[Table | None] = []
    for entry in entries:
        if isinstance(entry, PrintedTable):
            tables.append(_LAYOUTS.get(entry.id, _as_printed)(comparison, entry))
        elif isinstance(entry, Scalar) and entry.id == WEIGHT:
            tables.append(_weights_table(comparison, entry))
    tables += _curves_tables(comparison, [entry for entry in entries if isinstance(entry, Curve)])
    scalars = [entry for entry in entries if isinstance(entry, Scalar) and entry.id != WEIGHT]
    for paper in dict.fromkeys(entry.paper for entry in scalars):
        tables.append(_numbers_table(comparison, [entry for entry in scalars if entry.paper == paper]))
    return tables


def _fitting(comparison: BesidePapers) -> list[Table | None]:
    published = comparison.published
    tables = [
        _LAYOUTS[name](comparison, published.find(PrintedTable, name))
        for name in ("reinforced/table-1", "enhanced/table-1", "enhanced/table-2")
    ]
    if comparison.group("baseline") and comparison.groups(*PROPOSED):
        tables += _curves_tables(comparison, published.curves)
        names = ("parameters", "seconds_per_epoch")
        scalars = [s for s in published.scalars if s.paper == "reinforced" and s.metric in names]
        tables.append(_numbers_table(comparison, scalars))
    return [*tables, _weights_table(comparison, published.find(Scalar, WEIGHT))]


def _as_printed(comparison: BesidePapers, entry: PrintedTable) -> Table:
    """Return a printed table as it is, without numbers of ours."""
    notes = comparison.protocol(entry)
    rows = [[printed(row[0], notes=notes), *map(printed, row[1:])] for row in entry.rows]
    columns = [
        Column(words(column.name), column.unit, all(not isinstance(row[index], str) for row in entry.rows))
        for index, column in enumerate(entry.columns)
    ]
    return comparison.table(entry, columns, rows, "as-printed")


def _numbers_table(comparison: BesidePapers, entries: Sequence[Scalar]) -> Table:
    """Return a table of single printed numbers, with ours where a run has them."""
    ours = _numbers_here(comparison, entries) if entries[0].paper == "reinforced" else {}
    rows = []
    for entry in entries:
        digits = 0 if isinstance(entry.value, int) else 2
        theirs = value_cell(float(entry.value), digits, notes=comparison.protocol(entry))
        if entry.deviation is not None:
            theirs = replace(theirs, text=f"{theirs.text} ± {entry.deviation:,.2f}", deviation=entry.deviation)
        group, here = ours.get(entry.id, (NONE, Cell(NONE)))
        label = comparison.published.find(PrintedSystem, entry.system).label
        rows.append([Cell(words(entry.metric)), Cell(label), theirs, Cell(group), here, Cell(entry.unit)])
    paper = comparison.published.find(Paper, entries[0].paper)
    columns = [
        Column(name, numeric=name in ("paper", "here"))
        for name in ("number", "system", "paper", "ours", "here", "unit")
    ]
    more = _OF_OTHERS.format(corpus=comparison.corpus_of(_TRIALS)) if paper.id == "reinforced" else ""
    return captioned(f"{paper.id}-numbers", columns, rows, like="numbers", more=more, **asdict(paper))


# Hsiao and Dutta 2024 (arXiv 2410.04731)

PROPOSED = ("reinforced-lookahead", "reinforced-printed", "reinforced", "reinforced-sentence", "reinforced-prefix")
"""Presets that stand for the proposed model: first what the paper's must have been, then its causal variants."""
_LOSSES = {"train_loss": ("epoch", "nll_keras"), "validation_loss": ("valid", "tf_loss_keras")}
"""Kind and name of our records of each loss in the paper's unit, means of batch means."""
_TRIALS = ("pt", "en")
"""Languages of the corpus of the repeated trials and of the single numbers."""
_OF_OTHERS = (
    " Theirs are for pt to en, ours for {corpus}. Seconds are from different machines: only the ratio between two "
    "models can be compared."
)
_CAUSAL = (
    "The model here is causal; the paper's must have normalised over the whole target, later tokens included, which "
    "lowers its losses."
)
_LOOKS_AHEAD = "Looks ahead, as the paper's model must have done: these losses measure nothing."


def _reinforced_table_1(comparison: BesidePapers, entry: PrintedTable) -> Table | None:
    """Return losses, epochs and seconds by corpus: as printed, and with each of our models in the proposed one's place.

    None if no run of ours fits and the table was not requested.
    """
    notes = comparison.protocol(entry)
    names = {str(row[0]) for row in entry.rows}
    ours = [comparison.group("baseline"), *comparison.groups(*PROPOSED)]
    corpora = [corpus for corpus in comparison.runs.corpora if any(comparison.done(group, corpus) for group in ours)]
    pairs = {corpus: _dataset(comparison, corpus, names) for corpus in corpora}
    if not comparison.requested and not names & set(pairs.values()):
        return None
    rows: list[list[Cell]] = []
    for row in entry.rows:
        if comparison.requested or row[0] in pairs.values():
            rows.append([Cell(str(row[0])), Cell("paper", notes=notes), *map(printed, row[1:])])
            for corpus in (corpus for corpus, dataset in pairs.items() if dataset == row[0]):
                rows += _our_rows(comparison, corpus, str(row[0]), epochs=(row[3], row[7]))
    for corpus in (corpus for corpus, dataset in pairs.items() if dataset is None):
        rows += _our_rows(comparison, corpus, corpus, epochs=None)
    columns = [Column("corpus", numeric=False), Column("source", numeric=False)]
    columns += [Column(words(c.name).replace("validation", "valid."), c.unit) for c in entry.columns[1:]]
    return comparison.table(entry, columns, rows)


def _dataset(comparison: BesidePapers, corpus: str, names: set[str]) -> str | None:
    """Return the row of Table 1 for a corpus, by its name or its languages; None if there is none."""
    return next((name for name in (corpus, "_to_".join(comparison.languages(corpus))) if name in names), None)


def _our_rows(
    comparison: BesidePapers, corpus: str, name: str, *, epochs: tuple[object, object] | None
) -> list[list[Cell]]:
    named = comparison.group("baseline")
    baseline = comparison.done(named, corpus)
    proposed: list[str | None] = [group for group in comparison.groups(*PROPOSED) if comparison.done(group, corpus)]
    rows = []
    for group in proposed or ([None] if baseline else []):
        runs = comparison.done(group, corpus)
        every = [*baseline, *runs]
        notes = [*_corpus_differences(every, epochs), *_model_differences(comparison, every)]
        notes += [] if not runs or runs[0].looks_ahead else [_CAUSAL]
        label = f"here: {', '.join(name for name in (named, group) if name is not None)}"
        pairs = (value_cell(figures.num_pairs(every[0], split), 0) for split in ("train", "valid"))
        trained = [*_epochs_losses_seconds(baseline), *_epochs_losses_seconds(runs)]
        rows.append([Cell(name), Cell(label, notes=notes), *pairs, *trained])
    return rows


def _epochs_losses_seconds(runs: Sequence[ReportRun]) -> list[Cell]:
    notes = [_LOOKS_AHEAD] if any(not run.comparable for run in runs) else []
    epochs = _over(runs, lambda run: float(figures.epochs(run)))
    if epochs is not None and not epochs.deviation:
        epochs = replace(epochs, deviation=None)
    found = [(epochs, 0), *((_over(runs, of), 2) for of in map(_loss_at_end, _LOSSES))]
    found.append((_over(runs, figures.seconds_per_epoch), 1))
    return [spread_cell(value, digits, notes=notes if value else ()) for value, digits in found]


def _over(runs: Sequence[ReportRun], of: Of) -> Spread | None:
    return spread([value for run in runs if (value := of(run)) is not None])


def _corpus_differences(runs: Sequence[ReportRun], epochs: tuple[object, object] | None) -> list[str]:
    """Return sentences on how the data and length of our trainings differ from the paper's."""
    if epochs is None:
        return ["A corpus that the paper does not have."]
    found = []
    if not all((run.experiment.corpus.name or "").startswith("ted_hrlr") for run in runs):
        found.append("The same languages, but not the paper's data (see the number of pairs).")
    if any(figures.epochs(run) < max(value for value in epochs if isinstance(value, int)) for run in runs):
        found.append("Fewer epochs here than in the paper.")
    return found


def _model_differences(comparison: BesidePapers, runs: Sequence[ReportRun]) -> list[str]:
    """Return sentences on how our models differ from the paper's."""
    found: list[str | None] = []
    for run in runs:
        preset = comparison.preset(run.group)
        found += [tokenizer_difference(run, "wordpiece", 8000), preset and size_difference(run, preset)]
    return [sentence for sentence in dict.fromkeys(found) if sentence]


def _losses(run: ReportRun, metric: str) -> Mapping[int, float]:
    kind, name = _LOSSES[metric]
    return {r["epoch"]: float(r[name]) for r in run.of_kind(kind) if isinstance(r.get(name), int | float)}


def _loss_at_end(metric: str) -> Of:
    """Return the function from a run to a loss after its last epoch, as a mean of batch means."""
    return lambda run: _losses(run, metric).get(figures.epochs(run))


def _curves_tables(comparison: BesidePapers, entries: Sequence[Curve]) -> list[Table | None]:
    """Return a table for each loss of its mean by epoch over trials (section 3.2, Figure 3 (a)); a trial may stop
    before the last epoch."""
    metrics = dict.fromkeys(entry.metric for entry in entries)
    return [_curves_table(comparison, metric, [e for e in entries if e.metric == metric]) for metric in metrics]


def _curves_table(comparison: BesidePapers, metric: str, entries: Sequence[Curve]) -> Table | None:
    corpus = comparison.corpus_of(_TRIALS)
    groups = {entry.id: _stand_ins(comparison, entry.system, corpus) for entry in entries}
    ours = {group: comparison.done(group, corpus) for found in groups.values() for group in found}
    if not comparison.requested and not any(len(runs) > 1 for runs in ours.values()):
        return None
    here = {group: [_losses(run, metric) for run in runs] for group, runs in ours.items()}
    epochs = [max(run, default=0) for runs in here.values() for run in runs]
    longest = max([*epochs, *(len(entry.values) for entry in entries)])
    columns: list[tuple[str, list[Cell]]] = []
    for entry in entries:
        label = entry.system.rpartition("/")[2]
        columns.append((f"{label}, paper", _printed_curve(entry, comparison.protocol(entry))))
        for group in groups[entry.id]:
            runs = ours[group]
            notes = _model_differences(comparison, runs)
            notes += [_CAUSAL] if label == "proposed" and runs[0].comparable else []
            notes += [] if runs[0].comparable else [_LOOKS_AHEAD]
            means = (spread([run[epoch] for run in here[group] if epoch in run]) for epoch in range(1, longest + 1))
            cells = [spread_cell(mean, 2, expected=len(runs)) for mean in means]
            columns.append((f"{group}, here", [replace(cells[0], notes=notes), *cells[1:]]))
    rows = [
        [value_cell(place + 1, 0), *(cells[place] if place < len(cells) else Cell(NONE) for _, cells in columns)]
        for place in range(longest)
    ]
    heads = [Column("epoch"), *(Column(name, entries[0].unit) for name, _ in columns)]
    said = {"where": comparison.where(entries[0]), "what": words(metric), "corpus": corpus, "note": entries[0].note}
    return captioned(f"reinforced-curves-{slug(metric)}", heads, rows, like="reinforced-curves", **said)


def _printed_curve(entry: Curve, notes: Sequence[str]) -> list[Cell]:
    """Return a cell with the printed mean of each epoch, with the number of trials if not all got that far."""
    cells: list[Cell] = []
    for value, trials in zip(entry.values, entry.trials, strict=True):
        text = f"{value:.2f}" + (f" ({trials})" if trials != max(entry.trials) else "")
        cells.append(Cell(text, value, n=trials, notes=() if cells else notes))
    return cells


def _stand_ins(comparison: BesidePapers, system: str, corpus: str) -> list[str]:
    """Return the groups with finished runs that stand for a system of the paper."""
    presets = ("baseline",) if system.endswith("/baseline") else PROPOSED
    return [group for group in comparison.groups(*presets) if comparison.done(group, corpus)]


def _numbers_here(comparison: BesidePapers, entries: Sequence[Scalar]) -> dict[str, tuple[str, Cell]]:
    """Return our values for the paper's single numbers: maps an entry's id to the group and the cell."""
    corpus = comparison.corpus_of(_TRIALS)
    known: dict[str, tuple[Of, int]] = {
        "parameters": (figures.parameters, 0),
        "seconds_per_epoch": (figures.seconds_per_epoch, 2),
        **{metric: (_loss_at_end(metric), 2) for metric in _LOSSES},
    }
    found: dict[str, tuple[str, Cell]] = {}
    for entry in entries:
        groups = _stand_ins(comparison, entry.system, corpus)
        if entry.metric in known and groups:
            of, digits = known[entry.metric]
            runs = comparison.done(groups[0], corpus)
            value = _over(runs, of)
            if entry.metric == "parameters" and value is not None:
                value = replace(value, deviation=None)
            notes: list[str] = []
            if entry.metric in _LOSSES:
                notes = [*_model_differences(comparison, runs), *([] if runs[0].comparable else [_LOOKS_AHEAD])]
            found[entry.id] = (groups[0], spread_cell(value, digits, notes=notes))
    return found


# Moon et al. 2023 (arXiv 2310.10930)

_LANGUAGES = {"German": "de", "Korean": "ko", "Chinese": "zh", "Japanese": "ja", "English": "en"}
_MANY_VALIDATIONS = 20
_FREE = Figure(
    "BLEU",
    lambda run: figures.score(run, figures.decoding_of(run), "bleu"),
    kind=lambda run: figures.kind_of_score(run, figures.decoding_of(run), "bleu"),
)
"""BLEU on the test set, by the decoding that each run is compared by."""
_FORCED = Figure("tf BLEU", lambda run: figures.teacher_forced(run, "tf_bleu_sentence_mean"), kind=scored_on)
"""Mean of sentence BLEUs given the reference's prefix, which is presumably what the paper prints."""
_BLEUS = "enhanced-bleus"
"""What the captions say about both."""
_HEADS = {"BLEU": "BLEU, free-running", "tf BLEU": "tf BLEU, mean of sentences"}


def _over_validations(run: ReportRun) -> float | None:
    """Return the mean BLEU of a run's last validations, if there were many: the paper's protocol, but free-running."""
    found = (run.scores or {}).get("over_validations", {})
    if not isinstance(found, dict) or found.get("num_validations", 0) < _MANY_VALIDATIONS:
        return None
    return float(found["bleu"]["mean"])


def _enhanced_table_1(comparison: BesidePapers, entry: PrintedTable) -> Table | None:
    """Return BLEU by system, and how much better than the original each is."""
    corpus = comparison.corpus_of(("de", "en"))
    ours = {
        system.label: comparison.done(comparison.group(system.preset), corpus)
        for system in comparison.published.systems
    }
    if not comparison.requested and sum(bool(ours.get(str(row[0]))) for row in entry.rows) < 3:
        return None
    notes = comparison.protocol(entry)
    shown = [_FREE, _FORCED]
    if any(_over_validations(run) is not None for runs in ours.values() for run in runs):
        shown.append(Figure("BLEU over validations", _over_validations))
    rows = []
    for label, bleu, deviation, text, improvement in entry.rows:
        runs = ours.get(str(label), ())
        cells = [Cell(str(label)), _with_deviation(text, bleu, deviation, notes), _improvement(improvement)]
        cells.append(value_cell(len(runs) or None, 0, notes=_enhanced_marks(runs)))
        for figure in shown:
            found = over_seeds(runs, figure)
            gain = _gain_cell(found, over_seeds(ours["Original"], figure))
            cells += [spread_cell(found, 1, expected=len(runs)), gain]
        rows.append(cells)
    columns = [Column("system", numeric=False), Column("BLEU, paper"), _gain("paper"), Column("n, here")]
    for figure in shown:
        columns += [Column(f"{_HEADS.get(figure.name, figure.name)}, here"), _gain(figure.name)]
    return comparison.table(entry, columns, rows, bleus=caption(_BLEUS), corpus=corpus)


def _enhanced_table_2(comparison: BesidePapers, entry: PrintedTable) -> Table | None:
    """Return BLEU of the original and of the Enhanced Transformer by direction."""
    groups = (comparison.group("original"), comparison.group("enhanced"))
    pairs = {comparison.languages(corpus): corpus for corpus in reversed(comparison.runs.corpora)}
    found = {}
    for direction in (str(row[0]) for row in entry.rows):
        src, _, tgt = direction.partition(" to ")
        corpus = pairs.get((_LANGUAGES[src], _LANGUAGES[tgt]))
        found[direction] = [comparison.done(group, corpus) for group in groups]
    if not comparison.requested and sum(all(runs) for runs in found.values()) < 2:
        return None
    notes = comparison.protocol(entry)
    rows = []
    for name, old, old_sd, old_text, new, new_sd, new_text, improvement in entry.rows:
        original, enhanced = found[str(name)]
        theirs = [_with_deviation(old_text, old, old_sd, notes), _with_deviation(new_text, new, new_sd, ())]
        number = value_cell(len(original) or None, 0, notes=_enhanced_marks([*original, *enhanced]))
        cells = [Cell(str(name)), *theirs, _improvement(improvement), number]
        for figure in (_FREE, _FORCED):
            before, after = (over_seeds(runs, figure) for runs in (original, enhanced))
            cells += [spread_cell(before, 1), spread_cell(after, 1), _gain_cell(after, before)]
        rows.append(cells)
    columns = [Column("direction", numeric=False)]
    columns += [Column(f"{system}, paper", "BLEU") for system in ("original", "enhanced")]
    columns += [_gain("paper"), Column("n, here")]
    for name in _HEADS.values():
        columns += [*(Column(f"{system}, here", name) for system in ("original", "enhanced")), _gain(name)]
    return comparison.table(entry, columns, rows, bleus=caption(_BLEUS))


def _enhanced_comparisons(comparison: BesidePapers, entry: PrintedTable) -> Table | None:
    """Return by how many percent the Enhanced Transformer is better than each other system."""
    corpus = comparison.corpus_of(("de", "en"))
    systems = {system.label: comparison.group(system.preset) for system in comparison.published.systems}
    enhanced = over_seeds(comparison.done(comparison.group("enhanced"), corpus), _FREE)
    notes = comparison.protocol(entry)
    rows = []
    for label, improvement in entry.rows:
        other = over_seeds(comparison.done(systems.get(str(label)), corpus), _FREE)
        rows.append([Cell(str(label), notes=notes), _improvement(improvement), _gain_cell(enhanced, other)])
    columns = [Column("system", numeric=False), _gain("paper"), _gain("BLEU, free-running, here")]
    return comparison.table(entry, columns, rows)


def _weights_table(comparison: BesidePapers, entry: Scalar) -> Table | None:
    """Return BLEU by the weight k of the residual connection, for otherwise equal systems; None for a single k."""
    runs = comparison.runs
    architectures = {run.group: run.experiment.architecture for run in reversed(runs.runs)}
    architectures = {group: architectures[group] for group in runs.groups}
    corpus = runs.corpora[0]
    alike = ([g for g, b in architectures.items() if _same_but_weight(a, b)] for a in architectures.values())

    def weights(groups: Sequence[str]) -> set[float]:
        return {architectures[group].residual_weight for group in groups}

    groups = [g for g in next((same for same in alike if len(weights(same)) > 1), []) if runs.done(g, corpus)]
    if len(weights(groups)) < 2:
        return None
    protocol = comparison.protocol(entry)
    shown = [(_FREE, 1), (_FORCED, 1), (Figure("loss", figures.valid_loss), 3)]
    rows = []
    for group in sorted(groups, key=lambda group: architectures[group].residual_weight):
        done, k = runs.done(group, corpus), architectures[group].residual_weight
        best = Cell("best of 2, 3, 4, 5", notes=protocol) if k == entry.value else Cell("")
        cells = (spread_cell(over_seeds(done, figure), digits, expected=len(done)) for figure, digits in shown)
        rows.append([Cell(f"{k:g}", k), Cell(group), best, value_cell(len(done), 0), *cells])
    columns = [Column("k"), Column("system", numeric=False), Column("paper", numeric=False), Column("n, here")]
    columns += [*map(Column, _HEADS.values()), Column("valid. loss", figures.TARGET_NATS)]
    said = {"where": comparison.where(entry), "bleus": caption(_BLEUS), "corpus": corpus}
    return captioned("enhanced-weights", columns, rows, remarks=protocol, **said)


def _same_but_weight(a: Architecture, b: Architecture) -> bool:
    return asdict(a) | {"residual_weight": 0} == asdict(b) | {"residual_weight": 0}


def _enhanced_marks(runs: Sequence[ReportRun]) -> list[str]:
    """Return sentences on how our runs differ from the paper's."""
    sentences = []
    for run in runs[:1]:
        sentences.append(size_difference(run, "original"))
        if run.experiment.corpus.splits == "given":
            sentences.append("The published split here, a random one in the paper.")
        if figures.epochs(run) < 1000:
            sentences.append(f"{counted(run.records.updates, 'update')} here; 1,000 epochs in the paper.")
    return [sentence for sentence in sentences if sentence is not None]


def _with_deviation(text: object, value: object, deviation: object, notes: Sequence[str]) -> Cell:
    assert isinstance(value, int | float)
    assert isinstance(deviation, int | float)
    return Cell(str(text), float(value), float(deviation), notes=notes)


def _improvement(value: object) -> Cell:
    """Return a cell with a printed improvement; a dash if none is printed."""
    return value_cell(float(value) if isinstance(value, int | float) else None, 2)


def _gain_cell(new: Spread | None, old: Spread | None) -> Cell:
    """Return a cell with the gain of one BLEU score over another, in percent; a dash if the other is below 1."""
    return value_cell(None if new is None or old is None or old.mean < 1 else 100 * (new.mean / old.mean - 1), 1)


def _gain(name: str) -> Column:
    return Column(f"gain, {name}", "%")


_LAYOUTS: Mapping[str, Callable[[BesidePapers, PrintedTable], Table | None]] = {
    "reinforced/table-1": _reinforced_table_1,
    "enhanced/table-1": _enhanced_table_1,
    "enhanced/table-2": _enhanced_table_2,
    "enhanced/comparisons": _enhanced_comparisons,
}
"""The function that lays out each table; other tables are shown as printed."""
