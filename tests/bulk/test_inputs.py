"""Reading input files: TSV with and without column names, and files that cannot be unpacked."""

import errno
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repose.bulk import inputs
from repose.bulk.jobs import scoring_job, translation_job
from repose.bulk.plan import Plan
from repose.bulk.shards import remove_unpacked
from repose.bulk.storage import Store
from repose.data.readers import PairReader
from repose.system.errors import ConfigError, DataError

Planned = Callable[..., tuple[Store, Plan]]


def pairs_of(store: Store, plan: Plan) -> list[tuple[str, ...]]:
    """What shards read, in their order."""
    read = (plan.windows(store, shard) for shard in plan.shards)
    return [record.texts for shard in read for window in shard for record in window.records]


PAIRS = [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("e", "E")]


@pytest.mark.parametrize("shard_lines", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("first", "line", "fields"),
    [
        ("", "{0}\t{1}", ("src", "tgt")),
        ("src\ttgt\n", "{0}\t{1}", ("src", "tgt")),
        ("\ufeffid\tsrc\ttgt\r\n", "7\t{0}\t{1}", ("src", "tgt")),
        ("en\t\tpt\n", "{1}\tmore\t{0}", ("pt", "en")),
    ],
)
def test_tsv_is_read_as_for_training(
    tmp_path: Path, planned: Planned, first: str, line: str, fields: tuple[str, str], shard_lines: int
) -> None:
    file = tmp_path / "in.tsv"
    text = first + "\n".join(line.format(*pair) for pair in PAIRS)
    for end in ("", "\n"):
        file.write_bytes((text + end).encode())
        reader = PairReader([file], src_field=fields[0], tgt_field=fields[1])
        store, plan = planned([file], out=f"out{end!r}", work="score", fields=fields, shard_lines=shard_lines)
        assert pairs_of(store, plan) == list(reader) == PAIRS
        assert [shard.line for shard in plan.shards] == list(range(0, len(PAIRS), shard_lines))
    file.with_suffix(".tsv.gz").write_bytes(gzip.compress(file.read_bytes()))
    packed = planned([file.with_suffix(".tsv.gz")], out="packed", work="score", fields=fields, shard_lines=shard_lines)
    assert pairs_of(*packed) == PAIRS


def test_tsv_may_be_the_unicode_text_of_excel(tmp_path: Path, planned: Planned) -> None:
    file = tmp_path / "in.tsv"
    file.write_bytes("tgt\tsrc\r\nA\tação\r\nB\tb\r\n".encode("utf-16"))
    store, plan = planned([file], work="score", fields=("src", "tgt"))
    assert pairs_of(store, plan) == [("ação", "A"), ("b", "B")]


