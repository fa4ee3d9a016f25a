"""Test a grid on a Ray cluster of two machines, one of which is lost in the middle.

Both machines are simulated on this one, each with its own raylet, ports and one core. The same small cells first run
here without a cluster, one after the other; then on the cluster, once for each way to lose a machine:

    killed    raylet, workers and trainings of the second machine are killed (-9) at once
    silent    all of them are stopped (SIGSTOP), and the storage gives the training's locks to others, as an NFS server
              does if it has not heard from a machine for long; the training resumes as soon as another attempt has
              locked its folder, and must end before that attempt begins

Every cell must be done exactly once, and all figures, translations and weights must equal those of the undisturbed
runs.

    python benchmarks/ray_two_nodes.py --out results/ray-two-nodes.json
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from peers.protocol import descendants
from records import command_line, record, table, write
from repose.config.file import load, to_json
from repose.grids import ray as on_ray
from repose.grids.cells import LOCK, POLL, CellJob, CellState, CellStatus, run_cell
from repose.grids.ray import run_on_ray
from repose.grids.view import reason
from repose.tasks.corpus import prepare_corpus

SETTINGS = [
    *(f"architecture.{name}" for name in ("d_token=16", "num_heads=1", "head_dim=16", "d_ff=32")),
    *(f"architecture.{name}" for name in ("num_encoder_layers=1", "num_decoder_layers=1")),
    *(f"training.{name}" for name in ("epochs=none", "validate_every_updates=25", "batch_size=150")),
    *("decoding.beam_size=2", "decoding.max_extra_tokens=5"),
]
WAYS = ("killed", "silent")
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 4,
}
"""With these settings, Ray gives a silent machine up after a few seconds instead of a minute."""
STORE = 80 << 20
"""Bytes of each machine's object store: the minimum that Ray accepts."""


def jobs(folder: Path, seeds: int, updates: int) -> list[CellJob]:
    """Return the cells: two systems with this many seeds, each in its own folder below this one."""
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
    """Return digests of a run's results, without anything that depends on the clock."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    files = {path.name: path.read_bytes() for path in sorted((folder / "hypotheses").iterdir())}
    files["model.safetensors"] = (folder / "model" / "model.safetensors").read_bytes()
    files["metrics.jsonl"] = json.dumps([{k: v for k, v in r.items() if k != "wall"} for r in records]).encode()
    files["scores"] = b"".join(path.read_bytes() for path in sorted(folder.glob("scores.*.json")))
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def times_told(folder: Path, word: str) -> int:
    """Return the number of lines in the training's log that begin with this word, after date and time."""
    lines = (folder / "train.log").read_text(encoding="utf-8").splitlines()
    return sum(line.split(" ", 2)[2].startswith(word) for line in lines)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Cluster, Any]]:
    """Start a cluster. Yield it, and the machine that will be lost."""
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE, "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster, cluster.add_node(num_cpus=1, object_store_memory=STORE)
    finally:
        ray.shutdown()
        cluster.shutdown()


