"""Measure what k of the weighted residual connection (arXiv 2310.10930, eq. 6) does to a new Post-LN encoder.

The paper says that "the weighted residual connection enables loading a greater gradient". Measured here for the six
encoder layers of `original` at d_model 256, with Xavier's initial values, on random sentences, and with a random
direction as the gradient of the encoder's output:

    share       standard deviation of F(x) over that of kx, mean over layers, for self-attention and feed-forward
    cosine      between the input of the first layer and the output of the last, mean over tokens
    gradient    norm over all weights of a layer's sublayers, for the first and the last layer

`pre` is the same without layer norm after the sum: the norm of the last state of the residual stream over that of the
first. This growth is why k != 1 is refused with Pre-LN.

    python benchmarks/residual_weight.py --out results/residual-weight.json
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from records import command_line, record, table, write
from repose.model.presets import preset
from repose.model.sublayer import Sublayer
from repose.model.transformer import Transformer, build

WEIGHTS = (1.0, 2.0, 3.0, 4.0, 5.0)
SEEDS = range(5)


def model(k: float, seed: int) -> Transformer:
    """Build the model whose encoder is measured, without dropout."""
    a = dataclasses.replace(
        preset("original"),
        residual_weight=k,
        initialisation="xavier",
        d_token=256,
        head_dim=32,
        d_ff=1024,
        num_decoder_layers=1,
        dropout=0.0,
        attention_output_dropout=0.0,
        embedding_scale="sqrt",
    )
    return build(a, src_vocab_size=1000, tgt_vocab_size=1000, seed=seed)


def measure(k: float, seed: int) -> dict[str, float]:
    """Return the figures above for one k and one seed."""
    encoder = model(k, seed).encoder
    shares: dict[str, list[float]] = {"attention": [], "feed_forward": []}
    stream: list[Tensor] = []

    def watch(kind: str, sublayer: Sublayer) -> None:
        def before(_module: Any, inputs: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
            x, branch = inputs

            def watched(y: Tensor) -> Tensor:
                out = branch(y)
                shares[kind].append((out.std() / (k * x).std()).item())
                return out

            return x, watched

        sublayer.register_forward_pre_hook(before)

    for layer in encoder.layers:
        watch("attention", layer.self_attention_sublayer)
        watch("feed_forward", layer.feed_forward_sublayer)
        layer.register_forward_pre_hook(lambda _m, inputs: stream.append(inputs[0].detach()))
    draw = torch.Generator().manual_seed(seed)
    src = torch.randint(4, 1000, (16, 20), generator=draw)
    out = encoder(src).hidden
    out.backward(torch.randn(out.shape, generator=draw))
    norms = [_gradient(layer) for layer in encoder.layers]
    cosine = torch.nn.functional.cosine_similarity(stream[0], out.detach(), dim=1).mean().item()
    means = {f"share_{kind}": sum(x) / len(x) for kind, x in shares.items()}
    return means | {"cosine": cosine, "gradient_first": norms[0], "gradient_last": norms[-1]}


def _gradient(layer: torch.nn.Module) -> float:
    parts = (p.grad for name, p in layer.named_parameters() if name.endswith("weight") and ".norm." not in name)
    return sum(g.square().sum().item() for g in parts if g is not None) ** 0.5


def growth(k: float) -> float:
    """Return the norm of a Pre-LN residual stream after twelve sublayers, as in the encoder, over the norm before them.

    Each sublayer computes k x + F(LN(x)).
    """
    torch.manual_seed(0)
    x = torch.randn(64, 256)
    first, norm = x.norm(), torch.nn.LayerNorm(256)
    for _ in range(12):
        f = torch.nn.Linear(256, 256)
        torch.nn.init.xavier_uniform_(f.weight)
        x = k * x + f(norm(x))
    return (x.norm() / first).item()


def main() -> None:
    """Command-line entry point: print the table and write the record."""
    args = command_line(__doc__).parse_args()
    rows = []
    for k in WEIGHTS:
        found = [measure(k, seed) for seed in SEEDS]
        means = {name: round(sum(x[name] for x in found) / len(found), 3) for name in found[0]}
        rows.append({"k": k, **means, "pre_growth": round(growth(k), 1)})
    print(table(list(rows[0]), [[f"{value:g}" for value in row.values()] for row in rows]))
    settings = {"seeds": len(SEEDS), "layers": 6, "d_model": 256, "sentences": 16, "tokens": 20}
    write(args.out, record("residual_weight", settings=settings, rows=rows))


if __name__ == "__main__":
    main()