def test_columns_of_tsv_that_are_not_there_are_said_at_once(tmp_path: Path, planned: Planned) -> None:
    file = tmp_path / "in.tsv"
    for text, fields, sentence in (
        (
            "src\ttgt\na\tA\n",
            ("foo", "tgt"),
            r"in\.tsv, line 1: there is no field 'foo' \(present: 'src', 'tgt'\)",
        ),
        ("a\tA\tx\n", ("1", "4"), r"in\.tsv, line 1: 3 columns, of which 1 and 4 should be two"),
        ("a\tA\n", ("src", "foo"), r"in\.tsv, line 1: there is no field 'foo' \(present: 'a', 'A'\)"),
        ("DE\tfoo\n", ("de", "en"), r"in\.tsv, line 1: there is no field 'en' \(present: 'DE', 'foo'\)"),
        ("src\tenglish\na\tA\n", ("src", "tgt"), r"in\.tsv, line 1: there is no field 'tgt'"),
        (
            "1\ta\tA\n2\tB\n",
            ("src", "tgt"),
            r"in\.tsv, line 1: 3 columns instead of 2 \(1: '1', 2: 'a', 3: 'A'\): name both",
        ),
        ("a\nb\n", ("src", "tgt"), r"in\.tsv has 1 column instead of two: give lines"),
        ("src\ttgt\n", ("src", "tgt"), r"there is no line in .*in\.tsv: check"),
        ("src\ttgt", ("src", "tgt"), r"there is no line in .*in\.tsv: check"),
        ("", ("src", "tgt"), r"there is no line in .*in\.tsv: check"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=sentence):
            planned([file], work="score", fields=fields)
    file.write_text("a\tA\nb\n\nc\tC\tmore\nd\tD\n")
    store, plan = planned([file], work="score", fields=("src", "tgt"))
    assert pairs_of(store, plan) == [("a", "A"), ("", ""), ("", ""), ("", ""), ("d", "D")]
    file.write_text("x\tA\ta\ny\tB\tb\n")
    store, plan = planned([file], work="score", fields=("3", "2"), out="numbered")
    assert pairs_of(store, plan) == [("a", "A"), ("b", "B")]


def test_a_damaged_file_is_not_taken_for_a_full_disk(tmp_path: Path, planned: Planned) -> None:
    good = gzip.compress(b"one\ntwo\n")
    flipped = bytearray(good)
    flipped[-8] ^= 1  # in the CRC
    for number, data in enumerate((b"no gzip at all", bytes(flipped), good[:-9], good + b"tail")):
        file = tmp_path / f"{number}.txt.gz"
        file.write_bytes(data)
        with pytest.raises(DataError, match=rf"{number}\.txt\.gz is damaged or not what its name says \(.*\): get or"):
            planned([file])
        assert not list((tmp_path / "out" / "unpacked").iterdir())


def test_what_another_runner_removed_is_unpacked_again_where_its_file_is_as_before(
    tmp_path: Path, planned: Planned
) -> None:
    file = tmp_path / "in.txt.gz"
    file.write_bytes(gzip.compress(b"a\nb\nc\n"))
    store, plan = planned([file], shard_lines=2)
    for _ in range(2):
        assert pairs_of(store, plan) == [("a",), ("b",), ("c",)]
        remove_unpacked(store)
        assert not store.names("unpacked")
        assert not store.names("locks")
    file.write_bytes(gzip.compress(b"other\n" * 3))
    with pytest.raises(DataError, match=r"in\.txt\.gz has changed since the job was started"):
        pairs_of(store, plan)


def test_rows_beyond_a_shard_are_not_decoded(tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    file, read = tmp_path / "in.parquet", list[int]()
    pq.write_table(pa.table({"text": [str(number) for number in range(40)]}), file)
    monkeypatch.setattr(inputs, "WINDOW", 10)
    batches = pq.ParquetFile.iter_batches

    def counted(*arguments: Any, **how: Any) -> Iterator[Any]:
        for batch in batches(*arguments, **how):
            read.append(len(batch))
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    store, plan = planned([file], shard_lines=20)
    assert pairs_of(store, plan) == [(str(number),) for number in range(40)]
    assert read == [10, 10] + [10] * 4  # the first shard's rows, and those up to the end of the second


def test_an_input_that_cannot_be_read_is_not_taken_for_a_full_disk(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_file: object) -> Iterator[bytes]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
        yield

    file = tmp_path / "in.txt.gz"
    file.write_bytes(gzip.compress(b"one\n"))
    with monkeypatch.context() as patched:
        patched.setattr(inputs, "blocks", lambda file: failing(file) if isinstance(file, gzip.GzipFile) else [b"x"])
        with pytest.raises(DataError, match=r"in\.txt\.gz cannot be read \(Input/output error\): check the disk"):
            planned([file])


def test_a_file_that_is_there_but_out_of_reach_is_not_called_missing(tmp_path: Path, planned: Planned) -> None:
    loop = tmp_path / "in.txt"
    loop.symlink_to(loop)
    with pytest.raises(DataError, match=r"in\.txt cannot be read \(.+\): check the path and its rights"):
        planned([loop])


@pytest.mark.parametrize("form", [None, "text"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("a.txt.bz2", r"^a\.txt\.bz2 is a \.bz2 file, which cannot be read: unpack it, or pack it as \.gz or \.xz$"),
        ("s3://bucket/a.jsonl.ZST", r"a\.jsonl\.ZST is a \.zst file"),
        ("texts.tar.gz", r"texts\.tar\.gz is a \.tar file"),
        ("a.parquet.gz", r"^a\.parquet\.gz is a packed Parquet file, which cannot be read: unpack it"),
    ],
)
def test_what_is_packed_in_other_ways_is_no_text(name: str, sentence: str, form: str | None) -> None:
    how: dict[str, Any] = {"load": {}, "shard_lines": None}
    model = Path("read later")
    with pytest.raises(DataError, match=sentence):
        translation_job(model, ["a.txt", name], form=form, field="text", search={}, output={}, **how)
    with pytest.raises(DataError, match=sentence):
        scoring_job(model, None, [name], fields=("src", "tgt"), checks=True, **how)


def test_fields_of_text_are_refused() -> None:
    how: dict[str, Any] = {"load": {}, "shard_lines": None}
    model, output = Path("read later"), {"failed": "keep", "pairs": False, "num_hypotheses": 1, "into": "translation"}
    for field, into in (("other", "translation"), ("text", "other")):
        with pytest.raises(ConfigError, match="--field and --into are for JSONL and Parquet"):
            translation_job(model, ["a.txt"], form=None, field=field, search={}, output={**output, "into": into}, **how)
    with pytest.raises(ConfigError, match="--src-field and --tgt-field are for one file"):
        scoring_job(model, None, ["a.txt", "b.txt"], fields=("a", "tgt"), checks=True, **how)
