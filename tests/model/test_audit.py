"""The audit names each kind of leak, and finds none in models that do not leak."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from repose.model.audit import _perturbation, audit
from repose.model.kernels.cache import Cache
from repose.model.kernels.linear import quantize
from repose.model.kernels.local import LocalBlocks
from repose.model.presets import preset
from repose.model.scores import Scores
from repose.model.transformer import Transformer, build
from repose.system.errors import ConfigError


@pytest.fixture(autouse=True)
def _shapes() -> None:
    """Not checked: an audit asks its model a hundred times."""
    jaxtyping.config.update("jaxtyping_disable", True)


SIZES: dict[str, Any] = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "max_length": 70}


def model(name: str = "ablation-none", **changes: Any) -> Transformer:
    a = dataclasses.replace(preset(name), **(SIZES | {"num_encoder_layers": 1, "num_decoder_layers": 2} | changes))
    return build(a, src_vocab_size=20, tgt_vocab_size=20).eval()


def leaking(leak: Callable[[torch.nn.Module, Tensor, Any], Tensor]) -> Transformer:
    """A model whose target embeddings, (B, T, M), are added to by `leak`."""
    leaks = model()
    embedding = leaks.decoder.embedding

    def hook(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
        packing = inputs[1]
        added = packing.pack(leak(module, packing.pad(output.hidden), packing))
        return output._replace(hidden=output.hidden + added)

    embedding.register_forward_hook(hook)
    return leaks


def failed(leaks: Transformer) -> set[str]:
    return {check.name for check in audit(leaks).checks if not check.passed}


def test_a_causal_model_passes() -> None:
    report = audit(model())
    assert report.passed
    assert [check.name for check in report.checks if "64 tokens" in check.name]


def test_a_leak_through_weights_that_begin_at_zero_is_found() -> None:
    """As those of a gate do, before training."""
    leaks = model(norm="pre")
    leaks.decoder.causal = False
    for name, weights in leaks.decoder.named_parameters():
        if "self_attention.output" in name:
            torch.nn.init.zeros_(weights)
    assert {name for name in failed(leaks) if name.startswith("causal")}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_that_are_switched_off_are_switched_on_for_a_copy(mode: Callable[[], Any]) -> None:
    with mode():
        made = model().requires_grad_(False)
        assert audit(made).passed
    assert audit(made).passed
    assert not any(parameter.requires_grad for parameter in made.parameters())


def test_a_vocabulary_of_one_word_is_audited_with_another_token() -> None:
    tgt, seen = torch.full((3, 4), 4), list[torch.Tensor]()
    tgt[:, 0] = 2

    class Seeing:
        tgt_vocab_size = 5

        def __call__(self, _: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            seen.append(ids)
            return torch.zeros(*ids.shape, 5)

        train = eval = lambda *_: None

    _perturbation(Seeing(), tgt, tgt, 1, training=False)  # type: ignore[arg-type]
    _, *variants = seen[0].split(3)
    assert all((ids != tgt).any(1).all() for ids in variants)


def test_a_model_in_int8_is_refused() -> None:
    made = model()
    quantize(made)
    with pytest.raises(ConfigError, match="which a model in int8 cannot: load it without precision"):
        audit(made)


def test_long_targets_are_audited() -> None:
    """So many that their rows are filled up."""
    assert audit(model(max_length=102), length=100).passed


@pytest.mark.parametrize("max_length", [3, 4, 5])
def test_a_short_model_passes(max_length: int) -> None:
    assert audit(model(max_length=max_length)).passed
    ahead = audit(model("reinforced-lookahead", max_length=max_length))
    assert not ahead.causal


def test_a_model_that_is_too_short_is_told() -> None:
    with pytest.raises(ConfigError, match="too short to audit: it reads at most 2 of the 3 tokens needed"):
        audit(model(max_length=2))
    with pytest.raises(ConfigError, match="length = 2: give a whole number of tokens, at least 3"):
        audit(model(), length=2)


def test_a_preset_that_looks_ahead_needs_no_advice_on_its_scores() -> None:
    report = audit(model("reinforced-lookahead"))
    (check,) = [check for check in report.checks if check.name == "cached = full"]
    assert not check.passed
    assert "is_softmax" not in check.tried


def test_a_look_ahead_in_training_alone_is_found() -> None:
    """A statistic of the whole target that is used with dropout on only: its gradient is cut off, too."""
    names = failed(leaking(lambda m, x, _: x.mean(1, keepdim=True).expand_as(x).detach() * m.training))
    assert names == {
        "causal (perturbation, training mode)",
        "causal (perturbation, 64 tokens, training mode)",
    }


def test_a_look_ahead_that_begins_at_a_distance_is_found() -> None:
    def leak(_: torch.nn.Module, x: Tensor, __: Any) -> Tensor:
        added = torch.zeros_like(x)
        added[:, 33:] = x[:, 33:].mean(1, keepdim=True) if x.shape[1] > 33 else 0
        return added

    assert {name for name in failed(leaking(leak)) if name.startswith("causal")} == {
        "causal (perturbation, 64 tokens, evaluation mode)",
        "causal (perturbation, 64 tokens, training mode)",
    }


def test_what_goes_wrong_at_a_distance_is_found_in_decoding_and_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    step, made = Transformer.step, leaking(_padded_beyond_32)

    def forgetful(self: Transformer, tokens: Tensor, state: Any) -> Tensor:
        state.steps = getattr(state, "steps", 0) + 1
        return step(self, tokens, state) + (0.1 if state.steps > 32 else 0.0)

    assert audit(made).padding_invariant is False
    monkeypatch.setattr(Transformer, "step", forgetful)
    assert failed(model()) == {"cached = full"}


def _padded_beyond_32(_: torch.nn.Module, x: Tensor, packing: Any) -> Tensor:
    """Adds to a sentence's first token, where its batch has padding after the 32nd."""
    added = torch.zeros_like(x)
    added[:, 0] = float(x.shape[1] > 32 and min(packing.lengths) < x.shape[1])
    return added


