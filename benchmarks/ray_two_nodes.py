"""A grid on a Ray cluster of two machines, of which one is lost in the middle.

Both machines are this one, each with its own raylet, ports and one core. The same small cells run first here, one
after the other and undisturbed; then on the cluster, once for each way to lose a machine:

    killed    raylet, workers and trainings of the second machine are killed (-9) at once
    cut off   its raylet and its training hold still (SIGSTOP), so that Ray gives it up; the training goes on as soon as
              another attempt has claimed its folder, and must be gone before that one begins

Every cell must be done once, and all figures, translations and weights must be those of the undisturbed runs.

    python benchmarks/ray_two_nodes.py --out results/ray-two-nodes.json
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from interleave import machine, table, write
from repose.config.file import load, to_json
from repose.grids import remote_cells
from repose.grids.cells import CellJob, run_cell
from repose.grids.claim import MARGIN
from repose.grids.ray import RayBackend
from repose.tasks.corpus import prepare_corpus

SETTINGS = [
    *(f"architecture.{name}" for name in ("d_token=16", "num_heads=1", "head_dim=16", "d_ff=32")),
    *(f"architecture.{name}" for name in ("num_encoder_layers=1", "num_decoder_layers=1")),
    *(f"training.{name}" for name in ("epochs=none", "validate_every_updates=25", "batch_size=150")),
    *("decoding.beam_size=2", "decoding.max_extra_tokens=5"),
]
WAYS = ("killed", "cut off")
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 4,
}
"""Ray then gives a silent machine up after a few seconds rather than a minute."""
LEASE = 6.0
"""Seconds, see `repose.grids.claim`."""
STORE = 80 << 20
"""Bytes of each machine's object store, the least that Ray takes."""


def jobs(folder: Path, seeds: int, updates: int) -> list[CellJob]:
    """Two systems by so many seeds, each in a folder of its own below this one."""
    found = []
    for seed in range(seeds):
        for preset in ("reinforced", "ablation-none"):
            changes = [*SETTINGS, f"training.seed={seed}", f"training.updates={updates}"]
            experiment = load("demo", preset=preset, overrides=changes).experiment
            name = f"{preset}-s{seed}"
            found.append(CellJob(name=name, folder=folder / name, experiment=to_json(experiment), device="cpu"))
    prepare_corpus(experiment)
    return found


def outcome(folder: Path) -> dict[str, str]:
    """Digests of what a run has come to, without what depends on the clock."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    files = {path.name: path.read_bytes() for path in sorted((folder / "hypotheses").iterdir())}
    files["model.safetensors"] = (folder / "model" / "model.safetensors").read_bytes()
    files["metrics.jsonl"] = json.dumps([{k: v for k, v in r.items() if k != "wall"} for r in records]).encode()
    files["scores"] = b"".join(path.read_bytes() for path in sorted(folder.glob("scores.*.json")))
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def times_told(folder: Path, word: str) -> int:
    """Lines of the training's log that begin with this word, after date and time."""
    lines = (folder / "train.log").read_text(encoding="utf-8").splitlines()
    return sum(line.split(" ", 2)[2].startswith(word) for line in lines)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Cluster, Any]]:
    """A cluster, and the machine of it that is to be lost."""
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE, "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster, cluster.add_node(num_cpus=1, object_store_memory=STORE)
    finally:
        ray.shutdown()
        cluster.shutdown()


def below(process: int) -> list[int]:
    """Ids of a process's children, their children, and so on."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for child, parent in (map(int, line.split()) for line in listed.splitlines()):
        children.setdefault(parent, []).append(child)
    found, left = [], [process]
    while left:
        found += (new := children.get(left.pop(), []))
        left += new
    return found


def cell_on(runs: Path, node: str) -> str | None:
    """The cell that is being trained on that machine and has a checkpoint, if there is one."""
    for path in runs.glob(".session-*/[!.]*"):
        cell = runs / path.stem
        if path.name == "order" or json.loads(path.read_text(encoding="utf-8"))["id"] != node:
            continue
        if (cell / "state" / "last.safetensors").exists() and times_told(cell, "done") == 0:
            return cell.name
    return None


class Saboteur(threading.Thread):
    """Waits until the second machine is in the middle of a cell, and takes the machine away."""

    def __init__(self, runs: Path, node: Any, way: str) -> None:
        super().__init__(daemon=True)
        self.runs, self.node, self.way = runs, node, way
        self.raylet = node.all_processes["raylet"][0].process.pid
        self.cell = ""
        self.at = 0.0
        self.lived: float | None = None
        """Seconds for which a training that was cut off went on beside the claim of another."""

    def run(self) -> None:
        while not (cell := cell_on(self.runs, self.node.node_id)):
            time.sleep(0.05)
        self.cell, self.at = cell, time.monotonic()
        training = int((self.runs / cell / "cell.lock").read_text(encoding="utf-8").split(":")[1])
        if self.way == "killed":
            for process in [self.raylet, *below(self.raylet)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return
        for process in (self.raylet, training):
            os.kill(process, signal.SIGSTOP)
        claim = self.runs / cell / "state" / "claim.json"
        while json.loads(claim.read_text(encoding="utf-8"))["attempt"] == 1:
            time.sleep(0.05)
        began = time.monotonic()
        os.kill(training, signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(training, 0)
                time.sleep(0.05)
        self.lived = round(time.monotonic() - began, 2)

    def clean_up(self) -> None:
        """Let a stopped raylet be shut down."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.raylet, signal.SIGKILL)


