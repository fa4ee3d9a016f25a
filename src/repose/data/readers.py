"""Sentence pairs from files: two aligned text files, or one TSV, JSONL or Parquet file.

Text is passed on as it is, untrimmed, in constant memory. What cannot be a sentence pair is dropped and counted by
reason; what shows that a file is not what it should be (misaligned, damaged, another encoding) is a `DataError`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from repose.data.lines import LineReader, check_file
from repose.data.pairs import Pair
from repose.system.errors import ConfigError, DataError
from repose.system.files import replacing_file
from repose.system.terminal import counted

MAX_CHARACTERS = 20_000
"""Longer sentences are dropped: they are damage, and would hold up everything after."""


_LINE_BYTES = 4 * MAX_CHARACTERS  # a character has up to four bytes in UTF-8
_RECORD_BYTES = 1 << 22
_ROWS_PER_BATCH = 4096

_ENDED = "\n"  # no line
_TOO_LONG = f"longer than {MAX_CHARACTERS:,} characters"
_SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}

_NAME_BOTH = (
    "name both sides with --set corpus.src_field=... and corpus.tgt_field=..., or in `evaluate` and `score-corpus` "
    "with --src-field and --tgt-field"
)

_PACKED = (".gz", ".xz")
_OTHERWISE_PACKED = (".bz2", ".zst", ".lz4", ".lzma", ".z", ".zip", ".7z", ".rar", ".tar", ".tgz")

Row: TypeAlias = Pair | str
"""A pair, or the reason why there is none."""


@dataclass
class Counts:
    """What became of the pairs of a corpus; filled while it is read."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Pairs left out, by reason."""
    notes: Counter[str] = field(default_factory=Counter)
    """How often something was seen that is worth knowing, though nothing was left out for it."""
    header_lines: int = field(default=0, compare=False)
    """Lines before the first pair: 1 where a TSV file names its columns."""

    @property
    def read(self) -> int:
        """All pairs seen."""
        return self.kept + self.dropped.total()

    def describe(self) -> str:
        """One line of text."""
        parts = [f"{self.kept:,} of {counted(self.read, 'pair')} read"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in self.dropped.items()]
        parts += [f"{number:,} × {what}" for what, number in self.notes.items()]
        return ", ".join(parts)


class PairReader:
    """The pairs (source, target) of two aligned text files, or of one TSV, JSONL or Parquet file, by extension.

    Iterable any number of times; each pass reads the files anew, and sets `counts`. Text, TSV and JSONL may be packed
    (.gz, .xz). `src_field` and `tgt_field` are the names in JSONL, Parquet and a TSV file whose first line names its
    columns; without such a line it has two columns, source and target. Lines with more or fewer are left out; a first
    line with more is refused. TSV has no quoting. Raises `DataError` at once for files that are missing or of an
    unknown kind, and while reading, at the place, for what is wrong inside; that two files have different numbers of
    lines shows at their end. Raises `ConfigError` for two fields of one name, and for Parquet without its extra.
    """

    def __init__(self, files: Sequence[Path], *, src_field: str = "src", tgt_field: str = "tgt") -> None:
        self.files = tuple(files)
        self.counts = Counts()
        """Of the latest pass."""
        self._fields = (src_field, tgt_field)
        for path in filter(Path.is_dir, self.files):
            check_file(path)
        self._format = _format(self.files)
        if self._format != "text" and src_field == tgt_field:
            raise ConfigError(f"both sides are called {src_field!r}: name two fields, for source and target")
        for path in self.files:
            check_file(path)
        if self._format == "parquet":
            try:
                import pyarrow.parquet  # noqa: F401
            except ImportError as error:
                raise ConfigError("Parquet files need pyarrow: pip install 'repose-nmt[parquet]'") from error

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for row in self.rows():
            if not isinstance(row, str):
                yield row
        self.refuse_useless()

    def refuse_useless(self) -> None:
        """Raises DataError where the latest pass found no pair that can be used."""
        if self.counts.kept == 0:
            names = " and ".join(str(path) for path in self.files)
            reasons = ", ".join(f"{reason}: {number:,}" for reason, number in self.counts.dropped.items())
            number = f"none of the {self.counts.read:,} pairs in {names}"
            raise DataError(f"{number} can be used ({reasons}): check the files")

    def rows(self) -> Iterator[Row]:
        """Every line or record: its pair, or the reason why it cannot be used. One pass counts."""
        self.counts = Counts()
        for row in self._rows():
            usable = row if isinstance(row, str) else _usable(*row)
            if isinstance(usable, str):
                self.counts.dropped[usable] += 1
            else:
                self.counts.kept += 1
                if usable[0] == usable[1]:
                    self.counts.notes["source and target are the same"] += 1
            yield usable
        if self.counts.read == 0:
            names = " and ".join(str(path) for path in self.files)
            raise DataError(f"there is nothing in {names}: check that the right file was named")

    def _rows(self) -> Iterator[Row]:
        match self._format:
            case "text":
                return _aligned(self.files[0], self.files[1], self.counts)
            case "tsv":
                return _tsv(self.files[0], self._fields, self.counts)
            case "jsonl":
                return _jsonl(self.files[0], self._fields, self.counts)
            case _:
                return _parquet(self.files[0], self._fields)


