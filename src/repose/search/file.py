"""Read the table [search] of an experiment file: which settings to try, how to judge them, how long to train each."""

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from repose.config.experiment import PATHS, TASK_SETTINGS, CorpusConfig, DecodingConfig, Experiment, TrainingConfig
from repose.config.file import (
    COMMAND_LINE,
    Layer,
    field_infos,
    file_layer,
    parse_overrides,
    paths_made_absolute,
    resolve,
    takes,
    to_toml,
)
from repose.grids.file import (
    Axis,
    Choice,
    check_keys,
    check_not_set,
    expect,
    label_of,
    settings_of,
    settings_of_axes,
    system_axis,
    varied_settings,
    vary_axes,
    whole,
)
from repose.grids.grid import check_no_two_set_one, layers_of
from repose.system.errors import ConfigError, unknown
from repose.system.numbers import is_real
from repose.system.terminal import quoted

OBJECTIVES = {"loss": "tf_loss", "chrf": "chrf", "bleu": "bleu"}
"""What trials can be judged by, and the name of that figure in the validation records."""
_KEYS = ("about", "trials", "rungs", "reduction", "objective", "seed", "presets", "systems", "vary")
_RANGE_KEYS = ("from", "to", "log")
_OF_VALIDATION = {f"training.{field}" for field in ("init_from", "long_pairs", "max_src_tokens", "max_tgt_tokens")}
"""Settings that change how the validation set is tokenised, or which of its sentences are left out."""
_DIGITS = 3
_LARGEST = sys.float_info.max
_MOST_TRIED = 1000

Value = str | int | float
"""A value to try: a label from a list, or a number from a range."""


