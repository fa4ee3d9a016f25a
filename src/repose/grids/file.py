"""Read the table [grid] of an experiment file strictly: axes, rules and hints for reports. Every key is checked."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import pydantic.dataclasses
from pydantic import Field, ValidationError

from repose.config.experiment import SECTIONS
from repose.config.file import Layer
from repose.model.presets import preset as preset_architecture
from repose.system.errors import ConfigError, unknown
from repose.system.numbers import is_whole
from repose.system.terminal import quoted

Settings = Mapping[str, Mapping[str, Any]]
"""Maps sections to their fields and values."""

SYSTEM, CORPUS, SEED = "system", "corpus", "seed"
MAX_CELLS = 1000
_MOST_SEEDS = 2**32
_MOST_COMBINATIONS = 100_000  # of a grid with exclusions, as each combination is checked against them
_KEYS = ("about", "budget", "presets", "systems", "seeds", "max_cells", "corpora", "vary", "for", "exclude", "report")
_SEEDS = {
    "grid": "use seeds in [grid], a number or a list such as [0, 5]",
    "search": "all trials have the same seed, so set it in [training], or compare seeds with a grid",
}
"""Advice to users who set the seed, by table."""
_SYNONYMS = {"preset": SYSTEM, "presets": SYSTEM, "systems": SYSTEM, "corpora": CORPUS, "seeds": SEED}


@dataclass(frozen=True)
class Choice:
    """One value of an axis."""

    label: str
    settings: Settings
    preset: str | None = None
    """The architecture that its cells start from; None: that of the file."""


@dataclass(frozen=True)
class Axis:
    """An axis of a grid: something in which cells differ, apart from their seed."""

    name: str
    choices: tuple[Choice, ...]
    written: str
    """Its name in the file, which is longer than `name` for a setting."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(choice.label for choice in self.choices)


def settings_of_axes(axes: Iterable[Axis]) -> set[str]:
    """Return section.field of every setting that some choice of an axis sets."""
    tables = (choice.settings for axis in axes for choice in axis.choices)
    return {f"{section}.{field}" for settings in tables for section, table in settings.items() for field in table}


def check_not_set(over: Layer, settings: Container[str], where: str, verb: str, cells: str) -> None:
    """Raise ConfigError if the command line sets one of these settings."""
    for name in (f"{section}.{field}" for section, table in over.tables.items() for field in table):
        if name in settings:
            raise ConfigError(
                f"{where} {verb} {name}, which --set makes the same for all {cells}: leave one of them out"
            )


@dataclass(frozen=True)
class Rule:
    """Settings for the cells that match: for each axis named, their label is one of those given."""

    matches: Mapping[str, tuple[str, ...]]
    settings: Settings
    place: str
    """Its place in the file, for error messages."""

    def applies(self, labels: Mapping[str, str], seed: int) -> bool:
        found = {**labels, SEED: str(seed)}
        return all(found.get(axis) in wanted for axis, wanted in self.matches.items())


Lines = tuple[Annotated[int, Field(ge=1, strict=True)], ...]
"""Lines of a test set, counted from 1."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class ReportTable:
    """The table [grid.report], in a grid's file and in its grid.json: what a report of the grid should show."""

    baseline: str | None = None
    """The group that the others are tested against."""
    published: tuple[str, ...] = ()
    """Entries of published.toml."""
    sentences: Lines | dict[str, Lines] = ()
    """Lines to show; by corpus, if the grid has several."""


_REPORT = {
    "baseline": "the name of a group",
    "published": 'a list of entries such as "reinforced/table-1"',
    "sentences": "a list of lines of the test set, from 1, such as [12, 31], or one for each corpus",
}
"""What the values should be, for error messages."""


@dataclass(frozen=True, kw_only=True)
class GridTable:
    """The content of the table [grid]."""

    about: str
    budget: str
    axes: tuple[Axis, ...]
    """Corpora, systems, then those of `vary`, in the order of the file."""
    seeds: Sequence[int]
    max_cells: int
    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...]
    report: ReportTable


