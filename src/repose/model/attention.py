"""Multi-head attention over packed queries, with keys and values that may come from different tensors."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from repose.model.packing import Packing


class Attention(nn.Module):
    """MultiHead(Q, K, V) = [head_1 .. head_H] W^O, head_k = softmax(Q W_k^Q (K W_k^K)^T / sqrt(C)) V W_k^V.

    Vaswani et al. 3.2.2. Queries and keys are d_model wide; values may be narrower (arXiv 2410.04731 eq. 12-19:
    the token embeddings). The scale is 1/sqrt(head_dim); eq. 12 prints 1/sqrt(m), the same number at the paper's sizes.
    Additive attention (Vaswani et al. 3.2.1) is left out: they found it slower and no better once scores are scaled.
    """

    recorded: list[Tensor] | None = None
    """Attention weights of each call, while `record` is on."""

    def __init__(
        self, *, d_model: int, d_value: int, num_heads: int, head_dim: int, bias: bool, dropout: float
    ) -> None:
        super().__init__()
        width = num_heads * head_dim
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout = dropout
        self.query = nn.Linear(d_model, width, bias=bias)
        self.key = nn.Linear(d_model, width, bias=bias)
        self.value = nn.Linear(d_value, width, bias=bias)
        self.output = nn.Linear(width, d_model, bias=bias)

    def project(
        self, keys_from: Float[Tensor, "N D"], values_from: Float[Tensor, "N M"], packing: Packing
    ) -> tuple[Float[Tensor, "B H K C"], Float[Tensor, "B H K C"]]:
        """Keys and values of the packed tokens, padded."""
        return self._heads(self.key(keys_from), packing), self._heads(self.value(values_from), packing)

    def forward(
        self,
        queries_from: Float[Tensor, "N D"],
        packing: Packing,
        keys: Float[Tensor, "B H K C"],
        values: Float[Tensor, "B H K C"],
        mask: Bool[Tensor, "#B 1 #Q K"],
    ) -> Float[Tensor, "N D"]:
        """Attends; `packing` is the queries'. A query without keys gets zeros (then the output bias), never NaN."""
        queries = self._heads(self.query(queries_from), packing)
        dropout = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout)
        if self.recorded is not None:
            self.recorded.append(attention_weights(queries, keys, mask).detach())
        return self.output(packing.pack(heads.transpose(1, 2)).flatten(1))

    def _heads(self, packed: Tensor, packing: Packing) -> Tensor:
        return packing.pad(packed).unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)


def attention_weights(
    queries: Float[Tensor, "B H Q C"], keys: Float[Tensor, "B H K C"], mask: Bool[Tensor, "#B 1 #Q K"]
) -> Float[Tensor, "B H Q K"]:
    """softmax(Q K^T / sqrt(C)) over the keys that each query may attend to; zeros where there is none."""
    scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=3).nan_to_num(0.0)


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """While open, every attention in `model` keeps its weights: module name -> (B, H, Q, K) per call."""
    attentions = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    for module in attentions.values():
        module.recorded = []
    try:
        yield {name: module.recorded for name, module in attentions.items() if module.recorded is not None}
    finally:
        for module in attentions.values():
            module.recorded = None
