"""A run directory as a report reads it.

It needs `config.json` and `metrics.jsonl`; once it has finished, its scores are `scores.test.json`, or
`scores.valid.json` where its corpus has no test set. Model, state and hypotheses may be missing, as in `results/`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repose.config.experiment import CorpusConfig, Experiment
from repose.config.file import from_json
from repose.plots.learning_curves import read_run as read_records
from repose.report.grids import GridCell
from repose.system.errors import CheckpointError

SPLITS = ("test", "valid")


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
    config: Mapping[str, Any]
    """The whole config.json."""
    experiment: Experiment
    records: tuple[Mapping[str, Any], ...]
    """metrics.jsonl."""
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
        """Whether its training has ended, by train.log or its records, be it scored or not."""
        training = self.experiment.training
        if training.epochs and len(self.of_kind("epoch")) >= training.epochs:
            return True
        if training.updates and any(record["update"] >= training.updates for record in self.records):
            return True
        try:
            lines = (self.folder / "train.log").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return False
        return any(" done at update " in line for line in lines[-20:])

    @property
    def comparable(self) -> bool:
        """Whether its numbers may be set beside others': it neither looks ahead nor failed an audit."""
        return not self.looks_ahead and not self.failed_checks

    def of_kind(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Its records of one kind: "train", "epoch" or "valid"."""
        return tuple(record for record in self.records if record["kind"] == kind)


def read_run(folder: Path, cell: GridCell | None) -> ReportRun:
    """The run of a directory, and what its grid says of it. Raises CheckpointError or ConfigError for damaged files.

    Without a grid, name and group are the folder's.
    """
    recorded = read_records(folder, torn=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    experiment = from_json(json.dumps(config["experiment"]), str(folder / "config.json"))
    scores, split = _scores(folder)
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
        records=recorded.records,
        scores=scores,
        split=split,
        task=task,
        looks_ahead=bool((scores or {}).get("looks_ahead", _looks_ahead(experiment, task))),
        run_id=str(config.get("run_id", "")),
        status="done" if scores is not None else "unfinished" if cell is None or cell.status == "done" else cell.status,
    )


def _looks_ahead(experiment: Experiment, task: str) -> bool:
    """By its architecture; a parser has no decoder."""
    return experiment.architecture.looks_ahead and task != "parsing"


def _scores(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The scores and the set they are of; None where there are none."""
    for split in SPLITS:
        path = folder / f"scores.{split}.json"
        if not path.is_file():
            continue
        try:
            scores = json.loads(path.read_text(encoding="utf-8"))
            assert isinstance(scores, dict)
            assert "decoded" in scores or "figures" in scores
        except (OSError, ValueError, AssertionError) as error:
            raise CheckpointError(
                f"{path} is damaged: delete it, and run the same training command again to have it written anew"
            ) from error
        return scores, split
    return None, SPLITS[0]


def corpus_name(corpus: CorpusConfig) -> str:
    """What a corpus is called, with its languages: "multi30k de-en"; files go by their folder."""
    name = corpus.name
    if name is None and corpus.train:
        first = Path(corpus.train[0])
        name = first.parent.name or first.name
    languages = [] if "und" in (corpus.src_lang, corpus.tgt_lang) else [f"{corpus.src_lang}-{corpus.tgt_lang}"]
    return " ".join([name or "corpus", *languages])
