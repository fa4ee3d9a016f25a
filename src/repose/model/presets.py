"""Each preset, published or a variant of one, as a difference from Vaswani's, with its citation: `presets.toml`."""

import importlib.resources
import tomllib
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import NamedTuple

from repose.model.architecture import DROPOUTS, Architecture
from repose.system.errors import ConfigError, unknown

PUBLISHED_VOCABULARIES = (7765, 7010)
"""Source and target tokens at which parameter counts are published: those of TensorFlow's tutorial."""


_FREE = {*DROPOUTS, "max_length"}
"""Fields that make no other architecture."""


class Preset(NamedTuple):
    """A named architecture, where it comes from, and how it differs in a sentence."""

    architecture: Architecture
    citation: str
    summary: str
    published_parameters: int | None = None
    """Total parameter count that the source states, with the `PUBLISHED_VOCABULARIES`."""


def _shipped() -> dict[str, Preset]:
    text = importlib.resources.files("repose.model").joinpath("presets.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    sources, architectures, presets = tables.pop("sources"), {"": Architecture()}, {}
    for name, table in tables.items():
        base = architectures[table.get("from", "")]
        made = architectures[name] = replace(base, **table.get("changes", {}))
        if "summary" in table:
            citation = "; ".join(sources[source] for source in table["sources"])
            presets[name] = Preset(made, citation, table["summary"], table.get("published_parameters"))
    return presets


PRESETS: MappingProxyType[str, Preset] = MappingProxyType(_shipped())


def preset(name: str) -> Architecture:
    """The architecture of that name. Raises ConfigError, with the nearest names, where there is none."""
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, list(PRESETS)))
    return PRESETS[name].architecture


def preset_name(architecture: Architecture) -> str | None:
    """The preset that an architecture is, dropout and longest length aside; None where it is none. One that has those,
    too, goes before others, and of several the first."""
    same = (name for name, one in PRESETS.items() if difference(architecture, one.architecture).keys() <= _FREE)
    return exact_preset_name(architecture) or next(same, None)


def exact_preset_name(architecture: Architecture) -> str | None:
    """The first preset that has this very architecture, dropout and longest length included; None where none has."""
    return next((name for name, one in PRESETS.items() if one.architecture == architecture), None)


def difference(architecture: Architecture, base: Architecture | None = None) -> dict[str, tuple[object, object]]:
    """Fields in which two architectures differ: name -> (value in `base`, value here). Without `base`: Vaswani's."""
    ours, theirs = asdict(base or Architecture()), asdict(architecture)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
