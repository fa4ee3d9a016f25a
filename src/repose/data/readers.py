"""Sentence pairs from files: two aligned text files, one TSV or CSV file, or JSONL, Parquet or TMX files.

Text is passed on as it is, untrimmed, in constant memory. What cannot be a sentence pair is dropped and counted by
reason; what shows that a file is not what it should be (misaligned, damaged, another encoding) is a `DataError`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, zip_longest
from pathlib import Path, PurePath
from typing import Any

from repose.data.language import UNKNOWN, base_code, is_language, languages_in_names
from repose.data.lines import AS_TEXT, PACKED, LineReader, beginning_of, check_file
from repose.data.pairs import MAX_BYTES, MAX_CHARACTERS, TOO_LONG, Counts, Pair, Row
from repose.data.tables import FIELDS, csv_pairs, no_field, note_lines, tsv_pairs
from repose.data.translation_memory import languages_of_memory, memory_pairs
from repose.system.errors import ConfigError, DataError, MissingExtraError
from repose.system.files import replacing_file
from repose.system.terminal import counted, quoted, reasons


class UnequalLinesError(DataError):
    """Two aligned files that cannot be so, since one has more lines than the other."""


_RECORD_BYTES = 1 << 22
_ROWS_PER_BATCH = 4096

_ENDED = "\n"  # no line
_SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tmx": "tmx",
}

_OTHERWISE_PACKED = (".bz2", ".zst", ".lz4", ".lzma", ".z", ".zip", ".7z", ".rar", ".tar", ".tgz")


class PairReader:
    """The pairs (source, target) of two aligned text files, of one TSV or CSV file, or of any number of JSONL, Parquet
    or TMX files one after the other, by extension.

    Iterable any number of times; each pass reads the files anew, and sets `counts`. All but Parquet may be packed
    (.gz, .xz). `src_field` and `tgt_field` are the names in JSONL, Parquet (see `flat`) and a TSV or CSV file whose
    first line names its columns; without such a line it has two columns, source and target. Lines with more or fewer
    are left out; a first line with more is refused. TSV has no quoting; the cells of CSV stand between commas,
    semicolons or tabs, as the first lines show; columns that are called by the `languages` may stand in either order.
    In TMX, the fields are languages, such as "pt" and "en"; with their usual names, the languages are `languages`, or
    where these are not stated, those of the first file's first units.

    Raises `DataError` at once for files that are missing or of an unknown kind, and while reading, at the place, for
    what is wrong inside, `UnequalLinesError` at the end of two files with different numbers of lines. Raises
    `ConfigError` for two fields of one name, and for Parquet without its extra.
    """

    def __init__(
        self,
        files: Sequence[Path],
        *,
        src_field: str = FIELDS[0],
        tgt_field: str = FIELDS[1],
        languages: Pair = (UNKNOWN, UNKNOWN),
    ) -> None:
        self.files = tuple(files)
        self.counts = Counts()
        """What the latest pass over the files counted."""
        self._fields, self._languages = (src_field, tgt_field), languages
        for path in filter(Path.is_dir, self.files):
            check_file(path)
        self._format = _format(self.files)
        if self._format != "text" and src_field == tgt_field:
            raise ConfigError(f"both sides are called {src_field!r}: name two fields, for source and target")
        for path in self.files:
            check_file(path)
        if self._format == "text" and self.files[0].samefile(self.files[1]):
            raise DataError(f"both files are the same file, {self.files[0]}: name the sources and their translations")
        if self._format == "parquet":
            try:
                import pyarrow.parquet  # noqa: F401
            except ImportError as error:
                raise MissingExtraError("Parquet files need pyarrow: pip install 'repose-nmt[parquet]'") from error

    @property
    def places(self) -> str:
        """What pairs are called where they are no lines: "row" or "unit"; else ""."""
        return {"csv": "row", "parquet": "row", "tmx": "unit"}.get(self._format, "")

    @property
    def sides(self) -> Pair:
        """Says where source and target stand, for people: files, or columns or fields of one. Raises DataError."""
        of, more = self.files[0].name, len(self.files) - 1
        match self._format:
            case "text":
                src, tgt = (str(path) for path in self.files)
                return (src, tgt) if self.files[0].name == self.files[1].name else (of, self.files[1].name)
            case "tsv" | "csv":
                what, names = "column", self.columns
            case "tmx":
                return (of + f" and {more} more" * bool(more),) * 2
            case _:
                what, names = "field", self._fields
        src, tgt = (f"{what} {name} of {of}" + f" and {more} more" * bool(more) for name in names)
        return src, tgt

    @property
    def columns(self) -> Pair:
        """What source and target are called in the first line of a TSV or CSV file, or else their numbers; of other
        files, what they are called. Raises DataError."""
        if self._format not in ("tsv", "csv"):
            return self._fields
        counts, pairs_of = Counts(), {"tsv": tsv_pairs, "csv": csv_pairs}[self._format]
        next(pairs_of(self.files[0], self._fields, self._languages, counts), None)  # which reads the first line
        return counts.columns or self._fields

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for row in self.rows():
            if not isinstance(row, str):
                yield row
        self.refuse_useless()

    def refuse_useless(self) -> None:
        """Raises DataError where the latest pass found no pair that can be used."""
        if self.counts.kept == 0:
            names = " and ".join(str(path) for path in self.files)
            only = f"the only pair in {names} cannot"
            what = only if self.counts.read == 1 else f"none of the {self.counts.read:,} pairs in {names} can"
            raise DataError(f"{what} be used ({reasons(self.counts.dropped)}): check the files")

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
                return tsv_pairs(self.files[0], self._fields, self._languages, self.counts)
            case "csv":
                return csv_pairs(self.files[0], self._fields, self._languages, self.counts)
            case "jsonl":
                return chain.from_iterable(_jsonl(path, self._fields, self.counts) for path in self.files)
            case "tmx":
                languages = languages_of_memory(self.files[0], _named_languages(self._fields, self._languages))
                return chain.from_iterable(memory_pairs(path, languages, self.counts) for path in self.files)
            case _:
                return chain.from_iterable(_parquet(path, self._fields) for path in self.files)


def holds_pairs(path: Path) -> bool:
    """Whether one such file is a corpus, by its name: TSV, CSV, JSONL, Parquet or TMX."""
    return kind_of(path) != "text"


def kind_of(path: PurePath) -> str:
    """The kind of a file, by its name: text, tsv, csv, jsonl, parquet or tmx."""
    return _SUFFIXES.get(unpacked(path).suffix.lower(), "text")


def may_follow(first: PurePath, other: PurePath) -> bool:
    """Whether a corpus that begins with one file of pairs may go on in another, by their names."""
    return kind_of(first) == kind_of(other) and kind_of(first) in _ONE_AFTER_THE_OTHER


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
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


_OFFICE = (".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt")
_MARKED_UP = (
    *(".srt", ".vtt", ".ass", ".sbv", ".json", ".po", ".pot", ".xlf", ".xliff"),
    *(".xml", ".html", ".htm", ".sgm", ".sgml", ".yml", ".yaml", ".resx", ".strings"),
)
"""Endings of files whose lines are no sentences."""
_ONE_AFTER_THE_OTHER = ("jsonl", "parquet", "tmx")
"""Kinds of which a corpus may have several files; two TSV or CSV files are taken for aligned ones."""


def _format(files: Sequence[Path]) -> str:
    refuse_packed(files)
    match [kind_of(path) for path in files]:
        case [kind] if kind != "text":
            return kind
        case [kind, _, *_] if all(may_follow(files[0], path) for path in files[1:]):
            return kind
        case ["text"]:
            raise DataError(
                f"{files[0]} alone cannot be a corpus: name two aligned text files, or one that ends in .tsv, .csv, "
                f".jsonl, .parquet or .tmx{_other_name(files[0])}"
            )
        case [("tsv" | "csv"), ("tsv" | "csv")]:
            raise DataError(
                f"{files[0]} and {files[1]} are two tables: give one table at a time, with source and target in it, or "
                "two aligned text files with other endings, such as .txt"
            )
        case [("text" | "tsv" | "csv"), ("text" | "tsv" | "csv")]:
            if marked := next((path for path in files if unpacked(path).suffix.lower() in _MARKED_UP), None):
                raise DataError(
                    f"{marked} is a {unpacked(marked).suffix} file, with more than sentences in it: write these into "
                    "a text file, one per line"
                )
            return "text"
        case [_, _]:
            raise DataError(
                f"{files[0]} and {files[1]} cannot be aligned text files: name JSONL, Parquet or TMX files of one kind"
            )
        case _:
            raise DataError(
                f"{len(files)} files cannot be a corpus: name two aligned text files, one TSV or CSV file, or JSONL, "
                "Parquet or TMX files of one kind"
            )


def _other_name(path: Path) -> str:
    """What to do about a file that is alone, where its name or its first line shows what it is."""
    if path.suffix.lower() in _OFFICE:
        return f"; {AS_TEXT}"
    with suppress(DataError):
        line, encoding = beginning_of(path) if path.is_file() else ("", "")
        if "\t" not in line:
            return ""
        if encoding == "utf-8" or unpacked(path) != path:
            return f"; its first line has a tab, so rename it to {unpacked(path).stem}.tsv if it is a table"
        command = f"iconv -f {encoding} -t utf-8 {quoted(path)} > {quoted(path.with_suffix('.tsv'))}"
        return f"; its first line has a tab: if it is a table, such as Excel's Unicode Text, convert it by `{command}`"
    return ""


def _usable(src: str, tgt: str) -> Row:
    if len(src) > MAX_CHARACTERS or len(tgt) > MAX_CHARACTERS:
        return TOO_LONG
    if "\0" in src or "\0" in tgt:
        return "NUL character"
    if "\n" in src or "\n" in tgt:  # in CSV, JSONL and Parquet; hypotheses and references are files of lines
        return "line break inside"
    match not src or src.isspace(), not tgt or tgt.isspace():
        case True, True:
            return "both sides empty"
        case True, False:
            return "source empty"
        case False, True:
            return "target empty"
    return src, tgt


def _aligned(src_file: Path, tgt_file: Path, counts: Counts) -> Iterator[Row]:
    readers = LineReader(src_file, MAX_BYTES), LineReader(tgt_file, MAX_BYTES)
    rest_is_empty = True
    for src, tgt in zip_longest(*readers, fillvalue=_ENDED):
        # When one file has ended the rest of the other is read only to be counted.
        if src is not _ENDED and tgt is not _ENDED:
            yield TOO_LONG if src is None or tgt is None else (src, tgt)
        else:
            rest = tgt if src is _ENDED else src
            rest_is_empty = rest_is_empty and rest is not None and not rest.strip()
    src_lines, tgt_lines = (reader.num_lines for reader in readers)
    if src_lines != tgt_lines:
        both = f"{src_file} has {counted(src_lines, 'line')} and {tgt_file} has {tgt_lines:,}"
        if rest_is_empty:
            number, longer = abs(src_lines - tgt_lines), src_file if src_lines > tgt_lines else tgt_file
            last, are, them = ("line", "is", "it") if number == 1 else (f"{number:,} lines", "are", "them")
            raise DataError(f"{both}: the last {last} of {longer} {are} empty, so delete {them}")
        raise UnequalLinesError(f"{both}: line n of one must be the translation of line n of the other")
    for reader in readers:
        note_lines(reader, counts)


def languages_of_files(files: Sequence[Path], fields: Pair) -> Pair:
    """Source and target language as names say, of files or fields (`languages_in_names`), or else what TMX, CSV and TSV
    files say themselves; "und" where nothing does."""
    named = languages_in_names(files, fields)
    if UNKNOWN not in named or not files or kind_of(files[0]) not in ("tmx", "csv", "tsv"):
        return named
    if kind_of(files[0]) != "tmx":
        return _languages_of_columns(files, fields)
    try:
        src, tgt = languages_of_memory(files[0], _named_languages(fields, named))
    except DataError:  # as reading the file will say
        return named
    return (src, tgt) if base_code(src) == base_code(tgt) else (base_code(src), base_code(tgt))


def _languages_of_columns(files: Sequence[Path], fields: Pair) -> Pair:
    """Those that the first line of a table names its columns by."""
    try:
        reader = PairReader(files, src_field=fields[0], tgt_field=fields[1])
        columns = reader.columns
    except (ConfigError, DataError):  # as reading the file will say
        return UNKNOWN, UNKNOWN
    src, tgt = (name.strip().strip('"').strip() for name in columns)  # as spreadsheets write them
    return languages_in_names((), (src, tgt))


def _named_languages(fields: Pair, languages: Pair) -> tuple[str | None, ...]:
    """Those of a TMX file's sides: as its fields say, where they do not name columns of another kind of file, or else
    the languages."""

    def named(field: str, usual: str, language: str) -> str | None:
        if field != usual and (is_language(field) or language == UNKNOWN):
            return field
        return None if language == UNKNOWN else language

    return tuple(named(*side) for side in zip(fields, FIELDS, languages, strict=True))


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
    note_lines(reader, counts)


def _record(text: str, fields: tuple[str, str], place: str, is_first: bool) -> Row:
    """A record's two fields. What the first one lacks may have another name; a later one is odd itself."""
    alone = "" if is_first else ", unlike in the records before: mend or delete this one"
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not JSON ({error}): each line must be one JSON object") from error
    if not isinstance(record, dict):
        raise DataError(f"{place}: not a JSON object: each line must be like {{{fields[0]!r}: …, {fields[1]!r}: …}}")
    nothing = {name: None for name in fields if record.get(name.partition(".")[0], "") is None}  # in a null record
    record = record if all(name in record for name in fields) else nothing | flat(record)
    sides = []
    for name in fields:
        if name not in record:
            raise DataError(f"{place}: {no_field(name, list(record), alone)}")
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


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, and those of the records in it, by their names with a dot between: "translation.pt"."""
    inner = {
        f"{outer}.{name}": value for outer, of in record.items() if isinstance(of, dict) for name, value in of.items()
    }
    return inner | {name: value for name, value in record.items() if not isinstance(value, dict)}


def flat_schema(schema: Any) -> Any:
    """An Arrow schema with the fields of its structs beside the others, under the names that `flat` gives."""
    return schema.empty_table().flatten().schema


def values_of(batch: Any, name: str) -> list[Any]:
    """A field's values in the rows of an Arrow batch; None where it, or the record that it is in, is null."""
    import pyarrow as pa

    values: list[Any] = pa.Table.from_batches([batch]).flatten().column(name).to_pylist()
    return values


def _parquet(path: Path, fields: tuple[str, str]) -> Iterator[Row]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            schema = flat_schema(file.schema_arrow)
            for name in fields:
                if name not in schema.names:
                    raise DataError(f"{path}: {no_field(name, schema.names)}")
                if schema.names.count(name) > 1:
                    raise DataError(f"{path} has several columns with the name {name!r}: rename all but one")
                if not is_text(kind := schema.field(name).type):
                    raise DataError(f"{path}: the field {name!r} holds no text but {kind}: name a text field")
            for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(fields)):
                columns = (values_of(batch, name) for name in fields)
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
