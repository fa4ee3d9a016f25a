"""Measure target tokens trained per second, relative to a machine that only computed the model's matrix products.

Every contestant takes the same optimizer steps on the same batches, with dropout and the full softmax of every token.
The ceiling is the rate of plain matrix products (`peers/gemm.py`: the faster of one process with a thread per core and
one process per core), measured in the same interleaved run, divided by the FLOPs of a target token (`flops.py`), which
count real tokens only. `torch.mm` is a second ceiling, for programs that leave fp32 products to PyTorch; the two differ
if MKL does not use all of the processor's features. FLOPs are counted for what each contestant computes. Peers that
know only the plain Transformer train the `nearest` model, which has fewer.

    python benchmarks/train.py                                                # phrasebook, reinforced, fp32, random 64
    python benchmarks/train.py --train train.de.gz train.en.gz --model baseline --out baseline.json
    python benchmarks/train.py --precision bf16 --batches tokens1600 --contestants repose,torch
    python benchmarks/train.py --paper-epoch valid.pt.gz valid.en.gz test.pt.gz test.en.gz

The last command times an epoch of the paper's size, on random token ids: 51,785 pairs as long as the pairs of the
files.
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import flops
import workload
from interleave import Contestant, Result, as_json, interleave, peer, some_of
from records import command_line, record, table, write
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.system.device import available_cores
from repose.training.distributed import choose_device, choose_workers, threads_for

PAPER_SECONDS = 1352
"""Seconds of an epoch of the paper's `reinforced` on two A100 GPUs (arXiv 2410.04731)."""
PLAIN = {"baseline": "baseline", "reinforced": "ablation-none", "small-rotary": "small-rotary"}
"""This project's equivalent of a peer's nearest model, which has no values from token embeddings."""


class Trainer(NamedTuple):
    """A program that can train."""

    script: str
    environment: str | None
    exact: bool = True
    """True if the program has the paper's models; otherwise it trains the nearest plain Transformer."""
    cuda: bool = False
    """True if the program can run on a GPU."""
    rotary: bool = False
    """True if the program has `small-rotary`."""
    one_process: bool = True
    """True for one process with a thread per core; otherwise as many processes as `repose train` uses by default."""


TRAINERS = {
    "repose": Trainer("repose_.py", None, cuda=True, rotary=True, one_process=False),
    "repose-one-process": Trainer("repose_.py", None, rotary=True),
    "keras": Trainer("keras_.py", "keras"),
    "torch": Trainer("plain_torch.py", "torch", cuda=True, rotary=True),
    "torch-ddp": Trainer("plain_torch.py", "torch", rotary=True, one_process=False),
    "torch-transformer": Trainer("torch_transformer.py", "torch", exact=False, cuda=True),
    "marian": Trainer("marian.py", "marian", exact=False, cuda=True),
}


def trainer(name: str, folder: Path, *, tokens_per_batch: int, device: str = "cpu", **options: Any) -> Contestant:
    """Return a contestant of training; `options` are model, precision and batches of the protocol."""
    entry = TRAINERS[name]
    processes, threads = 1, available_cores()
    if not entry.one_process:
        processes = choose_workers(
            choose_device(device), requested=None, recorded=None, tokens_per_batch=tokens_per_batch
        )
        threads = threads_for(processes)
    if device != "cpu":
        options["device"] = device
    options |= {"size": "exact" if entry.exact else "nearest", "processes": processes, "threads": threads}
    return peer(name, entry.script, entry.environment, folder, task="train", **options)


