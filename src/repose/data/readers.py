"""Read sentence pairs from files: two aligned text files, one TSV or CSV file, or JSONL, Parquet or TMX files.

Text is returned unchanged, not even trimmed; memory is constant. Lines or records that cannot be a sentence pair are
dropped, and counted by reason. Signs that a whole file is wrong (misaligned, damaged, another encoding) raise
`DataError`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path, PurePath

from repose.data.language import UNKNOWN, base_code, is_language, languages_in_names
from repose.data.lines import AS_TEXT, PACKED, LineReader, beginning_of, check_file
from repose.data.pairs import MAX_BYTES, MAX_CHARACTERS, TOO_LONG, Counts, Pair, Row
from repose.data.records import jsonl_pairs, parquet_pairs
from repose.data.tables import FIELDS, csv_pairs, note_lines, tsv_pairs
from repose.data.translation_memory import languages_of_memory, memory_pairs
from repose.system.errors import ConfigError, DataError, of_extra
from repose.system.terminal import counted, quoted, reasons


class UnequalLinesError(DataError):
    """Two files that should be aligned have different numbers of lines."""


_ENDED = "\n"  # stands for the end of the shorter file
_SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tmx": "tmx",
}

_ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".tgz")
_OTHERWISE_PACKED = (".bz2", ".zst", ".lz4", ".lzma", ".z", *_ARCHIVES)


class PairReader:
    """Iterate over the pairs (source, target) of a corpus, as often as needed.

    The corpus is two aligned text files, one TSV or CSV file, or any number of JSONL, Parquet or TMX files, which are
    read one after the other. The kind is that of the file extension.

    Each pass reads the files again and sets `counts`. All files but Parquet may be compressed (.gz, .xz).

    `src_field`, `tgt_field`: names of the fields in JSONL and Parquet (see `flat`), or of the columns in a TSV or CSV
    file whose first line names them. Without such a line, the file has two columns, source and target. Lines with more
    or fewer columns are left out; if the first line has more, the file is refused. TSV has no quoting. Cells of CSV are
    separated by commas, semicolons or tabs, judged by the first lines. Columns and fields named after the `languages`
    are found by these names, in any order (`sides_by_language`).
    In TMX, the fields are languages, such as "pt" and "en". With the default field names, the languages are
    `languages`; if these are unknown, they are those of the first file's first units.

    Raises `DataError` at once for missing files and unknown kinds of files, and while reading, with the place, for
    errors inside a file. Raises `UnequalLinesError` at the end of two files with different numbers of lines. Raises
    `ConfigError` if both fields have the same name, and for Parquet if its extra is missing.
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
        """Counts of the latest pass over the files."""
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
            with of_extra("parquet", "Parquet files need pyarrow"):
                import pyarrow.parquet  # noqa: F401

    @property
    def places(self) -> str:
        """The word for one pair in the file, "row" or "unit"; "" if each pair is a line."""
        return {"csv": "row", "parquet": "row", "tmx": "unit"}.get(self._format, "")

    @property
    def sides(self) -> Pair:
        """Where source and target are, as text for people: files, or columns or fields of a file. Raises DataError."""
        names = [path.name for path in self.files]
        if self._format == "text":
            src, tgt = map(str, self.files) if names[0] == names[1] else names
            return src, tgt
        of = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        if self._format == "tmx":
            return of, of
        what = "column" if self._format in ("tsv", "csv") else "field"
        src, tgt = (f"{what} {name} of {of}" for name in self.columns)
        return src, tgt

    @property
    def columns(self) -> Pair:
        """Names of the source and target columns. Raises DataError.

        For TSV and CSV: the names in the first line, or else the columns' numbers. For JSONL and Parquet: the names in
        the first record. For other files: the given field names.
        """
        if self._format in ("text", "tmx"):
            return self._fields
        counts = Counts()
        # Read up to the first record that names its fields, since blank lines may precede it.
        next((row for row in self._rows(counts) if counts.columns), None)
        return counts.columns or self._fields

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for row in self.rows():
            if not isinstance(row, str):
                yield row
        self.refuse_useless()

    def refuse_useless(self) -> None:
        """Raise DataError if the latest pass found no usable pair."""
        if self.counts.kept == 0:
            names = " and ".join(str(path) for path in self.files)
            only = f"the only pair in {names} cannot"
            what = only if self.counts.read == 1 else f"none of the {self.counts.read:,} pairs in {names} can"
            raise DataError(f"{what} be used ({reasons(self.counts.dropped)}): check the files")

    def rows(self) -> Iterator[Row]:
        """Yield, for each line or record, its pair or the reason why it cannot be used. Sets `counts`."""
        self.counts = Counts()
        for row in self._rows(self.counts):
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

    def _rows(self, counts: Counts) -> Iterator[Row]:
        named = self._fields, self._languages
        match self._format:
            case "text":
                return _aligned(self.files[0], self.files[1], counts)
            case "tsv":
                return tsv_pairs(self.files[0], *named, counts)
            case "csv":
                return csv_pairs(self.files[0], *named, counts)
            case "jsonl":
                return chain.from_iterable(jsonl_pairs(path, *named, counts) for path in self.files)
            case "tmx":
                languages = languages_of_memory(self.files[0], _named_languages(*named))
                return chain.from_iterable(memory_pairs(path, languages, counts) for path in self.files)
            case _:
                return chain.from_iterable(parquet_pairs(path, *named, counts) for path in self.files)


