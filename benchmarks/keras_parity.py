"""Check parity with Keras: with the same weights, the logits equal those of the TensorFlow tutorial's layers.

`baseline` and `reinforced-lookahead` are built twice: as this project's model, and from Keras' own layers in the order
of the TensorFlow text tutorial "Neural machine translation with a Transformer and Keras" (the second one with the
changes of Hsiao and Dutta 2024, eqs. 4 to 14). Every weight is copied across. Then logits are compared over the real
target positions of random padded batches. Controls, each with one deliberate error on the Keras side, must differ, so
that agreement means something. The script also measures the range of Keras' initial values. See `docs/keras-parity.md`.

    python benchmarks/keras_parity.py --out results/keras-parity.json

Exit codes: 0 for parity and equal parameter counts, 1 otherwise, 2 if TensorFlow or Keras is missing.
"""

import dataclasses
import math
import os
import sys
from typing import Any

import numpy as np
import torch

from records import command_line, record, write
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS
from repose.model.transformer import Transformer, build

os.environ |= {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
os.environ |= {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
try:
    import keras
    import tensorflow as tf

    from peers.keras_model import KerasTransformer
except ImportError as error:
    print(f"this benchmark needs TensorFlow with Keras 3: pip install tensorflow-cpu ({error})", file=sys.stderr)
    raise SystemExit(2) from None

TOLERANCE = 1e-5
"""Largest absolute difference between logits that counts as equal in float32."""
SRC_VOCAB, TGT_VOCAB = 7_765, 7_010
NAMES = ("baseline", "reinforced-lookahead")
START, END = 2, 3


def copy_weights(ours: Transformer, theirs: KerasTransformer) -> None:
    """Copy every parameter into Keras. Raises ValueError if one has no counterpart.

    A Keras kernel is our matrix transposed, then split into heads. Embeddings and vectors keep their order.
    """
    source, target = dict(ours.named_parameters()), theirs.weights()
    if unmatched := source.keys() ^ target.keys():
        raise ValueError(f"parameters without a counterpart: {', '.join(sorted(unmatched))}")
    for name, variable in target.items():
        array = source[name].detach().numpy()
        is_kernel = array.ndim == 2 and not name.endswith("tokens.weight")
        variable.assign((array.T if is_kernel else array).reshape(variable.shape))


def scatter(model: Transformer) -> None:
    """Move biases and layer norms away from their initial zeros and ones, so that swapping two of them would show."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def batches(count: int, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return random ids with START and END, of unequal lengths, padded on the right with 0; one row has no padding."""
    rng = np.random.default_rng(0)

    def side(vocab_size: int, longest: int, shortest: int) -> np.ndarray:
        ids = rng.integers(4, vocab_size, size=(rows, longest))
        for row, length in enumerate([longest, shortest, *rng.integers(shortest, longest, size=rows - 2)]):
            ids[row, length - 1 :] = [END, *[0] * (longest - length)]
        ids[:, 0] = START
        return ids

    return [(side(SRC_VOCAB, 12 + 10 * i, 3), side(TGT_VOCAB, 10 + 10 * i, 1)) for i in range(count)]


def largest_difference(ours: Transformer, theirs: KerasTransformer) -> float:
    """Return the largest |Δ| of logits over the real target positions of the batches, after copying the weights."""
    copy_weights(ours, theirs)
    gaps = []
    for src, tgt in batches(count=3, rows=6):
        with torch.no_grad():
            logits = ours(torch.from_numpy(src), torch.from_numpy(tgt)).numpy()
        gaps.append(np.abs(logits - theirs(tf.constant(src), tf.constant(tgt)).numpy())[tgt != 0].max())
    return float(max(gaps))


def initial_limits(sizes: Architecture, theirs: KerasTransformer, ours: Transformer) -> dict[str, dict[str, float]]:
    """Return the range of new attention kernels, by kind, and the two uniform limits that they may follow.

    `as_convolution` treats the 3-D kernel like a convolution's, as Keras before 3.15 did; `glorot` is Glorot's own
    limit.
    """
    heads, width = sizes.num_heads, sizes.head_dim
    limits = {}
    for kind in ("query", "key", "value", "output"):
        inner = sizes.d_value if kind == "value" else sizes.d_model
        fans = heads * (width + inner) if kind == "output" else inner * (heads + width)
        suffix = f"_attention.{kind}.weight"
        drawn = [np.abs(v.numpy()).max() for name, v in theirs.weights().items() if name.endswith(suffix)]
        drawn_here = [p.detach().abs().max() for name, p in ours.named_parameters() if name.endswith(suffix)]
        limits[kind] = {
            "keras": float(max(drawn)),
            "repose": float(max(drawn_here)),
            "as_convolution": math.sqrt(6 / fans),
            "glorot": math.sqrt(6 / (inner + heads * width)),
        }
    return limits


def compare(name: str) -> dict[str, Any]:
    """Return parity, parameter counts, controls and initial limits of one preset."""
    sizes = PRESETS[name].architecture
    ours = build(sizes, src_vocab_size=SRC_VOCAB, tgt_vocab_size=TGT_VOCAB, seed=0).eval()
    keras.utils.set_random_seed(0)
    theirs = KerasTransformer(sizes, SRC_VOCAB, TGT_VOCAB)
    limits = initial_limits(sizes, theirs, ours)
    scatter(ours)
    counts = {
        "repose": sum(parameter.numel() for parameter in ours.parameters()),
        "keras": sum(math.prod(variable.shape) for variable in theirs.weights().values()),
        "published": PRESETS[name].published_parameters,
    }
    difference = largest_difference(ours, theirs)
    variants = {
        "norm_eps = 1e-6": KerasTransformer(dataclasses.replace(sizes, norm_eps=1e-6), SRC_VOCAB, TGT_VOCAB),
        "padding attended": KerasTransformer(sizes, SRC_VOCAB, TGT_VOCAB, padding="attended"),
        "masks propagated by Keras": KerasTransformer(sizes, SRC_VOCAB, TGT_VOCAB, padding="propagated"),
    }
    gaps = {variant: largest_difference(ours, model) for variant, model in variants.items()}
    propagated = gaps.pop("masks propagated by Keras")
    return {
        "parameters": counts,
        "max_abs_difference": difference,
        "controls": gaps,
        "masks_propagated_by_keras": propagated,
        "initial_limits": limits,
        "passed": difference <= TOLERANCE < min(gaps.values()) and len(set(counts.values())) == 1,
    }


def show(name: str, result: dict[str, Any]) -> None:
    """Print the result of one preset."""
    print(f"{name}: {'equal' if result['passed'] else 'NOT EQUAL'}")
    print(f"  max |Δ logit| {result['max_abs_difference']:.2e}, tolerance {TOLERANCE:.0e}")
    print("  parameters   ", ", ".join(f"{where} {count:,}" for where, count in result["parameters"].items()))
    for control, gap in result["controls"].items():
        print(f"  control, must differ: {control}: max |Δ logit| {gap:.2e}")
    print(f"  masks left to Keras' own propagation: max |Δ logit| {result['masks_propagated_by_keras']:.2e}")
    for kind, limit in result["initial_limits"].items():
        print(f"  initial {kind:6}", "  ".join(f"{label} {value:.4f}" for label, value in limit.items()))


def main() -> int:
    """Command-line entry point: compare both presets and return the exit code."""
    args = command_line(__doc__).parse_args()
    results = {name: compare(name) for name in NAMES}
    for name, result in results.items():
        show(name, result)
    passed = all(result["passed"] for result in results.values())
    content = record(
        "keras_parity",
        versions={module.__name__: module.__version__ for module in (torch, tf, keras)},
        vocabularies=[SRC_VOCAB, TGT_VOCAB],
        tolerance=TOLERANCE,
        passed=passed,
        presets=results,
    )
    write(args.out, content)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
