"""Readers of every kind of file, also with hostile files."""

import builtins
import bz2
import codecs
import csv
import errno
import gzip
import json
import lzma
import os
import re
import subprocess
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table

from repose.data.pairs import TextPairs, write_pairs
from repose.data.readers import MAX_CHARACTERS, Counts, PairReader, languages_of_files
from repose.data.records import flat, sides_by_language
from repose.system.errors import ConfigError, DataError, WriteError

PAIRS = [("ein kleiner Hund", "a small dog"), ("zwei Vögel", "two birds"), ("Regen", "rain")]


@pytest.fixture
def corpus(tmp_path):
    """Writes two aligned files of bytes and returns their paths."""

    def write(src: bytes, tgt: bytes):
        (tmp_path / "a.src").write_bytes(src)
        (tmp_path / "a.tgt").write_bytes(tgt)
        return [tmp_path / "a.src", tmp_path / "a.tgt"]

    return write


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def side(number: int) -> bytes:
    return lines(*(pair[number] for pair in PAIRS))


def read(files, **fields) -> tuple[list[tuple[str, str]], Counts]:
    reader = PairReader(files, **fields)
    return list(reader), reader.counts


def fails(files, *sentence_parts: str, **fields) -> None:
    """Reading raises one sentence with these parts."""
    with pytest.raises(DataError) as caught:
        read(files, **fields)
    for part in sentence_parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


# --- kinds of files


@pytest.mark.parametrize("packed", ["", ".gz", ".xz", ".GZ"])
@pytest.mark.parametrize("kind", ["text", "tsv", "csv", "jsonl"])
def test_all_kinds_give_the_same_pairs(tmp_path, kind, packed):
    contents = {
        "text": {"a.de": side(0), "a.en": side(1)},
        "tsv": {"a.tsv": lines(*("\t".join(pair) for pair in PAIRS))},
        "csv": {"a.csv": lines(*(",".join(pair) for pair in PAIRS))},
        "jsonl": {"a.jsonl": lines(*(json.dumps({"src": src, "id": 1, "tgt": tgt}) for src, tgt in PAIRS))},
    }[kind]
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed.lower()]
    files = []
    for name, content in contents.items():
        files.append(tmp_path / (name + packed))
        files[-1].write_bytes(pack(content))
    pairs, counts = read(files)
    assert pairs == PAIRS
    assert counts == Counts(kept=3)


def test_parquet(tmp_path):
    srcs, tgts = (list(column) for column in zip(*PAIRS, strict=True))
    table = pa.table(
        {
            "id": [1, 2, 3, 4],
            "de": pa.array([*srcs, None], pa.large_string()),
            "en": pa.array([*tgts, "x"]).dictionary_encode(),
        }
    )
    write_table(table, tmp_path / "a.parquet")
    pairs, counts = read([tmp_path / "a.parquet"], src_field="de", tgt_field="en")
    assert pairs == PAIRS
    assert counts.dropped == {"source empty": 1}
    fails([tmp_path / "a.parquet"], "no field 'src'", "'id', 'de', 'en'")
    fails([tmp_path / "a.parquet"], "'id' holds no text but int64", src_field="id", tgt_field="en")
    twice = pa.Table.from_arrays([pa.array(srcs), pa.array(tgts), pa.array(srcs)], names=["src", "tgt", "src"])
    write_table(twice, tmp_path / "twice.parquet")
    fails([tmp_path / "twice.parquet"], "several columns with the name 'src': rename all but one")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 but not really")
    fails([tmp_path / "b.parquet"], "damaged or no Parquet file")


def test_several_files_are_read_one_after_the_other(tmp_path):
    for number, (src, tgt) in enumerate(PAIRS):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"src": src, "tgt": tgt}) + "\n\n", encoding="utf-8")
        write_table(pa.table({"src": [src], "tgt": [tgt]}), tmp_path / f"{number}.parquet")
    pairs, counts = read([tmp_path / f"{number}.jsonl" for number in range(3)])
    assert (pairs, counts) == (PAIRS, Counts(kept=3, dropped={"blank line": 3}))
    assert read([tmp_path / f"{number}.parquet" for number in (2, 0)])[0] == [PAIRS[2], PAIRS[0]]
    (tmp_path / "3.jsonl").write_text("no\n")
    fails([tmp_path / "0.jsonl", tmp_path / "3.jsonl"], "3.jsonl, line 1: not JSON")
    fails([tmp_path / "0.jsonl", tmp_path / "4.jsonl"], "4.jsonl")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_records_inside_records(tmp_path, kind):
    records = [{"id": n, "translation": {"de": src, "en": tgt}} for n, (src, tgt) in enumerate(PAIRS)]
    file = tmp_path / f"a.{kind}"
    every = [*records, {"id": 3, "translation": None}, {"id": 4, "translation": {"de": None, "en": "x"}}]
    if kind == "jsonl":
        file.write_text("".join(json.dumps(record) + "\n" for record in every), encoding="utf-8")
    else:
        write_table(pa.Table.from_pylist(every), file)
    pairs, counts = read([file], src_field="translation.de", tgt_field="translation.en")
    assert (pairs, counts.dropped) == (PAIRS, {"both sides empty": 1, "source empty": 1})
    fails([file], "there is no field 'src' (present: ", "settings, such as translation.de and translation.en")
    fails([file], "'id' holds no text", src_field="id", tgt_field="translation.en")
    for languages in (("de", "en"), ("deu", "und"), ("und", "en-GB")):
        reader = PairReader([file], languages=languages)
        assert [*reader] == PAIRS
        assert reader.columns == ("translation.de", "translation.en")
    assert [*PairReader([file], languages=("en", "de"))] == [(tgt, src) for src, tgt in PAIRS]


