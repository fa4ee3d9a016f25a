"""How spread out attention is, in numbers: what "more diverse" means in arXiv 2310.10930, 3.4."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from repose.plots.attention_maps import Maps


@dataclass(frozen=True)
class AttentionNumbers:
    """One head's weights a_ij, or the mean over a layer's heads, over the rows that see two keys or more."""

    entropy: float
    """Mean of -sum_j a_ij ln a_ij, in nats."""
    normalised_entropy: float
    """Mean of the same over ln of the number of keys that the row may give weight to: 0 all on one, 1 on all alike."""
    diagonal: float | None
    """Mean of a_ii, what a token gives itself; None in cross-attention."""


def head_numbers(maps: Maps, layer: int) -> list[AttentionNumbers]:
    """Each head of a layer (from 0). NaN where no row sees two keys."""
    return numbers_of(maps.layers[layer], maps)


def numbers_of(weights: Float[Tensor, "H Q K"], maps: Maps) -> list[AttentionNumbers]:
    """Those of each of some weights where queries see keys as in `maps`."""
    entropy, normalised = row_entropy(weights, maps.visible)
    rows = maps.visible.sum(1) >= 2
    diagonal = weights.diagonal(dim1=1, dim2=2)[:, rows].double().mean(1) if maps.kind != "cross" else None
    return [
        AttentionNumbers(
            entropy[head].mean().item(),
            normalised[head].mean().item(),
            None if diagonal is None else diagonal[head].item(),
        )
        for head in range(len(weights))
    ]


def mean_numbers(heads: list[AttentionNumbers]) -> AttentionNumbers:
    """The mean over heads."""
    diagonals = [head.diagonal for head in heads if head.diagonal is not None]
    return AttentionNumbers(
        sum(head.entropy for head in heads) / len(heads),
        sum(head.normalised_entropy for head in heads) / len(heads),
        sum(diagonals) / len(heads) if diagonals else None,
    )


def row_entropy(
    weights: Float[Tensor, "H Q K"], visible: Bool[Tensor, "Q K"]
) -> tuple[Float[Tensor, "H R"], Float[Tensor, "H R"]]:
    """Entropy in nats, and over its largest value, of the R rows that see two keys or more.

    Rows that do not sum to one (`zero_weights`) are divided by their sum first.
    """
    num_keys = visible.sum(1)
    rows = num_keys >= 2
    shares = weights[:, rows].double()
    shares = shares / shares.sum(2, keepdim=True)
    entropy = torch.special.entr(shares).sum(2)
    return entropy, entropy / num_keys[rows].double().log()
