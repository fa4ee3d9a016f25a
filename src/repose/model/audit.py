"""Is a model what it claims to be? Causality, padding and cache checks of any model, by trying.

Each check changes something that must not matter and says by how much the logits moved. A translation model whose
target positions see later ones reaches a low teacher-forced loss and cannot translate (docs/decisions): no number
from a model that fails here should be compared with one from a model that passes.
"""

import copy
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from repose.model.kernels.linear import is_quantized
from repose.model.transformer import Transformer
from repose.system.device import own_defaults
from repose.system.errors import ConfigError
from repose.system.numbers import checked_seed, is_whole
from repose.system.token_ids import END, PAD, START, UNK

TOLERANCE = 1e-9
"""Largest movement of a logit or gradient, in float64, that counts as rounding."""
CACHE_TOLERANCE = 3e-5
"""The same for log-probabilities of decoding, which are float32."""
LONG = 64
"""Tokens of a second, longer target, for what goes wrong at some distance only: at least so many, and more than a
local attention's window has."""
MARGIN = 8
"""Tokens beyond that window."""
SWITCHES = (
    "where model/scores.py was changed, see that is_softmax is False of what is no softmax, or kernels pass the change "
    "by, and allow_absorption of weights that do not sum to one"
)
"""What a variant of the scores forgets most easily."""
NOISE, NOISE_OF_EQUAL = 0.01, 0.1
"""Deviation of what is added to the weights, and to those that are all equal, as gains and gates are before training:
what passes by one of 0 or 1 would not be seen."""


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

    def __repr__(self) -> str:
        passed = sum(check.passed for check in self.checks)
        failed = "".join(f", {check.name} failed" for check in self.checks if not check.passed)
        return f"<repose.AuditReport: {passed} of {len(self.checks)} checks passed{failed}>"

    def _passed(self, prefix: str) -> bool:
        return all(check.passed for check in self.checks if check.name.startswith(prefix))

    @property
    def causal(self) -> bool:
        """No target position sees a later target token, nor how many there are, in evaluation as in training mode."""
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
    """Tries the model on random tokens, on a copy in float64 with some noise in its weights, so that what moves is
    structure: not rounding, and not hidden by weights that happen to be 0, as some are before training.

    `length` is the target length in tokens (at least 3, and cut to what the model takes); a second target has `LONG` or
    more than fit into a window of local attention, or as many as the model takes.

    Raises ConfigError for a model that reads fewer than 3 tokens or is in int8, for what is no model that translates,
    such as a preset's name, and for a seed or length that there is not.
    """
    seed = checked_seed(seed)
    if not is_whole(length) or length < 3:
        raise ConfigError(f"length = {length!r}: give a whole number of tokens, at least 3")
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"audit takes a model that translates, not {model!r}: give it repose.build(name, ...), or "
            "repose.load(folder).model"
        )
    if is_quantized(model):
        raise ConfigError("audit computes in float64, which a model in int8 cannot: load it without precision")
    a = model.architecture
    if a.max_length < 3:
        raise ConfigError(f"this model is too short to audit: it reads at most {a.max_length} of the 3 tokens needed")
    with own_defaults(), torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        tried = copy.deepcopy(model).cpu().double().requires_grad_().eval()
        _add_noise(tried, seed)
        checks = _checks(tried, seed, length)
    return AuditReport(checks, a.looks_ahead)


