"""Reports of a training: metrics.jsonl for programs, train.log and the terminal for people, and TensorBoard."""

import contextlib
import json
import math
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from repose.saved_run.folder import TRAIN_ANEW, RunFolder
from repose.saved_run.records import DataRecord, EndRecord, Record, timestamp
from repose.system.errors import MissingExtraError, WriteError
from repose.system.files import writing
from repose.system.terminal import printable
from repose.training.display import Display, Progress

_SAMPLES_SECONDS = 60.0
"""Seconds between sample translations, however often a training validates."""


class Journal:
    """Writes a training's records to metrics.jsonl, and as text to train.log and the display."""

    def __init__(
        self, run: RunFolder, data: DataRecord, display: Display, written: tuple[int, int], *, tensorboard: bool
    ) -> None:
        """Begin a run's files, or continue them; metrics.jsonl counts up to `written` (see `sync`).

        Raises CheckpointError if that part of metrics.jsonl has changed.
        """
        self._run, self._display = run, display
        self._progress = Progress()
        self._samples_at = -math.inf
        content = read_whole(run, *written)
        self._board: Any = None
        if tensorboard:
            last = json.loads(content.splitlines()[-1]) if content else {}
            step = last.get("update", -1) + 1  # later events are written again
            self._board = board_class()(str(run.tensorboard), purge_step=step)
        self._crc32 = zlib.crc32(content)
        with writing(run.path):
            self._metrics: IO[bytes] = run.metrics_file.open("ab")
            self._metrics.truncate(len(content))
            self._metrics.seek(0, os.SEEK_END)
            self._log = run.log_file.open("a", encoding="utf-8")
        if not content:
            self._write_line(data.to_json())

    def record(self, record: Record) -> None:
        """Write a record of figures."""
        self._write_line(record)
        text = describe(record, self._progress)
        self._to_log(text)
        self._display.record(record, text)
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "update":
                    self._board.add_scalar(f"{record['kind']}/{name}", value, record["update"])

    def end(self, record: EndRecord) -> None:
        self._write_line(record.checked(self._crc32).to_json())

    def note(self, text: str) -> None:
        """Write a message."""
        self._to_log(text)
        self._display.note(text)

    def advance(self, progress: Progress) -> None:
        """Show that an update is done; cheap."""
        self._progress = progress
        self._display.advance(progress)

    @property
    def wants_samples(self) -> bool:
        """True if it is time to show sample translations again."""
        return time.monotonic() - self._samples_at >= _SAMPLES_SECONDS

    def samples(self, texts: Sequence[Sequence[str]]) -> None:
        """Show a few sources with the model's translations and the references."""
        for source, hypothesis, reference in texts:
            for label, text in (("source", source), ("model", hypothesis), ("reference", reference)):
                self.note(f"    {label:>9}: {printable(text)}")
        self._samples_at = time.monotonic()

    def sync(self) -> tuple[int, int]:
        """Flush the records to disk; return the length and CRC-32 of metrics.jsonl."""
        with writing(self._run.metrics_file):
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
        return self._metrics.tell(), self._crc32

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        hush = contextlib.nullcontext() if kind is None else contextlib.suppress(WriteError)
        with hush, writing(self._run.path), contextlib.ExitStack() as stack:
            if self._board is not None:
                stack.callback(self._board.close)
            stack.callback(self._log.close)
            stack.callback(self._metrics.close)

    def _write_line(self, line: Record) -> None:
        content = json.dumps(line).encode() + b"\n"
        with writing(self._run.metrics_file):
            self._metrics.write(content)
        self._crc32 = zlib.crc32(content, self._crc32)

    def _to_log(self, text: str) -> None:
        with writing(self._run.log_file):
            self._log.write(f"{timestamp()} {text}\n")
            self._log.flush()


def board_class() -> Any:
    """Import and return TensorBoard's writer class. Raises MissingExtraError."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        how = "pip install 'repose-nmt[tensorboard]', or train without it"
        raise MissingExtraError(f"--tensorboard needs TensorBoard: {how}") from error
    return SummaryWriter


@contextlib.contextmanager
def logging_failures(run: RunFolder) -> Iterator[None]:
    """Within this context, an error that ends the training is written to train.log."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError), run.log_file.open("a", encoding="utf-8") as log:
            log.write(f"{timestamp()} failed: {' '.join(str(error).split()) or type(error).__name__}\n")
        raise


def read_whole(run: RunFolder, length: int, crc32: int) -> bytes:
    """Read the records that belong to a checkpoint. Raises CheckpointError if they are missing or have changed."""
    try:
        with run.metrics_file.open("rb") as file:
            content = file.read(length)
    except OSError:
        content = b""
    if len(content) < length or crc32 != zlib.crc32(content):
        raise run.damaged_metrics(TRAIN_ANEW)
    return content


def describe(record: Record, progress: Progress) -> str:
    """Return a record as a line of text, with the progress. It has only the figures that people watch."""
    what = _KINDS[record["kind"]]
    shown = [f"{label} {record[name]:{form}}" for name, label, form in _SHOWN if name in record]
    wall: Mapping[str, float] = record.get("wall", {})
    if "tokens_per_second" in wall:
        shown.append(f"{wall['tokens_per_second']:,.0f} tokens/s")
    if left := progress.time_left:
        shown.append(left)
    return f"epoch {record['epoch']}, update {record['update']:,}{progress.of_total}, {what}: {', '.join(shown)}"


_KINDS = {
    "train": "training",
    "epoch": "mean of the epoch",
    "valid": "validation",
    "model": "validation of the model",
}
_SHOWN = (
    ("loss", "loss", ".3f"),
    ("nll", "nll", ".3f"),
    ("tf_loss", "tf_loss", ".3f"),
    ("tf_accuracy", "tf_accuracy", ".1%"),
    ("source_gain", "source_gain", "z.2f"),
    ("bleu", "BLEU", ".1f"),
    ("chrf", "chrF", ".1f"),
    ("tf_bleu", "tf_BLEU", ".1f"),
    ("learning_rate", "learning rate", ".2e"),
)