def lose(way: str, folder: Path, reference: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run the grid, lose a machine, and compare."""
    events: list[dict[str, Any]] = []
    with two_machines() as (cluster, second):
        saboteur = Saboteur(folder, second, way)
        saboteur.start()
        began = time.monotonic()

        def tell(cell: str, status: str, reason: str) -> None:
            event = {"seconds": round(time.monotonic() - began, 1), "cell": cell, "status": status}
            # The name of the machine is nobody's business.
            events.append(event | {"reason": reason.replace(platform.node(), "HOST").replace(str(folder), "FOLDER")})
            print(f"{way}: {event['seconds']:6.1f} s  {cell}: {status} {events[-1]['reason']}", file=sys.stderr)

        backend = RayBackend(address=cluster.address, retries=2, lease=LEASE)
        results = backend.run(jobs(folder, args.seeds, args.updates), tell, threading.Event())
        seconds = time.monotonic() - began
        saboteur.clean_up()
    cells = {}
    for name in results:
        cell = folder / name
        cells[name] = {
            "status": results[name].status,
            "done_told": sum(event["cell"] == name and event["status"] == "done" for event in events),
            "started": times_told(cell, "starting"),
            "resumed": times_told(cell, "resuming"),
            "retries": sum(event["cell"] == name and event["status"] == "waiting" for event in events),
            "equal": outcome(cell) == outcome(reference / name),
        }
    lost = {"cell": saboteur.cell, "seconds": round(saboteur.at - began, 1), "lived": saboteur.lived}
    return {"lost": lost, "seconds": round(seconds, 1), "cells": cells, "events": events}


def is_right(way: str, round_: dict[str, Any]) -> bool:
    """Whether each cell was done once, as if undisturbed, and the lost one went on from its checkpoint, alone."""
    cells = round_["cells"]
    lost = cells.get(round_["lost"]["cell"], {})
    return (
        all((c["status"], c["done_told"], c["started"], c["equal"]) == ("done", 1, 1, True) for c in cells.values())
        and sum(c["retries"] for c in cells.values()) == 1
        and (lost.get("retries"), lost.get("resumed")) == (1, 1)
        and (way == "killed" or (round_["lost"]["lived"] or LEASE + MARGIN) < LEASE + MARGIN)
    )


def main() -> int:
    """Runs, compares, prints a table, writes the record; the exit code is 1 where anything differs."""
    parser = argparse.ArgumentParser(description="A Ray cluster of two machines, of which one is lost.")
    parser.add_argument("--seeds", type=int, default=2, help="per system; two systems")
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    load = os.getloadavg()[0]  # of other work, which the seconds then depend on
    remote_cells.LOOK_AT_MACHINES = 1.0  # as these cells are short
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["REPOSE_HOME"] = f"{temporary}/home"
        reference = Path(temporary) / "undisturbed"
        began = time.monotonic()
        undisturbed = jobs(reference, args.seeds, args.updates)
        for job in undisturbed:
            result = run_cell(job, stop=threading.Event())
            assert result.status == "done", result.reason
        seconds = time.monotonic() - began
        rounds = {way: lose(way, Path(temporary) / way.replace(" ", "-"), reference, args) for way in args.ways}
    rows = [["undisturbed, one at a time", str(len(undisturbed)), "0", f"{seconds:.0f}", "-"]]
    for way, r in rounds.items():
        retries = sum(cell["retries"] for cell in r["cells"].values())
        rows.append(
            [way, str(len(r["cells"])), str(retries), f"{r['seconds']:.0f}", "yes" if is_right(way, r) else "NO"]
        )
    print(table(["second machine", "cells", "retries", "seconds", "each done once, all equal"], rows))
    content = {
        "benchmark": "ray_two_nodes",
        "machine": machine(),
        "load_before": load,
        "ray": ray.__version__,
        "settings": {"seeds": args.seeds, "updates": args.updates, "lease": LEASE, "experiment": SETTINGS},
        "undisturbed_seconds": round(seconds, 1),
        "right": {way: is_right(way, r) for way, r in rounds.items()},
        "rounds": rounds,
    }
    write(args.out, content)
    return 0 if all(content["right"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
