"""The trials of a search as Optuna keeps them: what is drawn next, and who goes on to the next rung.

Optuna draws (its tree-structured Parzen estimator, Bergstra et al. 2011) and keeps trials in a SQLite file. Rungs
decide by asynchronous successive halving (Li et al. 2020, arXiv 1810.05934): a trial goes on where it is among the best
`reduction`-th of those that have reached the rung so far, so that nobody waits for the slowest.
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
from repose.system.errors import CheckpointError, MissingExtraError

if TYPE_CHECKING:
    import optuna

DATABASE = "search.db"
_NAME = "search"
_SECONDS = 60
"""To wait for another process that writes the database."""
_MOST_LISTED = 100_000
"""Combinations that are drawn from a list of all."""
_MOST_DRAWN = 20
"""Draws for a combination that was not tried before."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a trial stood at the rung where it was stopped."""

    epochs: int
    rank: int
    """Its place, from 1, among those that had reached the rung."""
    of: int


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a trial has cost; kept with it, since its folder may be deleted."""

    epochs: int = 0
    """Whole ones, validated."""
    updates: int = 0
    seconds: float = 0.0
    """Wall-clock time of training."""


NOTHING = Spent()


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the study knows of a trial."""

    number: int
    values: Mapping[str, Value]
    state: str
    """running, stopped, complete or failed."""
    rungs: Mapping[int, float]
    """Epochs to the figure there."""
    verdict: Verdict | None
    message: str
    """Why it failed."""
    spent: Spent = NOTHING
    """Up to its last rung."""


