"""Attention, masks and the residual connection against transcriptions of their equations."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from repose.model.architecture import Architecture, Norm, SelfScore
from repose.model.attention import Attention, record
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.linear import SideBySide
from repose.model.kernels.packing import Packing
from repose.model.positions import Positions
from repose.model.scores import Reach, Scores
from repose.model.sublayer import Sublayer
from repose.model.transformer import build


def architecture(d_value: int = 6, **changes: Any) -> Architecture:
    """Of d_model 6; with values 3 wide these are token embeddings, beside positions."""
    tokens: dict[str, Any] = {"d_token": 3, "combine": "concat", "values": "tokens", "positions": "learned"}
    sizes: dict[str, Any] = {"d_token": 6, "num_heads": 2, "head_dim": 3, "d_ff": 8, "attention_bias": True}
    return Architecture(**(sizes | (tokens if d_value == 3 else {}) | {"tie_embeddings": "none"} | changes))


def small(d_value: int = 6, dropout: float = 0.0) -> Attention:
    a = architecture(d_value, attention_dropout=dropout)
    return Attention(a, Positions(a, causal=False)).eval()


def transcription(attention: Attention, x: Tensor, values: Tensor, allowed: list[list[bool]]) -> Tensor:
    """Vaswani et al. 3.2, one head, query and key at a time, for one sentence."""
    heads = []
    for k in range(2):
        part = slice(3 * k, 3 * k + 3)
        q = x @ attention.query.weight[part].T + attention.query.bias[part]
        key = x @ attention.key.weight[part].T + attention.key.bias[part]
        v = values @ attention.value.weight[part].T + attention.value.bias[part]
        rows = []
        for i in range(len(x)):
            weights = [math.exp(q[i] @ key[j] / math.sqrt(3)) if allowed[i][j] else 0.0 for j in range(len(x))]
            rows.append(sum((w / sum(weights) * v[j] for j, w in enumerate(weights)), torch.zeros(3)))
        heads.append(torch.stack(rows))
    return torch.cat(heads, dim=1) @ attention.output.weight.T + attention.output.bias


def cosine_scores(attention: Attention, x: Tensor, y: Tensor, gain: float) -> Tensor:
    """Arxiv 2010.04245, 3: g q_i·k_j / (||q_i|| ||k_j||), one head, query and key at a time."""
    q, k = attention.query(x), attention.key(y)
    scores = torch.zeros(2, len(x), len(y))
    for h in range(2):
        for i in range(len(x)):
            for j in range(len(y)):
                a, b = q[i, 3 * h : 3 * h + 3], k[j, 3 * h : 3 * h + 3]
                scores[h, i, j] = gain * (a @ b) / math.sqrt((a @ a) * (b @ b))
    return scores


@pytest.mark.parametrize("of_self", [True, False])
def test_qk_norm_scores_are_cosines_times_a_number(of_self: bool) -> None:
    a = architecture(qk_norm="l2")
    attention = Attention(a, Positions(a, causal=False) if of_self else None).eval()
    assert isinstance(attention.qk_norm.gain, nn.Parameter)
    assert attention.qk_norm.gain.item() == pytest.approx(math.log2(64 * 63))
    attention.qk_norm.gain.data.fill_(5.0)
    x = torch.randn(5, 6)
    y = x if of_self else torch.randn(4, 6)
    queries, keys = (Packing(torch.ones(1, len(z), dtype=torch.bool)) for z in (x, y))
    with torch.no_grad(), record(attention) as recorded:
        out = attention(x, y, y, Blocks(queries, queries if of_self else keys, num_heads=2))
        weights = cosine_scores(attention, x, y, 5.0).softmax(2)
        heads = [w @ v for w, v in zip(weights, attention.value(y).split(3, dim=1), strict=True)]
        wanted = attention.output(torch.cat(heads, dim=1))
    torch.testing.assert_close(recorded[""][0][0], weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


def test_heads_with_a_norm_are_not_absorbed_however_wide() -> None:
    wide = {"head_dim": 24, "d_token": 6}
    assert Attention(architecture(**wide), None).is_absorbed
    assert not Attention(architecture(**wide, qk_norm="l2"), None).absorbs(1.0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d_value", [6, 3])
def test_multi_head_attention(causal: bool, d_value: int) -> None:
    attention = small(d_value)
    x = torch.randn(5, 6)
    values = x if d_value == 6 else torch.randn(5, d_value)
    packing = Packing(torch.ones(1, 5, dtype=torch.bool))
    with torch.no_grad():
        out = attention(x, x, values, Blocks(packing, packing, num_heads=2, causal=causal))
        wanted = transcription(attention, x, values, [[j <= i or not causal for j in range(5)] for i in range(5)])
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


def test_half_of_the_heads_read_hidden_states_and_half_token_embeddings() -> None:
    """`values = both`, as a plain attention whose second head's values are projected from other rows."""
    a = architecture(values="both", positions="learned")
    attention = Attention(a, Positions(a, causal=False)).eval()
    x, tokens = torch.randn(5, 6), torch.randn(5, 6)
    plain = small()
    for name in ("query", "key", "output"):
        getattr(plain, name).load_state_dict(getattr(attention, name).state_dict())
    packing = Packing(torch.ones(1, 5, dtype=torch.bool))
    values = attention.value
    assert isinstance(values, SideBySide)
    with torch.no_grad():
        out = attention(x, x, torch.cat([x, tokens], 1), Blocks(packing, packing, num_heads=2))
        wanted = plain.output.bias.clone()
        for head, (rows, projection) in enumerate([(x, values.first), (tokens, values.second)]):
            plain.value.weight.zero_()
            plain.value.bias.zero_()
            part = slice(3 * head, 3 * head + 3)
            plain.value.weight[part], plain.value.bias[part] = projection.weight, projection.bias
            wanted = wanted + transcription(plain, x, rows, [[True] * 5] * 5) - plain.output.bias
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_query_without_keys_gets_zeros_never_nan(dropout: float) -> None:
    attention = small(dropout=dropout).train(dropout > 0)
    packing, nothing = Packing(torch.ones(1, 2, dtype=torch.bool)), Packing(torch.zeros(1, 2, dtype=torch.bool))
    x, y = torch.randn(2, 6, requires_grad=True), torch.randn(32, 6, requires_grad=True)
    out = attention(x, y, y, Blocks(packing, nothing, num_heads=2))
    out.sum().backward()
    torch.testing.assert_close(out, attention.output.bias.expand(2, 6))
    for z in (x, y):
        assert z.grad is not None
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("self_score", get_args(SelfScore))
def test_dropout_falls_on_weights_whatever_is_done_to_scores(self_score: SelfScore) -> None:
    a = architecture(self_score=self_score, attention_dropout=0.5)
    attention, packing = Attention(a, Positions(a, causal=False)), Packing(torch.ones(1, 5, dtype=torch.bool))
    x, blocks = torch.randn(5, 6), Blocks(packing, packing, num_heads=2)
    for is_training in (True, False):
        attention.train(is_training)
        one, other = (attention(x, x, x, blocks) for _ in range(2))
        assert torch.equal(one, other) != is_training


