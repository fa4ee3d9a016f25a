"""The folders that a report looks into."""

import re
from collections.abc import Iterator
from pathlib import Path

from repose.grids import manifest
from repose.grids.manifest import Entry
from repose.runs.folder import RunFolder
from repose.system.errors import CheckpointError


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


def runs_in(folder: Path) -> list[Path]:
    """The directories of runs that have recorded something, in a folder, or in those below it."""
    found = [place for f in (walk(folder) if folder.is_dir() else ()) for place in (f, *(p for p, _ in cells_in(f)))]
    return [place for place in found if RunFolder(place).has_records]


def cells_in(folder: Path) -> list[tuple[Path, Entry]]:
    """The run directories of a grid and their cells; none where there is no grid that can be read."""
    try:
        grid = manifest.read(folder)
    except CheckpointError:
        return []
    return [] if grid is None else [((folder / cell.folder).resolve(), cell) for cell in grid.entries]


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts s2 before s10."""
    return [(int(piece), "") if piece.isdecimal() else (0, piece) for piece in re.split(r"(\d+)", name)]
