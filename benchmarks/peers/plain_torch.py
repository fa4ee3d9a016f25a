"""Plain PyTorch: both models of arXiv 2410.04731 as a competent user writes them, on padded batches.

`reinforced` normalises token columns over the vocabulary. bf16 is torch.autocast. Several processes share each batch by
DistributedDataParallel over gloo, as torchrun would start them.
"""

import math
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from protocol import ADAM_BETAS, ADAM_EPS, LEARNING_RATE, MODELS, PAD, Options, Sizes, Workload, parse, serve
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

MAX_LENGTH = 2048
MAX_PROCESSES = 64


def sinusoids(length: int, width: int) -> Tensor:
    """Return positions (L, M): sines of position / 10000^(k / (M/2)) for k = 0..M/2-1, then their cosines."""
    half = width // 2
    angles = torch.arange(length)[:, None] * 10_000.0 ** -(torch.arange(half) / half)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Embedding(nn.Module):
    """From ids (B, L) to the first layer's input (B, L, D) and the values (B, L, M)."""

    def __init__(self, vocab_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.tokens = nn.Embedding(vocab_size, sizes.d_token)
        self.dropout = nn.Dropout(sizes.dropout)
        self.register_buffer("positions", sinusoids(MAX_LENGTH, sizes.d_token), persistent=False)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        scale = math.sqrt(self.sizes.d_token)
        x = self.tokens(ids) * scale
        positions = self.positions[: ids.shape[1]]
        if self.sizes.combine in ("add", "rotary"):
            x = self.dropout(x + positions if self.sizes.combine == "add" else x)
            return x, x
        variance, mean = torch.var_mean(self.tokens.weight[1:], dim=0, correction=0)
        x = (x - mean * scale) * (variance * scale**2 + self.sizes.token_norm_eps).rsqrt()
        return self.dropout(torch.cat([x, positions.expand(len(ids), -1, -1)], dim=2)), x


class Attention(nn.Module):
    """Multi-head attention, residual sum and norm. With `turns`, queries and keys have rotary positions."""

    def __init__(self, sizes: Sizes, *, turns: bool = False) -> None:
        super().__init__()
        self.turns = turns
        if turns:
            angles = torch.arange(MAX_LENGTH)[:, None] * 10_000.0 ** -(
                torch.arange(0, sizes.head_dim, 2) / sizes.head_dim
            )
            self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.heads, self.dropout = sizes.num_heads, sizes.attention_dropout
        inner = sizes.num_heads * sizes.head_dim
        self.query = nn.Linear(sizes.d_model, inner)
        self.key = nn.Linear(sizes.d_model, inner)
        self.value = nn.Linear(sizes.d_token if sizes.values == "tokens" else sizes.d_model, inner)
        self.output = nn.Linear(inner, sizes.d_model)
        self.norm = nn.LayerNorm(sizes.d_model, eps=sizes.norm_eps)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool = False) -> Tensor:
        q, k, v = (
            projected.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projected in (self.query(x), self.key(keys), self.value(values))
        )
        if self.turns:
            q, k = self.turned(q), self.turned(k)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        return self.norm(x + self.output(mixed.transpose(1, 2).flatten(2)))

    def turned(self, x: Tensor) -> Tensor:
        """Return queries or keys (B, H, L, C), each pair of numbers multiplied by its position's rotation."""
        pairs = torch.view_as_complex(x.float().unflatten(3, (-1, 2)))
        return torch.view_as_real(pairs * self.rotations[: x.shape[2]]).flatten(3).type_as(x)


