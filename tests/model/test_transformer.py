"""The whole model: published counts, parity with torch, and invariants over all combinations of axes."""

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations, islice, product
from typing import Any, get_args

import jaxtyping
import pytest
import tests.axes
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from repose.model.architecture import Architecture, Initialisation, Norm
from repose.model.attention import Attention
from repose.model.audit import audit
from repose.model.cached_attention import cached
from repose.model.initialisation import keras_limits
from repose.model.presets import PRESETS, preset
from repose.model.transformer import Transformer, build
from repose.system.errors import ConfigError, DataError

TINY = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "num_encoder_layers": 2, "num_decoder_layers": 3}
VOCAB = 20

AXES: dict[str, Sequence[Any]] = {
    **tests.axes.AXES,
    "attention_dropout": (0.0, 0.2),
    "attention_output_dropout": (0.0, 0.2),
    "value_dropout": (0.0, 0.2),
}


def tiny(architecture: Architecture) -> Architecture:
    return dataclasses.replace(architecture, **TINY, max_length=32)


POLICY = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0])


def make(architecture: Architecture, seed: int = 0) -> Transformer:
    table = POLICY if architecture.positions == "policy" else None
    return build(architecture, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, seed=seed, position_table=table)


def draw(fixed: dict[str, Any], rng: random.Random) -> Architecture | None:
    """Random values of all axes but the fixed ones; None where a rule refuses them."""
    try:
        return tiny(Architecture(**({name: rng.choice(values) for name, values in AXES.items()} | fixed)))
    except ValidationError:
        return None


def covering(strength: int) -> Iterator[Architecture]:
    """Architectures among which every sensible combination of `strength` axis values occurs. Greedy, seeded."""
    rng = random.Random(0)
    groups = list(combinations(AXES, strength))

    def combinations_in(a: Architecture) -> set[tuple[tuple[str, Any], ...]]:
        return {tuple((name, getattr(a, name)) for name in group) for group in groups}

    uncovered = {  # a dict for its order: the array must be the same in every process
        tuple(zip(group, values, strict=True)): None
        for group in groups
        for values in product(*(AXES[name] for name in group))
    }
    while uncovered:
        wanted = next(iter(uncovered))
        drawn = list(islice((a for a in (draw(dict(wanted), rng) for _ in range(200)) if a is not None), 30))
        if not drawn:  # no rule lets these values stand together
            del uncovered[wanted]
            continue
        best = max(drawn, key=lambda a: len(combinations_in(a) & uncovered.keys()))
        for found in combinations_in(best):
            uncovered.pop(found, None)
        yield best


def check_invariants(architecture: Architecture) -> None:
    """Finite, causal, padding-invariant, cached = full, with finite gradients for every parameter.

    Weights are moved a little: where norms leave START's state exactly zero, as `prefix` and `sentence` can while
    biases are zero, each layer norm makes its rounding 300 times as large.
    """
    model = make(architecture)
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith(("norm.mean", "norm.var")):
            buffer.copy_(0.5 + torch.rand_like(buffer))
    jaxtyping.config.update("jaxtyping_disable", True)  # the audit asks hundreds of times; shapes are checked below
    report = audit(model, length=5)
    jaxtyping.config.update("jaxtyping_disable", False)
    failed = [check for check in report.checks if not check.passed]
    assert report.padding_invariant, failed
    assert report.causal == (not architecture.looks_ahead), failed
    assert report.cached_equals_full == (not architecture.looks_ahead), failed
    src, tgt = batch()
    with torch.no_grad():
        state = model.eval().start(model.encode(src))
        assert all(model.step(tokens, state).isfinite().all() for tokens in tgt.clamp(min=4)[:, :2].T)
    logits = model.train()(src, tgt)
    assert logits.isfinite().all()
    nn.functional.cross_entropy(logits[tgt != 0], tgt[tgt != 0]).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if parameter.grad is None:  # it moves all scores of a query alike
            assert name.endswith("key.bias"), name
        else:
            assert parameter.grad.isfinite().all(), name


