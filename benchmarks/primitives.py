"""Make the small measurements of `docs/speed-details.md`: two ways to compute the same thing, in turn, on one thread.

python benchmarks/primitives.py --out primitives.json
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from interleave import rotate
from records import command_line, record, table, write
from repose.decoding.best import best_tokens
from repose.model.kernels.dropout import Dropout
from repose.model.kernels.linear import Int8, matmul_nt, onednn_is_faster
from repose.system.device import tuned

ROWS, WIDTH, HEADS, VOCAB = 480, 128, 8, 7010  # rows: half a batch of 64; others: `baseline`


class Pair(NamedTuple):
    """Two ways to compute the same result."""

    what: str
    ours: Callable[[], object]
    other: Callable[[], object]
    other_name: str


def pairs() -> Iterator[Pair]:
    """Yield everything to measure."""
    x, y = torch.randn(ROWS, WIDTH), torch.randn(2 * WIDTH, WIDTH)
    yield Pair("product 480x128x256, fp32", lambda: matmul_nt(x, y), lambda: torch.mm(x, y.t()), "torch.mm")
    few, words = torch.randn(64, WIDTH), torch.randn(VOCAB, WIDTH)
    yield Pair("product 64x128x7010, fp32", lambda: matmul_nt(few, words), lambda: torch.mm(few, words.t()), "torch.mm")
    int8 = Int8(words, None)
    yield Pair("product 64x128x7010", lambda: int8(few), lambda: matmul_nt(few, words), "fp32 instead of int8")
    half, halves = words.bfloat16(), few.bfloat16()
    yield Pair("product 64x128x7010", lambda: halves @ half.t(), lambda: matmul_nt(few, words), "fp32 instead of bf16")
    sizes = count(500)

    def new_shape() -> Tensor:
        return matmul_nt(torch.empty(next(sizes), WIDTH), y)

    yield Pair("product of about 500x128x256", lambda: matmul_nt(x, y), new_shape, "a shape that is new each time")
    scores = torch.randn(4 * 32, 30, 30)
    ours, theirs = Dropout(0.1), torch.nn.Dropout(0.1)
    yield Pair("dropout of 115,200 numbers", lambda: ours(scores), lambda: theirs(scores), "torch.nn.Dropout")
    embeddings = torch.randn(7765, 64)

    def two_passes() -> Tensor:
        return (embeddings - embeddings.mean(0)).square().mean(0)

    variance = "variance of the columns of 7765x64"
    yield Pair(variance, two_passes, lambda: torch.var_mean(embeddings, dim=0, correction=0), "torch.var_mean")
    for beams, keys in ((1, 14), (4, 14)):
        q, k, v = (torch.randn(64, HEADS, length, WIDTH) for length in (beams, keys, keys))

        def products(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
            weights = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).softmax(2)
            return torch.bmm(weights, v.flatten(0, 1))

        def fused(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        yield Pair(f"attention of {beams} queries to {keys} keys", products, fused, "torch's fused attention")
    real = (torch.rand(32 * 30).argsort() < ROWS).nonzero()[:, 0]
    packed, cells = (
        torch.randn(ROWS, WIDTH),
        torch.zeros(32 * 30, dtype=torch.long).index_copy(0, real, torch.arange(ROWS)),
    )

    def scatter() -> Tensor:
        return packed.new_zeros(32 * 30, WIDTH).index_copy_(0, real, packed)

    yield Pair("padding 480 rows to 960", lambda: packed.index_select(0, cells), scatter, "zeros and index_copy")
    log_probs = torch.randn(256, VOCAB)
    yield Pair("5 best of 256x7010", lambda: best_tokens(log_probs, 5), lambda: log_probs.topk(7), "torch.topk alone")


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the seconds of one call, as the mean over `repeats`."""
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - began) / repeats


def main() -> None:
    """Command-line entry point: measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    with tuned(), torch.no_grad():
        for pair in pairs():
            jobs = {run: partial(seconds, run, args.repeats) for run in (pair.ours, pair.other)}
            times = rotate(jobs, args.rounds, warm_rounds=1)
            ours, other = (1e6 * statistics.median(each) for each in times.values())
            found.append({"what": pair.what, "instead_of": pair.other_name, "ours_us": ours, "other_us": other})
    rows = []
    for x in found:
        ours, other = x["ours_us"], x["other_us"]
        rows.append([x["what"], x["instead_of"], f"{ours:,.0f}", f"{other:,.0f}", f"{other / ours:.1f}"])
    print(table(["what", "instead of", "µs", "µs instead", "ratio"], rows))
    facts = {"torch": torch.__version__, "onednn_for_fp32": onednn_is_faster()}
    settings = {"rounds": args.rounds, "repeats": args.repeats}
    write(args.out, record("primitives", **facts, settings=settings, pairs=found))


if __name__ == "__main__":
    main()
