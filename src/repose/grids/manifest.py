"""grid.json, the manifest: a grid's cells, their folders and their status. Only this module reads or writes it.

Several processes may work on one grid's folder: each changes the entries of its own cells under a lock, and the file is
replaced as a whole. The results of a cell are in its run directory; the manifest is an overview.
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
from repose.system.files import read_file, write_json
from repose.system.locks import lock_holder, locked

FORMAT = 1
NAME = "grid.json"
_LOCK = ".grid.lock"


class DamagedManifestError(CheckpointError):
    """A grid.json that cannot be read; running the grid writes it again."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The manifest's entry of a cell."""

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
        """Its labels without the corpus, joined."""
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
    """Return the entry of a cell that has not begun."""
    return Entry(name=cell.name, group=cell.group, labels=dict(cell.labels), seed=cell.seed, folder=cell.name)


def moved(entry: Entry, folder: Path, to: Path) -> Entry:
    """Return the entry of a cell whose finished run is in another folder, `to`; `folder` is the grid's."""
    there = Path(os.path.relpath(to.resolve(), folder.resolve())).as_posix()
    return replace(entry, folder=there, state=CellState(status=CellStatus.DONE), seconds=None)


def write(
    folder: Path, grid: Grid, entries: Mapping[str, Entry], known: Mapping[str, Entry], *, rest: Mapping[str, Entry]
) -> None:
    """Write grid.json with the entries of all cells, by name. Raises WriteError if it cannot be written.

    `known`: what the file said before this process looked at the cells in `entries`. `rest`: entries of the cells that
    it did not look at. An entry that another process has changed since then is newer and stays, unless it is of another
    run. If another process is at work on a cell that the grid does not have, its entry stays, too: the two processes
    may have been given different seeds.
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
    """Change fields of one cell's entry, and add `took` to its seconds. `missing` is that entry, in case another
    process has written the file without it.

    Raises CheckpointError if the file cannot be read, and WriteError.
    """
    with locked(folder / _LOCK):
        if (manifest := read(folder)) is None:
            return
        entries = {entry.name: entry for entry in manifest.entries}
        if took and name in entries:
            changes["seconds"] = round((entries[name].seconds or 0.0) + took, 1)
        if (old := entries.get(name, missing)) is not None:
            entries[name] = replace(old, **changes)
        _write(folder, replace(manifest, entries=tuple(entries.values())))


def read(folder: Path) -> Manifest | None:
    """Read the grid of a folder; None if it has no grid.json.

    Raises CheckpointError for a file of another version, DamagedManifestError for one that is incomplete or not a
    grid's.
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
            f"{path} is damaged: run the grid again to write a new one, or name the run directories instead"
        ) from error


def known_entries(folder: Path) -> dict[str, Entry]:
    """Return the entries by name; none if grid.json is missing or damaged. Raises CheckpointError, see `read`."""
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
    """Flatten an entry: of its state, `status` and `reason` (its message), and other fields that are set."""
    content, nothing = asdict(entry), asdict(CellState())
    state, seconds = content.pop("state"), content.pop("seconds")
    told = {"status": state.pop("status"), "reason": state.pop("message")}
    return content | told | {name: v for name, v in state.items() if v != nothing[name]} | {"seconds": seconds}


def _entry(cell: Mapping[str, Any]) -> Entry:
    """Return the entry that `_to_json` flattened."""
    return _ENTRY.validate_python({**cell, "state": {**cell, "message": cell.get("reason", "")}})
