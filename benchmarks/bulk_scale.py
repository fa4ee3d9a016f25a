"""Compare `repose bulk` with `repose translate`: speed, start-up time, memory, and the cost of shard and worker counts.

The lines are the phrasebook's sources, repeated in a new order each time. Both decode greedily, and runs take turns on
the same lines. Memory is the sum over all processes; pages shared by several processes count in each.

    python benchmarks/bulk_scale.py MODEL --lines 200000 --out results/bulk/scale.json
"""

import contextlib
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers.protocol import descendants
from records import command_line, record, write
from repose.data import phrasebook

LOOK = 0.1
"""Seconds between two measurements of memory."""
WORKERS = 2


def lines_of(number: int) -> list[str]:
    sources = [src for src, _ in phrasebook.read()["train"]]
    rng, lines = random.Random(1), list[str]()
    while len(lines) < number:
        rng.shuffle(sources)
        lines += sources
    return lines[:number]


def resident(parent: int) -> int:
    """Return the memory in bytes that a process and its descendants hold now."""
    pages = 0
    for process in (parent, *descendants(parent)):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(arguments: list[str], into: Path | None = None) -> dict[str, Any]:
    """Run a command and return its seconds, processor seconds and peak memory."""
    before, began, peak = os.times(), time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        output = subprocess.DEVNULL if into is None else stack.enter_context(into.open("wb"))
        command = [sys.executable, "-m", "repose", *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(LOOK)
    assert process.returncode == 0, arguments
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "seconds": round(time.monotonic() - began, 2),
        "processor_seconds": round(used, 2),
        "peak_mib": round(peak / 2**20),
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def planned(content: dict[str, Any], lines: int = 10**9) -> dict[str, Any]:
    """Return what this many lines would take, extrapolated from the processor time and sizes of the long run."""
    long = content["long"]
    seconds, shards = long["processor_seconds"] / long["lines"], -(-lines // long["shard_lines"])
    return {
        "lines": lines,
        "processor_hours": round(lines * seconds / 3600),
        "hours_on_cores": {str(cores): round(lines * seconds / 3600 / cores, 1) for cores in (16, 64, 512)},
        "shards": shards,
        "gib": {
            "inputs": round(lines * long["bytes_a_line"]["in"] / 2**30),
            "parts": round(lines * long["bytes_a_line"]["out"] / 2**30),
            "manifests": round(shards * long["bytes_a_manifest"] / 2**30, 2),
        },
        "processor_seconds_a_shard": round(long["shard_lines"] * seconds, 1),
        "processor_minutes_lost_with_a_machine_of_64_cores": round(64 * long["shard_lines"] * seconds / 2 / 60),
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("model")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--compared", type=int, default=30_000, help="Lines that both translate.")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    content = record("bulk_scale", workers=WORKERS, search="greedy", load=[os.getloadavg()[0]])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {}
        for number in (1, given.compared, given.lines):
            files[number] = folder / f"{number}.txt"
            files[number].write_text("".join(f"{line}\n" for line in lines_of(number)), encoding="utf-8")

        def bulk(number: int, out: str, *options: str) -> dict[str, Any]:
            command = ["bulk", given.model, str(files[number]), "--out", str(folder / out), "--beam-size", "1"]
            return run([*command, "--merge", "--workers", str(WORKERS), *options])

        def translate(number: int) -> dict[str, Any]:
            command = ["translate", given.model, str(files[number]), "--beam-size", "1", "--workers", str(WORKERS)]
            return run(command, folder / "translated")

        content["start"] = {"translate": translate(1), "bulk": bulk(1, "one")}
        rounds: dict[str, list[dict[str, Any]]] = {"translate": [], "bulk": []}
        for turn in range(given.rounds):
            rounds["translate"].append(translate(given.compared))
            rounds["bulk"].append(bulk(given.compared, f"c{turn}", "--shard-lines", "5000"))
            assert digest(folder / "translated") == digest(folder / f"c{turn}" / "merged.txt")
        content["compared"] = {"lines": given.compared, "shard_lines": 5000, "same_bytes": True, **rounds}
        for who, runs in rounds.items():
            seconds = statistics.median(one["seconds"] for one in runs)
            content["compared"][f"{who}_lines_a_second"] = round(given.compared / seconds)
        content["shards"] = [
            {"shard_lines": size, "workers": workers, **bulk(given.compared, f"s{size}-{workers}", *options)}
            for size, workers in ((500, 2), (5000, 2), (20_000, 2), (5000, 1))
            for options in [("--shard-lines", str(size), "--workers", str(workers))]
        ]
        content["long"] = {"lines": given.lines, "shard_lines": 20_000, **bulk(given.lines, "long")}
        content["long"]["lines_a_second"] = round(given.lines / content["long"]["seconds"])
        sizes = [path.stat().st_size for path in (files[given.lines], folder / "long" / "merged.txt")]
        content["long"]["bytes_a_line"] = {"in": sizes[0] / given.lines, "out": sizes[1] / given.lines}
        manifests = [path.stat().st_size for path in (folder / "long" / "parts").glob("*.json")]
        content["long"]["bytes_a_manifest"] = round(statistics.mean(manifests))
    content["load"].append(os.getloadavg()[0])
    content["plan"] = planned(content)
    write(given.out, content)
    print(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
