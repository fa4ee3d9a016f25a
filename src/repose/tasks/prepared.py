"""A prepared corpus, as training and evaluation read it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from repose.data import columns
from repose.data.findings import CorpusCheck
from repose.data.lines import check_file
from repose.data.pairs import TextPairs
from repose.data.tokenizer import Tokenizer
from repose.system.errors import DataError
from repose.system.files import sha256_of
from repose.tasks.corpus_files import SPLITS

CHECK = "check.json"


@dataclass(frozen=True)
class CorpusData:
    """A prepared corpus."""

    folder: Path
    report: tuple[str, ...] = ()
    """Sentences on how it was prepared."""

    def tokenizer_path(self, side: str) -> Path:
        """Return the path of the tokenizer of "src" or "tgt"."""
        return tokenizer_file(self.folder, side)

    @property
    def check(self) -> CorpusCheck:
        """Findings of the corpus check; empty if there was none, as for tasks without pairs."""
        try:
            content = json.loads((self.folder / CHECK).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return CorpusCheck({}, ())
        return CorpusCheck.from_json(content)

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the data, which are part of the run id."""
        ids = {split: columns.read_meta(self.folder / split)["digest"] for split in ("train", "valid")}
        tokenizers = {side: Tokenizer.load(self.tokenizer_path(side)).digest for side in ("src", "tgt")}
        return {**ids, **tokenizers}

    @property
    def test_digest(self) -> str | None:
        """Digest of the test set, or None. It affects scores but not weights, so it is not part of the run id."""
        if self.has_text("test"):
            sides = (self.folder / "text" / f"test.{side}" for side in ("src", "tgt"))
            return hashlib.sha256(" ".join(map(digest_of, sides)).encode()).hexdigest()
        return columns.read_meta(self.folder / "test")["digest"] if (self.folder / "test").is_dir() else None

    @property
    def measured(self) -> str:
        """The split that a finished model is evaluated on: the test set, or the validation set if there is none."""
        has_test = self.has_text("test") or (self.folder / "test").is_dir()
        return "test" if has_test else "valid"

    def ids(self, split: str) -> Path:
        """Return the path of a split's token ids. Raises DataError if there are none."""
        if not (self.folder / split / columns.META_FILE).exists():
            raise DataError(f"this corpus has no {split} set: choose another")
        return self.folder / split

    def has_text(self, split: str) -> bool:
        """Return whether the corpus has this split, as sentence pairs."""
        return (self.folder / "text" / f"{split}.src").exists()

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Return a split's sources and references, as read. Raises DataError if there is no such split."""
        if not self.has_text(split):
            known = ", ".join(name for name in SPLITS if self.has_text(name))
            if not known:
                raise DataError("this corpus is of a task without sentence pairs: it has no sources and references")
            raise DataError(f"this corpus has no {split} set: choose one of {known}")
        pairs = list(TextPairs(self.folder / "text", split))
        return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def tokenizer_file(folder: Path, side: str) -> Path:
    """Return the path of the tokenizer of "src" or "tgt" in a prepared folder."""
    return folder / f"tokenizer.{side}.json"


def digest_of(path: Path) -> str:
    check_file(path)  # reading a pipe or device might never end
    try:
        return sha256_of(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check the path") from error