@pytest.mark.parametrize(
    ("names", "languages", "sides"),
    [
        (("id", "en", "pt-BR"), ("pt", "en"), ("pt-BR", "en")),
        (("Portuguese", "English"), ("pt", "en"), ("Portuguese", "English")),
        (("id", "t.en", "t.id"), ("en", "id"), ("t.en", "t.id")),  # "id" is Indonesian, too
        (("t.zh", "t.zh_TW", "t.en"), ("zh", "en"), ("t.zh", "t.en")),
        (("t.zh_CN", "t.zh_TW", "t.en"), ("zh", "en"), None),
        (("a.de", "a.en", "b.de", "b.en"), ("de", "en"), None),
        (("t.de", "t.en", "t.fr"), ("de", "und"), None),
        (("t.de", "t.en"), ("fr", "en"), None),
        (("t.de", "t.en"), ("und", "und"), None),
        (("t.de", "t.en", "src"), ("de", "en"), None),
        (("text", "number"), ("de", "en"), None),
        (("pt-BR", "pt-PT", "en"), ("pt-br", "en"), ("pt-BR", "en")),
        (("zh_TW", "zh_CN", "en"), ("zh-TW", "en"), ("zh_TW", "en")),
        (("aztr", "en"), ("aztr", "en"), ("aztr", "en")),  # a code of one's own
        (("id", "tr", "en"), ("und", "en"), None),  # what "id" is, nobody says
        (("id", "t.tr", "t.en"), ("und", "en"), ("t.tr", "t.en")),
    ],
)
def test_fields_that_are_called_by_languages(names, languages, sides):
    usual = ("src", "tgt")
    assert sides_by_language(names, usual, languages) == (sides or usual)
    assert sides_by_language(names, ("src", "other"), languages) == ("src", "other")


def test_fields_are_found_behind_blank_lines(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('\n{"de": "x", "en": "y"}\n')
    assert PairReader([file], languages=("en", "de")).columns == ("en", "de")
    file.write_text("[1]")
    fails([file], 'each line must be like {"a": …, "b": …}', src_field="a", tgt_field="b")


def test_a_name_with_a_dot_is_first_of_all_a_name():
    record = {"a.b": "own", "a": {"b": "inner", "c": 1}, "d": None}
    assert flat(record) == {"a.b": "own", "a.c": 1, "d": None}


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"")
    real_import = builtins.__import__

    def without_pyarrow(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(ConfigError, match=re.escape("pip install 'repose-nmt[parquet]'")):
        PairReader([tmp_path / "a.parquet"])


def test_each_pass_reads_and_counts_anew(corpus):
    pairs = PairReader(corpus(side(0) + b"\n", side(1) + b"x\n"))
    assert list(pairs) == list(pairs) == PAIRS
    assert pairs.counts == Counts(kept=3, dropped={"source empty": 1})
    assert pairs.counts.read == 4


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a.txt"], "alone cannot be a corpus"),
        ([""], "is a folder: name a file in it"),
        (["a.xlsx"], "a spreadsheet as CSV in UTF-8"),
        ([], "0 files cannot be a corpus"),
        (["a.de", "a.en", "a.fr"], "3 files cannot be a corpus"),
        (["a.tsv", "b.tsv", "c.tsv"], "3 files cannot be a corpus: name two aligned text files, one TSV or CSV file"),
        (["a.json"], r"alone cannot be .*make JSON lines with `jq -c '\.\[\]' \S*a\.json > \S*a\.jsonl`$"),
        (["a.de.zip", "a.en.zip"], "a.de.zip is a .zip file, which .*unpack it, and name the files of sentences in it"),
        (["a.docx"], "save a document as plain text in UTF-8"),
        (["a.tsv", "b.csv"], "are two tables: give one table at a time"),
        (["a.jsonl", "a.en"], "cannot be aligned text files"),
        (["a.tmx", "b.jsonl"], "cannot be aligned text files: name JSONL, Parquet or TMX files of one kind"),
        (["a.parquet.gz"], "packed Parquet"),
        (["a.tsv.bz2"], "a.tsv.bz2 is a .bz2 file, which cannot be read: unpack it"),
        (["a.de.zst", "a.en.zst"], "is a .zst file, which cannot be read: unpack it"),
    ],
)
def test_files_that_are_no_corpus_are_refused(tmp_path, names, sentence):
    with pytest.raises(DataError, match=sentence):
        PairReader([tmp_path / name for name in names])


def test_a_table_by_another_name_is_to_be_renamed(tmp_path):
    (tmp_path / "my.txt").write_text("um\tone\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"has a tab, so rename it to my\.tsv if it is a table$"):
        PairReader([tmp_path / "my.txt"])


def test_a_table_that_excel_calls_unicode_text_is_read_once_it_is_renamed(tmp_path):
    """It is in UTF-16 with a byte-order mark, and its cells are quoted as in CSV."""
    path = tmp_path / "my pairs.txt"
    path.write_bytes('um gato\t"a ""cat"", here"\r\n'.encode("utf-16"))
    with pytest.raises(DataError, match=r"has a tab, so rename it to my pairs\.csv if it is a table, such as Excel's"):
        PairReader([path])
    assert read([path.rename(tmp_path / "my pairs.csv")])[0] == [("um gato", 'a "cat", here')]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_table_in_utf_16_without_its_mark_is_converted_by_the_command_that_is_advised(tmp_path, encoding):
    """No file of the user's is replaced."""
    (tmp_path / "my pairs.txt").write_bytes('um gato\t"a ""cat"", here"\r\n'.encode(encoding))
    for ending in (".csv", ".tsv"):
        (tmp_path / f"my pairs{ending}").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match=r"alone cannot be a corpus.*has a tab") as caught:
        PairReader([tmp_path / "my pairs.txt"])
    subprocess.run(str(caught.value).split("`")[1], shell=True, check=True)
    assert read([tmp_path / "utf8.my pairs.csv"])[0] == [("um gato", 'a "cat", here')]
    assert [(tmp_path / f"my pairs{ending}").read_text(encoding="utf-8") for ending in (".csv", ".tsv")] == ["mine"] * 2


