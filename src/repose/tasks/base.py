"""The interface of a task: corpus, examples, model, loss, model directory, and scores.

A task is one module here, called by its name, with a subclass of `Task` (or of `file_task.FileTask`), and its settings
in `repose.config.experiment.TASK_SETTINGS`. Other code asks the task or its settings. It names translation alone, where
nothing else will do (exports) or where it was once the only task and is left unsaid: in config.json, and in the key of
a prepared corpus.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from repose.config.experiment import TASK_SETTINGS, DecodingConfig, Experiment
from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.decoding.engine import EngineChoice, Precision
from repose.evaluation.metrics import decoding_name
from repose.model.architecture import DROPOUTS, Architecture
from repose.saved_model import directory
from repose.saved_model.directory import ModelKind, SavedModel
from repose.saved_run.records import DataRecord
from repose.system.errors import CheckpointError
from repose.system.terminal import Say
from repose.tasks.corpus_files import SPLITS
from repose.tasks.prepared import CorpusData
from repose.training.display import ProgressKind
from repose.training.job import TrainingJob, TrainingTask
from repose.training.loop import Evaluate, Samples


class Card(NamedTuple):
    """A task's parts of a model card."""

    title: str
    what: str
    """Beginning of a sentence that ends in "trained with"."""
    use: str
    """The command that uses the model."""
    languages: tuple[str, ...] = ()
    """Codes of the input and output languages, as far as known."""
    pipeline: str | None = None
    """The task's name on the Hugging Face hub."""
    limits: tuple[str, ...] = ()
    """Sentences on what the model is meant for and what not."""
    in_python: str = ""
    """Lines of Python that use the model, with `FOLDER` for the model directory."""


class EvaluationOptions(NamedTuple):
    """Options for evaluating translation models; other tasks ignore them."""

    beam_sizes: tuple[int, ...] = ()
    """Empty: greedy search, and the beam in the model's settings (`resolved`)."""
    tokenize: str | None = None
    """sacreBLEU's tokenizer; None: chosen by the references."""
    device: str = "cpu"
    workers: int | None = None
    precision: Precision | None = None
    """None: fp32, or the precision of an export."""
    engine: EngineChoice | None = None
    """Engine (see `repose.load`); None: torch, or onnx for an export."""
    src_field: str | None = None
    tgt_field: str | None = None
    """Field names of files that have them; None: those of the run, or else "src" and "tgt"."""
    to: str | None = None
    """Target language, as a tag, for a model of several; None: that of the model's own corpus."""
    ensemble: tuple[Path, ...] = ()
    """Further models to evaluate together with the model, as an ensemble."""
    progress: ProgressKind = "none"
    say: Say = lambda _: None
    """How to show how far the evaluation is."""

    def resolved(self, config: Mapping[str, Any]) -> "EvaluationOptions":
        """Return these options with the beam sizes for a model, given its config.json."""
        stored = config.get("decoding_asked", config.get("decoding", {}))
        own = stored.get("beam_size", DecodingConfig().beam_size)
        return self if self.beam_sizes else self._replace(beam_sizes=(1, own))

    @property
    def names(self) -> list[str]:
        """Names of the decodings in scores."""
        return [decoding_name(beam_size) for beam_size in dict.fromkeys(self.beam_sizes)]


class Figure(NamedTuple):
    """A numerator and its denominator."""

    value: float
    unit: str