def test_dropout_falls_on_weights_beside_queries_without_keys() -> None:
    attention = small(dropout=0.5).train()
    queries, keys = Packing(torch.ones(2, 4, dtype=torch.bool)), Packing(torch.tensor([[True] * 5, [False] * 5]))
    blocks = Blocks(queries, keys, num_heads=2)
    assert any(block.has_key is not None for block in blocks.blocks), "the two are in one block"
    x, y = torch.randn(8, 6), torch.randn(32, 6)
    one, other = (queries.real(attention(x, y, y, blocks)) for _ in range(2))
    assert not torch.equal(one[:4], other[:4])
    assert torch.equal(one[4:], other[4:])


def test_each_layer_adds_the_scores_of_all_before_it() -> None:
    scores, reach = Scores(architecture(score_residual="previous_layer"), of_self=True), Reach()
    packing = Packing(torch.ones(1, 3, dtype=torch.bool))
    reach.blocks = Blocks(packing, packing, num_heads=2).blocks
    layers = [torch.randn(2, 3, 3) for _ in range(4)]
    for number, layer in enumerate(layers, 1):
        (weights,) = scores.weights([layer], reach)
        torch.testing.assert_close(weights, torch.stack(layers[:number]).sum(0).softmax(-1))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("d_value", [6, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_absorbed_heads_are_the_same_heads(dropout: float, d_value: int, bias: bool) -> None:
    """The same weights fall to dropout, and a query without keys gets nothing."""
    sizes: dict[str, Any] = {"num_heads": 3, "head_dim": 8, "attention_bias": bias, "attention_dropout": dropout}
    attention = Attention(architecture(d_value, **sizes), None).double()
    queries = Packing(torch.tensor([[True] * 5, [True, True, False, False, False], [True] * 5]))
    keys = Packing(torch.tensor([[True, True, True, False], [True] * 4, [False] * 4]))
    blocks = Blocks(queries, keys, num_heads=3)
    x, y, z = (torch.randn(32, width, dtype=torch.float64, requires_grad=True) for width in (6, 6, d_value))
    results = []
    for attention.is_absorbed in (True, False):
        torch.manual_seed(4)
        with record(attention) as recorded:
            out = queries.real(attention(x, y, z, blocks))
        inputs = (x, y, z, *(p for name, p in attention.named_parameters() if name != "key.bias"))
        results.append([out, recorded[""][0], *torch.autograd.grad(out.square().sum(), inputs)])
    for absorbed, per_head in zip(*results, strict=True):
        torch.testing.assert_close(absorbed, per_head)


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_is_the_same(causal: bool, on_an_accelerator: Callable[[], None]) -> None:
    """What runs on accelerators, tried here: rows are positions, and no query of a source of padding gets anything."""
    masks = [[True] * 5, [True, True, True, False, False]], [[False] * 3, [True, True, False]]
    x, y = torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 3, 6, requires_grad=True)
    attention, found = small(), []
    attention.scale = 0.3  # which is not torch's own
    for switch in (lambda: None, on_an_accelerator):
        switch()
        queries = Packing(torch.tensor(masks[0]))
        keys = queries if causal else Packing(torch.tensor(masks[1]))
        blocks = Blocks(queries, keys, num_heads=2, causal=causal)
        from_keys = queries.pack(x) if causal else keys.pack(y)
        out = queries.real(attention(queries.pack(x), from_keys, from_keys, blocks))
        found.append([out, *torch.autograd.grad(out.square().sum(), (x,) if causal else (x, y))])
    for packed, whole in zip(*found, strict=True):
        torch.testing.assert_close(packed, whole)


def test_recorded_weights_are_those_that_were_used() -> None:
    attention = small()
    with torch.no_grad():
        attention.output.weight.copy_(torch.eye(6))
        attention.output.bias.zero_()
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])  # two blocks
    packing = Packing(mask)
    x = torch.randn(32, 6)
    with record(attention) as recorded:
        out = attention(x, x, x, Blocks(packing, packing, num_heads=2, causal=True))
    (weights,) = recorded[""]
    assert weights.shape == (2, 2, 4, 4)
    values = packing.pad(attention.value(x)).unflatten(2, (2, 3)).transpose(1, 2)
    heads = (weights @ values).transpose(1, 2).flatten(2)
    torch.testing.assert_close(heads[mask], packing.real(out), atol=1e-6, rtol=0)
    assert weights[0, :, :, 2:].sum() == 0
    assert weights[1, :, 0, 1:].sum() == 0
    assert attention.recorded is None


