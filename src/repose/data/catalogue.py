"""The catalogue of published corpora: `corpora.toml`, read into frozen dataclasses.

The file holds names, mirrors, licences, counts and checksums, but no corpus text. A corpus may have more than two
languages (Multi30k has four, aligned line by line), so a split is a list of texts and not a pair.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pydantic import TypeAdapter

from repose.data.download import Expected
from repose.system.errors import DataError, unknown


@dataclass(frozen=True, kw_only=True)
class TextInfo:
    """One language of one split, as published.

    `path` is relative to a mirror, or inside the archive. `num_bytes` and `sha256` describe the uncompressed text; None
    if not known.
    """

    language: str
    path: str
    num_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """One split of a corpus.

    `num_pairs` is the number of lines per language after dropping pairs with an empty side; None if not known.
    """

    name: str
    num_pairs: int | None
    texts: tuple[TextInfo, ...]


@dataclass(frozen=True, kw_only=True)
class ArchiveInfo(Expected):
    """The one tar archive that holds the texts of every corpus of a source."""

    filename: str


@dataclass(frozen=True, kw_only=True)
class CorpusInfo:
    """A published corpus.

    `source` names the publication that the corpus is part of. Corpora of one source share an archive and are fetched
    one at a time. `mirrors` are URL prefixes of published paths, in the order in which they are tried. `pairs` are the
    directions (source language, target language) that the corpus is used for. `tokenised`: the text is tokenised
    already, so BLEU is computed with `tok:none` as well as `13a`. `lowercased`: the text is in lower case.
    """

    name: str
    source: str
    title: str
    homepage: str
    licence: str
    tokenised: bool
    lowercased: bool
    mirrors: tuple[str, ...]
    archive: ArchiveInfo | None = None
    pairs: tuple[tuple[str, str], ...]
    splits: tuple[SplitInfo, ...]


def names() -> list[str]:
    """Return the names of all corpora that can be fetched, in alphabetical order."""
    return sorted(_catalogue())


def describe(name: str) -> CorpusInfo:
    """Return the catalogue's entry for `name`. Raises DataError, which suggests the nearest name, if there is none."""
    corpora = _catalogue()
    if name not in corpora:
        raise DataError(unknown("published corpus", name.lower(), names()))
    return corpora[name]


@functools.cache
def _catalogue() -> dict[str, CorpusInfo]:
    """Return all entries of `corpora.toml` by name, each with the fields inherited from its source."""
    tables = tomllib.loads(resources.files("repose.data").joinpath("corpora.toml").read_text(encoding="utf-8"))
    entries = {
        name: {**tables["sources"][entry["source"]], "name": name, **entry, "splits": _splits(entry["splits"])}
        for name, entry in tables["corpora"].items()
    }
    return TypeAdapter(dict[str, CorpusInfo]).validate_python(entries)


def _splits(tables: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert the `[corpora.NAME.splits]` tables. Every key of a table except `num_pairs` is a language."""
    return [
        {
            "name": name,
            "num_pairs": table["num_pairs"],
            "texts": [{"language": key, **text} for key, text in table.items() if key != "num_pairs"],
        }
        for name, table in tables.items()
    ]
