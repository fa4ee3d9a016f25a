import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import protocol
import pytest
from protocol import Options, Workload, pad, parse, peak_rss, serve

from workload import joined

PAIRS = [([2, 5, 3], [2, 6, 7, 3]), ([2, 3], [2, 8, 3]), ([2, 9, 9, 9, 3], [2, 3])]


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Of a workload of three pairs."""
    arrays = {}
    for side, rows in zip(("src", "tgt"), zip(*PAIRS, strict=True), strict=True):
        arrays[side], arrays[f"{side}_offsets"] = joined([np.array(row) for row in rows])
    batches = [np.array([2, 0]), np.array([1])]
    arrays["random64"], arrays["random64_offsets"] = joined(batches)
    np.savez(tmp_path / "pairs.npz", **arrays)
    np.savez(tmp_path / "decode.npz", src=np.resize([2, 4, 3], 3 * 70), src_offsets=np.arange(71) * 3)
    (tmp_path / "workload.json").write_text('{"src_vocab_size": 10, "tgt_vocab_size": 11}')
    return Options(tmp_path, "train", "reinforced", "exact", "fp32", "random64", 1, 1, 1, "cpu", "torch", 0)


def test_batches_are_padded_on_the_right(options: Options) -> None:
    workload = Workload(options)
    assert workload.num_batches == 2
    batch = workload.train_batch(0)
    assert batch.src.tolist() == [[2, 9, 9, 9, 3], [2, 5, 3, 0, 0]]
    assert batch.tgt.tolist() == [[2, 0, 0], [2, 6, 7]]
    assert batch.labels.tolist() == [[3, 0, 0], [6, 7, 3]]
    assert batch.tokens == np.count_nonzero(batch.labels) == 4
    assert batch.src.dtype == np.int64


def test_sources_to_decode_come_in_batches_of_64(options: Options) -> None:
    batches = Workload(options).decode_batches
    assert [len(batch) for batch in batches] == [64, 6]
    assert batches[1][5].tolist() == [2, 4, 3]


def test_pad_takes_the_longest() -> None:
    assert pad([np.array([1]), np.array([2, 3])]).tolist() == [[1, 0], [2, 3]]


def test_every_command_runs_the_next_batches_and_goes_round(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[list[int]] = []

    def run(numbers: list[int]) -> int:
        runs.append(numbers)
        return 10 * len(numbers)

    monkeypatch.setattr(sys, "stdin", io.StringIO("2\n3\n"))
    serve(options, 4, run, name="x", parameters=5, versions={"y": "1"})
    warm_up, *commands = runs
    assert warm_up == [3, 0, 1, 2, 3]
    assert commands == [[0, 1], [2, 3, 0]]
    ready, *answers = map(json.loads, capsys.readouterr().out.splitlines())
    facts = {"ready": True, "name": "x", "parameters": 5, "versions": {"y": "1"}, "processes": 1, "threads": 1}
    assert ready == facts
    assert [answer["units"] for answer in answers] == [20, 30]
    assert all(answer["seconds"] >= 0 and answer["peak_rss"] >= 0 for answer in answers)


def test_what_a_contestant_cannot_do_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "folder", "--processes", "3"])
    with pytest.raises(SystemExit, match="2"):
        parse("", max_processes=2)
    assert "at most 2" in capsys.readouterr().err
    assert parse("", max_processes=3, tasks=("decode",)).task == "decode"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_peak_memory_is_kept_and_counts_children() -> None:
    code = "x = bytes(range(256)) * 200_000; del x; print(flush=True); input()"
    before = peak_rss(os.getpid())
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert peak_rss(child.pid) > 50_000_000
        assert peak_rss(os.getpid()) >= before + 50_000_000
        child.communicate(b"\n")


def test_the_protocol_needs_nothing_but_numpy() -> None:
    code = "import sys, protocol; print(*{name.partition('.')[0] for name in sys.modules})"
    folder = str(Path(protocol.__file__).parent)
    loaded = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert not {"torch", "repose"} & set(loaded.stdout.split())