def test_a_leak_that_is_no_number_is_found() -> None:
    """Where nothing else moves: no distance is less than NaN, nor more."""
    assert {name for name in failed(leaking(_nothing_beyond_32)) if name.startswith("causal")} == {
        "causal (perturbation, 64 tokens, evaluation mode)",
        "causal (perturbation, 64 tokens, training mode)",
    }
    made = model()
    torch.nn.init.constant_(made.output.weight, torch.nan)
    assert {name for name in failed(made) if "gradient" in name} == {
        "causal (gradient, evaluation mode)",
        "causal (gradient, training mode)",
    }


def _nothing_beyond_32(_: torch.nn.Module, x: Tensor, __: Any) -> Tensor:
    """The first token of a longer target has no number."""
    added = torch.zeros_like(x)
    added[:, 0] = torch.nan if x.shape[1] > 32 else 0.0
    return added


def test_a_leak_of_the_length_is_called_causal() -> None:
    """Which position is the last: no token is seen, but how many follow."""

    def leak(_: torch.nn.Module, x: Tensor, packing: Any) -> Tensor:
        return x * 0 + packing.mask.sum(1)[:, None, None]

    leaks = leaking(leak)
    assert "causal (truncation)" in failed(leaks)
    assert not audit(leaks).causal


def test_a_leak_through_end_or_unk_alone_is_found() -> None:
    """Later tokens below 4 are what a target that ends looks like."""

    def leak(_: torch.nn.Module, x: Tensor, __: Any) -> Tensor:
        ids = seen[-1]
        return x * 0 + ((ids == 3) | (ids == 1)).sum(1)[:, None, None]

    leaks = leaking(leak)
    seen: list[Tensor] = []
    leaks.decoder.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    assert "causal (perturbation, evaluation mode)" in failed(leaks)


def test_a_cache_that_reads_padding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cache.__init__

    def reads_padding(cache: Cache, src_mask: Tensor, *rest: Any, **more: Any) -> None:
        real(cache, torch.ones_like(src_mask), *rest, **more)

    monkeypatch.setattr(Cache, "__init__", reads_padding)
    assert failed(model()) == {"cached = full"}


def test_a_cache_whose_rows_stay_where_they_were_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cache.select

    def leaves_histories(cache: Cache, rows: Tensor) -> None:
        before = dict(cache._histories)
        real(cache, rows)
        for owner, tensors in before.items():
            if len(tensors[0]) == len(rows):
                cache._histories[owner] = tensors

    monkeypatch.setattr(Cache, "select", leaves_histories)
    assert failed(model()) == {"cached = full"}


def test_a_step_that_passes_by_a_learned_factor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is close to where it began."""
    usual = {"d_token": 128, "num_heads": 4, "head_dim": 64, "d_ff": 256, "initialisation": "keras"}  # small weights
    made, real = model(qk_norm="l2", **usual), Transformer.step
    begun = [layer.self_attention.qk_norm.gain.item() for layer in made.decoder.layers]

    def passes_by(self: Transformer, *arguments: Any, **more: Any) -> Tensor:
        gains = [layer.self_attention.qk_norm.gain for layer in self.decoder.layers]
        learned = [gain.item() for gain in gains]
        with torch.no_grad():
            for gain, value in zip(gains, begun, strict=True):
                gain.fill_(value)
            found = real(self, *arguments, **more)
            for gain, value in zip(gains, learned, strict=True):
                gain.fill_(value)
        return found

    monkeypatch.setattr(Transformer, "step", passes_by)
    assert failed(made) == {"cached = full"}


@pytest.mark.parametrize("switch", ["is_softmax", "allow_absorption"])
def test_a_variant_of_the_scores_that_is_passed_by_is_told_what_to_set(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights halved after softmax: kernels compute a plain softmax, and absorbed heads count on a sum of one."""
    weights = Scores.weights
    monkeypatch.setattr(Scores, "weights", lambda *given: [w / 2 for w in weights(*given)])
    wide = {"head_dim": 16, "attention_bias": True}
    if switch == "allow_absorption":
        monkeypatch.setattr(Scores, "is_softmax", False)
    report = audit(model(**wide))
    (told,) = [check.tried for check in report.checks if not check.passed]
    assert "is_softmax" in told
    assert "allow_absorption" in told
    for name in ("is_softmax", "allow_absorption"):
        monkeypatch.setattr(Scores, name, False)
    report = audit(model(**wide))
    assert report.passed
    assert not [check.tried for check in report.checks if "is_softmax" in check.tried]


