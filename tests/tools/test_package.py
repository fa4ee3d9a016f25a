"""What is installed: every file of the package, and nothing of the tools."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_data_file_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert settings["packages"]["find"]["where"] == ["src"]
    package = ROOT / "src" / "repose"
    packaged = {path for pattern in settings["package-data"]["repose"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files <= packaged
