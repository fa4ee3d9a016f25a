"""What a task decides: its corpus, its examples, its model and loss, its model directory, and what it is measured by.

A task is one module here, called by its name, with a subclass of `Task` (or of `FileTask`), and its settings in
`repose.config.experiment.TASK_SETTINGS`. Other code asks the task or its settings. It names translation alone, where
nothing else will do (exports) or where it was once the only task and is left unsaid: in config.json, and in the key of
a prepared corpus.
"""

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from repose.config.experiment import TASK_SETTINGS, DecodingConfig, Experiment
from repose.data.columns import NothingError
from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.decoding.engine import EngineChoice, Precision
from repose.evaluation.metrics import decoding_name
from repose.evaluation.ratio import RatioStatistics, write_ratio
from repose.model.architecture import DROPOUTS, Architecture
from repose.runs.folder import RunFolder
from repose.runs.records import DataRecord
from repose.saved_model import directory
from repose.saved_model.directory import ModelKind, SavedModel
from repose.system.errors import CheckpointError, ConfigError, DataError
from repose.system.terminal import Say
from repose.tasks.corpus import CorpusData
from repose.tasks.corpus_files import SPLITS
from repose.tasks.corpus_of_run import corpus_of
from repose.training.job import TrainingJob, TrainingTask
from repose.training.loop import Evaluate, Samples


class Card(NamedTuple):
    """What a model card says of its task."""

    title: str
    what: str
    """The beginning of a sentence that ends in "trained with"."""
    use: str
    """A command."""
    languages: tuple[str, ...] = ()
    """Codes of what goes in and comes out; those that are not stated are missing."""
    pipeline: str | None = None
    """What the Hugging Face hub calls the task."""
    limits: tuple[str, ...] = ()
    """Sentences about what the model is meant for, and what it is not."""
    in_python: str = ""
    """Lines of Python that use it, with `FOLDER` for the model directory."""


class EvaluationOptions(NamedTuple):
    """How a model that translates is measured; others have no use for it."""

    beam_sizes: tuple[int, ...] = ()
    """None are greedy search and the beam that the model was trained to be measured with (`resolved`)."""
    tokenize: str | None = None
    """sacreBLEU's tokenizer; None is the one for the references."""
    device: str = "cpu"
    workers: int | None = None
    precision: Precision | None = None
    """None is fp32, or that of an export."""
    engine: EngineChoice | None = None
    """What computes (`repose.load`); None is torch, or onnx for an export."""
    src_field: str | None = None
    tgt_field: str | None = None
    """Of files that name their fields; None are the run's, or "src" and "tgt" without one."""
    to: str | None = None
    """The language to translate into, by the tag of a model of several; None is the one that its own corpus has."""
    ensemble: tuple[Path, ...] = ()
    """Further models, which the model is measured together with."""

    def resolved(self, config: Mapping[str, Any]) -> "EvaluationOptions":
        """With the beams for the model of a config.json."""
        stored = config.get("decoding_asked", config.get("decoding", {}))
        own = stored.get("beam_size", DecodingConfig().beam_size)
        return self if self.beam_sizes else self._replace(beam_sizes=(1, own))

    @property
    def names(self) -> list[str]:
        """What the decodings are called in scores."""
        return [decoding_name(beam_size) for beam_size in dict.fromkeys(self.beam_sizes)]


class Figure(NamedTuple):
    """A number and what it counts."""

    value: float
    unit: str


