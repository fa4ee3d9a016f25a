"""Malformed corpora: which pairs are read, or which one sentence is the error."""

import gzip
import os
import re
import sys
from pathlib import Path

import pytest
from victims import run_cli

from repose.data.readers import PairReader
from repose.system.errors import DataError

HALF_A_MILLION = 500_000
PAIRS: dict[str, tuple[dict[str, bytes], list[tuple[str, str]]]] = {
    "a lone CR is text": ({"a": b"u\rm\ndois\n", "b": b"one\ntwo\n"}, [("u\rm", "one"), ("dois", "two")]),
    "CR LF is a line end": ({"a": b"um\r\ndois\r\n", "b": b"one\ntwo\n"}, [("um", "one"), ("dois", "two")]),
    "other separators are text": ({"a": "u\x0cm\u2028\x85\n".encode(), "b": b"one\n"}, [("u\x0cm\u2028\x85", "one")]),
    "control and bidi characters": ({"a": "\x1b[31m\u202e\n".encode(), "b": b"x\x7f\n"}, [("\x1b[31m\u202e", "x\x7f")]),
    "byte-order marks": ({"a": b"\xef\xbb\xbfum\n", "b": b"\xef\xbb\xbfone\n"}, [("um", "one")]),
    "NUL": ({"a": b"u\0m\ndois\n", "b": b"one\ntwo\n"}, [("dois", "two")]),
    "empty lines": ({"a": b"\ndois\n \n", "b": b"one\ntwo\nthree\n"}, [("dois", "two")]),
    "no line end at the end": ({"a": b"um\ndois", "b": b"one\ntwo"}, [("um", "one"), ("dois", "two")]),
    "a long line": ({"a": b"x" * HALF_A_MILLION + b"\ndois\n", "b": b"one\ntwo\n"}, [("dois", "two")]),
    "TSV": ({"a.tsv": b"um\tone\n\ndois\ttwo\n"}, [("um", "one"), ("dois", "two")]),
    "TSV knows no quotes": ({"a.tsv": b'"um\tone"\n'}, [('"um', 'one"')]),
    "TSV with names": ({"a.tsv": b"id\ttgt\tsrc\n1\tone\tum\n"}, [("um", "one")]),
    "JSONL": ({"a.jsonl": b'{"src": "um", "tgt": "one"}\n\n{"tgt": null, "src": "x"}\n'}, [("um", "one")]),
    "JSONL with a line break": ({"a.jsonl": b'{"src": "a\\nb", "tgt": "c"}\n{"src": "a", "tgt": "c"}\n'}, [("a", "c")]),
    "UTF-16": ({"a.tsv": "um\tone\r\n".encode("utf-16")}, [("um", "one")]),
    "UTF-16 packed": ({"a.gz": gzip.compress(b"\xfe\xff\0u\0m\0\n"), "b": b"one\n"}, [("um", "one")]),
    "packed": ({"a.tsv.gz": gzip.compress(b"um\tone\n")}, [("um", "one")]),
    "two packed parts": ({"a.tsv.gz": gzip.compress(b"um\tone\n") * 2}, [("um", "one"), ("um", "one")]),
    "a packed bomb of one line": (
        {"a.tsv.gz": gzip.compress(b"\0" * 50_000_000) + gzip.compress(b"\num\tone\n")},
        [("um", "one")],
    ),
}

