"""Attention with a cache: which models absorb heads, whether both forms are equal, and int8."""

import dataclasses
import importlib.resources
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from repose.model.attention import ABSORBED_AT
from repose.model.cached_attention import cached
from repose.model.kernels.absorption import cost
from repose.model.kernels.cache import Beams, Cache, Constants
from repose.model.kernels.linear import quantize
from repose.model.presets import PRESETS, preset
from repose.model.transformer import build

SIZES = {"d_token": 8, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 2, "max_length": 32}


TABLES = tomllib.loads(importlib.resources.files("repose.model").joinpath("presets.toml").read_text(encoding="utf-8"))


def comes_from(name: str, ancestor: str) -> bool:
    """Whether a preset is a difference from that table, or from one that is."""
    return bool(name) and (name == ancestor or comes_from(TABLES[name].get("from", ""), ancestor))


@pytest.mark.parametrize("name", PRESETS)
def test_wide_heads_are_absorbed(name: str) -> None:
    """So in the tutorial's model and all of arXiv 2410.04731; Vaswani's heads, and what follows him, are narrow."""
    a = preset(name)
    share = cost(a.d_model, a.d_value, a.head_dim)
    assert (share <= 1) == comes_from(name, "tutorial")
    assert (share <= ABSORBED_AT) == name.startswith("baseline")  # in training, too


@pytest.mark.parametrize("head_dim", [2, 16])
@pytest.mark.parametrize("name", ["reinforced", "ablation-concat", "vaswani-base"])
def test_both_forms_are_the_attention_of_whole_targets(name: str, head_dim: int) -> None:
    model = build(
        dataclasses.replace(preset(name), head_dim=head_dim, **SIZES), src_vocab_size=20, tgt_vocab_size=20
    ).double()
    for parameter in model.parameters():  # biases and norms away from 0 and 1
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    model.eval()
    src = torch.tensor([[2, 5, 6, 3, 0], [2, 7, 8, 9, 3]])
    tgt = torch.tensor([[2, 5, 6, 7, 4, 4, 5, 9, 8, 7], [2, 9, 8, 7, 6, 5, 5, 4, 4, 4]])
    with torch.no_grad():
        state = model.start(model.encode(src))
        steps = [model.step(tgt[:, t], state) for t in range(tgt.shape[1])]
        wanted = model(src, tgt).log_softmax(2)
        attention = cached(model.decoder.layers[0].self_attention, state.cache)
    assert attention.is_absorbed == (head_dim == 16)
    torch.testing.assert_close(torch.stack(steps, 1), wanted.to(steps[0]), atol=1e-6, rtol=0)


def test_constants_are_made_once_for_all_decodings() -> None:
    model = build(dataclasses.replace(preset("reinforced"), head_dim=8, **SIZES), src_vocab_size=20, tgt_vocab_size=20)
    constants: dict[torch.nn.Module, object] = {}
    src = torch.tensor([[2, 5, 3]])
    with torch.no_grad():
        first = model.eval().step(torch.tensor([2]), model.start(model.encode(src), constants))
        kept = dict(constants)
        again = model.step(torch.tensor([2]), model.start(model.encode(src), constants))
    assert kept
    assert all(constants[key] is value for key, value in kept.items())
    assert torch.equal(first, again)


@pytest.mark.parametrize("sentences", [[0, 1, 2], [0, 0, 2, 2, 2], [2, 0, 2, 1]])
def test_beams_there_and_back(sentences: list[int]) -> None:
    beams = Beams(torch.tensor(sentences), 3)
    rows = torch.randn(len(sentences), 4)
    grid = beams.by_sentence(rows)
    assert grid.shape[0] == 3
    for row, sentence in enumerate(sentences):
        assert any(torch.equal(rows[row], place) for place in grid[sentence])
    assert torch.equal(beams.to_rows(grid), rows)


def test_what_is_kept_of_finished_sentences_is_thrown_away() -> None:
    cache = Cache(torch.tensor([[True, True]] * 3 + [[True, False]]))
    cache.of_memory("keys", lambda: [torch.arange(4.0)[:, None]])
    cache.select(torch.tensor([0, 1, 3, 3]))
    cache.select(torch.tensor([2, 3]))
    (kept,) = cache.of_memory("keys", lambda: [])
    assert kept.tolist() == [[3.0]]
    assert cache.beams.sentences.tolist() == [0, 0]
    assert cache.src_bias is not None
    assert cache.src_bias.shape == (1, 1, 1, 1, 2)


def test_threads_that_make_the_same_at_once_keep_one() -> None:
    """An attention's keys are found under the object that was made: with two, one's would be lost."""
    constants: Constants = {}
    component, both = nn.Identity(), threading.Barrier(2, timeout=60)

    def make() -> object:
        both.wait()
        return object()

    def use(_: int) -> object:
        return Cache(torch.tensor([[True]]), constants).once(component, make)

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(use, range(2))
    assert one is other


@pytest.mark.parametrize("name", ["reinforced", "vaswani-base"])
def test_int8_is_close_to_fp32(name: str) -> None:
    a = dataclasses.replace(preset(name), d_token=64, num_encoder_layers=1, num_decoder_layers=2, max_length=32)
    model = build(a, src_vocab_size=50, tgt_vocab_size=50).eval()
    src, tgt = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 6))

    def run() -> torch.Tensor:
        with torch.no_grad():
            state = model.start(model.encode(src))
            return torch.stack([model.step(tgt[:, t], state) for t in range(6)])

    exact = run()
    quantize(model)
    rounded = run()
    assert not torch.equal(rounded, exact)
    spread = (exact - exact.mean(2, keepdim=True)).abs().mean()
    assert (rounded - exact).abs().mean() < 0.05 * spread
