"""Shared by the tables that show a paper's numbers beside ours: which runs to show, and how they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repose.grids.published import Paper, PrintedEntry, PrintedTable, Published, Scalar
from repose.model.presets import PRESETS
from repose.report.content import Cell, Column, Table, slug
from repose.report.naming import preset_of
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import captioned

_SIZES = ("d_token", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers")


@dataclass(frozen=True, kw_only=True)
class BesidePapers:
    """A report's runs and the papers' numbers, to show beside each other."""

    runs: RunSet
    published: Published
    requested: bool
    """True if the grid names the entries to show: each in full. Otherwise, only what some of our runs fit is shown."""

    def groups(self, *presets: str) -> list[str]:
        """Return the groups with one of these presets, in the order of the presets."""
        found = {group: self.preset(group) for group in self.runs.groups}
        return [group for preset in presets for group, name in found.items() if name == preset]

    def group(self, preset: str) -> str | None:
        """Return the first group with the preset; None if there is none."""
        return next(iter(self.groups(preset)), None)

    def preset(self, group: str) -> str | None:
        """Return a group's preset: the one with the group's name, else the one with its architecture, else None."""
        return group if group in PRESETS else preset_of(next(run for run in self.runs.runs if run.group == group))

    def done(self, group: str | None, corpus: str | None) -> tuple[ReportRun, ...]:
        """Return the finished runs of a group on a corpus; none if either is None."""
        return () if group is None or corpus is None else self.runs.done(group, corpus)

    def languages(self, corpus: str) -> tuple[str, str]:
        """Return a corpus's source and target language."""
        found = next(run for run in self.runs.runs if run.corpus == corpus).experiment.corpus
        return found.src_lang, found.tgt_lang

    def corpus_of(self, pair: tuple[str, str]) -> str:
        """Return the first corpus with these languages, else the first of all."""
        corpora = self.runs.corpora
        return next((corpus for corpus in corpora if self.languages(corpus) == pair), corpora[0])

    def protocol(self, entry: PrintedEntry) -> list[str]:
        """Return a list with a note on how a printed number was made; empty if nothing is known about it."""
        sentences = [self.published.protocols[tag] for tag in entry.protocol]
        if isinstance(entry, Scalar) and entry.note:
            sentences = [*(sentence.replace("; see the note", "") for sentence in sentences), entry.note]
        return [f"Paper: {' '.join(sentences)}"] if sentences else []

    def where(self, entry: PrintedEntry) -> str:
        """Return where an entry is printed, such as "Hsiao and Dutta 2024 (arXiv 2410.04731), Table 1"."""
        paper = self.published.find(Paper, entry.paper)
        return f"{paper.authors} {paper.year} ({paper.identifier}), {entry.where}"

    def table(
        self,
        entry: PrintedTable,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Cell]],
        like: str | None = None,
        **words: Any,
    ) -> Table:
        """Return a printed table with our numbers beside it. `like` and `words`: as for `captioned`."""
        words |= {"where": self.where(entry), "note": entry.note}
        return captioned(slug(entry.id), columns, rows, like=like, **words)


def size_difference(run: ReportRun, preset: str) -> str | None:
    """Return a sentence if a run's model differs in size from the preset that stands for the paper's; else None."""
    ours, theirs = run.experiment.architecture, PRESETS[preset].architecture
    different = [name for name in _SIZES if getattr(ours, name) != getattr(theirs, name)]
    if not different:
        return None
    sizes = ", ".join(f"{name} {getattr(ours, name)} ({getattr(theirs, name)})" for name in different)
    return f"Sizes that differ from the paper's (in brackets): {sizes}."


def tokenizer_difference(run: ReportRun, kind: str, vocab_size: int) -> str | None:
    """Return a sentence if a run's tokens differ from the paper's (losses per token do not compare); else None."""
    tokenizer = run.experiment.tokenizer
    if (tokenizer.kind, tokenizer.vocab_size) == (kind, vocab_size) and tokenizer.src_file is None:
        return None
    ours = (
        "ready-made tokenizers" if tokenizer.src_file else f"{tokenizer.kind}, at most {tokenizer.vocab_size:,} tokens"
    )
    return f"Tokens here ({ours}) are not the paper's ({kind}, {vocab_size:,}): losses per token cannot be compared."


def printed(value: float | str, *, notes: Sequence[str] = ()) -> Cell:
    """Return a cell with a number or text, formatted as the paper prints it."""
    if isinstance(value, str):
        return Cell(value, notes=notes)
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:,.2f}", float(value), notes=notes)


def words(name: str) -> str:
    """Return a name with spaces for underscores."""
    return name.replace("_", " ")
