"""Which settings a corpus gets that no experiment file is named for: chosen by the number of its training pairs."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from repose.config.experiment import SECTIONS
from repose.config.file import Layer, Origin


@dataclass(frozen=True)
class Recipe:
    """Settings for corpora of a size."""

    name: str
    pairs: int
    """It holds for at most so many training pairs."""
    settings: dict[str, dict[str, Any]]

    @property
    def layer(self) -> Layer:
        """The settings, as `repose.config.file.resolve` lays them over the default's."""
        return Layer(self.settings, Origin("recipe", self.name), Path.cwd())


@cache
def recipes() -> tuple[Recipe, ...]:
    """The recipes that ship with the package, the one for the smallest corpora first."""
    content = tomllib.loads(files("repose").joinpath("config", "recipes.toml").read_text(encoding="utf-8"))
    shipped = [Recipe(r["name"], r["pairs"], {s: t for s, t in r.items() if s in SECTIONS}) for r in content["recipe"]]
    return tuple(sorted(shipped, key=lambda recipe: recipe.pairs))


def most_pairs() -> int:
    """The pairs up to which there is a recipe: more need not be counted."""
    return recipes()[-1].pairs


def recipe_for(num_pairs: int) -> Recipe | None:
    """The recipe for so many training pairs; None where the default's settings hold as they are."""
    return next((recipe for recipe in recipes() if num_pairs <= recipe.pairs), None)
