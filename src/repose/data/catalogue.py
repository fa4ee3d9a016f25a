"""What is known of the published corpora: `corpora.toml`, read into frozen dataclasses.

The file holds names, mirrors, licences, counts and checksums, and none of the texts. A corpus may have more than two
languages (Multi30k has four, aligned line by line), so that a split is a list of texts rather than a pair of them.
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
    """One language of one split, as its publisher offers it.

    `path` is below a mirror, or inside the archive. `num_bytes` and `sha256` are of the uncompressed text; None where
    they are not known.
    """

    language: str
    path: str
    num_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """One split: `num_pairs` lines per language once those with an empty side are dropped (None: not known)."""

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

    `source` names the publication that it is part of: corpora of one source share an archive and are fetched one at a
    time. `mirrors` are addresses that a published path is appended to, in the order in which they are tried. `pairs`
    are the directions (source language, target language) that it is used for. `tokenised` says that the text is
    tokenised already, so that BLEU is computed with `tok:none` beside `13a`; `lowercased`, that it is lower-case.
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
    """Names of all corpora that can be fetched, in alphabetical order."""
    return sorted(_catalogue())


def describe(name: str) -> CorpusInfo:
    """The catalogue's entry; DataError with the nearest name where there is none called `name`."""
    corpora = _catalogue()
    if name not in corpora:
        raise DataError(unknown("published corpus", name.lower(), names()))
    return corpora[name]


@functools.cache
def _catalogue() -> dict[str, CorpusInfo]:
    """All entries of `corpora.toml` by name, each with what it inherits from its source."""
    tables = tomllib.loads(resources.files("repose.data").joinpath("corpora.toml").read_text(encoding="utf-8"))
    entries = {
        name: {**tables["sources"][entry["source"]], "name": name, **entry, "splits": _splits(entry["splits"])}
        for name, entry in tables["corpora"].items()
    }
    return TypeAdapter(dict[str, CorpusInfo]).validate_python(entries)


def _splits(tables: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The `[corpora.NAME.splits]` tables: every key of one but `num_pairs` is a language."""
    return [
        {
            "name": name,
            "num_pairs": table["num_pairs"],
            "texts": [{"language": key, **text} for key, text in table.items() if key != "num_pairs"],
        }
        for name, table in tables.items()
    ]
