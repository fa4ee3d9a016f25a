"""Experiments written as TOML: every value with its origin, or a commented file to begin from."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from repose.config.experiment import PATHS, SECTIONS
from repose.config.file import Loaded, field_infos
from repose.model.presets import PRESETS


def format_config(loaded: Loaded) -> str:
    """Every setting as a line of TOML, each with where its value came from (`--print-config`)."""
    lines = []
    for section in SECTIONS:
        lines.append(f"[{section}]")
        values = dataclasses.asdict(getattr(loaded.experiment, section))
        settings = [f"{field} = {_toml(value)}" for field, value in values.items()]
        width = min(44, max(map(len, settings)))
        for setting, field in zip(settings, values, strict=True):
            lines.append(f"{setting:<{width}}  # {_one_line(loaded.sources[f'{section}.{field}'])}")
        lines.append("")
    return "\n".join(lines)


def commented_toml(loaded: Loaded, *, folder: Path | None = None) -> str:
    """An experiment file with every setting explained: chosen ones live, the others commented out at their value.

    Loading it gives the same experiment. `folder` is where the file will lie: paths within it are written
    relative to it, so that the folder can be moved.
    """
    lines = ['# A setting that is commented out has the value shown; "none" stands for: not set.', ""]
    for section, cls in SECTIONS.items():
        lines += [f"# {_one_line((cls.__doc__ or '').splitlines()[0])}", f"[{section}]"]
        if section == "architecture":
            lines += [
                "# The published architecture to start from; single axes and sizes can be changed below.",
                f"preset = {_toml(loaded.preset)}  # {PRESETS[loaded.preset].summary}",
            ]
        lines += [*_commented_settings(loaded, section, folder), ""]
    return "\n".join(lines)


def _commented_settings(loaded: Loaded, section: str, folder: Path | None) -> Iterator[str]:
    """Two lines per field: what it is, and its value."""
    config = getattr(loaded.experiment, section)
    for field, info in field_infos(section).items():
        name, value = f"{section}.{field}", getattr(config, field)
        if name in PATHS and folder is not None:
            value = _relative(value, folder.absolute())
        chosen = loaded.sources[name] != "default" and not loaded.sources[name].startswith("preset ")
        yield f"# {_one_line(info.description or '')}"
        yield f"{'' if chosen else '#'}{field} = {_toml(value)}"


def _relative(value: str | tuple[str, ...] | None, folder: Path) -> str | tuple[str, ...] | None:
    """Paths within `folder` relative to it; others as they are."""
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_relative_path(path, folder) for path in value)
    return _relative_path(value, folder)


def _relative_path(path: str, folder: Path) -> str:
    if not Path(path).is_relative_to(folder):
        return path
    relative = Path(path).relative_to(folder).as_posix()
    # A leading "./" keeps a file called "none", or beginning with "~", a file.
    return f"./{relative}" if relative == "none" or relative.startswith("~") else relative


def _toml(value: object) -> str:
    """A value in TOML's notation."""
    match value:
        case None:
            return '"none"'
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            # JSON's strings are TOML's, but for the one control character that JSON leaves bare.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
    raise AssertionError(f"no setting is a {type(value).__name__}")


def _one_line(text: str) -> str:
    """Text as a TOML comment may hold it: without line breaks and control characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
