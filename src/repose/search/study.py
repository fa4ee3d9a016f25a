"""The trials of a search, stored by Optuna: which settings to try next, and which trials go on to the next rung.

Optuna draws settings (with its tree-structured Parzen estimator, Bergstra et al. 2011) and keeps trials in a SQLite
file. Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934) decides at each rung: a trial goes on if it is
among the best `reduction`-th of those that have reached the rung so far, so no trial waits for the slowest.
"""

import json
import math
import random
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.config.file import to_json
from repose.search.file import Search, Value
from repose.system.errors import CheckpointError, of_extra

if TYPE_CHECKING:
    import optuna

DATABASE = "search.db"
_NAME = "search"
_SECONDS = 60
"""How long to wait while another process writes to the database."""
_MOST_LISTED = 100_000
"""Up to this many combinations, draw from a list of all of them."""
_MOST_DRAWN = 20
"""How often to draw again to find a combination that was not tried before."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A trial's rank at the rung where it was stopped."""

    epochs: int
    rank: int
    """Rank, from 1, among the trials that had reached the rung."""
    of: int


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a trial has cost; stored with the trial, because its folder may be deleted."""

    epochs: int = 0
    """Complete, validated epochs."""
    updates: int = 0
    seconds: float = 0.0
    """Wall-clock time of training."""


NOTHING = Spent()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial and how far it has come."""

    number: int
    values: Mapping[str, Value]
    state: str
    """running (it can continue), stopped (at a rung), complete or failed."""
    rungs: Mapping[int, float]
    """Maps epochs to the objective's best value up to then."""
    verdict: Verdict | None
    """Its rank at the rung where it was stopped."""
    message: str
    """Why it failed."""
    spent: Spent = NOTHING
    """Cost up to its last rung."""


class Study:
    """The trials of one search, stored in its folder. Safe to use from several threads."""

    def __init__(self, search: Search, folder: Path) -> None:
        """Raises ConfigError if Optuna is missing, CheckpointError if the folder holds another search."""
        self._optuna = _imported()
        self._search, self._folder, self._lock = search, folder, threading.Lock()
        self._study = self._opened(folder)
        self._resumed = [trial.number for trial in self._trials() if trial.state.name == "RUNNING"]

    def _opened(self, folder: Path) -> "optuna.Study":
        from sqlalchemy.pool import NullPool

        optuna, search = self._optuna, self._search
        path = folder / DATABASE
        try:
            connect = partial(sqlite3.connect, path.absolute(), timeout=_SECONDS, check_same_thread=False)
            engine = {"creator": connect, "poolclass": NullPool}  # a URL cannot express every path
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs=engine)
            study = optuna.create_study(
                storage=storage,
                study_name=_NAME,
                load_if_exists=True,
                direction="maximize" if search.best_is_highest else "minimize",
            )
        except Exception as error:  # an error of SQLAlchemy, which Optuna uses
            remedy = "restore it, or choose another --out"
            raise CheckpointError(f"{path} cannot be used ({type(error).__name__}): {remedy}") from error
        what = _identity(search)
        before = study.user_attrs.get("search", what)
        if differing := _differing(before, what):
            raise CheckpointError(
                f"{folder} holds a search with other settings ({', '.join(differing)}): choose another --out, or "
                "those of that search"
            )
        kinds = {name: type(kind) for name, kind in _distributions(optuna, search).items()}
        drawn = {name: type(kind) for trial in study.get_trials() for name, kind in trial.distributions.items()}
        if otherwise := [name for name in drawn if drawn[name] is not kinds[name]]:
            raise CheckpointError(
                f"{folder} holds a search that drew only whole numbers for {', '.join(otherwise)} where this one does "
                "not, or the other way round: choose another --out"
            )
        study.set_user_attr("search", what)
        return study

    def check_data(self, digests: Mapping[str, Mapping[str, str]]) -> None:
        """Raise CheckpointError if earlier trials read other data. `digests`: those of each corpus."""
        before = self._study.user_attrs.get("data", {})
        if self.known() and any(before.get(corpus, now) != now for corpus, now in digests.items()):
            raise CheckpointError(
                f"{self._folder} holds trials that read other files, which cannot be compared with new ones: choose "
                "another --out, or put the files of those trials back"
            )
        self._study.set_user_attr("data", {**before, **digests})

    def _trials(self) -> "list[optuna.trial.FrozenTrial]":
        return self._study.get_trials(deepcopy=False)

    def take(self) -> Trial | None:
        """Return a trial to train: an unfinished one of an earlier call, or a new one; None if all are taken."""
        with self._lock:
            if self._resumed:
                return self._trial(self._trials()[self._resumed.pop(0)])
            trials = [trial for trial in self._trials() if trial.state.name != "WAITING"]
            if len(trials) >= self._search.trials:
                return None
            distributions = _distributions(self._optuna, self._search)
            if len(trials) == len(self._trials()):
                self._study.enqueue_trial(self._drawn(trials, distributions))
            number = self._study.ask(distributions).number
            return self._trial(self._trials()[number])

    def _drawn(self, trials: "list[optuna.trial.FrozenTrial]", distributions: Mapping[str, Any]) -> dict[str, Value]:
        """Return valid values for the next trial, which no earlier trial had unless hardly any others are left.

        They depend only on the seed and on the earlier trials.
        """
        optuna, search, combinations = self._optuna, self._search, self._search.combinations
        tried = [search.shown(_values(trial)) for trial in trials]
        can_be_listed = combinations is not None and combinations <= _MOST_LISTED
        if search.ranges or not can_be_listed:
            sampler = optuna.samplers.TPESampler(seed=(search.seed * 1_000_003 + len(trials)) % 2**32)
            study = optuna.create_study(sampler=sampler, direction=self._study.direction)  # in memory, not stored
            study.add_trials(trials)
            for _ in range(_MOST_DRAWN):
                values: dict[str, Value] = study.ask(dict(distributions)).params
                if search.shown(values) not in tried and search.stand(values):
                    return values
            if not can_be_listed:
                return values
        assert combinations is not None
        order = random.Random(search.seed).sample(range(combinations), combinations)
        for can_be in (True, False):  # invalid values are drawn, and reported, only if nothing else is left
            listed = (_combination(search, index) for index in order)
            untried = (values for values in listed if search.shown(values) not in tried)
            if (found := next((values for values in untried if search.stand(values) or not can_be), None)) is not None:
                return found
        raise AssertionError("there are as many trials as combinations at most")

    def goes_on(self, number: int, epochs: int, figure: float, spent: Spent) -> bool:
        """Store a trial's figure at a rung; return whether it goes on. At the last rung it is complete.

        Asked again after a kill, it gives the same answer as before. (Optuna's own pruner has the same rule but
        answers only once.)
        """
        with self._lock:
            frozen = self._trials()[number]
            trial = self._optuna.trial.Trial(self._study, frozen._trial_id)  # the way Optuna's own workers create it
            if epochs not in frozen.intermediate_values:
                trial.report(figure, epochs)
            trial.set_user_attr("spent", asdict(spent))
            if epochs == self._search.rungs[-1]:
                self._study.tell(number, figure)
                return False
            if epochs <= frozen.user_attrs.get("went_on", 0):
                return True
            if frozen.user_attrs.get("verdict", {}).get("epochs") != epochs:
                there = [f for t in self._trials() if (f := t.intermediate_values.get(epochs)) is not None]
                better = sum((f > figure) if self._search.best_is_highest else (f < figure) for f in there)
                if better < max(1, len(there) // self._search.reduction) and not math.isnan(figure):
                    trial.set_user_attr("went_on", epochs)
                    return True
                trial.set_user_attr("verdict", {"epochs": epochs, "rank": better + 1, "of": len(there)})
            self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED)
            return False

    def failed(self, number: int, message: str) -> None:
        """Store that a trial failed."""
        with self._lock:
            trial = self._optuna.trial.Trial(self._study, self._trials()[number]._trial_id)
            trial.set_user_attr("message", message)
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def known(self) -> list[Trial]:
        """Return all trials that were started."""
        with self._lock:
            return [self._trial(trial) for trial in self._trials() if trial.state.name != "WAITING"]

    def _trial(self, trial: "optuna.trial.FrozenTrial") -> Trial:
        states = {"RUNNING": "running", "PRUNED": "stopped", "COMPLETE": "complete", "FAIL": "failed"}
        verdict = trial.user_attrs.get("verdict")
        return Trial(
            number=trial.number,
            values=_values(trial),
            state=states[trial.state.name],
            rungs=dict(trial.intermediate_values),
            verdict=None if verdict is None else Verdict(**verdict),
            message=str(trial.user_attrs.get("message", "")),
            spent=Spent(**trial.user_attrs.get("spent", {})),
        )


