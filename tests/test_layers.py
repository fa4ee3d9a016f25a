"""Imports follow the layers of CONTRIBUTING.md; nothing is imported too early; files and functions are short."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import repose

ROOT = Path(repose.__file__).parent


def drawing() -> dict[str, list[str]]:
    """The rooms as CONTRIBUTING.md lists them, from the ground up, each with those that it imports."""
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms: dict[str, list[str]] = {}
    for line in page.split("## The rooms")[1].split("```")[1].strip().splitlines():
        if line.startswith(" "):
            rooms[next(reversed(rooms))] = line.split("<-")[1].split()
        else:
            rooms[line.split()[0]] = []
    return rooms


ROOMS = drawing()


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "repose":
            pieces = (node.module or "").split(".")[1:]
            found |= {pieces[0]} if pieces else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("repose.")}
    return found - {part(path), "system", "_version", "__version__"}


def test_arrows_go_up_the_list_only() -> None:
    above: list[str] = []
    for name, imported in ROOMS.items():
        assert set(imported) <= set(above), name
        above.append(name)


def test_the_imports_are_the_drawing() -> None:
    found: dict[str, set[str]] = {name: set() for name in ROOMS}
    for path in ROOT.rglob("*.py"):
        if path.parent != ROOT:
            found[part(path)] |= imported_parts(path)
    assert found == {name: set(imported) for name, imported in ROOMS.items()}


def test_the_root_holds_rooms_alone() -> None:
    files = {path.name for path in ROOT.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "_version.py", "py.typed"}


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_a_room_names_its_modules_and_no_others(folder: str) -> None:
    init = ROOT / folder / "__init__.py"
    docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    named = set(re.findall(r"(?<![\w/])\w+\.py\b", docstring))
    assert named == {path.name for path in init.parent.glob("*.py")} - {init.name}


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


def test_type_checkers_see_no_names_but_these() -> None:
    top = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8")).body
    assert not [node for node in top if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"]
    (seen,) = [node for node in top if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    names = {alias.name for node in seen.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names | {"__version__"} == set(repose.__all__)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (repose.load, ("precision", "engine")),
        (repose.export, ("to", "precision")),
        (repose.evaluate, ("precision", "engine")),
        (repose.compare, ("metric",)),
        (repose.train, ("progress",)),
    ],
)
def test_type_checkers_know_the_words_that_an_argument_can_be(
    function: Callable[..., object], arguments: tuple[str, ...]
) -> None:
    known = inspect.signature(function).parameters
    assert [name for name in arguments if "Literal" not in str(known[name].annotation)] == []


def test_an_imported_submodule_does_not_hide_a_function() -> None:
    import repose.cli.export
    import repose.decoding.translator
    import repose.exporting.targets
    import repose.model.audit

    assert callable(repose.audit)
    assert callable(repose.export)
    assert callable(repose.load)


def test_files_and_functions_can_be_seen_whole() -> None:
    long = {}
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > 500:
            long[path.name] = lines
        for node in ast.walk(ast.parse(text)):
            long |= {f"{path.name}: {name}": lines for name, lines in long_function(node).items()}
    assert not long


def long_function(node: ast.AST) -> dict[str, int]:
    """The name and the lines of one that is too long."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {}
    lines = (node.end_lineno or 0) - node.body[0].lineno + 1
    return {node.name: lines} if lines > 60 else {}


@pytest.mark.parametrize("begin", ["def", "async def"])
def test_a_function_that_cannot_be_seen_whole_is_found(begin: str) -> None:
    for number, found in ((60, {}), (61, {"f": 61})):
        (node,) = ast.parse(f"{begin} f():\n" + "    pass\n" * number).body
        assert long_function(node) == found
