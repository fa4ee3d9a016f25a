"""`repose report` as users see it."""

import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_repose: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `repose report` in this process: (exit code, stdout, stderr)."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return functools.partial(run_repose, "report")


@pytest.fixture
def runs(make_run: Any, tmp_path: Path) -> Path:
    for seed, bleu in enumerate((20.0, 22.0)):
        make_run(f"runs/reinforced-s{seed}", [2.0, 1.5], seed=seed, preset="reinforced", bleu=bleu)
    make_run("runs/plain-s0", [2.1, 1.9], bleu=19.0)
    make_run("runs/plain-s1", [2.1], seed=1, bleu=None, settings=["training.epochs=2"])
    return tmp_path / "runs"


def test_a_report_is_shown_and_written(run: Run, runs: Path) -> None:
    code, out, err = run(runs)
    assert code == 0
    assert "21.0 ± 1.4 *" in out
    assert "plain-s1 is unfinished (1 of 2 epochs)" in err
    there = runs / "report"
    assert f"wrote {there / 'report.html'}, {there / 'report.md'}, {there / 'report.json'} and " in err
    content = json.loads((there / "report.json").read_text())
    assert [one["name"] for one in content["runs"]] == ["plain-s0", "plain-s1", "reinforced-s0", "reinforced-s1"]
    assert "<svg" in (there / "report.html").read_text()
    for table in content["tables"]:
        assert (there / "tables" / f"{table}.csv").is_file()
        assert (there / "tables" / f"{table}.tex").is_file()


def test_formats_title_and_baseline_are_chosen(run: Run, runs: Path, tmp_path: Path) -> None:
    code, _, _ = run(runs, "--format", "md,csv", "--title", "A & B", "--baseline", "reinforced", "--out", "there")
    assert code == 0
    assert not (tmp_path / "there" / "report.html").exists()
    assert (tmp_path / "there" / "report.md").read_text().startswith("# A & B\n")
    assert json.loads((tmp_path / "there" / "report.json").read_text())["baseline"] == "reinforced"


def test_several_paths_make_one_report_here(run: Run, runs: Path, tmp_path: Path) -> None:
    assert run(runs / "plain-s0", runs / "reinforced-s0", "-f", "md")[0] == 0
    assert (tmp_path / "report" / "report.md").is_file()


def test_a_report_takes_the_place_of_a_former_one_and_of_nothing_else(run: Run, runs: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert run(runs, "--out", there)[0] == 0
    assert (there / "tables" / "significance.csv").is_file()
    (there / "tables" / "mine.csv").write_text("kept")
    assert run(runs / "plain-s0", "--out", there, "-f", "csv")[0] == 0
    assert not (there / "report.html").exists()
    assert not (there / "report.md").exists()
    left = {path.name for path in (there / "tables").iterdir()}
    assert left == {"mine.csv"} | {f"{name}.csv" for name in json.loads((there / "report.json").read_text())["tables"]}


def test_files_beside_another_programs_report_json_stay(run: Run, runs: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "report.md").write_text("mine")
    (there / "report.json").write_text('{"tables": ["../x"]}')
    assert run(runs, "--out", there, "-f", "csv")[0] == 0
    assert (there / "report.md").read_text() == "mine"


MISTAKES = {
    "no folder": (["nowhere"], 1, "there is no folder nowhere"),
    "no runs": (["home"], 1, "no run has recorded anything under home"),
    "unknown format": (["runs", "-f", "pdf"], 2, "there is no format 'pdf': known are html, md, csv, tex"),
    "no format": (["runs", "-f", ","], 2, "--format names no format"),
    "unknown baseline": (["runs", "--baseline", "reinforce"], 2, "did you mean 'reinforced'"),
    "unwritable": (["runs", "-f", "md", "--out", "runs/plain-s0/config.json"], 1, "cannot be written"),
}


@pytest.mark.parametrize(("arguments", "expected", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_one_sentence(arguments: list[str], expected: int, sentence: str, run: Run, runs: Path) -> None:
    (runs.parent / "home").mkdir()
    code, out, err = run(*arguments)
    assert (code, out) == (expected, "")
    (line,) = err.splitlines()
    assert line.startswith("repose: ")
    assert sentence in line


def test_a_missing_extra_is_named(run: Run, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    missing = {"jinja2"}
    monkeypatch.setattr("repose.cli.report.find_spec", lambda name: None if name in missing else real(name))
    code, _, err = run(runs)
    assert code == 2
    assert "pip install 'repose-nmt[report]'" in err
    missing.symmetric_difference_update({"jinja2", "matplotlib"})
    code, _, err = run(runs, "-f", "html")
    assert code == 0
    assert "the page has no pictures, since matplotlib is missing: pip install 'repose-nmt[plot]'" in err


def test_models_are_audited_on_request(run: Run, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runs / "reinforced-s0" / "model").mkdir()
    tried = []

    def check(folder: Path) -> tuple[str, ...]:
        tried.append(folder.name)
        return ("padding",)

    monkeypatch.setattr("repose.cli.report._failed_checks", check)
    assert run(runs, "-f", "md")[0] == 0
    assert tried == []
    code, out, err = run(runs, "-f", "md", "--audit")
    assert (code, tried) == (0, ["reinforced-s0"])
    assert "This model failed the audit (padding)" in out
    assert "reinforced: failed the audit" in err


def test_help_and_markdown_load_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['repose', 'report', '--help']\n"
        "import repose.cli.main\n"
        "try: repose.cli.main.main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'matplotlib', 'jinja2', 'sacrebleu') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
