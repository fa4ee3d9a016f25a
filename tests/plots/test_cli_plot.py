"""`repose plot` as users see it."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repose.cli import main as cli
from repose.positions_rl.table import default_table
from repose.report.pictures import plot_curves
from repose.system.errors import WriteError

RESULTS = Path(__file__).parents[2] / "results"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_repose: Run) -> Run:
    """Runs `repose plot` in this process: (exit code, stdout, stderr)."""
    return functools.partial(run_repose, "plot")


def test_positions(run: Run, tmp_path: Path) -> None:
    code, out, err = run("positions", "--max-length", 64, "--width", 32, "--out", tmp_path / "p.png")
    assert code == 0
    assert "learned, after pooling" in out
    assert err == f"wrote {tmp_path / 'p.png'}, {tmp_path / 'p.json'}\n"
    table = json.loads((tmp_path / "p.json").read_text())["table"]
    assert table == {"file": "shipped", "reward": default_table().reward, "digest": default_table().digest}
    code, _, err = run("positions", "--table", tmp_path / "none.json")
    assert (code, err.count("\n")) == (1, 1)


def test_attention(run: Run, original: Path, tmp_path: Path) -> None:
    command = ("attention", original, "O gato viu o cachorro.", "--target", "The cat saw the dog.")
    code, out, err = run(*command, "--kind", "encoder", "--layer", 1, "--out", tmp_path / "a.png")
    assert code == 0
    assert out.count("│ original │") == 2  # the numbers are of all layers
    assert err == f"wrote {tmp_path / 'a.png'}, {tmp_path / 'a.json'}\n"
    code, _, err = run(*command, "--layer", 9)
    assert (code, err) == (2, "repose: there is no layer 9: the model has 2, counted from 1\n")
    code, _, err = run("attention", original, " ")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = run("attention", tmp_path / "nowhere", "a")
    assert (code, err.count("\n")) == (1, 1)


def test_curves(run: Run, tmp_path: Path) -> None:
    code, out, err = run("curves", RESULTS / "demo", "--out", tmp_path / "c.svg")
    assert code == 0
    assert "tf_loss there" in out
    assert err == f"wrote {tmp_path / 'c.svg'}, {tmp_path / 'c.json'}\n"
    code, _, err = run("curves", RESULTS / "demo", "--out", tmp_path / "c.pdf")
    assert (code, (tmp_path / "c.pdf").read_bytes()[:5]) == (0, b"%PDF-")
    code, _, err = run("curves", RESULTS / "demo", "--out", tmp_path / "c.eps")
    assert (code, "are written as .png, .svg or .pdf, not .eps" in err) == (2, True)
    code, _, err = run("curves", RESULTS / "demo", "--metric", "tf_accurcy")
    assert (code, err) == (2, "repose: there is no metric 'tf_accurcy': did you mean 'tf_accuracy'?\n")
    code, _, err = run("curves", RESULTS / "demo", "--metric", "bleu")
    assert (code, "train with --set training.bleu_every_epochs=1" in err) == (2, True)
    code, _, err = run("curves", tmp_path)
    assert (code, err) == (1, f"repose: {tmp_path} is not a run directory: it has no metrics.jsonl\n")


def test_a_full_disk_is_one_sentence_and_leaves_the_picture_of_before(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # Windows has none
    picture = tmp_path / "c.png"
    picture.write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(WriteError, match=r"c\.png cannot be written \(File too large\): make room"):
            plot_curves([RESULTS / "demo"], picture)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("c.png", "before")]


COMMANDS = {
    "positions": ("positions",),
    "attention": ("attention", "runs/none", "a"),
    "curves": ("curves", RESULTS / "demo"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_without_matplotlib(command: tuple[object, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith(("repose.plots", "repose.report.pictures"))]:
        monkeypatch.delitem(sys.modules, name)
    assert run(*command) == (2, "", "repose: pictures need matplotlib: pip install 'repose-nmt[plot]'\n")


def test_matplotlib_is_not_loaded_before_it_is_needed() -> None:
    code = "import repose.cli.main, repose.cli.plot, sys; print({'matplotlib', 'torch'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_nothing_draws_through_pyplot() -> None:
    """It would keep figures and look for a display."""
    sources = list((Path(cli.__file__).parents[1] / "plots").glob("*.py"))
    assert len(sources) > 5
    assert not [path for path in sources if "pyplot" in path.read_text(encoding="utf-8")]
