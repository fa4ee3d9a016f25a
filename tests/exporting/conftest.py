"""A model directory with words that its tokenizers know."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import LOOKS_AHEAD, MODEL_KIND
from repose.model.presets import preset
from repose.model.transformer import Transformer
from repose.saved_model import directory
from repose.saved_model.api import build

TINY = {"d_token": 16, "num_heads": 2, "head_dim": 6, "d_ff": 12, "num_encoder_layers": 2, "num_decoder_layers": 2}
TEXT = ["O gato viu 21 cães.", "A casa é azul, não é?", "ação 🙂 «niño» 日本", "the small boat waits in the rain"]


@pytest.fixture(scope="session")
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    """Byte-level ones of two sizes, the first with a tag."""
    return (
        Tokenizer.train(TEXT, kind="bpe", vocab_size=280, tags=["xx"]),
        Tokenizer.train(TEXT[::-1], kind="bpe", vocab_size=272),
    )


def shaken(model: Transformer, seed: int = 3) -> Transformer:
    """With every parameter moved, so that none is what it starts as: a gain of 1, a bias of 0, a matrix that leaves
    things as they are."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            size = 0.3 if parameter.dim() < 2 else 0.1
            parameter += size * torch.randn(parameter.shape, generator=generator)
        for name, buffer in model.named_buffers():
            if name.endswith(("norm.mean", "norm.var")):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
        model.output.weight.mul_(3)
    return model.eval()


Saving = Callable[..., Path]


@pytest.fixture
def saving(tmp_path: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> Saving:
    """Saves a tiny model of a preset with changes: `saving("original", norm="pre")`; `extra` goes into config.json."""

    def save(name: str, extra: dict[str, Any] | None = None, **changes: Any) -> Path:
        changes = {"max_length": 48, "tie_embeddings": "none", **TINY, **changes}
        architecture = dataclasses.replace(preset(name), **changes)
        sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
        model = shaken(build(architecture, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1]))
        warning = LOOKS_AHEAD if architecture.looks_ahead else None
        texts = [tokenizer.json for tokenizer in tokenizers]
        folder = tmp_path / "model"
        directory.save(folder, MODEL_KIND, model, texts, card="# A model\n", extra=extra or {}, warning=warning)
        return folder

    return save