@torch.no_grad()
def _add_noise(model: Transformer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weights in model.parameters():
        noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
        weights.add_(noise, alpha=NOISE_OF_EQUAL if bool((weights == weights.flatten()[0]).all()) else NOISE)


def _checks(model: Transformer, seed: int, length: int) -> tuple[Check, ...]:
    """Of a model in float64, whose gradients are there."""
    a = model.architecture
    length = max(3, min(int(length), a.max_length - 2))
    generator = torch.Generator().manual_seed(seed)

    def random(batch: int, length: int, vocab_size: int) -> Tensor:
        ids = torch.randint(END + 1, max(vocab_size, END + 2), (batch, length), generator=generator)
        return ids.clamp(max=vocab_size - 1)

    def pairs(batch: int, length: int) -> tuple[Tensor, Tensor]:
        src = random(batch, min(length + 2, a.max_length), model.src_vocab_size)
        tgt = random(batch, length, model.tgt_vocab_size)
        src[:, 0], tgt[:, 0] = START, START
        return src, tgt

    src, tgt = pairs(3, length)
    long = max(LONG, (a.attention_window or 0) + MARGIN)
    long_src, long_tgt = pairs(3, max(length, min(long, a.max_length - 2)))
    return (
        *(_perturbation(model, src, tgt, 1, training=training) for training in (False, True)),
        *(_perturbation(model, long_src, long_tgt, long // 8, training=training) for training in (False, True)),
        _truncation(model, src, tgt),
        *(_gradient(model, src, tgt, training=training) for training in (False, True)),
        _padding(model, long_src, long_tgt),
        _cache(model, long_src, long_tgt),
    )


def _check(name: str, tried: str, moved: float, tolerance: float = TOLERANCE) -> Check:
    return Check(name, tried, moved, moved <= tolerance)  # false for NaN


def _mode(training: bool) -> str:
    return "training mode" if training else "evaluation mode"


@torch.no_grad()
def _perturbation(model: Transformer, src: Tensor, tgt: Tensor, every: int, *, training: bool) -> Check:
    """Changes every `every`-th target token and, where that is not each one, all that follow it.

    The first sentence gets other words, the second UNK and the third END. In training mode, where dropout falls
    alike before and after, the last token is changed, then all but the first, then all after the middle.
    """
    length = tgt.shape[1]
    other = torch.where(tgt > END + 1, tgt - 1, tgt + 1).clamp(max=model.tgt_vocab_size - 1)
    other = torch.where(other == tgt, UNK, other)  # of a vocabulary of one word there is no other
    other[1], other[2] = UNK, END
    cuts = sorted({1, length // 2, length - 1}) if training else list(range(1, length, every))
    variants = []
    for s in cuts:
        end = s + 1 if every == 1 and not training else length
        variants.append(torch.cat([tgt[:, :s], other[:, s:end], tgt[:, end:]], dim=1))
    model.train(training)
    if training or length > LONG:  # whose logits may be too many to have at once
        after = []
        for ids in (tgt, *variants):
            torch.default_generator.manual_seed(0)
            after.append(model(src, ids))
    else:  # all at once
        ids = torch.cat([tgt, *variants])
        after = list(model(src.repeat(len(ids) // len(src), 1), ids).split(len(src)))
    model.eval()
    moved = _largest(_distance(x[:, :s], after[0][:, :s]) for s, x in zip(cuts, after[1:], strict=True))
    name = "perturbation" if every == 1 else f"perturbation, {length} tokens"
    tried = f"later ones of {length} target tokens changed in {len(cuts)} ways, earlier logits compared"
    return _check(f"causal ({name}, {_mode(training)})", tried, moved)


@torch.no_grad()
def _truncation(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """Cuts the targets: what follows must not be felt, be it by its number alone."""
    before, cuts = model(src, tgt), sorted({1, tgt.shape[1] // 2, tgt.shape[1] - 1})
    moved = _largest(_distance(model(src, tgt[:, :t]), before[:, :t]) for t in cuts)
    tried = f"{tgt.shape[1]} target tokens cut to {', '.join(map(str, cuts))}, logits compared"
    return _check("causal (truncation)", tried, moved)


def _gradient(model: Transformer, src: Tensor, tgt: Tensor, *, training: bool) -> Check:
    model.train(training)
    embedded: list[Tensor] = []
    handle = model.decoder.embedding.tokens.register_forward_hook(lambda *call: embedded.append(call[2]))
    try:
        torch.default_generator.manual_seed(0)
        logits = model(src, tgt)
    finally:
        handle.remove()
    batch, length = tgt.shape
    distances = []
    for t in range(length - 1):
        # A weighted sum: the plain sum of logits after a norm can have a vanishing gradient.
        weights = torch.linspace(-1, 1, logits.shape[2]).to(logits)
        (gradient,) = torch.autograd.grad((logits[:, t] @ weights).sum(), embedded[0], retain_graph=True)
        of_tokens = gradient[: batch * length].unflatten(0, (batch, length))
        distances.append(_distance(of_tokens[:, t + 1 :], torch.zeros(())))
    model.eval()
    tried = f"gradient of each logit row in the {length} token embeddings after it"
    return _check(f"causal (gradient, {_mode(training)})", tried, _largest(distances))


@torch.no_grad()
def _padding(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """The first sentence shortened and padded, beside longer ones, against alone."""
    s, t = max(1, src.shape[1] // 2), max(1, tgt.shape[1] // 2)
    padded_src, padded_tgt = src.clone(), tgt.clone()
    padded_src[0, s:], padded_tgt[0, t:] = PAD, PAD
    beside = model(padded_src, padded_tgt)[:1, :t]
    alone = model(src[:1, :s], tgt[:1, :t])
    return _check("padding", "a sentence beside longer ones, against the same sentence alone", _distance(beside, alone))


@torch.no_grad()
def _cache(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """Three sentences, the first shorter than the others, whose rows are repeated and reordered as a beam's are."""
    src = src.clone()
    src[0, max(1, src.shape[1] // 2) :] = PAD
    full = model(src, tgt).log_softmax(dim=2)
    state, distances = model.start(model.encode(src)), []
    sentences = torch.arange(len(src), device=src.device)
    for t in range(tgt.shape[1]):
        distances.append(_distance(model.step(tgt[sentences, t], state), full[sentences, t]))
        rows = torch.tensor([2, 0, 0, 1] if t == 0 else [3, 1, 2, 0], device=src.device)
        state.select(rows)
        sentences = sentences[rows]
    tried = f"{tgt.shape[1]} tokens decoded one by one, their rows reordered, against one pass"
    moved = _largest(distances)
    check = _check("cached = full", tried, moved, CACHE_TOLERANCE)
    return check if check.passed else dataclasses.replace(check, tried=f"{tried}; {SWITCHES}")


def _distance(a: Tensor, b: Tensor) -> float:
    return (a - b.to(a)).abs().max().item()


def _largest(distances: Iterable[float]) -> float:
    """NaN where one is, which Python's `max` may pass by."""
    return torch.tensor(list(distances)).max().item()
