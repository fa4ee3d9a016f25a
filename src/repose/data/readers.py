"""Sentence pairs from files: two aligned text files, one TSV or CSV file, or JSONL, Parquet or TMX files.

Text is passed on as it is, untrimmed, in constant memory. What cannot be a sentence pair is dropped and counted by
reason; what shows that a file is not what it should be (misaligned, damaged, another encoding) is a `DataError`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, zip_longest
from pathlib import Path, PurePath

from repose.data.language import UNKNOWN, base_code, is_language, languages_in_names
from repose.data.lines import AS_TEXT, PACKED, LineReader, beginning_of, check_file
from repose.data.pairs import MAX_BYTES, MAX_CHARACTERS, TOO_LONG, Counts, Pair, Row
from repose.data.records import jsonl_pairs, parquet_pairs
from repose.data.tables import FIELDS, csv_pairs, note_lines, tsv_pairs
from repose.data.translation_memory import languages_of_memory, memory_pairs
from repose.system.errors import ConfigError, DataError, MissingExtraError
from repose.system.files import replacing_file
from repose.system.terminal import counted, quoted, reasons


class UnequalLinesError(DataError):
    """Two aligned files that cannot be so, since one has more lines than the other."""


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
    semicolons or tabs, as the first lines show. Columns and fields that are called by the `languages` are found by
    these, in any order (`sides_by_language`).
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
                what = "column"
            case "tmx":
                return (of + f" and {more} more" * bool(more),) * 2
            case _:
                what = "field"
        src, tgt = (f"{what} {name} of {of}" + f" and {more} more" * bool(more) for name in self.columns)
        return src, tgt

    @property
    def columns(self) -> Pair:
        """What source and target are called in the first line of a TSV or CSV file, or else their numbers; in the
        first record of a JSONL or Parquet file; of other files, what they are called. Raises DataError."""
        if self._format in ("text", "tmx"):
            return self._fields
        counts = Counts()
        # On to the first record that says so, since blank lines may stand before it.
        next((row for row in self._rows(counts) if counts.columns), None)
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


def languages_of_files(files: Sequence[Path], fields: Pair, stated: Pair = (UNKNOWN, UNKNOWN)) -> Pair:
    """Source and target language as names say, of files or fields (`languages_in_names`), or else what files of pairs
    say themselves; "und" where nothing does. `stated` are those by which the sides are found."""
    named = languages_in_names(files, fields)
    if UNKNOWN not in named or not files or kind_of(files[0]) == "text":
        return named
    try:
        if kind_of(files[0]) == "tmx":
            src, tgt = languages_of_memory(files[0], _named_languages(fields, stated))
            return (src, tgt) if base_code(src) == base_code(tgt) else (base_code(src), base_code(tgt))
        columns = PairReader(files, src_field=fields[0], tgt_field=fields[1], languages=stated).columns
    except (ConfigError, DataError):  # as reading the file will say
        return named
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
