"""The presets: published architectures and variants of them, with citations, read from `presets.toml`."""

import importlib.resources
import tomllib
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import NamedTuple

from repose.model.architecture import DROPOUTS, Architecture
from repose.system.errors import ConfigError, unknown

PUBLISHED_VOCABULARIES = (7765, 7010)
"""Source and target vocabulary sizes of the published parameter counts: those of TensorFlow's tutorial."""


_FREE = {*DROPOUTS, "max_length"}
"""Fields that may differ without making it another architecture."""


class Preset(NamedTuple):
    """A named architecture, where it comes from, and a sentence about how it differs."""

    architecture: Architecture
    citation: str
    summary: str
    published_parameters: int | None = None
    """Total number of parameters that the source states, for `PUBLISHED_VOCABULARIES`."""


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
    """Return the architecture of a preset. Raises ConfigError, with the nearest names, for an unknown name."""
    if name not in PRESETS:
        raise ConfigError(unknown("preset", name, list(PRESETS)))
    return PRESETS[name].architecture


def preset_name(architecture: Architecture) -> str | None:
    """Return the name of the preset that equals an architecture apart from dropout and maximum length, or None.

    A preset that also equals it in these comes first; otherwise, the first in the file.
    """
    same = (name for name, one in PRESETS.items() if difference(architecture, one.architecture).keys() <= _FREE)
    return exact_preset_name(architecture) or next(same, None)


def exact_preset_name(architecture: Architecture) -> str | None:
    """Return the first preset that equals an architecture in every field, or None."""
    return next((name for name, one in PRESETS.items() if one.architecture == architecture), None)


def difference(architecture: Architecture, base: Architecture | None = None) -> dict[str, tuple[object, object]]:
    """Return the fields in which two architectures differ: name -> (value in `base`, value in `architecture`).

    Without `base`: compared with Vaswani's base.
    """
    ours, theirs = asdict(base or Architecture()), asdict(architecture)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
