"""Find the status of a grid's cells on disk, only from their run directories.

A cell may be finished here or elsewhere, interrupted, running in another process, or blocked by another run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from repose.config.experiment import Experiment
from repose.config.run_id import MEASURING, id_of_settings, run_id
from repose.grids.cells import CellState, CellStatus, holder_of
from repose.grids.file import CORPUS
from repose.grids.grid import Cell
from repose.grids.manifest import Entry, entry_of, moved
from repose.saved_run.folder import SCORED_SPLITS, RunConfig, RunFolder
from repose.saved_run.records import RunStatus
from repose.system.device import available_cores
from repose.system.errors import CheckpointError, ConfigError, ReposeError
from repose.system.terminal import Say


@dataclass(frozen=True)
class Identity:
    """The id of a cell's run, and the data that it reads."""

    run_id: str
    data: str
    """Name of the prepared data's folder. It also identifies the test set, which is not part of the run's id."""
    split: str
    """The set that the finished run is scored on: "test", or "valid" if there is no test set."""


def identify(cells: Sequence[Cell], *, say: Say) -> dict[str, Identity | ReposeError]:
    """Return each cell's identity by name, or why it has none. Prepares every corpus once, before any cell starts."""
    from repose.runs.run import digests_of
    from repose.tasks.corpus import prepare_corpus
    from repose.tasks.corpus_files import shaping_settings
    from repose.tasks.prepared import CorpusData

    prepared: dict[str, CorpusData | ReposeError] = {}
    found: dict[str, Identity | ReposeError] = {}
    for cell in cells:
        experiment, key = cell.experiment, shaping_settings(cell.experiment)
        if key not in prepared:
            whose = f"{cell.labels[CORPUS]}: " if CORPUS in cell.labels else ""
            try:
                tell = partial(lambda whose, sentence: say(whose + sentence), whose)
                prepared[key] = prepare_corpus(experiment, workers=available_cores(), say=tell)
            except ReposeError as error:
                prepared[key] = error
        data = prepared[key]
        try:
            if isinstance(data, ReposeError):
                raise data
            identity = run_id(experiment, digests_of(experiment, data))
            found[cell.name] = Identity(identity, data.folder.name, data.measured)
        except ReposeError as error:
            found[cell.name] = error
    return found


def check_distinct(cells: Sequence[Cell], identities: Mapping[str, Identity | ReposeError]) -> None:
    """Refuse two cells that are the same run, measured in the same way, however their settings are written: it would
    count twice. Raises ConfigError."""
    seen: dict[object, Cell] = {}
    for cell in cells:
        identity, training = identities[cell.name], cell.experiment.training
        if isinstance(identity, ReposeError):
            continue
        measured = tuple(getattr(training, name) for name in MEASURING)
        twin = seen.setdefault((identity, cell.experiment.decoding, measured), cell)
        if twin is not cell:
            raise ConfigError(
                f"cells {twin.name} and {cell.name} are the same run, {identity.run_id}: exclude one of them"
            )


def look(
    cells: Sequence[Cell], identities: Mapping[str, Identity | ReposeError], folder: Path, known: Mapping[str, Entry]
) -> tuple[tuple[Entry, ...], set[str]]:
    """Return the entry of each cell with its status, and the names of cells that cannot be run, because their corpus
    cannot be prepared or another run is in their place. `folder` is the grid's; its siblings under --out are also
    searched for finished runs."""
    runs = cache(partial(finished_runs, folder.parent))
    looked = [_look_at(cell, identities[cell.name], folder, known.get(cell.name), runs) for cell in cells]
    return tuple(entry for entry, _ in looked), {entry.name for entry, is_blocked in looked if is_blocked}


def _look_at(
    cell: Cell,
    identity: Identity | ReposeError,
    folder: Path,
    before: Entry | None,
    finished: Callable[[], Mapping[str, Sequence[Path]]],
) -> tuple[Entry, bool]:
    """Return a cell's entry, and whether it cannot be run. `before` is its entry so far; `finished` searches for
    finished runs, by id."""
    entry, place = entry_of(cell), folder / cell.name
    if isinstance(identity, ReposeError):
        if before is not None and is_finished(folder, before):  # even if its corpus is gone
            return before, False
        if before is not None:  # the corpus's files may come back
            entry = replace(entry, run_id=before.run_id, seconds=before.seconds)
        return replace(entry, state=_failed(identity)), True
    if before is not None and before.run_id != identity.run_id:
        before = None
    state = _here(place, cell.experiment, identity)
    begun = before is not None and before.status in (CellStatus.DONE, CellStatus.STOPPED)
    removed = begun and not RunFolder(place).exists  # the cell is trained again
    seconds = None if before is None or removed else before.seconds
    entry = replace(entry, run_id=identity.run_id, state=state, seconds=seconds)
    if state.status in (CellStatus.DONE, CellStatus.ELSEWHERE):
        return entry, False
    others = (path for path in finished().get(identity.run_id, ()) if path != place)
    if (twin := next((path for path in others if _same_figures(path, cell.experiment, identity)), None)) is not None:
        return moved(entry, folder, twin), False
    if state.status != CellStatus.FAILED and before is not None and before.status == CellStatus.FAILED:
        entry = replace(entry, state=before.state)
    return entry, state.status == CellStatus.FAILED


