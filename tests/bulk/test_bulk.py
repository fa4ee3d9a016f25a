"""Jobs: any sharding gives the result of a single pass, no line is lost or doubled, and other files are not a job's."""

import contextlib
import dataclasses
import errno
import gzip
import io
import json
import lzma
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repose.bulk import shards as shard_module
from repose.bulk.filtering import filter_pairs
from repose.bulk.inputs import Record, Window
from repose.bulk.line_work import LineTranslator
from repose.bulk.local import run_here
from repose.bulk.plan import Job, Plan, make_plan, read_plan
from repose.bulk.scoring import PairScorer, adequacy
from repose.bulk.shards import Ended, Manifest, merge, remove_unpacked, run_shard
from repose.bulk.status import status
from repose.bulk.storage import Store
from repose.data.lines import order_of_utf_16
from repose.decoding.stream import StreamCounts, printed, translate_lines
from repose.system.errors import ConfigError, DataError, WriteError

from .conftest import Numbering, job_of, plan_of

Planned = Callable[..., tuple[Store, Plan]]


def translated(data: bytes, **how: Any) -> bytes:
    """What `repose translate` prints."""
    counts, lines = StreamCounts(), []
    for translation in translate_lines(Numbering(), io.BytesIO(data), counts, num_hypotheses=how.get("n", 1)):
        lines += printed(translation, counts.lines - 1, num_hypotheses=how.get("n", 1), scores=how.get("scores", False))
    return "".join(f"{line}\n" for line in lines).encode()


def finish(store: Store, plan: Plan) -> bytes:
    work = LineTranslator(plan.job, Numbering())
    assert run_here(store, plan, plan.shards, work, on_progress=lambda _: None, stop=threading.Event())
    return Path(store.place(merge(store, plan))).read_bytes()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


LINES = st.lists(
    st.one_of(
        st.text(max_size=30).map(lambda text: text.replace("\n", " ").encode("utf-8", "replace")),
        st.sampled_from(
            [
                b"",
                b"  ",
                b"\xef\xbb\xbfmark",
                b"\xff\xfe",
                b"crlf\r",
                "a\u2028b\x85c".encode(),
                b"x" * 100,
                b"One. Two.",
            ]
        ),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=30)
@given(
    lines=LINES, end=st.booleans(), shard_lines=st.integers(1, 30), n=st.sampled_from([1, 1, 3]), scores=st.booleans()
)
def test_any_shards_give_the_bytes_of_translate(
    lines: list[bytes], end: bool, shard_lines: int, n: int, scores: bool
) -> None:
    data = b"\n".join(lines) + b"\n" * end
    if not data or order_of_utf_16(lines[0]):  # UTF-16 without a mark, which is refused
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write(folder / "in.txt", data)
        store, plan = plan_of(folder / "out", [file], shard_lines=shard_lines, num_hypotheses=n, scores=scores)
        assert finish(store, plan) == translated(data, n=n, scores=scores)
        assert sum(shard.lines for shard in plan.shards) == plan.lines
        assert all(shard.lines == shard_lines for shard in plan.shards[:-1])


@pytest.mark.parametrize("format", ["txt", "jsonl"])
def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path, planned: Planned, format: str) -> None:
    lines = {"txt": [b"same", b"same"], "jsonl": [b'{"text": "same"}'] * 2}[format]
    file = write(tmp_path / f"in.{format}", b"\xef\xbb\xbf" + b"\n".join(lines))
    store, plan = planned([file], shard_lines=1)
    first, second = finish(store, plan).splitlines()
    assert first == second
    assert status(store, plan).failed == {}


@pytest.mark.parametrize(
    ("encoding", "named"), [("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32", "UTF-32")]
)
@pytest.mark.parametrize("format", ["txt", "tsv", "jsonl", "txt.gz"])
def test_utf_16_without_a_mark_is_refused_before_anything_is_translated(
    tmp_path: Path, planned: Planned, format: str, encoding: str, named: str
) -> None:
    data = "one\ttwo\n".encode(encoding)
    file = write(tmp_path / f"in.{format}", gzip.compress(data) if format.endswith("gz") else data)
    with pytest.raises(DataError, match=rf"in\.{format}: the text is in {named}"):
        planned([file])


