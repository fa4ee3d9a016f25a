"""Prepared datasets: what is stored, and what remains after an error."""

import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repose.data import prepare as prepare_module
from repose.data.columns import ColumnsWriter
from repose.data.dataset import PairDataset, PreparedCounts
from repose.data.prepare import LengthLimits, prepare
from repose.data.readers import PairReader
from repose.data.tokenizer import Tokenizer
from repose.system.errors import ConfigError, DataError, WriteError

START, END = 2, 3
FILES = ("meta.json", "src.ids", "src.offsets", "tgt.ids", "tgt.offsets")


@dataclass
class Letters:
    """A tokenizer for tests: a letter is its number in the alphabet + 3 (a = 4), anything else is [UNK]."""

    vocab_size: int = 30

    def encode_batch(self, texts):
        return [[START, *(ord(c) - 93 if "a" <= c <= "z" else 1 for c in text if c != "-"), END] for text in texts]


@pytest.fixture
def build(tmp_path):
    """Prepares pairs with small limits; what is named replaces a setting."""

    def call(pairs, folder="d", src=None, tgt=None, max_src_tokens=8, max_tgt_tokens=8, long_pairs="drop", workers=1):
        limits = LengthLimits(max_src_tokens, max_tgt_tokens, long_pairs)
        return prepare(pairs, (src or Letters(), tgt or Letters()), tmp_path / folder, limits, workers=workers)

    return call


