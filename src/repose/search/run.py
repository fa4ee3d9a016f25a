"""Running a search: trials as processes, each trained from rung to rung in a run directory of its own."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repose.config.file import to_json
from repose.grids.cells import CellJob, CellState, CellStatus, run_cell
from repose.grids.local import RunCell, Share, in_places
from repose.runs.folder import RunFolder
from repose.search.file import Search
from repose.search.study import NOTHING, Known, Spent, Study
from repose.system.errors import CheckpointError, ConfigError, ReposeError
from repose.system.files import locked_or_busy, writing
from repose.system.helper import how_it_ended
from repose.system.signals import stopping
from repose.system.terminal import Say

LOCK = ".search.lock"


@dataclass(frozen=True)
class Reached:
    """How far a trial's training is, by its run directory."""

    spent: Spent = NOTHING
    figures: tuple[tuple[int, float], ...] = ()
    """Epochs and the objective's figure there."""

    def best(self, epochs: int, *, highest: bool) -> float | None:
        """The best figure up to an epoch whose own was measured; None before that."""
        found = [figure for epoch, figure in self.figures if epoch <= epochs]
        if self.spent.epochs < epochs or not found or epochs not in dict(self.figures):
            return None
        return max(found) if highest else min(found)


def folder_of(folder: Path, number: int) -> Path:
    """The run directory of a trial."""
    return folder / f"trial-{number:03d}"


def reached(path: Path, metric: str) -> Reached:
    """How far the run directory of a trial is."""
    try:
        records = RunFolder(path).records(may_be_empty=True)
    except CheckpointError:
        return Reached()
    valid = records.of_kind("valid")
    figures = tuple((int(record["epoch"]), float(record[metric])) for record in valid if metric in record)
    if not valid:
        return Reached()
    last = valid[-1]
    seconds = float(last.get("wall", {}).get("seconds", 0.0))
    return Reached(Spent(epochs=int(last["epoch"]), updates=int(last["update"]), seconds=seconds), figures)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds the search's folder. Raises BusyError where another process does."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked_or_busy(folder / LOCK, f"searches in {folder}: wait for it, stop it, or choose another --out"):
        yield


def prepare(search: Search, say: Say) -> dict[str, dict[str, str]]:
    """Prepare every corpus that is searched; the settings of each, as JSON, to the digests of what trials read.

    What is wrong with the first one is raised, so that it is said once; others that cannot be used are left out. Raises
    ConfigError where trials would be compared on other sentences.
    """
    from repose.runs.run import digests_of
    from repose.system.device import available_cores
    from repose.tasks.corpus import prepare_corpus

    found: dict[str, dict[str, str]] = {}
    measured = set[str]()
    for experiment in search.examples():
        try:
            data = prepare_corpus(experiment, workers=available_cores(), say=say)
            found[json.dumps(asdict(experiment.corpus))] = digests_of(experiment, data)
        except ReposeError:
            if not found:
                raise
            continue
        measured.add(json.dumps(data.text("valid")) if data.has_text("valid") else data.digests["valid"])
    if len(measured) > 1:
        raise ConfigError(
            f"the corpora of {search.name} have other validation sets, on which figures cannot be compared: name the "
            'same files as "corpus.valid" in each choice that sets "corpus.train", beside it'
        )
    return found


@dataclass
class Searcher:
    """Follows trials from rung to rung until all are done, or a stop is asked for."""

    search: Search
    study: Study
    folder: Path
    share: Share
    device: str = "auto"
    say: Say = lambda _: None
    run_cell: RunCell = run_cell

    def __post_init__(self) -> None:
        self.stop, self.kill = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []

    def run(self) -> bool:
        """Whether all trials came to their ends. Errors that are no trial's own are raised."""
        with stopping(self.stop, self.kill.set):
            in_places(self.share, self._work)
        if self.errors:
            raise self.errors[0]
        known = self.study.known()
        return len(known) >= self.search.trials and all(trial.state != "running" for trial in known)

    def _work(self, slot: int, cores: tuple[int, ...]) -> None:
        try:
            while not self.stop.is_set() and (trial := self.study.take()) is not None:
                self._follow(trial, slot, cores)
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()

    def _follow(self, trial: Known, slot: int, cores: tuple[int, ...]) -> None:
        """Train one trial until it is stopped, fails or is complete."""
        name, path = f"trial {trial.number}", folder_of(self.folder, trial.number)
        shown = ", ".join(f"{axis} {label}" for axis, label in self.search.shown(trial.values).items())
        try:
            experiment = to_json(self.search.experiment(trial.values))
        except ReposeError as error:
            self.study.failed(trial.number, str(error))
            self.say(f"{name} ({shown}) cannot be: {error}")
            return
        for epochs in self.search.rungs:
            if epochs < max(trial.rungs, default=0):
                continue  # at the last that it reached, it may have been killed before it was told
            figure = trial.rungs[epochs] if epochs in trial.rungs else self._figure(path, epochs)
            if figure is None:
                self.say(f"{name} ({shown}): to epoch {epochs}")
                device = self.share.device(slot, self.device)
                needs: dict[str, Any] = {"cores": self.share.cores, "device": device, "affinity": cores}
                job = CellJob(name=name, folder=path.absolute(), experiment=experiment, until_epoch=epochs, **needs)
                state = self.run_cell(job, stop=self.stop, kill=self.kill)
                figure = self._figure(path, epochs)
                if figure is None:
                    self._ended(trial, state)
                    return
            spent = reached(path, self.search.metric).spent
            goes_on = self.study.goes_on(trial.number, epochs, figure, spent)
            self.say(f"{name}: {self.search.objective} {figure:.4g} at epoch {epochs}{', goes on' * goes_on}")
            if not goes_on:
                return

    def _figure(self, path: Path, epochs: int) -> float | None:
        return reached(path, self.search.metric).best(epochs, highest=self.search.best_is_highest)

    def _ended(self, trial: Known, state: CellState) -> None:
        """What becomes of a trial whose process ended before its rung: nothing where it can go on, or
        failed of what the next attempt may not meet."""
        if state.status == CellStatus.ELSEWHERE:
            self.say(f"trial {trial.number}: {state.message}")
        if state.status in (CellStatus.STOPPED, CellStatus.ELSEWHERE):
            return
        code = state.exit_code
        ended = "it ended before its rung" if code is None else f"its process {how_it_ended(code)}"
        message = state.message or ended
        if state.passing:
            self.say(f"trial {trial.number} ended: {message}: the same command resumes it")
            return
        self.study.failed(trial.number, message)
        self.say(f"trial {trial.number} failed: {message}")
