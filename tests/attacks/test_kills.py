"""Trainings killed at random moments: resuming gives the same bits, and leaves no files behind.

Each process is forked from one that has loaded everything, so that a kill takes a second.
"""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from victims import SETTINGS, Victim, result_of, run_cli

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked")
EXPECTED_CODES = (0, -signal.SIGKILL)


def train(root: Path, workers: int) -> None:
    """A process of its own, with a group of its own."""
    os.setsid()
    os.environ["REPOSE_HOME"] = str(root / "home")
    torch.set_num_threads(1)
    said = run_cli("train", root / "pairs.tsv", *SETTINGS, "--workers", workers, "--out", root / "run")
    (root / "said").write_text(said.err)
    sys.exit(said.code)


def started(root: Path, workers: int) -> Any:
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=train, args=(root, workers))
    process.start()
    return process


def left_behind(root: Path) -> list[str]:
    """Files of half-done work; locks stay."""
    names = [path.name for path in root.rglob("*")]
    return [name for name in names if name.endswith((".tmp", ".new", ".old")) or ".new." in name]


def seconds_undisturbed(root: Path, workers: int) -> float:
    began = time.monotonic()
    process = started(root, workers)
    process.join()
    assert process.exitcode == 0, (root / "said").read_text()
    return time.monotonic() - began


def killed_and_resumed(root: Path, *, seed: int, kills: int, seconds: float, workers: int = 1) -> int:
    """Kill a training so many times, then let it end; how many kills hit it."""
    draw, hits = random.Random(seed), 0
    for _ in range(kills):
        process = started(root, workers)
        process.join(draw.uniform(0, seconds))
        hits += process.exitcode is None
        process.kill()
        process.join()
        assert process.exitcode in EXPECTED_CODES, (root / "said").read_text()
    process = started(root, workers)
    process.join()
    assert process.exitcode == 0, (root / "said").read_text()
    return hits


def begun(whole: Victim, place: Path) -> Path:
    place.mkdir()
    (place / "pairs.tsv").write_bytes(whole.corpus.read_bytes())
    return place


@pytest.mark.parametrize("trials", [pytest.param(3, id="12"), pytest.param(50, marks=pytest.mark.slow, id="200")])
def test_killed_trainings_end_with_the_same_bits(whole: Victim, tmp_path: Path, trials: int) -> None:
    seconds = seconds_undisturbed(begun(whole, tmp_path / "undisturbed"), 1)
    expected = result_of(tmp_path / "undisturbed" / "run")
    assert expected["model/model.safetensors"] == (whole.finished / "model" / "model.safetensors").read_bytes()
    hits = 0
    for seed in range(trials):
        root = begun(whole, tmp_path / str(seed))
        found = killed_and_resumed(root, seed=seed, kills=4, seconds=seconds)
        hits, seconds = hits + found, seconds if found else seconds / 2  # the machine has less to do than before
        assert result_of(root / "run") == expected
        assert left_behind(root) == []
    assert hits


@pytest.mark.slow
def test_killed_trainings_of_two_workers_end_with_the_same_bits(whole: Victim, tmp_path: Path) -> None:
    seconds = seconds_undisturbed(begun(whole, tmp_path / "undisturbed"), 2)
    expected = result_of(tmp_path / "undisturbed" / "run")
    hits = 0
    for seed in range(20):
        root = begun(whole, tmp_path / str(seed))
        hits += killed_and_resumed(root, seed=seed, kills=3, seconds=seconds, workers=2)
        assert result_of(root / "run") == expected
        assert left_behind(root) == []
    assert hits


GRID = """
[grid]
presets = ["baseline", "reinforced"]
seeds = 2
[corpus]
train = ["pairs.tsv"]
"""


@pytest.mark.slow
def test_killed_grids_end_with_the_same_bits(whole: Victim, tmp_path: Path) -> None:
    def grid(root: Path, seconds: float | None) -> int:
        command = [sys.executable, "-m", "repose", "grid", "g.toml", "--out", "runs", "--jobs", "2", *SETTINGS]
        environment = {**os.environ, "REPOSE_HOME": str(root / "home")}
        pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=root, env=environment, **pipes) as process:
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        return process.returncode

    results, hits = {}, 0
    for seed in range(-1, 20):
        root = begun(whole, tmp_path / str(seed))
        (root / "g.toml").write_text(GRID)
        draw = random.Random(seed)
        began = time.monotonic()
        for _ in range(0 if seed < 0 else 3):
            hits += grid(root, draw.uniform(0, results["seconds"])) == -signal.SIGKILL
        while (code := grid(root, None)) == 3:  # a cell whose process saves itself after its grid was killed
            assert time.monotonic() - began < 600
        assert code == 0
        cells = {path.name: result_of(path) for path in sorted((root / "runs" / "g").glob("*-s*"))}
        assert len(cells) == 4
        results.setdefault("seconds", time.monotonic() - began)
        assert results.setdefault("cells", cells) == cells
        assert left_behind(root) == []
    assert hits
