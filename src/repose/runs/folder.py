"""A run directory: the name, the format, the writer and the reader of every file in it.

    config.json                 `RunConfig`: the experiment, the run's id, digests of what it reads, versions
    metrics.jsonl               `Records`: a line about the data, lines about the training, a line about its end
    train.log, tensorboard/     the same for people
    state/last.safetensors      the checkpoint, and weights-<update>.safetensors that the model may need; lock
    model/                      what is handed on (`repose.saved_model`)
    scores.<split>.json         figures of the finished model, with the digest of what they were computed from
    hypotheses/<split>.<decoding>.txt, hypotheses/<split>.trees.txt
    statistics.<split>.npz      counts per sentence, where a report needs them without the translations
    trained-on.npz              hashes of the sources that the model has learnt from

Whatever is missing or damaged is a CheckpointError of one sentence.
"""

import contextlib
import dataclasses
import glob
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repose._version import __version__
from repose.config.experiment import Experiment
from repose.config.file import from_json, to_json
from repose.config.run_id import id_of_settings
from repose.runs import records
from repose.runs.records import Records
from repose.saved_model import directory as model_dir
from repose.system.code import code_digest
from repose.system.errors import CheckpointError, ConfigError
from repose.system.files import read_file, sealed, unsealed, write_file, write_json, write_new_json, writing

SCORED_SPLITS = ("test", "valid")
"""Sets that a finished model can be scored on, the preferred one first."""


OTHER_CODE = "before repose/model or repose/training was changed"
"""When a run was begun that has other code (`RunFolder.has_other_code`)."""


LEAVE_OUT = "leave this run out"
"""What to do about a run whose records cannot be used, for who reads several."""
TRAIN_ANEW = "train in a new run directory"
"""What to do about such a run, for who trains in it."""