def batch() -> tuple[Tensor, Tensor]:
    src = torch.tensor([[2, 5, 6, 7, 8, 3], [2, 9, 3, 0, 0, 0], [2, 4, 4, 11, 3, 0]])
    tgt = torch.tensor([[2, 8, 9, 4, 5], [2, 6, 0, 0, 0], [2, 7, 7, 12, 0]])
    return src, tgt


PAIRWISE = list(covering(2))


def test_the_covering_array_covers() -> None:
    seen = {(f, getattr(a, f), g, getattr(a, g)) for a in PAIRWISE for f in AXES for g in AXES if f < g}
    assert ("encoder_token_norm", "prefix", "token_norm_site", "every_layer") in seen
    assert ("norm", "pre", "values", "tokens") in seen
    assert ("decoder_token_norm", "prefix", "token_norm_site", "after_concat") in seen
    assert ("combine", "concat", "decoder_token_norm", "sentence") in seen
    assert 20 < len(PAIRWISE) < 100


@pytest.mark.parametrize("architecture", PAIRWISE, ids=range(len(PAIRWISE)))
def test_invariants_over_the_pairwise_covering_array(architecture: Architecture) -> None:
    check_invariants(architecture)


@pytest.mark.slow
def test_invariants_over_the_three_wise_covering_array() -> None:
    for architecture in covering(3):
        check_invariants(architecture)


@pytest.mark.parametrize("name", PRESETS)
def test_invariants_of_every_preset(name: str) -> None:
    check_invariants(tiny(preset(name)))


@pytest.mark.parametrize("name", [name for name, p in PRESETS.items() if p.published_parameters])
def test_published_parameter_counts(name: str) -> None:
    with torch.device("meta"):
        model = Transformer(preset(name), src_vocab_size=7765, tgt_vocab_size=7010)
    count = sum(p.numel() for p in model.parameters())
    assert count == PRESETS[name].published_parameters
    if name.startswith("reinforced"):
        parts = {part: sum(p.numel() for p in m.parameters()) for part, m in model.named_modules()}
        assert parts["encoder.embedding"] + parts["decoder.embedding"] == 945_600
        assert parts["encoder.layers"] == 364_032
        assert parts["decoder.layers"] == 595_712
        assert parts["output"] == 904_290


def torch_transformer(norm: Norm, eps: float) -> nn.Transformer:
    sizes: dict[str, Any] = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "layer_norm_eps": eps}
    sizes |= {"norm_first": norm == "pre", "batch_first": True}
    # torch ends its stacks in a norm also after Post-LN layers, unless they are made by hand
    final = [nn.LayerNorm(8, eps=eps) if norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), 2, final[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 2, final[1])
    return nn.Transformer(8, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_parity_with_torch_nn_transformer(norm: Norm) -> None:
    """With the same weights, the layers of torch.nn.Transformer give the same output."""
    a = dataclasses.replace(tiny(Architecture()), norm=norm, attention_bias=True, num_decoder_layers=2)
    model = make(a).eval()
    theirs = torch_transformer(norm, a.norm_eps)

    def copy_attention(target: nn.MultiheadAttention, source: Attention) -> None:
        parts = (source.query, source.key, source.value)
        target.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        target.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        target.out_proj.load_state_dict(source.output.state_dict())

    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms away from 0 and 1
            parameter.add_(torch.randn(parameter.shape) * 0.1)
        stacks = ((model.encoder, theirs.encoder), (model.decoder, theirs.decoder))
        for ours, other in stacks:
            for mine, layer in zip(ours.layers, other.layers, strict=True):
                copy_attention(layer.self_attn, mine.self_attention)
                names = ["self_attention_sublayer", "feed_forward_sublayer"]
                if ours is model.decoder:
                    copy_attention(layer.multihead_attn, mine.cross_attention)
                    names.insert(1, "cross_attention_sublayer")
                for index, name in enumerate(names, start=1):
                    getattr(layer, f"norm{index}").load_state_dict(getattr(mine, name).norm.state_dict())
                layer.linear1.load_state_dict(mine.feed_forward.inner.state_dict())
                layer.linear2.load_state_dict(mine.feed_forward.outer.state_dict())
            if norm == "pre":
                other.norm.load_state_dict(ours.final_norm.state_dict())
        src, tgt = batch()
        positions = [model.encoder.embedding.positions.table[: x.shape[1]] for x in (src, tgt)]
        x = model.encoder.embedding.tokens(src) * math.sqrt(8) + positions[0]
        y = model.decoder.embedding.tokens(tgt) * math.sqrt(8) + positions[1]
        future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        hidden = theirs(
            x,
            y,
            tgt_mask=future,
            src_key_padding_mask=src == 0,
            tgt_key_padding_mask=tgt == 0,
            memory_key_padding_mask=src == 0,
        )
        wanted = model.output(hidden)
        torch.testing.assert_close(model(src, tgt)[tgt != 0], wanted[tgt != 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("value_dropout", [0.0, 0.5])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_values_are_the_same_tokens_in_every_layer(stack: str, value_dropout: float) -> None:
    """In training mode too: dropout falls on the concatenation, not on the values (PAPERS: literal reading), which
    have one of their own."""
    model = make(tiny(dataclasses.replace(preset("reinforced"), value_dropout=value_dropout))).train()
    seen: list[Tensor] = []
    for name, module in model.named_modules():
        if name.startswith(stack) and name.endswith("self_attention.value"):
            module.register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0]))
    src, tgt = batch()
    model(src, tgt)
    assert len(seen) == len(getattr(model, stack).layers)
    assert all(torch.equal(values, seen[0]) for values in seen)
    table = getattr(model, stack).embedding.tokens.weight * math.sqrt(8)
    ids = src[src != 0] if stack == "encoder" else tgt[tgt != 0]
    wanted = (table[ids] - table[1:].mean(0)) / (table[1:].var(0, correction=0) + 1e-6).sqrt()
    values = seen[0][: len(wanted)]
    kept = values != 0
    assert bool(kept.all()) == (value_dropout == 0)
    torch.testing.assert_close(values, wanted * kept / (1 - value_dropout))
    assert kept.any()


