"""The folders that a report looks into."""

import re
from collections.abc import Iterator
from pathlib import Path

from repose.grids import manifest
from repose.runs.folder import RunFolder


def walk(path: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """`path` and the folders below it, none below a run directory or grid; no link to what is `above` is followed."""
    if (real := path.resolve()) in above:
        return
    yield path
    if RunFolder(path).exists or (path / manifest.NAME).is_file():
        return
    for below in sorted(path.iterdir(), key=lambda p: natural(p.name)):
        if below.is_dir() and not below.name.startswith("."):
            yield from walk(below, above | {real})


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts s2 before s10."""
    return [(int(piece), "") if piece.isdecimal() else (0, piece) for piece in re.split(r"(\d+)", name)]
