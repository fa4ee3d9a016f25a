"""A language that is learnt in seconds: the target says the source backwards, and loudly."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from repose.config.experiment import DecodingConfig, TrainingConfig
from repose.data.prepare import LengthLimits, prepare
from repose.data.tokenizer import Tokenizer
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS
from repose.saved_run.records import DataRecord
from repose.tasks.translation import TASK
from repose.training.job import Outcome, TrainingJob
from repose.training.run import train

WORDS = ("red", "blue", "one", "two", "sun", "moon", "tree", "fish")
TINY = dataclasses.replace(
    PRESETS["reinforced"].architecture,
    d_token=8,
    num_heads=2,
    head_dim=4,
    d_ff=16,
    num_encoder_layers=1,
    num_decoder_layers=1,
    max_length=32,
)
STILL = dataclasses.replace(TINY, dropout=0.0, attention_dropout=0.0, attention_output_dropout=0.0)
"""Without dropout: the same numbers however the work is shared out."""


@dataclasses.dataclass(frozen=True)
class Lab:
    """Prepared pairs with their tokenizers, trainings on them, and what they leave."""

    train: Path
    valid: Path
    src_tokenizer: Path
    tgt_tokenizer: Path
    tiny = TINY
    still = STILL

    def job(self, architecture: Architecture = TINY, run_id: str = "0123456789ab", **training: Any) -> TrainingJob:
        """A training of 8 sentences a batch; 5 batches are an epoch."""
        recipe: dict[str, Any] = {"batching": "sentences", "batch_size": 8, "warmup_updates": 10, "epochs": 3}
        return TrainingJob(
            task=TASK,
            architecture=architecture,
            training=TrainingConfig(**(recipe | training)),
            decoding=DecodingConfig(),
            train_data=self.train,
            valid_data=self.valid,
            src_tokenizer=self.src_tokenizer,
            tgt_tokenizer=self.tgt_tokenizer,
            run_id=run_id,
            data=DataRecord(examples={"train": 37, "valid": 23}),
        )

    @staticmethod
    def go(job: TrainingJob, run_dir: Path, *, workers: int | None = 1, **options: Any) -> Outcome:
        """Train on the CPU without a word."""
        return train(job, run_dir, device="cpu", workers=workers, progress="none", **options)

    @staticmethod
    def checkpoint(run_dir: Path) -> dict[str, torch.Tensor]:
        """Every tensor that resuming needs."""
        return load_file(run_dir / "state" / "last.safetensors")

    @staticmethod
    def model(run_dir: Path) -> dict[str, torch.Tensor]:
        """The weights that are handed on."""
        return load_file(run_dir / "model" / "model.safetensors")

    @staticmethod
    def records(run_dir: Path, *kinds: str) -> list[dict[str, Any]]:
        """metrics.jsonl, or these kinds of it, without what depends on the clock."""
        data, *parsed = (json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines())
        assert data["kind"] == "data"
        for record in parsed:
            assert record.pop("wall")["seconds"] >= 0
        return [record for record in parsed if not kinds or record["kind"] in kinds]

    def figures(self, run_dir: Path) -> list[dict[str, Any]]:
        """Records of the training itself."""
        return self.records(run_dir, "train", "epoch", "valid")

    def assert_same_run(self, one: Path, other: Path) -> None:
        """Two runs came to the same bits: weights, Adam's moments, the model, and every figure on the way."""
        for read in (self.checkpoint, self.model):
            mine, theirs = read(one), read(other)
            assert mine.keys() == theirs.keys()
            for name in mine:
                assert torch.equal(mine[name], theirs[name]), name
        assert self.records(one) == self.records(other)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    torch.set_num_threads(1)  # before any fixture trains: two threads give other bits than one
    folder = tmp_path_factory.mktemp("reverse")
    draw = random.Random(1)
    sources = [[draw.choice(WORDS) for _ in range(draw.randint(1, 9))] for _ in range(60)]
    pairs = [(" ".join(words), " ".join(reversed(words)).upper()) for words in sources]
    tokenizers = []
    for side, lines in (("src", [s for s, _ in pairs]), ("tgt", [t for _, t in pairs])):
        tokenizers.append(Tokenizer.train(lines, kind="wordlevel", vocab_size=20))
        tokenizers[-1].save(folder / f"{side}.json")
    for name, part in (("train", pairs[:37]), ("valid", pairs[37:])):
        prepare(part, tokenizers, folder / name, LengthLimits(32, 32, "drop"), workers=1)
    return Lab(folder / "train", folder / "valid", folder / "src.json", folder / "tgt.json")