def test_cross_attention_reads_the_source_tokens_as_values() -> None:
    model = make(tiny(preset("reinforced"))).eval()
    memory = model.encode(batch()[0])
    assert memory.values.shape[1] == 8
    assert memory.hidden.shape[1] == 16
    hidden = make(tiny(preset("ablation-none"))).eval().encode(batch()[0])
    assert hidden.values is hidden.hidden


def test_every_layer_normalises_each_layers_token_half() -> None:
    a = tiny(
        dataclasses.replace(preset("reinforced-sentence"), token_norm_site="every_layer", decoder_token_norm="none")
    )
    model = make(a).eval()
    inputs: list[Tensor] = []
    for layer in model.encoder.layers:
        layer.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    src = batch()[0][:1]
    model.encode(src)
    for x in inputs:
        torch.testing.assert_close(x[:, :8].mean(0), torch.zeros(8), atol=1e-5, rtol=0)
        torch.testing.assert_close(x[:, :8].std(0, correction=0), torch.ones(8), atol=1e-2, rtol=0)
    assert x[:, 8:].std(0, correction=0).sub(1).abs().max() > 0.1


def test_decoding_one_token_is_finite() -> None:
    for name in ("reinforced-prefix", "reinforced-lookahead"):
        model = make(tiny(preset(name))).eval()
        state = model.start(model.encode(torch.tensor([[3]])))
        assert model.step(torch.tensor([2]), state).isfinite().all()


@pytest.mark.parametrize("name", ["reinforced", "reinforced-prefix", "reinforced-lookahead", "vaswani-base"])
def test_selecting_rows_reorders_everything_that_is_kept(name: str) -> None:
    model = make(tiny(preset(name))).eval()
    src, tgt = batch()
    tgt = torch.where(tgt == 0, 5, tgt)
    rows = torch.tensor([2, 0, 0])
    with torch.no_grad():
        state = model.start(model.encode(src))
        for t in range(3):
            model.step(tgt[:, t], state)
        state.select(rows)
        out = model.step(tgt[rows, 3], state)
        wanted = model.start(model.encode(src[rows]))
        for t in range(4):
            expected = model.step(tgt[rows, t], wanted)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)


def test_a_source_without_tokens_is_finite() -> None:
    model = make(tiny(preset("baseline"))).eval()
    assert model(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[2, 5]])).isfinite().all()


