"""metrics.jsonl: a line about the data, lines about the training, a line about its end. Statuses and reasons of runs.

Numbers are read from here, by name; sentences are made for people, and nothing reads them.
"""

import dataclasses
import enum
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from repose.config.experiment import TrainingConfig
from repose.system.terminal import counted

Record = Mapping[str, Any]
"""A line of metrics.jsonl: `kind` ("train", "epoch", "valid", or "model" for the validation of averaged weights at the
end), `update`, `epoch`, figures by name, and under `wall` what depends on the clock, so that the rest of two files can
be compared."""


class RunStatus(enum.StrEnum):
    """How far a training is."""

    UNFINISHED = "unfinished"
    """It has begun and not ended: it is running, or was killed."""
    STOPPED = "stopped"
    """It ended before its limits; the same command resumes it."""
    DONE = "done"


class EndReason(enum.StrEnum):
    """Why a training ended: the setting whose limit it reached, or what asked it to stop."""

    UPDATES = "updates"
    EPOCHS = "epochs"
    HOURS = "max_hours"
    PATIENCE = "patience"
    STOP_AFTER = "stop_after"
    UNTIL_EPOCH = "until_epoch"
    """The trial of a search has reached its next rung."""
    SIGINT = "SIGINT"
    SIGTERM = "SIGTERM"
    SIGUSR1 = "SIGUSR1"
    SIGHUP = "SIGHUP"
    ASKED = "stop"
    """The program that called the training set its event."""
    OTHER_WORKER = "other_worker"
    """A signal to another worker."""

    def describe(self, training: TrainingConfig) -> str:
        """A few words for a sentence."""
        judge = "chrF" if training.best_by == "chrf" else "validation loss"
        words = {
            EndReason.UPDATES: counted(training.updates or 0, "update"),
            EndReason.EPOCHS: counted(training.epochs or 0, "epoch"),
            EndReason.HOURS: _time(training.max_hours or 0.0),
            EndReason.PATIENCE: f"no better {judge} in {counted(training.patience or 0, 'validation')}",
            EndReason.STOP_AFTER: "--stop-after",
            EndReason.UNTIL_EPOCH: "as many epochs as asked for",
            EndReason.ASKED: "as asked",
            EndReason.OTHER_WORKER: "a signal to another worker",
        }
        return words.get(self, self.value)


def _time(hours: float) -> str:
    return counted(hours, "hour") if hours >= 1 else counted(hours * 60, "minute")


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """What a run learns from and is measured on, in numbers: the first line of metrics.jsonl.

    Splits are "train", "valid" and "test"; sides are "src" and "tgt", or "text" for tasks that have one side.
    """

    examples: Mapping[str, int]
    """Split to its sentence pairs, or to what else the task has: blocks of a text, trees."""
    tokens: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Split to side to tokens; of "tgt" and "text" those that the loss is a sum over."""
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    """Side to the size of its vocabulary."""
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Split to reason to examples that were left out; splits without any are missing."""
    truncated: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Split to reason to examples that were cut."""
    findings: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """What the check of the corpus found before the training (`repose.data.findings.Finding.to_json`)."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": "data", **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, line: Record) -> "DataRecord":
        """The inverse. Raises ValueError for anything else."""
        return TypeAdapter(cls).validate_python(line)


@dataclass(frozen=True, kw_only=True)
class EndRecord:
    """How a training ended: the last line of metrics.jsonl."""

    status: RunStatus
    """DONE or STOPPED."""
    reason: EndReason
    update: int
    """Optimizer steps taken."""
    epoch: int
    """The epoch of the last update, from 1."""
    seconds: float
    """Wall-clock time of the training, summed over resumes."""
    at: str
    """Local date and time, such as "2026-11-22 02:43:12"; "" where it is not known."""
    total: int | None = None
    """Updates after which it would have ended but for the clock and `patience`; None where nothing says."""
    crc32: int | None = None
    """Checksum of the file up to this record's checksum, by which damage is found; None where it is not `checked`."""

    def to_json(self) -> dict[str, Any]:
        place = {"status": self.status, "reason": self.reason, "update": self.update, "epoch": self.epoch}
        place |= {} if self.total is None else {"total": self.total}
        wall = {"seconds": round(self.seconds, 3), "at": self.at}
        return {"kind": "end", **place, "wall": wall if self.crc32 is None else {**wall, "crc32": self.crc32}}

    def checked(self, crc32: int) -> "EndRecord":
        """The record with the checksum of the file, if `crc32` is that of all lines before it."""
        bare = dataclasses.replace(self, crc32=None)
        return dataclasses.replace(self, crc32=zlib.crc32(json.dumps(bare.to_json()).encode(), crc32))

    @classmethod
    def from_json(cls, line: Record) -> "EndRecord":
        """The inverse. Raises KeyError, TypeError or ValueError for anything else."""
        return TypeAdapter(cls).validate_python({**line, **line["wall"]})


@dataclass(frozen=True)
class Records:
    """metrics.jsonl."""

    training: tuple[Record, ...]
    """Figures in the order of the training: of some updates, of each epoch, of each validation."""
    data: DataRecord | None = None
    """What is trained on; None where that was not recorded."""
    end: EndRecord | None = None
    """How the training ended; None while it goes on, and where it was killed."""

    def of_kind(self, kind: str) -> tuple[Record, ...]:
        """The training's records of one kind: "train", "epoch", "valid" or "model"."""
        return tuple(record for record in self.training if record["kind"] == kind)

    @property
    def updates(self) -> int:
        """Optimizer steps taken, as far as is recorded: not each has figures, but the end says how many there were."""
        return int(self.training[-1]["update"]) if self.end is None else self.end.update

    @property
    def status(self) -> RunStatus:
        """How far the training is, which says nothing about scores."""
        return RunStatus.UNFINISHED if self.end is None else self.end.status


NOT_RECORDS = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


def parse(text: str) -> Records:
    """Whole lines of metrics.jsonl.

    Raises one of `NOT_RECORDS` for other text, and for text that has changed since its end was recorded.
    """
    data, end, training, crc32 = None, None, [], 0
    for written in filter(str.strip, text.splitlines(keepends=True)):
        line: dict[str, Any] = json.loads(written)
        match line["kind"]:
            case "data":
                data = DataRecord.from_json(line)
            case "end":
                end = EndRecord.from_json(line)
                if end.crc32 is not None and end != end.checked(crc32):
                    raise ValueError("checksum")
            case _:
                figures = {name: value for name, value in line.items() if name not in ("kind", "wall")}
                is_placed = all(type(line[name]) is int for name in ("update", "epoch"))
                if not (is_placed and _are_numbers({**figures, **line.get("wall", {})})):
                    raise ValueError(line["kind"])
                training.append(line)
        crc32 = zlib.crc32(written.encode(), crc32)
    return Records(tuple(training), data, end)


def _are_numbers(values: object) -> bool:
    """Whether it is a mapping to numbers."""
    return isinstance(values, Mapping) and all(isinstance(value, int | float) for value in values.values())


def timestamp() -> str:
    """Local date and time, as `EndRecord.at` has it."""
    return time.strftime("%Y-%m-%d %H:%M:%S")
