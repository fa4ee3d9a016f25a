"""A task outside the package, from its file to its scores: the interface of tasks is complete."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repose.cli.tables import run_table
from repose.config import experiment as config
from repose.config.experiment import Experiment, TaskSettings, TrainingConfig
from repose.config.file import load
from repose.data.text_blocks import Documents, TextBlocks, write_blocks
from repose.model.architecture import Architecture
from repose.runs.run import run
from repose.saved_model.directory import TOKENIZER, ModelKind, SavedModel
from repose.saved_run.folder import RunFolder
from repose.system.errors import CheckpointError, ConfigError
from repose.tasks import registry
from repose.tasks.base import Card, EvaluationOptions, Figure
from repose.tasks.corpus import one_file_per_set, one_tokenizer
from repose.tasks.file_task import FileTask, Measured
from repose.training.distributed import World
from repose.training.job import TrainingJob
from repose.training.loss import TokenSums, cross_entropy, token_losses
from repose.training.validation import validate


def scored(folder: Path, files: list[Path] | None, out: Path | None = None) -> dict[str, Any]:
    """What `repose evaluate` comes to."""
    return registry.task_of_model(folder).score_model(folder, files, "test", out, EvaluationOptions((1,)))


class Copier(nn.Module):
    """Says what each token is, having read nothing but that token."""

    def __init__(self, architecture: Architecture, *, vocab_size: int) -> None:
        super().__init__()
        self.architecture, self.vocab_size = architecture, vocab_size
        self.tokens = nn.Embedding(vocab_size, architecture.d_token)
        self.output = nn.Linear(architecture.d_token, vocab_size)


class Copy(FileTask):
    name = "copy"
    kind = ModelKind("copy", {TOKENIZER: "vocab_size"}, lambda a, c: Copier(a, vocab_size=c["vocab_size"]))
    file_kind = "text"

    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:  # noqa: ARG002
        files = one_file_per_set(experiment, self.file_kind)
        tokenizer = one_tokenizer(experiment.tokenizer, Documents(files["train"]), folder)
        for split, path in files.items():
            yield f"{split}: {write_blocks(Documents(path), tokenizer, folder / split, max_tokens=8)}"

    def open(self, folder: Path) -> TextBlocks:
        return TextBlocks.open(folder)

    def micro_batch(self, examples: TextBlocks, indices: Any, device: torch.device) -> Tensor:
        ids, _ = examples.batch(indices)
        return torch.from_numpy(ids[ids != 0]).to(device)

    def new_model(self, job: TrainingJob) -> Copier:
        torch.manual_seed(job.training.seed)
        (tokenizer,) = self.tokenizers(job)
        return Copier(job.architecture, vocab_size=tokenizer.vocab_size)

    def training_loss(self, model: Copier, batch: Tensor, config: TrainingConfig) -> TokenSums:  # noqa: ARG002
        return cross_entropy(model.tokens(batch), model.output.weight, model.output.bias, batch)

    def token_losses(self, model: Copier, batch: Tensor) -> tuple[Tensor, Tensor]:
        return token_losses(model.tokens(batch), model.output.weight, model.output.bias, batch)

    def card(self, experiment: Experiment) -> Card:  # noqa: ARG002
        return Card("Copier", "A model that copies", "repose evaluate THIS_FOLDER TEXT")

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        return {"lang": experiment.corpus.tgt_lang}

    def write_ids(self, path: Path, loaded: SavedModel[Copier], folder: Path) -> None:
        write_blocks(Documents(path), loaded.tokenizers[0], folder, max_tokens=8)

    def measure(self, loaded: SavedModel[Copier], ids: Path) -> Measured:
        blocks = self.open(ids)
        figures = validate(loaded.model, self, blocks, world=World(0, 1, torch.device("cpu"))).figures(keras_batch=1)
        said = loaded.model.output(loaded.model.tokens(self.micro_batch(blocks, np.array([0]), torch.device("cpu"))))
        line = loaded.tokenizers[0].decode(said.argmax(1).tolist())
        return Measured(
            {"num_blocks": len(blocks)},
            {"copied": Figure(100 * figures["tf_accuracy"], "percent")},
            {"copies": [line]},
        )


TASK = Copy()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that adding the task takes but for the classes above: a line here, a line there."""
    monkeypatch.setitem(sys.modules, "repose.tasks.copy", sys.modules[__name__])
    monkeypatch.setitem(
        config.TASK_SETTINGS,  # type: ignore[arg-type]
        "copy",
        TaskSettings(limits=(), predicts_tokens=False, refuses={"corpus.name": "which it cannot read: leave it out"}),
    )
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    text = tmp_path / "text.txt"
    text.write_text("the small boat waits\na lamp in the rain\nthe rain is small\n" * 5)
    files = [f'corpus.{split}=["{text}"]' for split in ("train", "valid", "test")]
    training = ("task=copy", "batch_size=30", "epochs=none", "updates=60", "validate_every_updates=20")
    schedule = ("schedule=constant", "learning_rate=0.1", "warmup_updates=2", "save_every_minutes=1e6")
    sizes = ("d_token=8", "num_heads=2", "head_dim=8", "d_ff=16")
    return [
        *files,
        *(f"training.{setting}" for setting in (*training, *schedule)),
        *(f"architecture.{setting}" for setting in sizes),
        "tokenizer.kind=wordlevel",
    ]


def test_another_task_is_prepared_trained_resumed_measured_and_loaded(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, folder = load(None, overrides=settings).experiment, tmp_path / "run"
    assert run(experiment, folder, device="cpu", workers=1, stop_after=25, progress="none").scores_if_any is None
    result = run(experiment, folder, device="cpu", workers=1, progress="none")
    scores = result.scores
    assert scores is not None
    assert (scores["task"], scores["looks_ahead"], scores["num_blocks"]) == ("copy", False, 15)
    assert scores["figures"]["copied"] == {"value": 100.0, "unit": "percent"}
    assert RunFolder(folder).hypotheses("test", "copies") == ["the small boat waits"]
    data = RunFolder(folder).records().data
    assert data is not None
    assert (data.examples, list(data.vocabulary)) == ({"train": 15, "valid": 15, "test": 15}, ["text"])
    loaded = TASK.load(folder)
    assert isinstance(loaded.model, Copier)
    assert (loaded.config["task"], loaded.config["lang"]) == ("copy", "und")
    assert "# Copier" in (folder / "model" / "README.md").read_text()
    again = scored(folder / "model", [tmp_path / "text.txt"])
    assert again["figures"] == scores["figures"]
    run_table(folder, result)
    assert "copied" in capsys.readouterr().out


def test_it_refuses_what_it_has_no_use_for(settings: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"'copy' has no use for corpus.name = 'phrasebook', which it cannot read"):
        load(None, overrides=[*settings, "corpus.train=[]", "corpus.name=phrasebook"])
    with pytest.raises(ConfigError, match=r"there is no task 'cpy': did you mean 'copy'\?"):
        load(None, overrides=[*settings, "training.task=cpy"])


def test_a_model_of_a_task_that_is_not_known_is_refused(settings: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(load(None, overrides=settings).experiment, folder, device="cpu", workers=1, progress="none")
    path = folder / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"task": "evil"}))
    with pytest.raises(CheckpointError, match="cannot be used: there is no task 'evil'"):
        scored(folder, None)
