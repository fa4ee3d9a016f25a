"""Check by experiment that a model is causal, ignores padding, and decodes with a correct cache.

Each check changes something that must not matter, and reports by how much the logits moved. A translation model whose
target positions see later ones reaches a low teacher-forced loss and cannot translate (docs/decisions). So no number
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
"""Largest movement of a log-probability while decoding, in float32, that counts as rounding."""
LONG = 64
"""Tokens of the second, longer target, which finds errors that appear only at some distance. The target has more tokens
if local attention's window is wider."""
MARGIN = 8
"""Number of tokens by which the longer target exceeds that window."""
SWITCHES = (
    "where model/scores.py was changed, see that is_softmax is False of what is no softmax, or kernels pass the change "
    "by, and allow_absorption of weights that do not sum to one"
)
"""Advice for a failed cache check: what a variant of the scores most easily forgets."""
NOISE, NOISE_OF_EQUAL = 0.01, 0.1
"""Standard deviations of the noise added to weights, and to weights that are all equal, such as gains and gates before
training. With factors of 0 or 1, an error in applying them, or in what they multiply, would go unnoticed."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    tried: str
    """What was changed, and what should have stayed the same."""
    moved: float
    """Largest absolute movement of a logit, log-probability or gradient."""
    passed: bool


@dataclass(frozen=True)
class AuditReport:
    """The results of an audit."""

    checks: tuple[Check, ...]
    looks_ahead: bool
    """True if the architecture itself says that it looks ahead."""

    def __repr__(self) -> str:
        passed = sum(check.passed for check in self.checks)
        failed = "".join(f", {check.name} failed" for check in self.checks if not check.passed)
        return f"<repose.AuditReport: {passed} of {len(self.checks)} checks passed{failed}>"

    def _passed(self, prefix: str) -> bool:
        return all(check.passed for check in self.checks if check.name.startswith(prefix))

    @property
    def causal(self) -> bool:
        """True if no target position sees a later target token, or the number of later tokens.

        Checked in evaluation mode and in training mode.
        """
        return self._passed("causal")

    @property
    def padding_invariant(self) -> bool:
        """True if a sentence gives the same logits alone and next to longer ones."""
        return self._passed("padding")

    @property
    def cached_equals_full(self) -> bool:
        """True if step-by-step decoding gives the same log-probabilities as one pass over the whole target."""
        return self._passed("cached")

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return all(check.passed for check in self.checks)


def audit(model: Transformer, *, seed: int = 0, length: int = 12) -> AuditReport:
    """Check a model on random tokens.

    The checks run on a copy in float64 with some noise in its weights. So what moves the logits is the model's
    structure, not rounding, and no leak is hidden by weights that happen to be 0, as some are before training.

    `length`: the target length in tokens, at least 3; shortened to what the model accepts. A second target has `LONG`
    tokens, or more than fit into a window of local attention, or as many as the model accepts.

    Raises ConfigError for a model that reads fewer than 3 tokens or is in int8, for anything that is not a translation
    model (such as a preset's name), and for an invalid seed or length.
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
    """Run all checks on a model in float64 whose parameters require gradients."""
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
    return Check(name, tried, moved, moved <= tolerance)  # False for NaN


def _mode(training: bool) -> str:
    return "training mode" if training else "evaluation mode"


@torch.no_grad()
def _perturbation(model: Transformer, src: Tensor, tgt: Tensor, every: int, *, training: bool) -> Check:
    """Change every `every`-th target token and, if that is not each token, all tokens after it.

    The first sentence gets other words, the second UNK and the third END. In training mode, where dropout is the same
    before and after, three changes are made instead: all tokens after the first, all after the middle, and the last.
    """
    length = tgt.shape[1]
    other = torch.where(tgt > END + 1, tgt - 1, tgt + 1).clamp(max=model.tgt_vocab_size - 1)
    other = torch.where(other == tgt, UNK, other)  # a vocabulary of one word has no other word
    other[1], other[2] = UNK, END
    cuts = sorted({1, length // 2, length - 1}) if training else list(range(1, length, every))
    variants = []
    for s in cuts:
        end = s + 1 if every == 1 and not training else length
        variants.append(torch.cat([tgt[:, :s], other[:, s:end], tgt[:, end:]], dim=1))
    model.train(training)
    if training or length > LONG:  # their logits may be too many to hold at once
        after = []
        for ids in (tgt, *variants):
            torch.default_generator.manual_seed(0)
            after.append(model(src, ids))
    else:  # all variants in one batch
        ids = torch.cat([tgt, *variants])
        after = list(model(src.repeat(len(ids) // len(src), 1), ids).split(len(src)))
    model.eval()
    moved = _largest(_distance(x[:, :s], after[0][:, :s]) for s, x in zip(cuts, after[1:], strict=True))
    name = "perturbation" if every == 1 else f"perturbation, {length} tokens"
    tried = f"later ones of {length} target tokens changed in {len(cuts)} ways, earlier logits compared"
    return _check(f"causal ({name}, {_mode(training)})", tried, moved)


@torch.no_grad()
def _truncation(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """Cut the targets short: earlier logits must not depend on later tokens, nor on their number."""
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
        # A weighted sum: after a norm, the plain sum of the logits can have a vanishing gradient.
        weights = torch.linspace(-1, 1, logits.shape[2]).to(logits)
        (gradient,) = torch.autograd.grad((logits[:, t] @ weights).sum(), embedded[0], retain_graph=True)
        of_tokens = gradient[: batch * length].unflatten(0, (batch, length))
        distances.append(_distance(of_tokens[:, t + 1 :], torch.zeros(())))
    model.eval()
    tried = f"gradient of each logit row with respect to later ones of {length} token embeddings"
    return _check(f"causal (gradient, {_mode(training)})", tried, _largest(distances))


@torch.no_grad()
def _padding(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """Shorten and pad the first sentence of a batch, and compare it with the same sentence alone."""
    s, t = max(1, src.shape[1] // 2), max(1, tgt.shape[1] // 2)
    padded_src, padded_tgt = src.clone(), tgt.clone()
    padded_src[0, s:], padded_tgt[0, t:] = PAD, PAD
    beside = model(padded_src, padded_tgt)[:1, :t]
    alone = model(src[:1, :s], tgt[:1, :t])
    return _check("padding", "a sentence beside longer ones, against the same sentence alone", _distance(beside, alone))


@torch.no_grad()
def _cache(model: Transformer, src: Tensor, tgt: Tensor) -> Check:
    """Decode three sentences, the first one shorter, and repeat and reorder their rows as a beam search does."""
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
    explained = check.passed or model.architecture.looks_ahead
    return check if explained else dataclasses.replace(check, tried=f"{tried}; {SWITCHES}")


def _distance(a: Tensor, b: Tensor) -> float:
    return (a - b.to(a)).abs().max().item()


def _largest(distances: Iterable[float]) -> float:
    """Return the largest distance, or NaN if there is one. (Python's `max` may miss NaN.)"""
    return torch.tensor(list(distances)).max().item()
