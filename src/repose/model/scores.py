"""From the scores of queries and keys to attention weights: the axes `self_score` and `score_residual`.

Attention over whole sentences and attention of one more token both call `Scores.weights`.
"""

from collections.abc import Sequence
from typing import Protocol, assert_never, runtime_checkable

import torch
from torch import Tensor, nn

from repose.model.architecture import Architecture, ScoreResidual, SelfScore


@runtime_checkable
class KeyMask(Protocol):
    """What the weights of a block of queries and keys depend on besides their scores."""

    @property
    def has_key(self) -> Tensor | None:
        """0 for a query that may attend to nothing, 1 for others; None if there is none such."""

    @property
    def own(self) -> Tensor | None:
        """In self-attention, True where a key is the query's own token."""


class Reach:
    """Which queries meet which keys, in the layers of one stack: `Blocks`, `LocalBlocks`, or one step of decoding."""

    blocks: Sequence[KeyMask]
    """Queries and keys in as many blocks as there are tensors of scores."""
    scores: list[Tensor] | None = None
    """Scores of the layer before, block by block, where attention adds them to its own (RealFormer): one forward pass
    makes one `Reach` for each chain of layers."""


class Scores(nn.Module):
    """What happens between Q K^T and the mean of values. A module, so that a variant may have weights here.

    In this order: products x scale, scores of positions and the mask (all three in what `weights` is given), the scores
    of the layer before, which hands all of these on; then the token's score of itself, and softmax.

        score_residual   S_l = Q K^T / sqrt(C) + S_(l-1), softmax(S_l) (RealFormer, He et al. 2021, arXiv 2012.11747)
        self_score       zero: S_ii = 0 (arXiv 2310.10930, 3.4: "zero masked self-attention", the attention score being
                         the dot product of its 2.4); exclude: -inf; zero_weights: 0 after softmax, no sum of 1

    Differs from the paper's word: it sets the "subdiagonal" to zero, but its example ('I' to 'I') and its Fig. 7 mean
    the main diagonal, a token's score of itself.

    A value that changes anything here has to say so in `is_softmax`, and where weights no longer sum to one in
    `allow_absorption`: attention takes another way by them, which does not ask `weights`.
    """

    def __init__(self, a: Architecture, *, of_self: bool) -> None:
        """`of_self`: for self-attention, where a query's own token is among the keys."""
        super().__init__()
        self.self_score: SelfScore = a.self_score if of_self else "keep"
        self.adds_layer_before = _adds_layer_before(a.score_residual)

    @property
    def is_softmax(self) -> bool:
        """Whether weights are the softmax of the given scores and nothing else. Then kernels compute it, and `weights`
        is not asked in whole sentences, only in steps."""
        return self.self_score == "keep" and not self.adds_layer_before

    @property
    def allow_absorption(self) -> bool:
        """Whether heads may be absorbed: their scores lack what is the same for all keys of a query, which softmax does
        not feel, and their values' biases count on weights that sum to one."""
        return self.self_score == "keep"

    def weights(self, scores: list[Tensor], reach: Reach) -> list[Tensor]:
        """Attention weights of each block, as its scores; zeros for a query without keys.

        Scores come in two layouts, masked already, with -inf (but for queries without keys, whose `has_key` is 0):

            whole sentences    (B H, q, k), a sentence's heads one after the other, in each block
            a step             (N, G, W, I, k): W rows of each of N sentences, head g I + i; G I = H, and where heads
                               are absorbed G = 1, otherwise I = 1
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
                # Not -inf: where there is no other key, softmax would be NaN.
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
