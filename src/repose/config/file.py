"""Experiments from TOML files, presets and the command line, with the origin of every value; and as JSON.

Layers, each over the one before: defaults, preset, file, `--preset`, `--set section.field=value`. A layer that
names a preset replaces the whole architecture of the layers before it; a layer that names ready tokenizer files
takes back the settings of tokenizers that were to be trained. TOML has no null: "none" stands for a setting that
is not set. Paths in a file are relative to the file's folder, on the command line to the current folder.
"""

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from repose.config.experiment import DEFAULT_PRESET, PATHS, SECTIONS, UNUSED_WITH_READY_TOKENIZER, Experiment
from repose.model.architecture import from_earlier
from repose.model.presets import preset as preset_architecture
from repose.system.errors import ConfigError, unknown

Table = Mapping[str, Any]
COMMAND_LINE = "command line"


class Loaded(NamedTuple):
    """An experiment, and where each of its values came from."""

    experiment: Experiment
    sources: dict[str, str]
    """`section.field` -> "default", "preset NAME", "file PATH" or "command line"."""
    preset: str
    """The preset that the architecture starts from."""


class Layer(NamedTuple):
    """Settings of one origin: section -> field -> value as written; `architecture` may hold `preset`."""

    tables: Table
    source: str
    folder: Path
    grid: Any = None
    """A file's table [grid], which `repose.grids.grid` reads; None where it has none."""


def load(path: Path | str | None, *, preset: str | None = None, overrides: Sequence[str] = ()) -> Loaded:
    """The experiment of a TOML file, or of a shipped experiment's name, with a preset and `--set` strings over it.

    Raises ConfigError, with one sentence, for whatever cannot be read or used.
    """
    layers = [] if path is None else [file_layer(path)]
    if preset is not None:
        layers.append(Layer({"architecture": {"preset": preset}}, COMMAND_LINE, Path.cwd()))
    # One layer, so that the order of --set strings does not matter; the last of two for one field wins.
    layers.append(Layer(parse_overrides(overrides), COMMAND_LINE, Path.cwd()))
    return resolve(layers)


