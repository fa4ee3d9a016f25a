"""The table [search] of an experiment file: what is searched, by what figure, and how far trials are trained."""

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from repose.config.experiment import PATHS, TASK_SETTINGS, CorpusConfig, DecodingConfig, Experiment, TrainingConfig
from repose.config.file import (
    COMMAND_LINE,
    Layer,
    field_infos,
    file_layer,
    parse_overrides,
    paths_made_absolute,
    resolve,
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
"""What a trial can be judged by, and its figure in the records of validations."""
_KEYS = ("about", "trials", "rungs", "reduction", "objective", "seed", "presets", "systems", "vary")
_RANGE_KEYS = ("from", "to", "log")
_OF_VALIDATION = {f"training.{field}" for field in ("init_from", "long_pairs", "max_src_tokens", "max_tgt_tokens")}
"""What decides over the pieces of the validation set and which of its sentences are left out."""
_DIGITS = 3
_LARGEST = sys.float_info.max
_MOST_TRIED = 1000

Value = str | int | float
"""A value of an axis: a label of a list, or a number of a range."""


@dataclass(frozen=True)
class Range:
    """Numbers between two, both included."""

    name: str
    """The name of its setting, without the section where that is plain."""
    setting: str
    """section.field"""
    low: int | float
    high: int | float
    log: bool
    """Whether numbers are drawn evenly by their logarithm."""
    is_whole: bool
    """Whether they are whole numbers, as the setting's are."""

    def rounded(self, drawn: float) -> int | float:
        """The number as a setting: three digits of one that is not whole say all that a search can know."""
        return int(drawn) if self.is_whole else min(max(float(f"{drawn:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search file, read."""

    name: str
    about: str
    lists: tuple[Axis, ...]
    ranges: tuple[Range, ...]
    trials: int
    rungs: tuple[int, ...]
    """Epochs after which trials are compared; the last are those of the whole training."""
    reduction: int
    """One of so many trials goes on from a rung to the next."""
    objective: str
    """A key of `OBJECTIVES`."""
    seed: int
    """Seed of what is drawn; the trainings' is `training.seed`."""
    base: Layer
    over: Layer

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what is searched."""
        return (*(axis.name for axis in self.lists), *(one.name for one in self.ranges))

    @property
    def combinations(self) -> int | None:
        """How many there are; None where a range has no end of numbers."""
        whole = [one for one in self.ranges if one.is_whole]
        if len(whole) < len(self.ranges):
            return None
        return math.prod(len(axis.choices) for axis in self.lists) * math.prod(int(r.high - r.low) + 1 for r in whole)

    @property
    def best_is_highest(self) -> bool:
        return self.objective != "loss"

    @property
    def metric(self) -> str:
        """The figure of a validation."""
        return OBJECTIVES[self.objective]

    def choices(self, values: Mapping[str, Value]) -> list[Choice]:
        """What the values of one trial set."""
        listed = [next(c for c in axis.choices if c.label == values[axis.name]) for axis in self.lists]
        drawn = [(one, one.rounded(float(values[one.name]))) for one in self.ranges]
        return listed + [Choice(label_of(v), settings_of({one.setting: v}, one.name)) for one, v in drawn]

    def shown(self, values: Mapping[str, Value]) -> dict[str, str]:
        """The values as people read them, by the name of the axis."""
        return dict(zip(self.settings, (choice.label for choice in self.choices(values)), strict=True))

    def experiment(self, values: Mapping[str, Value]) -> Experiment:
        """The training of one trial. Raises ConfigError for settings that cannot stand together."""
        choices = self.choices(values)
        check_no_two_set_one(choices, " ".join(choice.label for choice in choices))
        seed = self.base.tables.get("training", {}).get("seed", 0)
        found = resolve(layers_of(self.base, self.over, choices, [], seed)).experiment
        _check_looks_back(found, self)
        return replace(found, training=_without_patience(found.training, self))

    def stand(self, values: Mapping[str, Value]) -> bool:
        """Whether settings can stand together."""
        try:
            self.experiment(values)
        except ConfigError:
            return False
        return True

    def example(self) -> Experiment:
        """The training of the first combination that can stand. Raises ConfigError where none of many can."""
        return next(self._standing())

    def examples(self) -> list[Experiment]:
        """Such a training for each corpus that is searched. Raises ConfigError where no combination can stand."""
        if "corpus" not in _sections(settings_of_axes(self.lists)):
            return [self.example()]
        found: dict[CorpusConfig, Experiment] = {}
        for experiment in self._standing():
            found.setdefault(experiment.corpus, experiment)
        return list(found.values())

    def _standing(self) -> Iterator[Experiment]:
        """The trainings of those of the first combinations that can stand. Raises ConfigError where none can."""
        lows: dict[str, Value] = {one.name: one.low for one in self.ranges}
        # Corpora vary fastest, so that each of them is among the first.
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
        """The settings of these values as `--preset` and `--set` take them in a shell, whatever folder it is in."""
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
    """The halving decides what ends early. Translations are made at rungs, where the objective asks for them."""
    every = training.bleu_every_epochs
    if search.objective != "loss" and training.best_by != "chrf":
        every = math.gcd(*search.rungs)
    return replace(training, patience=None, bleu_every_epochs=every)


def read_search(path: Path | str, *, overrides: Sequence[str] = (), trials: int | None = None) -> Search:
    """The search of a file. `trials` stands for the file's. Raises ConfigError, with one sentence."""
    layer, name, file = file_layer(path), Path(path).stem, str(path)
    if layer.search is None:
        raise ConfigError(f"{file} has no table [search]: name the settings to search in [search.vary]")
    where = f"{file}: [search]"
    table = expect(dict, layer.search, where)
    check_keys(table, _KEYS, where)
    varied = varied_settings(expect(dict, table.get("vary", {}), f"{where} vary"))
    ranges = [_range(key, value, where, varied) for key, value in varied.items() if _is_range(value)]
    listed = {key: value for key, value in varied.items() if not _is_range(value)}
    systems = system_axis(table, where, "search")
    lists = ([] if systems is None else [systems]) + vary_axes({"vary": listed}, where, "search")
    names = [*(axis.name for axis in lists), *(one.name for one in ranges)]
    if not names:
        raise ConfigError(f"{where} searches nothing: name settings in [search.vary], or presets")
    if len(set(names)) < len(names):
        raise ConfigError(f"{where} has two settings of one name ({', '.join(names)}): give bundles names of their own")
    over = Layer(parse_overrides(overrides), COMMAND_LINE, Path.cwd())
    check_not_set(over, _searched(lists, ranges), where, "searches", "trials")
    training, reduction = resolve([layer, over]).experiment.training, whole(table, "reduction", 3, where, least=2)
    found = Search(
        name=name,
        about=expect(str, table.get("about", ""), f"{where} about"),
        lists=tuple(lists),
        ranges=tuple(ranges),
        trials=whole(table, "trials", 12, where) if trials is None else trials,
        rungs=_rungs(training, whole(table, "rungs", 3, where), reduction, where),
        reduction=reduction,
        objective=_objective(table.get("objective"), training, _differing(lists, ranges), where),
        seed=whole(table, "seed", 0, where, least=0),
        base=layer,
        over=over,
    )
    if found.combinations is not None:
        found = replace(found, trials=min(found.trials, found.combinations))
    _check_limits(training, found, where)
    return found


def _is_range(value: Any) -> bool:
    return isinstance(value, dict) and ("from" in value or "to" in value)


def _range(key: str, value: dict[str, Any], where: str, varied: Mapping[str, Any]) -> Range:
    place = f"{where} vary.{key}"
    check_keys(value, _RANGE_KEYS, place)
    settings_of({key: 0}, place, "search")  # which refuses what is no setting
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
    """Whether a setting takes whole numbers alone; one that takes both goes by how the ends are written."""
    section, _, field = key.partition(".")
    infos = field_infos(section)
    if field not in infos:
        raise ConfigError(f"{place}: {unknown('setting', key, [f'{section}.{name}' for name in infos])}")
    annotation = infos[field].annotation
    takes_whole, takes_fractions = _admits(annotation, int), _admits(annotation, float)
    if not takes_whole and not takes_fractions:
        raise ConfigError(f"{place} is a range, but {key} is no number: give a list of its values")
    if takes_fractions:
        return takes_whole and isinstance(low, int) and isinstance(high, int)
    if low != int(low) or high != int(high):
        ends = f"from = {low}, to = {high}"
        raise ConfigError(
            f"{place} takes whole numbers only: write a range such as {{from = 2, to = 8}}, not {{{ends}}}"
        )
    return True


def _admits(annotation: Any, kind: type) -> bool:
    """Whether values of a type stand somewhere in an annotation, such as `Annotated[int, ...] | None`."""
    return annotation is kind or any(_admits(part, kind) for part in get_args(annotation))


def _rungs(training: TrainingConfig, number: int, reduction: int, where: str) -> tuple[int, ...]:
    """Epochs: those of the training, a `reduction`-th of them before, and so on."""
    if training.epochs is None:
        raise ConfigError(f"{where} counts in epochs: set training.epochs, those of a trial that goes to its end")
    number = min(number, training.epochs.bit_length() + 1)  # of more, the first would have less than an epoch each
    first = max(1, training.epochs // reduction ** (number - 1))
    before = (first * reduction**rung for rung in range(number - 1))
    return (*(epochs for epochs in before if epochs < training.epochs), training.epochs)


def _sections(settings: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in settings}


def _searched(lists: Sequence[Axis], ranges: Sequence[Range]) -> set[str]:
    """section.field of all that is searched."""
    return settings_of_axes(lists) | {one.setting for one in ranges}


def _differing(lists: Sequence[Axis], ranges: Sequence[Range]) -> list[str]:
    """What is searched in that decides over which tokens of which sentences a validation loss is taken."""
    searched = _searched(lists, ranges)
    return sorted(_sections(searched) & {"tokenizer", "corpus"}) + sorted(searched & _OF_VALIDATION)


def _objective(value: Any, training: TrainingConfig, differ: Sequence[str], where: str) -> str:
    """What was asked for; else chrF where losses are of different tokens and cannot be compared, and the loss."""
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
            f"{where} compares losses of different tokens, since it searches in {' and '.join(differ)}: set "
            "objective = 'chrf'"
        )
    if value != "loss" and not TASK_SETTINGS[training.task].translates:
        raise ConfigError(f"{where} objective = {value!r} needs translations: set objective = 'loss'")
    return str(value)


def _check_looks_back(experiment: Experiment, search: Search) -> None:
    """Raises ConfigError for a trial whose loss says nothing: its decoder sees what it should predict."""
    if search.objective == "loss" and experiment.looks_ahead:
        raise ConfigError(
            "the model's decoder looks ahead at the token that it should predict, so that its loss cannot be compared: "
            "search causal ones, or set objective = 'chrf', of translations"
        )


def _check_limits(training: TrainingConfig, search: Search, where: str) -> None:
    """Trials are compared after whole epochs, which nothing else may cut."""
    for field in ("updates", "max_hours", "validate_every_updates"):
        if getattr(training, field) is not None:
            raise ConfigError(f"{where} counts in epochs: leave training.{field} out")
    deciding = ("epochs", "updates", "max_hours", "validate_every_updates", "patience", "best_by", "bleu_sentences")
    why = {f"training.{name}": "decides how trials are compared" for name in deciding}
    why["tokenizer.lowercase"] = "decides how trials are compared"
    # Translations of the validation set are greedy while a model is trained.
    idle = [f"decoding.{one.name}" for one in fields(DecodingConfig) if one.name != "max_extra_tokens"]
    idle += [f"training.{name}" for name in ("bleu_every_epochs", "bleu_mean_over", "save_every_minutes")]
    why |= dict.fromkeys(idle, "changes nothing that trials are compared by")
    for setting, reason in why.items():
        section, _, field = setting.partition(".")
        sets = [a.name for a in search.lists for c in a.choices if field in c.settings.get(section, {})]
        sets += [one.name for one in search.ranges if one.setting == setting]
        if sets:
            raise ConfigError(f"{where} cannot search {setting}, which {reason}")
