"""Dependencies point one way (DESIGN: the house), and nothing is imported before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import repose

ROOT = Path(repose.__file__).parent

# The rooms, from the ground up: each may import from those named after it, and every room from `system`.
ALLOWED: dict[str, set[str]] = {
    "system": set(),
    "model": set(),
    "data": set(),
    "evaluation": set(),
    "positions_rl": {"model"},
    "config": {"model"},
    "saved_model": {"model", "data", "positions_rl"},
    "decoding": {"model", "data", "config", "saved_model"},
    "runs.folder": {"config", "saved_model"},
    "tasks": {"model", "data", "config", "saved_model", "decoding", "evaluation", "runs.folder", "training"},
    "training": {"model", "data", "config", "runs.folder"},
    "runs": {"model", "data", "config", "saved_model", "positions_rl", "runs.folder", "tasks", "training"},
    "grids": {
        "model",
        "data",
        "config",
        "saved_model",
        "decoding",
        "positions_rl",
        "tasks",
        "training",
        "runs",
        "runs.folder",
    },
    "plots": {"model", "data", "saved_model", "decoding", "positions_rl", "runs", "runs.folder", "tasks", "grids"},
    "report": {
        "model",
        "data",
        "config",
        "saved_model",
        "evaluation",
        "tasks",
        "runs",
        "runs.folder",
        "grids",
        "plots",
    },
}
TOP = {"cli", "__init__"}


BELOW = {"runs.folder": "runs.folder", "runs.records": "runs.folder"}
"""Modules that stand below the rest of their room: the one owner of a run directory's files is read by all."""


def part(path: Path) -> str:
    return room(list(path.relative_to(ROOT).with_suffix("").parts))


def room(pieces: list[str]) -> str:
    return BELOW.get(".".join(pieces[:2]), pieces[0])


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "repose":
            pieces = (node.module or "").split(".")
            found |= {room([*pieces[1:], alias.name]) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {room(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("repose.")}
    return found - {part(path), "system", "_version", "__version__"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_up(path: Path) -> None:
    if part(path) in TOP | {"_version"}:
        return
    assert imported_parts(path) <= ALLOWED[part(path)], "see DESIGN: dependencies point one way"


def loaded_by(statement: str, *names: str) -> list[str]:
    code = f"{statement}\nimport sys\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [str(name) for name in ast.literal_eval(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize(
    "statement", ["import repose", "import repose.cli.main", "import repose.config.file", "import repose.model.presets"]
)
def test_no_torch_before_it_is_needed(statement: str) -> None:
    assert loaded_by(statement, "torch", "sacrebleu", "tokenizers") == []


def test_the_data_package_needs_no_torch() -> None:
    assert loaded_by("import repose.data.dataset, repose.data.prepare, repose.data.corpora", "torch") == []


def test_the_public_api_is_complete_and_sorted() -> None:
    assert sorted(repose.__all__) == dir(repose)
    for name in repose.__all__:
        assert getattr(repose, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = repose.nothing


def test_an_imported_submodule_does_not_hide_a_function() -> None:
    import repose.decoding.translator
    import repose.model.audit

    assert callable(repose.audit)
    assert callable(repose.load)


def test_files_can_be_seen_whole() -> None:
    long = {path.name: n for path in ROOT.rglob("*.py") if (n := len(path.read_text().splitlines())) > 500}
    assert not long
