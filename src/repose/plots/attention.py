"""What a trained model attends to when it translates a sentence: weights, labels, and how widely they spread."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from repose.decoding.load import load
from repose.decoding.translator import Translator
from repose.model.architecture import Architecture
from repose.system.errors import ConfigError, DataError
from repose.system.token_ids import END, START

Kind: TypeAlias = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LONGEST_LABEL = 16
"""How many characters of a token to show."""


@dataclass(frozen=True)
class AttentionNumbers:
    """Statistics of one head's weights a_ij, or their mean over a layer's heads, on rows that see two keys or more."""

    entropy: float
    """Mean of -sum_j a_ij ln a_ij, in nats."""
    normalised_entropy: float
    """Mean of each row's entropy divided by ln of its number of visible keys: 0 for one key, 1 for uniform weights."""
    diagonal: float | None
    """Mean of a_ii, a token's weight on itself; None in cross-attention."""


@dataclass(frozen=True)
class Maps:
    """One kind of attention of one model on one sentence pair."""

    kind: Kind
    layers: tuple[Float[Tensor, "H Q K"], ...]
    """Weights of each layer."""
    queries: tuple[str, ...]
    """Row labels: the attending token; in cross-attention, the token that the row predicts."""
    keys: tuple[str, ...]
    """Column labels: the token attended to."""
    visible: Bool[Tensor, "Q K"]
    """Which keys a query may attend to."""

    def numbers_of(self, weights: Float[Tensor, "H Q K"]) -> list[AttentionNumbers]:
        """Return the statistics of each head's weights; NaN if no row sees two keys."""
        entropy, normalised = row_entropy(weights, self.visible)
        own: list[float | None] = [None] * len(weights)
        if self.kind != "cross":
            own = weights.diagonal(dim1=1, dim2=2)[:, self.visible.sum(1) >= 2].double().mean(1).tolist()
        return list(map(AttentionNumbers, entropy.mean(1).tolist(), normalised.mean(1).tolist(), own))


@dataclass(frozen=True)
class Reading:
    """A model's attention on one sentence and its translation."""

    name: str
    """The model's name in titles."""
    sentence: str
    target: str
    maps: dict[Kind, Maps]


def read(folder: Path, sentence: str, target: str | None = None, to: str | None = None) -> Reading:
    """Translate a sentence, unless `target` is given, and return all attention weights. `to`: as for
    `Translator.translate`.

    Raises ConfigError for an empty sentence, DataError for one that is too long or that the model translates to
    nothing, CheckpointError for a folder without a model.
    """
    if not sentence.strip() or (target is not None and not target.strip()):
        raise ConfigError("there is nothing to attend to in an empty sentence: give one with words in it")
    with load(folder, workers=1, engine="torch") as translator:
        (src,) = translator.encode([sentence], to=to)
        tgt = _target(translator, sentence, target, to)
        longest, limit = max(len(src), len(tgt) - 1), translator.model.architecture.max_length
        if longest > limit:
            raise DataError(
                f"the sentence or its translation has {longest} tokens, but the model reads at most {limit}: "
                "give a shorter one"
            )
        with torch.no_grad():
            found = translator.model.attention(torch.tensor([src]), torch.tensor([tgt[:-1]]))
    src_labels, tgt_labels = (
        tuple(label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…" for label in labels)
        for labels in (translator.src_tokenizer.labels(src), translator.tgt_tokenizer.labels(tgt))
    )
    a, (n, m) = translator.model.architecture, (len(src), len(tgt) - 1)
    encoder, decoder, cross = (tuple(layer[0] for layer in one) for one in (found.encoder, found.decoder, found.cross))
    maps = (
        Maps("encoder", encoder, src_labels, src_labels, visible_keys(a, n, causal=False)),
        Maps("decoder", decoder, tgt_labels[:-1], tgt_labels[:-1], visible_keys(a, m, causal=True)),
        Maps("cross", cross, tgt_labels[1:], src_labels, torch.ones(m, n, dtype=torch.bool)),
    )
    return Reading(_name(folder), sentence, translator.tgt_tokenizer.decode(tgt), {one.kind: one for one in maps})


def visible_keys(a: Architecture, length: int, *, causal: bool) -> Bool[Tensor, "L L"]:
    """Return which tokens each token may attend to in self-attention: all, or those up to itself (`causal`), within the
    window; with `exclude` or `zero_weights`, not itself."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if a.attention_window is not None:
        seen = seen & (distance.abs() <= a.attention_window // 2)
    if a.self_score in ("exclude", "zero_weights"):
        seen = seen & (distance != 0)
    return seen


def _target(translator: Translator, sentence: str, target: str | None, to: str | None) -> list[int]:
    """Return the ids, START to END, of the given target or of the model's translation (without END if unfinished)."""
    if target is not None:
        return translator.tgt_tokenizer.encode(target)
    (translation,) = translator.translate([sentence], to=to)
    if not translation.hypotheses or not translation.hypotheses[0].tokens:
        raise DataError("the model translates this sentence to nothing: give a translation with --target")
    found = translation.hypotheses[0]
    return [START, *translator.tgt_tokenizer.ids(found.tokens), *[END] * found.finished]


def _name(folder: Path) -> str:
    """Return a run's name: its folder's name, or the parent's if the folder is called `model`."""
    whole = folder.absolute()
    return whole.parent.name if whole.name == "model" else whole.name


def mean_numbers(heads: list[AttentionNumbers]) -> AttentionNumbers:
    """Return the mean over heads."""
    diagonals = [head.diagonal for head in heads if head.diagonal is not None]
    return AttentionNumbers(
        fmean(head.entropy for head in heads),
        fmean(head.normalised_entropy for head in heads),
        fmean(diagonals) if diagonals else None,
    )


def row_entropy(
    weights: Float[Tensor, "H Q K"], visible: Bool[Tensor, "Q K"]
) -> tuple[Float[Tensor, "H R"], Float[Tensor, "H R"]]:
    """Return the entropy in nats, and as a share of its maximum, of the R rows that see at least two keys.

    Rows that do not sum to one (`zero_weights`) are divided by their sum first.
    """
    num_keys = visible.sum(1)
    rows = num_keys >= 2
    shares = weights[:, rows].double()
    shares = shares / shares.sum(2, keepdim=True)
    entropy = torch.special.entr(shares).sum(2)
    return entropy, entropy / num_keys[rows].double().log()
