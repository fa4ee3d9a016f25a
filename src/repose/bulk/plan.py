"""`plan.json`: a description of a job, and its shards. Made once, and the same wherever it is made.

The job's identity is a digest of everything that its output depends on: the inputs' bytes, the model, the decoding
settings and the output format. A folder holds one job; parts with another identity are never used.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from repose._version import __version__
from repose.bulk.columns import check_columns
from repose.bulk.inputs import Cut, Files, ScannedInput, Window, scan, windows
from repose.bulk.storage import Store, is_url, normalised
from repose.decoding.engine import EngineChoice, Precision
from repose.system.errors import ConfigError, DataError
from repose.system.files import json_bytes

FORMAT_VERSION = 1
PLAN, LOCK = "plan.json", ".plan.lock"
KEPT = ("kept.src", "kept.tgt")
"""Files of the pairs that are kept of a scored corpus."""
SHARD_LINES = 20_000
"""Default number of lines per shard: minutes of work; 10^9 lines make fifty thousand parts."""
RESERVED = ("score", "hypotheses", "failed")
"""Fields that the output can have, besides `Job.into`."""
Format = Literal["text", "tsv", "jsonl", "parquet"]
Failed = Literal["keep", "drop"]


@dataclass(frozen=True)
class UsedModel:
    """A model as all workers load it."""

    folder: str
    """Not part of the identity: it may be elsewhere when the job is resumed."""
    sha256: str
    """Digest of everything that translations depend on (`repose.bulk.models.digest`)."""
    engine: EngineChoice
    """torch or onnx; never auto, which may mean something else on another machine."""
    precision: Precision
    device: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that the output depends on, besides the inputs."""

    work: Literal["translate", "score"]
    models: tuple[UsedModel, ...]
    format: Format
    fields: tuple[str, ...] = ()
    """For JSONL and Parquet: the field of the text, or those of source and target."""
    into: str = "translation"
    """For JSONL and Parquet: the field of the translation."""
    shard_lines: int = SHARD_LINES
    search: Mapping[str, Any] | None = None
    """Arguments of `Translator.translate`, with defaults filled in."""
    num_hypotheses: int = 1
    scores: bool = False
    pairs: bool = False
    """For text: write source, tab, translation."""
    failed: Failed = "keep"
    checks: bool = False
    """Whether pairs are checked for lengths, copies, scripts and languages."""
    tags: tuple[str | None, ...] = ()
    """When pairs are scored: the tag that each model reads before a source."""
    version: str = __version__

    def identified(self) -> dict[str, Any]:
        """Return what counts for the job's identity."""
        content = asdict(self)
        for model in content["models"]:
            del model["folder"]
        if not any(content["tags"]):
            del content["tags"]
        return content

    @property
    def added(self) -> tuple[str, ...]:
        """Fields that the output adds to those of the input for JSONL and Parquet, `into` first."""
        if self.work == "score" or self.format not in ("jsonl", "parquet"):
            return ()
        score = ("score",) if self.scores else ()
        return (self.into, *score, *(("hypotheses",) if self.num_hypotheses > 1 else ()), "failed")

    @property
    def suffix(self) -> str:
        """Suffix of the parts' names, and of the merged file's."""
        if self.work == "score":
            return ".tsv"
        return {"jsonl": ".jsonl", "parquet": ".parquet"}.get(self.format, ".txt")

    @property
    def merged(self) -> str:
        """Name of the merged file."""
        return ("scores" if self.work == "score" else "merged") + self.suffix

    @property
    def results(self) -> tuple[str, ...]:
        """Names of all files that may be written once the parts are complete."""
        return (self.merged, *(KEPT if self.work == "score" else ()))


@dataclass(frozen=True)
class Shard:
    """Consecutive lines (or records, or rows) of one input."""

    number: int
    input: int
    line: int
    """Number of its first line among the lines of all inputs, from 0."""
    lines: int
    ranges: tuple[tuple[int, int], ...]
    """Start and end in each file of the input: in bytes, or in rows for Parquet."""

    @property
    def stem(self) -> str:
        """Prefix of the names of its files."""
        return f"{self.number:06d}"


