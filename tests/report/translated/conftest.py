"""A grid of finished runs as their directories look, with made-up translations and no model."""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from repose.config.file import load, to_json
from repose.data.pairs import write_pairs
from repose.evaluation.metrics import bleu, chrf
from repose.report.collect import read_runs
from repose.report.run_set import RunSet
from repose.tasks.corpus import prepare_corpus
from repose.tasks.prepared import CorpusData

WORDS = ("a", "the", "red", "small", "dog", "cat", "runs", "sits", "on", "under", "table", ",", "tree", "slowly")
METRICS = (
    '{"kind": "epoch", "update": 9, "epoch": 1, "nll": 2.0}\n'
    '{"kind": "end", "status": "done", "reason": "epochs", "update": 9, "epoch": 1, "wall": {"seconds": 1, "at": ""}}\n'
)
"""Records of a training that is done."""


def sentences(number: int, draw: random.Random, longest: int) -> list[str]:
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, longest))) for _ in range(number)]


def mirrored(line: str) -> str:
    """What a source is translated into."""
    return " ".join(word[::-1] for word in line.split())


def measure(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool) -> dict[str, Any]:
    """A decoding's scores as they stand in scores.test.json."""
    scores = (score(hypotheses, references, lowercase=lowercase) for score in (bleu, chrf))
    return {"unfinished": 0} | {score.name: {"value": score.value, "signature": score.signature} for score in scores}


@dataclass
class Made:
    """Adds runs to a grid folder, and reads it."""

    folder: Path
    draw: random.Random = field(default_factory=lambda: random.Random(4))
    cells: list[dict[str, Any]] = field(default_factory=list)
    corpora: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prepared: dict[tuple[str, ...], CorpusData] = field(default_factory=dict)
    """Corpus and what may change how it is prepared, to the prepared one."""
    widths: dict[str, int] = field(default_factory=dict)
    """System to its d_ff, lest two systems be the same."""
    greedy: dict[tuple[Path, bool], dict[str, Any]] = field(default_factory=dict)
    """Scores of the references as translations, by the corpus and whether case is ignored."""

    def corpus(self, name: str, *, num_test: int = 80, longest_test: int = 9, longest: int = 9) -> "Made":
        """A corpus of its own sentences, as it is prepared for training."""
        home = self.folder.parent / "texts" / name
        home.mkdir(parents=True)
        for split, number in (("train", 60), ("valid", 10), ("test", num_test)):
            limit = longest_test if split == "test" else longest
            lines = [*sentences(number, self.draw, limit), " ".join(WORDS[:1] * limit)]
            write_pairs(home, split, [(line, mirrored(line)) for line in lines])
        self.corpora[name] = tuple(
            f'corpus.{split}=["{home / split}.src", "{home / split}.tgt"]' for split in ("train", "valid", "test")
        )
        return self

    def data(self, corpus: str = "tales", *overrides: str) -> CorpusData:
        return prepare_corpus(self.experiment(corpus, *overrides))

    def experiment(self, corpus: str, *overrides: str) -> Any:
        if corpus not in self.corpora:
            self.corpus(corpus)
        words = ("corpus.name=none", "tokenizer.kind=wordlevel", "tokenizer.vocab_size=100")
        return load("default", overrides=[*words, *self.corpora[corpus], *overrides]).experiment

    def add(
        self,
        system: str,
        *,
        wrong: float = 0.2,
        seed: int = 0,
        corpus: str = "tales",
        hypotheses: Sequence[str] | None = None,
        overrides: Sequence[str] = (),
        lowercase: bool = False,
        width: str | None = None,
    ) -> Path:
        """A run whose translations have this share of their words wrong, or are `hypotheses`."""
        d_ff = self.widths.setdefault(system, 32 + len(self.widths))
        settings = (f"training.seed={seed}", f"architecture.d_ff={d_ff}", *overrides)
        experiment = self.experiment(corpus, *settings)
        shaping = (corpus, *(word for word in overrides if word.startswith(("corpus", "tokenizer", "training.max"))))
        data = self.prepared.get(shaping) or self.prepared.setdefault(shaping, prepare_corpus(experiment))
        _, references = data.text("test")
        if hypotheses is None:
            hypotheses = [
                " ".join(self.draw.choice(WORDS) if self.draw.random() < wrong else w for w in line.split())
                for line in references
            ]
        labels = {"system": system, "corpus": corpus, **({} if width is None else {"d_ff": width})}
        group = "-".join(filter(None, (corpus, system, width)))
        name = f"{group}-s{seed}"
        folder = self.folder / name
        (folder / "hypotheses").mkdir(parents=True)
        run_id = f"{name} {len(self.cells)}"
        config = {"run_id": run_id, "experiment": json.loads(to_json(experiment)), "digests": data.digests}
        config |= {"data": data.folder.name, "report": list(data.report), "versions": {}}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "metrics.jsonl").write_text(METRICS)
        case = (data.folder, lowercase)
        if case not in self.greedy:
            self.greedy[case] = measure(references, references, lowercase=lowercase)
        digests: dict[str, str] = {}
        decoded = {"greedy": self.greedy[case], "beam4": measure(hypotheses, references, lowercase=lowercase)}
        for decoding, lines in (("greedy", references), ("beam4", hypotheses)):  # greedy ones never to be taken
            text = "".join(line + "\n" for line in lines)
            (folder / "hypotheses" / f"test.{decoding}.txt").write_text(text, encoding="utf-8", newline="")
            digests[decoding] = hashlib.sha256(text.encode()).hexdigest()
        looks_ahead = experiment.architecture.looks_ahead
        about = {"run_id": run_id, "split": "test", "looks_ahead": looks_ahead, "num_sentences": len(references)}
        about |= {"decoded": decoded, "sha256": {"hypotheses": digests}}
        (folder / "scores.test.json").write_text(json.dumps(about), encoding="utf-8")
        cell = {"name": name, "group": group, "labels": labels, "seed": seed, "run_id": run_id}
        self.cells.append(cell | {"folder": name, "status": "done", "reason": "", "seconds": 1.0})
        return folder

    def runs(self, baseline: str | None = None, sentences: Any = None) -> RunSet:
        """All of them, as a report reads them."""
        grid = {"format": 1, "name": "made", "about": "", "axes": {}, "cells": self.cells}
        wanted = {"baseline": baseline, "sentences": sentences}
        grid["report"] = {name: value for name, value in wanted.items() if value}
        (self.folder / "grid.json").write_text(json.dumps(grid), encoding="utf-8")
        return read_runs([self.folder])


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """An empty grid, with a cache of its own."""
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    (tmp_path / "grid").mkdir()
    return Made(tmp_path / "grid")
