"""How the cells of a grid stand on disk: finished here or elsewhere, interrupted, at work in another process, or in
the way of one another. Nothing is believed but run directories."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repose.config.experiment import Experiment
from repose.config.run_id import run_id
from repose.grids.cells import ELSEWHERE
from repose.grids.file import CORPUS
from repose.grids.grid import Cell
from repose.grids.manifest import Entry, entry_of, moved
from repose.runs.folder import RunConfig, RunFolder
from repose.system.device import available_cores
from repose.system.errors import CheckpointError, ReposeError

Say = Callable[[str], None]
_MEASURED = ("bleu_every_epochs", "bleu_sentences", "bleu_mean_over")
"""Fields of `training` that are not in a run's id, since they measure the training without moving it."""


@dataclass(frozen=True)
class Identity:
    """What a cell's run is called, and the data it reads."""

    run_id: str
    data: str
    """Name of the prepared data's folder: it stands for the test set, too, which is not in the run's id."""
    split: str
    """The set that the finished run is scored on: "test", or "valid" where there is none."""


@dataclass(frozen=True)
class Survey:
    """How the cells of a grid stand."""

    entries: tuple[Entry, ...]
    blocked: frozenset[str]
    """Names of those that cannot be run: their corpus cannot be prepared, or another run lies in their place."""


def identify(cells: Sequence[Cell], *, say: Say) -> dict[str, Identity | ReposeError]:
    """The identity of each cell by name, or why it has none. Every corpus is prepared once, before any cell starts."""
    from repose.runs.run import digests_of
    from repose.tasks.corpus import CorpusData, prepare_corpus

    prepared: dict[str, CorpusData | ReposeError] = {}
    found: dict[str, Identity | ReposeError] = {}
    for cell in cells:
        experiment, key = cell.experiment, _data_settings(cell.experiment)
        if key not in prepared:
            try:
                prepared[key] = prepare_corpus(experiment, workers=available_cores(), say=_about(cell, say))
            except ReposeError as error:
                prepared[key] = error
        data = prepared[key]
        if isinstance(data, ReposeError):
            found[cell.name] = data
            continue
        try:
            digests = digests_of(experiment, data)
            found[cell.name] = Identity(run_id(experiment, digests), data.folder.name, data.measured)
        except ReposeError as error:
            found[cell.name] = error
    return found


def _about(cell: Cell, say: Say) -> Say:
    """Says whose corpus it is."""
    corpus = cell.labels.get(CORPUS)
    return say if corpus is None else lambda sentence: say(f"{corpus}: {sentence}")


def _data_settings(experiment: Experiment) -> str:
    """All settings that preparing a corpus may read."""
    training = asdict(experiment.training)
    limits = {name: v for name, v in training.items() if name.startswith("max_") or name in ("long_pairs", "init_from")}
    task = {"task": training.get("task")}
    return json.dumps([asdict(experiment.corpus), asdict(experiment.tokenizer), limits, task], sort_keys=True)


def look(
    cells: Sequence[Cell], identities: Mapping[str, Identity | ReposeError], folder: Path, known: Mapping[str, Entry]
) -> Survey:
    """How each cell stands. `folder` is the grid's; its siblings under --out are searched for finished runs, too."""
    entries: list[Entry] = []
    blocked: set[str] = set()
    elsewhere: dict[str, list[Path]] | None = None
    for cell in cells:
        before = known.get(cell.name)
        entry = entry_of(cell)
        identity = identities[cell.name]
        if isinstance(identity, ReposeError):
            entries.append(replace(entry, status="failed", reason=str(identity)))
            blocked.add(cell.name)
            continue
        entry = replace(entry, run_id=identity.run_id)
        if before is not None and before.run_id == identity.run_id:
            entry = replace(entry, seconds=before.seconds)
        entry = _here(entry, folder / cell.name, cell.experiment, identity)
        if entry.status == "done" or entry.reason.startswith(ELSEWHERE):
            entries.append(entry)
            continue
        elsewhere = finished_runs(folder.parent) if elsewhere is None else elsewhere
        candidates = (path for path in elsewhere.get(identity.run_id, ()) if path != folder / cell.name)
        twin = next((path for path in candidates if _same_figures(path, cell.experiment, identity)), None)
        if twin is not None:
            entry = replace(moved(entry, folder, twin), reason="", seconds=None)
        elif entry.status == "failed":
            blocked.add(cell.name)
        elif before is not None and before.status == "failed" and before.run_id == entry.run_id:
            entry = replace(entry, status="failed", reason=before.reason)
        entries.append(entry)
    return Survey(tuple(entries), frozenset(blocked))


def _here(entry: Entry, folder: Path, experiment: Experiment, identity: Identity) -> Entry:
    """By the run directory in the cell's own place."""
    if (holder := _holder(folder)) is not None:
        return replace(entry, status="running", reason=f"{ELSEWHERE}: process {holder}")
    if not (folder / "config.json").exists():
        return entry
    try:
        theirs = RunFolder(folder).config()
    except CheckpointError:
        reason = f"{folder / 'config.json'} is damaged or no run's: move {folder} away and run the grid again"
        return replace(entry, status="failed", reason=reason)
    if theirs.run_id != identity.run_id:
        reason = (
            f"{folder} holds run {theirs.run_id}, the cell is run {identity.run_id}: choose another --out, or "
            "move that folder away"
        )
        return replace(entry, status="failed", reason=reason)
    if not _measured_alike(theirs, experiment, identity):
        reason = (
            f"{folder} holds this training with other scores (its test set, decoding or training.bleu_* settings "
            "differ): choose another --out, or move that folder away"
        )
        return replace(entry, status="failed", reason=reason)
    if read_object(folder / f"scores.{identity.split}.json").get("run_id") != identity.run_id:
        return replace(entry, status="stopped", reason="interrupted")
    return replace(entry, status="done")


def finished_runs(out: Path) -> dict[str, list[Path]]:
    """Finished run directories under `out`, its own and those of its grids, by run id."""
    runs: dict[str, list[Path]] = {}
    for pattern in ("*/config.json", "*/*/config.json"):
        for path in sorted(out.glob(pattern)):
            identity, folder = read_object(path).get("run_id"), path.parent
            scores = (read_object(folder / f"scores.{split}.json") for split in ("test", "valid"))
            if isinstance(identity, str) and any(found.get("run_id") == identity for found in scores):
                runs.setdefault(identity, []).append(folder)
    return runs


def _same_figures(folder: Path, experiment: Experiment, identity: Identity) -> bool:
    """Whether a finished run of the same id was also measured on the same sentences in the same way."""
    try:
        theirs = RunFolder(folder).config()
    except CheckpointError:
        return False
    has_scores = (folder / f"scores.{identity.split}.json").exists()
    return has_scores and _measured_alike(theirs, experiment, identity)


def _measured_alike(theirs: RunConfig, experiment: Experiment, identity: Identity) -> bool:
    """Whether a run of the same id, finished or not, is one that is measured in the same way."""
    return (
        theirs.data == identity.data
        and theirs.experiment.decoding == experiment.decoding
        and all(getattr(theirs.experiment.training, name) == getattr(experiment.training, name) for name in _MEASURED)
    )


def read_object(path: Path) -> dict[str, Any]:
    """An object of a file; empty where it is damaged or something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _holder(folder: Path) -> str | None:
    """The process that holds a cell's lock, or its training's; None where both are free, and on Windows."""
    if sys.platform == "win32":
        return None
    import fcntl

    for lock in (folder / "cell.lock", folder / "state" / "lock"):
        if lock.exists():
            with lock.open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read().strip() or "unknown"
    return None
