"""Models small enough to be drawn in a moment, and runs that were never trained."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

from repose.data import phrasebook
from repose.data.tokenizer import Kind, Tokenizer
from repose.decoding.translator import MODEL_KIND
from repose.model.presets import preset
from repose.model.transformer import build
from repose.saved_model import directory as model_dir

install_import_hook(
    [f"repose.plots.{module}" for module in ("attention_figure", "attention", "positions")], "beartype.beartype"
)

SIZES = {"d_token": 16, "num_heads": 2, "head_dim": 8, "d_ff": 16, "num_encoder_layers": 2, "num_decoder_layers": 2}
MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """A model directory of a preset's axes, with other axis values if given; untrained."""
    sides = list(zip(*phrasebook.read()["train"][:300], strict=True))

    def make(name: str, *, kind: Kind = "bpe", text: Sequence[str] = (), seed: int = 0, **axes: Any) -> Path:
        architecture = dataclasses.replace(preset(name), **SIZES, max_length=64, tie_embeddings="none", **axes)
        src, tgt = (Tokenizer.train([*side, *text], kind=kind, vocab_size=400) for side in sides)
        model = build(architecture, src_vocab_size=src.vocab_size, tgt_vocab_size=tgt.vocab_size, seed=seed)
        folder = tmp_path_factory.mktemp("models") / name
        extra = {"decoding": {"max_extra_tokens": 5}}
        model_dir.save(folder, MODEL_KIND, model, [src.json, tgt.json], card="", extra=extra)
        return folder

    return make


@pytest.fixture(scope="session")
def original(make_model: MakeModel) -> Path:
    return make_model("original")


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare machine: only matplotlib's own fonts."""
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda *_, **__: [])