def model_code() -> str:
    """The digest of the code by which models compute and are trained."""
    return code_digest("model", "training")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """config.json: what a run is."""

    run_id: str
    experiment: Experiment
    digests: Mapping[str, str]
    """Digests of what the run reads: training and validation data, tokenizers, initial weights."""
    data: str
    """Name of the prepared corpus's folder in the cache."""
    report: tuple[str, ...]
    """Sentences for people about how the corpus was prepared; the numbers are in `DataRecord`."""
    versions: Mapping[str, str]
    test: str | None = None
    """Digest of the test set; None where there is none, or it was not recorded."""

    def to_json(self) -> dict[str, Any]:
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**content, "experiment": json.loads(to_json(self.experiment))}


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file. Raises CheckpointError for whatever else is there; `remedy` says what to do then.

    FileNotFoundError and NotADirectoryError pass: what a missing file means, the caller knows.
    """
    try:
        content = json.loads(read_file(path))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {remedy}") from error
    if not isinstance(content, dict) or (bare := unsealed(content)) is None:
        raise CheckpointError(f"{path} is damaged: {remedy}")
    return bare


_OF_A_RUN = (".", "config.json", "model", "scores.", "statistics.", "trained-on.")
"""How names in a run directory begin, those of files that are half written among them."""


class RunFolder:
    """A run directory, which need not exist yet. Nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.metrics_file = path / "metrics.jsonl"
        self.log_file = path / "train.log"
        self.tensorboard = path / "tensorboard"
        self.model = path / "model"
        self.hypotheses_folder = path / "hypotheses"
        self.state = path / "state"
        self.checkpoint = self.state / "last.safetensors"
        self.trained_on_file = path / "trained-on.npz"
        self.lock_file = self.state / "lock"
        """Held while a process trains here, which is named in it."""

    def other_file(self) -> str | None:
        """The name of something here that no run writes, where there is no run; None where all is a run's."""
        if self.config_file.exists() or not self.path.is_dir():
            return None
        own = {path.name for path in (self.metrics_file, self.log_file, self.tensorboard, self.hypotheses_folder)}
        own |= {self.state.name}
        names = sorted(path.name for path in self.path.iterdir())
        return next((name for name in names if name not in own and not name.startswith(_OF_A_RUN)), None)

    def scores_file(self, split: str) -> Path:
        """Figures of the finished model on a set."""
        return self.path / f"scores.{split}.json"

    def hypotheses_file(self, split: str, name: str) -> Path:
        """Translations of a set by a decoding such as "greedy" or "beam4", one per line; "trees" of a parser."""
        return self.hypotheses_folder / f"{split}.{name}.txt"

    def statistics_file(self, split: str) -> Path:
        """Counts per sentence."""
        return self.path / f"statistics.{split}.npz"

    @property
    def exists(self) -> bool:
        return self.config_file.is_file()

    @property
    def has_records(self) -> bool:
        """Whether its training has recorded something."""
        return self.metrics_file.is_file() and self.metrics_file.stat().st_size > 0

    @property
    def has_other_code(self) -> bool:
        """Whether this version's equations have changed since the run was begun, whose id does not say so: somebody is
        working on them. False for runs of other versions, for those that did not keep the digest, and for what is no
        run or cannot be read."""
        try:
            versions = self._config().get("versions", {})
        except CheckpointError:
            return False
        return versions.get("repose") == __version__ and versions.get("code", model_code()) != model_code()

    def config(self) -> RunConfig:
        """config.json. Raises CheckpointError where there is none, one that this version cannot read, or one of another
        run than the model beside it."""
        content = self._config()
        try:
            experiment = from_json(json.dumps(content["experiment"]), str(self.config_file))
        except ConfigError as error:
            raise CheckpointError(str(error)) from error
        run_id = str(content.get("run_id", ""))
        if run_id and (held := self.other_run(run_id)) is not None:
            raise CheckpointError(
                f"{self.config_file} is that of run {run_id}, but {self.model} or {self.state} is of run {held}: put "
                "back which of them is another's, or train in a new folder"
            )
        return RunConfig(
            run_id=run_id,
            experiment=experiment,
            digests=content.get("digests", {}),
            data=str(content.get("data", "")),
            report=tuple(map(str, content.get("report", ()))),
            versions=content.get("versions", {}),
            test=content.get("test"),
        )

    def _config(self) -> dict[str, Any]:
        remedy = "restore it, or choose another directory"
        try:
            content = read_object(self.config_file, remedy)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointError(f"{self.path} is not a run directory: it has no {self.config_file.name}") from error
        shapes = {"experiment": dict, "digests": dict, "report": list, "versions": dict}
        has_shapes = all(isinstance(content.get(name, kind()), kind) for name, kind in shapes.items())
        if "format_version" in content and "experiment" not in content:
            raise CheckpointError(
                f"{self.path} is a model directory, which knows no corpus and no training: name files to measure it "
                "on, or the run that it comes from"
            )
        if "experiment" not in content or not has_shapes:
            raise CheckpointError(f"{self.config_file} is damaged, or not the config of a run: {remedy}")
        return content

    def other_run(self, run_id: str, *, by_scores: bool = False) -> str | None:
        """The id of another run that the checkpoint or the model here is of; None where there is none, or it cannot be
        read. `by_scores`: or that the scores beside the records of a training are of."""
        held: list[object] = []
        with contextlib.suppress(*_NO_HEAD):
            held.append(_state(self.checkpoint).get("run_id"))
        with contextlib.suppress(CheckpointError, OSError):
            held.append(read_object(self.model / model_dir.CONFIG, "").get("run_id"))
        with contextlib.suppress(CheckpointError):
            held.append((self.main_scores() or ("", {}))[1].get("run_id") if by_scores and self.has_records else None)
        others = (id_of_settings(shown) for shown in held if isinstance(shown, str) and shown)
        return next((other for other in others if other != run_id), None)

    def write_new_config(self, config: RunConfig) -> bool:
        """Make the directory that of a run where it is no run's yet, and whether it was none. Raises WriteError where
        it cannot be written."""
        return write_new_json(self.config_file, sealed(config.to_json()))

    def records(self, *, may_be_empty: bool = False, remedy: str = LEAVE_OUT) -> Records:
        """metrics.jsonl, but for a last line that was not written to its end.

        Raises CheckpointError where it is missing, damaged, or, unless it may, says nothing about the training yet;
        `remedy` says what to do then where it cannot be restored.
        """
        try:
            text = read_file(self.metrics_file).decode()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointError(f"{self.path} is not a run directory: it has no {self.metrics_file.name}") from error
        except (OSError, ValueError) as error:
            raise self.damaged_metrics(remedy) from error
        try:
            whole = records.parse(text[: text.rfind("\n") + 1])
        except records.NOT_RECORDS as error:
            raise self.damaged_metrics(remedy) from error
        if not whole.training and not may_be_empty:
            raise CheckpointError(f"{self.path} has recorded nothing yet: let it train for an epoch first")
        has_no_end = whole.end is None and not may_be_empty
        if has_no_end and self.main_scores() is not None and not self.is_under_way:
            # Before the end there are no scores but those of `repose evaluate --out`.
            raise self.damaged_metrics(remedy)
        return whole

    def figures_of_model(self) -> dict[str, float]:
        """Those of the model on the validation set; none where its directory does not say."""
        try:
            found = read_object(self.model / model_dir.CONFIG, "").get("validation")
        except (CheckpointError, OSError):
            return {}
        return dict(found) if isinstance(found, dict) else {}

    def damaged_metrics(self, remedy: str) -> CheckpointError:
        """The sentence about a metrics.jsonl that cannot be used."""
        what = "damaged" if self.metrics_file.exists() else "missing"
        return CheckpointError(f"{self.metrics_file} is {what}: restore it, or {remedy}")

    def scores(self, split: str) -> dict[str, Any] | None:
        """Figures on a set; None where there are none. Raises CheckpointError where they were changed or damaged."""
        path = self.scores_file(split)
        remedy = "delete it, and run the same training command again to have it written anew"
        try:
            content = read_object(path, remedy)
        except (FileNotFoundError, NotADirectoryError):
            return None
        has_shapes = isinstance(content.get("sha256", {}), dict) and any(
            isinstance(content.get(name), dict) for name in ("decoded", "figures")
        )
        if not has_shapes:
            raise CheckpointError(f"{path} is damaged: {remedy}")
        return content

    def main_scores(self) -> tuple[str, dict[str, Any]] | None:
        """Split and figures of the set that a finished run is judged by; None while there are none."""
        every = ((split, self.scores(split)) for split in SCORED_SPLITS)
        return next(((split, scores) for split, scores in every if scores is not None), None)

    def write_scores(self, split: str, scores: Mapping[str, Any], hypotheses: Mapping[str, Iterable[str]]) -> None:
        """Put lines of text in `hypotheses/` instead of those that are there, and at last the figures, with digests.

        `hypotheses`: name of a decoding, or "trees", to a line for each sentence. Raises WriteError where
        they cannot be written.
        """
        digests = {}
        for name, lines in hypotheses.items():
            text = "".join(line.replace("\n", " ") + "\n" for line in lines)
            write_file(self.hypotheses_file(split, name), text)
            digests[name] = hashlib.sha256(text.encode()).hexdigest()
        write_json(self.scores_file(split), sealed({**scores, "sha256": {"hypotheses": digests}}))
        for path in self.hypotheses_folder.glob(f"{glob.escape(split)}.*.txt"):
            name = path.name.removeprefix(f"{split}.").removesuffix(".txt")
            if name not in hypotheses and re.fullmatch(r"greedy|beam\d+|trees", name):
                with writing(path):
                    path.unlink(missing_ok=True)

    def hypotheses(self, split: str, name: str) -> list[str]:
        """A line for each sentence. Raises CheckpointError where they are missing, damaged or not those scored."""
        path, damaged = self.hypotheses_file(split, name), "run the same training command again, or evaluate it anew"
        try:
            content = read_file(path)
            lines = content.decode("utf-8").split("\n")[:-1]  # a model may well say "\r"
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"the translations {path} cannot be read: {damaged}") from error
        digest = (self.scores(split) or {}).get("sha256", {}).get("hypotheses", {}).get(name)
        if hashlib.sha256(content).hexdigest() != digest:
            raise CheckpointError(f"the translations {path} are not those that were scored: {damaged}")
        return lines

    def has_all_hypotheses(self, split: str) -> bool:
        """Whether the translations of all decodings that were scored are there as they were."""
        scores = self.scores(split) or {}
        names = scores.get("sha256", {}).get("hypotheses") or scores.get("decoded", {})
        try:
            for name in names:
                self.hypotheses(split, name)
        except CheckpointError:
            return False
        return True

    def num_parameters(self) -> int | None:
        """Numbers in the weights of the run's model, tied ones once, by the head of their file (the format is that of
        https://github.com/huggingface/safetensors); None where there is none that can be read."""
        return _num_parameters(self.model)

    @property
    def is_under_way(self) -> bool:
        """Whether the checkpoint is of a training that is not over; not where there is none that can be read."""
        try:
            return _state(self.checkpoint)["done"] is None
        except _NO_HEAD:
            return False

    @property
    def has_to_choose(self) -> bool:
        """Whether a trained model still lacks how it searches, which is chosen on its validation set at the end."""
        try:
            asked, own = self.config().experiment.decoding, model_dir.read_config(self.model).get("decoding")
        except CheckpointError:
            return False
        return asked.length_penalty is None and isinstance(own, dict) and own.get("length_penalty") is None

    @property
    def workers(self) -> int | None:
        """Workers that the training had last; None where there is no checkpoint that can be read."""
        try:
            return int(_state(self.checkpoint)["workers"]) or None
        except _NO_HEAD:
            return None