@dataclass(frozen=True)
class Plan:
    """A job with its inputs, divided into shards."""

    job: Job
    inputs: tuple[ScannedInput, ...]
    shards: tuple[Shard, ...]

    @property
    def lines(self) -> int:
        """Number of lines of all inputs."""
        return sum(one.lines for one in self.inputs)

    @cached_property
    def identity(self) -> str:
        """SHA-256 of everything that the output depends on."""
        content = {"job": self.job.identified(), "inputs": [one.identified() for one in self.inputs]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def part(self, shard: Shard) -> str:
        """Return the name of a shard's part."""
        return f"parts/{shard.stem}{self.job.suffix}"

    def manifest(self, shard: Shard) -> str:
        """Return the name of a shard's manifest."""
        return f"parts/{shard.stem}.json"

    def windows(self, store: Store, shard: Shard) -> Iterator[Window]:
        """Yield the lines of a shard in windows (`repose.bulk.inputs.windows`)."""
        job, one = self.job, self.inputs[shard.input]
        return windows(store, one, shard.ranges, job.format, job.fields, job.added)

    def to_json(self) -> bytes:
        """Return the content of `plan.json`: indented, with one line per shard."""
        head = {"format_version": FORMAT_VERSION, "identity": self.identity, "job": asdict(self.job)}
        text = json.dumps({**head, "inputs": [asdict(one) for one in self.inputs]}, indent=1, ensure_ascii=False)
        rows = ",\n  ".join(json.dumps([s.input, s.line, s.lines, s.ranges]) for s in self.shards)
        return json_bytes(f'{text[:-2]},\n "shards": [\n  {rows}\n ]\n}}\n')

    @classmethod
    def of_json(cls, data: bytes, where: str) -> Self:
        """Parse a plan. Raises DataError if it is damaged, or of another version."""
        try:
            content = json.loads(data)
            job, inputs = _JOB.validate_python(content["job"]), _INPUTS.validate_python(content["inputs"])
            shards = (Shard(number, *row) for number, row in enumerate(_ROWS.validate_python(content["shards"])))
            plan = cls(job, inputs, tuple(shards))
            identity = content["identity"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{where} is damaged, or of another version of repose: choose another --out") from error
        if plan.identity != identity:
            raise DataError(f"{where} has changed since it was written, or is of another version: choose another --out")
        return plan


_JOB, _INPUTS = TypeAdapter(Job), TypeAdapter(tuple[ScannedInput, ...])
_ROWS = TypeAdapter(list[tuple[int, int, int, tuple[tuple[int, int], ...]]])
"""Input, first line, number of lines and ranges of each shard; its number is its place in the list."""


def read_plan(store: Store) -> Plan:
    """Return the plan of a job's folder. Raises DataError if there is none."""
    data = store.read(PLAN)
    if data is None:
        raise DataError(f"{store.where} holds no job: it has no {PLAN}")
    return Plan.of_json(data, store.place(PLAN))


def _check_not_overwritten(store: Store, job: Job, inputs: Sequence[Files]) -> None:
    """Raises ConfigError for an input that the job's output would overwrite."""
    outputs = {normalised(store.place(name)) for name in job.results}
    outputs |= {os.path.realpath(name) for name in outputs if not is_url(name)}
    for name in (name for files in inputs for name in files):
        if name in outputs or os.path.realpath(name) in outputs:
            raise ConfigError(f"{name} is an input, and the job would write its result there: give another --out")


def _check_free(store: Store, job: Job) -> None:
    """Raises ConfigError for a place that holds no job, but files that the job would overwrite."""
    there = [name for name in job.results if store.size(name) is not None]
    there += ["parts/"] * bool(store.names("parts"))
    if there:  # unpacked/ is allowed: a runner that is stopped before it has a plan leaves it
        raise ConfigError(f"{store.where} holds {there[0]} and no job: choose another --out")


def make_plan(store: Store, job: Job, inputs: Sequence[Files]) -> Plan:
    """Return the plan of a job: found in its folder, or made by reading the inputs and written there.

    Inputs whose size and time have not changed since are not read again. Raises DataError for inputs that cannot be
    read, ConfigError if the folder holds another job, and WriteError.
    """
    inputs = [tuple(map(normalised, files)) for files in inputs]
    _check_not_overwritten(store, job, inputs)
    if store.read(PLAN) is None:
        _check_free(store, job)  # before a lock is left there
    with store.locked(LOCK):
        if (data := store.read(PLAN)) is None:
            old = None
            _check_free(store, job)
            if job.format == "parquet":
                check_columns([name for files in inputs for name in files], job.fields, job.added)
        else:
            old = Plan.of_json(data, store.place(PLAN))
            if changes := _changes(old.job.identified(), job.identified()):
                raise ConfigError(_another(store, changes))
        scans = [_scanned(store, job, files, old) for files in inputs]
        shards: list[Shard] = []
        line = 0
        for number, (_, cuts) in enumerate(scans):
            for lines, ranges in cuts:
                shards.append(Shard(len(shards), number, line, lines, ranges))
                line += lines
        plan = Plan(job, tuple(one for one, _ in scans), tuple(shards))
        if old is not None and old.identity != plan.identity:
            raise ConfigError(_another(store, ["the inputs"]))
        if not plan.lines:
            names = ", ".join(name for files in inputs for name in files)
            raise DataError(f"there is no line in {names}: check that the right file was named")
        if data != (content := plan.to_json()):
            store.write(PLAN, content)
    return plan


def _scanned(store: Store, job: Job, files: Files, old: Plan | None) -> tuple[ScannedInput, list[Cut]]:
    """Return an input and its shards, as in the old plan if the files have not changed since."""
    if old is not None:
        for one in old.inputs:
            if one.files == files and one.is_as_before():
                return one, [(shard.lines, shard.ranges) for shard in old.shards if old.inputs[shard.input] is one]
    return scan(store, files, job.format, job.fields, job.shard_lines, job.added)


def _another(store: Store, changes: Sequence[str]) -> str:
    what = " and ".join(filter(None, (", ".join(changes[:-1]), changes[-1])))
    return f"{store.where} holds another job ({what} differ): choose another --out, or delete that folder"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the settings of a job that have changed."""
    named = {
        "models": "the model or its engine",
        "version": "versions of repose",
        "search": "settings of the search",
        "tags": "the languages to translate into",
    }
    names = [f.name for f in fields(Job) if _plain(old.get(f.name)) != _plain(new.get(f.name))]
    return [named.get(name, f"settings of {name}") for name in names]


def _plain(value: object) -> object:
    return json.loads(json.dumps(value))