def test_what_other_threads_compute_meanwhile_is_not_recorded() -> None:
    attention, packing = small(), Packing(torch.ones(1, 4, dtype=torch.bool))
    blocks = Blocks(packing, packing, num_heads=2, causal=True)

    def compute(scale: float) -> None:
        x = scale * torch.ones(4, 6)
        attention(x, x, x, blocks)

    def recorded_elsewhere() -> int:
        with record(attention) as theirs:
            compute(3.0)
        return len(theirs[""])

    with ThreadPoolExecutor(1) as other, record(attention) as mine:
        other.submit(compute, 2.0).result()
        assert other.submit(recorded_elsewhere).result() == 1
        assert mine[""] == []
        compute(1.0)
        assert len(mine[""]) == 1


def test_what_happens_to_scores_may_have_weights_of_its_own() -> None:
    attention = small()
    attention.scores.mix = nn.Parameter(torch.eye(2))
    assert "scores.mix" in dict(attention.named_parameters())


def layouts(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[set[int], set[torch.Size]]:
    """Dimensions of scores in whole sentences, and shapes in a step of 3 rows of 2 sentences."""
    weights, given = Scores.weights, []

    def noted(self: Scores, scores: list[Tensor], reach: Any) -> list[Tensor]:
        given.extend(x.shape for x in scores)
        return weights(self, scores, reach)

    monkeypatch.setattr(Scores, "weights", noted)
    monkeypatch.setattr(Scores, "is_softmax", False)
    a = Architecture(d_token=6, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1, **changes)
    model, ids = build(a, src_vocab_size=9, tgt_vocab_size=9).eval(), torch.tensor([[2, 5, 3], [2, 3, 0]])
    with torch.no_grad():
        model(ids, ids)
        whole = {len(shape) for shape in given}
        state = model.start(model.encode(ids))
        state.select(torch.tensor([0, 0, 0, 1, 1, 1]))
        given.clear()
        model.step(torch.full((6,), 2), state)
    return whole, set(given)


def test_scores_lie_as_their_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert layouts(monkeypatch, head_dim=2) == ({3}, {(6, 2, 1, 1, 1), (2, 2, 3, 1, 3)})
    assert layouts(monkeypatch, head_dim=24) == ({3}, {(6, 1, 1, 2, 1), (2, 1, 3, 2, 3)})


@pytest.mark.parametrize(("norm", "k"), [("post", 1.0), ("post", 4.0), ("pre", 1.0)])
def test_residual_connection(norm: Norm, k: float) -> None:
    sublayer = Sublayer(architecture(norm=norm, residual_weight=k), 0.0)
    f, x = nn.Linear(6, 6), torch.randn(3, 6)

    def layer_norm(y: Tensor) -> Tensor:
        return (y - y.mean(1, keepdim=True)) / (y.var(1, correction=0, keepdim=True) + 1e-5).sqrt()

    wanted = layer_norm(k * x + f(x)) if norm == "post" else x + f(layer_norm(x))
    torch.testing.assert_close(sublayer(x, f), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", get_args(Norm))
def test_dropout_falls_on_what_a_sublayer_gives_and_not_on_its_residual(norm: Norm) -> None:
    sublayer, x = Sublayer(architecture(norm=norm), 1.0), torch.randn(4, 6)
    assert torch.equal(sublayer(x, nn.Linear(6, 6)), x if norm == "pre" else sublayer.norm(x))


def test_a_weighted_residual_shrinks_the_sublayers_gradient() -> None:
    """Under Post-LN the norm divides by k: arXiv 2310.10930 claims a greater gradient."""
    f, x = nn.Linear(64, 64), torch.randn(200, 64)
    target = torch.randn(200, 64)
    gradients = []
    for k in (1.0, 4.0):
        sublayer = Sublayer(architecture(d_token=64, residual_weight=k), 0.0)
        (gradient,) = torch.autograd.grad((sublayer(x, f) * target).sum(), [f.weight])
        gradients.append(gradient.norm().item())
    assert gradients[1] < gradients[0] / 2.5
