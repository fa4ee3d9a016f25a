"""Run a search: each trial is a process that trains from rung to rung in its own run directory."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repose.config.file import to_json
from repose.grids.cells import CellJob, CellState, CellStatus, run_cell
from repose.grids.local import RunCell, Share, in_places
from repose.saved_run.folder import RunFolder
from repose.search.file import Search
from repose.search.study import NOTHING, Spent, Study, Trial
from repose.system.errors import CheckpointError, ConfigError, ReposeError
from repose.system.files import writing
from repose.system.helper import how_it_ended
from repose.system.locks import locked_or_busy
from repose.system.signals import stopping
from repose.system.terminal import Say

LOCK = ".search.lock"


@dataclass(frozen=True)
class Reached:
    """How far a trial's training has come, according to its run directory."""

    spent: Spent = NOTHING
    figures: Mapping[int, float] = field(default_factory=dict)
    """Maps epochs to the objective's value after them."""

    def best(self, epochs: int, *, highest: bool) -> float | None:
        """Return the best figure up to this epoch; None if the epoch has not been validated yet."""
        if epochs not in self.figures:
            return None
        found = [figure for epoch, figure in self.figures.items() if epoch <= epochs]
        return max(found) if highest else min(found)


def folder_of(folder: Path, number: int) -> Path:
    """Return the run directory of a trial."""
    return folder / f"trial-{number:03d}"


def reached(path: Path, metric: str) -> Reached:
    """Read how far a trial has come from its run directory."""
    try:
        records = RunFolder(path).records(may_be_empty=True)
    except CheckpointError:
        return Reached()
    valid = records.of_kind("valid")
    if not valid:
        return Reached()
    figures, last = {int(one["epoch"]): float(one[metric]) for one in valid if metric in one}, valid[-1]
    seconds = float(last.get("wall", {}).get("seconds", 0.0))
    return Reached(Spent(epochs=int(last["epoch"]), updates=int(last["update"]), seconds=seconds), figures)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the search's folder. Raises BusyError if another process holds it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked_or_busy(folder / LOCK, f"searches in {folder}: wait for it, stop it, or choose another --out"):
        yield


def prepare(search: Search, say: Say) -> dict[str, dict[str, str]]:
    """Prepare each corpus of the search. Returns its settings, as JSON, mapped to the digests of what trials read.

    An error in the first corpus is raised here, so that it is reported once; other unusable corpora are left out.
    Raises ConfigError if trials would be compared on different sentences.
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
            f"the corpora of {search.name} have different validation sets, whose figures cannot be compared: name the "
            'same files as "corpus.valid" in each choice that sets "corpus.train", beside it'
        )
    return found


@dataclass
class Searcher:
    """Trains trials from rung to rung until all are done or a stop is requested."""

    search: Search
    study: Study
    folder: Path
    share: Share
    device: str = "auto"
    say: Say = lambda _: None
    run_cell: RunCell = run_cell

    def __post_init__(self) -> None:
        self.stop, self.kill = threading.Event(), threading.Event()

    def run(self) -> bool:
        """Run all trials; return whether all of them ended. Errors that do not belong to one trial are raised."""
        with stopping(self.stop, self.kill.set):
            in_places(self.share, iter(self.study.take, None), self._follow, self.stop)
        known = self.study.known()
        return len(known) >= self.search.trials and all(trial.state != "running" for trial in known)

    def _follow(self, trial: Trial, place: int, cores: tuple[int, ...]) -> None:
        """Train one trial until it is stopped, fails or is complete."""
        name, path = f"trial {trial.number}", folder_of(self.folder, trial.number)
        shown = ", ".join(f"{axis} {label}" for axis, label in self.search.shown(trial.values).items())
        try:
            experiment = to_json(self.search.experiment(trial.values))
        except ReposeError as error:
            self.study.failed(trial.number, str(error))
            self.say(f"{name} ({shown}) is not possible: {error}")
            return
        for epochs in self.search.rungs:
            if epochs < max(trial.rungs, default=0):
                continue  # it may have been killed before it could report the last rung that it reached
            figure = trial.rungs[epochs] if epochs in trial.rungs else self._figure(path, epochs)
            if figure is None:
                self.say(f"{name} ({shown}): to epoch {epochs}")
                device = self.share.device(place, self.device)
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

    def _ended(self, trial: Trial, state: CellState) -> None:
        """Handle a trial whose process ended before its rung: leave it if it can be resumed, or if its failure may not
        happen again."""
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