def test_one_file_is_no_two(corpus, tmp_path):
    path = corpus(b"a\n", b"b\n")[0]
    fails([path, path], "both files are the same file, ")
    (tmp_path / "link").symlink_to(path)
    fails([path, tmp_path / "link"], "both files are the same file, ")


@pytest.mark.parametrize(("rest", "last"), [(b"\n", "last line of"), (b"\n \n\r\n", "last 3 lines of")])
def test_empty_lines_at_the_end_of_one_file_are_named(corpus, rest, last):
    fails(corpus(b"a\nb\n" + rest, b"c\nd\n"), "a.src has", f"the {last}", "a.src", "empty, so delete")
    fails(corpus(b"a\nb\n", b"c\nd\n" + rest), f"the {last}", "a.tgt")
    fails(corpus(b"a\nb\n", b"c\nd\ne\n" + rest), "line n of one must be the translation")


@pytest.mark.parametrize("begin", [b"PK\x03\x04\x14\0", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"%PDF-1.7 "])
def test_a_document_by_the_name_of_a_text_is_refused(corpus, begin):
    fails(corpus(begin + b"\xff\n", b"one\n"), "a.src is a file of Word, Excel or another program: save")


def test_line_ends_of_windows_are_no_problem(corpus):
    _, counts = read(corpus(b"eins\r\nzwei\r\n", b"one\r\ntwo\r\n"))
    assert counts.describe() == "2 of 2 pairs read, Windows line endings (harmless)"


# --- lines


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf_16_is_read_where_a_mark_says_so(corpus, mark):
    """Some of its characters have a byte like a line feed's; a line may be longer than what is read at once."""
    texts = ["um gato", "\u0a0a\u010a", "𝄞 " * 9_000, "x" * 20_001, "fim"]
    encoding = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
    data = mark + "".join(f"{text}\r\n" for text in texts).encode(encoding)
    pairs, counts = read(corpus(data, lines("1", "2", "3", "4", "5")))
    assert [src for src, _ in pairs] == [*texts[:3], texts[4]]
    assert "1 × byte-order mark removed from a file" in counts.describe()


def test_lines_end_at_line_feeds_only(corpus):
    src = "form\x0cfeed\nnext\x85line\nseparators\u2028\u2029\x1c\x1d\x1e\x0b\nlone\rreturn\nlast\r\r\n"
    pairs, counts = read(corpus(src.encode(), lines("1", "2", "3", "4", "5")))
    assert [src for src, _ in pairs] == [
        "form\x0cfeed",
        "next\x85line",
        "separators\u2028\u2029\x1c\x1d\x1e\x0b",
        "lone\rreturn",
        "last\r",
    ]
    assert counts == Counts(kept=5, notes={"carriage return removed from a line end": 1})


def test_windows_files(corpus):
    """Byte-order marks and CRLF, also where the last line has no end."""
    pairs, counts = read(corpus(b"\xef\xbb\xbfeins\r\nzwei\r\n", b"\xef\xbb\xbfone\r\ntwo"))
    assert pairs == [("eins", "one"), ("zwei", "two")]
    assert counts.notes == {
        "byte-order mark removed from a file": 2,
        "carriage return removed from a line end": 3,
    }


def test_a_byte_order_mark_inside_is_text(corpus):
    pairs, _ = read(corpus(lines("a", "\ufeffb"), lines("c", "d")))
    assert pairs[1][0] == "\ufeffb"


def test_spaces_are_kept(corpus):
    assert read(corpus(b"  a \xc2\xa0\n", b"\tb  c\n"))[0] == [("  a \u00a0", "\tb  c")]


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=12))
@settings(max_examples=100)
def test_any_text_comes_back(tmp_path_factory, pairs):
    """Whatever is not blank, and holds no NUL or line feed, is read as it was written."""
    pairs = [*((src.replace("\n", ""), tgt.replace("\n", "")) for src, tgt in pairs), ("end", "end")]
    folder = tmp_path_factory.mktemp("any")
    files = [folder / "a", folder / "b"]
    for number, file in enumerate(files):
        # "\r\n" ends protect a "\r" that ends the text itself; the mark protects one that begins it
        file.write_bytes(b"\xef\xbb\xbf" + "".join(f"{pair[number]}\r\n" for pair in pairs).encode())
    found, counts = read(files)
    usable = [pair for pair in pairs if all(text.strip() and "\0" not in text for text in pair)]
    assert found == usable
    assert counts.read == len(pairs)


# --- pairs that are dropped


def test_what_cannot_be_a_pair_is_dropped_and_counted(corpus):
    long = "x" * (MAX_CHARACTERS + 1)
    src = lines("good", "", " \u3000\t", "fine", "nul \0", "ok", long, "ok", "ä" * MAX_CHARACTERS, "same")
    tgt = lines("gut", "x", " ", "", "ok", "\0", "ok", long, "𝄞" * MAX_CHARACTERS, "same")
    pairs, counts = read(corpus(src, tgt))
    assert pairs == [("good", "gut"), ("ä" * MAX_CHARACTERS, "𝄞" * MAX_CHARACTERS), ("same", "same")]
    assert counts == Counts(
        kept=3,
        dropped={
            "source empty": 1,
            "both sides empty": 1,
            "target empty": 1,
            "NUL character": 2,
            "longer than 20,000 characters": 2,
        },
        notes={"source and target are the same": 1},
    )


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_the_bound_on_bytes_does_not_move_lines(corpus, end):
    """Lines just around the reader's byte bound, with every kind of line end."""
    for size in range(4 * MAX_CHARACTERS - 2, 4 * MAX_CHARACTERS + 5):
        src = b"first\n" + b"x" * size + end
        assert read(corpus(src, b"1\n2"))[1].dropped == {"longer than 20,000 characters": 1}
        if end:
            pairs, _ = read(corpus(src + b"third\n", b"1\n2\n3\n"))
            assert pairs == [("first", "1"), ("third", "3")]


