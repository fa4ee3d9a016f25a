"""Dependencies point one way (DESIGN: the house), and nothing is imported before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import repose

ROOT = Path(repose.__file__).parent

# What each part of the package may import from the rest of it. `errors` and `_version` are open to all.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "data": set(),
    "evaluation": set(),
    "device": set(),
    "tuning": set(),
    "atomic_folder": set(),
    "settings": set(),
    "config": {"model", "settings"},
    "config_id": {"config", "model"},
    "config_file": {"config", "model"},
    "config_toml": {"config", "config_file", "model"},
    "model_weights": {"model"},
    "model_dir": {"model", "model_weights", "data", "device", "atomic_folder"},
    "task_model_dir": {"model", "model_weights", "model_dir", "data", "device"},
    "decoding": {"model", "model_dir", "data", "device", "tuning"},
    "auditing": {"model"},
    "describe": {"model"},
    "api": {"model", "positions_rl"},
    "training": {"model", "model_dir", "task_model_dir", "decoding", "data", "config", "device", "tuning"},
    "experiments": {
        "model",
        "model_dir",
        "task_model_dir",
        "decoding",
        "data",
        "evaluation",
        "config",
        "config_file",
        "config_id",
        "training",
        "device",
        "positions_rl",
    },
    "positions_rl": {"model", "device"},
    "report": {"config", "config_file", "data", "describe", "evaluation", "experiments", "model", "model_dir", "plots"},
    "plots": {"data", "model", "model_dir", "decoding", "experiments", "positions_rl"},
    "tables": {"data", "model", "model_dir", "task_model_dir", "decoding", "auditing", "describe", "experiments"},
}
TOP = {"cli", "cli_grid", "cli_models", "cli_plot", "cli_positions", "cli_report", "__init__"}


def part(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "repose":
            pieces = (node.module or "").split(".")
            found |= {pieces[1]} if len(pieces) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("repose.")}
    return found - {part(path), "errors", "_version", "__version__"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_up(path: Path) -> None:
    if part(path) in TOP | {"errors", "_version"}:
        return
    assert imported_parts(path) <= ALLOWED[part(path)], "see DESIGN: dependencies point one way"


def loaded_by(statement: str, *names: str) -> list[str]:
    code = f"{statement}\nimport sys\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [str(name) for name in ast.literal_eval(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize(
    "statement", ["import repose", "import repose.cli", "import repose.config_file", "import repose.model.presets"]
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
    import repose.auditing
    import repose.decoding.translator

    assert callable(repose.audit)
    assert callable(repose.load)


def test_files_can_be_seen_whole() -> None:
    long = {path.name: n for path in ROOT.rglob("*.py") if (n := len(path.read_text().splitlines())) > 300}
    assert not long
