"""torch.nn.Transformer at the nearest size, with sinusoids and one embedding table per side, in one process."""

import math

import torch
from plain_torch import MAX_LENGTH, sinusoids, train
from protocol import PAD, Sizes, parse
from torch import Tensor, nn


class Transformer(nn.Module):
    """torch.nn.Transformer with embeddings: logits (B, T, V) for ids (B, S) and (B, T)."""

    def __init__(self, sizes: Sizes, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        width = sizes.d_model
        self.scale = math.sqrt(width)
        self.source, self.target = nn.Embedding(src_vocab_size, width), nn.Embedding(tgt_vocab_size, width)
        self.register_buffer("positions", sinusoids(MAX_LENGTH, width), persistent=False)
        self.dropout = nn.Dropout(sizes.dropout)
        self.transformer = nn.Transformer(
            width,
            sizes.num_heads,
            sizes.num_encoder_layers,
            sizes.num_decoder_layers,
            sizes.d_ff,
            sizes.dropout,
            layer_norm_eps=sizes.norm_eps,
            batch_first=True,
        )
        self.output = nn.Linear(width, tgt_vocab_size)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool, device=tgt.device).triu(1)
        hidden = self.transformer(
            self._embed(self.source, src),
            self._embed(self.target, tgt),
            tgt_mask=future,
            src_key_padding_mask=src == PAD,
            memory_key_padding_mask=src == PAD,
            tgt_is_causal=True,
        )
        return self.output(hidden)

    def _embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(table(ids) * self.scale + self.positions[: ids.shape[1]])


def main() -> None:
    """Command-line entry point: train until stdin ends."""
    options = parse(__doc__, tasks=("train",), sizes=("nearest",), devices=("cpu", "cuda"))
    train("torch.nn.Transformer", options, Transformer)


if __name__ == "__main__":
    main()
