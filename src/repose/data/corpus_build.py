"""Assemble one corpus from its mirrors or from a local copy, in a folder that is not in use yet.

The texts are found under any of their names, unpacked, checked, and aligned line by line. Lines end at `\\n` only. A
pair (or row, if a split has more languages) with an empty side is dropped from every side and counted. The published
counts of TED HRLR drop such pairs, too.
"""

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from repose.data import unpack
from repose.data.catalogue import CorpusInfo, TextInfo
from repose.data.download import Expected, MirrorsFailedError, Progress, download
from repose.data.unpack import BadCopyError
from repose.system.errors import DataError
from repose.system.files import replacing_file, sha256_of, write_json

FORMAT_VERSION = 1
MANIFEST = "corpus.json"


@dataclass(frozen=True)
class TextFile:
    """A text's number of lines, size in bytes, and SHA-256."""

    lines: int
    bytes: int
    sha256: str


class CorpusBuilder:
    """A builder that fills the empty folder `staging` with the texts of a corpus and its manifest.

    Call either `import_from` or `download_from_mirrors`, then `write_manifest`.
    """

    def __init__(self, info: CorpusInfo, staging: Path) -> None:
        self.info = info
        self.staging = staging
        self.files: dict[str, TextFile] = {}
        self.sources: dict[str, str] = {}
        """The path or address that each text came from."""
        self.dropped: dict[str, int] = {}

    def import_from(self, source: Path) -> None:
        """Take the texts from an archive or a folder. Raises DataError if it is not a good copy of the corpus."""
        archive = self.info.archive
        if archive is not None and (source / archive.filename).is_file():
            source = source / archive.filename
        try:
            if source.is_dir():
                for name, text in texts_of(self.info).items():
                    path = source / _find(name, text, lambda path: [path] if (source / path).is_file() else [])
                    self._add(path, name, text)
                    self.sources[name] = str(path)
                self._align()
            elif source.is_file():
                if archive is not None:
                    archive.check(source)
                self._add_archive(source)
                self.sources = dict.fromkeys(self.files, str(source))
            else:
                raise DataError(f"{source} does not exist: give an archive or a folder that holds {self.info.name}")
        except BadCopyError as error:
            raise DataError(
                f"{source} is not a good copy of {self.info.name}, since {error}: give the archive as it was "
                f"published, or a folder with all of its files"
            ) from error

    def download_from_mirrors(self, folder: Path, progress: Progress | None) -> None:
        """Download the texts into `folder` and take them from there.

        Raises DataError if no mirror has the published files.
        """

        def fetch(path: str, expected: Expected, verify: Callable[[Path], None]) -> str:
            """Download one file and return the address that served it."""
            urls = [mirror + path for mirror in self.info.mirrors]
            try:
                return download(urls, folder / path, expected, verify, progress=progress)
            except MirrorsFailedError as error:
                raise DataError(
                    f"no mirror gave a good {Path(path).name} ({error}): get the data another way, starting from "
                    f"{self.info.homepage}, and run `repose fetch {self.info.name} --from PATH`"
                ) from error

        if (archive := self.info.archive) is not None:
            url = fetch(archive.filename, archive, self._add_archive)
            self.sources = dict.fromkeys(self.files, url)
            return
        for name, text in texts_of(self.info).items():
            # The compressed size is not known. It is below the text's size, except for a few bytes in tiny files.
            compressed = text.path.endswith((".gz", ".xz"))
            limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes + (1 << 16)
            expected = Expected(max_bytes=limit, num_bytes=None if compressed else text.num_bytes)
            self.sources[name] = fetch(text.path, expected, functools.partial(self._add, name=name, text=text))
        try:
            self._align()
        except BadCopyError as error:
            raise DataError(f"the mirrors' texts of {self.info.name} do not fit together: {error}") from error

    def write_manifest(self) -> None:
        """Write `corpus.json`: what the folder holds and where it came from."""
        about = ("name", "title", "homepage", "licence", "tokenised", "lowercased")
        manifest = {
            "format_version": FORMAT_VERSION,
            **{name: getattr(self.info, name) for name in about},
            "dropped_empty_pairs": self.dropped,
            "files": {name: {"source": self.sources[name], **asdict(file)} for name, file in self.files.items()},
        }
        write_json(self.staging / MANIFEST, manifest)

    def _add_archive(self, archive: Path) -> None:
        """Unpack every text of the corpus from a tar archive, with all checks."""
        members, texts = set(unpack.list_members(archive)), texts_of(self.info)
        scratch = self.staging / ".members"
        scratch.mkdir()
        targets = {
            _find(name, text, lambda path: [m for m in members if f"/{m}".endswith(f"/{path}")]): scratch / name
            for name, text in texts.items()
        }
        unpack.extract_members(archive, targets)
        for name, text in texts.items():
            self._add(scratch / name, name, text)
        shutil.rmtree(scratch)
        self._align()

    def _add(self, path: Path, name: str, text: TextInfo) -> None:
        """Unpack one text into the staging folder and check it."""
        limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes
        unpack.unpack_text(path, self.staging / name, limit)
        self.files[name] = _check_text(self.staging / name, text.sha256)

    def _align(self) -> None:
        """Drop the rows of each split that have an empty side. Raises BadCopyError if line or pair counts are wrong."""
        for split in self.info.splits:
            names = [f"{split.name}.{text.language}" for text in split.texts]
            lines = {text.language: self.files[name].lines for text, name in zip(split.texts, names, strict=True)}
            if len(set(lines.values())) > 1:
                sizes = ", ".join(f"{language} {count:,}" for language, count in lines.items())
                raise BadCopyError(f"the languages of {split.name} have different numbers of lines ({sizes})")
            paths = [self.staging / name for name in names]
            dropped = self.dropped[split.name] = sum(1 for row in _rows(paths) if not all(row))
            num_pairs = self.files[names[0]].lines - dropped
            if split.num_pairs not in (None, num_pairs):
                raise BadCopyError(
                    f"{split.name} has {num_pairs:,} pairs with text on every side instead of the published "
                    f"{split.num_pairs:,}"
                )
            if dropped:
                with ExitStack() as stack:
                    files = [
                        stack.enter_context(stack.enter_context(replacing_file(path)).open("wb")) for path in paths
                    ]
                    for row in filter(all, _rows(paths)):
                        for file, line in zip(files, row, strict=True):
                            file.write(line + b"\n")
                for name, path in zip(names, paths, strict=True):
                    # The published SHA-256 is for the text with its empty lines, so a new one is recorded.
                    self.files[name] = _check_text(path, None)


