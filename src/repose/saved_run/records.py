"""metrics.jsonl: a line on the data, lines on the training, a line on its end. Statuses of runs, and why they ended.

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
end), `update`, `epoch`, figures by name, and values that depend on time under `wall`, so that the rest of two files can
be compared."""
LITTLE_GAIN = 0.2
"""`source_gain`, in nats per target token, below which a model practically ignores its source."""


def hardly_reads(gain: float) -> str:
    """Return the warning for a model with a small `source_gain`."""
    measure = f"it predicts {gain:z.2f} nats per token better with the right source than with another"
    return f"the model hardly reads its source ({measure})"


def knows_its_test(scores: Mapping[str, Any]) -> str:
    """Return the warning about scores (`scores.<split>.json`) on sources of which the model has learnt many; "" if it
    has not."""
    number = scores.get("trained_on")
    return f"the model was trained on {number:,} of these sources, so its scores may be too high" if number else ""


class RunStatus(enum.StrEnum):
    """How far a training is."""

    UNFINISHED = "unfinished"
    """It has begun but not ended: it is running, or was killed."""
    STOPPED = "stopped"
    """It ended before its limits; the same command resumes it."""
    DONE = "done"


class EndReason(enum.StrEnum):
    """Why a training ended: the setting whose limit was reached, or the reason to stop."""

    UPDATES = "updates"
    EPOCHS = "epochs"
    HOURS = "max_hours"
    PATIENCE = "patience"
    STOP_AFTER = "stop_after"
    UNTIL_EPOCH = "until_epoch"
    """A search's trial has reached its next rung."""
    SIGINT = "SIGINT"
    SIGTERM = "SIGTERM"
    SIGUSR1 = "SIGUSR1"
    SIGHUP = "SIGHUP"
    ASKED = "stop"
    """The calling program set the `stop` event."""
    OTHER_WORKER = "other_worker"
    """Another worker received a signal."""

    def describe(self, training: TrainingConfig) -> str:
        """Return a few words for use in a sentence."""
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
    """Sizes of a run's data: the first line of metrics.jsonl.

    Splits are "train", "valid" and "test"; sides are "src" and "tgt", or "text" for tasks that have one side.
    """

    examples: Mapping[str, int]
    """Maps each split to its number of sentence pairs, or of blocks of text or trees."""
    tokens: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Maps split and side to tokens; for "tgt" and "text", those that the loss sums over."""
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    """Maps each side to its vocabulary size."""
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Maps split and reason to the number of examples left out; splits without any are missing."""
    truncated: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Maps split and reason to the number of truncated examples."""
    findings: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """Findings of the corpus check before the training (`repose.data.findings.Finding.to_json`)."""

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
    """Epoch of the last update, from 1."""
    seconds: float
    """Wall-clock seconds of the training, summed over resumes."""
    at: str
    """Local date and time, such as "2026-11-22 02:43:12"; "" if unknown."""
    total: int | None = None
    """Number of updates without time limit and `patience`; None if unknown."""
    crc32: int | None = None
    """Checksum of the file up to this field, to detect damage; None if not `checked`."""

    def to_json(self) -> dict[str, Any]:
        place = {"status": self.status, "reason": self.reason, "update": self.update, "epoch": self.epoch}
        place |= {} if self.total is None else {"total": self.total}
        wall = {"seconds": round(self.seconds, 3), "at": self.at}
        return {"kind": "end", **place, "wall": wall if self.crc32 is None else {**wall, "crc32": self.crc32}}

    def checked(self, crc32: int) -> "EndRecord":
        """Return the record with the file's checksum; `crc32` is that of all earlier lines."""
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
    """Records in the order of the training: of some updates, each epoch, each validation."""
    data: DataRecord | None = None
    """The training data; None if not recorded."""
    end: EndRecord | None = None
    """How the training ended; None while it runs, or if it was killed."""

    def of_kind(self, kind: str) -> tuple[Record, ...]:
        """Return the training's records of one kind: "train", "epoch", "valid" or "model"."""
        return tuple(record for record in self.training if record["kind"] == kind)

    @property
    def updates(self) -> int:
        """Number of recorded optimizer steps; not each has a record, but the end record has the exact number."""
        return int(self.training[-1]["update"]) if self.end is None else self.end.update

    @property
    def status(self) -> RunStatus:
        """The training's status, regardless of scores."""
        return RunStatus.UNFINISHED if self.end is None else self.end.status


NOT_RECORDS = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


def parse(text: str) -> Records:
    """Parse complete lines of metrics.jsonl.

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
    """Return whether `values` is a mapping to numbers."""
    return isinstance(values, Mapping) and all(isinstance(value, int | float) for value in values.values())


def timestamp() -> str:
    """Return the local date and time in the format of `EndRecord.at`."""
    return time.strftime("%Y-%m-%d %H:%M:%S")
