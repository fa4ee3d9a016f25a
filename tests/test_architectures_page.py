"""docs/architectures.md has every axis and each of its values."""

import re
from pathlib import Path

import pytest
from tests.axes import AXES, NAMED, SIZES

PAGE = (Path(__file__).parents[1] / "docs" / "architectures.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (`[^|]+`) \| (.+) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_has_a_row_with_its_values(axis: str) -> None:
    (row,) = (text for names, text in ROWS.items() if f"`{axis}`" in names)
    for value in NAMED.get(axis, ()):
        assert f"`{str(value).lower()}`" in row, f"docs/architectures.md does not have {axis} = {value!r}"


def test_sizes_are_named() -> None:
    assert [name for name in SIZES if f"`{name}`" not in PAGE] == []
