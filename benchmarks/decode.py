"""Measure sentences decoded per second, relative to a machine that only computed the model's matrix products.

Each contestant generates 14 tokens for each of 1,000 sentences with random weights, 64 sentences at a time, greedily or
with a beam of 4. A ceiling is the rate of plain matrix products, as in `train.py`, measured in the same interleaved
run, divided by the FLOPs of a sentence (`flops.py`). FLOPs are counted for what each contestant computes: peers cannot
take values from token embeddings, so their `reinforced` of the nearest size is `ablation-none` with narrower heads.
bf16 is compared with the products of bf16, int8 with those of fp32.

    python benchmarks/decode.py                                              # phrasebook, reinforced, nearest size
    python benchmarks/decode.py --train train.de.gz train.en.gz --model baseline --size exact --out baseline.json
"""

import argparse
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import workload
from flops import mean_decoding
from interleave import Contestant, Result, as_json, interleave, peer, some_of
from peers.protocol import DECODE_BATCH, NEW_TOKENS
from records import command_line, record, table, write
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.system.device import available_cores
from train import PLAIN, ceilings

MODELS = tuple(PLAIN)
CEILINGS = ("gemm", "torch.mm")
"""Kinds of products that `train.py` takes as ceilings. The second is PyTorch's own for fp32 on a CPU."""
PASS = -(-workload.NUM_DECODED // DECODE_BATCH)
"""Number of batches that hold all sentences."""


class Entry(NamedTuple):
    """A program that can decode."""

    script: str
    environment: str | None
    exact: tuple[str, ...]
    """Models that the program has at their exact sizes."""
    precisions: tuple[str, ...]
    workers: bool
    """True if it runs one single-threaded worker per core; otherwise it is one process with a thread per core."""
    cuda: bool = False
    """True if the program can run on a GPU."""
    engine: str = "torch"
    """Decoding engine, for this project."""


ENTRIES = {
    "repose": Entry("repose_.py", None, MODELS, ("fp32", "int8"), workers=True, cuda=True),
    "repose-onnx": Entry("repose_.py", None, MODELS, ("fp32", "int8"), workers=True, engine="onnx"),
    "ctranslate2": Entry(
        "ctranslate2_.py", "ctranslate2", ("baseline", "small-rotary"), ("fp32", "int8"), workers=True
    ),
    "marian": Entry("marian.py", "marian", (), ("fp32", "bf16"), workers=False, cuda=True),
}


class Run(NamedTuple):
    """A contestant with its settings."""

    entry: str
    precision: str
    beam: int

    @property
    def label(self) -> str:
        """Name in tables and records."""
        return f"{self.entry} {self.precision}, {'greedy' if self.beam == 1 else f'beam {self.beam}'}"

    @property
    def ceiling(self) -> str:
        """Precision of the matrix products that serve as this run's ceiling."""
        return "bf16" if self.precision == "bf16" else "fp32"


def architecture(entry: str, model: str, size: str) -> Architecture:
    """Return what the program computes, as an architecture of this project."""
    a = preset(model if entry.startswith("repose") else PLAIN[model])
    return a if size == "exact" else dataclasses.replace(a, head_dim=a.d_model // a.num_heads)


def plan(args: argparse.Namespace) -> list[Run]:
    """Return all requested runs that the named contestants support."""
    return [
        Run(name, precision, beam)
        for beam in args.beam
        for precision in args.precision
        for name in args.contestants
        if precision in ENTRIES[name].precisions
        and (args.model in ENTRIES[name].exact or (args.size == "nearest" and args.model != "small-rotary"))
        and (args.device == "cpu" or ENTRIES[name].cuda)
    ]


def contestants(runs: Sequence[Run], args: argparse.Namespace, folder: Path) -> list[Contestant]:
    """Return contestants for plain products, in each precision that serves as a ceiling, and for the runs."""
    found = [
        dataclasses.replace(each, name=f"{each.name} {precision}")
        for precision in dict.fromkeys(run.ceiling for run in runs)
        for each in ceilings(folder, precision, args.device)
    ]
    cores = 1 if args.alone else available_cores()
    for run in runs:
        entry = ENTRIES[run.entry]
        options = {"model": args.model, "size": args.size, "precision": run.precision, "beam": run.beam}
        options |= {"engine": entry.engine} | ({"alone": 1} if args.alone else {})
        if args.device != "cpu":
            options |= {"device": args.device}
        else:
            options |= {"processes": cores, "threads": 1} if entry.workers else {"processes": 1, "threads": cores}
        found.append(peer(run.label, entry.script, entry.environment, folder, task="decode", **options))
    return found


def rate_of_products(results: Mapping[str, Result], kind: str, precision: str) -> float:
    """Return FLOP/s of one kind of products, with the better of the two ways to use the cores; 0 if not measured."""
    rates = (each.median for name, each in results.items() if (name.split()[0], name.split()[-1]) == (kind, precision))
    return max(rates, default=0.0)


def flops_of_runs(runs: Sequence[Run], args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Return the FLOPs of a sentence for each run, by label."""
    with np.load(folder / "decode.npz") as arrays:
        lengths = np.diff(arrays["src_offsets"]).tolist()
    vocab_size = workload.facts(folder)["tgt_vocab_size"]

    @functools.cache
    def of(entry: str, beam: int) -> float:
        return mean_decoding(architecture(entry, args.model, args.size), lengths, NEW_TOKENS, beam, vocab_size)

    return {run.label: of(run.entry, run.beam) for run in runs}


def compare(runs: Sequence[Run], results: dict[str, Result], flops: dict[str, float]) -> dict[str, float]:
    """Return the ratios: each run to its ceilings; this project to each peer and to its own fp32, with equal search."""
    found = {}
    for run in runs:
        for kind in CEILINGS:
            rate, limit = results[run.label].median, rate_of_products(results, kind, run.ceiling)
            if rate and limit:
                found[f"{run.label} / {kind}"] = rate * flops[run.label] / limit
    measured = [run for run in runs if results[run.label].rates]
    for run in (each for each in measured if each.entry.startswith("repose")):
        for other in (each for each in measured if each.beam == run.beam):
            if not other.entry.startswith("repose") or (other.precision == "fp32" and run.precision != "fp32"):
                found[f"{run.label} / {other.label}"] = results[run.label].median / results[other.label].median
    return found


def show(runs: Sequence[Run], results: dict[str, Result], flops: dict[str, float], ratios: dict[str, float]) -> None:
    """Print tables of rates and ratios, and the missing contestants."""
    rows = []
    for run in runs:
        result = results[run.label]
        if not result.rates:
            continue
        shares = [ratios.get(f"{run.label} / {kind}") for kind in CEILINGS]
        rows.append(
            [
                run.label,
                f"{result.median:,.0f}",
                f"{result.min:,.0f}-{result.max:,.0f}",
                f"{flops[run.label] / 1e6:.1f}",
                *("" if share is None else f"{share:.0%}" for share in shares),
                f"{result.peak_rss / 2**20:,.0f}",
                f"{result.ready['parameters']:,}",
            ]
        )
    headings = ["contestant", "sentences/s", "range", "MFLOP/sentence", *(f"of {kind}" for kind in CEILINGS)]
    print(table([*headings, "peak MiB", "parameters"], rows))
    for kind, precision in dict.fromkeys((kind, run.ceiling) for run in runs for kind in CEILINGS):
        if rate := rate_of_products(results, kind, precision):
            print(f"{kind} {precision}: {rate / 1e9:,.1f} GFLOP/s")
    rest = {pair: ratio for pair, ratio in ratios.items() if not pair.endswith(CEILINGS)}
    if rest:
        print("\n" + table(["ratio", ""], [[pair, f"{ratio:.2f}"] for pair, ratio in rest.items()]))
    for label, result in results.items():
        if result.problem:
            print(f"{label}: {result.problem}")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = command_line(__doc__)
    workload.add_arguments(parser)
    parser.add_argument("--model", choices=MODELS, default="reinforced")
    parser.add_argument(
        "--size", choices=("exact", "nearest"), default="nearest", help="nearest: what peers can express"
    )
    parser.add_argument("--beam", type=int, choices=(1, 4), nargs="+", default=[1, 4], help="1 is greedy")
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), nargs="+", default=["fp32"])
    parser.add_argument("--contestants", type=some_of(ENTRIES), default=list(ENTRIES), help=", ".join(ENTRIES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=2, help="over the 1,000 sentences, of each contestant in a round")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--alone", action="store_true", help="one sentence after the other, in one process")
    return parser.parse_args()


def main() -> None:
    """Command-line entry point: measure, print tables and write the record."""
    args = arguments()
    folder = workload.from_arguments(args)
    runs = plan(args)
    if not runs:
        raise SystemExit("none of these contestants has that model at that size and precision")
    results = interleave(contestants(runs, args, folder), rounds=args.rounds, batches=args.passes * PASS)
    flops = flops_of_runs(runs, args, folder)
    ratios = compare(runs, results, flops)
    show(runs, results, flops, ratios)
    names = ("model", "size", "beam", "precision", "rounds", "passes", "device", "alone")
    settings = {name: getattr(args, name) for name in names} | {"new_tokens": NEW_TOKENS, "batch": DECODE_BATCH}
    content = record(
        "decode",
        workload=workload.facts(folder),
        settings=settings,
        contestants=as_json(results),
        ratios=ratios,
        flops_per_sentence=flops,
    )
    write(args.out, content)


if __name__ == "__main__":
    main()
