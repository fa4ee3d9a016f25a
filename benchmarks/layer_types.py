"""Table 1 of "Attention is all you need", computed and measured: costs of layer types, and lengths of signal paths.

For each layer in `layer_kinds.py`, with k = 3 and r = 32 unless they vary:

    operations  of a forward pass, by torch's own counter, part by part, next to the formula; exponents are slopes of
                log operations over log n, d and k or r
    sequential  the longest chain of matrix products in autograd's graph, each of which needs the one before. As in the
                table, a product of any size is one operation, and so is a convolution
    path        hops from position 0 to n - 1: the fewest stacked layers with which the derivative of the last output by
                the first input is not zero. One recurrent layer is enough, but it is not one hop: its hops are the
                hand-overs of its state without which that derivative is zero
    time        forward and backward of 2,048 tokens in sequences of n, in fp32 on one thread: layers in turn, medians

Everything except time is in double precision, in which torch computes an LSTM by products that it can count.

    python benchmarks/layer_types.py --out results/speed/layer-types.json
    python benchmarks/layer_types.py --no-times
"""

import functools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from interleave import rotate
from layer_kinds import HEADS, LAYER_KINDS, LayerKind, Recurrent
from records import command_line, record, table, write
from repose.system.device import tuned
from scaling import exponent

USUAL = {"": 0, "k": 3, "r": 32}
LENGTHS, WIDTHS = (32, 64, 128, 256, 512, 1024, 2048), (64, 128, 256, 512)
SIZES = {"": (), "k": (3, 5, 9, 17), "r": (8, 16, 32, 64)}
AT = 512
"""n and d for counting operations while another size varies."""
PATH_LENGTHS, PATH_WIDTH = (16, 32, 64, 128), 16
"""n and d for chains and paths."""
TIMED_LENGTHS, TIMED_WIDTHS, TOKENS = (64, 256, 1024, 2048), (128, 512), 2048
BELOW = 2
"""Number of layers below the timed one. It decides the dilation: 9."""
REPEATS = 2
"""Number of passes timed together."""
PRODUCTS = {
    "AddmmBackward0": 1,
    "MmBackward0": 1,
    "BmmBackward0": 1,
    "BaddbmmBackward0": 1,
    "ConvolutionBackward0": 1,
    "_AttendBackward": 2,  # of queries and keys, then of weights and values
}
"""Number of consecutive matrix products in a node of autograd's graph."""
PROJECTIONS = {"query", "key", "value", "output"}
"""Names of attention's projections."""


def operations(layer: nn.Module, n: int, d: int) -> dict[str, int]:
    """Return the operations of a forward pass over one sequence, by part.

    The parts are the modules, and `product` for operations outside of them, if any.
    """
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.double()(torch.randn(1, n, d, dtype=torch.float64))
    found: dict[str, int] = {}
    for path, _ in layer.named_modules():
        own = counter.get_flop_counts().get(f"{type(layer).__name__}.{path}", {})
        name = path.rpartition(".")[2]
        if own and name != "attention":
            part = "projections" if name in PROJECTIONS else name
            found[part] = found.get(part, 0) + sum(own.values())
    rest = counter.get_total_flops() - sum(found.values())
    return {"product": rest, **found} if rest else found


def sequential(output: Tensor) -> int:
    """Return the length of the longest chain of products in the graph that computed `output`."""
    chain: dict[Any, int] = {}
    waiting = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        assert node is not None
        below = [each for each, _ in node.next_functions if each is not None]
        if missing := [each for each in below if each not in chain]:
            waiting += missing
        else:
            chain[waiting.pop()] = max((chain[each] for each in below), default=0) + PRODUCTS.get(node.name(), 0)
    return chain[output.grad_fn]


def layers_needed(make: Callable[[int], nn.Module], n: int, d: int, most: int) -> int | None:
    """Return the fewest layers, `make(layers below)`, with which position 0 affects n - 1; None if over `most`."""
    first = torch.randn(1, 1, d, dtype=torch.float64, requires_grad=True)
    x = torch.cat([first, torch.randn(1, n - 1, d, dtype=torch.float64)], dim=1)
    for below in range(most):
        x = make(below).double()(x)
        (effect,) = torch.autograd.grad(x[:, -1].sum(), first, retain_graph=True)
        if effect.any():
            return below + 1
    return None


