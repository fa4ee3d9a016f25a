"""Numbers and pictures of position tables."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from torch import Tensor

from repose.model.positions import sinusoids, upscale
from repose.plots.canvas import canvas
from repose.plots.positions import (
    draw,
    nearly_constant,
    plot_positions,
    position_numbers,
    similarity_by_distance,
    tables,
)
from repose.system.errors import ConfigError

SMALL = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) * 2 - 1
TABLES = {
    "sinusoid": sinusoids("interleaved", 40, 12),
    "random": torch.rand(35, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1,
    "short": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
    "changing late": torch.cat([torch.ones(32, 3), torch.rand(8, 3, generator=torch.Generator().manual_seed(2))]),
    "learned": upscale(SMALL, 64, 24),
}


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_numbers_equal_loops(table: Tensor) -> None:
    rows = table.double().tolist()
    adjacent = [cosine(rows[i], rows[i + 1]) for i in range(len(rows) - 1)]
    steps = [math.dist(rows[i], rows[i + 1]) for i in range(len(rows) - 1)]
    first, constant = rows[:32], 0
    for column in zip(*first, strict=True):
        mean = sum(column) / len(column)
        constant += math.sqrt(sum((x - mean) ** 2 for x in column) / len(column)) < 0.05
    n = position_numbers(table)
    assert n.adjacent_cosine_mean == pytest.approx(sum(adjacent) / len(adjacent), abs=1e-9)
    assert n.adjacent_cosine_min == pytest.approx(min(adjacent), abs=1e-9)
    assert n.mean_step == pytest.approx(sum(steps) / len(steps), abs=1e-9)
    assert n.largest_step == pytest.approx(max(steps), abs=1e-9)
    assert n.mean_norm == pytest.approx(sum(math.hypot(*row) for row in rows) / len(rows), abs=1e-9)
    assert n.distinct_rows == len({tuple(row) for row in first})
    assert n.nearly_constant_columns == pytest.approx(constant / len(rows[0]), abs=1e-9)


def test_similarity_by_distance_equals_loops() -> None:
    rows = TABLES["random"].double().tolist()
    mean, deviation = similarity_by_distance(TABLES["random"])
    for distance in (0, 1, 7, 34):
        found = [cosine(rows[i], rows[i + distance]) for i in range(len(rows) - distance)]
        centre = sum(found) / len(found)
        spread = math.sqrt(sum((x - centre) ** 2 for x in found) / len(found))
        assert mean[distance].item() == pytest.approx(centre, abs=1e-9)
        assert deviation[distance].item() == pytest.approx(spread, abs=1e-7)


def test_a_row_of_zeros_is_like_nothing() -> None:
    mean, _ = similarity_by_distance(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    assert mean.tolist() == [0.5, 0.0]


def test_without_pooling_a_block_of_positions_is_one_row() -> None:
    shown = tables(SMALL, kinds=("interleaved",), length=128, width=24)
    before, after = shown["learned, before pooling"], shown["learned, after pooling"]
    assert position_numbers(before).distinct_rows == 1
    assert position_numbers(after).distinct_rows == 32
    for i in range(128):
        for j in range(24):
            assert before[i, j] == SMALL[i // 32, j // 4]


def test_red_boxes_are_around_what_hardly_changes() -> None:
    table = sinusoids("halves", 64, 128)
    with canvas():
        axes = draw({"a": table}).axes[0]
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    boxed = {column for box in boxes for column in range(128) if box.get_x() < column < box.get_x() + box.get_width()}
    assert len(boxes) == 2  # the slow sines and the slow cosines
    assert boxed == set(nearly_constant(table))
    assert len(boxed) > 20


def test_values_can_be_told_apart_in_grey_print() -> None:
    """The larger, the lighter; and no sentence names a colour."""
    with canvas():
        figure = draw({"a": sinusoids("halves", 64, 128)})
    colours = figure.axes[0].images[0].get_cmap()(np.linspace(0, 1, 50))[:, :3]
    assert np.all(np.diff(colours @ (0.299, 0.587, 0.114)) > 0)
    assert figure.texts[0].get_text().startswith("Boxes: runs of columns")


def test_files_numbers_and_table_belong_together(tmp_path: Path) -> None:
    picture = plot_positions(
        SMALL, tmp_path / "new" / "p", kinds=["interleaved", "printed"], length=64, width=24, source={"file": "x"}
    )
    assert [path.name for path in picture.files] == ["p.png", "p.svg", "p.json"]
    assert picture.files[0].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    text = " ".join(ET.parse(picture.files[1]).getroot().itertext())
    for title in ("sinusoid (interleaved)", "sinusoid (printed)", "learned, before pooling", "learned, after pooling"):
        assert title in text
    numbers = json.loads(picture.files[2].read_text())
    assert numbers["table"] == {"file": "x"}
    assert [row[0] for row in picture.rows] == list(numbers["encodings"])
    assert {len(row) for row in picture.rows} == {len(picture.header)}
    after = numbers["encodings"]["learned, after pooling"]
    assert after["mean_step"] == pytest.approx(position_numbers(upscale(SMALL, 64, 24)).mean_step)
    assert len(after["cosine_by_distance"]) == len(after["cosine_by_distance_sd"]) == 64


BAD = {
    "suffix": ({"out": "p.eps"}, "not .eps"),
    "kind": ({"kinds": ["interleavd"]}, "did you mean 'interleaved'"),
    "odd width": ({"width": 7}, "even width"),
    "no positions": ({"length": 1}, "at least 2 positions"),
}


@pytest.mark.parametrize(("change", "sentence"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_drawn_is_one_sentence(change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    given = {"kinds": ["halves"], "length": 16, "width": 8, "source": {}, "out": "p"} | change
    with pytest.raises(ConfigError, match=sentence):
        plot_positions(SMALL, tmp_path / str(given.pop("out")), **given)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
