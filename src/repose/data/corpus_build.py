"""Putting one corpus together, from its mirrors or from a copy obtained otherwise, in a folder not yet in use.

Its texts are found under any of their names, unpacked, checked, and aligned line by line. Lines end at `\\n` and
nowhere else. A pair (or row, where a split has more languages) of which any side is empty is dropped from every side,
as the published counts of TED HRLR do it, and counted.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import itertools
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from repose.data import unpack
from repose.data.catalogue import ArchiveInfo, CorpusInfo, SplitInfo, TextInfo
from repose.data.download import Expected, MirrorsFailedError, Progress, check_size_and_sum, download
from repose.data.unpack import BadCopyError
from repose.system.errors import DataError
from repose.system.files import replacing_file, write_json

FORMAT_VERSION = 1
MANIFEST = "corpus.json"

_CHUNK = 1 << 20
_COMPRESSIONS = (".gz", ".xz")


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """What one text holds: number of lines, size in bytes, SHA-256."""

    num_lines: int
    num_bytes: int
    sha256: str


class CorpusBuilder:
    """Fills the empty folder `staging` with the texts of a corpus and its manifest.

    Call one of `import_from` and `download_from_mirrors`, then `write_manifest`.
    """

    def __init__(self, info: CorpusInfo, staging: Path) -> None:
        self.info = info
        self.staging = staging
        self.files: dict[str, TextFile] = {}
        self.origins: dict[str, str] = {}
        self.dropped: dict[str, int] = {}

    def import_from(self, source: Path) -> None:
        """Take the texts from an archive or a folder; DataError where it is not a good copy."""
        archive = self.info.archive
        if archive is not None and (source / archive.filename).is_file():
            source = source / archive.filename
        try:
            if source.is_dir():
                self._import_folder(source)
            elif source.is_file():
                if archive is not None:
                    check_size_and_sum(source, _expected(archive))
                self._add_archive(source, str(source))
            else:
                raise DataError(f"{source} does not exist: give an archive or a folder that holds {self.info.name}")
        except BadCopyError as error:
            raise DataError(
                f"{source} is not a good copy of {self.info.name}, since {error}: give the archive as it was "
                f"published, or a folder with all of its files"
            ) from error

    def download_from_mirrors(self, folder: Path, progress: Progress | None, timeout: float) -> None:
        """Take the texts from the mirrors, by way of `folder`; DataError where none gives what was published."""
        fetch = functools.partial(self._download, folder=folder, progress=progress, timeout=timeout)
        if self.info.archive is not None:
            archive = self.info.archive
            url = fetch(archive.filename, _expected(archive), lambda file: self._add_archive(file, ""))
            self.origins = dict.fromkeys(self.origins, url)
            return
        for split, text in texts_of(self.info):
            # The compressed size is not known. It is less than the text's, but for a few bytes in tiny files.
            compressed = text.path.endswith((".gz", ".xz"))
            limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes + (1 << 16)
            expected = Expected(max_bytes=limit, num_bytes=None if compressed else text.num_bytes)
            url = fetch(text.path, expected, functools.partial(self._add, split=split, text=text, origin=""))
            self.origins[file_name(split, text)] = url
        try:
            self._align()
        except BadCopyError as error:
            raise DataError(f"the mirrors' texts of {self.info.name} do not fit together: {error}") from error

    def write_manifest(self) -> None:
        """Write `corpus.json`: what the folder holds and where it comes from."""
        manifest = {
            "format_version": FORMAT_VERSION,
            "name": self.info.name,
            "title": self.info.title,
            "homepage": self.info.homepage,
            "licence": self.info.licence,
            "tokenised": self.info.tokenised,
            "lowercased": self.info.lowercased,
            "dropped_empty_pairs": self.dropped,
            "files": {
                name: {
                    "source": self.origins[name],
                    "lines": file.num_lines,
                    "bytes": file.num_bytes,
                    "sha256": file.sha256,
                }
                for name, file in self.files.items()
            },
        }
        write_json(self.staging / MANIFEST, manifest)

    def _download(
        self,
        path: str,
        expected: Expected,
        verify: Callable[[Path], None],
        *,
        folder: Path,
        progress: Progress | None,
        timeout: float,
    ) -> str:
        """One file from this corpus's mirrors; the address that served it."""
        urls = [mirror + path for mirror in self.info.mirrors]
        try:
            return download(urls, folder / path, expected, verify, progress=progress, timeout=timeout)
        except MirrorsFailedError as error:
            raise DataError(
                f"no mirror gave a good {Path(path).name} ({error}): get the data another way, starting from "
                f"{self.info.homepage}, and run `repose fetch {self.info.name} --from PATH`"
            ) from error

    def _import_folder(self, folder: Path) -> None:
        for split, text in texts_of(self.info):
            path = find_in_folder(folder, split, text)
            self._add(path, split, text, str(path))
        self._align()

    def _add_archive(self, archive: Path, origin: str) -> None:
        """Unpack every text of the corpus out of a tar archive, with all checks."""
        members = set(unpack.list_members(archive))
        wanted = {find_in_archive(members, split, text): (split, text) for split, text in texts_of(self.info)}
        scratch = self.staging / ".members"
        scratch.mkdir()
        targets = {member: scratch / f"member-{number}" for number, member in enumerate(wanted)}
        unpack.extract_members(archive, targets)
        for member, (split, text) in wanted.items():
            self._add(targets[member], split, text, origin)
        shutil.rmtree(scratch)
        self._align()

    def _add(self, path: Path, split: SplitInfo, text: TextInfo, origin: str) -> None:
        """Unpack one text into the staging folder and check it."""
        name = file_name(split, text)
        limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes
        unpack.unpack_text(path, self.staging / name, limit)
        self.files[name] = check_text(self.staging / name, split, text)
        self.origins[name] = origin

    def _align(self) -> None:
        """Drop pairs with an empty side and compare with the published counts."""
        for split in self.info.splits:
            unpacked = {text.language: self.files[file_name(split, text)] for text in split.texts}
            self.dropped[split.name], aligned = align(self.staging, split, unpacked)
            self.files |= {file_name(split, text): aligned[text.language] for text in split.texts}


