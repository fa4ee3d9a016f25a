"""The benchmark's model in plain PyTorch computes the same as this project's models."""

import dataclasses
import re

import plain_torch
import pytest
import torch
from protocol import MODELS, sizes_of

from repose.model.presets import preset
from repose.model.transformer import build

SRC_VOCAB, TGT_VOCAB = 40, 30
NAMES = {  # theirs to ours
    r"^(source|target)\.": lambda found: {"source": "encoder", "target": "decoder"}[found[1]] + ".embedding.",
    r"^(encoder|decoder)\.(\d+)": r"\1.layers.\2",
    r"\.attention\.norm": ".self_attention_sublayer.norm",
    r"\.cross\.norm": ".cross_attention_sublayer.norm",
    r"\.feed_forward\.norm": ".feed_forward_sublayer.norm",
    r"\.attention\.": ".self_attention.",
    r"\.cross\.": ".cross_attention.",
    r"\.layers\.0\.(weight|bias)$": r".inner.\1",
    r"\.layers\.2\.(weight|bias)$": r".outer.\1",
}


def ours(name: str) -> str:
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


@pytest.mark.parametrize("model", MODELS)
def test_logits_are_equal(model: str) -> None:
    small = {"num_encoder_layers": 2, "num_decoder_layers": 2, "num_heads": 2, "head_dim": 6, "d_ff": 20}
    theirs = plain_torch.Transformer(dataclasses.replace(sizes_of(model, "exact"), **small), SRC_VOCAB, TGT_VOCAB)
    architecture = dataclasses.replace(preset(model), **small)
    mine = build(architecture, src_vocab_size=SRC_VOCAB, tgt_vocab_size=TGT_VOCAB).eval()
    weights = dict(mine.named_parameters())
    renamed = {ours(name): parameter for name, parameter in theirs.eval().named_parameters()}
    assert renamed.keys() == weights.keys()
    src = torch.tensor([[2, 9, 8, 7, 3], [2, 5, 3, 0, 0]])
    tgt = torch.tensor([[2, 4, 0, 0], [2, 9, 8, 7]])
    with torch.no_grad():
        for name, parameter in renamed.items():
            parameter.copy_(weights[name])
        torch.testing.assert_close(theirs(src, tgt)[tgt != 0], mine(src, tgt)[tgt != 0], atol=1e-5, rtol=1e-5)


def test_published_parameters() -> None:
    for model, count in (("baseline", 10_184_162), ("reinforced", 2_809_634)):
        with torch.device("meta"):
            made = plain_torch.Transformer(sizes_of(model, "exact"), 7_765, 7_010)
        assert sum(parameter.numel() for parameter in made.parameters()) == count