def test_a_line_of_fifty_million_characters_is_not_held_in_memory(corpus):
    files = corpus(b"a\n" + b"x" * 50_000_000 + b"\nb\n", b"1\n2\n3\n")
    tracemalloc.start()
    try:
        pairs, counts = read(files)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pairs == [("a", "1"), ("b", "3")]
    assert counts.dropped == {"longer than 20,000 characters": 1}
    assert peak < 8 << 20


def test_memory_does_not_grow_with_the_corpus(corpus):
    files = corpus(lines(*(f"Satz {number}" for number in range(30_000))), lines(*(f"{n}" for n in range(30_000))))
    tracemalloc.start()
    try:
        number = sum(1 for _ in PairReader(files))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert number == 30_000
    assert peak < 3 << 20  # as a list of pairs it would be above 5 MiB


# --- errors


@pytest.mark.parametrize(("num_src", "num_tgt"), [(3, 2), (2, 3), (0, 3), (1500, 1)])
def test_different_numbers_of_lines(corpus, num_src, num_tgt):
    files = corpus(b"a\n" * num_src, b"b\n" * num_tgt)
    fails(files, f"a.src has {num_src:,} lines", f"a.tgt has {num_tgt:,}")


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_longest_sentence_that_is_kept(corpus, end):
    pairs, _ = read(corpus(("first\n" + "𝄞" * MAX_CHARACTERS + end).encode(), b"1\n2"))
    assert pairs[1:] == [("𝄞" * MAX_CHARACTERS, "2")]


def test_a_carriage_return_without_line_feed_at_the_end_is_text(corpus):
    assert read(corpus(b"a\r", b"b"))[0] == [("a\r", "b")]


def test_a_missing_last_line_end_is_no_difference(corpus):
    assert read(corpus(b"a\nb", b"c\nd\n"))[0] == [("a", "c"), ("b", "d")]


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty_files(corpus, tmp_path, content):
    fails(corpus(content, content), "nothing in", "a.src")
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        (tmp_path / name).write_bytes(content)
        fails([tmp_path / name], "nothing in", name)


def test_everything_dropped(corpus):
    fails(corpus(b"\n\0\n", b"a\nb\n"), "none of the 2 pairs", "source empty: 1", "NUL character: 1")


@pytest.mark.parametrize("bad", [b"caf\xe9", b"\xed\xa0\x80", b"\xff\xfea\0", b"\xc3", b"\xc0\x80"])
def test_other_encodings(corpus, bad):
    fails(corpus(b"ok\nok\n" + bad + b"\n", b"1\n2\n3\n"), "a.src, line 3", "not UTF-8", "position")
    fails(corpus(b"ok\n" + bad + b"\n", b"1\n2\n"), "iconv -f ENCODING -t utf-8 ", "/a.src > ", "/utf8.a.src`")
    fails(corpus(b"1\n2\n", b"ok\n" + bad), "a.tgt, line 2")


def test_a_spreadsheet_in_another_encoding_says_how_to_save_it(tmp_path):
    (tmp_path / "a.csv").write_bytes("Straße;street\n".encode("cp1252"))
    fails([tmp_path / "a.csv"], "not UTF-8", "in Excel by saving it as CSV UTF-8")
    fails(
        [tmp_path / "a.csv"], "cp1254 for Turkish", "; if letters have become ? in it, no conversion brings them back"
    )


def test_missing_files_and_folders(corpus, tmp_path):
    files = corpus(b"a\n", b"b\n")
    with pytest.raises(DataError, match=r"there is no file .*missing"):
        PairReader([files[0], tmp_path / "missing"])
    with pytest.raises(DataError, match="is a folder"):
        PairReader([tmp_path, files[1]])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(corpus, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="not a regular file"):
        PairReader([tmp_path / "pipe", corpus(b"", b"b\n")[1]])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(corpus):
    files = corpus(b"a\n", b"b\n")
    files[0].chmod(0)
    with pytest.raises(DataError, match="permissions"):
        PairReader(files)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_damaged_packed_files(tmp_path, corpus, suffix, pack):
    other = corpus(b"", side(1))[1]
    file = tmp_path / f"a{suffix}"
    packed = pack(os.urandom(3000).hex().encode())
    for content in (b"not packed at all", packed[:-9], packed[:500], packed[:300] + b"?????" + packed[305:]):
        file.write_bytes(content)
        fails([file, other], f"a{suffix} is damaged or not what its name says")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("dialect", ["excel", "unix"])
