import dataclasses
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from repose.config.experiment import TrainingConfig
from repose.data.dataset import PairDataset
from repose.model.architecture import DROPOUTS
from repose.model.kernels.beside import Beside
from repose.model.presets import PRESETS
from repose.model.transformer import Transformer, build
from repose.tasks.translation import TASK
from repose.training.distributed import World
from repose.training.feed import GlobalBatch
from repose.training.learner import FlatParameters, Learner, dropout_seed

ALONE = World(0, 1, torch.device("cpu"))


def learner(lab: Any, *, architecture: Any = None, world: World = ALONE, **training: Any) -> Learner:
    model = build(architecture or lab.still, src_vocab_size=12, tgt_vocab_size=12, seed=5)
    return Learner(TASK, model, TrainingConfig(**training), world)


def global_batch(lab: Any, *micro_batches: list[int]) -> GlobalBatch:
    """A global batch of these pairs, in as many micro-batches."""
    data = PairDataset.open(lab.train)
    indices = [index for examples in micro_batches for index in examples]
    made = tuple(
        TASK.micro_batch(data, np.array(examples), ALONE.device) if examples else None for examples in micro_batches
    )
    return GlobalBatch(made, len(indices), int(data.tgt_lengths[indices].sum()), last=False)


def test_random_numbers_of_other_devices_are_left_alone(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.manual_seed` is of every GPU, of a program's own random numbers, too."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    ours = learner(lab)
    ours.backward(global_batch(lab, [0, 1]), 0)
    assert not seeded
    assert torch.default_generator.initial_seed() == dropout_seed(ours.config.seed, 0, 0, 0)


def gradients(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


class Late(Beside):
    """As late as a GPU's stream of its own may be: its gradients were read when the first was asked for and are written
    when they are waited for, so that what is added meanwhile is lost."""

    def __init__(self, gradient: torch.Tensor) -> None:
        super().__init__(None, {})
        self._gradient, self._waiting = gradient, []

    def aside(self, compute: Callable[[], None], *_: torch.Tensor) -> None:
        if not self._waiting:
            self._before = self._gradient.clone()
        self._waiting.append(compute)

    @torch.no_grad()
    def join(self) -> None:
        if self._waiting:
            self._gradient.copy_(self._before)
        while self._waiting:
            self._waiting.pop(0)()


@pytest.mark.parametrize("training", [{}, {"r_drop": 1.0}], ids=str)
@pytest.mark.parametrize("name", ["reinforced", "transformer-tiny"])
def test_what_is_computed_beside_is_waited_for_before_others_are_added(
    name: str, training: dict[str, Any], lab: Any
) -> None:
    """To tables, which have both: of their rows, and of what is normalised or tied."""
    sizes = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
    architecture = dataclasses.replace(PRESETS[name].architecture, **sizes, **dict.fromkeys(DROPOUTS, 0.0))
    found = []
    for late in (False, True):
        ours = learner(lab, architecture=architecture, **training)
        if late:
            ours._beside = Late(ours._exchange.local)
        ours.backward(global_batch(lab, [0, 1], [2, 3, 4]), 0)
        found.append(gradients(ours.model))
    for key, wanted in found[0].items():
        torch.testing.assert_close(found[1][key], wanted, msg=key)


def test_what_is_computed_beside_is_waited_for_where_a_pass_fails() -> None:
    """A graph of a GPU that is being recorded cannot end with work that nobody waits for."""
    beside = Late(torch.zeros(1))
    with suppress(MemoryError), beside.active():
        beside.aside(lambda: None)
        raise MemoryError
    assert not beside._waiting


@pytest.mark.parametrize("tie", ["none", "output", "all"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_that_of_the_mean_loss_per_token(lab: Any, tie: str, smoothing: float) -> None:
    small = {"num_heads": 2, "head_dim": 4, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
    still = {"dropout": 0.0, "attention_output_dropout": 0.0}
    architecture = dataclasses.replace(
        PRESETS["vaswani-base"].architecture, d_token=8, tie_embeddings=tie, **small, **still
    )
    ours = learner(lab, architecture=architecture, label_smoothing=smoothing)
    plain = build(architecture, src_vocab_size=12, tgt_vocab_size=12, seed=5)
    batch = PairDataset.open(lab.train).batch(np.arange(6))
    src, tgt, labels = map(torch.from_numpy, batch)
    F.cross_entropy(
        plain(src, tgt).flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=smoothing
    ).backward()
    for pairs in ([6, 7, 8], range(6)):  # nothing of the first is left
        ours.backward(global_batch(lab, list(pairs)), 0)
    for name, wanted in gradients(plain).items():
        torch.testing.assert_close(gradients(ours.model)[name], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("micro_batches", [[[0, 1], [2, 3], [4, 5]], [[5, 0, 3], [], [1, 2, 4]]])
def test_accumulation_does_not_change_the_gradient(lab: Any, micro_batches: list[list[int]]) -> None:
    whole, split = learner(lab), learner(lab)
    whole.backward(global_batch(lab, list(range(6))), 0)
    split.backward(global_batch(lab, *micro_batches), 0)
    for name, wanted in gradients(whole.model).items():
        torch.testing.assert_close(gradients(split.model)[name], wanted, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(split.sums, whole.sums, rtol=1e-6, atol=0.0)


def test_parameters_are_updated_in_place_of_the_model(lab: Any) -> None:
    """The flat step is torch's Adam on the model's own parameters."""
    ours, plain = learner(lab, adam_eps=1e-3), build(lab.still, src_vocab_size=12, tgt_vocab_size=12, seed=5)
    adam = torch.optim.Adam(plain.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-3, fused=True)
    for number in range(3):
        ours.backward(global_batch(lab, [number, number + 1]), number)
        for name, parameter in plain.named_parameters():
            parameter.grad = gradients(ours.model)[name]
        ours.step(0.01)
        adam.step()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(dict(ours.model.named_parameters())[name], parameter, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kind", "factor"), [("decoupled", 1 - 0.1 * 0.5), ("l2", None)])
def test_weight_decay(lab: Any, kind: str, factor: float | None) -> None:
    ours = learner(lab, weight_decay=0.5, weight_decay_kind=kind)
    before = {name: parameter.detach().clone() for name, parameter in ours.model.named_parameters()}
    ours.step(0.1)  # no gradient yet: decay alone
    for name, parameter in ours.model.named_parameters():
        # L2 enters Adam as a gradient, whose size Adam normalises away: every weight moves by the learning rate.
        wanted = before[name] * factor if factor else before[name] - 0.1 * before[name].sign()
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-4, atol=1e-5)


def test_clipping(lab: Any) -> None:
    free, clipped = learner(lab), learner(lab, clip_norm=0.01)
    for each in (free, clipped):
        each.backward(global_batch(lab, [0, 1, 2]), 0)
    assert float(free.norm) == float(clipped.norm) > 0.01  # what is told is the norm before clipping
    for name, gradient in gradients(free.model).items():
        wanted = gradient * (0.01 / float(free.norm))
        torch.testing.assert_close(gradients(clipped.model)[name], wanted, rtol=1e-3, atol=1e-8)


def test_a_gradient_shorter_than_the_clip_stays_as_it_is(lab: Any) -> None:
    free, unclipped = learner(lab), learner(lab, clip_norm=1e3)
    for each in (free, unclipped):
        each.backward(global_batch(lab, [0, 1, 2]), 0)
    assert float(free.norm) < 1e3
    for name, gradient in gradients(free.model).items():
        assert torch.equal(gradients(unclipped.model)[name], gradient), name


def test_keras_figures_of_an_update_are_its_mean_times_its_sentences(lab: Any) -> None:
    ours, batch = learner(lab, label_smoothing=0.1), global_batch(lab, [0, 1], [2, 3, 4])
    ours.backward(batch, 0)
    loss, nll, _, keras_loss, keras_nll = ours.sums.tolist()
    assert (keras_loss, keras_nll) == pytest.approx((5 * loss / batch.tokens, 5 * nll / batch.tokens))


def test_each_part_of_an_update_has_its_own_dropout(lab: Any) -> None:
    losses = []
    for micro_batches in (([0, 1, 2, 3], []), ([], [0, 1, 2, 3])):
        dropping = learner(lab, architecture=lab.tiny)
        dropping.backward(global_batch(lab, *micro_batches), 0)
        losses.append(float(dropping.sums[0]))
    assert losses[0] != losses[1]


def test_dropout_depends_on_where_an_update_stands(lab: Any) -> None:
    """And on nothing that ran before it."""

    def loss(number: int, *, noise: int = 0, rank: int = 0, seed: int = 0) -> float:
        dropping = learner(lab, architecture=lab.tiny, world=World(rank, 1, ALONE.device), seed=seed)
        torch.rand(noise)
        dropping.backward(global_batch(lab, [0, 1, 2, 3]), number)
        return float(dropping.sums[0])

    assert loss(7) == loss(7, noise=3)
    assert len({loss(7), loss(8), loss(7, rank=1), loss(7, seed=1)}) == 4


def test_dropout_seeds_differ() -> None:
    seeds = {dropout_seed(s, u, p, r) for s in range(4) for u in range(20) for p in range(3) for r in range(3)}
    assert len(seeds) == 4 * 20 * 3 * 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len({seed % 2**32 for seed in seeds}) == len(seeds)  # the Mersenne twister takes 32 bits


def test_bf16_trains_fp32_weights(lab: Any) -> None:
    exact, rough = learner(lab), learner(lab, precision="bf16")
    for each in (exact, rough):
        each.backward(global_batch(lab, list(range(12))), 0)
    assert float(exact.sums[0]) != float(rough.sums[0])
    assert float(rough.sums[0]) == pytest.approx(float(exact.sums[0]), rel=1e-2)
    assert float(rough.norm) == pytest.approx(float(exact.norm), rel=0.05)
    assert {tensor.dtype for tensor in rough.tensors().values()} == {torch.float32}


def test_gradients_added_at_once_are_those_added_one_by_one() -> None:
    """As on a GPU. One parameter has no part in the loss, another a gradient that lies in memory by columns."""
    torch.manual_seed(0)
    model = nn.ParameterDict({name: nn.Parameter(torch.randn(3, 4)) for name in ("a", "b", "unused")})
    flat = FlatParameters(model)
    weights, gradient, x = torch.zeros(flat.size), torch.zeros(flat.size), torch.randn(4, 3)
    flat.use(weights, gradient)
    found = []
    for beside in (None, Beside(None, {})):
        gradient.zero_()
        for _ in range(2):
            flat.backward((x @ model["a"]).square().sum() + (model["b"].T * x).exp().sum(), beside)
        found.append(gradient.clone())
    assert found[0].any()
    assert torch.equal(*found)


@pytest.mark.usefixtures("no_collection")
def test_a_learner_is_gone_with_its_last_name(lab: Any) -> None:
    """Its memory is not left to the collector, which does not know of a GPU's."""
    job = lab.job()
    learner = Learner(job.task, job.task.build(job), job.training, ALONE)
    its = weakref.ref(learner)
    del learner
    assert its() is None
