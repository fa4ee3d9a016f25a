"""The format of a prepared dataset: a folder of token ids that can be memory-mapped.

    src.ids, tgt.ids           token ids of all pairs, one after the other; uint16, or uint32 above 65,536 ids
    src.offsets, tgt.offsets   int64, pairs + 1: where each sentence begins in .ids, and the end
    src.lengths, tgt.lengths   int32, pairs: source tokens; decoder positions (stored target tokens - 1)
    meta.json                  `Meta`, written last

All numbers are little-endian. A stored source is [START … END], a stored target likewise; a truncated sentence has
lost its end. A folder under its final name is complete: it is written under another name and renamed.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from repose.system.errors import DataError

FORMAT_VERSION = 1
META_FILE = "meta.json"
OFFSET_BYTES, LENGTH_BYTES = 8, 4

Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
FILES = (META_FILE, *(f"{side}.{part}" for side in SIDES for part in ("ids", "offsets", "lengths")))

_BLOCK = 1 << 20


def id_bytes(vocab_size: int) -> int:
    """Bytes of a stored token id."""
    return 2 if vocab_size <= 1 << 16 else 4


@dataclass(frozen=True)
class Settings:
    """What, beside the text and the tokenizers, decides the stored ids."""

    max_src_tokens: int
    """Source tokens, START and END counted."""
    max_tgt_tokens: int
    """Decoder positions, that is labels, END counted: one less than stored target tokens."""
    long_pairs: Literal["drop", "truncate"]


@dataclass(frozen=True)
class PreparedCounts:
    """What became of the pairs that were prepared."""

    read: int
    kept: int
    dropped: dict[str, int]
    """Pairs left out, by reason; read = kept + the sum of these."""
    truncated: dict[str, int]
    """Kept sentences that were cut, by reason."""
    src_tokens: int
    """Stored source tokens, START and END counted."""
    tgt_tokens: int
    """Labels (END counted, START not): the number that batches and losses are measured in."""
    src_unknown: int
    """Stored source tokens that are [UNK]."""
    tgt_unknown: int

    def describe(self) -> str:
        """One line of text."""
        parts = [f"{self.kept:,} pairs of {self.src_tokens:,} source and {self.tgt_tokens:,} target tokens"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in self.dropped.items()]
        parts += [f"{number:,} cut ({reason})" for reason, number in self.truncated.items()]
        if self.src_unknown or self.tgt_unknown:
            parts.append(f"{self.src_unknown:,} source and {self.tgt_unknown:,} target tokens unknown")
        return ", ".join(parts)


@dataclass(frozen=True)
class Meta:
    """meta.json."""

    format_version: int
    settings: Settings
    src_tokenizer: str
    """The tokenizer's digest."""
    tgt_tokenizer: str
    src_vocab_size: int
    tgt_vocab_size: int
    text_digest: str
    """SHA-256 of the text of all pairs that were read."""
    digest: str
    """SHA-256 over the content of the .ids and .lengths files."""
    counts: PreparedCounts

    def vocab_size(self, side: Side) -> int:
        """Ids of this side's tokenizer."""
        return self.src_vocab_size if side == "src" else self.tgt_vocab_size

    def num_ids(self, side: Side) -> int:
        """Stored tokens of this side."""
        return self.counts.src_tokens if side == "src" else self.counts.tgt_tokens + self.counts.kept

    def file_sizes(self) -> dict[str, int]:
        """Size in bytes that each binary file must have."""
        sizes = {}
        for side in SIDES:
            sizes[f"{side}.ids"] = self.num_ids(side) * id_bytes(self.vocab_size(side))
            sizes[f"{side}.offsets"] = (self.counts.kept + 1) * OFFSET_BYTES
            sizes[f"{side}.lengths"] = self.counts.kept * LENGTH_BYTES
        return sizes


def write_meta(folder: Path, meta: Meta) -> None:
    """Write meta.json."""
    (folder / META_FILE).write_text(json.dumps(asdict(meta), indent=2) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> Meta:
    """The meta.json of a finished folder whose files have the right sizes; raises `DataError` for any other folder."""
    try:
        text = (folder / META_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder} is not a prepared dataset (no readable {META_FILE}): prepare it again") from error
    meta = _parse_meta(text, folder)
    for name, size in meta.file_sizes().items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found:,} bytes instead of {size:,}"
            raise DataError(f"the prepared dataset {folder} is damaged ({name} {state}): delete and prepare it again")
    return meta


def _parse_meta(text: str, folder: Path) -> Meta:
    damaged = f"the prepared dataset {folder} is damaged (its {META_FILE} cannot be understood): prepare it again"
    try:
        values = json.loads(text)
        version = values["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(damaged) from error
    if version != FORMAT_VERSION:
        raise DataError(f"{folder} has format {version}, this version reads {FORMAT_VERSION}: prepare it again")
    try:
        values["settings"] = Settings(**values["settings"])
        values["counts"] = PreparedCounts(**values["counts"])
        meta = Meta(**values)
    except (TypeError, KeyError) as error:
        raise DataError(damaged) from error
    numbers = (meta.counts.read, meta.counts.kept, meta.counts.src_tokens, meta.counts.tgt_tokens)
    if not all(_is_count(number) for number in (*numbers, meta.src_vocab_size, meta.tgt_vocab_size)):
        raise DataError(damaged)
    return meta


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def content_digest(part_digests: Iterable[str]) -> str:
    """The folder's digest from the hex SHA-256 of src.ids, src.lengths, tgt.ids and tgt.lengths, in this order."""
    return hashlib.sha256(" ".join(part_digests).encode()).hexdigest()


def read_content_digest(folder: Path) -> str:
    """The digest of what lies in the folder now: reads every id."""
    return content_digest(_file_digest(folder / f"{side}.{part}") for side in SIDES for part in ("ids", "lengths"))


def _file_digest(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            sha.update(block)
    return sha.hexdigest()


def is_ours(folder: Path) -> bool:
    """Whether a folder holds nothing but files of a prepared dataset, so that it may be replaced."""
    return all(entry.name in FILES for entry in folder.iterdir())