class Task(TrainingTask):
    """Everything that differs from task to task. Errors are those of `repose.system.errors`, one sentence each."""

    name: ClassVar[str]
    """As `training.task` has it."""
    kind: ClassVar[ModelKind[Any]]
    """What its model directories hold."""
    look_ahead_warning: ClassVar[str] = ""
    """What must be said of a model whose positions see tokens that they are to predict."""

    @abstractmethod
    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
        """Fill a prepared folder (`repose.tasks.corpus`) by so many threads; yields sentences that report on it.

        Raises DataError and ConfigError for a corpus or settings that cannot be used.
        """

    @abstractmethod
    def card(self, experiment: Experiment) -> Card:
        """What the model is called in its card, and how it is used."""

    @abstractmethod
    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """What the model directory's config.json says of the experiment, such as languages."""

    def seen(self, experiment: Experiment, data: CorpusData) -> Mapping[str, object]:  # noqa: ARG002
        """What config.json says of the text that the model has seen."""
        return {}

    @abstractmethod
    def score_run(self, experiment: Experiment, data: CorpusData, folder: Path, device: str, say: Say) -> None:
        """Measure a finished run's model; write scores.<split>.json to its folder, after all that belongs to it.
        `say` is told of what takes long."""

    @abstractmethod
    def score_model(
        self, folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, options: EvaluationOptions
    ) -> dict[str, Any]:
        """Scores of a model or run directory on `files`, or on a set of the run's own corpus.

        Written to `out`, if given. Raises DataError, CheckpointError and ConfigError.
        """

    def data_record(self, data: CorpusData) -> DataRecord:
        """What a prepared corpus holds, in numbers."""
        one_side = len(self.kind.tokenizers) == 1
        opened = {split: self.open(data.folder / split) for split in SPLITS if (data.folder / split).is_dir()}
        counts = {split: pairs.counts for split, pairs in opened.items() if isinstance(pairs, PairDataset)}
        as_text = {split: len(data.text(split)[0]) for split in SPLITS if split not in opened and data.has_text(split)}
        sides = {"text": "tgt"} if one_side else {"src": "src", "tgt": "tgt"}
        return DataRecord(
            examples={**{split: len(examples) for split, examples in opened.items()}, **as_text},
            tokens={
                split: {name: int(getattr(examples, f"{side}_lengths").sum()) for name, side in sides.items()}
                for split, examples in opened.items()
            },
            vocabulary={name: Tokenizer.load(data.tokenizer_path(side)).vocab_size for name, side in sides.items()},
            dropped={split: of_split.dropped for split, of_split in counts.items() if of_split.dropped},
            truncated={split: of_split.truncated for split, of_split in counts.items() if of_split.truncated},
            findings=[finding.to_json() for finding in data.check.findings],
        )

    def validation_figures(self, experiment: Experiment, data: CorpusData) -> Evaluate | None:  # noqa: ARG002
        """More figures of the validation set during training than its loss, where the experiment asks for any."""
        return None

    def validation_samples(self, data: CorpusData) -> Samples | None:  # noqa: ARG002
        """A few sentences of the validation set to look at as training goes on, where the task has any."""
        return None

    def looks_ahead(self, architecture: Architecture) -> bool:
        """Whether a model of this architecture sees tokens that it is to predict, so that its losses mean nothing."""
        return TASK_SETTINGS[self.name].looks_ahead(architecture)

    def load(self, folder: Path, device: str = "cpu") -> SavedModel[Any]:
        """The model of a model or run directory. Raises CheckpointError and DeviceError."""
        return directory.load(folder, self.kind, device)

    @abstractmethod
    def new_model(self, job: TrainingJob) -> nn.Module:
        """A model with initial values drawn from the job's seed."""

    def build(self, job: TrainingJob) -> nn.Module:
        """A new model, or that of `init_from`, whose dropout may be another. Raises CheckpointError where that does not
        fit the job."""
        if job.training.init_from is None:
            return self.new_model(job)
        loaded = self.start_of(job)
        if loaded.model.architecture == job.architecture:
            return loaded.model
        model = self.new_model(job)
        model.load_state_dict(loaded.model.state_dict())
        return model

    def start_of(self, job: TrainingJob) -> SavedModel[Any]:
        """The model of `init_from`. Raises CheckpointError where it does not fit the job."""
        start = str(job.training.init_from)
        check_start(start, job.architecture)
        loaded = self.load(Path(start))
        if [tokenizer.digest for tokenizer in loaded.tokenizers] != [t.digest for t in self.tokenizers(job)]:
            raise CheckpointError(
                f"training.init_from = {start!r} was trained with other tokenizers: set tokenizer.src_file and "
                "tokenizer.tgt_file to those in its folder, or leave init_from out"
            )
        self.check_own_start(loaded, job)
        return loaded

    def check_own_start(self, loaded: SavedModel[Any], job: TrainingJob) -> None:
        """Raises CheckpointError where a model to begin with does not fit the job in what is the task's own."""

    def check_sets(self, experiment: Experiment, data: CorpusData) -> None:
        """Raises DataError, before training, where the model could not read a set that it is to be measured on."""

    def tokenizers(self, job: TrainingJob) -> list[Tokenizer]:
        """As many as the model has: source and target, or one."""
        return [Tokenizer.load(path) for path in (job.src_tokenizer, job.tgt_tokenizer)[: len(self.kind.tokenizers)]]

    def write(self, folder: Path, model: Any, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """Write the model directory."""
        tokenizers = [tokenizer.json for tokenizer in self.tokenizers(job)]
        warning = self.look_ahead_warning if self.looks_ahead(model.architecture) else None
        directory.save(folder, self.kind, model, tokenizers, card=job.card, extra=extra, warning=warning)


def check_start(start: str, architecture: Architecture) -> None:
    """Raises CheckpointError where a model to begin with, a run or model directory, has another architecture in more
    than its dropout."""
    theirs, ours = asdict(directory.architecture_of(Path(start))), asdict(architecture)
    for name in theirs:
        if name not in DROPOUTS and theirs[name] != ours[name]:
            raise CheckpointError(
                f"the model {start} has another architecture than the one to train: architecture.{name} = "
                f"{theirs[name]!r}, not {ours[name]!r}; only its dropout may be changed"
            )


def position_table(job: TrainingJob) -> Tensor | None:
    """The small table that `positions = policy` begins with."""
    return None if job.position_table is None else torch.tensor(job.position_table, device="cpu")


class Measured(NamedTuple):
    """What a model was measured to do on a set."""

    counts: Mapping[str, int]
    """How large the set is: its sentences, words, tokens, bytes."""
    figures: Mapping[str, Figure]
    hypotheses: Mapping[str, Sequence[str]]
    """What the model says, a line per example, by the name of what it is: "trees"."""
    dropped: Mapping[str, int] = {}
    """What of the set was left out, by reason."""
    statistics: RatioStatistics | None = None
    """What the figure that systems are compared by is made of, sentence by sentence or document by document."""


class FileTask(Task):
    """A task whose sets are one file each, which has one tokenizer, and whose models are measured by figures alone."""

    file_kind: ClassVar[str]
    """What is in a file: "text", "CoNLL-U"."""

    @abstractmethod
    def write_ids(self, path: Path, loaded: SavedModel[Any], folder: Path) -> None:
        """Prepare a file to measure a model on: its examples as token ids in `folder`, all of them."""

    @abstractmethod
    def measure(self, loaded: SavedModel[Any], ids: Path) -> Measured:
        """Figures of a model on prepared examples."""

    def score_run(
        self,
        experiment: Experiment,  # noqa: ARG002
        data: CorpusData,
        folder: Path,
        device: str,
        say: Say,  # noqa: ARG002
    ) -> None:
        """On the test set, or without one on the validation set."""
        self._score(self.load(folder, device), data.ids(data.measured), data.measured, folder)

    def score_model(
        self, folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, options: EvaluationOptions
    ) -> dict[str, Any]:
        """On one file, or on a set of the run's own corpus."""
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
