"""Experiments from TOML files, presets and the command line, with the origin of every value; as TOML and as JSON.

Each layer overrides the ones before it: defaults, preset, file, `--preset`, `--set section.field=value`. A layer that
names a preset replaces the whole architecture of earlier layers. A layer that names ready tokenizer files discards the
settings of tokenizers that were to be trained. A layer that sets `training.warmup_updates` discards `warmup_share`,
which would replace it. TOML has no null, so "none" stands for a setting that is not set. Paths in a file are relative
to the file's folder, paths on the command line to the current folder.
"""

import dataclasses
import functools
import json
import math
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from repose.config.experiment import DEFAULT_PRESET, PATHS, SECTIONS, UNUSED_WITH_READY_TOKENIZER, Experiment
from repose.data.readers import kind_of
from repose.model.presets import PRESETS
from repose.model.presets import preset as preset_architecture
from repose.system.errors import ConfigError, unknown
from repose.system.terminal import quoted

Table = Mapping[str, Any]

_SHIPPED = files("repose").joinpath("experiments")
_MAX_FILE_BYTES = 1 << 20  # an experiment file is smaller: anything larger was named by mistake
_MAX_KEY_PARTS = 50  # tomllib's memory grows with the square of the dots in a key
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_MAX_KEY_PARTS}}}")

_EXPECTED = {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
}
"""What a setting should be, by the type of pydantic's error; the error's context is filled in."""


class Origin(NamedTuple):
    """Where a setting's value came from."""

    kind: Literal["default", "preset", "file", "model", "command line"]
    name: str = ""
    """Name of the preset, the file or the model directory."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    @property
    def place(self) -> str:
        """The origin as the beginning of a sentence about a mistake; empty for values that the caller just gave."""
        return "" if self == COMMAND_LINE else f"{self.name or self.kind}: "


COMMAND_LINE = Origin("command line")


class Loaded(NamedTuple):
    """An experiment, and where each of its values came from."""

    experiment: Experiment
    sources: dict[str, Origin]
    """The origin of each value, by `section.field`."""
    preset: str
    """The preset that the architecture starts from."""


class Layer(NamedTuple):
    """Settings of one origin: section -> field -> value as written; `architecture` may contain `preset`."""

    tables: Table
    source: Origin
    folder: Path
    grid: Any = None
    """The table [grid] of a file, which `repose.grids.grid` reads; None if there is none."""
    search: Any = None
    """The table [search] of a file, which `repose.search.file` reads; None if there is none."""


class ModelLayers(NamedTuple):
    """Settings that come with a model that training starts from."""

    under: Layer
    """Settings that an experiment file may override."""
    over: Layer
    """Settings that the weights determine; they override the file's."""


def load(
    path: Path | str | None,
    *,
    preset: str | None = None,
    train: Sequence[Path] = (),
    synthetic: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    model: ModelLayers | None = None,
) -> Loaded:
    """Load an experiment from a TOML file, or a shipped one by name, with the command line's settings on top.

    The command line may give a preset, training files, synthetic ones, and `--set` strings. `model`: settings that come
    with the model to start from. Raises ConfigError, with one sentence, for anything that cannot be read or used.
    """
    if model is not None and preset is not None:
        raise ConfigError(f"a training that starts from a model keeps its architecture: leave out preset {preset}")
    tables: list[Table] = [] if preset is None else [{"architecture": {"preset": preset}}]
    for name, given in (("train", train), ("synthetic", synthetic)):
        tables += [{"corpus": {name: [str(file) for file in given]}}] if given else []
    # One layer, so that the order of --set strings does not matter. If two set the same field, the last one wins.
    tables.append(parse_overrides(overrides))
    unused = [name for name in tables[-1].get("tokenizer", {}) if name in UNUSED_WITH_READY_TOKENIZER]
    if model is not None and unused:
        raise ConfigError(f"a training that starts from a model keeps its tokenizers: leave out tokenizer.{unused[0]}")
    layers = [] if path is None else [file_layer(path)]
    if model is not None:
        layers = [model.under, *layers, model.over]
    return resolve([*layers, *(Layer(table, COMMAND_LINE, Path.cwd()) for table in tables)])


