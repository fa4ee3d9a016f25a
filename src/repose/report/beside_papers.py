"""What the papers' tables have in common when ours stand beside them: whose runs are meant, and what differs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repose.grids.published import Paper, PrintedEntry, PrintedTable, Published, Scalar
from repose.model.presets import PRESETS
from repose.report.collect import ReportRun, RunSet
from repose.report.content import Cell, Column, Table, slug
from repose.report.naming import preset_of
from repose.report.tables import captioned

_SIZES = ("d_token", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers")


@dataclass(frozen=True, kw_only=True)
class BesidePapers:
    """The runs of a report and the numbers of the papers."""

    runs: RunSet
    published: Published
    requested: bool
    """Whether the grid names the entry: then all of it is shown, and otherwise what has something beside it."""

    def groups(self, *presets: str) -> list[str]:
        """Groups that are one of these presets, in the order of the presets."""
        found = {group: self.preset(group) for group in self.runs.groups}
        return [group for preset in presets for group, name in found.items() if name == preset]

    def group(self, preset: str) -> str | None:
        """The first group that is the preset."""
        return next(iter(self.groups(preset)), None)

    def preset(self, group: str) -> str | None:
        """The preset that a group is: the one that it is called by, or else the one whose architecture it has."""
        return group if group in PRESETS else preset_of(next(run for run in self.runs.runs if run.group == group))

    def done(self, group: str | None, corpus: str | None) -> tuple[ReportRun, ...]:
        """Finished runs of a system on a corpus; none of no system or corpus."""
        return () if group is None or corpus is None else self.runs.done(group, corpus)

    def languages(self, corpus: str) -> tuple[str, str]:
        """Source and target language of a corpus."""
        found = next(run for run in self.runs.runs if run.corpus == corpus).experiment.corpus
        return found.src_lang, found.tgt_lang

    def corpus_of(self, pair: tuple[str, str]) -> str:
        """The corpus of these languages, or else the first."""
        corpora = self.runs.corpora
        return next((corpus for corpus in corpora if self.languages(corpus) == pair), corpora[0])

    def protocol(self, entry: PrintedEntry) -> list[str]:
        """The note that says how a printed number was made, if anything is said of it."""
        sentences = [self.published.protocols[tag] for tag in entry.protocol]
        if isinstance(entry, Scalar) and entry.note:
            sentences = [*(sentence.replace("; see the note", "") for sentence in sentences), entry.note]
        return [f"Paper: {' '.join(sentences)}"] if sentences else []

    def where(self, entry: PrintedEntry) -> str:
        """ "Hsiao and Dutta 2024 (arXiv 2410.04731), Table 1"."""
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
        """A printed table with ours beside it."""
        words |= {"where": self.where(entry), "note": entry.note}
        return captioned(slug(entry.id), columns, rows, like=like, **words)


def size_difference(run: ReportRun, preset: str) -> str | None:
    """How a run's model differs in size from the preset that stands for the paper's."""
    ours, theirs = run.experiment.architecture, PRESETS[preset].architecture
    different = [name for name in _SIZES if getattr(ours, name) != getattr(theirs, name)]
    if not different:
        return None
    sizes = ", ".join(f"{name} {getattr(ours, name)} ({getattr(theirs, name)})" for name in different)
    return f"Other sizes here than in the paper (in brackets): {sizes}."


def tokenizer_difference(run: ReportRun, kind: str, vocab_size: int) -> str | None:
    """How a run's tokens differ from the paper's, so that losses per token do not compare."""
    tokenizer = run.experiment.tokenizer
    if (tokenizer.kind, tokenizer.vocab_size) == (kind, vocab_size) and tokenizer.src_file is None:
        return None
    ours = "ready tokenizers" if tokenizer.src_file else f"{tokenizer.kind}, at most {tokenizer.vocab_size:,} tokens"
    return f"Other tokens here ({ours}) than in the paper ({kind}, {vocab_size:,}): losses per token do not compare."


def printed(value: float | str, *, notes: Sequence[str] = ()) -> Cell:
    """A number as the paper prints it."""
    if isinstance(value, str):
        return Cell(value, notes=notes)
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:,.2f}", float(value), notes=notes)


def words(name: str) -> str:
    """A name as words."""
    return name.replace("_", " ")