def hand_overs(recurrence: nn.RNNBase, n: int, d: int) -> int:
    """Return how many state hand-overs must be intact for the first input to affect the last output.

    The batch has n copies. In copy i, from 1 on, the state before step i is cut out of the graph; the last copy stays
    whole. The result is n if the signal does not arrive even there.
    """
    cuts = torch.arange(1, n + 1)[:, None]
    first = torch.randn(n, 1, d, dtype=torch.float64, requires_grad=True)
    output, state = recurrence.double()(first)
    for step in range(1, n):
        state = tree_map(lambda whole, step=step: torch.where(cuts == step, whole.detach(), whole), state)
        output, state = recurrence(torch.randn(n, 1, d, dtype=torch.float64), state)
    (effect,) = torch.autograd.grad(output.sum(), first)
    return int((effect == 0).all(2).sum())


def label(kind: LayerKind, size: int, **sizes: int) -> str:
    """Return the label of sizes in records, such as "n = 64, d = 512, k = 3"."""
    return ", ".join(f"{name} = {value}" for name, value in (*sizes.items(), (kind.size, size)) if name)


def sweeps(kind: LayerKind) -> dict[str, list[tuple[int, int, int]]]:
    """Return the points (n, d, k or r) to count, by what varies."""
    usual = USUAL[kind.size]
    found = {"n": [(n, AT, usual) for n in LENGTHS], "d": [(AT, d, usual) for d in WIDTHS]}
    return found | ({kind.size: [(AT, AT, size) for size in SIZES[kind.size]]} if kind.size else {})


def count_operations(kind: LayerKind, points: Mapping[str, Sequence[tuple[int, int, int]]]) -> dict[str, Any]:
    """Return operations at each point, counted and by formula, and the exponents of each part and of the sum."""
    counted = {
        (n, d, size): operations(kind.make(d, size, 0), n, d)
        for n, d, size in dict.fromkeys(point for sweep in points.values() for point in sweep)
    }
    exponents: dict[str, dict[str, float]] = {}
    for position, (name, sweep) in enumerate(points.items()):
        sizes = [point[position] for point in sweep]
        for part in kind.operations:
            exponents.setdefault(part, {})[name] = exponent(sizes, [counted[point][part] for point in sweep])
        if len(kind.operations) > 1:
            exponents.setdefault("all", {})[name] = exponent(sizes, [sum(counted[point].values()) for point in sweep])
    found = {
        label(kind, size, n=n, d=d): {
            "counted": parts,
            "formula": {part: formula(n, d, size) for part, formula in kind.operations.items()},
        }
        for (n, d, size), parts in counted.items()
    }
    return {"exponents": exponents, "operations": found}


def path_points(kind: LayerKind) -> list[tuple[int, int]]:
    """Return points (n, k or r): first n grows; then, at the largest n, k or r grows."""
    lengths = [(n, USUAL[kind.size]) for n in PATH_LENGTHS]
    return list(dict.fromkeys(lengths + [(PATH_LENGTHS[-1], size) for size in SIZES[kind.size]]))


def measure_paths(kind: LayerKind, points: Sequence[tuple[int, int]], d: int = PATH_WIDTH) -> dict[str, Any]:
    """Return the longest chain, the layers needed, and the hops, measured and by formula, at each of these points."""
    found = {}
    for n, size in points:
        layer = kind.make(d, size, 0).double()
        chain = sequential(layer(torch.randn(1, n, d, dtype=torch.float64)))
        formula = kind.hops(n, size)
        layers = layers_needed(functools.partial(kind.make, d, size), n, d, most=formula + 1)  # dilations grow fast
        hops = hand_overs(layer.recurrence, n, d) if isinstance(layer, Recurrent) else layers
        row = {"sequential": chain, "layers": layers, "hops": hops, "hops_formula": formula}
        found[label(kind, size, n=n)] = row
    return found


def as_formulas(found: Mapping[str, Any]) -> bool:
    """Return whether operations and hops of a layer agree with its formulas."""
    counts, paths = found["operations"].values(), found["paths"].values()
    return all(x["counted"] == x["formula"] for x in counts) and all(x["hops"] == x["hops_formula"] for x in paths)


def seconds(layer: nn.Module, x: Tensor, gradient: Tensor) -> float:
    """Return the seconds of a forward and a backward pass, as the mean over `REPEATS`."""
    began = time.perf_counter()
    for _ in range(REPEATS):
        layer.zero_grad()
        x.grad = None
        layer(x).backward(gradient)
    return (time.perf_counter() - began) / REPEATS