@pytest.mark.parametrize("header", [None, ["id", "Tgt", "src"]])
def test_csv_comes_back(tmp_path, delimiter, dialect, header):
    """As spreadsheets write it: quoted or not, with names of columns or without, whatever stands in the cells."""
    pairs = [
        ('He said "no", and left; twice.', "Ele disse ,;\t «não»"),
        (" a ", "b"),
        ("1,5", "1;5"),
        ("Hi, Al", "Oi, Al"),
    ]
    with (tmp_path / "a.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, dialect, delimiter=delimiter)
        writer.writerows([header] if header else [])
        writer.writerows([7, tgt, src] if header else [src, tgt] for src, tgt in pairs)
    assert read([tmp_path / "a.csv"])[0] == pairs


def test_tables_of_spreadsheets_that_say_more_or_less_than_needed(tmp_path):
    """Empty cells at the end, a line that names the delimiter, prose with more commas than rows have cells."""
    rows = [("yes, one", "sim"), ("two", "dois, e"), ("", "três"), ("four", "")]
    for begin, end in (("", ""), ("", ";;"), ("sep=;\r\n", ""), ("sep=;\r\nEN;src;tgt;\r\n", ";")):
        lead = "7;" if "EN" in begin else ""
        body = "".join(f"{lead}{src};{tgt}{end}\r\n" for src, tgt in rows)
        (tmp_path / "a.csv").write_bytes((begin + body).encode())
        found, counts = read([tmp_path / "a.csv"])
        assert found == rows[:2]
        assert counts.dropped == {"source empty": 1, "target empty": 1}
        assert counts.header_lines == begin.count("\r\n")
    (tmp_path / "a.csv").write_bytes(b"ID;Englisch;Deutsch\n" + b"1;One man, running;Ein Mann\n" * 50)
    fails([tmp_path / "a.csv"], "line 1: 3 columns instead of 2", "name both sides")
    assert len(read([tmp_path / "a.csv"], src_field="deutsch", tgt_field="englisch")[0]) == 50
    (tmp_path / "a.csv").write_bytes(b"A man, running\nA dog\nTwo men\n")
    fails([tmp_path / "a.csv"], "a.csv is not a table: its first lines do not have equally many cells")


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_columns_that_languages_name_may_stand_in_either_order(tmp_path, ending):
    file = tmp_path / f"talks.de-en{ending}"
    by = "," if ending == ".csv" else "\t"
    file.write_text(f"English{by}German\none{by}eins\n", encoding="utf-8")
    for languages, pair in (
        (("de", "en"), ("eins", "one")),
        (("deu", "eng_Latn"), ("eins", "one")),
        (("de", "und"), ("eins", "one")),
        (("en", "de"), ("one", "eins")),
        (("und", "und"), ("one", "eins")),
        (("de", "fr"), ("one", "eins")),  # of which nobody knows what it is meant to be
    ):
        reader = PairReader([file], languages=languages)
        assert list(reader) == [pair]
        assert reader.columns == (("German", "English") if pair[0] == "eins" else ("English", "German"))


def test_a_space_before_a_quotation_mark_is_none_of_the_cell(tmp_path):
    file = tmp_path / "a.csv"
    rows = [("a, b", 'say "c"'), ("d", "e"), ("f", "g, h")]
    quoted = [[cell.replace('"', '""') for cell in row] for row in rows]
    file.write_text("".join(f'"{a}", "{b}"\n' for a, b in quoted), encoding="utf-8")
    assert read([file])[0] == rows
    file.write_text("a, b\nc, d\n", encoding="utf-8")
    assert read([file])[0] == [("a", " b"), ("c", " d")]
    file.write_text('Hallo; "Hi," she said\nGut; "Fine," he said\nJa; a "Yes"\n', encoding="utf-8")
    assert read([file])[0][0] == ("Hallo", ' "Hi," she said')
    file.write_text('He; "x" and "y"\nHo; "z"\n', encoding="utf-8")
    assert read([file])[0][0] == ("He", ' "x" and "y"')


@pytest.mark.parametrize("name", ["film.srt", "texts.json", "app.xlf.gz"])
def test_lines_of_files_with_more_than_sentences_are_no_pairs(tmp_path, name):
    for path in (tmp_path / f"de.{name}", tmp_path / f"en.{name}"):
        path.write_text("1\n", encoding="utf-8")
    fails([tmp_path / f"de.{name}", tmp_path / f"en.{name}"], "file, with more than sentences in it")


def test_packed_files_without_their_ending_are_told(corpus):
    for data, sentence in (
        (gzip.compress(b"a\n"), "a.src is packed by gzip: rename it to a.src.gz"),
        (lzma.compress(b"a\n"), "a.src is packed by xz: rename it to a.src.xz"),
        (bz2.compress(b"a\n"), "a.src is packed by bzip2: unpack it"),
        ("a\n".encode("utf-32"), "a.src is in UTF-32: save it in UTF-8, or with `iconv -f utf-32 "),
    ):
        fails(corpus(data, b"a\n"), sentence)


def test_empty_cells_of_the_first_row_are_none_where_others_fill_them(tmp_path):
    for name, first in (("a.csv", "hello;ola;"), ("a.tsv", "hello\tola\t")):
        rest = first[5] + "x"
        (tmp_path / name).write_text(first + "\n" + f"h{first[5]}o{rest}\n" * 50, encoding="utf-8")
        fails([tmp_path / name], "line 1: 3 columns instead of 2")
    (tmp_path / "a.csv").write_bytes(b"a;b; \nc;d;\n")
    assert read([tmp_path / "a.csv"])[0] == [("a", "b"), ("c", "d")]
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nc\td\t\n")  # in which a tab is a column
    assert read([tmp_path / "a.tsv"])[0] == [("a", "b")]


@pytest.mark.parametrize("first", ['sep="', "sep=\r", "sep=", "sep=;;"])
def test_a_first_line_that_names_no_delimiter(tmp_path, first):
    (tmp_path / "a.csv").write_bytes(f"{first}\r\n".encode() + b"a;b\r\n" * 9)
    try:
        assert read([tmp_path / "a.csv"])[0].count(("a", "b")) == 9
    except DataError:
        assert '"' in first


def test_a_row_of_endless_lines_is_not_held(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b'a,b\nc,d\n"x\n' + b'abc","\n' * 5_000_000, 1))
    tracemalloc.start()
    try:
        fails([tmp_path / "a.csv.gz"], "longer than any pair of sentences")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_comma_in_every_line_is_no_delimiter(tmp_path, delimiter):
    pairs = [(f"frase {number}", f"yes, number {number}") for number in range(200)]
    (tmp_path / "a.csv").write_bytes(lines(*(delimiter.join(pair) for pair in pairs)))
    assert read([tmp_path / "a.csv"])[0] == pairs


