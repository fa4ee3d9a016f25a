"""From products of queries and keys to attention weights: the axes `self_score` and `score_residual`.

Attention over whole sentences and attention while decoding both call `Scores.weights`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor, nn

from repose.model.architecture import Architecture, ScoreResidual, SelfScore


@dataclass(kw_only=True)
class KeyMask:
    """The mask of one block of queries and keys, as far as attention weights depend on it."""

    has_key: Tensor | None
    """0 for a query that may attend to no key, 1 for others; None if every query has a key."""
    own: Tensor | None
    """In self-attention, True where a key is the query's own token."""


class Reach:
    """Which queries meet which keys, in the layers of one stack: `Blocks`, `LocalBlocks`, or one step of decoding."""

    blocks: Sequence[KeyMask]
    """The masks of the blocks, one for each tensor of scores."""
    scores: list[Tensor] | None = None
    """Scores of the layer before, block by block, where attention adds them to its own (RealFormer). Each forward pass
    makes one `Reach` for each chain of layers."""


class Scores(nn.Module):
    """The step from scores to attention weights, between Q K^T and the mean of values.

    It is a module, so that a variant may have weights here. The scores given to `weights` are already scaled and
    masked, and include what positions add. Then, in this order:

        score_residual   S_l = Q K^T / sqrt(C) + S_(l-1), softmax(S_l): adds the scores of the layer before, and hands
                         the sum on to the next layer (RealFormer, He et al. 2021, arXiv 2012.11747)
        self_score       changes a token's score of itself, S_ii, around the softmax:
                         keep          S_ii stays as it is
                         zero          S_ii = 0 (arXiv 2310.10930, 3.4: "zero masked self-attention"; its attention
                                       score is the dot product of its section 2.4)
                         exclude       S_ii = -inf
                         zero_weights  weight 0 after the softmax, so that the weights do not sum to 1

    Differs from the paper's wording (`self_score`): it sets the "subdiagonal" to zero, but its example ('I' to 'I') and
    its Fig. 7 mean the main diagonal, a token's score of itself.

    A new value of these axes must be reported in `is_softmax`, and in `allow_absorption` if weights no longer sum to
    one. Otherwise attention takes a faster way that never calls `weights`.
    """

    def __init__(self, a: Architecture, *, of_self: bool) -> None:
        """`of_self`: True in self-attention, where a query's own token is among the keys."""
        super().__init__()
        self.self_score: SelfScore = a.self_score if of_self else "keep"
        self.adds_layer_before = _adds_layer_before(a.score_residual)

    @property
    def is_softmax(self) -> bool:
        """True if the weights are exactly the softmax of the given scores.

        Kernels then compute the softmax, and `weights` is called only while decoding, not for whole sentences.
        """
        return self.self_score == "keep" and not self.adds_layer_before

    @property
    def allow_absorption(self) -> bool:
        """True if heads may be absorbed (`kernels.absorption`).

        Absorption drops terms of the scores that are the same for all keys of a query, which softmax ignores. It also
        relies on weights that sum to one when it adds the biases of values.
        """
        return self.self_score == "keep"

    def weights(self, scores: list[Tensor], reach: Reach) -> list[Tensor]:
        """Return the attention weights of each block, shaped like its scores; zeros for a query without keys.

        Scores are already masked with -inf, except for queries without keys (`has_key` is 0). They come in two layouts:

            whole sentences    (B H, q, k) in each block; the heads of a sentence follow one another
            a decoding step    (N, G, W, I, k): W rows for each of N sentences; head g I + i. G is the number of
                               key-value heads, or 1 where heads are absorbed
        """
        if self.adds_layer_before:
            if reach.scores is not None:
                scores = [x + before for x, before in zip(scores, reach.scores, strict=True)]
            reach.scores = scores
        return [self._of_block(x, block) for x, block in zip(scores, reach.blocks, strict=True)]

    def _of_block(self, scores: Tensor, block: KeyMask) -> Tensor:
        own = block.own
        match self.self_score:
            case "keep":
                weights = scores.softmax(dim=-1)
            case "zero":
                assert own is not None
                weights = scores.masked_fill(own, 0.0).softmax(dim=-1)
            case "exclude":
                assert own is not None
                # Not -inf: softmax would give NaN where there is no other key.
                weights = scores.masked_fill(own, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(own, 0.0)
            case "zero_weights":
                assert own is not None
                weights = scores.softmax(dim=-1).masked_fill(own, 0.0)
            case _:
                assert_never(self.self_score)
        return weights if block.has_key is None else weights * block.has_key


def _adds_layer_before(kind: ScoreResidual) -> bool:
    match kind:
        case "none":
            return False
        case "previous_layer":
            return True
        case _:
            assert_never(kind)