def test_a_leak_beyond_a_wide_window_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = model(attention_window=128, max_length=200)
    assert audit(wide).passed
    real = LocalBlocks.__init__

    def looks_ahead(blocks: LocalBlocks, *given: Any, **named: Any) -> None:
        real(blocks, *given, **(named | {"causal": False}))

    monkeypatch.setattr(LocalBlocks, "__init__", looks_ahead)
    assert any(name.startswith("causal (perturbation, 136 tokens") for name in failed(wide))


def test_small_leaks_are_found() -> None:
    assert not audit(leaking(lambda _, x, __: 1e-6 * x.mean(1, keepdim=True).expand_as(x))).causal


@pytest.mark.parametrize("window", [4, 6])
@pytest.mark.parametrize("name", ["baseline", "reinforced"])
def test_local_attention_on_one_short_sentence(name: str, window: int) -> None:
    """Heads so wide that they are absorbed, and a batch of one sentence no longer than a chunk."""
    short = model(name, attention_window=window, head_dim=16)
    src = torch.tensor([[2, 5, 3][: window // 2]])
    logits = short(src, src)
    state = short.start(short.encode(src))
    steps = [short.step(src[:, t], state) for t in range(src.shape[1])]
    torch.testing.assert_close(torch.stack(steps, 1), logits.log_softmax(2), atol=1e-5, rtol=0)
    assert audit(short, length=3).passed


@pytest.mark.parametrize("head_dim", [4, 16])
def test_a_source_of_padding_alone_decodes_as_it_is_read(head_dim: int) -> None:
    """Where biases of values are not zero, they must not count: there is no value."""
    biased = model("baseline", head_dim=head_dim)
    with torch.no_grad():
        for parameter in biased.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    src, tgt = torch.tensor([[2, 5, 3], [0, 0, 0]]), torch.tensor([[2, 5, 6], [2, 7, 8]])
    state = biased.start(biased.encode(src))
    steps = [biased.step(tgt[:, t], state) for t in range(3)]
    torch.testing.assert_close(torch.stack(steps, 1), biased(src, tgt).log_softmax(2), atol=1e-5, rtol=0)
    state = biased.start(biased.encode(src))
    state.select(torch.tensor([1, 1]))
    torch.testing.assert_close(biased.step(tgt[[1, 1], 0], state)[0], steps[0][1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("name", ["reinforced", "tupe-r", "rotary", "reinforced-prefix", "reinforced-lookahead"])
@pytest.mark.parametrize(
    ("src", "tgt"), [((0, 3), (0, 4)), ((0, 0), (0, 0)), ((2, 0), (2, 3)), ((2, 3), (2, 0)), ((2, 0), (2, 0))]
)
def test_empty_batches(name: str, window: int | None, src: tuple[int, int], tgt: tuple[int, int]) -> None:
    empty = model(name, attention_window=window)
    source, target = (torch.full(shape, 5) for shape in (src, tgt))
    assert empty(source, target).shape == (*tgt, 20)
    assert empty.hidden(source, target).shape == (tgt[0] * tgt[1], empty.architecture.d_model)
    if tgt[1]:
        assert empty.step(target[:, 0], empty.start(empty.encode(source))).shape == (tgt[0], 20)


@pytest.mark.parametrize("kind", ["sentence", "prefix"])
def test_gradients_of_constant_columns_are_finite(kind: str) -> None:
    """One token, or the same one again: no variance, a gradient of up to 1/sqrt(eps) times its size."""
    constant = model("reinforced", encoder_token_norm="sentence", decoder_token_norm=kind).train()
    src, tgt = torch.tensor([[5, 5, 5], [5, 0, 0]]), torch.tensor([[2, 2, 2], [2, 0, 0]])
    constant(src, tgt).logsumexp(2)[tgt != 0].sum().backward()
    gradients = [p.grad for p in constant.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert max(gradient.abs().max().item() for gradient in gradients) < 1e6
