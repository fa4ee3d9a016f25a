"""A run directory as a report reads it.

It needs `config.json` and `metrics.jsonl`; once it has finished, its scores are `scores.test.json`, or
`scores.valid.json` where its corpus has no test set. Model, state and hypotheses may be missing, as in `results/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repose.config.experiment import CorpusConfig, Experiment
from repose.grids.manifest import Entry
from repose.runs.folder import SPLITS, RunConfig, RunFolder
from repose.runs.records import Record, Records, RunStatus


@dataclass(frozen=True, kw_only=True)
class ReportRun:
    """One training, as it stands in its directory."""

    folder: Path
    name: str
    """Name of the cell, or of the folder; unique within a RunSet."""
    group: str
    """The system: runs of one group and corpus differ in their seed alone."""
    labels: Mapping[str, str]
    """Axis of the grid to the run's label on it; empty without a grid."""
    corpus: str
    seed: int
    config: RunConfig
    experiment: Experiment
    records: Records
    scores: Mapping[str, Any] | None
    """scores.test.json or scores.valid.json; None while the run is unfinished."""
    split: str
    """The set that the scores are of: "test" or "valid"."""
    task: str
    """"translation", or what `training.task` says."""
    looks_ahead: bool
    """Whether target positions see later ones, so that teacher-forced figures are no measure of anything."""
    run_id: str
    status: str
    """"done", or how far the run is: "waiting", "running", "stopped", "failed", "unfinished"."""
    failed_checks: tuple[str, ...] = ()
    """Checks of `repose audit` that its model failed, where it was audited."""

    @property
    def done(self) -> bool:
        """Whether it has finished and has scores."""
        return self.scores is not None

    @property
    def trained(self) -> bool:
        """Whether its training has ended, be it scored or not."""
        return self.records.status is RunStatus.DONE

    @property
    def comparable(self) -> bool:
        """Whether its numbers may be set beside others': it neither looks ahead nor failed an audit."""
        return not self.looks_ahead and not self.failed_checks

    def of_kind(self, kind: str) -> tuple[Record, ...]:
        """Its records of one kind: "train", "epoch" or "valid"."""
        return self.records.of_kind(kind)


def read_run(folder: Path, cell: Entry | None) -> ReportRun:
    """The run of a directory, and what its grid says of it. Raises CheckpointError for damaged files.

    Without a grid, name and group are the folder's.
    """
    run = RunFolder(folder)
    records, config = run.records(), run.config()
    experiment = config.experiment
    split, scores = run.best_scores() or (SPLITS[0], None)
    corpus = corpus_name(experiment.corpus)
    labels: Mapping[str, str] = {} if cell is None else cell.labels
    task = str(getattr(experiment.training, "task", (scores or {}).get("task", "translation")))
    return ReportRun(
        folder=folder,
        name=folder.name if cell is None else cell.name,
        group=folder.name if cell is None else cell.system,
        labels=labels,
        corpus=corpus if cell is None else cell.corpus or corpus,
        seed=experiment.training.seed,
        config=config,
        experiment=experiment,
        records=records,
        scores=scores,
        split=split,
        task=task,
        looks_ahead=bool((scores or {}).get("looks_ahead", _looks_ahead(experiment, task))),
        run_id=config.run_id,
        status="done" if scores is not None else "unfinished" if cell is None or cell.status == "done" else cell.status,
    )


def _looks_ahead(experiment: Experiment, task: str) -> bool:
    """By its architecture; a parser has no decoder."""
    return experiment.architecture.looks_ahead and task != "parsing"


def corpus_name(corpus: CorpusConfig) -> str:
    """What a corpus is called, with its languages: "multi30k de-en"; files go by their folder."""
    name = corpus.name
    if name is None and corpus.train:
        first = Path(corpus.train[0])
        name = first.parent.name or first.name
    languages = [] if "und" in (corpus.src_lang, corpus.tgt_lang) else [f"{corpus.src_lang}-{corpus.tgt_lang}"]
    return " ".join([name or "corpus", *languages])
