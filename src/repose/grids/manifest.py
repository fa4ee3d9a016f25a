"""grid.json: which cells a grid has, where they lie, and how they stand. Its one writer and its one reader.

Several processes may work on one grid's folder: each changes the entries of its own cells under a lock, and the file
is replaced as a whole. What a cell has come to is in its run directory; the manifest says it at a glance.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from repose.grids.cells import LOCK, CellState, CellStatus
from repose.grids.file import CORPUS, ReportTable
from repose.grids.grid import Cell, Grid
from repose.system.errors import CheckpointError
from repose.system.files import lock_holder, locked, read_file, write_json

FORMAT = 1
NAME = "grid.json"
_LOCK = ".grid.lock"


class DamagedManifestError(CheckpointError):
    """A grid.json that cannot be read: running the grid writes it anew."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One cell."""

    name: str
    group: str
    labels: Mapping[str, str]
    seed: int
    run_id: str | None = None
    """The id of its run; None until its data is prepared."""
    folder: str
    """Its run directory, relative to the grid's folder."""
    state: CellState = field(default_factory=CellState)
    seconds: float | None = None
    """Wall-clock time of its processes so far."""

    @property
    def status(self) -> CellStatus:
        return self.state.status

    @property
    def system(self) -> str:
        """What it is, corpus and seed aside: its other labels, joined."""
        return "-".join(label for axis, label in self.labels.items() if axis != CORPUS) or self.group

    @property
    def corpus(self) -> str | None:
        """Its label on the corpus axis, if there is one."""
        return self.labels.get(CORPUS)


@dataclass(frozen=True)
class Manifest:
    """The content of grid.json."""

    name: str
    about: str
    axes: Mapping[str, Sequence[str]]
    report: ReportTable
    entries: tuple[Entry, ...]


_ENTRY = TypeAdapter(Entry)


def entry_of(cell: Cell) -> Entry:
    """The entry of a cell that was not begun."""
    return Entry(name=cell.name, group=cell.group, labels=dict(cell.labels), seed=cell.seed, folder=cell.name)


def moved(entry: Entry, folder: Path, to: Path) -> Entry:
    """The entry of a cell whose finished run lies elsewhere; `folder` is the grid's."""
    there = Path(os.path.relpath(to.resolve(), folder.resolve())).as_posix()
    return replace(entry, folder=there, state=CellState(status=CellStatus.DONE), seconds=None)


def write(
    folder: Path, grid: Grid, entries: Mapping[str, Entry], known: Mapping[str, Entry], *, rest: Mapping[str, Entry]
) -> None:
    """Make grid.json say this of all cells by name. Raises WriteError where it cannot be written.

    `known` is what it said before it was found out how the cells in `entries` stand; nobody has looked at those in
    `rest`. An entry that another process has changed since then is newer, and stays, unless it was found to be of
    another run; so does that of a cell that another process is at work on, though the grid does not have it: both may
    have been given other seeds.
    """
    with locked(folder / _LOCK):
        there = known_entries(folder)
        newer = {name: entry for name, entry in there.items() if entry != known.get(name)}
        merged = []
        for name in (cell.name for cell in grid.cells):
            mine = entries.get(name) or rest[name]
            theirs = newer.get(name, mine)
            merged.append(theirs if name in rest or theirs.run_id == mine.run_id else mine)
        names = {cell.name for cell in grid.cells}
        merged += [e for e in there.values() if e.name not in names and lock_holder(folder / e.name / LOCK) is not None]
        _write(folder, Manifest(grid.name, grid.about, grid.axes, grid.report, tuple(merged)))


def update(folder: Path, name: str, /, *, took: float = 0.0, missing: Entry | None = None, **changes: Any) -> None:
    """Change fields of the entry of one cell, and add the seconds that it took to those that it has. `missing` is that
    entry, for when another process has written the file without it.

    Raises CheckpointError where the file cannot be read, and WriteError.
    """
    with locked(folder / _LOCK):
        manifest = read(folder)
        if manifest is not None:
            old = next((entry for entry in manifest.entries if entry.name == name), None)
            if took and old is not None:
                changes["seconds"] = round((old.seconds or 0.0) + took, 1)
            entries = [replace(e, **changes) if e is old else e for e in manifest.entries]
            if old is None and missing is not None:
                entries.append(replace(missing, **changes))
            _write(folder, replace(manifest, entries=tuple(entries)))


def read(folder: Path) -> Manifest | None:
    """The grid of a folder; None where it has no grid.json.

    Raises CheckpointError for one of another version, DamagedManifestError for one that is half a file or no grid's.
    """
    path = folder / NAME
    try:
        content = json.loads(read_file(path))
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {content['format']}, this repose reads {FORMAT}: use the version that wrote it, "
                "or another folder"
            )
        return Manifest(
            name=str(content["name"]),
            about=str(content.get("about", "")),
            axes=dict(content.get("axes") or {}),
            report=ReportTable(**content.get("report") or {}),
            entries=tuple(_entry(cell) for cell in content["cells"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedManifestError(
            f"{path} is damaged: run the grid again, which writes it anew, or name the run directories instead"
        ) from error


def known_entries(folder: Path) -> dict[str, Entry]:
    """The entries by name; none where there is no grid.json or a damaged one. Raises CheckpointError, see `read`."""
    try:
        manifest = read(folder)
    except DamagedManifestError:
        return {}
    return {} if manifest is None else {entry.name: entry for entry in manifest.entries}


def _write(folder: Path, manifest: Manifest) -> None:
    content = {"format": FORMAT, **vars(manifest), "cells": [_to_json(entry) for entry in manifest.entries]}
    del content["entries"]
    content["report"] = {name: value for name, value in vars(manifest.report).items() if value}
    write_json(folder / NAME, content)


def _to_json(entry: Entry) -> dict[str, Any]:
    """Flat; of the state `status` and `reason` (its message), and what else is set."""
    content, nothing = asdict(entry), asdict(CellState())
    state, seconds = content.pop("state"), content.pop("seconds")
    told = {"status": state.pop("status"), "reason": state.pop("message")}
    return content | told | {name: v for name, v in state.items() if v != nothing[name]} | {"seconds": seconds}


def _entry(cell: Mapping[str, Any]) -> Entry:
    """The inverse."""
    return _ENTRY.validate_python({**cell, "state": {**cell, "message": cell.get("reason", "")}})