@dataclass(frozen=True)
class Range:
    """A range of numbers, both ends included."""

    name: str
    """The setting's name, without its section where that is unambiguous."""
    setting: str
    """The setting as `section.field`."""
    low: int | float
    high: int | float
    log: bool
    """Draw numbers uniformly on a logarithmic scale."""
    is_whole: bool
    """The setting takes whole numbers only."""

    def rounded(self, drawn: float) -> int | float:
        """Round a drawn number: to a whole one if needed, else to three digits, as precise as a search gets."""
        return int(drawn) if self.is_whole else min(max(float(f"{drawn:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search, as its file describes it."""

    name: str
    about: str
    lists: tuple[Axis, ...]
    ranges: tuple[Range, ...]
    trials: int
    rungs: tuple[int, ...]
    """Epochs after which trials are compared; the last entry is a complete training."""
    reduction: int
    """One in this many trials goes on from a rung to the next."""
    objective: str
    """A key of `OBJECTIVES`."""
    seed: int
    """Seed for drawing settings; trainings use `training.seed`."""
    base: Layer
    over: Layer

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings that vary."""
        return (*(axis.name for axis in self.lists), *(one.name for one in self.ranges))

    @property
    def combinations(self) -> int | None:
        """Number of combinations; None if a range of real numbers makes it infinite."""
        whole = [one for one in self.ranges if one.is_whole]
        if len(whole) < len(self.ranges):
            return None
        return math.prod(len(axis.choices) for axis in self.lists) * math.prod(int(r.high - r.low) + 1 for r in whole)

    @property
    def best_is_highest(self) -> bool:
        return self.objective != "loss"

    @property
    def best_by(self) -> str:
        """The figure that decides which weights a trial keeps (`training.best_by`)."""
        return self.example().training.best_by

    @property
    def metric(self) -> str:
        """Name of the objective's figure in a validation record."""
        return OBJECTIVES[self.objective]

    def choices(self, values: Mapping[str, Value]) -> list[Choice]:
        """Return the settings that one trial's values stand for."""
        listed = [next(c for c in axis.choices if c.label == values[axis.name]) for axis in self.lists]
        drawn = [(one, one.rounded(float(values[one.name]))) for one in self.ranges]
        return listed + [Choice(label_of(v), settings_of({one.setting: v}, one.name)) for one, v in drawn]

    def shown(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Return the values as text to show, by the name of the setting."""
        return dict(zip(self.settings, (choice.label for choice in self.choices(values)), strict=True))

    def experiment(self, values: Mapping[str, Value]) -> Experiment:
        """Return one trial's experiment. Raises ConfigError for settings that cannot be combined."""
        choices = self.choices(values)
        check_no_two_set_one(choices, " ".join(choice.label for choice in choices))
        seed = self.base.tables.get("training", {}).get("seed", 0)
        found = resolve(layers_of(self.base, self.over, choices, [], seed)).experiment
        _check_looks_back(found, self)
        return replace(found, training=_without_patience(found.training, self))

    def stand(self, values: Mapping[str, Value]) -> bool:
        """Return whether these settings can be combined."""
        try:
            self.experiment(values)
        except ConfigError:
            return False
        return True

    def example(self) -> Experiment:
        """Return the experiment of the first valid combination. Raises ConfigError if there is none among many."""
        return next(self._standing())

    def examples(self) -> list[Experiment]:
        """Return one valid experiment for each corpus. Raises ConfigError if no combination is valid."""
        if "corpus" not in _sections(settings_of_axes(self.lists)):
            return [self.example()]
        found: dict[CorpusConfig, Experiment] = {}
        for experiment in self._standing():
            found.setdefault(experiment.corpus, experiment)
        return list(found.values())

    def _standing(self) -> Iterator[Experiment]:
        """Yield the experiments of the valid ones among the first combinations. Raises ConfigError if there is none."""
        lows: dict[str, Value] = {one.name: one.low for one in self.ranges}
        # Corpora vary fastest, so that the first combinations include each of them.
        lists = sorted(self.lists, key=lambda axis: "corpus" in _sections(settings_of_axes([axis])))
        labels = itertools.product(*([(axis.name, c.label) for c in axis.choices] for axis in lists))
        refused: list[ConfigError] = []
        stood = False
        for chosen in itertools.islice(labels, _MOST_TRIED):
            try:
                experiment = self.experiment({**dict(chosen), **lows})
            except ConfigError as error:
                refused.append(error)
                continue
            stood = True
            yield experiment
        if not stood:
            raise refused[0]

    def overrides(self, values: Mapping[str, Value]) -> list[str]:
        """Return these values as `--preset` and `--set` options for a shell, valid in any folder."""
        words: list[str] = []
        for choice in self.choices(values):
            words += [] if choice.preset is None else [f"--preset {quoted(choice.preset)}"]
            for section, table in choice.settings.items():
                for field, value in table.items():
                    name = f"{section}.{field}"
                    is_path = (name in PATHS or name == "corpus.also") and value != "none"
                    own = paths_made_absolute(value, self.base.folder) if is_path else value
                    words.append(f"--set {quoted(f'{name}={own if isinstance(own, str) else to_toml(own)}')}")
        return words


def _without_patience(training: TrainingConfig, search: Search) -> TrainingConfig:
    """Turn off early stopping, as halving decides which trials end; translate at rungs, if the objective needs it."""
    every = training.bleu_every_epochs
    if search.objective != "loss" and training.best_by != "chrf":
        every = math.gcd(*search.rungs)
    return replace(training, patience=None, bleu_every_epochs=every)


def read_search(path: Path | str, *, overrides: Sequence[str] = (), trials: int | None = None) -> Search:
    """Read a search file. `trials` replaces the number in the file. Raises ConfigError, with one sentence."""
    layer, name, file = file_layer(path), Path(path).stem, str(path)
    if layer.search is None:
        raise ConfigError(f"{file} has no table [search]: name the settings to search in [search.vary]")
    where = f"{file}: [search]"
    table = expect(dict, layer.search, where)
    check_keys(table, _KEYS, where)
    varied = varied_settings(table, where)
    ranges = [_range(key, value, where, varied) for key, value in varied.items() if _is_range(value)]
    listed = {key: value for key, value in varied.items() if not _is_range(value)}
    systems = system_axis(table, where, "search")
    lists = ([] if systems is None else [systems]) + vary_axes(listed, where, "search")
    names = [*(axis.name for axis in lists), *(one.name for one in ranges)]
    if not names:
        raise ConfigError(f"{where} searches nothing: name settings in [search.vary], or presets")
    if len(set(names)) < len(names):
        raise ConfigError(f"{where} has two settings with the same name ({', '.join(names)}): rename the bundles")
    over = Layer(parse_overrides(overrides), COMMAND_LINE, Path.cwd())
    searched = settings_of_axes(lists) | {one.setting for one in ranges}
    check_not_set(over, searched, where, "searches", "trials")
    training, reduction = resolve([layer, over]).experiment.training, whole(table, "reduction", 3, where, least=2)
    found = Search(
        name=name,
        about=expect(str, table.get("about", ""), f"{where} about"),
        lists=tuple(lists),
        ranges=tuple(ranges),
        trials=whole(table, "trials", 12, where) if trials is None else trials,
        rungs=_rungs(training, whole(table, "rungs", 3, where), reduction, where),
        reduction=reduction,
        objective=_objective(table.get("objective"), training, _differing(searched), where),
        seed=whole(table, "seed", 0, where, least=0),
        base=layer,
        over=over,
    )
    if found.combinations is not None:
        found = replace(found, trials=min(found.trials, found.combinations))
    _check_limits(training, searched, where)
    return found


def _is_range(value: Any) -> bool:
    return isinstance(value, dict) and ("from" in value or "to" in value)


def _range(key: str, value: dict[str, Any], where: str, varied: Mapping[str, Any]) -> Range:
    place = f"{where} vary.{key}"
    check_keys(value, _RANGE_KEYS, place)
    settings_of({key: 0}, place, "search")  # raises ConfigError for an unknown setting
    ends: tuple[Any, Any] = (value.get("from"), value.get("to"))
    (low, high), log = ends, value.get("log", False)
    numbers = all(is_real(end) and abs(end) <= _LARGEST for end in ends)
    if not numbers or not isinstance(log, bool) or not low < high or (log and low <= 0):
        raise ConfigError(f"{place} should be a range such as {{from = 0.001, to = 0.01, log = true}}, not {value!r}")
    is_whole = _is_whole(key, low, high, place)
    kind = int if is_whole else float
    field = key.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == field for other in varied) == 1
    return Range(field if alone else key, key, kind(low), kind(high), log, is_whole)


def _is_whole(key: str, low: float, high: float, place: str) -> bool:
    """Return whether to draw whole numbers: if a setting takes both kinds, the way its ends are written decides."""
    section, _, field = key.partition(".")
    infos = field_infos(section)
    if field not in infos:
        raise ConfigError(f"{place}: {unknown('setting', key, [f'{section}.{name}' for name in infos])}")
    takes_whole, takes_fractions = takes(key, int), takes(key, float)
    if not takes_whole and not takes_fractions:
        raise ConfigError(f"{place} is a range, but {key} is not a number: give a list of values")
    if takes_fractions:
        return takes_whole and isinstance(low, int) and isinstance(high, int)
    if low != int(low) or high != int(high):
        ends = f"from = {low}, to = {high}"
        raise ConfigError(
            f"{place} takes whole numbers only: write a range such as {{from = 2, to = 8}}, not {{{ends}}}"
        )
    return True


def _rungs(training: TrainingConfig, number: int, reduction: int, where: str) -> tuple[int, ...]:
    """Return the epochs of each rung: the last is the whole training, each earlier one a `reduction`-th of the next."""
    if training.epochs is None:
        raise ConfigError(
            f"{where} counts in epochs: set training.epochs, the length of a trial that is not stopped early"
        )
    number = min(number, training.epochs.bit_length() + 1)  # with more rungs, the first would be shorter than an epoch
    first = max(1, training.epochs // reduction ** (number - 1))
    before = (first * reduction**rung for rung in range(number - 1))
    return (*(epochs for epochs in before if epochs < training.epochs), training.epochs)


def _sections(settings: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in settings}


def _differing(searched: set[str]) -> list[str]:
    """Return the searched settings that make validation losses incomparable: they change its tokens or sentences."""
    return sorted(_sections(searched) & {"tokenizer", "corpus"}) + sorted(searched & _OF_VALIDATION)


def _objective(value: Any, training: TrainingConfig, differ: Sequence[str], where: str) -> str:
    """Return the requested objective. By default, the loss; chrF if losses are over different tokens."""
    if differ and not TASK_SETTINGS[training.task].translates:
        raise ConfigError(
            f"{where} varies {' and '.join(differ)}: losses of different tokens cannot be compared, and "
            f"{training.task} has no translations to compare instead"
        )
    if value is None:
        return "chrf" if differ else "loss"
    if not isinstance(value, str) or value not in OBJECTIVES:
        raise ConfigError(f"{where} {unknown('objective', str(value), list(OBJECTIVES))}")
    if value == "loss" and differ:
        raise ConfigError(
            f"{where} compares losses of different tokens, since it varies {' and '.join(differ)}: set "
            "objective = 'chrf'"
        )
    if value != "loss" and not TASK_SETTINGS[training.task].translates:
        raise ConfigError(f"{where} objective = {value!r} needs translations: set objective = 'loss'")
    return str(value)


def _check_looks_back(experiment: Experiment, search: Search) -> None:
    """Raise ConfigError if losses mean nothing because the decoder sees the tokens that it should predict."""
    if search.objective == "loss" and experiment.looks_ahead:
        raise ConfigError(
            "the model's decoder looks ahead at the token that it should predict, so its loss cannot be compared: "
            "search causal models, or set objective = 'chrf', which scores translations"
        )


def _check_limits(training: TrainingConfig, searched: set[str], where: str) -> None:
    """Raise ConfigError if another limit could end a trial within an epoch: trials are compared after whole epochs."""
    for field in ("updates", "max_hours", "validate_every_updates"):
        if getattr(training, field) is not None:
            raise ConfigError(f"{where} counts in epochs: leave training.{field} out")
    deciding = ("epochs", "updates", "max_hours", "validate_every_updates", "patience", "best_by", "bleu_sentences")
    why = {f"training.{name}": "decides how trials are compared" for name in deciding}
    why["tokenizer.lowercase"] = "decides how trials are compared"
    # During training, the validation set is translated greedily.
    idle = [f"decoding.{one.name}" for one in fields(DecodingConfig) if one.name != "max_extra_tokens"]
    idle += [f"training.{name}" for name in ("bleu_every_epochs", "bleu_mean_over", "save_every_minutes")]
    why |= dict.fromkeys(idle, "does not change what trials are compared by")
    for setting, reason in why.items():
        if setting in searched:
            raise ConfigError(f"{where} cannot search {setting}, which {reason}")