def texts_of(info: CorpusInfo) -> dict[str, TextInfo]:
    """Return every text of a corpus by its name in the cache, `<split>.<language>`."""
    return {f"{split.name}.{text.language}": text for split in info.splits for text in split.texts}


def _find(name: str, text: TextInfo, fitting: Callable[[str], Sequence[str]]) -> str:
    """Find the file of a copy that holds the text.

    A copy may call the file by its published path, by that path without some leading folders, or by its name in the
    cache, and each of these as published, plain, or compressed. The most specific name is tried first. `fitting`
    returns the copy's files with a given name. Raises BadCopyError if there is no match, or if several match equally
    well.
    """
    parts = text.path.split("/")
    for stem in [*("/".join(parts[start:]) for start in range(len(parts))), name]:
        plain = stem.removesuffix(".gz").removesuffix(".xz")
        for path in (stem, plain, f"{plain}.gz", f"{plain}.xz"):
            files = fitting(path)
            if len(files) > 1:
                raise BadCopyError(f"it holds {len(files)} files called {path}")
            if files:
                return files[0]
    raise BadCopyError(f"it lacks {' or '.join(dict.fromkeys((parts[-1], name)))}")


def _check_text(path: Path, sha256: str | None) -> TextFile:
    """Check and describe an unpacked text. Raises BadCopyError if it is not the published text or not UTF-8."""
    with path.open("rb") as file:
        # A host that has lost a file often answers with a web page and status 200.
        if file.read(1 << 20).lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
            raise BadCopyError(f"{path.name} came as a web page instead of text")
    digest = sha256_of(path)
    if sha256 is not None and sha256 != digest:
        raise BadCopyError(f"{path.name} is not the published text (SHA-256 {digest[:12]}… instead of {sha256[:12]}…)")
    num_lines = 0
    with path.open(encoding="utf-8", newline="\n") as lines:
        try:
            for _ in lines:
                num_lines += 1
        except UnicodeDecodeError as error:
            raise BadCopyError(f"{path.name} is not UTF-8 text after line {num_lines:,}") from error
    return TextFile(num_lines, path.stat().st_size, digest)


def _rows(paths: Sequence[Path]) -> Iterator[tuple[bytes, ...]]:
    """Yield the lines of all files side by side, without their line feeds."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        for row in zip(*files, strict=True):
            yield tuple(line.removesuffix(b"\n") for line in row)