SENTENCES: dict[str, tuple[dict[str, bytes], str]] = {
    "one side shorter": ({"a": b"um\ndois\n", "b": b"one\n"}, "2 lines and .* has 1"),
    "other side shorter": ({"a": b"um\n", "b": b"one\ntwo\n"}, "1 line and .* has 2"),
    "not UTF-8": ({"a": b"um\n\xff\xfe\n", "b": b"one\ntwo\n"}, "a, line 2: not UTF-8"),
    "UTF-16 without a mark": (
        {"a": "um gato\n".encode("utf-16-be"), "b": b"one\n"},
        "iconv -f utf-16be -t utf-8 .*/a > ",
    ),
    "half a character of UTF-16": ({"a": "um\n".encode("utf-16")[:-1], "b": b"one\n"}, "a is damaged: .*UTF-16"),
    "half a pair of surrogates": ({"a": b"\xff\xfe\x00\xd8\n\0", "b": b"one\n"}, "a is damaged: .*UTF-16"),
    "UTF-32": ({"a": "um\n".encode("utf-32"), "b": b"one\n"}, "a is in UTF-32: save it in UTF-8"),
    "an old Mac's": ({"a": b"um\rdois\rtres", "b": b"one\rtwo\rthree"}, "old Macs"),
    "empty": ({"a": b"", "b": b""}, "there is nothing in"),
    "only a byte-order mark": ({"a": b"\xef\xbb\xbf", "b": b"\xef\xbb\xbf"}, "there is nothing in"),
    "only empty lines": ({"a": b"\n\n", "b": b"\n\n"}, "none of the 2 pairs"),
    "three columns": ({"a.tsv": b"um\tone\teins\n"}, "line 1: 3 columns instead of 2"),
    "one column": ({"a.tsv": b"um,one\n"}, "no tab, first on line 1"),
    "a spreadsheet": ({"a.xlsx": b"PK"}, "a spreadsheet as CSV in UTF-8"),
    "CSV of one column": ({"a.csv": b"um\nsim\n"}, "is not a table"),
    "CSV with an open quote": ({"a.csv": b'um,one\n"sim,yes\n'}, "line 2: this is not CSV"),
    "a memory of nothing": ({"a.tmx": b"<tmx/>"}, "has no unit in two languages"),
    "a memory that ends": ({"a.tmx": b"<tmx><body><tu>"}, "line 1: this is not XML .no element found"),
    "no JSON": ({"a.jsonl": b'{"src": "um"\n'}, "line 1: not JSON"),
    "JSON but no object": ({"a.jsonl": b'["um", "one"]\n'}, "not a JSON object"),
    "deep JSON": ({"a.jsonl": b"[" * 200_000 + b"\n"}, "not JSON"),
    "a huge number": ({"a.jsonl": b'{"src": ' + b"9" * 5000 + b"}\n"}, "line 1"),
    "another field": ({"a.jsonl": b'{"pt": "um", "en": "one"}\n'}, "no field 'src' .*'pt', 'en'"),
    "a number as text": ({"a.jsonl": b'{"src": 1, "tgt": "one"}\n'}, "holds no text"),
    "half a surrogate pair": ({"a.jsonl": b'{"src": "\\ud800", "tgt": "one"}\n'}, "surrogate"),
    "packed, cut": ({"a.tsv.gz": gzip.compress(b"um\tone\n" * 99)[:-9]}, "damaged or not what its name says"),
    "packed, but not": ({"a.tsv.gz": b"um\tone\n"}, "damaged or not what its name says"),
    "xz, but not": ({"a.tsv.xz": b"um\tone\n"}, "damaged or not what its name says"),
    "Parquet, but not": ({"a.parquet": b"PAR1" + b"\0" * 50 + b"PAR1"}, "damaged or no Parquet file"),
}


def written(files: dict[str, bytes], folder: Path) -> list[Path]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


@pytest.mark.parametrize(("files", "pairs"), PAIRS.values(), ids=PAIRS)
def test_what_can_be_read_is_read(files: dict[str, bytes], pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    assert list(PairReader(written(files, tmp_path))) == pairs


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(("files", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_what_cannot_be_read_is_one_sentence(files: dict[str, bytes], sentence: str, tmp_path: Path) -> None:
    if "a.parquet" in files:
        pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=sentence) as caught:
        list(PairReader(written(files, tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["an old Mac's", "not UTF-8", "packed, cut"])
def test_the_command_line_says_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    files, sentence = SENTENCES[name]
    said = run_cli("prepare", *written(files, tmp_path))
    assert said.is_one_sentence, said
    assert re.search(sentence, said.err)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes and devices with names")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("command", ["train", "prepare", "--config", "score"])
def test_what_never_ends_is_refused_before_it_is_read(
    kind: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    path, good = tmp_path / "endless.tsv", tmp_path / "good"
    good.write_text("um\n")
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.mkdir()
    arguments = {
        "train": ["train", path, "--out", tmp_path / "run"],
        "prepare": ["prepare", good, path],
        "--config": ["prepare", "--config", path],
        "score": ["score", tmp_path, path, good],
    }[command]
    said = run_cli(*arguments)
    assert said.is_one_sentence, said
    assert not (tmp_path / "run").exists()
