"""A grid: the product of corpora, systems, varied settings and seeds, as cells that are one experiment each.

A cell's settings are layered: its preset, the file's own settings (so that a preset's sizes can be changed for all
cells), those of its corpus, system and varied axes, those of the matching rules [[grid.for]], its seed, and `--set`. A
cell is named after its labels, corpus first, and its seed: "gl-en-reinforced-s0". The name without the seed is its
group.
"""

import difflib
import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from repose.config.experiment import Experiment
from repose.config.file import COMMAND_LINE, Layer, file_layer, parse_overrides, resolve, shipped, to_json
from repose.grids.file import (
    CORPUS,
    SYSTEM,
    Choice,
    GridTable,
    ReportTable,
    Rule,
    check_not_set,
    check_number,
    read_seeds,
    read_table,
    settings_of_axes,
)
from repose.grids.published import load as load_published
from repose.system.errors import ConfigError, unknown

_CORPUS_SOURCES = ("name", "train", "valid", "test")
_ASKED_SEEDS = "a number of seeds or a list such as 0,5 (0, for seed 0 alone)"
_LONGEST_NAME = 200  # bytes; file systems allow 255


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One experiment of a grid."""

    name: str
    """Name of the cell and of its folder."""
    group: str
    """The name without the seed."""
    labels: Mapping[str, str]
    """Maps axes to labels."""
    seed: int
    experiment: Experiment


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid file, expanded."""

    name: str
    about: str
    budget: str
    axes: Mapping[str, tuple[str, ...]]
    """Maps axes to their labels."""
    report: ReportTable
    cells: tuple[Cell, ...]
    """All cells, those of the first seed first, so that systems can be compared early."""


def read_grid(path: Path | str, *, overrides: Sequence[str] = (), seeds: str | None = None) -> Grid:
    """Read a grid from a file, or a shipped grid by name. `seeds` ("3" or "0,5") replace the file's.

    Raises ConfigError, with one sentence, for anything that cannot be read or used.
    """
    layer = file_layer(path)
    name, file = Path(path).stem, str(path)
    over = Layer(parse_overrides(overrides), COMMAND_LINE, Path.cwd())
    if "seed" in over.tables.get("training", {}):
        raise ConfigError("--set training.seed would make cells of different seeds the same: use --seeds")
    chosen = None if seeds is None else _seeds(seeds)
    table = read_table(layer, file, seeds=chosen)
    varied = settings_of_axes(axis for axis in table.axes if axis.name != SYSTEM)
    check_not_set(over, varied, f"{file}: [grid]", "varies", "cells")
    every_seed = tuple(dict.fromkeys([*table.seeds, *(chosen or ())]))
    wanted = table.seeds if chosen is None else chosen
    combinations = [one for one in _combinations(table, every_seed) if one.seed in wanted]
    combinations.sort(key=lambda one: wanted.index(one.seed))
    if not combinations:
        raise ConfigError(f"{file}: [grid] expands to nothing: [[grid.exclude]] leaves out every cell")
    check_number(len(combinations), table.max_cells, file)
    cells = tuple(_cell(table, layer, over, one, name) for one in combinations)
    _check_distinct(cells, file)
    _check_baseline(table, cells, file)
    _check_sentences(table, cells, file)
    _check_published(table, file)
    axes = {axis.name: axis.labels for axis in table.axes}
    return Grid(name=name, about=table.about, budget=table.budget, axes=axes, report=table.report, cells=cells)


def shipped_grids() -> list[tuple[str, str, str]]:
    """Return name, `about` and `budget` of the grids that come with the package."""
    tables = {name: file_layer(name).grid for name in shipped()}
    return [(name, grid.get("about", ""), grid.get("budget", "")) for name, grid in tables.items() if grid is not None]


def _seeds(text: str) -> Sequence[int]:
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if not all(piece.isascii() and piece.isdecimal() for piece in pieces) or not pieces:
        raise ConfigError(f"--seeds should be {_ASKED_SEEDS}, not {text!r}")
    numbers = [int(piece) for piece in pieces]
    return read_seeds(numbers if "," in text else numbers[0], "--seeds", _ASKED_SEEDS)


class _Combination(NamedTuple):
    """A choice of each axis, and a seed."""

    choices: tuple[Choice, ...]
    labels: Mapping[str, str]
    seed: int


def _combinations(table: GridTable, seeds: Sequence[int]) -> list[_Combination]:
    """Return the combinations that are not excluded. Raises ConfigError for a rule that matches none."""
    names, axes = [axis.name for axis in table.axes], [axis.choices for axis in table.axes]
    every = [
        _Combination(choices, {name: choice.label for name, choice in zip(names, choices, strict=True)}, seed)
        for choices, seed in itertools.product(itertools.product(*axes), seeds)
    ]
    kept = [one for one in every if not any(rule.applies(one.labels, one.seed) for rule in table.excluded)]
    for rules, cells in ((table.excluded, every), (table.rules, kept)):
        for rule in rules:
            if not any(rule.applies(one.labels, one.seed) for one in cells):
                raise ConfigError(f"{rule.place} matches no cell: correct its labels, or take it out")
    return kept