class Study:
    """The trials of one search, in its folder. May be asked from several threads."""

    def __init__(self, search: Search, folder: Path) -> None:
        """Raises ConfigError where Optuna is missing, CheckpointError where the folder holds another search."""
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
            engine = {"creator": connect, "poolclass": NullPool}  # a URL could not spell every path
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs=engine)
            study = optuna.create_study(
                storage=storage,
                study_name=_NAME,
                load_if_exists=True,
                direction="maximize" if search.best_is_highest else "minimize",
            )
        except Exception as error:  # of SQLAlchemy, which is Optuna's
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
        """Raises CheckpointError where trials of before read other data. `digests`: those of each corpus."""
        before = self._study.user_attrs.get("data", {})
        if self.known() and any(before.get(corpus, now) != now for corpus, now in digests.items()):
            raise CheckpointError(
                f"{self._folder} holds trials that read other files, which cannot be compared with new ones: choose "
                "another --out, or put the files of those trials back"
            )
        self._study.set_user_attr("data", {**before, **digests})

    def _trials(self) -> "list[optuna.trial.FrozenTrial]":
        return self._study.get_trials(deepcopy=False)

    def take(self) -> Known | None:
        """A trial to go on with: one that an earlier call began, or a new one; None where all are taken."""
        with self._lock:
            if self._resumed:
                return self._known(self._trials()[self._resumed.pop(0)])
            trials = [trial for trial in self._trials() if trial.state.name != "WAITING"]
            if len(trials) >= self._search.trials:
                return None
            distributions = _distributions(self._optuna, self._search)
            if len(trials) == len(self._trials()):
                self._study.enqueue_trial(self._drawn(trials, distributions))
            number = self._study.ask(distributions).number
            return self._known(self._trials()[number])

    def _drawn(self, trials: "list[optuna.trial.FrozenTrial]", distributions: Mapping[str, Any]) -> dict[str, Value]:
        """The values of the next trial, which can stand together; those of none before, unless ranges have hardly any
        others left.

        They depend on the seed and the trials before alone.
        """
        optuna, search, combinations = self._optuna, self._search, self._search.combinations
        tried = [search.shown(_values(trial)) for trial in trials]
        can_be_listed = combinations is not None and combinations <= _MOST_LISTED
        if search.ranges or not can_be_listed:
            sampler = optuna.samplers.TPESampler(seed=(search.seed * 1_000_003 + len(trials)) % 2**32)
            study = optuna.create_study(sampler=sampler, direction=self._study.direction)  # in memory: keeps nothing
            study.add_trials(trials)
            for _ in range(_MOST_DRAWN):
                values: dict[str, Value] = study.ask(dict(distributions)).params
                if search.shown(values) not in tried and search.stand(values):
                    return values
            if not can_be_listed:
                return values
        assert combinations is not None
        order = random.Random(search.seed).sample(range(combinations), combinations)
        for can_be in (True, False):  # what cannot is drawn, and told, where there is nothing else
            listed = (_combination(search, index) for index in order)
            untried = (values for values in listed if search.shown(values) not in tried)
            if (found := next((values for values in untried if search.stand(values) or not can_be), None)) is not None:
                return found
        raise AssertionError("there are as many trials as combinations at most")

    def goes_on(self, number: int, epochs: int, figure: float, spent: Spent) -> bool:
        """Enter a trial's figure at a rung; whether it goes on from there. At the last it is complete.

        Asked again after a kill, the answer is that of before, if there was one. (Optuna's own pruner, whose rule this
        is, answers once.)
        """
        with self._lock:
            frozen = self._trials()[number]
            trial = self._optuna.trial.Trial(self._study, frozen._trial_id)  # as Optuna's own workers make it
            if epochs not in frozen.intermediate_values:
                trial.report(figure, epochs)
            trial.set_user_attr("spent", asdict(spent))
            if epochs == self._search.rungs[-1]:
                self._study.tell(number, figure)
                return False
            if epochs <= frozen.user_attrs.get("went_on", 0):
                return True
            there = [f for t in self._trials() if (f := t.intermediate_values.get(epochs)) is not None]
            better = sum((f > figure) if self._search.best_is_highest else (f < figure) for f in there)
            if better < max(1, len(there) // self._search.reduction) and not math.isnan(figure):
                trial.set_user_attr("went_on", epochs)
                return True
            trial.set_user_attr("verdict", {"epochs": epochs, "rank": better + 1, "of": len(there)})
            self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED)
            return False

    def failed(self, number: int, message: str) -> None:
        """Enter that a trial came to nothing."""
        with self._lock:
            trial = self._optuna.trial.Trial(self._study, self._trials()[number]._trial_id)
            trial.set_user_attr("message", message)
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def known(self) -> list[Known]:
        """All trials that began."""
        with self._lock:
            return [self._known(trial) for trial in self._trials() if trial.state.name != "WAITING"]

    def _known(self, trial: "optuna.trial.FrozenTrial") -> Known:
        states = {"RUNNING": "running", "PRUNED": "stopped", "COMPLETE": "complete", "FAIL": "failed"}
        verdict = trial.user_attrs.get("verdict")
        return Known(
            number=trial.number,
            values=_values(trial),
            state=states[trial.state.name],
            rungs=dict(trial.intermediate_values),
            verdict=None if verdict is None else Verdict(**verdict),
            message=str(trial.user_attrs.get("message", "")),
            spent=Spent(**trial.user_attrs.get("spent", {})),
        )


def _imported() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("searching needs Optuna: pip install 'repose-nmt[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _identity(search: Search) -> dict[str, Any]:
    """What makes two calls parts of one search: all but the number of trials, which may be raised."""
    axes = {axis.name: [[c.label, c.preset, c.settings] for c in axis.choices] for axis in search.lists}
    ranges = {one.name: [one.setting, one.low, one.high, one.log] for one in search.ranges}
    numbers = {name: getattr(search, name) for name in ("objective", "reduction", "seed")}
    rungs, settings = list(search.rungs), to_json(search.example())
    return {"lists": axes, "ranges": ranges, **numbers, "rungs": rungs, "settings": settings}


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not alike in two of these, by name; of the settings that all trials share, which."""
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
    """What a trial was drawn to be, also where a kill left Optuna no time to enter all of it."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _combination(search: Search, index: int) -> dict[str, Value]:
    """That of this index among all."""
    values: dict[str, Value] = {}
    sides: list[tuple[str, Any]] = [(axis.name, [c.label for c in axis.choices]) for axis in search.lists]
    sides += [(one.name, range(int(one.low), int(one.high) + 1)) for one in search.ranges]
    for name, side in sides:
        index, place = divmod(index, len(side))
        values[name] = side[place]
    return values