def unseen(cell: Cell, folder: Path, known: Mapping[str, Entry]) -> Entry:
    """Return the entry of a cell that this call is not about, so that its corpus is not prepared: from what is known of
    it, else from its run directory. `folder` is the grid's."""
    entry, before, run = entry_of(cell), known.get(cell.name), RunFolder(folder / cell.name)
    if before is not None:
        return replace(before, group=entry.group, labels=entry.labels, seed=entry.seed)
    try:
        identity = run.config().run_id if run.exists else None
    except CheckpointError:
        return entry
    if identity is None:
        return entry
    done = identity in {_scored(run, split) for split in SCORED_SPLITS}
    return replace(entry, run_id=identity, state=CellState(status=CellStatus.DONE if done else CellStatus.STOPPED))


def _failed(why: object) -> CellState:
    return CellState(status=CellStatus.FAILED, message=str(why))


def _here(folder: Path, experiment: Experiment, identity: Identity) -> CellState:
    """Return a cell's state, from the run directory in the cell's own place."""
    run = RunFolder(folder)
    if (holder := holder_of(folder)) is not None:
        return CellState(status=CellStatus.ELSEWHERE, message=holder)
    if not run.exists:
        return CellState()
    try:
        theirs = run.config()
    except CheckpointError as error:
        return _failed(f"{error}; or move {folder} away and run the grid again")
    if theirs.run_id != identity.run_id:
        return _failed(
            f"{folder} holds run {theirs.run_id}, which has settings or data that differ from those of the cell's run "
            f"{identity.run_id}: choose another --out, or move that folder away"
        )
    if not _measured_alike(theirs, experiment, identity):
        return _failed(
            f"{folder} holds this training with other scores (its test set, decoding or training.bleu_* settings "
            "differ): to score its model in another way, run `repose evaluate`; to train it again, choose another --out"
        )
    done = _scored(run, identity.split) == identity.run_id
    return CellState(status=CellStatus.DONE if done else CellStatus.STOPPED)


def finished_runs(out: Path) -> dict[str, list[Path]]:
    """Return the finished run directories under `out`, directly or in its grids, by run id."""
    runs: dict[str, list[Path]] = {}
    for pattern in ("*/config.json", "*/*/config.json"):
        for folder in sorted(path.parent for path in out.glob(pattern)):
            for identity in {_scored(RunFolder(folder), split) for split in SCORED_SPLITS} - {None}:
                runs.setdefault(str(identity), []).append(folder)
    return runs


def _scored(run: RunFolder, split: str) -> str | None:
    """Return the id of the finished run that has scores of a set in this folder. None if scores are missing or damaged,
    or if the training was only stopped: `repose evaluate --out` writes scores then, too."""
    try:
        identity = id_of_settings(str((run.scores(split) or {})["run_id"]))
        return identity if run.records(may_be_empty=True).status is RunStatus.DONE else None
    except (CheckpointError, KeyError):
        return None


def is_finished(folder: Path, entry: Entry) -> bool:
    """Return whether an entry is done and its run is there with its scores."""
    run = RunFolder(folder / entry.folder)
    return entry.status == CellStatus.DONE and any(_scored(run, split) == entry.run_id for split in SCORED_SPLITS)


def _same_figures(folder: Path, experiment: Experiment, identity: Identity) -> bool:
    """Return whether a finished run with the same id was also measured on the same sentences in the same way."""
    run = RunFolder(folder)
    try:
        return run.scores_file(identity.split).exists() and _measured_alike(run.config(), experiment, identity)
    except CheckpointError:
        return False


def _measured_alike(theirs: RunConfig, experiment: Experiment, identity: Identity) -> bool:
    """Return whether a run, finished or not, has this identity and is measured in the same way."""
    return (
        (theirs.run_id, theirs.data) == (identity.run_id, identity.data)
        and theirs.experiment.decoding == experiment.decoding
        and all(getattr(theirs.experiment.training, name) == getattr(experiment.training, name) for name in MEASURING)
    )