def run_of(model: Path) -> RunFolder | None:
    """The run whose model directory this is, itself or by a link; None for one that lies elsewhere."""
    for place in (model.parent.resolve() / model.name, model.resolve()):
        run = RunFolder(place.parent)
        if run.exists and run.model == place:
            return run
    return None


def about_model(model: Path) -> dict[str, Any]:
    """What is known of a model directory: its `parameters`; and, where it lies in a run, whether its training is
    `finished`, its search chosen, and the `scores` of what it translated itself. None each where it is not known."""
    run = run_of(model)
    found: tuple[str, dict[str, Any]] | None = None
    if run is not None:
        with contextlib.suppress(CheckpointError):  # figures that were changed are not shown
            found = run.main_scores()
    return {
        "parameters": _num_parameters(model),
        "finished": None if run is None else not (run.is_under_way or run.has_to_choose),
        "scores": None if found is None else _free_running(*found),
    }


def unfinished(model: Path) -> str | None:
    """A sentence about a model that may still change; None where it will not, or nothing is known of it."""
    run = run_of(model)
    if run is not None and run.is_under_way:
        return f"the training of {run.path} is not over: its model may still change, and so may its search"
    if run is not None and run.has_to_choose:
        return f"how the model of {run.path} searches is not chosen yet: the command that trained it does so"
    return None


