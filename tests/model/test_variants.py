"""The Enhanced Transformer's techniques and their alternatives, each against its equations in loops."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from repose.model.architecture import GATED, Architecture, FeedForwardKind, InputNorm, Norm, SelfScore
from repose.model.attention import Attention
from repose.model.audit import audit
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.local import LocalBlocks
from repose.model.kernels.packing import Packing
from repose.model.layers import FeedForward
from repose.model.norms import RMSNorm, ScaleNorm
from repose.model.positions import Positions, UntiedPositions, buckets, positions_of
from repose.model.presets import PRESETS, preset
from repose.model.sublayer import Sublayer
from repose.model.transformer import Transformer, build

SIZES: dict[str, Any] = {"d_token": 8, "num_heads": 2, "head_dim": 3, "d_ff": 16, "max_length": 40}
TABLE = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0])


def full(length: int) -> Packing:
    return Packing(torch.ones(1, length, dtype=torch.bool))


def heads_of(projection: nn.Linear, x: Tensor) -> Tensor:
    """(n, D) -> (2, n, 3), one head at a time."""
    bias = torch.zeros(projection.out_features) if projection.bias is None else projection.bias
    return torch.stack([x @ projection.weight[3 * h : 3 * h + 3].T + bias[3 * h : 3 * h + 3] for h in range(2)])


def softmax(scores: list[float]) -> list[float]:
    """exp(s) / sum, where -inf has no part; zeros where all are -inf."""
    powers = [math.exp(s) for s in scores]
    return [p / sum(powers) if sum(powers) else 0.0 for p in powers]


def make(name: str, **changes: Any) -> Transformer:
    a = dataclasses.replace(preset(name), **(SIZES | {"num_encoder_layers": 2, "num_decoder_layers": 2} | changes))
    table = TABLE if a.positions == "policy" else None
    return build(a, src_vocab_size=50, tgt_vocab_size=50, position_table=table).eval()


# --- full layer normalization ---


def layer_norm(x: Tensor, eps: float) -> Tensor:
    """Eq. (1) of arXiv 2310.10930, at its initial gain and bias."""
    return torch.stack([(row - row.mean()) / (row.var(correction=0) + eps).sqrt() for row in x])


@pytest.mark.parametrize("combine", ["add", "concat"])
@pytest.mark.parametrize("kind", ["none", "separate", "sum"])
def test_input_norm_is_in_front_of_the_first_layer(kind: InputNorm, combine: Literal["add", "concat"]) -> None:
    model = make("original", input_norm=kind, combine=combine, norm_eps=1e-6)
    ids = torch.tensor([[2, 5, 9, 3]])
    embedding = model.encoder.embedding
    tokens, positions = embedding.tokens.weight[ids[0]], embedding.positions.table[:4]
    if kind == "separate":
        tokens, positions = layer_norm(tokens, 1e-6), layer_norm(positions, 1e-6)
    wanted = tokens + positions if combine == "add" else torch.cat([tokens, positions], dim=1)
    if kind == "sum":
        wanted = layer_norm(wanted, 1e-6)
    torch.testing.assert_close(embedding(ids, Packing(ids != 0)).hidden, wanted, atol=1e-5, rtol=0)


def test_separate_norms_bring_tokens_and_positions_to_one_scale() -> None:
    """Without, the presumed code's tokens have less than a hundredth of the positions' energy (PAPERS C1)."""
    a = dataclasses.replace(preset("original"), num_encoder_layers=1, num_decoder_layers=1)
    plain = build(a, src_vocab_size=100, tgt_vocab_size=100).encoder.embedding
    energy = plain.tokens.weight.square().mean() / plain.positions.table[:16].square().mean()
    assert energy.item() == pytest.approx(0.008, abs=0.001)
    normed = build(dataclasses.replace(a, input_norm="separate"), src_vocab_size=100, tgt_vocab_size=100)
    norms = normed.encoder.embedding.input_norms
    for x in (norms["tokens"](plain.tokens.weight), norms["positions"](plain.positions.table[:16])):
        torch.testing.assert_close(x.var(dim=1, correction=0), torch.ones(len(x)), atol=1e-4, rtol=0)
    parameters = [name for name, _ in normed.named_parameters() if "input_norms" in name]
    assert len(parameters) == 8  # gain and bias of each, in both stacks


def test_both_norms_are_before_and_after_the_sublayer() -> None:
    sublayer = Sublayer(Architecture(d_token=6, norm="both", residual_weight=2.0, norm_eps=1e-6), 0.0)
    x, f = torch.randn(5, 6), nn.Linear(6, 6)
    wanted = layer_norm(2 * x + f(layer_norm(x, 1e-6)), 1e-6)
    torch.testing.assert_close(sublayer(x, f), wanted, atol=1e-5, rtol=0)


# --- RMSNorm ---


def test_rms_norm_is_equation_4() -> None:
    """Arxiv 1910.07467, row by row, with an epsilon."""
    norm, x = RMSNorm(6, eps=1e-2), torch.randn(5, 6)
    assert (norm.weight == 1).all()
    norm.weight.data.normal_()
    rows = [row / math.sqrt(sum(n * n for n in row.tolist()) / 6 + 1e-2) * norm.weight for row in x]
    torch.testing.assert_close(norm(x), torch.stack(rows), atol=1e-5, rtol=0)


def test_rms_norm_takes_the_place_of_every_layer_norm_and_has_no_bias() -> None:
    norms = {name: p for name, p in make("rms-norm").named_parameters() if "norm" in name}
    assert len(norms) == 2 * 2 + 2 * 3 + 2  # of two encoder layers, two decoder layers, and after each stack
    assert all(name.endswith("weight") and p.shape == (8,) for name, p in norms.items())


def test_rms_norm_of_half_precision_is_computed_in_fp32() -> None:
    x = torch.full((1, 6), 300.0, dtype=torch.float16)  # whose squares are beyond fp16
    assert RMSNorm(6, eps=1e-5).half()(x).tolist() == [[1.0] * 6]


# --- heads that share keys and values ---


def with_own_keys(model: Transformer) -> Transformer:
    """The same function, each head with a copy of its group's keys and values."""
    a = model.architecture
    own = build(dataclasses.replace(a, num_kv_heads=None), src_vocab_size=50, tgt_vocab_size=50).double().eval()
    weights = model.state_dict()
    for name, weight in weights.items():
        if {"key", "value"} & set(name.split(".")) and "attention" in name:
            heads = weight.unflatten(0, (-1, a.head_dim))
            weights[name] = heads.repeat_interleave(a.num_heads // a.kv_heads, dim=0).flatten(0, 1)
    own.load_state_dict(weights)
    return own


SHARING: dict[str, dict[str, Any]] = {
    "as published": {},
    "rotary": {"positions": "rotary"},
    "t5": {"positions": "t5"},
    "local": {"attention_window": 4},
    "own scores": {"self_score": "exclude"},
    "residual scores": {"score_residual": "previous_layer"},
    "normed": {"qk_norm": "l2"},
    "values of both kinds": {"values": "both"},
    "embeddings as values": {"values": "tokens"},
}


@pytest.mark.parametrize("changes", SHARING.values(), ids=SHARING.keys())
@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("accelerated", [False, True])
def test_heads_of_a_group_read_the_same_keys_and_values(
    changes: dict[str, Any], num: int, accelerated: bool, on_an_accelerator: Callable[[], None]
) -> None:
    """In whole sentences, in their gradients, and step by step; heads are wide enough to be absorbed if they were not
    shared."""
    if changes.get("values") == "both" and num == 1:
        pytest.skip("one head cannot be halved")
    torch.manual_seed(0)
    a = dataclasses.replace(Architecture(**SIZES, num_encoder_layers=2, num_decoder_layers=2), num_heads=4, head_dim=8)
    a = dataclasses.replace(a, attention_bias=True, **changes)
    shared = build(dataclasses.replace(a, num_kv_heads=num), src_vocab_size=50, tgt_vocab_size=50).double().eval()
    for parameter in shared.parameters():
        parameter.data += 0.2 * torch.rand_like(parameter)
    own = with_own_keys(shared)
    assert sum(p.numel() for p in shared.parameters()) < sum(p.numel() for p in own.parameters())
    if accelerated:
        on_an_accelerator()
    src = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
    tgt = torch.tensor([[2, 9, 4, 11, 6], [2, 7, 12, 0, 0]])
    real = tgt != 0
    torch.testing.assert_close(shared(src, tgt)[real], own(src, tgt)[real])
    for model in (shared, own):
        model(src, tgt)[real].square().sum().backward()
    for ours, theirs in zip(shared.encoder.layers, own.encoder.layers, strict=True):
        sums = theirs.self_attention.key.weight.grad.unflatten(0, (num, -1, a.head_dim)).sum(1).flatten(0, 1)
        torch.testing.assert_close(ours.self_attention.key.weight.grad, sums)
    states = [model.start(model.encode(src)) for model in (shared, own)]
    for t in range(tgt.shape[1]):
        ours, theirs = (model.step(tgt[:, t], state) for model, state in zip((shared, own), states, strict=True))
        torch.testing.assert_close(ours[real[:, t]], theirs[real[:, t]])


def test_shared_heads_take_less_of_the_cache() -> None:
    sizes_of = SIZES | {"num_heads": 4, "head_dim": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
    a = Architecture(**sizes_of, positions="rotary")
    sizes = []
    for num in (None, 2, 1):
        model = build(dataclasses.replace(a, num_kv_heads=num), src_vocab_size=50, tgt_vocab_size=50).eval()
        with torch.no_grad():
            state = model.start(model.encode(torch.tensor([[2, 5, 3]])))
            model.step(torch.tensor([2]), state)
        ((keys, values),) = state.cache._histories.values()
        sizes.append((keys.shape[1], values.shape[1]))
    assert sizes == [(4, 4), (2, 2), (1, 1)]


def test_what_cannot_be_shared_evenly_is_refused() -> None:
    with pytest.raises(ValidationError, match="num_kv_heads = 3 does not divide num_heads = 4"):
        Architecture(num_heads=4, num_kv_heads=3)
    with pytest.raises(ValidationError, match="needs an even num_kv_heads, not 1"):
        Architecture(num_heads=4, num_kv_heads=1, values="both")


@pytest.mark.parametrize("name", ["multi-query", "grouped-query"])
def test_wider_feed_forward_layers_make_up_for_shared_heads(name: str) -> None:
    shared, plain = preset(name), preset("original")
    assert shared.num_weights(8000, 8000) == plain.num_weights(8000, 8000)


# --- feed-forward layers ---


def fed_forward(layer: FeedForward, x: Tensor, kind: str) -> Tensor:
    """The equations of arXiv 2002.05202, number by number, with biases."""
    gelu = lambda y: y * 0.5 * (1 + math.erf(y / math.sqrt(2)))  # noqa: E731
    swish = lambda y: y / (1 + math.exp(-y))  # noqa: E731
    activations = {"relu": lambda y: max(y, 0.0), "gelu": gelu, "geglu": gelu, "swiglu": swish}
    assert kind in activations, f"write the activation of feed_forward = {kind!r} here, as its paper has it"
    activation = activations[kind]
    rows = []
    for row in x:
        hidden = [row @ w + b for w, b in zip(layer.inner.weight, layer.inner.bias, strict=True)]
        if layer.gate is None:
            hidden = [activation(y.item()) for y in hidden]
        else:
            gates = [row @ w + b for w, b in zip(layer.gate.weight, layer.gate.bias, strict=True)]
            hidden = [activation(gate.item()) * y.item() for gate, y in zip(gates, hidden, strict=True)]
        rows.append(layer.outer.weight @ torch.tensor(hidden) + layer.outer.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("kind", get_args(FeedForwardKind))
def test_feed_forward_layers_are_their_equations(kind: Any) -> None:
    layer, x = FeedForward(Architecture(d_token=6, d_ff=5, feed_forward=kind)), torch.randn(7, 6)
    assert (layer.gate is not None) == (kind in GATED)
    torch.testing.assert_close(layer(x), fed_forward(layer, x, kind), atol=1e-5, rtol=0)


def test_a_gate_of_two_thirds_of_the_width_has_as_many_weights() -> None:
    gated, plain = preset("swiglu"), preset("original")
    assert gated.num_weights(100, 100) == pytest.approx(plain.num_weights(100, 100), rel=1e-3)
    layers = [FeedForward(a) for a in (gated, plain)]
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    assert sizes[0] == pytest.approx(sizes[1], rel=2e-3)


# --- ScaleNorm ---


def scale_norm(x: Tensor, gain: float) -> Tensor:
    """The equation of arXiv 1910.05895, row by row."""
    return torch.stack([gain * row / math.sqrt(sum(n * n for n in row.tolist())) for row in x])


@pytest.mark.parametrize("norm", ["post", "pre", "both"])
def test_scale_norm_stands_where_layer_norm_does(norm: Norm) -> None:
    sublayer = Sublayer(Architecture(d_token=6, norm=norm, norm_kind="scale"), 0.0)
    for number, each in enumerate(m for m in sublayer.modules() if isinstance(m, ScaleNorm)):
        assert each.gain.item() == pytest.approx(math.sqrt(6))
        each.gain.data.fill_(2.0 + number)
    x, f = torch.randn(5, 6), nn.Linear(6, 6)
    match norm:
        case "post":
            wanted = scale_norm(x + f(x), 2.0)
        case "pre":
            wanted = x + f(scale_norm(x, 2.0))
        case "both":
            wanted = scale_norm(x + f(scale_norm(x, 3.0)), 2.0)
    torch.testing.assert_close(sublayer(x, f), wanted, atol=1e-5, rtol=0)


def test_scale_norm_has_one_number_and_takes_the_place_of_every_layer_norm() -> None:
    norms = {name: p for name, p in make("scale-norm").named_parameters() if "norm" in name}
    assert len(norms) == 2 * 2 + 2 * 3 + 2  # of two encoder layers, two decoder layers, and after each stack
    assert all(p.numel() == 1 for p in norms.values())


def test_scale_norm_of_zeros_is_zeros_and_has_a_gradient() -> None:
    norm, x = ScaleNorm(6, eps=1e-5), torch.zeros(2, 6, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad is not None
    assert norm(x).abs().max() == 0
    assert x.grad.isfinite().all()
    norm, x = ScaleNorm(4, eps=0.5), torch.tensor([[0.3, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(norm(x), 2 * x / 0.5, msg="a row shorter than eps is divided by eps")


# --- weighted residual connection ---


@pytest.mark.parametrize("weight", [0.5, 4.0])
def test_weighted_residual_is_equation_6(weight: float) -> None:
    """H(x) = F(x) + kx, then layer norm."""
    sublayer = Sublayer(Architecture(d_token=6, residual_weight=weight, norm_eps=1e-6), 0.0)
    x, f = torch.randn(5, 6), nn.Linear(6, 6)
    torch.testing.assert_close(sublayer(x, f), layer_norm(f(x) + weight * x, 1e-6), atol=1e-5, rtol=0)


def test_weighted_residual_makes_gradients_smaller_not_greater() -> None:
    """Under Post-LN a sublayer's gradient goes as 1/k, against the paper's 3.2 (PAPERS C2)."""
    norms = {}
    for k in (4.0, 8.0, 16.0):
        model = make("original", residual_weight=k, d_token=32)
        src = torch.arange(4, 20)[None]
        model(src, src)[:, :, 5].sum().backward()
        layers = model.encoder.layers.named_parameters()
        gradients = [p.grad for name, p in layers if name.endswith("feed_forward.outer.weight")]
        norms[k] = sum(g.square().sum().item() for g in gradients if g is not None) ** 0.5
    assert norms[4.0] > 1.5 * norms[8.0] > 1.5**2 * norms[16.0]


def test_weighted_residual_without_a_norm_after_it_is_refused() -> None:
    with pytest.raises(ValidationError, match="without bound"):
        dataclasses.replace(preset("pre-ln"), residual_weight=4.0)
    assert dataclasses.replace(preset("original"), norm="both", residual_weight=4.0).residual_weight == 4.0


# --- zero-masked self-attention ---


def self_attention(x: Tensor, attention: Attention, kind: str, causal: bool) -> Tensor:
    """Weights, head by head and row by row, with the diagonal as `kind` says."""
    q, k = heads_of(attention.query, x), heads_of(attention.key, x)
    weights = torch.zeros(2, len(x), len(x))
    for h in range(2):
        for i in range(len(x)):
            scores = [(q[h, i] @ k[h, j]).item() / math.sqrt(3) for j in range(len(x))]
            if kind in ("zero", "exclude"):
                scores[i] = 0.0 if kind == "zero" else -math.inf
            row = softmax([s if j <= i or not causal else -math.inf for j, s in enumerate(scores)])
            weights[h, i] = torch.tensor([0.0 if kind == "zero_weights" and i == j else w for j, w in enumerate(row)])
    return weights


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["keep", "zero", "exclude", "zero_weights"])
def test_self_score(kind: SelfScore, causal: bool) -> None:
    a = Architecture(d_token=6, num_heads=2, head_dim=3, attention_bias=True, self_score=kind)
    attention = Attention(a, Positions(a, causal=causal)).eval()
    x, packing = torch.randn(5, 6), full(5)
    blocks = Blocks(packing, packing, num_heads=2, causal=causal)
    heads = self_attention(x, attention, kind, causal) @ heads_of(attention.value, x)
    wanted = attention.output(heads.transpose(0, 1).flatten(1))
    torch.testing.assert_close(attention(x, x, x, blocks), wanted, atol=1e-5, rtol=0)


def first_row(kind: SelfScore) -> list[float]:
    """The first decoder position's weights over five tokens, the same in both heads."""
    model = make("original", self_score=kind)
    tgt = torch.tensor([[2, 5, 6, 7, 8]])
    rows = model.attention(tgt, tgt).decoder[0][0, :, 0]
    torch.testing.assert_close(rows[0], rows[1])
    return [round(w, 3) for w in rows[0].tolist()]


def test_the_first_row_of_a_causal_matrix() -> None:
    """PAPERS C5: START sees nothing but itself. Its own score may be zero; without it there is no key, and no NaN."""
    assert first_row("keep") == first_row("zero") == [1, 0, 0, 0, 0]
    assert first_row("exclude") == first_row("zero_weights") == [0, 0, 0, 0, 0]


def test_masking_both_diagonal_and_future_with_a_large_number_would_leak() -> None:
    """The fifth case of PAPERS C5, which is not built: -1e9 on all of a row is the same for all, a uniform softmax."""
    masked = torch.randn(5, 5).masked_fill(torch.ones(5, 5).triu().bool(), -1e9).softmax(1)
    assert masked[0, 1:].sum().item() == pytest.approx(0.8)


@pytest.mark.parametrize("kind", ["zero", "exclude", "zero_weights"])
def test_self_score_leaves_cross_attention_alone(kind: SelfScore) -> None:
    model = make("original", self_score=kind)
    src = torch.tensor([[2, 5, 6, 3]])
    for weights in model.attention(src, src).cross:
        assert weights.diagonal(dim1=2, dim2=3).min() > 0
        torch.testing.assert_close(weights.sum(3), torch.ones(1, 2, 4))


# --- RealFormer ---


def test_realformer_adds_each_layers_scores_to_the_next() -> None:
    """S_l = Q_l K_l^T / sqrt(C) + S_(l-1), softmax(S_l + mask), in three chains (PAPERS D)."""
    model = make("realformer")
    src, tgt = torch.tensor([[2, 5, 6, 7, 3]]), torch.tensor([[2, 8, 9, 4]])
    inputs: dict[str, tuple[Tensor, Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            module.register_forward_pre_hook(lambda _m, x, name=name: inputs.update({name: (x[0], x[1])}))
    maps = model.attention(src, tgt)
    chains = (("encoder", "self", maps.encoder), ("decoder", "self", maps.decoder), ("decoder", "cross", maps.cross))
    for stack, kind, found in chains:
        total: Tensor | float = 0.0
        for layer, weights in enumerate(found):
            name = f"{stack}.layers.{layer}.{kind}_attention"
            attention, (x, y) = model.get_submodule(name), inputs[name]
            q = heads_of(attention.query, x[: weights.shape[2]])
            k = heads_of(attention.key, y[: weights.shape[3]])
            total = total + q @ k.mT / math.sqrt(3)
            future = torch.ones(weights.shape[2:]).triu(1).bool() & (stack == "decoder" and kind == "self")
            torch.testing.assert_close(weights[0], total.masked_fill(future, -math.inf).softmax(2), atol=1e-5, rtol=0)


def test_realformer_without_later_queries_repeats_the_first_layers_weights() -> None:
    model = make("realformer")
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for module in stack.layers[1].modules():
                if isinstance(module, Attention):
                    module.query.weight.zero_()
                    module.query.bias.zero_()
    src = torch.tensor([[2, 5, 6, 7, 3]])
    for first, second in model.attention(src, src):
        torch.testing.assert_close(first, second)


def test_realformer_has_no_parameters_of_its_own() -> None:
    sizes = [sum(p.numel() for p in make(name).parameters()) for name in ("original", "realformer")]
    assert sizes[0] == sizes[1]


# --- TUPE ---


def t5_bucket(distance: int, causal: bool) -> int:
    """Raffel et al. 2020, one distance at a time: 32 buckets, half of them (of a side) exact, to 128."""
    if causal:
        side, num, size = 0, 32, max(-distance, 0)
    else:
        side, num, size = (16 if distance > 0 else 0), 16, abs(distance)
    exact = num // 2
    if size < exact:
        return side + size
    return side + min(num - 1, exact + int(math.log(size / exact) / math.log(128 / exact) * (num - exact) + 1e-9))


@pytest.mark.parametrize("causal", [False, True])
def test_distance_buckets_are_t5s(causal: bool) -> None:
    distances = list(range(-200, 201))
    found = buckets(torch.tensor(distances), causal=causal).tolist()
    assert found == [t5_bucket(d, causal) for d in distances]
    assert len(set(found)) == (32 if causal else 31)  # distance 0 has one side only


@pytest.mark.parametrize("name", ["tupe-a", "tupe-r"])
def test_tupe_adds_scores_of_positions_to_scores_of_contents(name: str) -> None:
    """(x_i W^Q)(x_j W^K)/sqrt(2C) + (p_i U^Q)(p_j U^K)/sqrt(2C) [+ b_(j-i)], before the causal mask (PAPERS D)."""
    model = make(name, norm_eps=1e-6)
    for untied in (model.encoder.position_scores, model.decoder.position_scores):
        if untied.distances is not None:
            nn.init.normal_(untied.distances)
    ids = torch.tensor([[2, 8, 9, 4, 6]])
    inputs: dict[str, Tensor] = {}
    for which, module in model.named_modules():
        if which.endswith("self_attention"):
            module.register_forward_pre_hook(lambda _m, x, which=which: inputs.update({which: x[0]}))
    maps = model.attention(ids, ids)
    for stack, found in (("encoder", maps.encoder), ("decoder", maps.decoder)):
        untied = getattr(model, stack).position_scores
        p = layer_norm(untied.table[:5], 1e-6)
        u_q, u_k = heads_of(untied.query, p), heads_of(untied.key, p)
        for layer, weights in enumerate(found):
            which = f"{stack}.layers.{layer}.self_attention"
            attention, x = model.get_submodule(which), inputs[which][:5]
            q, k = heads_of(attention.query, x), heads_of(attention.key, x)
            for h in range(2):
                for i in range(5):
                    scores = [((q[h, i] @ k[h, j] + u_q[h, i] @ u_k[h, j]) / math.sqrt(6)).item() for j in range(5)]
                    if untied.distances is not None:
                        shifts = [untied.distances[h, t5_bucket(j - i, stack == "decoder")].item() for j in range(5)]
                        scores = [s + b for s, b in zip(scores, shifts, strict=True)]
                    seen = [s if j <= i or stack == "encoder" else -math.inf for j, s in enumerate(scores)]
                    torch.testing.assert_close(weights[0, h, i], torch.tensor(softmax(seen)), atol=1e-5, rtol=0)


def test_tupe_shares_its_positions_over_layers_and_adds_none_to_the_input() -> None:
    model = make("tupe-a", num_encoder_layers=3)
    assert len([m for m in model.modules() if isinstance(m, UntiedPositions)]) == 2  # one a stack
    ids = torch.tensor([[7, 7, 7]])
    hidden = model.encoder.embedding(ids, Packing(ids != 0)).hidden
    assert torch.equal(hidden[0], hidden[2])
    assert model.decoder.layers[0].cross_attention.scale == pytest.approx(3**-0.5)
    assert model.decoder.layers[0].self_attention.scale == pytest.approx(6**-0.5)
    before, after = (model.encode(torch.tensor([x])).hidden for x in ([7, 8, 9], [8, 7, 9]))
    assert not torch.allclose(before[2], after[2], atol=1e-4)  # the order of the others is seen


# --- restricted self-attention ---


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [2, 3, 6, 50])
@pytest.mark.parametrize("kind", ["keep", "zero", "exclude"])
def test_local_attention_is_attention_with_a_mask(window: int, causal: bool, kind: SelfScore) -> None:
    """|i - j| <= r // 2, for sentences of many lengths, with scores of positions."""
    sizes: dict[str, Any] = {"max_length": 20, "d_token": 6, "num_heads": 2, "head_dim": 3, "attention_bias": True}
    a = Architecture(positions="untied_relative", self_score=kind, **sizes)
    untied = positions_of(a, causal=causal)
    attention = Attention(a, untied).eval()
    mask = torch.arange(11)[None] < torch.tensor([11, 4, 1, 8])[:, None]
    packing = Packing(mask)
    x = torch.randn(32, 6)
    local = LocalBlocks(packing, window=window, num_heads=2, causal=causal, positions=untied)
    whole = Blocks(packing, packing, num_heads=2, causal=causal, positions=untied)
    far = (torch.arange(11)[:, None] - torch.arange(11)).abs() > window // 2
    masked = []
    for block in whole.blocks:
        size = block.bias.shape[1]
        bias = block.bias.masked_fill(far[:size, :size], -math.inf)
        if block.has_key is not None:  # rows that were without keys before
            bias = bias.masked_fill(block.has_key == 0, -math.inf)
        alone = bias.isneginf().all(2, keepdim=True)
        masked.append(dataclasses.replace(block, bias=bias.masked_fill(alone, 0.0), has_key=(~alone).float()))
    whole.blocks = masked
    out, wanted = (packing.real(attention(x, x, x, blocks)) for blocks in (local, whole))
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


def test_restricted_attention_is_recorded_and_causal_over_layers() -> None:
    model = make("vaswani-base", attention_window=4)
    src = torch.arange(4, 15)[None]
    maps = model.attention(src, src)
    near = (torch.arange(11)[:, None] - torch.arange(11)).abs() <= 2
    for weights in (*maps.encoder, *maps.decoder):
        assert weights.shape == (1, 2, 11, 11)
        torch.testing.assert_close(weights.sum(3), torch.ones(1, 2, 11))
        assert weights[:, :, ~near].abs().max() == 0
    assert audit(model, length=9).passed


def operations(model: Transformer, length: int) -> int:
    """Of the encoder's products of queries, keys and values, for one sentence."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.encode(torch.full((1, length), 5))
    return sum(count for op, count in counter.get_flop_counts()["Global"].items() if "bmm" in str(op))


def test_operations_of_restricted_attention_are_linear_in_the_length() -> None:
    sizes = {"max_length": 1024, "num_encoder_layers": 1, "num_decoder_layers": 1}
    restricted, whole = make("vaswani-base", attention_window=8, **sizes), make("vaswani-base", **sizes)
    assert 0 < operations(restricted, 512) == 2 * operations(restricted, 256) == 4 * operations(restricted, 128)
    assert operations(whole, 512) == 4 * operations(whole, 256)
    assert operations(restricted, 512) * 30 < operations(whole, 512)


@pytest.mark.parametrize("name", ["vaswani-base", "alibi", "realformer", "ablation-none"])
def test_a_window_wider_than_all_sentences_costs_and_changes_nothing(name: str) -> None:
    whole, src = make(name), torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12], [5, 6, 0, 0, 0, 0, 0, 0]])
    for window in (14, 15, 1000):
        wide = make(name, attention_window=window)
        assert operations(wide, 8) == operations(whole, 8)
        wide.load_state_dict(whole.state_dict())
        assert torch.equal(wide(src, src), whole(src, src))
    narrow = make(name, attention_window=13)
    narrow.load_state_dict(whole.state_dict())
    assert not torch.equal(narrow(src, src), whole(src, src))


# --- presets ---


def test_enhanced_is_its_four_techniques() -> None:
    """As in the paper's Table 1: each alone differs from the original in one axis, all together in these four."""
    original, axes = preset("original"), {}
    for name in ("full-norm", "weighted-residual", "policy-positions", "zero-diagonal"):
        alone = preset(name)
        names = [
            f.name for f in dataclasses.fields(Architecture) if getattr(alone, f.name) != getattr(original, f.name)
        ]
        assert len(names) == 1
        axes[names[0]] = getattr(alone, names[0])
    assert dataclasses.replace(original, **axes) == preset("enhanced")
    assert axes == {"input_norm": "separate", "residual_weight": 4.0, "positions": "policy", "self_score": "zero"}
    assert preset("post-ln") == original


@pytest.mark.parametrize("name", ["original", "enhanced", "pre-ln", "realformer", "tupe-a", "tupe-r"])
def test_the_papers_sizes(name: str) -> None:
    """Section 4: d 512, 6 layers, 8 heads, dropout 0.2, length 256."""
    a = PRESETS[name].architecture
    assert (a.d_model, a.num_encoder_layers, a.num_decoder_layers, a.num_heads) == (512, 6, 6, 8)
    assert (a.dropout, a.max_length, a.head_dim * a.num_heads) == (0.2, 256, 512)


def test_transformer_tiny_has_the_published_size() -> None:
    """Wu et al. (2021) print 2.6 M at a joint vocabulary of 10,000."""
    a = PRESETS["transformer-tiny"].architecture
    assert (a.tie_embeddings, a.norm, a.initialisation) == ("all", "post", "fairseq")
    model = build(a, src_vocab_size=10_000, tgt_vocab_size=10_000, seed=0)
    assert sum(p.numel() for p in model.parameters()) == 2_605_056