@functools.cache
def shipped() -> tuple[str, ...]:
    """Return the names of the experiments that ship with the package."""
    names = (entry.name for entry in _SHIPPED.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def to_json(experiment: Experiment) -> str:
    """Return the resolved experiment as JSON, with sections as objects."""
    return json.dumps(dataclasses.asdict(experiment), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, source: str = "config.json") -> Experiment:
    """Return the experiment that `to_json` wrote. `source` is its name in errors (ConfigError)."""
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not JSON: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(f"{source} is not an experiment: an object of sections is expected")
    origin = Origin("file", source)
    try:
        _check_names(tables, origin)
    except ConfigError as error:
        raise ConfigError(f"{error}; the file may have been written by a newer repose") from error
    sources = {f"{section}.{field}": origin for section, table in tables.items() for field in table}
    return _make({name: tables.get(name, {}) for name in SECTIONS}, sources)


def resolve(layers: Sequence[Layer]) -> Loaded:
    """Apply the layers on top of the defaults, and record the origin of each value."""
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    sources: dict[str, Origin] = {}
    base = DEFAULT_PRESET

    def take_back(section: str, fields: Sequence[str]) -> None:
        """Discard what earlier layers set."""
        for field in fields:
            values[section].pop(field, None)
            sources.pop(f"{section}.{field}", None)

    for layer in layers:
        _check_names(layer.tables, layer.source)
        new_base = layer.tables.get("architecture", {}).get("preset")
        if new_base is not None:
            if not isinstance(new_base, str):
                raise ConfigError(f"{layer.source.place}architecture.preset should be a name, not {new_base!r}")
            preset_architecture(new_base)  # raises ConfigError for an unknown name
            if new_base != base:
                take_back("architecture", list(values["architecture"]))
            base = new_base
        if layer.tables.get("tokenizer", {}).get("src_file", "none") != "none":
            take_back("tokenizer", UNUSED_WITH_READY_TOKENIZER)
        if "warmup_updates" in layer.tables.get("training", {}):
            take_back("training", ["warmup_share"])
        for section, table in layer.tables.items():
            for field, value in table.items():
                if (name := f"{section}.{field}") != "architecture.preset":
                    values[section][field] = _as_written(name, value, layer)
                    sources[name] = layer.source
    architecture = {**dataclasses.asdict(preset_architecture(base)), **values["architecture"]}
    experiment = _make({**values, "architecture": architecture}, sources)
    complete = {
        f"{section}.{field}": Origin("preset", base) if section == "architecture" else Origin("default")
        for section in SECTIONS
        for field in field_infos(section)
    }
    return Loaded(experiment, complete | sources, base)


def _check_names(tables: Table, source: Origin) -> None:
    """Raise ConfigError for sections and fields that do not exist."""
    for section, table in tables.items():
        if section not in SECTIONS:
            raise ConfigError(f"{source.place}{unknown('section', section, list(SECTIONS))}")
        if not isinstance(table, dict):
            raise ConfigError(f"{source.place}{section} is a section of settings, not the value {table!r}")
        known = [*field_infos(section), *(["preset"] if section == "architecture" else [])]
        for field in table:
            if field not in known:
                elsewhere = [f"{other}.{field}" for other in SECTIONS if field in field_infos(other)]
                names = elsewhere or [f"{section}.{name}" for name in known]
                raise ConfigError(f"{source.place}{unknown('setting', f'{section}.{field}', names)}")


def _as_written(name: str, value: Any, layer: Layer) -> Any:
    """Convert a TOML value for its field: "none" to None, a single path to a list, and paths to absolute ones."""
    optional, text = takes(name, type(None)), takes(name, str)
    if optional and value == "none":
        return None
    is_written = isinstance(value, str) and not text and value.strip(" +-").lower() in ("inf", "infinity", "nan")
    if is_written or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{layer.source.place}{name} should be a finite number, not {value}")
    if name == "corpus.also":
        return _further_corpora(value, layer)
    if name not in PATHS:
        return value
    if value == "none" and not text:  # a list of paths is empty if it is not set
        return []
    paths = value if isinstance(value, list | tuple) and not text else [value]
    if not all(isinstance(path, str) and path for path in paths):
        raise ConfigError(f"{layer.source.place}{name} should be a path, not {value!r}")
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{layer.source.place}the file name {path!r} is not UTF-8: rename the file") from None
    absolute = paths_made_absolute(paths, layer.folder)
    return absolute[0] if text else absolute


def paths_made_absolute(value: Any, folder: Path) -> Any:
    """Make paths absolute that are relative to `folder`: one path, a list, or those in the tables of `corpus.also`."""
    return _each_path(value, lambda path: str(folder.joinpath(_expanded(path)).absolute()))


def _each_path(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to each path in the value of a setting: one path, a list, or the tables of `corpus.also`."""
    if isinstance(value, dict):
        return {name: _each_path(one, change) if name == "train" else one for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each_path(one, change) for one in value]
    return change(value)


def _expanded(path: Path | str) -> Path:
    """Replace "~" or "~somebody" at the beginning of a path with the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} names the home of an unknown user: write the path in full") from error


def _further_corpora(value: Any, layer: Layer) -> Any:
    """Convert the tables of `corpus.also`, with their files made absolute."""
    tables = [value] if isinstance(value, dict) else value
    if not isinstance(tables, list | tuple) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(
            f"{layer.source.place}corpus.also should be tables such as [{{train = ['a.pt', 'a.en'], tag = 'pt'}}], "
            f"not {value!r}"
        )
    written = []
    for table in tables:
        if set(table) != {"train", "tag"}:
            raise ConfigError(f"{layer.source.place}each table of corpus.also has train and tag, not {to_toml(table)}")
        written.append({"tag": table["tag"], "train": _as_written("corpus.train", table["train"], layer)})
    return written


def takes(name: str, kind: type) -> bool:
    """Return whether the setting `section.field` takes values of this type."""
    section, field = name.split(".")
    return _admits(field_infos(section)[field].annotation, kind)


def _admits(annotation: Any, kind: type) -> bool:
    """Return whether an annotation such as `Annotated[int, ...] | None` allows values of this type."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_admits(part, kind) for part in get_args(annotation))
    return annotation is kind


def _make(values: Mapping[str, dict[str, Any]], sources: Mapping[str, Origin]) -> Experiment:
    """Create the experiment from these values; pydantic's errors become one sentence."""
    sections: dict[str, Any] = {}
    try:
        for section, cls in SECTIONS.items():
            sections[section] = cls(**{name: _no_number(f"{section}.{name}", v) for name, v in values[section].items()})
        return Experiment(**sections)
    except ValidationError as error:
        where = next((name for name in SECTIONS if name not in sections), "")
        raise _one_sentence(error, where, sources) from None


def _no_number(name: str, value: Any) -> Any:
    """Turn a boolean into text if a number is expected, since pydantic would read true as 1."""
    return str(value).lower() if isinstance(value, bool) and not takes(name, bool) else value


def _one_sentence(error: ValidationError, section: str, sources: Mapping[str, Origin]) -> ConfigError:
    """Turn pydantic's first error into a ConfigError that also says how many more there are."""
    first, *others = error.errors(include_url=False)
    context = {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in first.get("ctx", {}).items()}
    if isinstance(cause := context.get("error"), ConfigError):
        return cause
    name, kind, value = f"{section}.{first['loc'][0]}", first["type"], first["input"]
    if kind == "too_long":
        sentence = f"{name} takes at most {context['max_length']} files, not {context['actual_length']}"
    elif kind in _EXPECTED:
        or_none = ' or "none"' if takes(name, type(None)) else ""
        sentence = f"{name} should be {_EXPECTED[kind].format(**context)}{or_none}, not {value!r}"
    else:
        sentence = f"{name} = {value!r} cannot be used"
    more = f" (and {len(others)} more)" if others else ""
    return ConfigError(f"{sources[name].place}{sentence}{more}")


def field_infos(section: str) -> dict[str, FieldInfo]:
    """Return pydantic's information about a section's fields by name: annotation, description."""
    infos: dict[str, FieldInfo] = vars(SECTIONS[section])["__pydantic_fields__"]
    return infos


def parse_overrides(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse strings `section.field=value` into tables. A value is read as TOML if possible, else as a bare string."""
    tables: dict[str, dict[str, Any]] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        section, dot, field = name.strip().partition(".")
        if dot and section and field and not equals:
            raise ConfigError(f"{override!r} has no value: write {override}=VALUE, without spaces")
        if not (equals and dot and section and field):
            alike = [of for of in SECTIONS if equals and not dot and name.strip() in field_infos(of)]
            hint = f"{alike[0]}.{override.strip()}" if len(alike) == 1 else "section.field=value"
            raise ConfigError(f"{override!r} is not a setting: write {hint}")
        value = text.strip()
        if value.startswith("[") and "]" not in value:
            raise ConfigError(f"the list in {override!r} ends at a space: write it without spaces, or in quotes")
        tables.setdefault(section, {})[field] = _parse_value(section, field, value)
    return tables


def _parse_value(section: str, field: str, text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        if f"{section}.{field}" in PATHS and text.startswith("[") and text.endswith("]"):
            return [path.strip().strip("\"'") for path in text[1:-1].split(",")]  # a shell has removed the quotes
        return text
    value = parsed["value"]
    known = section in SECTIONS and field in field_infos(section)
    wants_text = known and (takes(f"{section}.{field}", str) or f"{section}.{field}" in PATHS)
    # "2024" is a number in TOML, but a file or a field may have that name. A second key comes from a line break.
    is_text = len(parsed) > 1 or (wants_text and not isinstance(value, str | list))
    return text if is_text else value


def file_layer(path: Path | str) -> Layer:
    """Read an experiment file, or the shipped experiment of that name if there is no such file."""
    file, name = _expanded(path), str(path)
    looks_like_name = file.name == name and not file.suffix
    if looks_like_name and not file.is_file():
        if name not in shipped():
            raise ConfigError(unknown("experiment file or shipped experiment", name, shipped()))
        data, source, folder = _SHIPPED.joinpath(f"{name}.toml").read_bytes(), f"{name}.toml (shipped)", Path.cwd()
    else:
        data, source, folder = _read(file, name), name, file.parent
    tables = _parse(data, name)
    return Layer(tables, Origin("file", source), folder, tables.pop("grid", None), tables.pop("search", None))


def _read(file: Path, name: str) -> bytes:
    """Read an experiment file, which the user calls `name`."""
    if kind_of(file) != "text" and file.is_file():
        raise ConfigError(
            f"{name} is a corpus, not an experiment file: write one with `repose init {quoted(name)} --out mine.toml`"
        )
    try:
        status = file.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)) or status.st_size > _MAX_FILE_BYTES:
            raise ConfigError(
                f"{name} is not a file of at most {_MAX_FILE_BYTES:,} bytes: name an experiment's TOML file"
            )
        return file.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"there is no experiment file {name}: check the path") from error
    except OSError as error:
        raise ConfigError(f"experiment file {name} cannot be read: {error.strerror}") from error


def _parse(data: bytes, name: str) -> dict[str, Any]:
    """Parse TOML into tables. Raises ConfigError, with the line if it is known, for invalid content."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name} is not UTF-8 at line {line}: save it as UTF-8") from error
    if long_key := _LONG_KEY.search(text):
        line = text.count("\n", 0, long_key.start()) + 1
        raise ConfigError(f"{name} has a key of more than {_MAX_KEY_PARTS} parts at line {line}: check the file")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number with thousands of digits raises a plain ValueError
        raise ConfigError(f"{name} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}") from error


# An experiment as TOML


def format_config(loaded: Loaded) -> str:
    """Format every setting as a line of TOML with the origin of its value (`--print-config`)."""
    lines = []
    for section in SECTIONS:
        lines.append(f"[{section}]")
        values = dataclasses.asdict(getattr(loaded.experiment, section))
        settings = [f"{field} = {to_toml(value)}" for field, value in values.items()]
        width = min(44, max(map(len, settings)))
        for setting, field in zip(settings, values, strict=True):
            lines.append(f"{setting:<{width}}  # {_one_line(str(loaded.sources[f'{section}.{field}']))}")
        lines.append("")
    return "\n".join(lines)


def commented_toml(loaded: Loaded, *, folder: Path | None = None) -> str:
    """Format an experiment file that explains every setting. Settings that nobody has chosen are commented out.

    Loading it gives the same experiment. `folder` is where the file will be stored: paths inside it are written
    relative to it, so that the folder can be moved.
    """
    lines = ['# A setting that is commented out has the value shown; "none" stands for: not set.', ""]
    for section, cls in SECTIONS.items():
        lines += [f"# {_one_line((cls.__doc__ or '').splitlines()[0])}", f"[{section}]"]
        if section == "architecture":
            lines += [
                "# The named architecture to start from; single axes and sizes can be changed below.",
                f"preset = {to_toml(loaded.preset)}  # {PRESETS[loaded.preset].summary}",
            ]
        lines += [*_commented_settings(loaded, section, folder), ""]
    return "\n".join(lines)


def _commented_settings(loaded: Loaded, section: str, folder: Path | None) -> Iterator[str]:
    """Yield two lines for each field: its description, with the names of its values, and its value."""
    values = dataclasses.asdict(getattr(loaded.experiment, section))
    for field, info in field_infos(section).items():
        name, value = f"{section}.{field}", values[field]
        if folder is not None and value is not None and (name in PATHS or name == "corpus.also"):
            value = _each_path(value, functools.partial(_relative, folder=folder.absolute()))
        chosen = loaded.sources[name].kind not in ("default", "preset")
        description = _one_line(info.description or "")
        allowed = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
        if any(f"`{each}`" not in description for each in allowed):
            description += f" Values: {', '.join(map(to_toml, allowed))}."
        yield f"# {description}"
        yield f"{'' if chosen else '#'}{field} = {to_toml(value)}"


def _relative(path: str, folder: Path) -> str:
    """Return a path inside `folder` relative to it; any other path unchanged."""
    if not Path(path).is_relative_to(folder):
        return path
    relative = Path(path).relative_to(folder).as_posix()
    # A leading "./" marks a file called "none", or one that begins with "~", as a file.
    return f"./{relative}" if relative == "none" or relative.startswith("~") else relative


def to_toml(value: object) -> str:
    """Format a value as TOML: as JSON, except for tables and the one control character that JSON leaves as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {to_toml(of_name)}" for name, of_name in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps("none" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    """Make text fit for a TOML comment, without line breaks and control characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
