"""Putting one corpus together, from its mirrors or from a copy that is already there, in a folder not yet in use.

Its texts are found under any of their names, unpacked, checked, and aligned line by line. Lines end at `\\n` and
nowhere else. A pair (or row, where a split has more languages) of which any side is empty is dropped from every side,
as the published counts of TED HRLR do it, and counted.
"""

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
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
    """What the manifest says of a text: where it came from, number of lines, size in bytes, SHA-256."""

    source: str
    lines: int
    bytes: int
    sha256: str


class CorpusBuilder:
    """Fills the empty folder `staging` with the texts of a corpus and its manifest.

    Call one of `import_from` and `download_from_mirrors`, then `write_manifest`.
    """

    def __init__(self, info: CorpusInfo, staging: Path) -> None:
        self.info = info
        self.staging = staging
        self.files: dict[str, TextFile] = {}
        self.dropped: dict[str, int] = {}

    def import_from(self, source: Path) -> None:
        """Take the texts from an archive or a folder; DataError where it is not a good copy."""
        archive = self.info.archive
        if archive is not None and (source / archive.filename).is_file():
            source = source / archive.filename
        try:
            if source.is_dir():
                for name, text in texts_of(self.info).items():
                    path = source / find(name, text, lambda path: [path] if (source / path).is_file() else [])
                    self._add(path, name, text, str(path))
                self._align()
            elif source.is_file():
                if archive is not None:
                    archive.check(source)
                self._add_archive(source, str(source))
            else:
                raise DataError(f"{source} does not exist: give an archive or a folder that holds {self.info.name}")
        except BadCopyError as error:
            raise DataError(
                f"{source} is not a good copy of {self.info.name}, since {error}: give the archive as it was "
                f"published, or a folder with all of its files"
            ) from error

    def download_from_mirrors(self, folder: Path, progress: Progress | None) -> None:
        """Take the texts from the mirrors, by way of `folder`; DataError where none gives what was published."""

        def fetch(path: str, expected: Expected, verify: Callable[[Path], None]) -> str:
            """One file; the address that served it."""
            urls = [mirror + path for mirror in self.info.mirrors]
            try:
                return download(urls, folder / path, expected, verify, progress=progress)
            except MirrorsFailedError as error:
                raise DataError(
                    f"no mirror gave a good {Path(path).name} ({error}): get the data another way, starting from "
                    f"{self.info.homepage}, and run `repose fetch {self.info.name} --from PATH`"
                ) from error

        if (archive := self.info.archive) is not None:
            url = fetch(archive.filename, archive, lambda file: self._add_archive(file, ""))
            self.files = {name: replace(file, source=url) for name, file in self.files.items()}
            return
        for name, text in texts_of(self.info).items():
            # The compressed size is not known. It is less than the text's, but for a few bytes in tiny files.
            compressed = text.path.endswith((".gz", ".xz"))
            limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes + (1 << 16)
            expected = Expected(max_bytes=limit, num_bytes=None if compressed else text.num_bytes)
            url = fetch(text.path, expected, functools.partial(self._add, name=name, text=text, source=""))
            self.files[name] = replace(self.files[name], source=url)
        try:
            self._align()
        except BadCopyError as error:
            raise DataError(f"the mirrors' texts of {self.info.name} do not fit together: {error}") from error

    def write_manifest(self) -> None:
        """Write `corpus.json`: what the folder holds and where it comes from."""
        about = ("name", "title", "homepage", "licence", "tokenised", "lowercased")
        manifest = {
            "format_version": FORMAT_VERSION,
            **{name: getattr(self.info, name) for name in about},
            "dropped_empty_pairs": self.dropped,
            "files": {name: asdict(file) for name, file in self.files.items()},
        }
        write_json(self.staging / MANIFEST, manifest)

    def _add_archive(self, archive: Path, source: str) -> None:
        """Unpack every text of the corpus out of a tar archive, with all checks."""
        members, texts = set(unpack.list_members(archive)), texts_of(self.info)
        scratch = self.staging / ".members"
        scratch.mkdir()
        targets = {
            find(name, text, lambda path: [m for m in members if f"/{m}".endswith(f"/{path}")]): scratch / name
            for name, text in texts.items()
        }
        unpack.extract_members(archive, targets)
        for name, text in texts.items():
            self._add(scratch / name, name, text, source)
        shutil.rmtree(scratch)
        self._align()

    def _add(self, path: Path, name: str, text: TextInfo, source: str) -> None:
        """Unpack one text into the staging folder and check it."""
        limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes
        unpack.unpack_text(path, self.staging / name, limit)
        self.files[name] = check_text(self.staging / name, source, text.sha256)

    def _align(self) -> None:
        """Drop the rows of each split that any language leaves empty; BadCopyError for other counts than published."""
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
                    # The published SHA-256 is of the text with its empty lines; what is left of it has its own.
                    self.files[name] = check_text(path, self.files[name].source, None)


def texts_of(info: CorpusInfo) -> dict[str, TextInfo]:
    """Every text of a corpus by its name in the cache, `<split>.<language>`."""
    return {f"{split.name}.{text.language}": text for split in info.splits for text in split.texts}


def find(name: str, text: TextInfo, fitting: Callable[[str], Sequence[str]]) -> str:
    """The file of a copy that holds the text; BadCopyError where there is none, or more than one fits equally.

    A copy may call it by its published path, by what is left of that without leading folders, or by its name in the
    cache, each as published, plain, and compressed; the most specific comes first. `fitting` gives the copy's files of
    a name.
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


def check_text(path: Path, source: str, sha256: str | None) -> TextFile:
    """What an unpacked text holds; BadCopyError where it is not the published one, or not UTF-8."""
    with path.open("rb") as file:
        # Hosts that lost a file like to answer with a page instead, and with success.
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
    return TextFile(source, num_lines, path.stat().st_size, digest)


def _rows(paths: Sequence[Path]) -> Iterator[tuple[bytes, ...]]:
    """The lines of all files side by side, without their line feeds."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        for row in zip(*files, strict=True):
            yield tuple(line.removesuffix(b"\n") for line in row)
