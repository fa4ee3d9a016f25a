"""The result of a search: each trial's rungs, why it ended and what it cost; as JSON, Markdown and a table."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repose.search.file import Search
from repose.search.run import folder_of, reached
from repose.search.study import Study, Trial
from repose.system.files import write_file, write_json
from repose.system.terminal import counted, duration, make_table, quoted

if TYPE_CHECKING:
    from rich.table import Table

JSON, MARKDOWN = "search.json", "search.md"
_OF = "of validation translations"
_NAMES = {"loss": "validation loss", "chrf": f"chrF {_OF}", "bleu": f"BLEU {_OF}"}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Updates and wall-clock seconds, summed over trials."""

    updates: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """A search and its trials so far."""

    search: Search
    trials: tuple[Trial, ...]

    @property
    def spent(self) -> Cost:
        """What the trials have cost so far."""
        costs = [trial.spent for trial in self.trials]
        return Cost(updates=sum(one.updates for one in costs), seconds=sum(one.seconds for one in costs))

    @property
    def in_full(self) -> Cost | None:
        """Estimated cost of training all these trials to the end, from the cost of their epochs so far; None before any
        was trained."""
        costs, whole = [trial.spent for trial in self.trials if trial.spent.epochs], self.search.rungs[-1]
        if not costs:
            return None
        return Cost(
            updates=sum(round(one.updates * whole / one.epochs) for one in costs),
            seconds=sum(one.seconds * whole / one.epochs for one in costs),
        )

    @property
    def best(self) -> Trial | None:
        """The best of the complete trials."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        sign, last = -1.0 if self.search.best_is_highest else 1.0, self.search.rungs[-1]
        return min(complete, key=lambda trial: sign * trial.rungs[last], default=None)

    @property
    def ranking(self) -> list[Trial]:
        """Trials by how far they came, then by their figure, best first."""
        sign, worst = -1.0 if self.search.best_is_highest else 1.0, float("inf")
        return sorted(
            self.trials, key=lambda t: (-max(t.rungs, default=0), sign * t.rungs[max(t.rungs)] if t.rungs else worst)
        )

    @property
    def whole_space(self) -> Cost | None:
        """Estimated cost of trying all combinations, from the mean trial; None if there are infinitely many."""
        combinations, full = self.search.combinations, self.in_full
        if combinations is None or full is None:
            return None
        share = combinations / sum(trial.spent.epochs > 0 for trial in self.trials)
        return Cost(updates=round(share * full.updates), seconds=share * full.seconds)


def result_of(search: Search, study: Study, folder: Path) -> Result:
    """Collect the current result from the study; and from the run directories what trials have cost, which may have
    gone on since their last rung."""
    trials = []
    for trial in study.known():
        now = reached(folder_of(folder, trial.number), search.metric).spent
        trials.append(replace(trial, spent=max(now, trial.spent, key=lambda spent: spent.updates)))
    return Result(search=search, trials=tuple(trials))


def write(result: Result, folder: Path) -> None:
    """Write search.json and search.md. Raises WriteError."""
    write_json(folder / JSON, to_json(result))
    write_file(folder / MARKDOWN, markdown(result, folder))


def to_json(result: Result) -> dict[str, Any]:
    """Return the result as JSON values."""
    search, best, full, whole = result.search, result.best, result.in_full, result.whole_space
    of_search = ("name", "about", "objective", "best_is_highest", "best_by", "rungs", "reduction", "combinations")
    return {
        **{name: getattr(search, name) for name in of_search},
        "planned": search.trials,
        "trials": [_trial_to_json(search, trial) for trial in result.trials],
        "spent": asdict(result.spent),
        "in_full": full and asdict(full),
        "best": best and best.number,
        "whole_space": whole and asdict(whole),
    }


def _trial_to_json(search: Search, trial: Trial) -> dict[str, Any]:
    """Return a trial with its run directory's name, and its settings also as options of `repose train`."""
    return {
        "number": trial.number,
        "folder": folder_of(Path(), trial.number).name,
        "settings": search.shown(trial.values),
        "overrides": search.overrides(trial.values),
        "state": trial.state,
        "rungs": trial.rungs,
        "verdict": trial.verdict and asdict(trial.verdict),
        "message": trial.message,
        **asdict(trial.spent),
    }


