"""Measure peak memory of training: of every contestant on equal batches, and of `repose` for corpora of growing size.

A peak is the sum over a program's processes of the most memory that each held at any time (VmHWM of Linux). It includes
model, optimizer and libraries; pages shared by several processes count in each. The second table is measured on real
`repose prepare` and `repose train` processes with 1, 4 and 16 times as many generated pairs, with the default recipe.

    python benchmarks/memory.py
    python benchmarks/memory.py --train train.de.gz train.en.gz --model baseline --out memory.json
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workload
from interleave import Result, as_json, interleave, some_of
from peers.protocol import peak_rss
from records import command_line, record, table, write
from repose.system.device import available_cores
from train import TRAINERS, tokens_per_batch, trainer

MIB = 2**20
_LOOK_EVERY = 0.05  # seconds between two readings of a process's peak
_REPOSE = [sys.executable, "-c", "from repose.cli.main import main; main()"]
_STOPPED = 3  # exit code of a training that stopped early on request


def of_contestants(args: argparse.Namespace) -> tuple[dict[str, Result], dict[str, Any]]:
    """Run each contestant by itself on the same batches; return the results and the facts of the workload."""
    folder = workload.from_arguments(args)
    options = {"model": args.model, "precision": args.precision, "batches": args.batches}
    tokens = tokens_per_batch(folder, args.batches)
    results: dict[str, Result] = {}
    for name in args.contestants:
        one = trainer(name, folder, tokens_per_batch=tokens, **options)
        results |= interleave([one], rounds=1, batches=args.batches_per_round, warm_rounds=0)
    return results, workload.facts(folder)


def against_corpus(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return peaks of preparing and of training, with one worker and one per core, for each size of the corpus."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "REPOSE_HOME": str(folder / "home")}
        for factor in args.factors:
            pairs = workload.generate(factor * args.pairs)
            files = [folder / f"{factor}.{side}" for side in ("src", "tgt")]
            for side, file in enumerate(files):
                file.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
            sources = [str(file) for file in files]
            row: dict[str, Any] = {"pairs": len(pairs), "prepare": _peak(["prepare", *sources], environment)}
            for workers in sorted({1, available_cores()}):
                run = ["--out", str(folder / f"{factor}-{workers}"), "--stop-after", str(args.updates)]
                row[f"train, workers: {workers}"] = _peak(
                    ["train", *sources, *run, "--workers", str(workers)], environment
                )
            print(row, file=sys.stderr)
            found.append(row)
    return found


def _peak(arguments: list[str], environment: dict[str, str]) -> int:
    """Run one `repose` command and return its peak memory in bytes. Raises SystemExit if it fails."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*_REPOSE, *arguments], stdout=log, stderr=log, env=environment)
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_rss(process.pid))
            time.sleep(_LOOK_EVERY)
        if process.returncode not in (0, _STOPPED):
            log.seek(0)
            raise SystemExit(f"repose {arguments[0]} failed: {log.read()}")
    return peak


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the peak with the largest corpus over the peak with the smallest, for each kind of process."""
    return {kind: rows[-1][kind] / rows[0][kind] for kind in rows[0] if kind != "pairs"} if len(rows) > 1 else {}


def show(results: dict[str, Result], rows: Sequence[dict[str, Any]]) -> None:
    """Print both tables."""
    lines = [
        [name, f"{r.peak_rss / MIB:,.0f}", f"{r.ready['processes']} x {r.ready['threads']}"]
        for name, r in results.items()
        if r.rates
    ]
    print(table(["contestant", "peak MiB", "processes"], lines))
    for name, result in results.items():
        if result.problem:
            print(f"{name}: {result.problem}")
    if rows:
        kinds = list(rows[0])
        cells = [[f"{row['pairs']:,}", *(f"{row[kind] / MIB:,.0f} MiB" for kind in kinds[1:])] for row in rows]
        print("\n" + table(kinds, cells))
    for kind, ratio in growth(rows).items():
        print(f"{kind}: the largest corpus takes {ratio:.2f} of the smallest one's memory")


def main() -> None:
    """Command-line entry point: measure both."""
    parser = command_line(__doc__)
    workload.add_arguments(parser)
    parser.add_argument("--model", choices=("reinforced", "baseline"), default="reinforced")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--batches", choices=tuple(workload.POLICIES), default="random64")
    parser.add_argument("--contestants", type=some_of(TRAINERS), default=list(TRAINERS), help=", ".join(TRAINERS))
    parser.add_argument("--batches-per-round", type=int, default=40, help="that each contestant trains on")
    parser.add_argument("--pairs", type=int, default=20_000, help="of the smallest generated corpus")
    parser.add_argument(
        "--factors", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16], help="default: 1,4,16"
    )
    parser.add_argument("--updates", type=int, default=40, help="of each training of generated pairs")
    args = parser.parse_args()
    results, facts = of_contestants(args)
    rows = against_corpus(args)
    show(results, rows)
    ours = {n: r.peak_rss for n, r in results.items() if n.startswith("repose") and r.rates}
    others = {n: r.peak_rss for n, r in results.items() if n not in ours and r.rates}
    ratios = {f"{a} / {b}": mine / theirs for a, mine in ours.items() for b, theirs in others.items()}
    settings = {"model": args.model, "precision": args.precision, "batches": args.batches, "updates": args.updates}
    content = record(
        "memory",
        workload=facts,
        settings=settings,
        contestants=as_json(results),
        ratios=ratios,
        against_corpus=rows,
        growth=growth(rows),
    )
    write(args.out, content)


if __name__ == "__main__":
    main()