def holds_pairs(path: Path) -> bool:
    """Return whether a file, by its name, holds both sides of the pairs: TSV, CSV, JSONL, Parquet or TMX."""
    return kind_of(path) != "text"


def kind_of(path: PurePath) -> str:
    """Return a file's kind, by its name: text, tsv, csv, jsonl, parquet or tmx."""
    return _SUFFIXES.get(unpacked(path).suffix.lower(), "text")


def may_follow(first: PurePath, other: PurePath) -> bool:
    """Return whether a corpus that starts with one file of pairs can continue in another, by their names."""
    return kind_of(first) == kind_of(other) and kind_of(first) in _ONE_AFTER_THE_OTHER


def refuse_packed(files: Iterable[str | Path]) -> None:
    """Raise DataError for files with an unsupported compression, by their names."""
    for name in files:
        path = PurePath(name)
        inner = unpacked(path)
        if (suffix := inner.suffix.lower()) in _OTHERWISE_PACKED:
            otherwise = "and name the files of sentences in it" if suffix in _ARCHIVES else "or pack it as .gz or .xz"
            raise DataError(f"{name} is a {suffix} file, which cannot be read: unpack it, {otherwise}")
        if suffix == ".parquet" and inner != path:
            raise DataError(f"{name} is a packed Parquet file, which cannot be read: unpack it (Parquet packs itself)")


def unpacked(path: PurePath) -> PurePath:
    """Return a file's name without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


_OFFICE = (".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt")
_MARKED_UP = (
    *(".srt", ".vtt", ".ass", ".sbv", ".json", ".po", ".pot", ".xlf", ".xliff"),
    *(".xml", ".html", ".htm", ".sgm", ".sgml", ".yml", ".yaml", ".resx", ".strings"),
)
"""Suffixes of files whose lines are not sentences."""
_ONE_AFTER_THE_OTHER = ("jsonl", "parquet", "tmx")
"""Kinds of which a corpus can have several files. Two TSV or CSV files would be mistaken for aligned text files."""


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
    """Return advice on a file given alone, if its name or first line shows what it is; else ""."""
    if path.suffix.lower() in _OFFICE:
        return f"; {AS_TEXT}"
    if path.suffix.lower() == ".json":
        lines = quoted(path.with_suffix(".jsonl"))
        return f"; of a JSON list of records, make JSON lines with `jq -c '.[]' {quoted(path)} > {lines}`"
    with suppress(DataError):
        line, encoding = beginning_of(path) if path.is_file() else ("", "")
        if "\t" not in line:
            return ""
        if encoding == "utf-8" or unpacked(path) != path:
            return f"; its first line has a tab, so rename it to {unpacked(path).stem}.tsv if it is a table"
        csv = f"{path.stem}.csv"  # not .tsv: Excel puts cells with commas or quotes in quotes
        if encoding == "utf-16":
            return f"; its first line has a tab, so rename it to {csv} if it is a table, such as Excel's Unicode Text"
        command = f"iconv -f {encoding} -t utf-8 {quoted(path)} > {quoted(path.with_name(f'utf8.{csv}'))}"
        return f"; its first line has a tab: if it is a table, convert it by `{command}`"
    return ""


def _usable(src: str, tgt: str) -> Row:
    if len(src) > MAX_CHARACTERS or len(tgt) > MAX_CHARACTERS:
        return TOO_LONG
    if "\0" in src or "\0" in tgt:
        return "NUL character"
    if "\n" in src or "\n" in tgt:  # in CSV, JSONL and Parquet; hypotheses and references are written one per line
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
        # After one file has ended, the rest of the other is only counted.
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


def languages_of_files(files: Sequence[Path], fields: Pair, stated: Pair = (UNKNOWN, UNKNOWN)) -> Pair:
    """Return the source and target language from the names of files or fields (`languages_in_names`), or else from
    inside files of pairs; "und" if unknown. `stated`: known languages, by which the sides are found."""
    named = languages_in_names(files, fields)
    if UNKNOWN not in named or not files or kind_of(files[0]) == "text":
        return named
    try:
        if kind_of(files[0]) == "tmx":
            src, tgt = languages_of_memory(files[0], _named_languages(fields, stated))
            return (src, tgt) if base_code(src) == base_code(tgt) else (base_code(src), base_code(tgt))
        columns = PairReader(files, src_field=fields[0], tgt_field=fields[1], languages=stated).columns
    except (ConfigError, DataError):  # reading the file will report it
        return named
    src, tgt = (name.strip().strip('"').strip() for name in columns)  # spreadsheets may add quotes and spaces
    return languages_in_names((), (src, tgt))


def _named_languages(fields: Pair, languages: Pair) -> tuple[str | None, ...]:
    """Return the languages of a TMX file's two sides; None for an unknown one.

    A field gives the language, unless it seems to name a column of another kind of file; then `languages` does.
    """

    def named(field: str, usual: str, language: str) -> str | None:
        if field != usual and (is_language(field) or language == UNKNOWN):
            return field
        return None if language == UNKNOWN else language

    return tuple(named(*side) for side in zip(fields, FIELDS, languages, strict=True))
