"""The seam between a run and what a finished model is measured by."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from repose.config.experiment import Experiment
from repose.tasks.corpus_data import CorpusData


class Decoding(NamedTuple):
    """How a translation model is measured."""

    beam_sizes: tuple[int, ...]
    tokenize: str
    """sacreBLEU's tokenizer."""
    workers: int | None
    precision: str


class Card(NamedTuple):
    """What a model card says of its task."""

    title: str
    what: str
    """The beginning of a sentence that ends in "trained with"."""
    use: str
    """A command."""


class Scorer(Protocol):
    """What a run asks of its task once it is trained; `repose.tasks.scorers` chooses."""

    def card(self, experiment: Experiment) -> Card:
        """What the model is called."""

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """What the model directory's config.json says beside its architecture."""

    def of_run(self, experiment: Experiment, data: CorpusData, folder: Path, device: str) -> None:
        """Measures a finished run's model and writes scores.<split>.json, and what belongs to it, to its folder."""

    def of_model(
        self,
        folder: Path,
        files: Sequence[Path] | None,
        *,
        split: str,
        out: Path | None,
        device: str,
        decoding: Decoding,
    ) -> dict[str, Any]:
        """As `runs.evaluate_model`."""


class Figure(NamedTuple):
    """A number and what it counts."""

    value: float
    unit: str


def figures_to_json(figures: Mapping[str, Figure]) -> dict[str, dict[str, float | str]]:
    """As scores.<split>.json has them."""
    return {name: figure._asdict() for name, figure in figures.items()}


def write_scores(scores: Mapping[str, Any], folder: Path, split: str) -> None:
    """Writes scores.<split>.json, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"scores.{split}.json"
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(scores, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