def shipped() -> list[str]:
    """Names of the experiments that come with the package."""
    folder = files("repose").joinpath("experiments")
    names = [entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return sorted(name for name in names if set(_parse(_read_shipped(name), name)) <= {*SECTIONS, "grid"})


def to_json(experiment: Experiment) -> str:
    """The resolved experiment as JSON, sections as objects."""
    return json.dumps(dataclasses.asdict(experiment), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, source: str = "config.json") -> Experiment:
    """The experiment that `to_json` wrote. `source` names it in errors (ConfigError)."""
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not JSON: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(f"{source} is no experiment: an object of sections is expected")
    try:
        tables = _from_earlier(tables)
        _check_names(tables, source)
    except ConfigError as error:
        raise ConfigError(f"{error}; the file may have been written by a newer repose") from error
    return _make({name: dict(tables.get(name, {})) for name in SECTIONS}, {}, source)


def resolve(layers: Sequence[Layer]) -> Loaded:
    """Lay the layers over the defaults; remember who set what."""
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    sources: dict[str, str] = {}
    base = DEFAULT_PRESET
    for layer in layers:
        layer = layer._replace(tables=_from_earlier(layer.tables))
        _check_names(layer.tables, layer.source)
        new_base = layer.tables.get("architecture", {}).get("preset")
        if new_base is not None:
            base = _check_preset_name(new_base, layer.source)
            _take_back(values, sources, "architecture", list(values["architecture"]))
        if layer.tables.get("tokenizer", {}).get("src_file", "none") != "none":
            _take_back(values, sources, "tokenizer", UNUSED_WITH_READY_TOKENIZER)
        for section, field, value in _settings(layer.tables):
            name = f"{section}.{field}"
            values[section][field] = _as_written(name, value, layer)
            sources[name] = layer.source
    architecture = {**dataclasses.asdict(preset_architecture(base)), **values["architecture"]}
    experiment = _make({**values, "architecture": architecture}, sources, "the configuration")
    complete = {
        f"{section}.{field.name}": sources.get(
            f"{section}.{field.name}", f"preset {base}" if section == "architecture" else "default"
        )
        for section, cls in SECTIONS.items()
        for field in dataclasses.fields(cls)
    }
    return Loaded(experiment, complete, base)


def _from_earlier(tables: Table) -> Table:
    """Sections that an earlier version wrote, as today's."""
    architecture = tables.get("architecture")
    return {**tables, "architecture": from_earlier(architecture)} if isinstance(architecture, dict) else tables


def _take_back(values: dict[str, dict[str, Any]], sources: dict[str, str], section: str, fields: Sequence[str]) -> None:
    """Forget what earlier layers set."""
    for field in fields:
        values[section].pop(field, None)
        sources.pop(f"{section}.{field}", None)


def _settings(tables: Table) -> Iterator[tuple[str, str, Any]]:
    """(section, field, value) of every setting but the preset's name."""
    for section, table in tables.items():
        for field, value in table.items():
            if (section, field) != ("architecture", "preset"):
                yield section, field, value


def _check_names(tables: Table, source: str) -> None:
    """Refuse sections and fields that do not exist."""
    for section, table in tables.items():
        if section not in SECTIONS:
            raise ConfigError(f"{_where(source)}{unknown('section', section, list(SECTIONS))}")
        if not isinstance(table, dict):
            raise ConfigError(f"{_where(source)}{section} is a section of settings, not the value {table!r}")
        known = _fields(section) + (["preset"] if section == "architecture" else [])
        for field in table:
            if field not in known:
                elsewhere = [f"{other}.{field}" for other in SECTIONS if field in _fields(other)]
                names = elsewhere or [f"{section}.{name}" for name in known]
                raise ConfigError(f"{_where(source)}{unknown('setting', f'{section}.{field}', names)}")


def _check_preset_name(name: object, source: str) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{_where(source)}architecture.preset should be a preset's name, not {name!r}")
    preset_architecture(name)
    return name


def _as_written(name: str, value: Any, layer: Layer) -> Any:
    """A TOML value as the field takes it: "none" as None, one path as a list of one, paths made absolute."""
    optional, text = _takes(name, type(None)), _takes(name, str)
    if optional and value == "none":
        return None
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{_where(layer.source)}{name} should be a finite number, not {value}")
    if name not in PATHS:
        return value
    paths = value if isinstance(value, list) and not text else [value]
    if not all(isinstance(path, str) and path for path in paths):
        raise ConfigError(f"{_where(layer.source)}{name} should be a path, not {value!r}")
    absolute = [str(layer.folder.joinpath(Path(path).expanduser()).absolute()) for path in paths]
    return absolute[0] if text else absolute


def _takes(name: str, kind: type) -> bool:
    """Whether the annotation of `section.field` admits a value of that type."""
    section, field = name.split(".")
    annotation = field_infos(section)[field].annotation
    is_union = get_origin(annotation) in (Union, UnionType)
    return annotation is kind or (is_union and kind in get_args(annotation))


def _make(values: Mapping[str, dict[str, Any]], sources: Mapping[str, str], source: str) -> Experiment:
    """The experiment of these values; pydantic's findings become one sentence."""
    sections: dict[str, Any] = {}
    try:
        for section, cls in SECTIONS.items():
            sections[section] = cls(**{name: _no_number(section, name, v) for name, v in values[section].items()})
        return Experiment(**sections)
    except ValidationError as error:
        where = next((name for name in SECTIONS if name not in sections), "")
        raise _one_sentence(error, where, sources, source) from None


def _no_number(section: str, field: str, value: Any) -> Any:
    """A boolean as text where a number is wanted, since pydantic would read true as 1."""
    loose = isinstance(value, bool) and field in _fields(section) and not _takes(f"{section}.{field}", bool)
    return str(value).lower() if loose else value


def _one_sentence(error: ValidationError, section: str, sources: Mapping[str, str], source: str) -> ConfigError:
    """pydantic's first finding as a ConfigError, with the number of the others."""
    first, *others = error.errors(include_url=False)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause
    name = f"{section}.{first['loc'][0]}"
    value, message = first["input"], first["msg"]
    if first["type"] == "too_long":
        sentence = f"{name} takes at most {first['ctx']['max_length']} files, not {first['ctx']['actual_length']}"
    elif message.startswith("Input should be "):
        expected = message.removeprefix("Input should be ").split(", ")
        # A list of literals has commas of its own; elsewhere what follows one is pydantic's reasoning.
        text = ", ".join(expected) if first["type"] == "literal_error" else expected[0]
        text += ' or "none"' if _takes(name, type(None)) else ""
        sentence = f"{name} should be {text}, not {value!r}"
    else:
        sentence = f"{name} = {value!r} cannot be used: {message}"
    more = f" (and {len(others)} more)" if others else ""
    return ConfigError(f"{_where(sources.get(name, source))}{sentence}{more}")


def _where(source: str) -> str:
    """An origin as the beginning of a sentence."""
    return f"{source.removeprefix('file ')}: "


def field_infos(section: str) -> dict[str, FieldInfo]:
    """Name -> pydantic's knowledge of a section's field: annotation, description."""
    infos: dict[str, FieldInfo] = vars(SECTIONS[section])["__pydantic_fields__"]
    return infos


def _fields(section: str) -> list[str]:
    return [field.name for field in dataclasses.fields(SECTIONS[section])]


def parse_overrides(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`section.field=value` strings as tables. A value is TOML where it can be, else a bare string."""
    tables: dict[str, dict[str, Any]] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        section, dot, field = name.strip().partition(".")
        if not (equals and dot and section and field):
            raise ConfigError(f"{COMMAND_LINE}: {override!r} is no setting: write section.field=value")
        tables.setdefault(section, {})[field] = _parse_value(section, field, text.strip())
    return tables


def _parse_value(section: str, field: str, text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    value = parsed["value"]
    known = section in SECTIONS and field in _fields(section)
    wants_text = known and (_takes(f"{section}.{field}", str) or f"{section}.{field}" in PATHS)
    # "2024" is a number in TOML, but a file or a field may be called so. A second key came from a line break.
    is_text = len(parsed) > 1 or (wants_text and not isinstance(value, str | list))
    return text if is_text else value


def file_layer(path: Path | str) -> Layer:
    """An experiment file, or the shipped experiment of that name where there is no such file."""
    file = Path(path).expanduser()
    name = str(path)
    looks_like_name = file.name == name and not file.suffix
    if looks_like_name and not file.is_file():
        if name not in shipped():
            raise ConfigError(unknown("experiment file or shipped experiment", name, shipped()))
        return _split(_parse(_read_shipped(name), name), f"file {name}.toml (shipped)", Path.cwd())
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"there is no experiment file {name}: check the path") from error
    except OSError as error:
        raise ConfigError(f"experiment file {name} cannot be read: {error.strerror}") from error
    return _split(_parse(data, name), f"file {name}", file.parent)


def _split(tables: dict[str, Any], source: str, folder: Path) -> Layer:
    grid = tables.pop("grid", None)
    return Layer(tables, source, folder, grid)


def _read_shipped(name: str) -> bytes:
    return files("repose").joinpath("experiments", f"{name}.toml").read_bytes()


def _parse(data: bytes, name: str) -> dict[str, Any]:
    """TOML as tables; what is wrong with it as one sentence with the line."""
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name} is not UTF-8 at line {line}: save it as UTF-8") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a bare ValueError
        raise ConfigError(f"{name} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}") from error