def why(trial: Trial) -> str:
    """Say in a few words why a trial has the state that it has."""
    if trial.verdict is not None:
        v = trial.verdict
        return f"{_ordinal(v.rank)} of {v.of} after {counted(v.epochs, 'epoch')}"
    words = {"running": "can go on", "failed": trial.message, "complete": "trained to the end"}
    return words[trial.state]


def sentences(result: Result, folder: Path) -> list[str]:
    """Return sentences on what was found, how to use it, and what it cost."""
    search, found = result.search, []
    if (best := result.best) is not None:
        settings = ", ".join(f"{name} {value}" for name, value in search.shown(best.values).items())
        figure = best.rungs[search.rungs[-1]]
        trained = sum(bool(trial.rungs) for trial in result.trials)
        unfinished = sum(trial.state == "running" for trial in result.trials)
        of = "Best so far of" if unfinished else "Best of"
        if trained < len(result.trials):
            of += f" {counted(trained, 'trained trial')} (of {len(result.trials)} in all)"
        else:
            of += f" {counted(trained, 'trial')}"
        of += f", {unfinished} unfinished" if unfinished else ""
        found.append(f"{of}: {settings}, with {_NAMES[search.objective]} {figure:.4g}.")
        path = folder_of(folder, best.number)
        command = f"repose evaluate {quoted(path)}"
        found.append(f"It is in {path}. Its score on the test set, which no trial has seen: {command}")
        if search.objective != "loss" and search.best_by == "loss":
            found.append(
                "Its figure is from one validation, and its weights are those with the lowest loss, which may "
                "translate worse: training.best_by = 'chrf' keeps those that translate best."
            )
        found.append(f"To use these settings elsewhere: {' '.join(search.overrides(best.values))}")
    if result.in_full is not None:
        spent, full, whole = result.spent, result.in_full, result.whole_space
        to_end = f"{counted(full.updates, 'update')} and {duration(full.seconds)}"
        all_of = "" if whole is None else f", all {search.combinations} combinations {counted(whole.updates, 'update')}"
        found.append(
            f"Cost: {counted(spent.updates, 'update')}, {duration(spent.seconds)} of training. The same trials, each "
            f"trained to the end, would have cost {to_end}{all_of}."
        )
    return found


def markdown(result: Result, folder: Path) -> str:
    """Return the Markdown page."""
    search = result.search
    head = [f"# Search {search.name}", *([search.about] if search.about else []), *sentences(result, folder)]
    after = " and ".join(map(str, search.rungs[:-1]))
    epochs = "epoch" if after == "1" else "epochs"
    rule = (
        f"After {after} {epochs} a trial is compared with those that got there before it, and goes on if it is among "
        f"the best 1 in {search.reduction}. "
        if after
        else ""
    )
    head.append(
        f"{rule}All figures are of the validation set ({_NAMES[search.objective]}: the best so far); the test set was "
        "not used. Training seeds are the same: differences as small as those between seeds say nothing."
    )
    columns, rows = _columns(search), [_cells(search, trial) for trial in result.ranking]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (columns, *rows)]
    table.insert(1, "|" + "---|" * len(columns))
    return "\n\n".join([*head, "\n".join(table)]) + "\n"


def table(result: Result) -> "Table":
    """Return the trials as a table for the terminal."""
    columns, first = _columns(result.search), 1 + len(result.search.settings)
    figures = range(first, first + len(result.search.rungs))
    right = [0, *figures, len(columns) - 2, len(columns) - 1]
    return make_table(columns, [_cells(result.search, trial) for trial in result.ranking], right=right)


def _columns(search: Search) -> list[str]:
    rungs = [f"{search.objective}, {counted(epochs, 'epoch')}" for epochs in search.rungs]
    return ["trial", *search.settings, *rungs, "why it ended", "updates", "seconds"]


def _cells(search: Search, trial: Trial) -> list[str]:
    figures = [trial.rungs.get(epochs) for epochs in search.rungs]
    shown = ["" if figure is None else f"{figure:.4g}" for figure in figures]
    cost = [f"{trial.spent.updates:,}", f"{trial.spent.seconds:.0f}"]
    return [str(trial.number), *search.shown(trial.values).values(), *shown, why(trial), *cost]


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ending}"