def test_lines_of_csv_that_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'a,b\nonly one\n\n"two\nlines",c\nc,d,e\nf,g\n')
    found, counts = read([tmp_path / "a.csv"])
    assert found == [("a", "b"), ("f", "g")]
    assert counts.dropped == {
        "no comma, first on row 2": 1,
        "blank row": 1,
        "line break inside": 1,
        "more than 2 columns, first on row 5": 1,
    }


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'a,b\n"open,c\nd,e\n', 2),
        (b'a,b\n"x" y,c\n', 2),
        (b'a,b\n"open,c\n' + b"d,e\n" * 60_000, None),  # which would be one cell
        (b"a,b\n" + b"x" * 500_000 + b",c\n", 2),
        (b"a,b,c\nd,e,f\n", 1),
        (b"a;b;c\nd;e, g;f\n", 1),
        (b'a;b\n"c" d;e, f\ng;h\n', 2),
    ],
)
def test_what_is_no_csv(tmp_path, content, line):
    (tmp_path / "a.csv").write_bytes(content)
    fails([tmp_path / "a.csv"], "a.csv, line " + ("" if line is None else f"{line}:"))


def test_a_tsv_line_without_a_tab_is_left_out_and_named(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\nonly one\nc\td\n \n", encoding="utf-8")
    reader = PairReader([tmp_path / "a.tsv"])
    assert list(reader) == [("a", "b"), ("c", "d")]
    assert reader.counts.dropped == {"no tab, first on line 2": 2}


def test_a_tsv_line_with_a_stray_tab_is_left_out_and_named(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\na\t\tb\nno tab\na\tb\tc\td\nc\td\n", encoding="utf-8")
    pairs, counts = read([tmp_path / "a.tsv"])
    assert pairs == [("a", "b"), ("c", "d")]
    assert counts.dropped == {"more than 2 columns, first on line 2": 2, "no tab, first on line 3": 1}


def test_columns_of_numbers_are_no_example_of_source_and_target(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tum\t2,5\tone\n", encoding="utf-8")
    fails([tmp_path / "a.tsv"], "such as --src-field 2 --tgt-field 4")


@pytest.mark.parametrize("names", ["Galician (gl)\tEnglish (en)", "galician (Spain)\tENGLISH (United States)"])
def test_more_may_follow_the_names_of_languages_in_brackets(tmp_path, names):
    (tmp_path / "a.tsv").write_text(f"{names}\num\tone\n", encoding="utf-8")
    assert read([tmp_path / "a.tsv"])[0] == [("um", "one")]
    assert languages_of_files([tmp_path / "a.tsv"], ("src", "tgt")) == ("gl", "en")


@pytest.mark.parametrize("line", ["a\tb\tc", "pt\ten\tde\tfr"])
def test_tsv_that_begins_with_more_than_two_columns(tmp_path, line):
    (tmp_path / "a.tsv").write_text(f"{line}\na\tb\n", encoding="utf-8")
    number = f"a.tsv, line 1: {line.count(chr(9)) + 1} columns instead of 2"
    fails([tmp_path / "a.tsv"], number, "name both sides", "by the numbers of their columns, such as --src-field 1")


@pytest.mark.parametrize("first", ["a\tb\tc", "en\tde\tnote"])
def test_columns_may_be_named_by_their_numbers(tmp_path, first):
    (tmp_path / "a.tsv").write_text(f"{first}\nd\te\tf\n", encoding="utf-8")
    pairs, counts = read([tmp_path / "a.tsv"], src_field="2", tgt_field="1")
    assert pairs == [("b", "a"), ("e", "d")][first != "a\tb\tc" :]
    assert counts.columns == (("2", "1") if first == "a\tb\tc" else ("de", "en"))
    for wrong in ("0", "01", "4"):
        fails([tmp_path / "a.tsv"], "line 1: 3 columns, of which ", src_field=wrong, tgt_field="1")


@pytest.mark.parametrize(
    ("first", "named"),
    [
        ("src\ttgt\tmended", ("src", "mended")),
        ("TARGET\tsource\tmended", ("TARGET", "mended")),
        ("Text\tid\tTranslation", ("Text", "Translation")),
        ("sentence\tlang\ttranslation", ("sentence", "translation")),
        ("eng\tpor\tone", None),  # as rows begin that say which languages they are in
    ],
)
def test_columns_by_their_numbers_may_have_names_too(tmp_path, first, named):
    (tmp_path / "a.tsv").write_text(f"{first}\nd\te\tf\n", encoding="utf-8")
    pairs, counts = read([tmp_path / "a.tsv"], src_field="1", tgt_field="3")
    assert pairs == [("eng", "one"), ("d", "f")][named is not None :]
    assert (counts.columns, counts.header_lines) == (named or ("1", "3"), int(named is not None))


def test_fields_that_a_table_without_a_header_does_not_name_are_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\nd\te\n", encoding="utf-8")
    fails([tmp_path / "a.tsv"], "no field 'de'", "or by the numbers of their columns", src_field="de", tgt_field="en")
    (tmp_path / "a.tsv").write_text("2\t1\nd\te\n", encoding="utf-8")  # what a line says goes before numbers
    assert read([tmp_path / "a.tsv"], src_field="1", tgt_field="2")[0] == [("e", "d")]


def test_tsv_with_a_header(tmp_path):
    (tmp_path / "a.tsv").write_text("id\ttgt\tsrc\n1\tb\ta\n2\td\tc\n", encoding="utf-8")
    pairs, counts = read([tmp_path / "a.tsv"])
    assert pairs == [("a", "b"), ("c", "d")]
    assert counts == Counts(kept=2)
    (tmp_path / "b.tsv").write_text("de\ten\na\tb\n", encoding="utf-8")
    assert read([tmp_path / "b.tsv"], src_field="en", tgt_field="de")[0] == [("b", "a")]
    (tmp_path / "c.tsv").write_text('Tgt\t"SRC" \na\tb\n', encoding="utf-8")
    assert read([tmp_path / "c.tsv"])[0] == [("b", "a")], "as spreadsheets write names"
    found, counts = read([tmp_path / "b.tsv"])
    assert (found, counts.columns) == ([("a", "b")], ("de", "en")), "languages are no pair"
    for fields in ({"src_field": "en"}, {"tgt_field": "en"}):  # of two names one is there: it is no pair to train on
        fails([tmp_path / "b.tsv"], "b.tsv, line 1", "there is no field", "present: 'de', 'en'", **fields)
    (tmp_path / "c.tsv").write_text("src\ttgt\tid\na\tb\n", encoding="utf-8")
    fails(
        [tmp_path / "c.tsv"], "the only pair in", "c.tsv cannot be used (", "fewer than 3 columns, first on line 2: 1"
    )


@pytest.mark.parametrize(
    ("name", "first", "languages"),
    [
        ("a.csv", "Galician;English", ("gl", "en")),
        ("a.tsv", '"pt-BR"\t EN', ("pt-BR", "EN")),
        ("a.csv", "Source,Target", ("und", "und")),
        ("a.tsv", "Original\tÜbersetzung", ("und", "und")),
    ],
)
def test_a_first_line_of_languages_or_of_words_for_the_sides_is_no_pair(tmp_path, name, first, languages):
    separator = next(mark for mark in ";\t," if mark in first)
    (tmp_path / name).write_text(f"{first}\na{separator}b\n", encoding="utf-8")
    assert read([tmp_path / name])[0] == [("a", "b")]
    assert languages_of_files([tmp_path / name], ("src", "tgt")) == languages
    fails([tmp_path / name], "there is no field 'x'", src_field="x", tgt_field="y")


@pytest.mark.parametrize("first", ["target\tsource", "Translation\tOriginal", "Ziel\tQuelle"])
def test_a_first_line_may_name_the_target_first(tmp_path, first):
    (tmp_path / "a.tsv").write_text(f"{first}\na\tb\n", encoding="utf-8")
    assert read([tmp_path / "a.tsv"])[0] == [("b", "a")]


def test_two_alike_in_a_first_line_are_a_pair(tmp_path):
    (tmp_path / "a.tsv").write_text("no\tno\na\tb\n", encoding="utf-8")
    assert read([tmp_path / "a.tsv"])[0] == [("no", "no"), ("a", "b")]


@pytest.mark.parametrize(("ending", "separator"), [("tsv", "\t"), ("csv", ",")])
def test_two_columns_of_one_name_are_refused(tmp_path, ending, separator):
    path = tmp_path / f"a.{ending}"
    path.write_text("\n".join(separator.join(row) for row in [("src", "Tgt", "tgt"), "abc", "def"]), encoding="utf-8")
    fails([path], "line 1: several columns are called 'tgt': rename all but one")


def test_a_carriage_return_is_text_in_a_cell_as_in_a_line(tmp_path):
    for name, separator in (("a.tsv", "\t"), ("a.csv", ",")):
        (tmp_path / name).write_bytes(f"src{separator}tgt\nhello\rthere{separator}foo\nb{separator}c\r\n".encode())
        assert read([tmp_path / name])[0] == [("hello\rthere", "foo"), ("b", "c")]
    (tmp_path / "a.csv").write_bytes(b'src,tgt\n"hello\rthere, you",foo\n')
    assert read([tmp_path / "a.csv"])[0] == [("hello\rthere, you", "foo")]


def test_a_long_cell_is_left_out_as_a_long_line_is(tmp_path):
    (tmp_path / "a.csv").write_text(f"src,tgt\n{'x ' * 70_000},a\nb,c\n", encoding="utf-8")
    found, counts = read([tmp_path / "a.csv"])
    assert found == [("b", "c")]
    assert counts.dropped == {"longer than 20,000 characters": 1}


def test_line_ends_of_old_macs_are_named(corpus):
    files = corpus(b"a\rb\rc\r", b"d\re\rf\r")
    fails(files, "a.src has no line feed but carriage returns")
    with pytest.raises(DataError) as caught:
        read(files)
    command = str(caught.value).split("`")[1]
    subprocess.run(command, shell=True, check=True)
    assert (files[0].parent / "unix.a.src").read_bytes() == b"a\nb\nc\n"
    fails(corpus(b"a\r" * 50_000, b"d\r" * 50_000), "a.src has no line feed")  # longer than a line may be
    assert read(corpus(b"a\rb\n", b"c\n"))[0] == [("a\rb", "c")]


def test_carriage_returns_come_back(tmp_path):
    pairs = [("a\rb", "c"), ("d\u2028e\x85f", "\r")]
    write_pairs(tmp_path, "test", pairs)
    assert list(TextPairs(tmp_path, "test")) == pairs


def test_a_full_disk_leaves_no_pairs(tmp_path):
    def full():
        yield "a", "b"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(WriteError, match=r"test\.tgt cannot be written \(No space left on device\)"):
        write_pairs(tmp_path, "test", full())
    assert not list(tmp_path.iterdir())


def test_tsv_quotes_are_text_and_blank_lines_are_counted(tmp_path):
    (tmp_path / "a.tsv").write_text('"a\tb"\n\nc\t\n', encoding="utf-8")
    pairs, counts = read([tmp_path / "a.tsv"])
    assert pairs == [('"a', 'b"')]
    assert counts.dropped == {"blank line": 1, "target empty": 1}


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"src": "a"}', "no field 'tgt' (present: 'src')"),
        ('{"de": "a", "en": "b"}', "no field 'src' (present: 'de', 'en')"),
        ("{}", "present: none"),
        ('{"src": "a", "tgt": ["b"]}', "'tgt' holds no text"),
        ('{"src": 3, "tgt": "b"}', "'src' holds no text but 3"),
        ('{"src": "a", "tgt": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_jsonl_errors_name_the_line(tmp_path, line, sentence):
    (tmp_path / "a.jsonl").write_text(f'{{"src": "a", "tgt": "b"}}\n{line}\n', encoding="utf-8")
    fails([tmp_path / "a.jsonl"], "a.jsonl, line 2", sentence)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"src": "a", "tgt": "b"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 10_000, "not JSON"),
        ('["a", "b"]', "not a JSON object"),
        ("null", "not a JSON object"),
    ],
)
def test_lines_that_are_no_record_are_left_out_and_named(tmp_path, line, fault):
    file, record = tmp_path / "a.jsonl", '{"de": "x", "en": "y"}'
    for text, first in ((f"{line}\n\n{line}\n{record}\n", 1), (f"{record}\n{line}\n{line}\n", 2)):
        file.write_text(text, encoding="utf-8")
        reader = PairReader([file], languages=("de", "en"))
        assert ([*reader], reader.columns) == ([("x", "y")], ("de", "en"))
        assert reader.counts.dropped[f"{fault}, first on line {first} of a.jsonl"] == 2
    file.write_text(f"{line}\n{line}\n", encoding="utf-8")
    fails([file], f'line 1: {fault}: each line must be like {{"src": …, "tgt": …}}')


