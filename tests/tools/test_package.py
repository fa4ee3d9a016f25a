"""The installed package: all its files, none of the tools; and how to cite it."""

import tomllib
from pathlib import Path

import yaml

from repose import __version__

ROOT = Path(__file__).parents[2]


def test_every_data_file_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert settings["packages"]["find"]["where"] == ["src"]
    package = ROOT / "src" / "repose"
    packaged = {path for pattern in settings["package-data"]["repose"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files <= packaged


def test_the_citation_is_of_this_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    assert (citation["authors"], citation["abstract"]) == (project["authors"], project["description"])
    papers = {url for url in project["urls"].values() if "arxiv.org" in url}
    assert papers <= {reference["url"] for reference in citation["references"]}
