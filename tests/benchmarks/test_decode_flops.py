"""The benchmarks' formula for FLOPs agrees with torch's counter on this project's models."""

import dataclasses

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from flops import decoding, encoder, mean_decoding, memory, training
from repose.decoding.options import SearchOptions
from repose.decoding.search import Ints, beam_search
from repose.decoding.torch_engine import TorchEngine, TorchState
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.model.transformer import build

END = 3
VOCAB = 50
NEW_TOKENS = 14
MODELS = ("baseline", "reinforced", "ablation-none")


def small(name: str) -> Architecture:
    """A preset with sizes that are all different, all unlike the vocabulary's, and with narrow heads: what decoding
    keeps of wide ones takes fewer operations than the formula says."""
    sizes = {"num_heads": 3, "head_dim": 4, "d_ff": 44, "num_encoder_layers": 2, "num_decoder_layers": 1}
    return dataclasses.replace(preset(name), d_token=16, max_length=32, **sizes)


def counting() -> FlopCounterMode:
    """torch's counter, which is told of oneDNN's linear layer; it sees the shapes of tensors in place of them."""

    def linear(x: torch.Size, weight: torch.Size, *_: object, out_shape: object) -> int:  # noqa: ARG001
        return 2 * x[0] * x[1] * weight[0]

    known = {torch.ops.mkldnn._linear_pointwise: linear} if hasattr(torch.ops.mkldnn, "_linear_pointwise") else {}
    return FlopCounterMode(display=False, custom_mapping=known)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_decoding(name: str, beam: int) -> None:
    a = small(name)
    engine = TorchEngine(build(a, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB))

    def step(tokens: Ints, state: TorchState) -> torch.Tensor:
        log_probs = engine.step(tokens, state)
        log_probs[:, END] = -torch.inf
        return log_probs

    src = torch.randint(4, VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))
    with sdpa_kernel(SDPBackend.MATH), counting() as counter, torch.no_grad():
        found = beam_search(step, engine.start(src.tolist()), [NEW_TOKENS] * 2, SearchOptions(beam))
    assert all(len(hypotheses[0].tokens) == NEW_TOKENS for hypotheses in found)
    assert counter.get_total_flops() == 2 * decoding(a, 9, NEW_TOKENS, beam, VOCAB).total


@pytest.mark.parametrize("name", MODELS)
def test_training(name: str) -> None:
    """The loss is torch's own: the counter overlooks products that are written in place, as in the project's."""
    a = small(name)
    model = build(a, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB)
    generator = torch.Generator().manual_seed(0)
    src, tgt = (torch.randint(4, VOCAB, (2, length), generator=generator) for length in (9, 7))
    with sdpa_kernel(SDPBackend.MATH), counting() as counter:
        model(src, tgt).logsumexp(2).sum().backward()
    assert counter.get_total_flops() == 2 * training(a, 9, 7, VOCAB).total


def test_parts_add_up() -> None:
    a = small("baseline")
    whole = encoder(a, 5).plus(memory(a, 5))
    assert whole.total == encoder(a, 5).total + memory(a, 5).total
    assert whole.times(3).total == 3 * whole.total


def test_mean_is_over_true_lengths() -> None:
    a = small("reinforced")
    short, long = (decoding(a, length, NEW_TOKENS, 1, VOCAB).total for length in (4, 20))
    assert mean_decoding(a, [4, 20], NEW_TOKENS, 1, VOCAB) == (short + long) / 2
    assert mean_decoding(a, [12, 12], NEW_TOKENS, 1, VOCAB) < (short + long) / 2  # attention is quadratic


def test_papers_baseline_needs_what_its_profile_says() -> None:
    """About 250 MFLOP for a sentence of Multi30k, and 53.7 MFLOP of training for a target token (docs)."""
    a = preset("baseline")
    assert decoding(a, 16, NEW_TOKENS, 1, 7_010).total == pytest.approx(250e6, rel=0.03)
    assert training(a, 16, 14.5, 7_010).total / 14.5 == pytest.approx(53.7e6, rel=0.03)
