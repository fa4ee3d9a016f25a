"""metrics.jsonl, train.log and the terminal: everything that a training tells."""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from repose.system.errors import CheckpointError, ConfigError
from repose.training.progress import Display

Record = Mapping[str, Any]


class Journal:
    """Records of a training in `metrics.jsonl`, and the same as text in `train.log` and on the terminal.

    A record is one JSON object per line: `kind` ("train", "epoch" or "valid"), `update`, `epoch`, figures, and under
    `wall` what depends on the clock, so that the rest of two files can be compared.
    """

    def __init__(self, run_dir: Path, keep_bytes: int, display: Display, *, tensorboard: bool) -> None:
        """Continue the files of a run directory; of metrics.jsonl the first `keep_bytes` count."""
        self._board = _board(run_dir / "tensorboard") if tensorboard else None
        self._display = display
        self._metrics: IO[bytes] = (run_dir / "metrics.jsonl").open("ab")
        self._metrics.truncate(keep_bytes)
        self._metrics.seek(0, os.SEEK_END)
        self._log = (run_dir / "train.log").open("a", encoding="utf-8")

    def write(self, line: Record) -> None:
        """Add a line to metrics.jsonl, and nowhere else."""
        self._write(lambda: self._metrics.write(json.dumps(line).encode() + b"\n"))

    def record(self, record: Record) -> None:
        """Add a record about the training."""
        self.write(record)
        self._to_log(describe(record))
        self._display.record(record, describe(record))
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "update":
                    self._board.add_scalar(f"{record['kind']}/{name}", value, record["update"])

    def note(self, text: str) -> None:
        """Say something that is no figure."""
        self._to_log(text)
        self._display.note(text)

    def advance(self, update: int, total: int | None) -> None:
        """Tell that an update is done, of so many if that is known. Cheap."""
        self._display.advance(update, total)

    def sync(self) -> int:
        """Have the records on disk; the length of metrics.jsonl in bytes."""
        self._write(self._metrics.flush)
        self._write(lambda: os.fsync(self._metrics.fileno()))
        return self._metrics.tell()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close files and display; the log keeps what a training failed of."""
        self._display.close()
        if error is not None:
            with contextlib.suppress(CheckpointError):
                self._to_log(f"failed: {error or type(error).__name__}")
        self._metrics.close()
        self._log.close()
        if self._board is not None:
            self._board.close()

    def _to_log(self, text: str) -> None:
        self._write(lambda: self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n"))
        self._write(self._log.flush)

    def _write(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            raise CheckpointError(
                f"the run directory cannot be written ({error.strerror}): free disk space and run the same command "
                "again, training then goes on from the last checkpoint"
            ) from error


def describe(record: Record) -> str:
    """A record as a line of text: what one watches, the rest is in metrics.jsonl."""
    what = {"train": "training", "epoch": "mean of the epoch", "valid": "validation"}[record["kind"]]
    shown = [f"{label} {record[name]:{form}}" for name, label, form in _SHOWN if name in record]
    wall = record.get("wall", {})
    if "tokens_per_second" in wall:
        shown.append(f"{wall['tokens_per_second']:,.0f} tokens/s")
    return f"epoch {record['epoch']}, update {record['update']:,}, {what}: {', '.join(shown)}"


_SHOWN = (
    ("loss", "loss", ".3f"),
    ("nll", "nll", ".3f"),
    ("tf_loss", "tf_loss", ".3f"),
    ("tf_accuracy", "tf_accuracy", ".1%"),
    ("bleu", "BLEU", ".1f"),
    ("tf_bleu", "tf_BLEU", ".1f"),
    ("learning_rate", "learning rate", ".2e"),
)


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "TensorBoard is not installed: install repose-nmt[tensorboard] or train without it"
        ) from error
    return SummaryWriter(str(folder))