def stored(folder: Path) -> list[tuple[list[int], list[int], list[int]]]:
    """(source, decoder input, labels) of each pair, from batches of one."""
    dataset = PairDataset.open(folder)
    batches = [dataset.batch(np.array([index])) for index in range(len(dataset))]
    return [tuple(part[0].tolist() for part in batch) for batch in batches]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def leftovers(folder: Path) -> list[str]:
    """What lies around beside prepared folders and locks."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".") and not path.name.endswith(".lock")]


# --- what is stored


def test_a_pair_is_source_decoder_input_and_labels(build, tmp_path):
    build([("ab", "c"), ("d", "efg")])
    assert stored(tmp_path / "d") == [
        ([START, 4, 5, END], [START, 6], [6, END]),
        ([START, 7, END], [START, 8, 9, 10], [8, 9, 10, END]),
    ]
    dataset = PairDataset.open(tmp_path / "d")
    assert len(dataset) == 2
    assert dataset.src_lengths.tolist() == [4, 3]
    assert dataset.tgt_lengths.tolist() == [2, 4]
    batch = dataset.batch(np.array([1, 0]))
    assert batch.src.tolist() == [[START, 7, END, 0], [START, 4, 5, END]]
    assert batch.tgt.tolist() == [[START, 8, 9, 10], [START, 6, 0, 0]]
    assert batch.labels.tolist() == [[8, 9, 10, END], [6, END, 0, 0]]
    assert {part.dtype for part in batch} == {np.dtype(np.int64)}
    assert [part.shape for part in dataset.batch(np.array([], dtype=np.int64))] == [(0, 0)] * 3


sentence = st.text("abcxyz", min_size=1, max_size=12)


@given(
    st.lists(st.tuples(sentence, sentence), min_size=1, max_size=20),
    st.integers(2, 10),
    st.integers(1, 10),
    st.sampled_from(["drop", "truncate"]),
    st.sampled_from([30, 1 << 16, (1 << 16) + 1]),
    st.data(),
)
@settings(max_examples=60)
def test_stored_is_what_the_tokenizers_say(
    tmp_path_factory, pairs, max_src_tokens, max_tgt_tokens, long_pairs, vocab_size, data
):
    """Against a plain transcription of the length rule."""
    folder = tmp_path_factory.mktemp("prepared") / "d"
    letters = Letters(vocab_size)
    expected = []
    for pair in pairs:
        src, tgt = letters.encode_batch(pair)
        if long_pairs == "truncate" or (len(src) <= max_src_tokens and len(tgt) <= max_tgt_tokens + 1):
            tgt = tgt[: max_tgt_tokens + 1]
            expected.append((src[:max_src_tokens], tgt[:-1], tgt[1:]))
    limits = LengthLimits(max_src_tokens, max_tgt_tokens, long_pairs)
    if not expected:
        with pytest.raises(DataError, match="none of the"):
            prepare(pairs, (letters, letters), folder, limits, workers=1)
        return
    prepare(pairs, (letters, letters), folder, limits, workers=1)
    assert stored(folder) == expected
    dataset = PairDataset.open(folder)
    assert dataset.src_lengths.tolist() == [len(src) for src, _, _ in expected]
    assert dataset.tgt_lengths.tolist() == [len(labels) for _, _, labels in expected]
    assert dataset.counts.src_tokens == dataset.src_lengths.sum()
    assert dataset.counts.tgt_tokens == dataset.tgt_lengths.sum()
    indices = np.array(data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=8)), dtype=np.int64)
    for number, part in enumerate(dataset.batch(indices)):
        rows = [expected[index][number] for index in indices]
        longest = max(map(len, rows), default=0)
        assert part.tolist() == [row + [0] * (longest - len(row)) for row in rows]


def test_a_long_source_loses_its_end_and_a_long_target_its_last_label(build, tmp_path):
    report = build([("abcdef", "abcdef"), ("ab", "abcd")], max_src_tokens=4, max_tgt_tokens=4, long_pairs="truncate")
    assert stored(tmp_path / "d") == [
        ([START, 4, 5, 6], [START, 4, 5, 6], [4, 5, 6, 7]),
        ([START, 4, 5, END], [START, 4, 5, 6], [4, 5, 6, 7]),
    ]
    assert report.truncated == {"source longer than 4 tokens": 1, "target longer than 4 tokens": 2}


@pytest.mark.parametrize("long_pairs", ["drop", "truncate"])
def test_a_pair_of_exactly_the_limits_is_whole(build, tmp_path, long_pairs):
    report = build([("ab", "abc")], max_src_tokens=4, max_tgt_tokens=4, long_pairs=long_pairs)
    assert stored(tmp_path / "d") == [([START, 4, 5, END], [START, 4, 5, 6], [4, 5, 6, END])]
    assert report.truncated == report.dropped == {}


def test_everything_left_out_is_counted(build, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "_CHUNK", 2)
    pairs = [
        ("ab", "c?"),
        ("-", "b"),
        ("a", "--"),
        ("abcdefghi", "a"),
        ("a", "abcdefghi"),
        ("abcdefghi",) * 2,
        ("?!", "b"),
    ]
    expected = PreparedCounts(
        read=7,
        kept=2,
        dropped={
            "source longer than 8 tokens": 2,
            "source without tokens": 1,
            "target longer than 8 tokens": 1,
            "target without tokens": 1,
        },
        truncated={},
        src_tokens=8,
        tgt_tokens=5,
        src_unknown=2,
        tgt_unknown=1,
    )
    assert build(pairs) == expected
    assert PairDataset.open(tmp_path / "d").counts == expected


@pytest.mark.parametrize(("vocab_size", "id_bytes"), [(30, 2), (65_536, 2), (65_537, 4), (300_000, 4)])
def test_ids_take_no_more_room_than_the_vocabulary_needs(build, tmp_path, vocab_size, id_bytes):
    class Last(Letters):
        def encode_batch(self, texts):
            return [[START, self.vocab_size - 1, END] for _ in texts]

    build([("a", "b")] * 5, src=Last(vocab_size))
    assert (tmp_path / "d" / "src.ids").stat().st_size == 5 * 3 * id_bytes
    assert (tmp_path / "d" / "tgt.ids").stat().st_size == 5 * 3 * 2
    assert stored(tmp_path / "d")[4][0] == [START, vocab_size - 1, END]


def test_workers_and_chunks_do_not_change_the_result(build, tmp_path, monkeypatch):
    pairs = [(f"eins {n} zwei", f"one {n} two") for n in range(700)]
    tokenizers = {
        "src": Tokenizer.train([src for src, _ in pairs], kind="wordlevel", vocab_size=500),
        "tgt": Tokenizer.train([tgt for _, tgt in pairs], kind="bpe", vocab_size=300),
    }
    build(pairs, "plain", **tokenizers)
    monkeypatch.setattr(prepare_module, "_CHUNK", 64)
    build(pairs, "chunks", **tokenizers)
    build(pairs, "workers", **tokenizers, workers=2)
    assert contents(tmp_path / "plain") == contents(tmp_path / "chunks") == contents(tmp_path / "workers")
    text = " ".join(tokenizers["src"].tokens(stored(tmp_path / "workers")[699][0]))
    assert "eins" in text
    assert "zwei" in text


def test_memory_does_not_grow_with_the_corpus(build):
    class Pairs:
        def __iter__(self):
            return (("abcdef", "fedcba") for _ in range(40_000))

    tracemalloc.start()
    try:
        report = build(Pairs())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.kept == 40_000
    assert peak < 6 << 20  # the pairs as lists of ids would take 13 MiB


def test_an_iterator_is_read_once_and_gives_the_same(build, tmp_path):
    pairs = [("ab", "c"), ("d", "efg")]
    build(pairs, "list")
    for _ in range(2):
        build(iter(pairs), "iterator")
        assert contents(tmp_path / "list") == contents(tmp_path / "iterator")


def test_the_digest_says_what_is_stored(build, tmp_path):
    def digest_of(pairs, **how):
        build(pairs, **how)
        return PairDataset.open(tmp_path / "d").columns.digest

    pairs = [("ab", "c"), ("d", "efg")]
    digest = digest_of(pairs)
    assert digest_of([*pairs, ("-", "x")]) == digest
    assert digest_of(pairs[::-1]) != digest
    assert digest_of([("ab", "c"), ("d", "efh")]) != digest
    assert digest_of([("abd", "c"), ("d", "efg")]) != digest
    assert digest.startswith("6119e809ea5cbd26"), "as in the ids of old runs"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "short", "long", "empty"])
def test_a_damaged_folder_is_refused_and_made_anew(build, tmp_path, name, damage):
    pairs = [("ab", "c"), ("d", "efg")]
    build(pairs)
    before = contents(tmp_path / "d")
    path = tmp_path / "d" / name
    content = before[name]
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"short": content[:-3], "long": content + b"\0}", "empty": b""}[damage])
    with pytest.raises(DataError, match="prepare it again"):
        PairDataset.open(tmp_path / "d")
    build(pairs)
    assert contents(tmp_path / "d") == before


@pytest.mark.parametrize("offsets", [(0, 3, 9), (1, 3, 8)])
def test_offsets_of_another_dataset_are_refused(build, tmp_path, offsets):
    build([("ab", "c"), ("d", "efg")])
    assert len(PairDataset.open(tmp_path / "d").columns.values["tgt"]) == 8
    (tmp_path / "d" / "tgt.offsets").write_bytes(np.array(offsets, dtype="<i8").tobytes())
    with pytest.raises(DataError, match=r"/d is damaged \(tgt\.offsets does not fit tgt\.ids\): delete that folder"):
        PairDataset.open(tmp_path / "d")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format_version": 99}, "has format 99"),
        ({"format_version": 1}, "has format 1"),
        ({"info": {}}, "cannot be understood"),
        ({"info": {"settings": None}}, "cannot be understood"),
        ({"columns": {"src": "U9"}}, "cannot be understood"),
        ({"columns": ["src", "tgt"]}, "cannot be understood"),
        ({"num_examples": "many"}, "cannot be understood"),
        ({"num_examples": 0}, "cannot be understood"),
    ],
)
def test_a_meta_file_of_another_kind_is_refused(build, tmp_path, change, sentence):
    build([("ab", "c")])
    path = tmp_path / "d" / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        assert PairDataset.open(tmp_path / "d").counts


@pytest.mark.parametrize("text", ["[]", "3", "{", "\0", "nul"])
def test_a_meta_file_that_is_no_object_is_refused(build, tmp_path, text):
    build([("ab", "c")])
    (tmp_path / "d" / "meta.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="cannot be understood"):
        PairDataset.open(tmp_path / "d")


def test_no_folder_at_all(tmp_path):
    with pytest.raises(DataError, match="is not a prepared dataset"):
        PairDataset.open(tmp_path / "missing")


def test_other_people_s_folders_and_files_are_left_alone(build, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious", encoding="utf-8")
    (tmp_path / "file").write_text("precious", encoding="utf-8")
    for name in ("thesis", "file"):
        with pytest.raises(DataError, match="name another folder"):
            build([("a", "b")], name)
    with pytest.raises(WriteError, match="file/below cannot be written"):
        build([("a", "b")], "file/below")
    assert (tmp_path / "thesis" / "chapter.tex").read_text(encoding="utf-8") == "precious"
    (tmp_path / "empty").mkdir()
    build([("a", "b")], "empty")
    assert stored(tmp_path / "empty")


# --- failures


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [([], "no sentence pairs"), ([("-", "a")] * 3, r"none of the 3 .*source without tokens: 3")],
)
def test_nothing_to_store(build, tmp_path, pairs, sentence):
    with pytest.raises(DataError, match=sentence):
        build(pairs)
    assert not (tmp_path / "d").exists()
    assert not leftovers(tmp_path)


def test_a_number_of_workers_that_makes_no_sense(build):
    with pytest.raises(ConfigError):
        build([("a", "b")], workers=-1)


def test_a_full_disk_leaves_nothing_half_written_and_what_was_there(build, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "_CHUNK", 2)
    build([("ab", "c")])
    before = contents(tmp_path / "d")
    append = ColumnsWriter.append

    def full_after_some(self, column, values, lengths):
        if self.num_examples > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, column, values, lengths)

    with monkeypatch.context() as patch:
        patch.setattr(ColumnsWriter, "append", full_after_some)
        for folder in ("d", "new"):
            with pytest.raises(WriteError, match=r"No space left on device.*make room"):
                build([("abc", "abc")] * 20, folder)
    assert contents(tmp_path / "d") == before
    assert not (tmp_path / "new").exists()
    assert not leftovers(tmp_path)


def test_an_error_in_the_corpus_leaves_nothing(build, tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"ab\tc\n" * 3 + b"\xff\tc\n")
    with pytest.raises(DataError, match="line 4"):
        build(PairReader([tmp_path / "a.tsv"]))
    assert not (tmp_path / "d").exists()
    assert not leftovers(tmp_path)


SLOW_RUN = """
import sys, time
from pathlib import Path
from repose.data.prepare import LengthLimits, prepare

class Slow:
    vocab_size = 30
    def encode_batch(self, texts):
        return [[2, 4, 3] for _ in texts]

def pairs():
    yield from [("a", "b")] * 10_000
    print("half", flush=True)
    time.sleep(100)

prepare(pairs(), (Slow(), Slow()), Path(sys.argv[1]), LengthLimits(8, 8, "drop"), workers=1)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_run_leaves_nothing_that_counts_as_finished(build, tmp_path):
    run = subprocess.Popen([sys.executable, "-c", SLOW_RUN, str(tmp_path / "d")], stdout=subprocess.PIPE, text=True)
    with run:
        assert run.stdout.readline() == "half\n"
        run.kill()
    assert leftovers(tmp_path) == [".d.new"]
    assert not (tmp_path / "d").exists()
    with pytest.raises(DataError, match="is not a prepared dataset"):
        PairDataset.open(tmp_path / "d")
    with pytest.raises(DataError):  # its meta.json, written last, is not there either
        PairDataset.open(tmp_path / ".d.new")
    build([("ab", "c")])
    assert stored(tmp_path / "d")
    assert not leftovers(tmp_path)
