"""Files that take space and can be made again: prepared corpora, graphs, and the training state of finished runs."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from repose.data.corpora import prepared_home
from repose.decoding.graph_cache import graphs_home
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import RunStatus
from repose.system.errors import CheckpointError, WriteError
from repose.system.locks import locked_or_busy, making_lock, trying_lock, using_lock
from repose.tasks.corpus import REPORT


class PreparedCorpus(NamedTuple):
    """A prepared corpus in the cache."""

    folder: Path
    num_bytes: int
    days: float
    """Days since it was made."""
    of: str
    """The name of the corpus, or of its files; "" if it was never finished."""
    what: str
    """The first sentence of its report; "" if it was never finished."""


def prepared_corpora() -> list[PreparedCorpus]:
    """Return all prepared corpora in the cache, largest first."""
    home = prepared_home()
    folders = [path for path in home.iterdir() if path.is_dir()] if home.is_dir() else []
    return sorted((_prepared(folder) for folder in folders), key=lambda one: -one.num_bytes)


def remove_graphs() -> tuple[int, int]:
    """Remove models' graphs; the next translation makes them again.

    Graphs that a process is making or using stay, and so do all lock files, which other processes may have open.
    Returns the bytes freed, and the number of models whose graphs stay. Raises WriteError if the cache is not writable.
    """
    home, freed, num_in_use = graphs_home(), 0, 0
    paths = list(home.iterdir()) if home.is_dir() else []
    for name in sorted({path.name.strip(".").split(".")[0] for path in paths}):  # abc: abc/, .abc.new/, .abc.lock
        with _held_alone(home / name) as is_free:
            if not is_free:
                num_in_use += 1
                continue
            for folder in filter(Path.is_dir, [home / name, *home.glob(f".{name}.*")]):
                freed += bytes_of(folder)
                shutil.rmtree(folder, ignore_errors=True)
    return freed, num_in_use


@contextlib.contextmanager
def _held_alone(place: Path) -> Iterator[bool]:
    """Lock a folder of the cache; yield False if another process makes or uses it."""
    with contextlib.ExitStack() as stack:
        yield all(stack.enter_context(trying_lock(lock)) for lock in (making_lock(place), using_lock(place)))


def graphs() -> tuple[int, int]:
    """Return how many models have graphs in the cache, and their size in bytes."""
    home = graphs_home()
    if not home.is_dir():
        return 0, 0
    return sum(path.is_dir() and path.name[0] != "." for path in home.iterdir()), bytes_of(home)


def _prepared(folder: Path) -> PreparedCorpus:
    made = folder / REPORT
    try:
        record = json.loads(made.read_text(encoding="utf-8"))
        of, what, at = str(record.get("of", "")), str(record["report"][0]), made.stat().st_mtime
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        of, what, at = "", "", folder.stat().st_mtime
    return PreparedCorpus(folder, bytes_of(folder), (time.time() - at) / 86_400, of, what)


def bytes_of(folder: Path) -> int:
    """Return the total size of a folder's files, ignoring files that vanish meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            size += 0 if path.is_dir() else path.lstat().st_size
    return size


def remove_prepared(one: PreparedCorpus) -> bool:
    """Remove a prepared corpus, which the next training prepares again; return whether it was removed.

    A corpus that a process is preparing or using stays. Raises WriteError if the cache is not writable.
    """
    with _held_alone(one.folder) as is_free:
        if is_free and one.folder.exists():
            try:
                shutil.rmtree(one.folder)
            except OSError as error:
                raise WriteError(
                    f"{one.folder} cannot be removed ({error.strerror}): remove it as the user who made it"
                ) from error
    return is_free


def remove_state(folder: Path) -> int:
    """Remove the training state of a finished run, which never resumes; return the bytes freed.

    Raises CheckpointError if the folder does not hold a finished run, BusyError if a process trains in it.
    """
    run = RunFolder(folder)
    if run.records(may_be_empty=True).status is not RunStatus.DONE or run.main_scores() is None:
        raise CheckpointError(f"{folder} is not finished, and needs its state to go on: let it finish first")
    if not run.state.is_dir():
        return 0
    with locked_or_busy(run.lock_file, f"is training in {folder}: wait for it"):
        size = bytes_of(run.state)
        for path in run.state.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != run.lock_file:
                path.unlink()
    with contextlib.suppress(OSError):  # the lock is gone, so another training may have begun
        run.state.rmdir()
    return size