def _imported() -> Any:
    with of_extra("search", "searching needs Optuna"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _identity(search: Search) -> dict[str, Any]:
    """Return what identifies a search: everything but the number of trials, which may be raised later."""
    axes = {axis.name: [[c.label, c.preset, c.settings] for c in axis.choices] for axis in search.lists}
    ranges = {one.name: [one.setting, one.low, one.high, one.log] for one in search.ranges}
    numbers = {name: getattr(search, name) for name in ("objective", "reduction", "seed")}
    rungs, settings = list(search.rungs), to_json(search.example())
    return {"lists": axes, "ranges": ranges, **numbers, "rungs": rungs, "settings": settings}


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of what differs between two identities; for the settings that all trials share, which ones."""
    found = [name for name in now if before.get(name) != now[name]]
    if "settings" not in found:
        return found
    one, other = (json.loads(of.get("settings", "{}")) for of in (before, now))
    names = {
        f"{section}.{name}": None
        for section in {**one, **other}
        for name in {**one.get(section, {}), **other.get(section, {})}
        if one.get(section, {}).get(name) != other.get(section, {}).get(name)
    }
    return [*(name for name in found if name != "settings"), *names]


def _distributions(optuna: Any, search: Search) -> "dict[str, optuna.distributions.BaseDistribution]":
    kinds = optuna.distributions
    found = {axis.name: kinds.CategoricalDistribution([c.label for c in axis.choices]) for axis in search.lists}
    for one in search.ranges:
        kind = kinds.IntDistribution if one.is_whole else kinds.FloatDistribution
        found[one.name] = kind(one.low, one.high, log=one.log)
    return found


def _values(trial: "optuna.trial.FrozenTrial") -> dict[str, Value]:
    """Return a trial's values, even if it was killed before Optuna had stored all of them."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _combination(search: Search, index: int) -> dict[str, Value]:
    """Return the combination with this index."""
    values: dict[str, Value] = {}
    sides: list[tuple[str, Any]] = [(axis.name, [c.label for c in axis.choices]) for axis in search.lists]
    sides += [(one.name, range(int(one.low), int(one.high) + 1)) for one in search.ranges]
    for name, side in sides:
        index, place = divmod(index, len(side))
        values[name] = side[place]
    return values