def _expected(archive: ArchiveInfo) -> Expected:
    return Expected(max_bytes=unpack.MAX_UNPACKED_BYTES, num_bytes=archive.num_bytes, sha256=archive.sha256)


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
    paths: dict[str, None] = {}
    for stem in stems:
        plain = _without_compression(stem)
        for path in (stem, plain, *(plain + ending for ending in _COMPRESSIONS)):
            paths.setdefault(path)
    return list(paths)


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


def align(folder: Path, split: SplitInfo, texts: Mapping[str, TextFile]) -> tuple[int, dict[str, TextFile]]:
    """Drop the lines of a split that any language leaves empty; (number dropped, what the files hold afterwards).

    `texts` maps languages to what `check_text` said of their files in `folder`, which are rewritten only where
    something is dropped. Raises BadCopyError where the languages have different numbers of lines, or where the number
    of pairs left is not the published one.
    """
    counts = {language: text.num_lines for language, text in texts.items()}
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
        return 0, dict(texts)
    _rewrite_without_empty(paths)
    # The published SHA-256 is of the text with its empty lines; what is left of it has one of its own.
    return dropped, {
        text.language: check_text(path, split, TextInfo(language=text.language, path=text.path))
        for text, path in zip(split.texts, paths, strict=True)
    }


def _rewrite_without_empty(paths: list[Path]) -> None:
    with ExitStack() as stack:
        new = [stack.enter_context(replacing_file(path)) for path in paths]
        files = [stack.enter_context(path.open("wb")) for path in new]
        for row in _rows(paths):
            if all(row):
                for file, line in zip(files, row, strict=True):
                    file.write(line + b"\n")


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