class Saboteur(threading.Thread):
    """Waits until the second machine is in the middle of a cell, then takes the machine away."""

    def __init__(self, runs: Path, node: Any, way: str) -> None:
        super().__init__(daemon=True)
        self.runs, self.way = runs, way
        self.raylet = node.all_processes["raylet"][0].process.pid
        self.cell = ""
        self.at = 0.0
        self.lived: float | None = None
        """Seconds for which a resumed training lived on, although another one holds its lock by then."""

    def run(self) -> None:
        while not (found := self.training()):
            time.sleep(0.05)
        cell, training = found
        self.cell, self.at = cell.name, time.monotonic()
        self.send(signal.SIGKILL if self.way == "killed" else signal.SIGSTOP)
        if self.way == "silent":
            self.lived = wake_up(cell, training)

    def training(self) -> tuple[Path, int] | None:
        """Return the cell that the machine is training, and the process, once there is a checkpoint; otherwise None."""
        mine = descendants(self.raylet)
        for lock in self.runs.glob(f"*/{LOCK}"):
            words = lock.read_text(encoding="utf-8").split()
            cell = lock.parent
            if words and int(words[0]) in mine and (cell / "state" / "last.safetensors").exists():
                return None if times_told(cell, "done") else (cell, int(words[0]))
        return None

    def clean_up(self) -> None:
        """Kill stopped processes, so that they can be shut down."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the machine."""
        for process in (self.raylet, *descendants(self.raylet)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


def wake_up(cell: Path, training: int) -> float:
    """Take the locks of a stopped training away, and resume it once another holds them. Return how long it lived on."""
    for lock in (cell / LOCK, cell / "state" / "lock"):
        text = lock.read_bytes()
        lock.unlink()  # the lock goes with the file; the next process finds the same name in the new one
        lock.write_bytes(text)
    name = (cell / LOCK).read_text(encoding="utf-8")
    while (cell / LOCK).read_text(encoding="utf-8") in ("", name):
        time.sleep(0.05)
    began = time.monotonic()
    os.kill(training, signal.SIGCONT)
    while is_running(training):
        time.sleep(0.05)
    return round(time.monotonic() - began, 2)


def is_running(process: int) -> bool:
    """Return whether a process is running, and is not a zombie whose parent is stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lose(way: str, folder: Path, reference: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run the grid, lose a machine, and compare the results."""
    events: list[dict[str, Any]] = []
    with two_machines() as (cluster, second):
        saboteur = Saboteur(folder, second, way)
        saboteur.start()
        began = time.monotonic()

        def tell(cell: str, state: CellState) -> None:
            event = {"seconds": round(time.monotonic() - began, 1), "cell": cell, "status": state.status}
            # Keep the name of the machine out of the record.
            why = reason(state).replace(platform.node(), "HOST").replace(str(folder), "FOLDER")
            events.append(event | {"reason": why})
            print(f"{way}: {event['seconds']:6.1f} s  {cell}: {state.status} {why}", file=sys.stderr)

        never = {"stop": threading.Event(), "kill": threading.Event()}
        run_on_ray(jobs(folder, args.seeds, args.updates), tell, address=cluster.address, retries=2, **never)
        seconds = time.monotonic() - began
        saboteur.clean_up()
    cells = {}
    for name, status in {event["cell"]: event["status"] for event in events}.items():  # the last status of each
        cell = folder / name
        cells[name] = {
            "status": status,
            "done_told": sum(event["cell"] == name and event["status"] == "done" for event in events),
            "started": times_told(cell, "starting"),
            "resumed": times_told(cell, "resuming"),
            "retries": sum(event["cell"] == name and event["status"] == "waiting" for event in events),
            "equal": outcome(cell) == outcome(reference / name),
        }
    lost = {"cell": saboteur.cell, "seconds": round(saboteur.at - began, 1), "lived": saboteur.lived}
    return {"lost": lost, "seconds": round(seconds, 1), "cells": cells, "events": events}


def is_right(way: str, round_: dict[str, Any]) -> bool:
    """Return whether each cell was done once, with the undisturbed result.

    The lost cell must have been resumed from its checkpoint, and its old training must have ended soon after waking up.
    """
    cells = round_["cells"]
    lost = cells.get(round_["lost"]["cell"], {})
    return (
        all((c["status"], c["done_told"], c["started"], c["equal"]) == ("done", 1, 1, True) for c in cells.values())
        and sum(c["retries"] for c in cells.values()) == 1
        and (lost.get("retries"), lost.get("resumed")) == (1, 1)
        and (way == "killed" or (round_["lost"]["lived"] or 9.9) < 2 * POLL)
    )


def main() -> int:
    """Command-line entry point: run, compare, print a table, write the record; return 1 if anything differs."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="per system; two systems")
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    args = parser.parse_args()
    load = os.getloadavg()[0]  # from other programs; the seconds depend on it
    on_ray.LOOK_AT_MACHINES = 1.0  # because these cells are short
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["REPOSE_HOME"] = f"{temporary}/home"
        reference = Path(temporary) / "undisturbed"
        began = time.monotonic()
        undisturbed = jobs(reference, args.seeds, args.updates)
        for job in undisturbed:
            result = run_cell(job, stop=threading.Event())
            assert result.status == CellStatus.DONE, result
        seconds = time.monotonic() - began
        rounds = {way: lose(way, Path(temporary) / way.replace(" ", "-"), reference, args) for way in args.ways}
    right = {way: is_right(way, r) for way, r in rounds.items()}
    rows = [["undisturbed, one at a time", str(len(undisturbed)), "0", f"{seconds:.0f}", "-"]]
    for way, r in rounds.items():
        retries = sum(cell["retries"] for cell in r["cells"].values())
        rows.append([way, str(len(r["cells"])), str(retries), f"{r['seconds']:.0f}", "yes" if right[way] else "NO"])
    print(table(["second machine", "cells", "retries", "seconds", "each done once, all equal"], rows))
    content = record(
        "ray_two_nodes",
        load_before=load,
        ray=ray.__version__,
        settings={"seeds": args.seeds, "updates": args.updates, "experiment": SETTINGS},
        undisturbed_seconds=round(seconds, 1),
        right=right,
        rounds=rounds,
    )
    write(args.out, content)
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
