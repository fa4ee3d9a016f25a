"""grid.json: which cells a grid has, where they lie and how they stand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repose.grids.file import CORPUS
from repose.grids.manifest import FORMAT, NAME
from repose.system.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """One cell."""

    name: str
    system: str
    """Its labels but for the corpus, joined."""
    corpus: str | None
    """Its label on the corpus axis, if there is one."""
    labels: Mapping[str, str]
    run_id: str | None
    """Of the run that the cell is; None where its data was never prepared."""
    folder: Path
    """Relative to the grid's."""
    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class GridFolder:
    """A grid's folder."""

    folder: Path
    name: str
    about: str
    report: Mapping[str, Any]
    """The table [grid.report]."""
    cells: tuple[GridCell, ...]


def read_grid(folder: Path) -> GridFolder | None:
    """The grid of a folder; None where it has no grid.json. Raises CheckpointError for one that cannot be read."""
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {content['format']}, this repose reads {FORMAT}: name the run directories instead"
            )
        return GridFolder(
            folder=folder,
            name=str(content["name"]),
            about=str(content.get("about", "")),
            report=dict(content.get("report") or {}),
            cells=tuple(_cell(cell) for cell in content["cells"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged: run the grid again, which writes it anew, or name the run directories instead"
        ) from error


def _cell(cell: Mapping[str, Any]) -> GridCell:
    labels = {str(axis): str(label) for axis, label in cell["labels"].items()}
    others = [label for axis, label in labels.items() if axis != CORPUS]
    return GridCell(
        name=str(cell["name"]),
        system="-".join(others) or str(cell["group"]),
        corpus=labels.get(CORPUS),
        labels=labels,
        run_id=cell.get("run_id"),
        folder=Path(cell["folder"]),
        status=str(cell["status"]),
        reason=str(cell.get("reason", "")),
    )