@pytest.mark.parametrize(("mark", "encoding"), [(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")])
@pytest.mark.parametrize("format", ["txt", "jsonl", "txt.gz"])
def test_utf_16_with_its_mark_is_read_as_utf_8(
    tmp_path: Path, planned: Planned, format: str, mark: bytes, encoding: str
) -> None:
    lines = ["ação\n", "\u010a \u0a0d\n", "\U0001f600\n", "fim"]  # bytes of a line feed within characters, too
    if format == "jsonl":
        lines = [json.dumps({"text": line.strip()}, ensure_ascii=False) + "\n" for line in lines]
    data = mark + "".join(lines).encode(encoding)
    pack = gzip.compress if format.endswith("gz") else bytes
    utf_8 = write(tmp_path / f"utf_8.{format}", pack("".join(lines).encode()))
    wanted = finish(*planned([utf_8], out="utf_8", shard_lines=2))
    store, plan = planned([write(tmp_path / f"in.{format}", pack(data))], shard_lines=2)
    assert finish(store, plan) == wanted
    assert [shard.lines for shard in plan.shards] == [2, 2]
    remove_unpacked(store)
    store.remove("parts/000000.json")
    assert finish(store, plan) == wanted


def test_invalid_utf_16_is_a_problem_of_its_line(tmp_path: Path, planned: Planned) -> None:
    data = b"\xff\xfe" + "one\n".encode("utf-16-le") + b"\x00\xd8" + "two\nthree\n".encode("utf-16-le") + b"x"
    store, plan = planned([write(tmp_path / "in.txt", data)])
    assert finish(store, plan) == translated(data)
    assert status(store, plan).failed == {"invalid UTF-8": 2}


def test_long_lines_are_cut_as_translate_cuts_them(tmp_path: Path, planned: Planned) -> None:
    data = b"a\n" + "ä".encode() * 200_000 + b"\n" + b"y" * 300_000 + b"\nlast\n"
    store, plan = planned([write(tmp_path / "in.txt", data)], shard_lines=2)
    assert finish(store, plan) == translated(data)
    assert status(store, plan).failed == {"too long": 2}


def test_blocks_do_not_matter_to_where_a_file_is_cut(tmp_path: Path, planned: Planned) -> None:
    data = b"".join(b"%d\n" % n for n in range(300_000))  # two blocks
    _, plan = planned([write(tmp_path / "in.txt", data)], shard_lines=777)
    for shard in random.Random(0).sample(plan.shards, 40):
        ((start, end),) = shard.ranges
        assert data[start:end].split(b"\n")[0] == b"%d" % shard.line
        assert data[start:end].count(b"\n") == shard.lines


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed_files_and_several(
    tmp_path: Path, planned: Planned, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    first, second = b"one\ntwo\nthree", b"four\nfive\n"
    files = [write(tmp_path / f"a.txt{suffix}", pack(first)), write(tmp_path / "b.txt", second)]
    store, plan = planned(files, shard_lines=2)
    assert [shard.lines for shard in plan.shards] == [2, 1, 2]
    assert finish(store, plan) == translated(first) + translated(second)
    broken = write(tmp_path / f"c.txt{suffix}", pack(first)[:-9])
    with pytest.raises(DataError, match="damaged or not what its name says"):
        planned([broken], out="other")


def test_records_keep_their_fields(tmp_path: Path, planned: Planned) -> None:
    records = [
        b'{"id": 7, "text": "one", "more": {"a": [1.5, null]}}',
        b'{"id": 8, "text": "two\\nlines"}',
        b'{"id": 9}',
        b"no json",
        b"[1]",
        b'{"text": ""}',
        b'{"text": "half \\ud800", "other": "\\ud800"}',
    ]
    file = write(tmp_path / "in.jsonl", b"\n".join(records) + b"\n")
    store, plan = planned([file], shard_lines=2, scores=True)
    made = [json.loads(line) for line in finish(store, plan).decode().splitlines()]
    assert len(made) == len(records)
    one = made[0]
    assert (one["id"], one["more"], one["score"]) == (7, {"a": [1.5, None]}, -1.0)
    assert one["translation"] == Numbering().translate(["one"])[0].text
    assert "failed" not in one
    assert [record.get("failed") for record in made[2:]] == ["no text", "no text", "no text", "blank", "invalid UTF-8"]
    assert made[2] == {"id": 9, "translation": None, "score": None, "failed": "no text"}
    assert [record.get("line") for record in made] == [None, None, None, "no json", "[1]", None, None]
    assert made[6]["translation"] == Numbering().translate(["half \ufffd"])[0].text
    assert made[6]["other"] == "\ud800"
    bad = write(tmp_path / "bad.jsonl", b'{"text": "a"}\n{"text": "\xff\xe9"}\n\n')
    store, plan = planned([bad], out="bad")
    _, invalid, blank = (json.loads(line) for line in finish(store, plan).decode().splitlines())
    assert invalid == {"line": '{"text": "\ufffd\ufffd"}', "translation": "", "failed": "invalid UTF-8"}
    assert blank == {"translation": None, "failed": "no text"}
    odd = write(tmp_path / "odd.jsonl", b'\xef\xbb\xbf {"x":1e400, "y":1.10,"text" : "a" } \r\n{}\n')
    store, plan = planned([odd], out="odd")
    as_written, empty = finish(store, plan).decode().splitlines()
    assert as_written.startswith('{"x":1e400, "y":1.10,"text" : "a", "translation": "')
    assert json.loads(empty) == {"translation": None, "failed": "no text"}
    store, plan = planned([file], out="dropped", failed="drop", num_hypotheses=2)
    kept = [json.loads(line) for line in finish(store, plan).decode().splitlines()]
    assert [record["id"] for record in kept] == [7, 8]
    assert [len(record["hypotheses"]) for record in kept] == [2, 2]
    with pytest.raises(
        DataError, match=r"no record of .* has a field 'body' \(present: 'id', 'more', 'more\.a', 'other', 'text'\)"
    ):
        planned([file], out="other", fields=("body",))


@pytest.mark.parametrize("name", ["merged.txt", "parts/mine.txt"])
def test_a_place_without_a_job_that_holds_what_it_would_write_over_is_refused(
    tmp_path: Path, planned: Planned, name: str
) -> None:
    file, mine = write(tmp_path / "in.txt", b"a\n"), tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=r"out holds .* and no job: choose another --out"):
        planned([file])
    assert mine.read_text() == "mine"
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [mine]
    (tmp_path / "again" / "unpacked").mkdir(parents=True)
    (tmp_path / "again" / "unpacked" / "0123.txt").write_text("what a runner left that was stopped")
    planned([file], out="again")


def test_fields_that_the_output_adds_are_not_in_the_input(tmp_path: Path, planned: Planned) -> None:
    file = write(tmp_path / "in.jsonl", b'{"text": "a", "id": 1, "failed": null}\n')
    with pytest.raises(DataError, match=r"in\.jsonl has a field 'failed' already, .*: rename it in the input$"):
        planned([file])
    with pytest.raises(DataError, match=r"has a field 'id' already, .*: choose another --into, or rename theirs$"):
        planned([file], into="id")
    # Beyond the records that are looked at beforehand, one of them ends no job.
    odd = b'{"text": "a", "score": 1}'
    store, plan = planned([write(file, b'{"text": "a"}\n' * 100 + odd + b"\n")], scores=True)
    last = json.loads(finish(store, plan).decode().splitlines()[-1])
    assert last == {"line": odd.decode(), "translation": None, "score": None, "failed": "field taken"}
    store, plan = planned([file], out="dropped", scores=True, failed="drop")
    assert len(finish(store, plan).splitlines()) == 100


@pytest.mark.parametrize("shard_lines", [3, 700, 5000])
def test_columns_keep_their_neighbours(tmp_path: Path, planned: Planned, shard_lines: int) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    number = 2500 if shard_lines > 3 else 20
    texts = [None if n % 9 == 4 else f"line {n}" for n in range(number)]
    table = pa.table({"n": list(range(number)), "text": texts})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=900)
    store, plan = planned([tmp_path / "in.parquet"], shard_lines=shard_lines, num_hypotheses=2)
    finish(store, plan)
    made = pq.read_table(store.place("merged.parquet"))
    assert made.select(["n", "text"]).equals(table)
    for text, said, failed in zip(texts, *(made[name].to_pylist() for name in ("translation", "failed")), strict=True):
        if text is None:
            assert (said, failed) == (None, "no text")
        else:
            assert (said, failed) == (Numbering().translate([text])[0].text, None)
    store, plan = planned([tmp_path / "in.parquet"], shard_lines=shard_lines, failed="drop", out="dropped")
    finish(store, plan)
    assert len(pq.read_table(store.place("merged.parquet"))) == sum(text is not None for text in texts)
    pq.write_table(pa.table({"text": pa.array([None, None], pa.string())}), tmp_path / "empty.parquet")
    store, plan = planned([tmp_path / "empty.parquet"], failed="drop", out="nothing")
    finish(store, plan)
    assert len(pq.read_table(store.place("merged.parquet"))) == 0


def test_rows_of_a_part_that_was_changed_are_not_merged(tmp_path: Path, planned: Planned) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "in.parquet")
    store, plan = planned([tmp_path / "in.parquet"])
    finish(store, plan)
    part = store.place(plan.part(plan.shards[0]))
    table = pq.read_table(part)
    place = table.column_names.index("translation")
    pq.write_table(table.set_column(place, "translation", pa.array(["x", "y"])), part)
    with pytest.raises(DataError, match="is not what its manifest says"):
        merge(store, plan)


def parquet(path: Path, *columns: tuple[str, list[Any], Any]) -> Path:
    """A Parquet file of columns by name, values and type."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    arrays = [pa.array(values, kind) for _, values, kind in columns]
    write_table(pa.Table.from_arrays(arrays, [name for name, _, _ in columns]), path)
    return path


def test_parquet_files_are_merged_where_that_loses_nothing(tmp_path: Path, planned: Planned) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    string, large, null, number = pa.string(), pa.large_string(), pa.null(), pa.int64()
    first = parquet(tmp_path / "1.parquet", ("text", ["a"], string), ("id", [1], number), ("by", [None], null))
    other = parquet(tmp_path / "2.parquet", ("id", [2], number), ("by", ["x"], string), ("text", ["b"], large))
    store, plan = planned([first, other])
    finish(store, plan)
    rows = pq.read_table(store.place("merged.parquet")).to_pylist()
    assert [list(row) for row in rows] == [["text", "id", "by", "translation", "failed"]] * 2
    assert [(row["text"], row["id"], row["by"]) for row in rows] == [("a", 1, None), ("b", 2, "x")]


def test_text_of_records_inside_records(tmp_path: Path, planned: Planned) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"pair": {"de": "a", "en": "b"}}, {"pair": None}, {"pair": {"de": "c", "en": "d"}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    store, plan = planned([tmp_path / "in.parquet"], fields=("pair.de",), out="columns")
    finish(store, plan)
    made = pq.read_table(store.place("merged.parquet")).to_pylist()
    assert [row["pair"] for row in made] == [row["pair"] for row in rows]
    assert [row["translation"] is None for row in made] == [False, True, False]
    lines = write(tmp_path / "in.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    store, plan = planned([lines], fields=("pair.de",), out="lines")
    finish(store, plan)
    written = [json.loads(line) for line in Path(store.place("merged.jsonl")).read_text().splitlines()]
    assert written == [{name: value for name, value in row.items() if name != "failed" or value} for row in made]
    with pytest.raises(DataError, match=r"no column 'de' \(present: 'pair\.de', 'pair\.en'\)"):
        planned([tmp_path / "in.parquet"], fields=("de",), out="none")


def test_columns_that_cannot_be_used_are_said_at_once(tmp_path: Path, planned: Planned) -> None:
    pa = pytest.importorskip("pyarrow")
    string, number = pa.string(), pa.int64()
    first = parquet(tmp_path / "1.parquet", ("text", ["a"], string), ("id", [1], number))
    words = parquet(tmp_path / "2.parquet", ("text", ["b"], string), ("id", ["2"], string))
    fewer = parquet(tmp_path / "3.parquet", ("text", ["c"], string))
    twice = parquet(tmp_path / "4.parquet", ("text", ["d"], string), ("text", ["e"], string))
    failed = parquet(tmp_path / "5.parquet", ("text", ["f"], string), ("failed", ["no"], string))
    score = {"work": "score"}
    for files, changes, sentence in (
        (
            [first, words],
            {},
            r"2\.parquet cannot be merged, since their columns 'id' hold int64 and string: give them the same",
        ),
        ([first, fewer], {}, r"3\.parquet cannot be merged, since only one has a column 'id': give them the same"),
        ([fewer, first], {}, r"1\.parquet cannot be merged, since only one has a column 'id': give them the same"),
        ([twice], {}, r"4\.parquet has two columns 'text': rename one$"),
        ([failed], {}, r"5\.parquet has a field 'failed' already, which the output adds: rename it in the input$"),
        ([first], {"into": "id"}, "has a field 'id' already, .*: choose another --into, or rename theirs$"),
        ([first], {"fields": ("body",)}, r"has no column 'body' \(present: 'text', 'id'\): give --field$"),
        ([first], {"fields": ("id",)}, "the column 'id' of .* holds no text but int64: give another --field$"),
        ([first], {"fields": ("text", "id"), **score}, "holds no text but int64: give another --tgt-field$"),
        ([first], {"fields": ("src", "text"), **score}, "has no column 'src' .*: give --src-field$"),
    ):
        with pytest.raises(DataError, match=sentence):
            planned(files, **changes)
        assert not (tmp_path / "out" / "plan.json").exists()
    finish(*planned([failed], work="score", fields=("text", "failed")))


def test_pairs_and_what_failed(tmp_path: Path, planned: Planned) -> None:
    file = write(tmp_path / "in.txt", b"a\tb\n\n\xff\nc\n")
    store, plan = planned([file], pairs=True, failed="drop")
    said = [found.text for found in Numbering().translate(["a\tb", "c"])]
    assert finish(store, plan).decode() == f"a b\t{said[0]}\nc\t{said[1]}\n"
    found = status(store, plan)
    assert (found.failed, found.lines_done) == ({"blank": 1, "invalid UTF-8": 1}, 4)


def test_a_shard_is_done_if_its_manifest_is_there_and_true(tmp_path: Path, planned: Planned) -> None:
    store, plan = planned([write(tmp_path / "in.txt", b"".join(b"%d\n" % n for n in range(10)))], shard_lines=3)
    wanted = finish(store, plan)
    parts = tmp_path / "out" / "parts"
    (parts / "000001.txt").write_bytes(b"half")
    (parts / "000002.json").unlink()
    changed = bytearray((parts / "000003.txt").read_bytes())
    changed[0] ^= 1
    (parts / "000003.txt").write_bytes(changed)
    (parts / ".000001.txt.1234.tmp").write_bytes(b"left by one that was killed")
    with pytest.raises(DataError, match=r"shard 2 of .* is not done: run the job's command again"):
        merge(store, plan)
    begun: list[int] = []
    work = LineTranslator(plan.job, Numbering())

    def counted(records: Any, number: int) -> Any:
        begun.append(number)
        return work(records, number)

    assert run_here(store, plan, plan.shards, counted, on_progress=lambda _: None, stop=threading.Event())
    assert begun == [3, 6, 9], "the first was true"
    assert Path(store.place(merge(store, plan))).read_bytes() == wanted
    assert sorted(path.name for path in parts.iterdir()) == sorted(
        f"00000{n}.{kind}" for n in range(4) for kind in ("txt", "json")
    )
    (parts / "000001.txt").write_bytes(b"half")
    with pytest.raises(DataError, match="is not what its manifest says"):
        merge(store, plan)
    (parts / "000001.txt").unlink()
    with pytest.raises(DataError, match="is missing: run the job's command again"):
        merge(store, plan)
    assert (tmp_path / "out" / "merged.txt").read_bytes() == wanted, "a merge that fails changes nothing"


def test_another_job_is_refused(tmp_path: Path, planned: Planned) -> None:
    file = write(tmp_path / "in.txt", b"a\nb\n")
    _, plan = planned([file])
    assert planned([file])[1] == plan
    os.utime(file, ns=(0, 0))
    moved = write(tmp_path / "moved.txt", b"a\nb\n")
    assert planned([file])[1].identity == planned([moved])[1].identity == plan.identity, "bytes count, not names"
    for changes, named in (
        ({"shard_lines": 1}, "settings of shard_lines"),
        ({"scores": True}, "settings of scores"),
        ({"search": {"beam_size": 2}}, "settings of the search"),
        ({"models": (dataclasses.replace(plan.job.models[0], sha256="1" * 64),)}, "the model or its engine"),
    ):
        with pytest.raises(ConfigError, match=rf"holds another job \({named} differ\): choose another --out"):
            planned([file], **changes)
    write(file, b"a\nc\n")
    with pytest.raises(ConfigError, match=r"holds another job \(the inputs differ\): choose"):
        planned([file])


def test_a_model_may_lie_elsewhere_when_a_job_goes_on(tmp_path: Path, planned: Planned) -> None:
    file = write(tmp_path / "in.txt", b"a\nb\n")
    _, plan = planned([file])
    moved = dataclasses.replace(plan.job.models[0], folder="elsewhere/model")
    store, again = planned([file], models=(moved,))
    assert again.identity == plan.identity
    assert read_plan(store).job.models == (moved,)


def test_inputs_that_change_while_a_job_runs_are_refused(tmp_path: Path, planned: Planned) -> None:
    file = write(tmp_path / "in.txt", b"a\nb\nc\n")
    store, plan = planned([file], shard_lines=1)
    write(file, b"a\nx\nc\n")
    os.utime(file, ns=(1, 1))
    with pytest.raises(DataError, match=r"in\.txt has changed since the job was started"):
        finish(store, plan)
    plan_file = tmp_path / "out" / "plan.json"
    plan_file.write_text(plan_file.read_text().replace('"lines": 3', '"lines": 2').replace("keep", "drop"))
    with pytest.raises(DataError, match="has changed since it was written"):
        make_plan(store, plan.job, [])


def test_a_shard_with_fewer_lines_than_were_counted_is_not_done(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plan = planned([write(tmp_path / "in.txt", b"a\nb\nc\n")])
    monkeypatch.setattr(Plan, "windows", lambda *_: iter([Window([Record(("a",))] * 2)]))
    with pytest.raises(DataError, match=r"in\.txt has changed since the job was started"):
        run_shard(store, plan, plan.shards[0], LineTranslator(plan.job, Numbering()))
    assert store.names("parts") == []


@pytest.mark.usefixtures("locks_of_windows")
def test_locks_that_go_when_they_are_let_go(tmp_path: Path, planned: Planned) -> None:
    store, plan = planned([write(tmp_path / "in.txt.gz", gzip.compress(b"a\nb\nc\n"))])
    assert run_shard(store, plan, plan.shards[0], LineTranslator(plan.job, Numbering())) is Ended.DONE
    remove_unpacked(store)
    assert [*store.names("locks"), *store.names("unpacked")] == []


def test_a_full_disk_leaves_nothing_half(tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plan = planned([write(tmp_path / "in.txt", b"".join(b"%d\n" % n for n in range(10)))], shard_lines=3)
    writers, room = [], 2
    real = shard_module.part_writer

    def full(path: Path, job: Any) -> Any:
        writers.append(path)
        if len(writers) > room:
            path.write_bytes(b"half a par")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, job)

    monkeypatch.setattr(shard_module, "part_writer", full)
    with pytest.raises(WriteError, match=r"No space left on device.*: make room"):
        finish(store, plan)
    assert sorted(store.names("parts")) == ["000000.json", "000000.txt", "000001.json", "000001.txt"]
    monkeypatch.undo()
    assert finish(store, plan) == translated(b"".join(b"%d\n" % n for n in range(10)))


def test_what_another_process_works_on_is_looked_at_once_in_a_while(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plan = planned([write(tmp_path / "in.txt", b"a\nb\n")], shard_lines=1)
    work, pauses = LineTranslator(plan.job, Numbering()), list[float]()
    with contextlib.ExitStack() as other:
        assert other.enter_context(store.claimed("locks/000000"))

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                other.close()

        monkeypatch.setattr(
            shard_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time=time.time)
        )
        assert run_here(store, plan, plan.shards, work, on_progress=lambda _: None, stop=threading.Event())
    assert pauses == [shard_module.BUSY_PAUSE] * 3


def test_two_runners_share_the_work(tmp_path: Path, planned: Planned) -> None:
    data = b"".join(b"%d\n" % n for n in range(60))
    store, plan = planned([write(tmp_path / "in.txt", data)], shard_lines=2)
    begun: list[int] = []
    work = LineTranslator(plan.job, Numbering())

    def slowly(records: Any, number: int) -> Any:
        begun.append(number)
        time.sleep(0.005)
        return work(records, number)

    def run() -> None:
        ended.append(run_here(store, plan, plan.shards, slowly, on_progress=lambda _: None, stop=threading.Event()))

    ended: list[bool] = []
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [True, True]
    assert sorted(begun) == list(range(0, 60, 2)), "none was worked on twice"
    assert Path(store.place(merge(store, plan))).read_bytes() == translated(data)


def test_a_stop_is_heeded_after_a_window(tmp_path: Path, planned: Planned) -> None:
    store, plan = planned([write(tmp_path / "in.txt", b"a\n" * 5000)])
    windows: list[int] = []
    ended = run_shard(
        store,
        plan,
        plan.shards[0],
        LineTranslator(plan.job, Numbering()),
        on_window=lambda lines, _tokens: windows.append(lines),
        stop=lambda: len(windows) == 2,
    )
    assert (ended, windows) == (Ended.STOPPED, [1024, 1024])
    assert store.names("parts") == []
    work, last = LineTranslator(plan.job, Numbering()), lambda: len(windows) == 7
    again = run_shard(store, plan, plan.shards[0], work, on_window=lambda lines, _: windows.append(lines), stop=last)
    assert (again, sum(windows[2:])) == (Ended.DONE, 5000), "after the last window there is nothing to stop"


def test_a_rate_is_that_of_lately(tmp_path: Path, planned: Planned) -> None:
    """From the begin of the first shard of the last quarter of an hour to the end of the last one."""
    store, plan = planned([write(tmp_path / "in.txt", b"a\n" * 13)], shard_lines=3)
    assert status(store, plan).seconds_left is None

    def manifest(number: int, finished: float, of: Plan | None = None, called: int | None = None) -> None:
        shard = plan.shards[number]
        counts = (shard.lines, shard.lines, 7, {"blank": 1}, 2)
        found = Manifest(plan.identity, number if called is None else called, *counts, 10.0, finished, 0, "")
        found = found if of is None else dataclasses.replace(found, identity=of.identity)
        store.write(plan.manifest(shard), json.dumps(dataclasses.asdict(found)).encode())

    for number, finished in enumerate((1000.0, 5005.0, 5000.0)):
        manifest(number, finished)
    found = status(store, plan)
    assert (found.rate, found.seconds_left, found.latest) == (6 / 15, (13 - 9) / (6 / 15), 5005.0)
    assert (found.shards_done, found.lines_done, found.tokens, found.too_long) == (3, 9, 21, 6)
    assert (found.seconds, found.failed) == (30.0, {"blank": 3})
    manifest(3, 6000.0, called=2)
    manifest(4, 6000.0, of=planned([tmp_path / "in.txt"], out="other", scores=True)[1])
    assert status(store, plan) == found, "a manifest of another shard or another job is none"
    store.write(plan.manifest(plan.shards[3]), b"[]")
    store.write(plan.manifest(plan.shards[4]), b'{"identity": "half')
    assert status(store, plan) == found


KILLED = """
import sys, threading, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from repose.bulk.local import run_here
from repose.bulk.plan import read_plan
from repose.bulk.storage import Store
from repose.bulk.line_work import LineTranslator
from tests.bulk.conftest import Numbering
store = Store.at(sys.argv[1])
plan = read_plan(store)
work = LineTranslator(plan.job, Numbering())
def slowly(records, number):
    sys.stdin.readline()
    print("begun", flush=True)
    time.sleep(0.004)
    return work(records, number)
run_here(store, plan, plan.shards, slowly, on_progress=lambda _: None, stop=threading.Event())
"""


def test_kills_at_random_moments_change_nothing(tmp_path: Path, planned: Planned) -> None:
    data = b"".join(b"%d\n" % n for n in range(300))
    store, plan = planned([write(tmp_path / "in.txt", data)], shard_lines=3)
    rng, done = random.Random(7), [0]
    root = str(Path(__file__).parents[2])
    for _ in range(3):
        command, windows = [sys.executable, "-c", KILLED, store.where, root], rng.randint(2, 30)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n" * windows)
            process.stdin.flush()
            for _ in range(windows):
                process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.02))
            process.kill()
        done.append(status(store, plan).shards_done)
    assert done == sorted(done)
    assert 0 < done[-1] < len(plan.shards), "they were killed on the way"
    assert finish(store, plan) == translated(data)
    assert not list((tmp_path / "out" / "parts").glob(".*"))


def test_empty_files_have_no_shards(tmp_path: Path) -> None:
    contents = [b"a\n", b"", b"b"]
    files = [write(tmp_path / f"{n}.txt", content) for n, content in enumerate(contents)]
    store = Store.at(str(tmp_path / "out"))
    plan = make_plan(store, job_of(files), [(str(file),) for file in files])
    assert len(plan.shards) == 2
    assert finish(store, plan) == translated(b"a\nb")
    with pytest.raises(DataError, match=r"there is no line in .*1\.txt: check"):
        plan_of(tmp_path / "other", [files[1]])


def test_an_object_store(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    data = b"".join(b"%d\n" % n for n in range(10))
    memory.pipe_file("/bulk-test/in.txt", data)
    memory.pipe_file("/bulk-test/packed.txt.gz", gzip.compress(b"ten\neleven"))
    store = Store.at("memory://bulk-test/out")
    job = job_of([tmp_path / "x.txt"], shard_lines=4)
    inputs = [("memory://bulk-test/in.txt",), ("memory://bulk-test/packed.txt.gz",)]
    plan = make_plan(store, job, inputs)
    work = LineTranslator(job, Numbering())
    assert run_here(store, plan, plan.shards, work, on_progress=lambda _: None, stop=threading.Event())
    assert status(store, plan).shards_done == len(plan.shards) == 4
    assert make_plan(store, job, inputs) == plan
    merge(store, plan)
    assert memory.cat_file("/bulk-test/out/merged.txt") == translated(data + b"ten\neleven\n")
    memory.rm("/bulk-test", recursive=True)
    with pytest.raises(DataError, match="there is no file memory://bulk-test"):
        make_plan(Store.at("memory://bulk-test/other"), job, inputs)
    with pytest.raises(ConfigError, match=r"nowhere://x cannot be opened"):
        Store.at("nowhere://x")


def scored(folder: Path, scores: list[str]) -> tuple[Store, Plan]:
    """A corpus of pairs, "a0" and "b0", "a1" and "b1" and so on, with these scores."""
    sides = {name: "".join(f"{name}{n}\n" for n in range(len(scores))).encode() for name in ("a", "b")}
    files = tuple(str(write(folder / name, lines)) for name, lines in sides.items())
    store, job = Store.at(str(folder / "out")), Job(work="score", models=(), format="text", search={})
    plan = make_plan(store, job, [files])
    store.write(job.merged, "".join(f"{score}\n" for score in scores).encode())
    return store, plan


def test_small_scores_are_told_apart(tmp_path: Path) -> None:
    """A pair without a reason may be kept, however small its score; one with a reason never is."""
    scores = ["3e-08\t17\tnan\t", "0\tnan\tnan\tcopied", "2e-07\t15\tnan\t", "0\t900\tnan\t"]
    store, plan = scored(tmp_path, scores)
    for keep, kept in ((1, ["a2"]), (2, ["a0", "a2"]), (9, ["a0", "a2", "a3"])):
        found = filter_pairs(store, plan, keep=keep, threshold=None)
        assert (tmp_path / "out" / "kept.src").read_text().split() == kept
        assert found.dropped == {"copied": 1}
    filter_pairs(store, plan, keep=None, threshold=1e-7)
    assert (tmp_path / "out" / "kept.tgt").read_text().split() == ["b2"]
    theirs = "no pair is left, with reasons against 1 (copied: 1): give another --threshold, and look at the scores"
    with pytest.raises(DataError, match=f"^{re.escape(theirs)}$"):
        filter_pairs(store, plan, keep=None, threshold=0.5)
    store.write(plan.job.merged, b"0\tnan\tnan\tcopied\n" * 3 + b"0\tnan\tnan\ttoo long\n")
    theirs = "no pair is left, since each has a reason against it (copied: 3, too long: 1): look at the corpus"
    for threshold in (None, 0.5):
        with pytest.raises(DataError, match=f"^{re.escape(theirs)}$"):
            filter_pairs(store, plan, keep=5, threshold=threshold)


@pytest.mark.parametrize(
    ("keep", "threshold", "kept"),
    [
        (2, None, ["a0", "a2"]),
        (3, None, ["a0", "a2", "a3"]),
        (None, 0.5, ["a0", "a2", "a3", "a4"]),
        (3, 0.5, ["a0", "a2", "a3"]),
    ],
)
def test_of_equal_scores_the_first_are_kept_and_one_of_just_the_threshold_is(
    tmp_path: Path, keep: int | None, threshold: float | None, kept: list[str]
) -> None:
    scores = ("0.5", "0.25", "0.75", "0.5", "0.5", "0.125")
    store, plan = scored(tmp_path, [f"{score}\t1\tnan\t" for score in scores])
    found = filter_pairs(store, plan, keep=keep, threshold=threshold)
    assert (tmp_path / "out" / "kept.src").read_text().split() == kept
    assert (found.kept, found.lowest) == (len(kept), 0.5)


def test_pairs_that_are_kept_are_one_line_each(tmp_path: Path) -> None:
    records = [{"src": f"a{n}\nb\u2028c", "tgt": f"d{n}"} for n in range(2)]
    file = write(tmp_path / "in.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode())
    store, job = Store.at(str(tmp_path / "out")), job_of([file], work="score", fields=("src", "tgt"))
    plan = make_plan(store, job, [(str(file),)])
    store.write(job.merged, b"0.5\t1\tnan\t\n" * 2)
    filter_pairs(store, plan, keep=2, threshold=None)
    assert (tmp_path / "out" / "kept.src").read_text() == "a0 b c\na1 b c\n"
    assert (tmp_path / "out" / "kept.tgt").read_text() == "d0\nd1\n"


@pytest.mark.parametrize("backward", [None, 1.0, math.inf])
def test_a_pair_that_a_model_holds_for_impossible_scores_0(backward: float | None) -> None:
    assert adequacy(math.inf, backward) == 0.0
    assert backward is None or adequacy(backward, math.inf) == 0.0


def test_targets_as_long_as_the_model_reads_are_scored() -> None:
    """END is a label beside them, START is not."""

    class Short(Numbering):
        max_length = 8
        tgt_tokenizer = Numbering.src_tokenizer

    scorer = PairScorer(Job(work="score", models=(), format="text"), [Short()])  # type: ignore[list-item]
    assert [scorer._problem(Record(("abc", "x" * length))) for length in (7, 8)] == [None, "too long"]


GERMAN, ENGLISH = "Das ist ein Haus und es ist ziemlich gross.", "This is a house, and it is rather large indeed."


@pytest.mark.parametrize(
    ("src", "tgt", "problem"),
    [
        (GERMAN, ENGLISH, None),
        ("Bonn ", "BONN", "copied"),
        ("aus Bonn kommt Herr Meier", "Mister Meier aus Bonn kommt", "copied"),
        ("aus Bonn kommt er", "Meier aus Bonn kommt", None),  # three of four words
        ("Meier aus Bonn", "Bonn aus Meier", None),  # names alone
        ("x" * 40, "y" * 10, None),
        ("x" * 41, "y" * 10, "unequal lengths"),
        ("x" * 10, "y" * 41, "unequal lengths"),
        ("x" * 29, "y", None),  # short
        ("犬" * 20, "y" * 10, None),  # as long as 40 letters
        ("y" * 10, "犬" * 21, "unequal lengths"),
        ("y" * 40, "犬" * 5, None),
        ("Дом", "a house", "another script"),
        ("ein Haus", "дом", "another script"),
        (ENGLISH, "There it stands, and nobody lives in it.", "another language"),
        (GERMAN, "Das ist der Hund, und er ist noch sehr klein.", "another language"),
        ("ein altes Haus", "über die Straße", None),  # too short to tell
    ],
)
def test_why_a_pair_is_none(src: str, tgt: str, problem: str | None) -> None:
    class Directed(Numbering):
        tgt_tokenizer = Numbering.src_tokenizer

    models = [Directed(), Directed()]
    for model, languages in zip(models, (("de", "en"), ("en", "de")), strict=True):
        named = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        model.config = {**named, "src_scripts": ["Latin", "Han"]}  # type: ignore[misc]
    for checks in (True, False):
        job = Job(work="score", models=(), format="text", checks=checks)
        scorer = PairScorer(job, models)  # type: ignore[arg-type]
        assert scorer._problem(Record((src, tgt))) == (problem if checks else None)


@pytest.mark.parametrize("name", ["merged.txt", "link.txt"])
def test_a_result_is_not_written_over_an_input(tmp_path: Path, planned: Planned, name: str) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "merged.txt", b"one\n")
    if name == "link.txt":
        (tmp_path / name).symlink_to(tmp_path / "out" / "merged.txt")
    with pytest.raises(ConfigError, match="is an input, and the job would write its result there"):
        planned([tmp_path / name if name == "link.txt" else tmp_path / "out" / name])


def test_names_that_are_not_utf_8(tmp_path: Path, planned: Planned) -> None:
    try:
        file = write(tmp_path / "caf\udce9.txt", b"one\ntwo\n")
    except OSError:
        pytest.skip("this file system takes no such names")
    store, plan = planned([file])
    finish(store, plan)
    assert make_plan(store, plan.job, [(str(file),)]) == plan