def test_a_first_record_in_which_the_sides_are_null_says_nothing_of_their_names(tmp_path):
    file, empty = tmp_path / "a.jsonl", '{"id": 1, "translation": null}\n'
    file.write_text(empty + '{"id": 2, "translation": {"de": "x", "en": "y"}}\n', encoding="utf-8")
    reader = PairReader([file], languages=("de", "en"))
    assert ([*reader], reader.counts.dropped) == ([("x", "y")], {"both sides empty": 1})
    assert reader.columns == ("translation.de", "translation.en")
    file.write_text(2 * empty, encoding="utf-8")
    fails([file], "line 1: there is no field 'src' (present: 'id', 'translation'): name both sides")
    file.write_text(empty + '{"a": "x", "b": "y"}\n', encoding="utf-8")
    fails([file], "line 2: there is no field 'src' (present: 'a', 'b'): name both sides")


@pytest.mark.parametrize("odd", ['{"src": "a"}', '{"src": "a", "tgt": ["b"]}'])
def test_of_an_odd_jsonl_record_is_said_whether_it_is_the_first(tmp_path, odd):
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"src": "a", "tgt": null}}\n\n{odd}\n', encoding="utf-8")
    fails([file], "a.jsonl, line 3", "'tgt'", "unlike in the records before: mend or delete this one")
    file.write_text(f"\n{odd}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: .*'tgt'.*: name (both sides|a text field)"):
        read([file])