def test_a_source_without_tokens_is_decoded_as_whole_targets_are() -> None:
    """By absorbed heads, whose values' bias counts only where there is a source."""
    model = make(dataclasses.replace(tiny(preset("baseline")), head_dim=16, attention_bias=True)).double().eval()
    for parameter in model.parameters():  # biases away from 0
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    src = torch.tensor([[2, 5, 3], [0, 0, 0], [2, 6, 3], [2, 7, 3]])
    tgt = torch.tensor([[2, 8, 9], [2, 5, 6], [2, 4, 4], [2, 9, 4]])
    rows = torch.tensor([2, 1])  # few enough that what is kept of the others is thrown away
    with torch.no_grad():
        wanted = model(src, tgt).log_softmax(2).float()
        state = model.start(model.encode(src))
        torch.testing.assert_close(model.step(tgt[:, 0], state), wanted[:, 0], atol=1e-5, rtol=0)
        state.select(rows)
        for t in (1, 2):
            torch.testing.assert_close(model.step(tgt[rows, t], state), wanted[rows, t], atol=1e-5, rtol=0)
    assert cached(model.decoder.layers[0].cross_attention, state.cache).is_absorbed
    assert len(state.cache.beams.sentences) == state.cache.beams.num_sentences == 2


@pytest.mark.parametrize("head_dim", [4, 16])  # wide heads are absorbed
@pytest.mark.parametrize("name", ["reinforced", "vaswani-base"])
def test_sentences_that_go_on_keep_their_own_padding(name: str, head_dim: int) -> None:
    """Whichever end before them; and a blank source stays one."""
    model = make(dataclasses.replace(tiny(preset(name)), head_dim=head_dim)).eval().double()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.3)
    src = torch.tensor([[2, 5, 6, 7, 3], [2, 5, 3, 0, 0], [2, 8, 9, 3, 0], [0, 0, 0, 0, 0]])
    tgt = torch.tensor([2, 4, 5, 6])
    for rows in ([3], [1], [2], [1, 3]):
        with torch.no_grad():
            state = model.start(model.encode(src))
            model.step(tgt[0].expand(4), state)
            state.select(torch.tensor(rows))
            steps = [model.step(token.expand(len(rows)), state) for token in tgt[1:]]
            wanted = model(src[rows], tgt.expand(len(rows), -1)).log_softmax(2)[:, 1:]
        torch.testing.assert_close(torch.stack(steps, 1), wanted.to(steps[0]), atol=1e-6, rtol=0)


def test_keras_initial_limits_are_the_tutorials() -> None:
    def limits(name: str) -> dict[str, float]:
        with torch.device("meta"):
            model = Transformer(preset(name), src_vocab_size=10, tgt_vocab_size=10)
        return keras_limits(model.encoder.layers[0].self_attention)

    reinforced, baseline = limits("reinforced"), limits("baseline")
    assert reinforced == pytest.approx({"query": 0.0263, "key": 0.0263, "value": 0.0371, "output": 0.0884}, abs=5e-5)
    halves = make(tiny(dataclasses.replace(preset("reinforced"), values="both"))).encoder.layers[0].self_attention
    assert keras_limits(halves).keys() - reinforced.keys() == {"value.first", "value.second"}
    assert keras_limits(halves)["value.second"] == pytest.approx(math.sqrt(6 / (8 * (1 + 4))))
    assert baseline == pytest.approx({"query": 0.0186, "key": 0.0186, "value": 0.0186, "output": 0.0541}, abs=5e-5)


