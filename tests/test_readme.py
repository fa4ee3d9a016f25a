"""Commands and Python of the README and two pages run on a small corpus for one epoch; links have targets."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import repose
from repose.data import phrasebook
from repose.runs import api
from repose.runs.run import RunResult

README = Path(__file__).parent.parent / "README.md"
ROOT = README.parent
PAGES = (README, ROOT / "docs" / "own-corpus.md", ROOT / "docs" / "python.md")


def blocks(language: str) -> list[str]:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands() -> list[str]:
    """Each once, in order."""
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return list(dict.fromkeys(line.split("  #")[0].strip() for line in lines if "repose " in line))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    pairs = phrasebook.read()
    for name, some in (("corpus", pairs["train"][:300]), ("valid", pairs["valid"][:10]), ("test", pairs["test"][:10])):
        for side, language in enumerate(("pt", "en")):
            (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in some), encoding="utf-8")
    return folder


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(folder: Path, run_repose: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, str, str]]:
    """Runs a command in the folder: (exit code, stdout, stderr). What is no more than `repose` and its arguments is run
    in this process, which has loaded torch already; anything else in a shell."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REPOSE_HOME", str(folder / "home"))

    def call(command: str) -> tuple[int, str, str]:
        command = shortened(command)
        if command.startswith("repose ") and not set(command) & set("|<>;&*$"):
            return run_repose(*shlex.split(command)[1:])
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return call


SETTINGS = {"architecture.d_token": 32, "architecture.num_heads": 2, "architecture.head_dim": 16}
SMALL = " ".join(f"--set {name}={value}" for name, value in SETTINGS.items())


def shortened(command: str) -> str:
    """As much of it as a test has time for."""
    if " train " in f" {command}" and "--print-config" not in command:
        # One epoch; and what needs a download shows its configuration only.
        downloads = "multi30k" in command or "enhanced-table1" in command
        command += " --print-config" if downloads else f" --set training.epochs=1 --workers 1 {SMALL}"
    if " grid demo-grid" in command:
        corpus = """--set corpus.name=none --set 'corpus.train=["corpus.pt", "corpus.en"]'"""
        limits = "--set training.epochs=none --set training.updates=5 --set training.batch_size=200"
        command += f" --seeds 1 --only reinforced {corpus} {limits} {SMALL}"
    return command


def test_the_commands_run(run: Callable[[str], tuple[int, str, str]]) -> None:
    found = commands()
    assert len(found) >= 10
    for command in found:
        if command == "repose fetch multi30k":  # needs the network: repose.data's tests fetch from a local server
            continue
        if "repose serve" in command:  # which ends when it is told to: tests/serving
            continue
        if "--to onnx" in command and importlib.util.find_spec("onnx") is None:
            continue
        code, out, err = run(command)
        assert code == (1 if "lookahead" in command else 0), f"{command}\n{out}\n{err}"
        if "| repose translate" in command:
            assert out.count("\n") == 1


def test_the_python_runs(
    folder: Path, run: Callable[[str], tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(corpus: list[str], *, out: str, settings: Mapping[str, object] = MappingProxyType({})) -> RunResult:
        short = {**SETTINGS, **settings, "training.epochs": 1}
        return api.train(corpus, out=out, settings=short, workers=1, progress="none")

    monkeypatch.setitem(vars(repose), "train", train)
    if not (folder / "runs" / "mine").exists():
        run(next(command for command in commands() if "repose train corpus.pt" in command))
    code = "\n".join(blocks("python"))
    exec(code, {"__name__": "__main__"})  # where the fixture has gone to


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"^make ((?:\w+ ?)+)", "\n".join(blocks("sh")), re.MULTILINE))
    targets = {target for names in named for target in names.split()}
    assert {"demo", "test"} <= targets
    assert all(f"\n{target}:" in makefile for target in targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_table_of_extras_is_whole() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == project["optional-dependencies"].keys() - {"dev"}


def test_named_files_exist() -> None:
    for path in re.findall(r"results/[\w./-]+\w", README.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path
    for page in (README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"(?<![\w/.])(?:docs|benchmarks)/[\w./-]+\w", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
        for link, section in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
            linked = page.parent / link if link else page
            assert linked.exists(), f"{page.name}: {link}"
            assert not section or section in sections(linked), f"{page.name}: {link}#{section}"


def sections(page: Path) -> list[str]:
    """The names of a page's headings in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_the_grid_file_expands(folder: Path, run: Callable[[str], tuple[int, str, str]]) -> None:
    from repose.grids.grid import read_grid

    (text,) = blocks("toml")
    path = folder / "variants.toml"
    if not path.exists():
        run(next(command for command in commands() if command.startswith("repose init")))
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{text}", encoding="utf-8")
    cells = read_grid(path).cells
    assert len(cells) == 2 * 3 * 3
    assert cells[0].name == "reinforced-128-s0"
    assert cells[0].experiment.training.r_drop > 0  # of the recipe
