"""The file of a learned table: its numbers, their score, and how they were learned. Needs only numpy."""

import hashlib
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from repose.system.errors import DataError
from repose.system.files import read_file, write_file

FORMAT_VERSION = 1
DECIMALS = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionTable:
    """A small table of positions with its provenance. Each row is a position; numbers are in [-1, 1]."""

    values: Float[np.ndarray, "n d"]
    reward: str
    """Name of the reward for which the table was learned, see `rewards.REWARDS`."""
    score: float
    """The reward of these values."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Settings, seed, steps, versions, and the scores of the tables that it is compared with."""

    @property
    def digest(self) -> str:
        """SHA-256 of shape and values, in hexadecimal. How the file is written does not matter."""
        canonical = np.ascontiguousarray(self.values, dtype="<f8") + 0.0  # -0.0 is 0.0
        header = "x".join(map(str, canonical.shape))
        return hashlib.sha256(header.encode() + b"\n" + canonical.tobytes()).hexdigest()


def rounded(values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the values with the six decimals that a file keeps."""
    return np.asarray(values, dtype=np.float64).round(DECIMALS) + 0.0


def write(path: Path, table: PositionTable) -> None:
    """Write a table as JSON, one row per line, completely or not at all. Raises WriteError."""
    head = {"format_version": FORMAT_VERSION, "shape": table.values.shape, "reward": table.reward}
    head |= {"score": table.score, "provenance": dict(table.provenance)}
    rows = ",\n".join(f"    {json.dumps(row)}" for row in rounded(table.values).tolist())
    text = json.dumps(head, indent=2).removesuffix("\n}") + f',\n  "values": [\n{rows}\n  ]\n}}\n'
    write_file(path, text)


def read(path: Path) -> PositionTable:
    """Read a table from a file. Raises DataError if it is missing, damaged, or not a position table."""
    try:
        text = read_file(path).decode()
    except FileNotFoundError as error:
        raise DataError(f"there is no position table {path}: make one with `repose positions learn --out`") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a position table: it is not a text file that can be read") from error
    return _parsed(text, str(path))


def default_table() -> PositionTable:
    """Return the shipped table: 8 positions of 16 numbers, learned for the reward `sound` (docs/positions.md)."""
    file = importlib.resources.files("repose.positions_rl").joinpath("default.json")
    return _parsed(file.read_text(encoding="utf-8"), "the shipped position table")


def _parsed(text: str, name: str) -> PositionTable:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is not a position table: it is not JSON ({error})") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or "values" not in content:
        raise DataError(f"{name} is not a position table: make one with `repose positions learn --out`")
    if version != FORMAT_VERSION:
        raise DataError(
            f"{name} is a position table of format {version}, this version reads {FORMAT_VERSION}: learn it again"
        )
    score, provenance = content.get("score"), content.get("provenance", {})
    if type(score) not in (int, float) or not isinstance(provenance, dict):
        raise DataError(f"{name} has no number as score, or no provenance: learn it again")
    values, reward = _values(content["values"], content.get("shape"), name), str(content.get("reward"))
    return PositionTable(values=values, reward=reward, score=float(score), provenance=provenance)


def _values(rows: Any, shape: Any, name: str) -> Float[np.ndarray, "n d"]:
    is_table = isinstance(rows, list) and bool(rows) and all(isinstance(row, list) and row for row in rows)
    if not is_table or len({len(row) for row in rows}) != 1:
        raise DataError(f"{name} holds no table: its values must be rows of the same length")
    if any(type(number) not in (int, float) for row in rows for number in row):
        raise DataError(f"{name} has values that are not numbers")
    if shape != [len(rows), len(rows[0])]:
        raise DataError(f"{name} says shape {shape} but its values are {len(rows)} rows of {len(rows[0])}")
    if not all(-1 <= number <= 1 for row in rows for number in row):  # false for NaN, too
        raise DataError(f"{name} holds values that are not finite numbers in [-1, 1]")
    return np.array(rows, dtype=np.float64)
