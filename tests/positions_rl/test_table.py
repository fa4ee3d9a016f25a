"""Table files: written tables can be read, and files that are not tables are refused in a sentence."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repose.positions_rl import rewards, table
from repose.positions_rl.rewards import sound
from repose.positions_rl.table import PositionTable
from repose.system.errors import DataError


def a_table(**changes: Any) -> PositionTable:
    values = np.random.default_rng(3).uniform(-1, 1, (4, 6))
    fields: dict[str, Any] = {"values": values, "reward": "sound", "score": -0.25, "provenance": {"seed": 3}}
    return PositionTable(**{**fields, **changes})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = a_table()
    table.write(tmp_path / "new" / "t.json", written)
    found = table.read(tmp_path / "new" / "t.json")
    np.testing.assert_allclose(found.values, written.values, atol=5e-7, rtol=0)  # six decimals
    assert (found.reward, found.score, found.provenance) == ("sound", -0.25, {"seed": 3})
    table.write(tmp_path / "again.json", found)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "new" / "t.json").read_bytes()
    assert table.read(tmp_path / "again.json").digest == found.digest


def test_the_digest_is_that_of_shape_and_values() -> None:
    values = a_table().values
    digest = a_table().digest
    assert a_table(reward="literal", score=1.0, provenance={}).digest == digest
    assert a_table(values=np.asfortranarray(values)).digest == digest
    assert a_table(values=values.reshape(6, 4)).digest != digest
    changed = values.copy()
    changed[0, 0] += 1e-6
    assert a_table(values=changed).digest != digest
    assert a_table(values=-np.zeros((2, 2))).digest == a_table(values=np.zeros((2, 2))).digest


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    table.write(tmp_path / "t.json", a_table())
    before = (tmp_path / "t.json").read_bytes()
    with pytest.raises(TypeError):
        table.write(tmp_path / "t.json", a_table(provenance={"no": object()}))
    assert (tmp_path / "t.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format_version": 2}, "format 2, this version reads 1"),
        ({"format_version": None}, "is not a position table"),
        ({"score": "good"}, "no number as score"),
        ({"provenance": []}, "no provenance"),
        ({"shape": [6, 4]}, r"says shape \[6, 4\] but its values are 4 rows of 6"),
        ({"values": []}, "rows of the same length"),
        ({"values": [[0.1, 0.2], [0.3]]}, "rows of the same length"),
        ({"values": [0.1, 0.2]}, "rows of the same length"),
        ({"values": [[0.1, "0.2"]]}, "not numbers"),
        ({"values": [[0.1, True]]}, "not numbers"),
        ({"values": [[1.5, 0.0]], "shape": [1, 2]}, r"not finite numbers in \[-1, 1\]"),
        ({"values": [[float("nan"), 0.0]], "shape": [1, 2]}, r"not finite numbers in \[-1, 1\]"),
        ({"values": [[10**400, 0.0]], "shape": [1, 2]}, r"not finite numbers in \[-1, 1\]"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    table.write(tmp_path / "t.json", a_table())
    content = json.loads((tmp_path / "t.json").read_text())
    (tmp_path / "t.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(DataError, match=sentence):
        table.read(tmp_path / "t.json")


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"7", b"\xff\xfe\x00", b"{}"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(DataError, match="is not a position table"):
        table.read(tmp_path / "t.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no position table .*nowhere\.json"):
        table.read(tmp_path / "nowhere.json")


def test_the_shipped_table_meets_its_targets() -> None:
    shipped = table.default_table()
    score = float(sound(shipped.values))
    assert shipped.values.shape == (8, 16)
    assert shipped.reward == "sound"
    assert score == pytest.approx(shipped.score, abs=1e-6)
    assert score > sound(rewards.sinusoid(8, 16))
    random, _ = rewards.random_rewards((8, 16), "sound")
    assert (score - random) / (0.0 - random) >= 0.9  # no oracle exceeds 0


def test_positions_of_the_shipped_table_are_told_apart_by_their_distance() -> None:
    values = table.default_table().values
    directions = values / np.linalg.norm(values, axis=1, keepdims=True)
    cosines = directions @ directions.T
    by_distance = [np.diagonal(cosines, offset) for offset in range(8)]
    for near, far in itertools.pairwise(by_distance):
        assert near.min() > far.max()


def test_reading_a_table_loads_neither_torch_nor_the_extra() -> None:
    code = (
        "import sys; from repose.positions_rl.table import default_table; default_table().digest; "
        "print([name for name in ('torch', 'gymnasium', 'stable_baselines3') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
