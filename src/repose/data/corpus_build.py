"""Putting one corpus together, from its mirrors or from a copy obtained otherwise, in a folder not yet in use."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repose.data import corpus_texts, unpack
from repose.data.catalogue import ArchiveInfo, CorpusInfo, SplitInfo, TextInfo
from repose.data.corpus_texts import TextFile
from repose.data.download import Expected, MirrorsFailedError, Progress, check_size_and_sum, download
from repose.data.unpack import BadCopyError
from repose.system.errors import DataError

FORMAT_VERSION = 1
MANIFEST = "corpus.json"


class CorpusBuilder:
    """Fills `staging` with the texts of a corpus and its manifest; `scratch` is for files that do not stay.

    Call one of `import_from` and `download_from_mirrors`, then `write_manifest`.
    """

    def __init__(self, info: CorpusInfo, staging: Path, scratch: Path) -> None:
        self.info = info
        self.staging = staging
        self.scratch = scratch
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
        for split, text in corpus_texts.texts_of(self.info):
            # The compressed size is not known. It is less than the text's, but for a few bytes in tiny files.
            compressed = text.path.endswith((".gz", ".xz"))
            limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes + (1 << 16)
            expected = Expected(max_bytes=limit, num_bytes=None if compressed else text.num_bytes)
            url = fetch(text.path, expected, functools.partial(self._add, split=split, text=text, origin=""))
            self.origins[corpus_texts.file_name(split, text)] = url
        try:
            self._align()
        except BadCopyError as error:
            raise DataError(f"the mirrors' texts of {self.info.name} do not fit together: {error}") from error

    def write_manifest(self) -> None:
        """Write `corpus.json`: what the folder holds and where it comes from."""
        manifest: dict[str, Any] = {
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
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        (self.staging / MANIFEST).write_text(text + "\n", encoding="utf-8")

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
        for split, text in corpus_texts.texts_of(self.info):
            path = corpus_texts.find_in_folder(folder, split, text)
            self._add(path, split, text, str(path))
        self._align()

    def _add_archive(self, archive: Path, origin: str) -> None:
        """Unpack every text of the corpus out of a tar archive, with all checks."""
        members = set(unpack.list_members(archive))
        wanted = {
            corpus_texts.find_in_archive(members, split, text): (split, text)
            for split, text in corpus_texts.texts_of(self.info)
        }
        targets = {member: self.scratch / f"member-{number}" for number, member in enumerate(wanted)}
        unpack.extract_members(archive, targets)
        for member, (split, text) in wanted.items():
            self._add(targets[member], split, text, origin)
        self._align()

    def _add(self, path: Path, split: SplitInfo, text: TextInfo, origin: str) -> None:
        """Unpack one text into the staging folder and check it."""
        name = corpus_texts.file_name(split, text)
        limit = unpack.MAX_UNPACKED_BYTES if text.num_bytes is None else text.num_bytes
        unpack.unpack_text(path, self.staging / name, limit)
        self.files[name] = corpus_texts.check_text(self.staging / name, split, text)
        self.origins[name] = origin

    def _align(self) -> None:
        """Drop pairs with an empty side and compare with the published counts."""
        for split in self.info.splits:
            found = {text.language: self.files[corpus_texts.file_name(split, text)] for text in split.texts}
            self.dropped[split.name], kept = corpus_texts.align(self.staging, split, found)
            self.files |= {corpus_texts.file_name(split, text): kept[text.language] for text in split.texts}


def _expected(archive: ArchiveInfo) -> Expected:
    return Expected(max_bytes=unpack.MAX_UNPACKED_BYTES, num_bytes=archive.num_bytes, sha256=archive.sha256)
