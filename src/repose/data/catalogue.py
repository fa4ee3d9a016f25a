"""What is known of the published corpora: `corpora.toml`, read into frozen dataclasses.

The file holds names, mirrors, licences, counts and checksums, and none of the texts. A corpus may have more than two
languages (Multi30k has four, aligned line by line), so that a split is a list of texts rather than a pair of them.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from repose.system.errors import DataError


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

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that this split exists in."""
        return tuple(text.language for text in self.texts)


@dataclass(frozen=True, kw_only=True)
class ArchiveInfo:
    """The one tar archive that holds the texts of every corpus of a source; size in bytes and SHA-256 where known."""

    filename: str
    num_bytes: int | None = None
    sha256: str | None = None


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
    archive: ArchiveInfo | None
    pairs: tuple[tuple[str, str], ...]
    splits: tuple[SplitInfo, ...]

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language of the corpus, in the order in which the catalogue first names it."""
        return tuple(dict.fromkeys(language for split in self.splits for language in split.languages))

    def split(self, name: str) -> SplitInfo:
        """The split called `name`; DataError lists the names there are."""
        for split in self.splits:
            if split.name == name:
                return split
        known = ", ".join(split.name for split in self.splits)
        raise DataError(f"corpus {self.name} has no split '{name}': choose one of {known}")


def names() -> list[str]:
    """Names of all corpora that can be fetched, in alphabetical order."""
    return sorted(_catalogue())


def describe(name: str) -> CorpusInfo:
    """The catalogue's entry; DataError with the nearest name where there is none called `name`."""
    corpora = _catalogue()
    if name in corpora:
        return corpora[name]
    wanted = name.lower()
    last_parts = {known.rpartition("/")[2]: known for known in corpora}
    close = difflib.get_close_matches(wanted, corpora, n=1) or [
        last_parts[part] for part in difflib.get_close_matches(wanted, last_parts, n=1)
    ]
    hint = f"did you mean '{close[0]}'?" if close else f"the known ones are {', '.join(names())}"
    raise DataError(f"there is no published corpus called '{name}': {hint}")


@functools.cache
def _catalogue() -> dict[str, CorpusInfo]:
    """All entries of `corpora.toml` by name."""
    text = resources.files("repose.data").joinpath("corpora.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return {name: _corpus(name, entry, tables["sources"]) for name, entry in tables["corpora"].items()}


def _corpus(name: str, entry: Mapping[str, Any], sources: Mapping[str, Any]) -> CorpusInfo:
    """One `[corpora.NAME]` table with what it inherits from its `[sources.KEY]`."""
    source = sources[entry["source"]]
    return CorpusInfo(
        name=name,
        source=entry["source"],
        title=source["title"],
        homepage=source["homepage"],
        licence=source["licence"],
        tokenised=source["tokenised"],
        lowercased=source["lowercased"],
        mirrors=tuple(source["mirrors"]),
        archive=ArchiveInfo(**source["archive"]) if "archive" in source else None,
        pairs=tuple((src, tgt) for src, tgt in entry["pairs"]),
        splits=tuple(_split(split, table) for split, table in entry["splits"].items()),
    )


def _split(name: str, table: Mapping[str, Any]) -> SplitInfo:
    """One `[corpora.NAME.splits.SPLIT]` table: every key but `num_pairs` is a language."""
    texts = {language: text for language, text in table.items() if language != "num_pairs"}
    return SplitInfo(
        name=name,
        num_pairs=table.get("num_pairs"),
        texts=tuple(TextInfo(language=language, **text) for language, text in texts.items()),
    )
