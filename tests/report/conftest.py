"""Runs that were never trained: directories with the settings, records and scores that a test gives them."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from repose.config.file import load, to_json
from repose.report.content import Cell, Column, Picture, Report, Section, Sentence, SentenceComparison, Shows, Table
from repose.saved_run.records import DataRecord, EndReason, EndRecord, RunStatus

SIZES = [
    f"architecture.{name}={value}"
    for name, value in {
        "num_heads": 2,
        "head_dim": 8,
        "d_ff": 16,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
    }.items()
]
UPDATES, SECONDS, VALIDATION_SECONDS = 10, 20.0, 5.0
"""Updates and seconds of each epoch, and of each validation."""
REPORT = (
    "tokenizers: bpe, 50 source and 40 target tokens",
    "train: 1,000 pairs of 7,000 source and 6,000 target tokens",
    "valid: 100 pairs of 700 source and 600 target tokens",
)
DATA = DataRecord(
    examples={"train": 1000, "valid": 100},
    tokens={"train": {"src": 7000, "tgt": 6000}, "valid": {"src": 700, "tgt": 600}},
    vocabulary={"src": 50, "tgt": 40},
)
MakeRun = Callable[..., Path]
MakeGrid = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run directory with a validation loss per epoch; its training loss lies half a nat above, its losses by batch
    means a tenth below. `bleu` and `chrf` of greedy translations; those of beam 4 are one point above."""

    def make(
        name: str,
        losses: Sequence[float],
        *,
        seed: int = 0,
        preset: str = "ablation-none",
        bleu: float | None = 20.0,
        chrf: float = 40.0,
        run_id: str | None = None,
        settings: Sequence[str] = (),
        small: bool = True,
        seconds: Sequence[float] = (),
        scores: Mapping[str, Any] | None = None,
        report: Sequence[str] = REPORT,
        digests: Mapping[str, str] | None = None,
        valid_bleu: Sequence[float] = (),
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        sizes = [*SIZES, "architecture.d_token=16"] if small else []
        corpus = ["corpus.name=multi30k", "corpus.src_lang=de", "corpus.tgt_lang=en"]
        training = ["training.warmup_updates=10", f"training.seed={seed}", f"training.epochs={len(losses)}"]
        overrides = [*corpus, *sizes, *training, *settings]
        experiment = json.loads(to_json(load(None, preset=preset, overrides=overrides).experiment))
        config = {
            "run_id": run_id or f"id-of-{name}",
            "experiment": experiment,
            "digests": dict(digests or {"src": "s", "tgt": "t"}),
            "data": "0" * 16,
            "report": list(report),
            "versions": {"repose": "0.1.0", "torch": "2.13.0"},
        }
        (folder / "config.json").write_text(json.dumps(config))
        records = [DATA.to_json(), *_records(losses, seconds or [SECONDS] * len(losses), valid_bleu)]
        is_scored = scores is not None or bleu is not None
        if is_scored or len(losses) >= (experiment["training"]["epochs"] or math.inf):
            records.append(end_of(records).to_json())
        (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if is_scored:
            ahead = experiment["architecture"]["decoder_token_norm"] == "sentence"
            content = scores or _scores(bleu or 0.0, chrf, losses[-1]) | {"looks_ahead": ahead}
            (folder / "scores.test.json").write_text(
                json.dumps({"run_id": config["run_id"], "split": "test"} | content)
            )
        return folder

    return make


def end_of(records: Sequence[Mapping[str, Any]]) -> EndRecord:
    """The last record of a training that is done."""
    last = records[-1]
    place = {"update": last["update"], "epoch": last["epoch"], "seconds": last.get("wall", {}).get("seconds", 0.0)}
    return EndRecord(status=RunStatus.DONE, reason=EndReason.EPOCHS, **place, at="")


def _records(losses: Sequence[float], seconds: Sequence[float], bleu: Sequence[float]) -> list[dict[str, Any]]:
    clock, records = 0.0, []
    for epoch, loss in enumerate(losses, start=1):
        place = {"update": UPDATES * epoch, "epoch": epoch}
        clock += seconds[epoch - 1]
        training = {"loss": 9.0, "loss_keras": 9.0, "nll": loss + 0.5, "nll_keras": loss + 0.4, "tf_accuracy": 0.1}
        records.append({"kind": "epoch", **place, **training, "tokens": 600 * epoch, "wall": {"seconds": clock}})
        clock += VALIDATION_SECONDS
        figures = {"tf_loss": loss, "tf_loss_keras": loss - 0.1, "tf_accuracy": 1 / (1 + loss)}
        figures |= {"bleu": bleu[epoch - 1]} if bleu else {}
        records.append({"kind": "valid", **place, **figures, "wall": {"seconds": clock}})
    return records


def _scores(bleu: float, chrf: float, loss: float) -> dict[str, Any]:
    def one(value: float, name: str) -> dict[str, Any]:
        return {"value": value, "signature": f"{name}|case:mixed|tok:13a|version:2.6.0"}

    return {
        "task": "translation",
        "num_sentences": 100,
        "decoded": {
            decoding: {"unfinished": 0, "bleu": one(bleu + more, "nrefs:1"), "chrf": one(chrf + more, "nc:6")}
            for decoding, more in (("greedy", 0.0), ("beam4", 1.0))
        },
        "teacher_forced": {
            "tf_loss": loss + 0.1,
            "tf_accuracy": 0.5,
            "tf_bleu": bleu / 2,
            "tf_bleu_sentence_mean": bleu / 4,
        },
    }


@pytest.fixture
def make_grid(tmp_path: Path) -> MakeGrid:
    """grid.json beside run directories of tmp_path/NAME; a cell is (name, labels, folder or None, status, reason), and
    the run that lies in its folder."""

    def run_id_in(folder: Path) -> str | None:
        path = folder / "config.json"
        return json.loads(path.read_text())["run_id"] if path.exists() else None

    def make(
        name: str,
        cells: Sequence[tuple[str, Mapping[str, str], str | None, str, str]],
        *,
        report: Mapping[str, Any] | None = None,
        version: int = 1,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        entries = [
            {
                "name": cell,
                "group": "-".join(labels.values()),
                "labels": dict(labels),
                "seed": int(cell.rpartition("s")[2]),
                "run_id": run_id_in(folder / (cell if at is None else at)),
                "folder": cell if at is None else at,
                "status": status,
                "reason": reason,
                "seconds": None,
            }
            for cell, labels, at, status, reason in cells
        ]
        content = {
            "format": version,
            "name": name,
            "about": "what it answers",
            "axes": {},
            "report": dict(report or {}),
            "cells": entries,
        }
        (folder / "grid.json").write_text(json.dumps(content))
        return folder

    return make


@pytest.fixture
def sample() -> Report:
    """A report with everything in it, by hand: a wide table with notes, a picture, warnings, sentences to compare."""

    def row(name: str, score: float, deviation: float | None, *notes: str, best: bool = False) -> tuple[Cell, ...]:
        spread = "" if deviation is None else f" ± {deviation}"
        number = Cell(text=f"{score}{spread}", value=score, deviation=deviation, n=3, notes=notes, best=best)
        return (Cell(text=name, notes=notes), number, *[Cell(text="-1.5", value=-1.5)] * 12)

    heads = (Column(name="system", numeric=False), Column(name="BLEU", unit="beam 4"))
    scores = Table(
        id="scores",
        title="Scores of the systems",
        columns=(*heads, *(Column(name=f"another column {n}") for n in range(12))),
        rows=(
            row("baseline", 35.1, 0.4),
            row("reinforced", 36.7, 0.3, best=True),
            row("one <run> & no more", 35.9, None, "Not comparable."),
            row("reinforced-lookahead", 0.1, 0.1, "This model looks ahead.", "Not comparable."),
        ),
        caption="Mean ± standard deviation over seeds.",
        remarks=("A note without a mark.",),
    )
    svg = (
        '<svg style="stroke-linecap: butt" xmlns="http://www.w3.org/2000/svg" width="360pt" height="180pt" '
        'viewBox="0 0 360 180"><defs><path id="p" d="M0 0h9"/></defs><use xmlns:xlink="http://www.w3.org/1999/xlink" '
        'xlink:href="#p"/><rect width="360" height="180" style="fill: var(--series-1, #0072b2)"/></svg>'
    )
    numbers = Table(id="curves", title="Validation loss", columns=heads, rows=(row("baseline", 1.5, 0.1)[:2],))
    curves = Picture(
        id="curves",
        title="Validation loss",
        shows=Shows.CURVES,
        svg=svg,
        description='Losses fall, from "high" to low.',
        numbers=numbers,
    )
    japanese = Sentence(
        number=17,
        src="赤い帽子の女の子が公園で本を読んでいます。",
        reference="A girl in a red hat is reading in the park.",
        hypotheses=("A girl with a red hat reads in the park.", "<script>document.title = 'taken over'</script>"),
        scores=(61.2, 4.0),
    )
    chinese = Sentence(
        number=5,
        src="A man sits.",
        reference="一个男人坐着。",
        hypotheses=("一名男子坐着。", ""),
        scores=(31.2, 0.0),
    )
    systems = ("baseline", "reinforced")
    return Report(
        title="A report & more",
        subtitle="4 runs of 3 systems",
        warnings=("reinforced-lookahead looks ahead.",),
        sections=(
            Section(title="Scores", paragraphs=("What it is.",), warnings=("One.", "Two."), tables=(scores,)),
            Section(title="Epochs", tables=(dataclasses.replace(scores, rows=()),), pictures=(curves,)),
            Section(
                title="Sentences",
                comparisons=(
                    SentenceComparison(id="a", systems=systems, src_lang="ja", tgt_lang="en", sentences=(japanese,)),
                    SentenceComparison(id="a", systems=systems, src_lang="und", tgt_lang="zh", sentences=(chinese,)),
                ),
            ),
        ),
    )
