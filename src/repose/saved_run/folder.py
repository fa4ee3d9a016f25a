"""A run directory: name, format, writer and reader of every file in it.

    config.json                 `RunConfig`: the experiment, the run's id, digests of what it reads, versions
    metrics.jsonl               `Records`: a line on the data, lines on the training, a line on its end
    train.log, tensorboard/     the records for people
    state/last.safetensors      the checkpoint; weights-<update>.safetensors, to be averaged; lock
    model/                      the model directory (`repose.saved_model`)
    scores.<split>.json         figures of the finished model, with digests of what they were computed from
    hypotheses/<split>.<decoding>.txt, hypotheses/<split>.trees.txt
    statistics.<split>.npz      counts per sentence, for reports without the translations
    trained-on.npz              hashes of the sources that the model was trained on

Anything missing or damaged raises a CheckpointError of one sentence.
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
from repose.config.file import from_json
from repose.config.run_id import id_of_settings
from repose.saved_model import directory as model_dir
from repose.saved_run import records
from repose.saved_run.records import LITTLE_GAIN, Records, hardly_reads, knows_its_test
from repose.system.code import code_digest
from repose.system.errors import CheckpointError, ConfigError
from repose.system.files import read_file, sealed, unsealed, write_file, write_json, write_new_json, writing

SCORED_SPLITS = ("test", "valid")
"""Sets that a finished model can be scored on, in order of preference."""


OTHER_CODE = "before repose/model or repose/training was changed"
"""When a run with other code was begun (`RunFolder.has_other_code`)."""


LEAVE_OUT = "leave this run out"
"""Remedy for a run with unusable records, for code that reads several runs."""
TRAIN_ANEW = "train in a new run directory"
"""Remedy for such a run, for code that trains in it."""


def model_code() -> str:
    """Return a digest of the code that models are computed and trained with."""
    return code_digest("model", "training")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The content of config.json."""

    run_id: str
    experiment: Experiment
    digests: Mapping[str, str]
    """Digests of the run's inputs: training and validation data, tokenizers, initial weights."""
    data: str
    """Name of the prepared corpus's folder in the cache."""
    report: tuple[str, ...]
    """Sentences on how the corpus was prepared; the numbers are in `DataRecord`."""
    versions: Mapping[str, str]
    test: str | None = None
    """Digest of the test set; None where there is none, or it was not recorded."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


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
"""Beginnings of file names in a run directory, including half-written files."""


class RunFolder:
    """A run directory, which need not exist yet. Files are read only when needed."""

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
        """Lock file, held while a process trains here; it names the process."""

    def other_file(self) -> str | None:
        """The name of a file that no run writes, if the folder is no run; None if everything belongs to a run."""
        if self.config_file.exists() or not self.path.is_dir():
            return None
        own = {path.name for path in (self.metrics_file, self.log_file, self.tensorboard, self.hypotheses_folder)}
        own |= {self.state.name}
        names = sorted(path.name for path in self.path.iterdir())
        return next((name for name in names if name not in own and not name.startswith(_OF_A_RUN)), None)

    def scores_file(self, split: str) -> Path:
        """Return the path of the finished model's figures on a set."""
        return self.path / f"scores.{split}.json"

    def hypotheses_file(self, split: str, name: str) -> Path:
        """Return the path of a set's translations by a decoding such as "greedy" or "beam4", one per line; "trees" for
        parsers."""
        return self.hypotheses_folder / f"{split}.{name}.txt"

    def statistics_file(self, split: str) -> Path:
        """Return the path of the counts per sentence."""
        return self.path / f"statistics.{split}.npz"

    @property
    def exists(self) -> bool:
        return self.config_file.is_file()

    @property
    def has_records(self) -> bool:
        """True if its training has recorded something."""
        return self.metrics_file.is_file() and self.metrics_file.stat().st_size > 0

    @property
    def has_other_code(self) -> bool:
        """True if the code of models or training has changed since the run was begun, within the same version, so that
        the run id does not show it. False for runs of other versions, for runs without a digest of the code, and for
        folders that are no run or cannot be read."""
        try:
            versions = self._config().get("versions", {})
        except CheckpointError:
            return False
        return versions.get("repose") == __version__ and versions.get("code", model_code()) != model_code()

    def config(self) -> RunConfig:
        """Read config.json. Raises CheckpointError if it is missing, unreadable for this version, or of another run
        than the model in the folder."""
        content = self._config()
        try:
            experiment = from_json(json.dumps(content["experiment"]), str(self.config_file))
        except ConfigError as error:
            raise CheckpointError(str(error)) from error
        run_id = str(content.get("run_id", ""))
        if run_id and (held := self.other_run(run_id)) is not None:
            raise CheckpointError(
                f"{self.config_file} belongs to run {run_id}, but {self.model} or {self.state} to run {held}: put back "
                "the one that was replaced, or train in a new folder"
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
        """Return the id of another run, if the checkpoint or model belongs to one; None if not, or if unreadable.
        `by_scores`: also look at scores, if there are records of a training."""
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
        """Write config.json if there is none; return whether it was written. Raises WriteError if it cannot be
        written."""
        return write_new_json(self.config_file, sealed(config.to_json()))

    def records(self, *, may_be_empty: bool = False, remedy: str = LEAVE_OUT) -> Records:
        """Read metrics.jsonl, without an incomplete last line.

        Raises CheckpointError if it is missing, damaged or, unless `may_be_empty`, without records of the training.
        `remedy` says what to do if it cannot be restored.
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
            # Before the end, scores can only come from `repose evaluate --out`.
            raise self.damaged_metrics(remedy)
        return whole

    def figures_of_model(self) -> dict[str, float]:
        """Return the model's figures on the validation set; empty if its directory has none."""
        try:
            found = read_object(self.model / model_dir.CONFIG, "").get("validation")
        except (CheckpointError, OSError):
            return {}
        return dict(found) if isinstance(found, dict) else {}

    def damaged_metrics(self, remedy: str) -> CheckpointError:
        """Return the error for an unusable metrics.jsonl."""
        what = "damaged" if self.metrics_file.exists() else "missing"
        return CheckpointError(f"{self.metrics_file} is {what}: restore it, or {remedy}")

    def scores(self, split: str) -> dict[str, Any] | None:
        """Read the figures on a set; None if there are none. Raises CheckpointError if they were changed or damaged."""
        path = self.scores_file(split)
        remedy = "delete it, and run the same training command again to write it again"
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
        """Return the split and figures that a finished run is judged by; None if there are none yet."""
        every = ((split, self.scores(split)) for split in SCORED_SPLITS)
        return next(((split, scores) for split, scores in every if scores is not None), None)

    def write_scores(self, split: str, scores: Mapping[str, Any], hypotheses: Mapping[str, Iterable[str]]) -> None:
        """Replace the texts in `hypotheses/`, then write the figures, with digests.

        `hypotheses`: maps a decoding's name, or "trees", to one line per sentence. Raises WriteError if they cannot be
        written.
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
        """Read one line per sentence. Raises CheckpointError if they are missing, damaged or not those that were
        scored."""
        path, damaged = self.hypotheses_file(split, name), "run the same training command again, or evaluate it again"
        try:
            content = read_file(path)
            lines = content.decode("utf-8").split("\n")[:-1]  # a translation may contain "\r"
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"the translations {path} cannot be read: {damaged}") from error
        digest = (self.scores(split) or {}).get("sha256", {}).get("hypotheses", {}).get(name)
        if hashlib.sha256(content).hexdigest() != digest:
            raise CheckpointError(f"the translations {path} are not those that were scored: {damaged}")
        return lines

    def has_all_hypotheses(self, split: str) -> bool:
        """Return whether the translations of all scored decodings are present and unchanged."""
        scores = self.scores(split) or {}
        names = scores.get("sha256", {}).get("hypotheses") or scores.get("decoded", {})
        try:
            for name in names:
                self.hypotheses(split, name)
        except CheckpointError:
            return False
        return True

    def num_parameters(self) -> int | None:
        """Return the number of parameters of the run's model (tied ones once), from the header of its weights (the
        format is that of https://github.com/huggingface/safetensors); None if it cannot be read."""
        return _num_parameters(self.model)

    @property
    def is_under_way(self) -> bool:
        """True if there is a checkpoint of an unfinished training; False also if it cannot be read."""
        try:
            return _state(self.checkpoint)["done"] is None
        except _NO_HEAD:
            return False

    @property
    def has_to_choose(self) -> bool:
        """True if a trained model's decoding settings, which are chosen on the validation set at the end, are still
        missing."""
        try:
            own = model_dir.read_config(self.model).get("decoding", {})
        except CheckpointError:
            return False
        return "length_penalty" in own and own["length_penalty"] is None

    @property
    def workers(self) -> int | None:
        """Last number of workers of the training; None without a readable checkpoint."""
        try:
            return int(_state(self.checkpoint)["workers"]) or None
        except _NO_HEAD:
            return None


def run_of(model: Path) -> RunFolder | None:
    """Return the run that a model directory belongs to, directly or by a link; None for a directory elsewhere."""
    for place in (model.parent.resolve() / model.name, model.resolve()):
        run = RunFolder(place.parent)
        if run.exists and run.model == place:
            return run
    return None


def about_model(model: Path) -> dict[str, Any]:
    """Return what is known about a model directory: its `parameters`; and, within a run, whether its training is
    `finished` and its decoding settings are chosen, and the `scores` of its free-running translations. Unknown values
    are None."""
    run = run_of(model)
    found: tuple[str, dict[str, Any]] | None = None
    if run is not None:
        with contextlib.suppress(CheckpointError):  # changed figures are not shown
            found = run.main_scores()
    return {
        "parameters": _num_parameters(model),
        "finished": None if run is None else not (run.is_under_way or run.has_to_choose),
        "scores": None if found is None else _free_running(*found),
    }


def model_warnings(config: Mapping[str, Any]) -> list[str]:
    """Return the warnings, in sentences, that a model's config.json gives reason for."""
    found = [str(config["looks_ahead"])] if config.get("looks_ahead") else []
    figures = config.get("validation")
    gain = figures.get("source_gain") if isinstance(figures, Mapping) else None
    if isinstance(gain, float) and gain < LITTLE_GAIN:
        found.append(f"{hardly_reads(gain).capitalize()}.")
    return found


def unfinished(model: Path) -> str | None:
    """Return a sentence about a model that may still change; None if it will not change, or if nothing is known about
    it."""
    run = run_of(model)
    if run is not None and run.is_under_way:
        return f"the training of {run.path} is not over: its model may still change, and so may its search"
    if run is not None and run.has_to_choose:
        return f"how the model of {run.path} searches is not chosen yet: run its training command again"
    return None


def main_figure(figures: Mapping[str, Any]) -> str:
    """Return the name of the main figure of a task other than translation: the last one in percent, which is the
    strictest, or else the first. `figures`: as in `scores.*.json`."""
    percent = [name for name, figure in figures.items() if str(figure.get("unit", "")).startswith("percent")]
    return percent[-1] if percent else next(iter(figures))


def _free_running(split: str, scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of free-running translations, by decoding."""
    decoded, warning = scores.get("decoded"), knows_its_test(scores)
    return {
        **({"warning": f"{warning.capitalize()}."} if warning else {}),
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
    """Read the header of a safetensors file. Raises one of `_NO_HEAD` for any other file."""
    with path.open("rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def _state(checkpoint: Path) -> dict[str, Any]:
    """Read a training's state from the header of its checkpoint. Raises one of `_NO_HEAD` for any other file."""
    metadata = _head(checkpoint)["__metadata__"]
    text, crc32 = metadata["state"], metadata["state_crc32"]
    if int(crc32, 16) != zlib.crc32(text.encode()):
        raise ValueError(crc32)
    return json.loads(text)