def _cell(table: GridTable, layer: Layer, over: Layer, combination: _Combination, name: str) -> Cell:
    """Return the cell of one combination. Raises ConfigError, with the cell's name, for incompatible settings."""
    choices, labels, seed = combination
    group = folder_label("-".join(labels.values())) or folder_label(name)
    cell_name = f"{group}-s{seed}"
    if len(cell_name.encode()) > _LONGEST_NAME:
        raise ConfigError(f"{name}: cell {cell_name[:60]}... has too long a name: name the values of its axes")
    check_no_two_set_one(choices, cell_name)
    rules = [rule for rule in table.rules if rule.applies(labels, seed)]
    try:
        experiment = resolve(layers_of(layer, over, choices, rules, seed)).experiment
    except ConfigError as error:
        raise ConfigError(f"cell {cell_name}: {error}") from error
    return Cell(name=cell_name, group=group, labels=labels, seed=seed, experiment=experiment)


def layers_of(layer: Layer, over: Layer, choices: Sequence[Choice], rules: Sequence[Rule], seed: int) -> list[Layer]:
    base = next((choice.preset for choice in choices if choice.preset is not None), None)
    own = {section: dict(table) if isinstance(table, dict) else table for section, table in layer.tables.items()}
    layers = []
    if base is not None:
        if isinstance(own.get("architecture"), dict):  # anything but a table is refused later, as a setting
            own["architecture"].pop("preset", None)
        layers.append(Layer({"architecture": {"preset": base}}, layer.source, layer.folder))
    # A cell's own corpus replaces the file's, whose name and files would contradict it.
    if any({"name", "train"} & choice.settings.get("corpus", {}).keys() for choice in choices):
        for source in _CORPUS_SOURCES if isinstance(own.get("corpus"), dict) else ():
            own["corpus"].pop(source, None)
    layers.append(Layer(own, layer.source, layer.folder))
    settings = [choice.settings for choice in choices] + [rule.settings for rule in rules]
    layers += [Layer(tables, layer.source, layer.folder) for tables in settings]
    return [*layers, Layer({"training": {"seed": seed}}, layer.source, layer.folder), over]


def check_no_two_set_one(choices: Sequence[Choice], cell: str) -> None:
    """Refuse two axes that set one field to different values: one of the two labels would be untrue."""
    seen: dict[tuple[str, str], tuple[str, Any]] = {}
    for choice in choices:
        for section, fields in choice.settings.items():
            for field, value in fields.items():
                other, before = seen.setdefault((section, field), (choice.label, value))
                if before != value:
                    raise ConfigError(
                        f"cell {cell}: {other!r} sets {section}.{field} = {before!r} and {choice.label!r} sets "
                        f"{value!r}: exclude this combination, or set it in one place"
                    )


def folder_label(label: str) -> str:
    """Return a label as part of a folder's name."""
    kept = (c if c in ".+=-" or re.match(r"\w", c) or unicodedata.category(c)[0] == "M" else " " for c in label)
    return re.sub(" +", "_", "".join(kept)).lstrip(".-")


def _check_distinct(cells: Sequence[Cell], name: str) -> None:
    """Refuse two cells with one name, and two that are the same experiment, which would count twice."""
    names: dict[str, Cell] = {}
    experiments: dict[str, Cell] = {}
    for cell in cells:
        if cell.name.lower() in names:
            raise ConfigError(f"{name}: two cells are called {cell.name}: give the values of its axes different names")
        twin = experiments.setdefault(to_json(cell.experiment), cell)
        if twin is not cell:
            raise ConfigError(f"{name}: cells {twin.name} and {cell.name} are the same experiment: exclude one of them")
        names[cell.name.lower()] = cell


def _check_baseline(table: GridTable, cells: Sequence[Cell], name: str) -> None:
    """Check that the report's baseline is a group, with or without its corpus, or a system."""
    if (baseline := table.report.baseline) is None:
        return
    groups = {"-".join(label for axis, label in cell.labels.items() if axis != CORPUS) for cell in cells}
    known = {cell.group for cell in cells} | groups | {cell.labels.get(SYSTEM, "") for cell in cells} - {""}
    if baseline not in known | set(map(folder_label, groups)):
        raise ConfigError(f"{name}: [grid.report] {unknown('group', baseline, sorted(groups))}")


def _check_sentences(table: GridTable, cells: Sequence[Cell], name: str) -> None:
    """Check that the report's sentences are lines by corpus if corpora are an axis of the grid, else plain lines."""
    wanted, where = table.report.sentences, f"{name}: [grid.report] sentences"
    known = list(dict.fromkeys(cell.labels[CORPUS] for cell in cells if CORPUS in cell.labels))
    if wanted and isinstance(wanted, Mapping) != bool(known):
        should = (
            f"of each corpus, such as {{ {known[0]} = [12, 31] }}" if known else "of the test set, such as [12, 31]"
        )
        raise ConfigError(f"{where} should be lines {should}, not {wanted!r}")
    for corpus in wanted if isinstance(wanted, Mapping) else ():
        if corpus not in known:
            raise ConfigError(f"{where}: {unknown('corpus', corpus, known)}")


def _check_published(table: GridTable, name: str) -> None:
    """Check that the report's published entries are in `published.toml`."""
    for entry in table.report.published:
        if entry not in (known := load_published().entries):
            near = ", ".join(difflib.get_close_matches(entry, known, n=3, cutoff=0.0))
            where = f"{name}: [grid.report] published"
            raise ConfigError(f"{where}: there is no entry {entry!r}: the nearest are {near}")