def read_table(layer: Layer, name: str, *, seeds: Sequence[int] | None) -> GridTable:
    """Read the table [grid] from a file's layer; `name` is the file's name. `seeds` are further ones that rules may
    name. Raises ConfigError."""
    if layer.grid is None:
        given = quoted(name)
        other = f"repose train --config {given}" if layer.search is None else f"repose search {given}"
        what = "it is one experiment" if layer.search is None else "it has a table [search]"
        raise ConfigError(f"{name} has no table [grid]: {what}, for `{other}`")
    where = f"{name}: [grid]"
    table = expect(dict, layer.grid, where)
    check_keys(table, _KEYS, where)
    axes = [axis for axis in (_corpora(table, where), system_axis(table, where)) if axis is not None]
    axes += vary_axes(varied_settings(table, where), where)
    names = [axis.name for axis in axes]
    if len(set(names)) < len(names) or SEED in names:
        raise ConfigError(f"{where} has two axes with the same name ({', '.join(names)}): rename those in vary")
    training = layer.tables.get("training", {})
    seed = training.get("seed", 0) if isinstance(training, dict) else 0  # other types are refused later
    own = read_seeds(table["seeds"], f"{where} seeds") if "seeds" in table else (seed if isinstance(seed, int) else 0,)
    max_cells = whole(table, "max_cells", MAX_CELLS, where)
    settings, excludes = math.prod(len(axis.choices) for axis in axes), bool(table.get("exclude"))
    check_number(settings * len(own if seeds is None else seeds), max_cells, name, excludes=excludes)
    if seeds is not None:  # rules may name the file's seeds, too
        check_number(settings * len(own), max_cells, name, excludes=True)
    rule_seeds = [*own, *(seeds or ())]
    return GridTable(
        about=expect(str, table.get("about", ""), f"{where} about"),
        budget=expect(str, table.get("budget", ""), f"{where} budget"),
        axes=tuple(axes),
        seeds=own,
        max_cells=max_cells,
        rules=tuple(_rules(table, "for", axes, rule_seeds, name)),
        excluded=tuple(_rules(table, "exclude", axes, rule_seeds, name)),
        report=_report(table.get("report", {}), f"{name}: [grid.report]"),
    )


def _report(value: Any, where: str) -> ReportTable:
    table = expect(dict, value, where)
    check_keys(table, list(_REPORT), where)
    try:
        return ReportTable(**table)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise ConfigError(f"{where} {name} should be {_REPORT[name]}, not {table[name]!r}") from None


def check_number(number: int, max_cells: int, name: str, *, excludes: bool = False) -> None:
    """Refuse a grid with too many cells before any is made; with exclusions, a grid with too many combinations."""
    if number > (max(max_cells, _MOST_COMBINATIONS) if excludes else max_cells):
        raise ConfigError(
            f"{name}: [grid] expands to {number:,} cells, more than max_cells = {max_cells:,}: "
            "take values out of its axes or seeds, or set max_cells in [grid]"
        )


def read_seeds(value: Any, name: str, what: str = "a number of seeds or a list such as [0, 5]") -> Sequence[int]:
    """Return seeds from their number or a list. Raises ConfigError, which says that `name` should be `what`."""
    if is_whole(value) and 1 <= value < _MOST_SEEDS:
        return range(value)
    if not isinstance(value, list) or not value or not all(is_whole(seed) and seed >= 0 for seed in value):
        raise ConfigError(f"{name} should be {what}, not {value!r}")
    if len(set(value)) < len(value):
        raise ConfigError(f"{name} = {value} has a seed twice: name each once")
    return tuple(value)


def label_of(value: Any) -> str:
    """Return a setting's value as a label."""
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def _corpora(table: Mapping[str, Any], where: str) -> Axis | None:
    if "corpora" not in table:
        return None
    corpora = expect(dict, table["corpora"], f"{where} corpora").items()
    choices = [Choice(label, {"corpus": expect(dict, s, f"{where} corpora.{label}")}) for label, s in corpora]
    return _axis(CORPUS, choices, where)


def system_axis(table: Mapping[str, Any], where: str, of: str = "grid") -> Axis | None:
    """Return the axis of presets and systems of a grid or a search; None if there are none."""
    if "presets" not in table and "systems" not in table:
        return None
    names = expect(list, table.get("presets", []), f"{where} presets")
    choices = [Choice(_preset(name, f"{where} presets"), {}, name) for name in names]
    for number, system in enumerate(expect(list, table.get("systems", []), f"{where} systems"), start=1):
        place = f"{where} systems, entry {number},"
        system = expect(dict, system, place)
        check_keys(system, ("name", "preset", "set"), place)
        label = system.get("name")
        if not isinstance(label, str) or not label:
            raise ConfigError(f"{place} has no name: give it one, which its cells are named after")
        if "preset" in system:
            _preset(system["preset"], place)
        choices.append(Choice(label, settings_of(system.get("set", {}), place, of), system.get("preset")))
    return _axis(SYSTEM, choices, where)