@pytest.mark.parametrize("scheme", get_args(Initialisation))
def test_initial_values(scheme: Initialisation) -> None:
    a = dataclasses.replace(preset("baseline"), initialisation=scheme, num_encoder_layers=1, num_decoder_layers=1)
    model = build(a, src_vocab_size=500, tgt_vocab_size=500)
    table, inner = model.encoder.embedding.tokens.weight, model.encoder.layers[0].feed_forward.inner
    attention = model.encoder.layers[0].self_attention
    xavier, projection = math.sqrt(6 / (128 + 512) / 3), math.sqrt(6 / (128 + 1024) / 3)
    wanted = {  # standard deviations; a uniform's is its limit over sqrt(3)
        "xavier": (128**-0.5, xavier, projection, projection),
        "keras": (0.05 / math.sqrt(3), xavier, 0.018566 / math.sqrt(3), 0.054127 / math.sqrt(3)),
        "fairseq": (128**-0.5, xavier, projection / math.sqrt(2), projection),
        "kaiming": (math.sqrt(2 / 128), math.sqrt(2 / 128), math.sqrt(2 / 128), math.sqrt(2 / 1024)),
    }[scheme]
    weights = (table, inner.weight, attention.query.weight, attention.output.weight)
    assert [weight.std().item() for weight in weights] == pytest.approx(wanted, rel=0.02)
    assert (inner.bias == 0).all() == (scheme != "kaiming")
    assert (model.encoder.layers[0].feed_forward_sublayer.norm.weight == 1).all()


def test_building_is_deterministic_and_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    first, second, other = (
        make(tiny(preset("reinforced"))),
        make(tiny(preset("reinforced"))),
        make(tiny(preset("reinforced")), seed=1),
    )
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.output.weight, other.output.weight)


def test_building_and_auditing_leave_the_random_states_of_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    audit(make(tiny(preset("reinforced"))))
    assert seeded == []


def test_tied_tables_are_one_parameter() -> None:
    model = make(tiny(Architecture()))
    assert model.output.weight is model.decoder.embedding.tokens.weight is model.encoder.embedding.tokens.weight
    with pytest.raises(ConfigError, match="20 and 30"):
        build(tiny(Architecture()), src_vocab_size=20, tgt_vocab_size=30)


def test_longer_than_max_length_is_an_error() -> None:
    with pytest.raises(DataError, match="33 tokens"):
        make(tiny(preset("reinforced")))(torch.full((1, 33), 5), torch.tensor([[2]]))


def test_decoding_beyond_max_length_is_an_error() -> None:
    model = make(dataclasses.replace(tiny(preset("vaswani-base")), max_length=4)).eval()
    state, token = model.start(model.encode(torch.tensor([[2, 5, 3]]))), torch.tensor([5])
    for _ in range(4):
        model.step(token, state)
    with pytest.raises(DataError, match="a sequence of 5 tokens is longer"):
        model.step(token, state)


def test_attention_maps_are_distributions_over_what_may_be_seen() -> None:
    model = make(tiny(preset("reinforced"))).eval()
    src, tgt = batch()
    maps = model.attention(src, tgt)
    assert (len(maps.encoder), len(maps.decoder), len(maps.cross)) == (2, 3, 3)
    for weights in maps.decoder:
        torch.testing.assert_close(weights.sum(3)[:, 0][tgt != 0], torch.ones(int((tgt != 0).sum())))
        assert weights.triu(1).abs().max() == 0
    for weights in maps.cross:
        assert weights[1, :, :, 3:].abs().max() == 0


@pytest.mark.parametrize(("src", "tgt", "says"), [(8, 9, "tgt has token ids"), (9, 8, "src has"), (-1, 8, "src has")])
def test_ids_of_another_vocabulary_are_told(src: int, tgt: int, says: str) -> None:
    model = build(Architecture(**TINY), src_vocab_size=9, tgt_vocab_size=9)
    with pytest.raises(DataError, match=f"{says}.* not among its vocabulary's: 0 to 8$"):
        model(torch.tensor([[2, src, 3]]), torch.tensor([[2, tgt, 3]]))


@pytest.mark.parametrize(
    ("src", "tgt", "says"),
    [
        (
            torch.ones(7, dtype=torch.int64),
            torch.ones(5, dtype=torch.int64),
            r"src should .*torch.int64 of shape \(7,\)$",
        ),
        (
            torch.ones(2, 3, dtype=torch.int64),
            torch.ones(2, 3),
            r"tgt should be .*, not torch.float32 of shape \(2, 3\)$",
        ),
        ([[2, 3]], [[2]], "src should be a tensor of int64 token ids, one row per sentence, not list$"),
    ],
)
def test_what_is_no_table_of_ids_is_told(src: Any, tgt: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # which tests alone have
    model = build(Architecture(**TINY), src_vocab_size=9, tgt_vocab_size=9)
    with pytest.raises(DataError, match=says):
        model(src, tgt)
