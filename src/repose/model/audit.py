"""Is a model what it claims to be? Causality, padding and cache checks of any model, by trying.

Each check changes something that must not matter and says by how much the logits moved. A translation model whose
target positions see later ones reaches a low teacher-forced loss and cannot translate (docs/decisions): no number
from a model that fails here should be compared with one from a model that passes.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from repose.model.transformer import Transformer

TOLERANCE = 1e-4
"""Largest movement of a logit, log-probability (nats) or gradient that counts as rounding."""


@dataclass(frozen=True)
class Check:
    """One thing tried."""

    name: str
    tried: str
    """What was changed, and what should have stayed."""
    moved: float
    """Largest absolute movement (of a logit, log-probability or gradient)."""
    passed: bool


@dataclass(frozen=True)
class AuditReport:
    """What an audit found."""

    checks: tuple[Check, ...]
    looks_ahead: bool
    """Whether the architecture says of itself that it looks ahead."""

    def _passed(self, prefix: str) -> bool:
        return all(check.passed for check in self.checks if check.name.startswith(prefix))

    @property
    def causal(self) -> bool:
        """No target position sees a later target token, neither in evaluation nor in training mode."""
        return self._passed("causal")

    @property
    def padding_invariant(self) -> bool:
        """A sentence gives the same logits alone and beside longer ones."""
        return self._passed("padding")

    @property
    def cached_equals_full(self) -> bool:
        """Decoding step by step gives the log-probabilities of one pass over the whole target."""
        return self._passed("cached")

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


def audit(model: Transformer, *, seed: int = 0, length: int = 12) -> AuditReport:
    """Tries the model on random tokens, on a copy in float64, so that what moves is structure and not rounding.

    `length` is the target length in tokens (at least 3).
    """
    a = model.architecture
    model = copy.deepcopy(model).double().eval()
    length = max(3, min(length, a.max_length - 2))
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device

    def random(batch: int, length: int, vocab_size: int) -> Tensor:
        ids = torch.randint(4, max(vocab_size, 5), (batch, length), generator=generator)
        return ids.clamp(max=vocab_size - 1).to(device)

    src, tgt = random(3, length + 2, model.src_vocab_size), random(3, length, model.tgt_vocab_size)
    src[:, 0], tgt[:, 0] = 2, 2
    with torch.random.fork_rng(devices=[]):
        checks = (
            _perturbation(model, src, tgt, random(3, length, model.tgt_vocab_size)),
            _gradient(model, src, tgt, training=False),
            _gradient(model, src, tgt, training=True),
            _padding(model, src, tgt),
            _cache(model, src, tgt),
        )
    return AuditReport(checks, a.looks_ahead)


def _check(name: str, tried: str, moved: float) -> Check:
    return Check(name, tried, moved, moved <= TOLERANCE)  # false for NaN


@torch.no_grad()
def _perturbation(model: Transformer, src: Tensor, tgt: Tensor, other: Tensor) -> Check:
    before, moved = model(src, tgt), 0.0
    for s in range(1, tgt.shape[1]):
        changed = tgt.clone()
        changed[:, s] = torch.where(other[:, s] == tgt[:, s], torch.full_like(tgt[:, s], 3), other[:, s])
        moved = max(moved, _distance(model(src, changed)[:, :s], before[:, :s]))
    return _check(
        "causal (perturbation)",
        f"each of {tgt.shape[1] - 1} later target tokens changed, earlier logits compared",
        moved,
    )


def _gradient(model: Transformer, src: Tensor, tgt: Tensor, *, training: bool) -> Check:
    model.train(training)
    embedded: list[Tensor] = []
    handle = model.decoder.embedding.tokens.register_forward_hook(lambda *call: embedded.append(call[2]))
    try:
        torch.manual_seed(0)
        logits = model(src, tgt)
    finally:
        handle.remove()
    batch, length = tgt.shape
    moved = 0.0
    for t in range(length - 1):
        # A weighted sum: the plain sum of logits after a norm can have a vanishing gradient.
        weights = torch.linspace(-1, 1, logits.shape[2]).to(logits)
        (gradient,) = torch.autograd.grad((logits[:, t] @ weights).sum(), embedded[0], retain_graph=True)
        moved = max(moved, _distance(gradient.unflatten(0, (batch, length))[:, t + 1 :], torch.zeros(())))
    mode = "training" if training else "evaluation"
    model.eval()
    return _check(
        f"causal (gradient, {mode} mode)",
        f"gradient of each logit row in the {length} token embeddings after it",
        moved,
    )


@torch.no_grad()
def _padding(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """The first sentence shortened and padded, beside longer ones, against alone."""
    s, t = max(1, src.shape[1] // 2), max(1, tgt.shape[1] // 2)
    padded_src, padded_tgt = src.clone(), tgt.clone()
    padded_src[0, s:], padded_tgt[0, t:] = 0, 0
    together = model(padded_src, padded_tgt)[:1, :t]
    alone = model(src[:1, :s], tgt[:1, :t])
    return _check(
        "padding", "a sentence beside longer ones, against the same sentence alone", _distance(together, alone)
    )


@torch.no_grad()
def _cache(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    full = model(src, tgt).log_softmax(dim=2)
    state = model.start(model.encode(src))
    steps = [model.step(tgt[:, t], state) for t in range(tgt.shape[1])]
    return _check(
        "cached = full",
        f"{tgt.shape[1]} tokens decoded one by one, against one pass",
        _distance(torch.stack(steps, 1), full),
    )


def _distance(a: Tensor, b: Tensor) -> float:
    return (a - b.to(a)).abs().max().item()
