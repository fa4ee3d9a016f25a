"""The texts of a corpus once they are unpacked: found under any of their names, checked, and aligned line by line.

Lines end at `\\n` and nowhere else. A pair (or row, where a split has more languages) of which any side is empty is
dropped from every side, as the published counts of TED HRLR do it, and counted.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from repose.data.catalogue import CorpusInfo, SplitInfo, TextInfo
from repose.data.unpack import BadCopyError

_CHUNK = 1 << 20
_COMPRESSIONS = (".gz", ".xz")


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """What was found in one text: number of lines, size in bytes, SHA-256."""

    num_lines: int
    num_bytes: int
    sha256: str


def file_name(split: SplitInfo, text: TextInfo) -> str:
    """The text's name in the cache: `<split>.<language>`."""
    return f"{split.name}.{text.language}"


def texts_of(info: CorpusInfo) -> Iterator[tuple[SplitInfo, TextInfo]]:
    """Every text of a corpus with the split that it belongs to."""
    for split in info.splits:
        for text in split.texts:
            yield split, text


def candidate_paths(split: SplitInfo, text: TextInfo) -> list[str]:
    """Names under which a copy may hold the text, most specific first.

    These are the published path and what is left of it without its leading folders, then the name in the cache; each
    as published, plain, and compressed.
    """
    parts = text.path.split("/")
    stems = ["/".join(parts[start:]) for start in range(len(parts))] + [file_name(split, text)]
    found: dict[str, None] = {}
    for stem in stems:
        plain = _without_compression(stem)
        for path in (stem, plain, *(plain + ending for ending in _COMPRESSIONS)):
            found.setdefault(path)
    return list(found)


def find_in_folder(folder: Path, split: SplitInfo, text: TextInfo) -> Path:
    """The file of `folder` that holds the text; BadCopyError where there is none."""
    candidates = candidate_paths(split, text)
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise BadCopyError(f"it lacks {_names_of(split, text)}")


def find_in_archive(members: Collection[str], split: SplitInfo, text: TextInfo) -> str:
    """The member that holds the text, at any depth; BadCopyError where there is none, or more than one fits equally."""
    for candidate in candidate_paths(split, text):
        fitting = {member for member in members if member == candidate or member.endswith("/" + candidate)}
        if len(fitting) == 1:
            return fitting.pop()
        if fitting:
            raise BadCopyError(f"it holds {len(fitting)} files called {candidate}")
    raise BadCopyError(f"it lacks {_names_of(split, text)}")


def check_text(path: Path, split: SplitInfo, text: TextInfo) -> TextFile:
    """What an unpacked text holds; BadCopyError where it is not the published one, or not UTF-8."""
    digest = hashlib.sha256()
    decoder = codecs.getincrementaldecoder("utf-8")()
    num_lines = num_bytes = 0
    chunk = last = b""
    name = file_name(split, text)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if not num_bytes:
                _refuse_web_page(chunk, name)
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                raise BadCopyError(f"{name} is not UTF-8 text near byte {num_bytes + error.start:,}") from error
            digest.update(chunk)
            num_lines += chunk.count(b"\n")
            num_bytes += len(chunk)
            last = chunk
    # A last line without its line feed is a line all the same.
    num_lines += bool(last) and not last.endswith(b"\n")
    sha256 = digest.hexdigest()
    if text.sha256 is not None and sha256 != text.sha256:
        raise BadCopyError(f"{name} is not the published text (SHA-256 {sha256[:12]}… instead of {text.sha256[:12]}…)")
    return TextFile(num_lines=num_lines, num_bytes=num_bytes, sha256=sha256)


def align(folder: Path, split: SplitInfo, found: Mapping[str, TextFile]) -> tuple[int, dict[str, TextFile]]:
    """Drop the lines of a split that any language leaves empty; (number dropped, what the files hold afterwards).

    `found` maps languages to what `check_text` said of their files in `folder`, which are rewritten only where
    something is dropped. Raises BadCopyError where the languages have different numbers of lines, or where the number
    of pairs left is not the published one.
    """
    counts = {language: text.num_lines for language, text in found.items()}
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{language} {count:,}" for language, count in counts.items())
        raise BadCopyError(f"the languages of {split.name} have different numbers of lines ({sizes})")
    num_lines = next(iter(counts.values()))
    paths = [folder / file_name(split, text) for text in split.texts]
    dropped = sum(1 for row in _rows(paths) if not all(row))
    if split.num_pairs is not None and num_lines - dropped != split.num_pairs:
        raise BadCopyError(
            f"{split.name} has {num_lines - dropped:,} pairs with text on every side instead of the published "
            f"{split.num_pairs:,}"
        )
    if not dropped:
        return 0, dict(found)
    _rewrite_without_empty(paths)
    # The published SHA-256 is of the text with its empty lines; what is left of it has one of its own.
    return dropped, {
        text.language: check_text(path, split, TextInfo(language=text.language, path=text.path))
        for text, path in zip(split.texts, paths, strict=True)
    }


def _rewrite_without_empty(paths: list[Path]) -> None:
    kept = [path.with_name(path.name + ".kept") for path in paths]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in kept]
        for row in _rows(paths):
            if all(row):
                for file, line in zip(files, row, strict=True):
                    file.write(line + b"\n")
    for new, path in zip(kept, paths, strict=True):
        new.replace(path)


def _rows(paths: list[Path]) -> Iterator[tuple[bytes, ...]]:
    """The lines of all files side by side, without their line feeds."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        for row in itertools.zip_longest(*files, fillvalue=b""):
            yield tuple(line.removesuffix(b"\n") for line in row)


def _without_compression(path: str) -> str:
    for ending in _COMPRESSIONS:
        path = path.removesuffix(ending)
    return path


def _names_of(split: SplitInfo, text: TextInfo) -> str:
    """Both names of a text, for messages."""
    return " or ".join(dict.fromkeys((text.path.rpartition("/")[2], file_name(split, text))))


def _refuse_web_page(start: bytes, name: str) -> None:
    """Hosts that lost a file like to answer with a page instead, and with success."""
    if start.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        raise BadCopyError(f"{name} came as a web page instead of text")