class Task(TrainingTask):
    """Everything that differs between tasks. Errors are those of `repose.system.errors`, one sentence each."""

    name: ClassVar[str]
    """The value of `training.task`."""
    kind: ClassVar[ModelKind[Any]]
    """Describes the task's model directories."""
    look_ahead_warning: ClassVar[str] = ""
    """Warning for a model whose positions see the tokens that they should predict."""

    @abstractmethod
    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
        """Fill a prepared folder (`repose.tasks.corpus`), using `workers` threads; yield sentences that report on it.

        Raises DataError and ConfigError for an unusable corpus or settings.
        """

    @abstractmethod
    def card(self, experiment: Experiment) -> Card:
        """Return the task's parts of the model card."""

    @abstractmethod
    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Return fields of the model directory's config.json that describe the experiment, such as languages."""

    def seen(self, experiment: Experiment, data: CorpusData) -> Mapping[str, object]:  # noqa: ARG002
        """Return fields of config.json that describe the training text."""
        return {}

    @abstractmethod
    def score_run(
        self, experiment: Experiment, data: CorpusData, folder: Path, device: str, progress: ProgressKind, say: Say
    ) -> None:
        """Evaluate a finished run's model and write scores.<split>.json to its folder, last of all files. `say`
        receives messages."""

    @abstractmethod
    def score_model(
        self, folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, options: EvaluationOptions
    ) -> dict[str, Any]:
        """Evaluate a model or run directory on `files`, or on a set of the run's own corpus; return the scores.

        They are also written to `out`, if given. Raises DataError, CheckpointError and ConfigError.
        """

    def data_record(self, data: CorpusData) -> DataRecord:
        """Return the sizes of a prepared corpus."""
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
        """Return a function for validation figures besides the loss, if the experiment has any."""
        return None

    def validation_samples(self, data: CorpusData) -> Samples | None:  # noqa: ARG002
        """Return a function for a few sample sentences to show during training, if the task has any."""
        return None

    def looks_ahead(self, architecture: Architecture) -> bool:
        """Return whether a model of this architecture sees the tokens that it should predict, which makes losses
        meaningless."""
        return TASK_SETTINGS[self.name].looks_ahead(architecture)

    def load(self, folder: Path, device: str = "cpu") -> SavedModel[Any]:
        """Load the model of a model or run directory. Raises CheckpointError and DeviceError."""
        return directory.load(folder, self.kind, device)

    @abstractmethod
    def new_model(self, job: TrainingJob) -> nn.Module:
        """Return a model with random initial values from the job's seed."""

    def build(self, job: TrainingJob) -> nn.Module:
        """Return a new model, or that of `init_from`, whose dropout may differ. Raises CheckpointError if the latter
        does not fit the job."""
        if job.training.init_from is None:
            return self.new_model(job)
        loaded = self.start_of(job)
        if loaded.model.architecture == job.architecture:
            return loaded.model
        model = self.new_model(job)
        model.load_state_dict(loaded.model.state_dict())
        return model

    def start_of(self, job: TrainingJob) -> SavedModel[Any]:
        """Load the model of `init_from`. Raises CheckpointError if it does not fit the job."""
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
        """Raise CheckpointError if an initial model does not fit the job in something specific to the task."""

    def check_sets(self, experiment: Experiment, data: CorpusData) -> None:
        """Raise DataError, before training, if the model could not read a set that it will be evaluated on."""

    def tokenizers(self, job: TrainingJob) -> list[Tokenizer]:
        """Return the model's tokenizers: source and target, or a single one."""
        return [Tokenizer.load(path) for path in (job.src_tokenizer, job.tgt_tokenizer)[: len(self.kind.tokenizers)]]

    def write(self, folder: Path, model: Any, job: TrainingJob, extra: Mapping[str, object]) -> None:
        """Write the model directory."""
        tokenizers = [tokenizer.json for tokenizer in self.tokenizers(job)]
        warning = self.look_ahead_warning if self.looks_ahead(model.architecture) else None
        directory.save(folder, self.kind, model, tokenizers, card=job.card, extra=extra, warning=warning)


def check_start(start: str, architecture: Architecture) -> None:
    """Raise CheckpointError if an initial model (a run or model directory) differs in architecture by more than
    dropout."""
    theirs, ours = asdict(directory.architecture_of(Path(start))), asdict(architecture)
    for name in theirs:
        if name not in DROPOUTS and theirs[name] != ours[name]:
            raise CheckpointError(
                f"the model {start} has another architecture than the one to train: architecture.{name} = "
                f"{theirs[name]!r}, not {ours[name]!r}; only its dropout may be changed"
            )


def position_table(job: TrainingJob) -> Tensor | None:
    """Return the small table that `positions = policy` starts from."""
    return None if job.position_table is None else torch.tensor(job.position_table, device="cpu")
