"""grid.json: which cells a grid has, where they lie, and how they stand.

Several processes may work on one grid's folder: each changes the entries of its own cells under a lock, and the file
is replaced as a whole. What a cell has come to is in its run directory; the manifest says it at a glance.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from repose.grids.grid import Cell, Grid
from repose.system.errors import CheckpointError
from repose.system.files import locked

FORMAT = 1
NAME = "grid.json"
CellStatus = Literal["waiting", "running", "done", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One cell."""

    name: str
    group: str
    labels: Mapping[str, str]
    seed: int
    run_id: str | None = None
    """None until its data is prepared."""
    folder: str
    """Its run directory, relative to the grid's folder."""
    status: CellStatus = "waiting"
    reason: str = ""
    seconds: float | None = None
    """Wall-clock time of its processes so far."""


def entry_of(cell: Cell) -> Entry:
    """The entry of a cell that was not begun."""
    return Entry(name=cell.name, group=cell.group, labels=dict(cell.labels), seed=cell.seed, folder=cell.name)


def write(folder: Path, grid: Grid, entries: Sequence[Entry], known: Mapping[str, Entry]) -> None:
    """Make grid.json say this. Raises CheckpointError where it cannot be written.

    `known` is what it said before it was found out how the cells stand: an entry that another process has changed
    since then is newer, and stays.
    """
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".grid.lock"):
            newer = {name: entry for name, entry in read(folder).items() if entry != known.get(name)}
            found = [(newer.get(entry.name, entry), entry) for entry in entries]
            _replace(folder / NAME, _to_json(grid, [new if new.run_id == old.run_id else old for new, old in found]))


def _to_json(grid: Grid, entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": grid.name,
        "about": grid.about,
        "axes": {axis: list(labels) for axis, labels in grid.axes.items()},
        "report": dict(grid.report),
        "cells": [asdict(entry) for entry in entries],
    }


def update(folder: Path, name: str, /, **changes: Any) -> None:
    """Change the entry of one cell. Raises CheckpointError where the file cannot be read or written."""
    with _written(folder), locked(folder / ".grid.lock"):
        content = _content(folder / NAME)
        for cell in content["cells"]:
            if cell["name"] == name:
                cell.update(changes)
        _replace(folder / NAME, content)


def read(folder: Path) -> dict[str, Entry]:
    """The entries by name; none where there is no grid.json, or a damaged one, which is then written anew.

    Raises CheckpointError for one of another version.
    """
    path = folder / NAME
    try:
        content = _content(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    if isinstance(content, dict) and content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {content.get('format')}, this repose knows {FORMAT}: choose another --out, or go on "
            "with the version that wrote it"
        )
    try:
        return {cell["name"]: Entry(**cell) for cell in content["cells"]}
    except (TypeError, KeyError, AttributeError):
        return {}


def moved(entry: Entry, folder: Path, to: Path) -> Entry:
    """The entry of a cell whose finished run lies elsewhere; `folder` is the grid's."""
    return replace(entry, folder=Path(os.path.relpath(to.resolve(), folder.resolve())).as_posix(), status="done")


def _content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _replace(path: Path, content: Any) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{folder / NAME} cannot be written ({error.strerror}): free disk space, or choose another --out"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{folder / NAME} is damaged: run the grid again, which writes it anew") from error