def test_jsonl_values_that_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("repose.data.records._RECORD_BYTES", 100)
    records = [
        {"src": None, "tgt": "b"},
        {"src": "a\nb", "tgt": "c"},
        {"src": "a\u2028\rb", "tgt": "c"},
        {"src": "a", "tgt": "\0"},
        {"src": "a", "tgt": "b", "more": "x" * 100},
    ]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, records)), encoding="utf-8")
    pairs, counts = read([tmp_path / "a.jsonl"])
    assert pairs == [("a\u2028\rb", "c")]
    assert counts.dropped == {
        "source empty": 1,
        "blank line": 4,
        "line break inside": 1,
        "NUL character": 1,
        "record longer than 100 bytes": 1,
    }


def test_two_sides_of_one_name_are_refused(tmp_path):
    (tmp_path / "c.tsv").write_text("pt\ten\na\tb\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="both sides are called 'en': name two fields"):
        PairReader([tmp_path / "c.tsv"], src_field="en", tgt_field="en")


def test_sides_have_names_for_people(tmp_path):
    (tmp_path / "other").mkdir()
    texts = {
        "a.pt": "um",
        "b.en": "one",
        "other/a.pt": "um",
        "a.tsv": "um\tone",
        "b.csv": "sep=,\nNo,tgt,src\n1,one,um",
    }
    for name, text in {**texts, "c.jsonl": '{"src": "um", "tgt": "one"}', "d.jsonl": ""}.items():
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")

    def sides(*names):
        return PairReader([tmp_path / name for name in names]).sides

    assert sides("a.pt", "b.en") == ("a.pt", "b.en")
    assert sides("a.pt", "other/a.pt") == (str(tmp_path / "a.pt"), str(tmp_path / "other" / "a.pt"))
    assert sides("a.tsv") == ("column 1 of a.tsv", "column 2 of a.tsv")
    assert sides("b.csv") == ("column src of b.csv", "column tgt of b.csv")
    assert sides("c.jsonl", "d.jsonl") == ("field src of c.jsonl and 1 more", "field tgt of c.jsonl and 1 more")