def varied_settings(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what `vary` has, by name. Names written without quotation marks become `section.field`, too."""
    found: dict[str, Any] = {}
    for key, value in expect(dict, table.get("vary", {}), f"{where} vary").items():
        is_section = key in SECTIONS and isinstance(value, dict)
        found |= {f"{key}.{field}": values for field, values in value.items()} if is_section else {key: value}
    return found


def vary_axes(varied: Mapping[str, Any], where: str, of: str = "grid") -> list[Axis]:
    """Return the axes of `varied_settings`: each has values of one setting, or named bundles of settings."""
    axes: list[Axis] = []
    fields = [name.rpartition(".")[2] for name in varied]
    for name, value in varied.items():
        place = f"{where} vary.{name}"
        if "." in name:
            values = expect(list, value, place)
            choices = [Choice(label_of(v), settings_of({name: v}, place, of)) for v in values]
            field = name.rpartition(".")[2]
            axes.append(_axis(field if fields.count(field) == 1 else name, choices, where, written=name))
        elif isinstance(value, dict):
            choices = [Choice(label, settings_of(s, f"{place}.{label}", of)) for label, s in value.items()]
            axes.append(_axis(name, choices, where))
        else:
            raise ConfigError(f'{place} should be a table of named settings; a setting is written "section.field"')
    return axes


def _axis(name: str, choices: Sequence[Choice], where: str, *, written: str = "") -> Axis:
    labels = [choice.label for choice in choices]
    if not labels:
        raise ConfigError(f"{where} expands to nothing: {written or name} has no values")
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where} {written or name} has {twice!r} twice: name each once")
    return Axis(name, tuple(choices), written or name)


def _rules(table: Mapping[str, Any], key: str, axes: Sequence[Axis], seeds: Sequence[int], name: str) -> list[Rule]:
    rules = []
    for number, entry in enumerate(expect(list, table.get(key, []), f"{name}: [grid] {key}"), start=1):
        place = f"{name}: [[grid.{key}]], entry {number},"
        entry = dict(expect(dict, entry, place))
        settings = settings_of(entry.pop("set", {}), place) if key == "for" else {}
        if key == "for" and not settings:
            raise ConfigError(f'{place} sets nothing: write set = {{ "section.field" = value }}')
        if key == "exclude" and not entry:
            raise ConfigError(f'{place} names no cells: write for example {SYSTEM} = "baseline"')
        matches = [_match(k, v, axes, seeds, place) for k, v in entry.items()]
        for axis, _ in matches:
            if [name for name, _ in matches].count(axis) > 1:
                raise ConfigError(f"{place} names the axis {axis} twice, in two spellings: name it once")
        rules.append(Rule(dict(matches), settings, place))
    return rules


def _match(key: str, value: Any, axes: Sequence[Axis], seeds: Sequence[int], place: str) -> tuple[str, tuple[str, ...]]:
    """Return an axis and those of its labels that a rule names."""
    known = {axis.name: axis.labels for axis in axes} | {SEED: tuple(map(str, seeds))}
    written = [axis.name for axis in axes if key in (axis.name, axis.written)]
    axis = written[0] if written else _SYNONYMS.get(key, key)
    if axis not in known:
        raise ConfigError(f"{place} {unknown('axis', key, list(known))}")
    labels = tuple(label_of(v) for v in (value if isinstance(value, list) else [value]))
    for label in labels:
        if label not in known[axis]:
            raise ConfigError(f"{place} {unknown(axis, label, known[axis])}")
    return axis, labels


def settings_of(table: Any, place: str, of: str = "grid") -> dict[str, dict[str, Any]]:
    """Return settings written as "section.field" = value, or as tables of sections, in the table [grid] or [search]."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in expect(dict, table, place).items():
        section, dot, field = key.partition(".")
        if section not in SECTIONS or not (dot or isinstance(value, dict)):
            names = [f"{name}." for name in SECTIONS]
            raise ConfigError(f'{place} sets {key!r}: write "section.field", which begins with {", ".join(names)}')
        found.setdefault(section, {}).update({field: value} if dot else value)
    if "seed" in found.get("training", {}):
        raise ConfigError(f"{place} sets training.seed: {_SEEDS[of]}")
    if "preset" in found.get("architecture", {}):
        raise ConfigError(f"{place} sets architecture.preset: name architectures in presets, or in [[{of}.systems]]")
    return found


def _preset(name: Any, place: str) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{place} should hold the names of presets, not {name!r}")
    try:
        preset_architecture(name)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    return name


def whole(table: Mapping[str, Any], key: str, default: int, where: str, *, least: int = 1) -> int:
    """Return a whole number from a table. Raises ConfigError for anything else."""
    value = table.get(key, default)
    if not is_whole(value) or value < least:
        raise ConfigError(f"{where} {key} should be a number from {least}, not {value!r}")
    return int(value)


def check_keys(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigError(f"{where}: {unknown('key', key, keys)}")


_Kind = TypeVar("_Kind", dict[str, Any], list[Any], str)
_KINDS = {dict: "a table", list: "a list", str: "a sentence"}


def expect(kind: type[_Kind], value: Any, where: str) -> _Kind:
    if not isinstance(value, kind):
        raise ConfigError(f"{where} should be {_KINDS[kind]}, not {value!r}")
    return value