def holds_pairs(path: Path) -> bool:
    """Whether one such file is a corpus, by its name: TSV, JSONL or Parquet."""
    return kind_of(path) != "text"


def kind_of(path: PurePath) -> str:
    """Of one file, by its name: text, tsv, jsonl or parquet."""
    return _SUFFIXES.get(unpacked(path).suffix.lower(), "text")


def refuse_packed(files: Iterable[str | Path]) -> None:
    """Raises DataError for files that are packed in a way that nothing here unpacks, by their names."""
    for name in files:
        path = PurePath(name)
        inner = unpacked(path)
        if (suffix := inner.suffix.lower()) in _OTHERWISE_PACKED:
            raise DataError(f"{name} is a {suffix} file, which cannot be read: unpack it, or pack it as .gz or .xz")
        if suffix == ".parquet" and inner != path:
            raise DataError(f"{name} is a packed Parquet file, which cannot be read: unpack it (Parquet packs itself)")


def unpacked(path: PurePath) -> PurePath:
    """The name that a file has without the ending of its packing."""
    return path.with_suffix("") if path.suffix.lower() in _PACKED else path


_SHEETS = (".csv", ".xlsx", ".xls", ".ods")


def _format(files: Sequence[Path]) -> str:
    refuse_packed(files)
    match [kind_of(path) for path in files]:
        case [("tsv" | "jsonl" | "parquet") as kind]:
            return kind
        case ["text"]:
            sheet = "; save a spreadsheet as tab-separated text in UTF-8, in a file that ends in .tsv"
            raise DataError(
                f"{files[0]} alone cannot be a corpus: name two aligned text files, or one that ends in .tsv, .jsonl "
                f"or .parquet{sheet if files[0].suffix.lower() in _SHEETS else ''}"
            )
        case [("text" | "tsv"), ("text" | "tsv")]:
            return "text"
        case [_, _]:
            raise DataError(
                f"{files[0]} and {files[1]} cannot be aligned text files: name one JSONL or Parquet file alone"
            )
        case _:
            raise DataError(f"a corpus is one file or two aligned ones, not {len(files)}: name one or two")


def _usable(src: str, tgt: str) -> Row:
    if len(src) > MAX_CHARACTERS or len(tgt) > MAX_CHARACTERS:
        return _TOO_LONG
    if "\0" in src or "\0" in tgt:
        return "NUL character"
    if "\n" in src or "\n" in tgt:  # in JSONL and Parquet; hypotheses and references are files of lines
        return "line break inside"
    match not src or src.isspace(), not tgt or tgt.isspace():
        case True, True:
            return "both sides empty"
        case True, False:
            return "source empty"
        case False, True:
            return "target empty"
    return src, tgt


def _note_lines(reader: LineReader, counts: Counts) -> None:
    marks, returns = "byte-order mark removed from a file", "carriage return removed from a line end"
    counts.notes += Counter({marks: int(reader.had_bom), returns: reader.num_carriage_returns})  # no zeros


def _aligned(src_file: Path, tgt_file: Path, counts: Counts) -> Iterator[Row]:
    readers = LineReader(src_file, _LINE_BYTES), LineReader(tgt_file, _LINE_BYTES)
    for src, tgt in zip_longest(*readers, fillvalue=_ENDED):
        # When one file has ended the rest of the other is read only to be counted.
        if src is not _ENDED and tgt is not _ENDED:
            yield _TOO_LONG if src is None or tgt is None else (src, tgt)
    src_lines, tgt_lines = (reader.num_lines for reader in readers)
    if src_lines != tgt_lines:
        raise DataError(
            f"{src_file} has {counted(src_lines, 'line')} and {tgt_file} has {tgt_lines:,}: line n of one must be the "
            "translation of line n of the other"
        )
    for reader in readers:
        _note_lines(reader, counts)


TWO_COLUMNS = (0, 1, 2)
"""`tsv_columns` where no first line names them."""


def tsv_columns(first: Sequence[str], fields: Sequence[str], path: Path | str) -> tuple[tuple[int, int, int], bool]:
    """Where source and target stand in a TSV file, how many columns it has, and whether its first line names them.

    Raises DataError where that names one of the fields alone, or there are more than two columns without names."""
    (src, tgt), names = map(plain_name, fields), [plain_name(name) for name in first]
    if src in names and tgt in names:
        return (names.index(src), names.index(tgt), len(names)), True
    if (absent := _absent(fields, first)) != [*fields]:
        raise DataError(f"{path}, line 1: {_no_field(absent[0], first)}")
    if len(first) > 2:
        raise DataError(
            f"{path}, line 1: {len(first)} tab-separated columns instead of 2: cut out source and target, or begin "
            f"with a line that names the columns, {fields[0]!r} and {fields[1]!r} among them; where this line does so "
            f"by other names, {_NAME_BOTH}"
        )
    return TWO_COLUMNS, False