class FeedForward(nn.Module):
    """Two linear layers, dropout, residual sum and norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(sizes.d_model, sizes.d_ff),
            nn.ReLU(),
            nn.Linear(sizes.d_ff, sizes.d_model),
            nn.Dropout(sizes.dropout),
        )
        self.norm = nn.LayerNorm(sizes.d_model, eps=sizes.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.layers(x))


class Layer(nn.Module):
    """One layer of the encoder, or with `cross`, of the decoder."""

    def __init__(self, sizes: Sizes, *, cross: bool) -> None:
        super().__init__()
        self.attention = Attention(sizes, turns=sizes.combine == "rotary")
        self.cross = Attention(sizes) if cross else None
        self.feed_forward = FeedForward(sizes)


class Transformer(nn.Module):
    """The Transformer: logits (B, T, V) for ids (B, S) and (B, T)."""

    def __init__(self, sizes: Sizes, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        self.takes_tokens = sizes.values == "tokens"
        self.source, self.target = Embedding(src_vocab_size, sizes), Embedding(tgt_vocab_size, sizes)
        self.encoder = nn.ModuleList(Layer(sizes, cross=False) for _ in range(sizes.num_encoder_layers))
        self.decoder = nn.ModuleList(Layer(sizes, cross=True) for _ in range(sizes.num_decoder_layers))
        self.output = nn.Linear(sizes.d_model, tgt_vocab_size)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        mask = (src != PAD)[:, None, None, :]
        x, src_values = self.source(src)
        for layer in self.encoder:
            x = layer.attention(x, x, src_values if self.takes_tokens else x, mask)
            x = layer.feed_forward(x)
        y, tgt_values = self.target(tgt)
        for layer in self.decoder:
            # Padding is on the right: no real target sees it through the causal mask.
            y = layer.attention(y, y, tgt_values if self.takes_tokens else y, None, causal=True)
            y = layer.cross(y, x, src_values if self.takes_tokens else x, mask)
            y = layer.feed_forward(y)
        return self.output(y)


class Training:
    """The model of one process, and its share of each batch."""

    def __init__(self, rank: int, options: Options, model_type: type[nn.Module]) -> None:
        """`model_type(sizes, src_vocab_size, tgt_vocab_size)` returns logits (B, T, V) for source and target ids."""
        torch.set_num_threads(options.threads)
        torch.manual_seed(rank)
        self.rank, self.options = rank, options
        self.workload = Workload(options)
        model = model_type(options.sizes, self.workload.src_vocab_size, self.workload.tgt_vocab_size)
        self.model = model.to(options.device).train()
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        if options.processes > 1:
            self.model = DistributedDataParallel(self.model)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=LEARNING_RATE, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True
        )

    def run(self, numbers: list[int]) -> int:
        """Train on these batches, and tell the other processes to."""
        if self.options.processes > 1:
            dist.broadcast_object_list([numbers])
        return self.compute(numbers)

    def follow(self) -> None:
        """Train as the first process says, until it names no batch."""
        order: list[list[int]] = [[]]
        while True:
            dist.broadcast_object_list(order)
            if not order[0]:
                return
            self.compute(order[0])

    def compute(self, numbers: list[int]) -> int:
        """Train on this process's share of these batches; return their target tokens, over all processes."""
        options, tokens, share = self.options, 0, slice(self.rank, None, self.options.processes)
        for number in numbers:
            batch = self.workload.train_batch(number)
            src, tgt, labels = (torch.from_numpy(ids[share]).to(options.device) for ids in batch[:3])
            self.optimizer.zero_grad()
            with torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "bf16"):
                total = self.loss(self.model(src, tgt).flatten(0, 1), labels.flatten())
            loss = total * (options.processes / batch.tokens)  # gradients are averaged over processes
            loss.backward()
            self.optimizer.step()
            tokens += batch.tokens
        loss.item()  # waits for a GPU
        return tokens


def follow(index: int, options: Options, model_type: type[nn.Module], meeting: str) -> None:
    """Run another process, which follows the first."""
    rank = index + 1
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=options.processes)
    Training(rank, options, model_type).follow()


def train(name: str, options: Options, model_type: type[nn.Module]) -> None:
    """Train as the benchmark says."""
    with tempfile.TemporaryDirectory() as folder:
        if options.processes > 1:
            meeting = f"file://{folder}/meeting"
            others = options.processes - 1
            start_processes(follow, (options, model_type, meeting), others, join=False, daemon=True)
            dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=options.processes)
        training = Training(0, options, model_type)
        facts = {"parameters": training.parameters, "versions": {"torch": torch.__version__}}
        serve(options, training.workload.num_batches, training.run, name=name, **facts)
        if options.processes > 1:
            dist.broadcast_object_list([[]])
            dist.destroy_process_group()


def main() -> None:
    """Command-line entry point: train until stdin ends."""
    options = parse(__doc__, tasks=("train",), max_processes=MAX_PROCESSES, devices=("cpu", "cuda"), models=MODELS)
    train("plain PyTorch", options, Transformer)


if __name__ == "__main__":
    main()
