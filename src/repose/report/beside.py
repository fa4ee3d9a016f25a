"""What the tables of papers have in common when they stand beside ours: whose runs are meant, and what differs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from repose.grids.published import Curve, Published, Scalar
from repose.grids.published import Table as PublishedTable
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS
from repose.report.content import Cell, Column, Table
from repose.report.runs import ReportRun, RunSet
from repose.report.summaries import NONE, Notes, text_cell, value_cell

Entry = PublishedTable | Curve | Scalar
SIZES = ("d_token", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The runs of a report and the numbers of the papers."""

    runs: RunSet
    published: Published
    asked: bool
    """Whether the entry was asked for: then all of it is shown, and otherwise what has something beside it."""

    def groups(self, *presets: str) -> list[str]:
        """Groups that are one of these presets, in the order of the presets."""
        found = {group: preset_of(self.runs, group) for group in self.runs.groups}
        return [group for preset in presets for group, name in found.items() if name == preset]

    def group(self, preset: str) -> str | None:
        """The first group that is the preset."""
        return next(iter(self.groups(preset)), None)

    def done(self, group: str | None, corpus: str) -> tuple[ReportRun, ...]:
        """Finished runs of a system; none of no system."""
        return () if group is None else self.runs.done(group, corpus)

    def protocol(self, entry: Entry, notes: Notes) -> list[str]:
        """The key of a note that says how a printed number was made, if anything is said of it."""
        sentences = [self.published.protocols[tag] for tag in entry.protocol]
        if isinstance(entry, Scalar) and entry.note:
            sentences = [*(sentence.replace("; see the note", "") for sentence in sentences), entry.note]
        return [notes.key(f"Paper: {' '.join(sentences)}")] if sentences else []

    def where(self, entry: Entry) -> str:
        """ "Hsiao and Dutta 2024 (arXiv 2410.04731), Table 1"."""
        paper = self.published.paper(entry.paper)
        return f"{paper.authors} {paper.year} ({paper.identifier}), {entry.where}"


def preset_of(runs: RunSet, group: str) -> str | None:
    """The preset that a group is: the one that it is called by, or else the one whose architecture it has."""
    if group in PRESETS:
        return group
    architecture = next(run.experiment.architecture for run in runs.runs if run.group == group)
    return next((name for name, preset in PRESETS.items() if preset.architecture == architecture), None)


def size_difference(run: ReportRun, preset: str) -> str | None:
    """How a run's model differs in size from the preset that stands for the paper's."""
    ours, theirs = run.experiment.architecture, PRESETS[preset].architecture
    different = [name for name in SIZES if getattr(ours, name) != getattr(theirs, name)]
    if not different:
        return None
    said = ", ".join(f"{name} {getattr(ours, name)} ({getattr(theirs, name)})" for name in different)
    return f"Other sizes here than in the paper (in brackets): {said}."


def tokenizer_difference(run: ReportRun, kind: str, vocab_size: int) -> str | None:
    """How a run's tokens differ from the paper's, so that losses per token do not compare."""
    tokenizer = run.experiment.tokenizer
    if (tokenizer.kind, tokenizer.vocab_size) == (kind, vocab_size) and tokenizer.src_file is None:
        return None
    said = "ready tokenizers" if tokenizer.src_file else f"{tokenizer.kind}, at most {tokenizer.vocab_size:,} tokens"
    return f"Other tokens here ({said}) than in the paper ({kind}, {vocab_size:,}): losses per token do not compare."


def languages(run: ReportRun) -> tuple[str, str]:
    """Source and target language of a run."""
    corpus = run.experiment.corpus
    return corpus.src_lang, corpus.tgt_lang


def corpus_languages(runs: RunSet, corpus: str) -> tuple[str, str]:
    """Source and target language of a corpus."""
    return languages(next(run for run in runs.runs if run.corpus == corpus))


def percent(new: float | None, old: float | None) -> float | None:
    """By how many per cent a BLEU score is above another; None over one below 1, which is as good as none."""
    return None if new is None or old is None or old < 1 else 100 * (new / old - 1)


def printed(value: float | str, *, notes: Sequence[str] = ()) -> Cell:
    """A number as the paper prints it."""
    if isinstance(value, str):
        return text_cell(value, notes=notes)
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return Cell(text=text, value=float(value), notes=tuple(notes))


def plain_table(beside: Beside, entry: PublishedTable) -> Table:
    """A printed table as it is: nothing here stands beside it."""
    notes = Notes()
    keys = beside.protocol(entry, notes)
    rows = tuple(
        tuple(printed(value, notes=keys if index == 0 else ()) for index, value in enumerate(row)) for row in entry.rows
    )
    numeric = [all(isinstance(row[index], int | float) for row in entry.rows) for index in range(len(entry.columns))]
    columns = tuple(
        Column(name=words(column.name), unit=column.unit, numeric=is_numeric)
        for column, is_numeric in zip(entry.columns, numeric, strict=True)
    )
    return Table(
        id=file_name(entry.id),
        title=f"{beside.where(entry)}",
        columns=columns,
        rows=rows,
        caption=f"As printed. {entry.note}",
        notes=dict(notes.sentences),
    )


def scalars_table(beside: Beside, entries: Sequence[Scalar], here: Mapping[str, tuple[str, Cell]]) -> Table:
    """Single printed numbers, with the group and the number that `here` has for their ids."""
    notes = Notes()
    rows = []
    for entry in entries:
        theirs = value_cell(float(entry.value), _digits(entry.value), notes=beside.protocol(entry, notes))
        if entry.deviation is not None:
            theirs = replace(theirs, text=f"{theirs.text} ± {entry.deviation:,.2f}", deviation=entry.deviation)
        group, ours = here.get(entry.id, (NONE, text_cell(NONE)))
        label = beside.published.system(entry.system).label
        rows.append(
            (text_cell(words(entry.metric)), text_cell(label), theirs, text_cell(group), ours, text_cell(entry.unit))
        )
    heads = (("number", 0), ("system", 0), ("paper", 1), ("ours", 0), ("here", 1), ("unit", 0))
    paper = beside.published.paper(entries[0].paper)
    return Table(
        id=f"{paper.id}-numbers",
        title=f"Numbers of {paper.authors} {paper.year}",
        columns=tuple(Column(name=name, numeric=bool(numeric)) for name, numeric in heads),
        rows=tuple(rows),
        caption=f"{paper.identifier}; here: mean ± standard deviation (n - 1) over runs.",
        notes=dict(notes.sentences),
    )


def _digits(value: float) -> int:
    return 0 if isinstance(value, int) else 2


def words(name: str) -> str:
    """A name as words."""
    return name.replace("_", " ")


def file_name(entry: str) -> str:
    """ "reinforced-table-1" of reinforced/table-1."""
    return re.sub(r"[^a-z0-9]+", "-", entry.lower()).strip("-")


def same_but_weight(a: Architecture, b: Architecture) -> bool:
    """Whether two architectures differ in nothing but the weight of the residual connection."""
    return all(getattr(a, f.name) == getattr(b, f.name) for f in fields(Architecture) if f.name != "residual_weight")