def measure_times(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return milliseconds by layer and sizes. In each round, the layers take turns at each size."""
    points = {f"n = {n}, d = {d}": (n, d) for d in TIMED_WIDTHS for n in TIMED_LENGTHS}
    jobs: dict[str, Callable[[], float]] = {}
    for sizes, (n, d) in points.items():
        x, gradient = torch.randn(2, TOKENS // n, n, d)
        for name, kind in LAYER_KINDS.items():
            layer = kind.make(d, USUAL[kind.size], BELOW)
            jobs[f"{name}, {sizes}"] = functools.partial(seconds, layer, x.clone().requires_grad_(), gradient)
    with tuned():
        taken = rotate(jobs, rounds, warm_rounds=1)

    def summary(name: str) -> dict[str, float]:
        times = [1e3 * each for each in taken[name]]
        return {"median": statistics.median(times), "min": min(times), "max": max(times)}

    return {name: {sizes: summary(f"{name}, {sizes}") for sizes in points} for name in LAYER_KINDS}


def compare(layers: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return each layer's operations, and the attention product's, over a recurrent layer's, at n = d = `AT`."""
    at = {
        name: layers[name]["operations"][label(kind, USUAL[kind.size], n=AT, d=AT)]["counted"]
        for name, kind in LAYER_KINDS.items()
    }
    totals = {name: sum(parts.values()) for name, parts in at.items()}
    totals["self-attention, product alone"] = at["self-attention"]["product"]
    return {
        f"{name} / {other}": total / totals[other]
        for other in ("recurrent (RNN)", "recurrent (LSTM)")
        for name, total in totals.items()
        if name != other
    }


def show(layers: Mapping[str, Mapping[str, Any]]) -> None:
    """Print tables of operations, of chains and paths, and of times."""
    rows, more = [], []
    for name, kind in LAYER_KINDS.items():
        for part, exponents in layers[name]["exponents"].items():
            slopes = [f"{exponents[each]:.2f}" if each in exponents else "" for each in ("n", "d", kind.size)]
            rows.append([f"{name}: {part}", kind.paper.operations.get(part, ""), *slopes])
        for sizes, path in layers[name]["paths"].items():
            more.append([f"{name}: {sizes}", kind.paper.sequential, str(path["sequential"])])
            more[-1] += [kind.paper.path, str(path["hops"]), str(path["layers"])]
    print(table(["operations", "paper", "exponent of n", "of d", "of k or r"], rows))
    print("\n" + table(["paths", "paper", "sequential", "paper", "hops", "layers"], more))
    times = {name: found["milliseconds"] for name, found in layers.items()}
    if points := list(times["self-attention"]):
        rows = [[name, *(f"{times[name][point]['median']:,.1f}" for point in points)] for name in times]
        print("\n" + table(["milliseconds", *points], rows))
    for name, found in layers.items():
        print(f"{name}: {'as' if as_formulas(found) else 'NOT as'} its formulas say")


def main() -> int:
    """Command-line entry point: measure, print and write the record; return 1 if anything disagrees with a formula."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of times")
    parser.add_argument("--no-times", action="store_true", help="all but the times")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers: dict[str, dict[str, Any]] = {}
    for name, kind in LAYER_KINDS.items():
        print(f"counting {name}", file=sys.stderr)
        layers[name] = {"paper": kind.paper._asdict(), **count_operations(kind, sweeps(kind))}
        layers[name]["paths"] = measure_paths(kind, path_points(kind))
    times = {name: {} for name in LAYER_KINDS} if args.no_times else measure_times(args.rounds)
    for name, found in layers.items():
        found["milliseconds"] = times[name]
    show(layers)
    settings: dict[str, Any] = {"heads": HEADS, "k": USUAL["k"], "r": USUAL["r"], "path_d": PATH_WIDTH}
    if not args.no_times:
        settings |= {"tokens": TOKENS, "repeats": REPEATS, "rounds": args.rounds, "threads": 1, "precision": "fp32"}
    facts = {"torch": torch.__version__, "settings": settings}
    write(args.out, record("layer types", **facts, operations_ratios=compare(layers), layers=layers))
    return 0 if all(map(as_formulas, layers.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
