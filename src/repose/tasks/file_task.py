"""A task with one file per set and one tokenizer, whose models are evaluated by figures only."""

import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from repose.config.experiment import Experiment
from repose.data.columns import NothingError
from repose.evaluation.ratio import RatioStatistics, write_ratio
from repose.saved_model.directory import SavedModel
from repose.saved_run.folder import RunFolder
from repose.system.errors import ConfigError, DataError
from repose.system.terminal import Say
from repose.tasks.base import EvaluationOptions, Figure, Task
from repose.tasks.corpus_of_run import corpus_of
from repose.tasks.prepared import CorpusData
from repose.training.display import ProgressKind


class Measured(NamedTuple):
    """The result of evaluating a model on a set."""

    counts: Mapping[str, int]
    """Sizes of the set: sentences, words, tokens, bytes."""
    figures: Mapping[str, Figure]
    hypotheses: Mapping[str, Sequence[str]]
    """The model's output, one line per example, by kind, such as "trees"."""
    dropped: Mapping[str, int] = {}
    """Numbers of examples left out, by reason."""
    statistics: RatioStatistics | None = None
    """Per-sentence or per-document statistics for the figure by which systems are compared."""


class FileTask(Task):
    """A task with one file per set, one tokenizer, and models that are evaluated by figures only."""

    file_kind: ClassVar[str]
    """Kind of file: "text", "CoNLL-U"."""

    @abstractmethod
    def write_ids(self, path: Path, loaded: SavedModel[Any], folder: Path) -> None:
        """Prepare a file for evaluation: write all of its examples as token ids to `folder`."""

    @abstractmethod
    def measure(self, loaded: SavedModel[Any], ids: Path) -> Measured:
        """Evaluate a model on prepared examples."""

    def score_run(
        self,
        experiment: Experiment,  # noqa: ARG002
        data: CorpusData,
        folder: Path,
        device: str,
        progress: ProgressKind,  # noqa: ARG002
        say: Say,  # noqa: ARG002
    ) -> None:
        """Evaluate on the test set, or on the validation set if there is none."""
        self._score(self.load(folder, device), data.ids(data.measured), data.measured, folder)

    def score_model(
        self, folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, options: EvaluationOptions
    ) -> dict[str, Any]:
        """Evaluate on one file, or on a set of the run's own corpus."""
        if options.ensemble:
            raise ConfigError(f"an ensemble translates, and {folder} does not: leave the other models out")
        if files and len(files) > 1:
            what = self.name.replace("_", " ")
            raise DataError(f"{what} is measured on one {self.file_kind} file, not on {len(files)}: name one")
        loaded = self.load(folder, options.device)
        if not files:
            data = corpus_of(RunFolder(folder), split)
            return self._score(loaded, data.ids(split), split, out)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                self.write_ids(files[0], loaded, Path(scratch))
            except NothingError as error:
                raise DataError(f"there is nothing to measure in {files[0]}: give a {self.file_kind} file") from error
            return self._score(loaded, Path(scratch), split, out)

    def _score(self, loaded: SavedModel[Any], ids: Path, split: str, out: Path | None) -> dict[str, Any]:
        measured = self.measure(loaded, ids)
        scores = {
            "run_id": loaded.config.get("run_id"),
            "split": split,
            "task": self.name,
            "parameters": sum(p.numel() for p in loaded.model.parameters()),
            **measured.counts,
            **({"dropped": measured.dropped} if measured.dropped else {}),
            "figures": {name: figure._asdict() for name, figure in measured.figures.items()},
            "looks_ahead": self.looks_ahead(loaded.model.architecture),
        }
        if out is not None:
            if measured.statistics is not None:
                write_ratio(RunFolder(out).statistics_file(split), measured.statistics)
            RunFolder(out).write_scores(split, scores, measured.hypotheses)
        return scores
