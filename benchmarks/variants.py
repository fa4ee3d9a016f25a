"""Measure what each variant costs compared with the first: a training step and a decoding step, in turns.

One thread, and a vocabulary of 4,000 tokens on each side. A training step is a batch of 128 sentences of 5 to 30
tokens, forward and backward with the loss; then 64 sentences are decoded greedily for 20 tokens. All variants get the
same tokens. Medians over the rounds.

`enhanced`: the systems of arXiv 2310.10930 at d_model 128, 2 + 2 layers, 4 heads of 32, d_ff 256. Scores are kept apart
from softmax only where a variant reads them, so that only the variant's own arithmetic differs.

`reinforced`: the ablations of arXiv 2410.04731 and its baseline, at their own sizes.

    python benchmarks/variants.py --out results/speed/variants.json
    python benchmarks/variants.py --family reinforced --out results/speed/ablations.json
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from interleave import rotate
from records import command_line, record, table, write
from repose.model.architecture import Architecture
from repose.model.kernels.linear import training_products
from repose.model.presets import preset
from repose.model.transformer import Transformer
from repose.saved_model.api import build
from repose.system.device import tuned
from repose.training.loss import cross_entropy

VOCAB = 4000
SMALL: dict[str, object] = {
    **{"d_token": 128, "num_heads": 4, "head_dim": 32, "d_ff": 256},
    **{"num_encoder_layers": 2, "num_decoder_layers": 2},
}
ENHANCED: dict[str, tuple[str, dict[str, object]]] = {
    "original": ("original", {}),
    "full-norm": ("full-norm", {}),
    "weighted-residual": ("weighted-residual", {}),
    "policy-positions": ("policy-positions", {}),
    "zero-diagonal": ("zero-diagonal", {}),
    "enhanced": ("enhanced", {}),
    "pre-ln": ("pre-ln", {}),
    "norm = both": ("original", {"norm": "both"}),
    "realformer": ("realformer", {}),
    "tupe-a": ("tupe-a", {}),
    "tupe-r": ("tupe-r", {}),
    "attention_window = 8": ("original", {"attention_window": 8}),
}
CHANGES = ("none", "concat", "norm", "values", "concat-norm", "concat-values", "norm-values")
FAMILIES: dict[str, dict[str, Architecture]] = {
    "enhanced": {
        name: dataclasses.replace(preset(base), **SMALL, **changes)  # type: ignore[arg-type]
        for name, (base, changes) in ENHANCED.items()
    },
    "reinforced": {name: preset(name) for name in (*(f"ablation-{c}" for c in CHANGES), "reinforced", "baseline")},
}


def model(a: Architecture) -> Transformer:
    """Return the variant with fresh weights."""
    return build(a, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB)


def sentences(number: int) -> Tensor:
    """Return the ids of sentences of 5 to 30 tokens, the same at every call."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(4, VOCAB, (number, 30), generator=draw)
    lengths = torch.randint(5, 31, (number, 1), generator=draw)
    return ids.masked_fill(torch.arange(30) >= lengths, 0)


def training_step(a: Architecture) -> Callable[[], None]:
    """Return a function that computes forward pass, loss and backward pass of one batch."""
    net, src = model(a).train(), sentences(128)
    labels = src.roll(-1, 1)[src != 0]

    def step() -> None:
        net.zero_grad()
        with training_products():
            hidden = net.hidden(src, src)
            cross_entropy(hidden, net.output.weight, net.output.bias, labels, label_smoothing=0.1).loss.backward()

    return step


def decoding(a: Architecture) -> Callable[[], None]:
    """Return a function that decodes twenty tokens for each of 64 sentences."""
    net, src = model(a).eval(), sentences(64)

    @torch.no_grad()
    def decode() -> None:
        state, tokens = net.start(net.encode(src)), torch.full((64,), 2)
        for _ in range(20):
            tokens = net.step(tokens, state).argmax(1)

    return decode


def medians(
    make: Callable[[Architecture], Callable[[], None]], variants: Mapping[str, Architecture], rounds: int
) -> dict[str, float]:
    """Return the median seconds of each variant, in turns, after one round that does not count."""
    jobs = {name: partial(seconds, make(a)) for name, a in variants.items()}
    return {name: statistics.median(x) for name, x in rotate(jobs, rounds, warm_rounds=1).items()}


def seconds(run: Callable[[], None]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    """Command-line entry point: print the table and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("--family", choices=list(FAMILIES), default="enhanced", help="Which variants.")
    parser.add_argument("--rounds", type=int, default=21, help="Rounds that count.")
    args = parser.parse_args()
    variants = FAMILIES[args.family]
    first = next(iter(variants))
    torch.set_num_threads(1)
    with tuned():
        jobs = {"train": training_step, "decode": decoding}
        found = {kind: medians(make, variants, args.rounds) for kind, make in jobs.items()}
    rows = [
        {
            "variant": name,
            **{f"{kind}_seconds": round(x[name], 4) for kind, x in found.items()},
            **{f"{kind}_over_{first}": round(x[name] / x[first], 2) for kind, x in found.items()},
        }
        for name in variants
    ]
    print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))
    write(args.out, record("variants", family=args.family, rounds=args.rounds, rows=rows))


if __name__ == "__main__":
    main()