def ceilings(folder: Path, precision: str, device: str = "cpu") -> list[Contestant]:
    """Return contestants that compute plain matrix products, for each way to use this machine's cores."""
    cores = available_cores() if device == "cpu" else 1
    kinds = ("gemm", "torch.mm") if (device, precision) == ("cpu", "fp32") else ("gemm",)
    options = {"task": "train", "precision": precision} | ({"device": device} if device != "cpu" else {})
    found = []
    for kind in kinds:
        variables = {} if kind == "gemm" else {"GEMM": kind}
        for processes, threads in sorted({(1, cores), (cores, 1)}):
            shape = {"processes": processes, "threads": threads, **options}
            found.append(peer(f"{kind} {processes}x{threads}", "gemm.py", None, folder, variables=variables, **shape))
    return found


def architecture(name: str, model: str) -> Architecture:
    """Return what the program computes, as an architecture of this project."""
    if TRAINERS[name].exact:
        return preset(model)
    plain = preset(PLAIN[model])
    return dataclasses.replace(plain, head_dim=plain.d_model // plain.num_heads)


def flops_per_token(a: Architecture, folder: Path) -> float:
    """Return the training FLOPs per target token, over all pairs of the workload at their true lengths."""
    with np.load(folder / "pairs.npz") as arrays:
        src, tgt = np.diff(arrays["src_offsets"]), np.diff(arrays["tgt_offsets"]) - 1
    vocab_size = workload.facts(folder)["tgt_vocab_size"]
    lengths, counts = np.unique(np.stack([src, tgt]), axis=1, return_counts=True)
    totals = [flops.training(a, int(s), int(t), vocab_size).total for s, t in lengths.T]
    return float(np.dot(totals, counts) / tgt.sum())


def tokens_per_batch(folder: Path, batches: str) -> int:
    """Return the mean number of target tokens in a batch."""
    with np.load(folder / "pairs.npz") as arrays:
        return round(float((np.diff(arrays["tgt_offsets"]) - 1).sum()) / (len(arrays[f"{batches}_offsets"]) - 1))


def ceiling(results: Mapping[str, Result], kind: str = "gemm") -> float:
    """Return the FLOPs per second of plain products, in the fastest way; 0 if not measured."""
    return max((result.median for name, result in results.items() if name.startswith(f"{kind} ")), default=0.0)


def compared(results: Mapping[str, Result], model: str, folder: Path) -> dict[str, float]:
    """Return each contestant's share of each ceiling, and how many times as fast this project is as each other one."""
    rates = {name: results[name].median for name in TRAINERS if name in results and results[name].rates}
    costs = {name: flops_per_token(architecture(name, model), folder) for name in rates}
    found = {
        f"{name} / {kind}": rate * costs[name] / ceiling(results, kind)
        for name, rate in rates.items()
        for kind in ("gemm", "torch.mm")
        if ceiling(results, kind)
    }
    if "repose" in rates:
        found |= {f"repose / {name}": rates["repose"] / rate for name, rate in rates.items() if name != "repose"}
    return found


def show(results: Mapping[str, Result], ratios: Mapping[str, float], model: str, folder: Path) -> None:
    """Print rates, ceilings, and missing contestants."""
    rows = []
    for name, result in results.items():
        if not result.rates:
            continue
        scale, unit = (1.0, "tokens/s") if name in TRAINERS else (1e-9, "GFLOP/s")
        shares = [ratios.get(f"{name} / {kind}") for kind in ("gemm", "torch.mm")]
        ratio = ratios.get(f"repose / {name}")
        rows.append(
            [
                name,
                f"{scale * result.median:,.0f} {unit}",
                f"{scale * result.min:,.0f}-{scale * result.max:,.0f}",
                *(f"{share:.0%}" if share else "" for share in shares),
                f"{ratio:.2f}" if ratio else "",
                f"{result.peak_rss / 2**20:,.0f}",
                f"{result.ready['processes']} x {result.ready['threads']}",
                f"{result.ready['parameters']:,}" if name in TRAINERS else "",
            ]
        )
    columns = ["of gemm", "of torch.mm", "repose over it", "peak MiB", "processes", "parameters"]
    print(table(["contestant", "median", "range", *columns], rows))
    cost = flops_per_token(preset(model), folder)
    print(f"\n{model}: {cost / 1e6:.1f} MFLOP per target token; at the ceiling {ceiling(results) / cost:,.0f} tokens/s")
    for name, result in results.items():
        if result.problem:
            print(f"{name}: {result.problem}")


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Compare the contestants, and return the record."""
    folder = workload.from_arguments(args)
    options = {"model": args.model, "precision": args.precision, "batches": args.batches}
    tokens = tokens_per_batch(folder, args.batches)
    chosen = [
        trainer(name, folder, tokens_per_batch=tokens, device=args.device, **options)
        for name in args.contestants
        if (args.device == "cpu" or TRAINERS[name].cuda) and (args.model != "small-rotary" or TRAINERS[name].rotary)
    ]
    everyone = [*ceilings(folder, args.precision, args.device), *chosen]
    results = interleave(everyone, rounds=args.rounds, batches=args.batches_per_round)
    ratios = compared(results, args.model, folder)
    show(results, ratios, args.model, folder)
    settings = {**options, "device": args.device, "rounds": args.rounds, "batches_per_round": args.batches_per_round}
    costs = {name: flops_per_token(architecture(name, args.model), folder) for name in args.contestants}
    facts = workload.facts(folder)
    return record(
        "train",
        workload=facts,
        settings=settings,
        contestants=as_json(results),
        ratios=ratios,
        flops_per_token=costs,
    )


def paper_epoch(args: argparse.Namespace) -> dict[str, Any]:
    """Time epochs of the paper's pt→en training, updates only, from first batch to last; on a CPU one epoch."""
    folder = workload.make_paper_epoch(args.paper_epoch)
    options = {"model": args.model, "precision": args.precision, "batches": "random64"}
    tokens = tokens_per_batch(folder, "random64")
    with np.load(folder / "pairs.npz") as arrays:
        batches = len(arrays["random64_offsets"]) - 1
    gemms = ceilings(folder, args.precision, args.device)
    results = interleave(gemms, rounds=args.rounds, batches=args.batches_per_round)
    repose = trainer("repose", folder, tokens_per_batch=tokens, device=args.device, **options)
    # A GPU records each shape of batches in its first epoch, and replays it in later epochs.
    results |= interleave([repose], rounds=1 if args.device == "cpu" else 4, batches=batches, warm_rounds=0)
    ratios = compared(results, args.model, folder)
    show(results, ratios, args.model, folder)
    facts = workload.facts(folder)
    seconds = facts["tgt_tokens"] / results["repose"].median if results["repose"].rates else None
    if seconds:
        paper = f"; the paper's on two A100: {PAPER_SECONDS:,} s" if args.model == "reinforced" else ""
        print(f"an epoch of {facts['pairs']:,} pairs: {seconds:.1f} s{paper}")
    settings = {**options, "device": args.device, "batches": batches}
    return record(
        "train paper epoch",
        workload=facts,
        settings=settings,
        contestants=as_json(results),
        ratios=ratios,
        epoch_seconds=seconds,
    )


def main() -> int:
    """Command-line entry point: run the comparison or the epoch; return 1 if this project has no figure."""
    parser = command_line(__doc__)
    workload.add_arguments(parser)
    parser.add_argument("--model", choices=tuple(PLAIN), default="reinforced")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--batches", choices=tuple(workload.POLICIES), default="random64")
    parser.add_argument("--contestants", type=some_of(TRAINERS), default=list(TRAINERS), help=", ".join(TRAINERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches-per-round", type=int, default=20)
    parser.add_argument("--paper-epoch", type=Path, nargs="+", metavar="FILE", help="sources and targets in turn")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    outcome = compare(args) if args.paper_epoch is None else paper_epoch(args)
    write(args.out, outcome)
    ours = outcome["contestants"].get("repose")
    return 0 if ours is None or "median" in ours else 1


if __name__ == "__main__":
    sys.exit(main())