def main_figure(figures: Mapping[str, Any]) -> str:
    """The name of the figure that a task other than translation is told by: the last of those in percent, which is the
    strictest, else the first. `figures`: as `scores.*.json` has them."""
    percent = [name for name, figure in figures.items() if str(figure.get("unit", "")).startswith("percent")]
    return percent[-1] if percent else next(iter(figures))


def _free_running(split: str, scores: Mapping[str, Any]) -> dict[str, Any]:
    """Of each decoding, the figures that free-running translations got."""
    decoded = scores.get("decoded")
    return {
        "split": split,
        "num_sentences": scores.get("num_sentences"),
        "decoded": {
            decoding: {name: value for name, value in figures.items() if isinstance(value, dict) and "value" in value}
            for decoding, figures in (decoded.items() if isinstance(decoded, dict) else ())
            if isinstance(figures, dict)
        },
    }


def _num_parameters(model: Path) -> int | None:
    try:
        head = _head(model / model_dir.WEIGHTS)
        return sum(math.prod(tensor["shape"]) for name, tensor in head.items() if name != "__metadata__")
    except _NO_HEAD:
        return None


_NO_HEAD = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError)


def _head(path: Path) -> dict[str, Any]:
    """What stands before the tensors of a file of them. Raises one of `_NO_HEAD` for any other file."""
    with path.open("rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def _state(checkpoint: Path) -> dict[str, Any]:
    """Where a training stands, by the head of its checkpoint. Raises one of `_NO_HEAD` for any other file."""
    metadata = _head(checkpoint)["__metadata__"]
    text, crc32 = metadata["state"], metadata["state_crc32"]
    if int(crc32, 16) != zlib.crc32(text.encode()):
        raise ValueError(crc32)
    return json.loads(text)