def _absent(fields: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [field for field in fields if plain_name(field) not in map(plain_name, columns)]


def plain_name(name: str) -> str:
    """A column's name without case, and without the quotation marks and spaces that spreadsheets leave around it."""
    return name.strip().strip('"').strip().casefold()


def _tsv(path: Path, fields: tuple[str, str], counts: Counts) -> Iterator[Row]:
    reader = LineReader(path, 2 * _LINE_BYTES + 1)
    src, tgt, width = TWO_COLUMNS
    first: dict[str, int] = {}
    for line in reader:
        if line is None:
            yield _TOO_LONG
            continue
        columns = line.split("\t")
        if reader.num_lines == 1:
            (src, tgt, width), is_header = tsv_columns(columns, fields, path)
            if is_header:
                counts.header_lines = 1
                continue
        if len(columns) == width:
            yield columns[src], columns[tgt]
        elif line == "":
            yield "blank line"
        else:
            than = "more" if len(columns) > width else "fewer"
            fault = "no tab" if len(columns) == 1 else f"{than} than {width} columns"
            yield f"{fault}, first on line {first.setdefault(fault, reader.num_lines):,}"
    _note_lines(reader, counts)


def _jsonl(path: Path, fields: tuple[str, str], counts: Counts) -> Iterator[Row]:
    reader = LineReader(path, _RECORD_BYTES)
    is_first = True
    for line in reader:
        if line is None:
            yield f"record longer than {_RECORD_BYTES:,} bytes"
        elif not line.strip():
            yield "blank line"
        else:
            yield _record(line, fields, f"{path}, line {reader.num_lines}", is_first)
            is_first = False
    _note_lines(reader, counts)


def _record(text: str, fields: tuple[str, str], place: str, is_first: bool) -> Row:
    """A record's two fields. What the first one lacks may have another name; a later one is odd itself."""
    alone = "" if is_first else ", unlike in the records before: mend or delete this one"
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not JSON ({error}): each line must be one JSON object") from error
    if not isinstance(record, dict):
        raise DataError(f"{place}: not a JSON object: each line must be like {{{fields[0]!r}: …, {fields[1]!r}: …}}")
    sides = []
    for name in fields:
        if name not in record:
            raise DataError(f"{place}: {_no_field(name, list(record), alone)}")
        value = "" if record[name] is None else record[name]
        if not isinstance(value, str):
            shown = json.dumps(value)[:40]
            raise DataError(f"{place}: the field {name!r} holds no text but {shown}{alone or ': name a text field'}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{place}: the field {name!r} holds half a surrogate pair: repair its encoding") from error
        sides.append(value)
    return sides[0], sides[1]


def present(names: Iterable[str]) -> str:
    """The first names that there are, for a message."""
    return ", ".join(repr(name[:40]) for name in islice(names, 20)) or "none"


def _no_field(name: str, known: Sequence[str], what_to_do: str = "") -> str:
    return f"there is no field {name!r} (present: {present(known)}){what_to_do or f': {_NAME_BOTH}'}"


def _parquet(path: Path, fields: tuple[str, str]) -> Iterator[Row]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            schema = file.schema_arrow
            for name in fields:
                if name not in schema.names:
                    raise DataError(f"{path}: {_no_field(name, schema.names)}")
                if schema.names.count(name) > 1:
                    raise DataError(f"{path} has several columns with the name {name!r}: rename all but one")
                if not is_text(kind := schema.field(name).type):
                    raise DataError(f"{path}: the field {name!r} holds no text but {kind}: name a text field")
            for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(fields)):
                columns = (batch.column(name).to_pylist() for name in fields)
                for src, tgt in zip(*columns, strict=True):
                    yield src or "", tgt or ""
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged or no Parquet file ({first_line(error)}): get it again") from error


def is_text(kind: Any) -> bool:
    """Whether a column of this Arrow type holds text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def first_line(error: Exception) -> str:
    """What an error says, in short."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


class TextPairs:
    """The pairs of a split in a text folder, read anew at each iteration."""

    def __init__(self, folder: Path, split: str) -> None:
        self.paths = [folder / f"{split}.{side}" for side in ("src", "tgt")]

    def __iter__(self) -> Iterator[Pair]:
        # With another newline, a carriage return inside a sentence would be read as its end.
        try:
            with ExitStack() as stack:
                src, tgt = (stack.enter_context(path.open(encoding="utf-8", newline="\n")) for path in self.paths)
                for a, b in zip(src, tgt, strict=True):
                    yield a.removesuffix("\n"), b.removesuffix("\n")
        except (OSError, ValueError) as error:
            folder = self.paths[0].parent
            raise DataError(f"the texts of {folder} are damaged: delete that folder, and prepare it again") from error


def write_pairs(folder: Path, split: str, pairs: Iterable[Pair]) -> None:
    """Writes `<split>.src` and `<split>.tgt`; no sentence may hold a line feed. Raises WriteError."""
    with ExitStack() as stack:
        paths = [stack.enter_context(replacing_file(path)) for path in TextPairs(folder, split).paths]
        src, tgt = (stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths)
        for a, b in pairs:
            src.write(a + "\n")
            tgt.write(b + "\n")
