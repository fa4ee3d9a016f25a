"""`repose serve` beside CTranslate2 behind a minimal server: requests a second, latency, memory.

Both serve the same trained model with the same beam on the same cores, in processes that stay; they are asked in turns
(A B B A ...), so that a machine's mood falls on both alike. Clients are connections of one asyncio process that ask
again as soon as they are answered; an answer that is not the one that its text got before counts as wrong.
LibreTranslate itself downloads its models, which is not possible here: `peers/serve_ctranslate2.py` does what it does
at its core, and less.

    python benchmarks/serve.py runs/mine --seconds 4 --out results/speed/serve.json
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import repose
from interleave import machine, table, write
from repose.data import phrasebook
from repose.system.device import available_cores

PEERS = Path(__file__).parent / "peers"
CLIENTS = (1, 8, 64, 256)
BATCH = 32
"""Texts of a request in the measurement of lists."""
SHOWN = ("requests_per_second", "processor_ms_per_request", "p50_ms", "p95_ms", "p99_ms")
COMMAND = "import sys; from repose.cli.main import main; main()"


@dataclass
class Asked:
    """What came of asking for some seconds."""

    requests: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    """Of the server's processes: moves less than time where others are at work on the machine."""
    latencies: list[float] = field(default_factory=list)
    wrong: int = 0
    """Answers that are not those that the same texts got before."""
    failed: int = 0
    """Other than 200, or no answer."""

    def add(self, other: "Asked") -> None:
        """Another round."""
        for name in ("requests", "seconds", "processor_seconds", "wrong", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latencies += other.latencies

    def as_json(self) -> dict[str, Any]:
        """Latencies in milliseconds."""
        p50, p95, p99 = np.percentile(self.latencies, [50, 95, 99]) * 1000
        return {
            "requests_per_second": self.requests / self.seconds,
            "processor_ms_per_request": 1000 * self.processor_seconds / self.requests,
            **{"p50_ms": p50, "p95_ms": p95, "p99_ms": p99},
            **{"requests": self.requests, "wrong": self.wrong, "failed": self.failed},
        }


class Contestant:
    """A server process, and what it answered to each text when nobody else asked."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        self.port = 0
        for line in self._process.stdout:
            if found := re.search(r"^(\d+)$|at http://[\d.]+:(\d+)$", line.strip()):
                self.port = int(found[1] or found[2])
                break
        if not self.port:
            raise SystemExit(f"{name} did not start")
        self.known: dict[str, Any] = {}
        self.measured: dict[str, Asked] = {}

    @property
    def pids(self) -> list[int]:
        """Of all its processes."""
        return [self._process.pid, *_children(self._process.pid)]

    def memory(self) -> int:
        """Bytes, those that processes share divided among them."""
        return sum(map(_proportional_bytes, self.pids))

    def processor_seconds(self) -> float:
        """Of all its processes so far."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """And wait."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _children(child)


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return 1024 * int(found[1]) if found else 0
    return 0


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, q: object) -> tuple[int, Any]:
    """One request over a kept connection; the least HTTP that does, since its cost is the machine's, too."""
    body = json.dumps({"q": q, "source": "pt", "target": "en"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    assert length is not None
    return int(answer.split(b" ", 2)[1]), await reader.readexactly(int(length[1]))


async def _client(port: int, questions: list[Any], known: dict[str, Any], until: float, asked: Asked) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for q in questions:
        if (began := time.perf_counter()) >= until:
            break
        try:
            status, content = await _ask(reader, writer, q)
        except (OSError, asyncio.IncompleteReadError):
            asked.failed += 1
            break
        asked.latencies.append(time.perf_counter() - began)
        asked.requests += 1
        asked.failed += status != 200
        if status == 200:
            answer = json.loads(content)["translatedText"]
            several = list(zip(q, answer, strict=True)) if isinstance(q, list) else [(q, answer)]
            asked.wrong += any(known.setdefault(text, got) != got for text, got in several)
    writer.close()


async def ask(one: Contestant, clients: int, seconds: float, texts: list[str], size: int | None) -> Asked:
    """So many clients at once. `size`: of lists; None asks for one text at a time."""
    asked = Asked()
    rng = np.random.default_rng(clients)
    # More questions than can be answered, each client's in an order of its own.
    orders = [rng.integers(len(texts), size=4_000 * (size or 1)).tolist() for _ in range(clients)]
    questions: list[list[Any]] = [[texts[i] for i in order] for order in orders]
    if size is not None:
        questions = [[many[i : i + size] for i in range(0, len(many), size)] for many in questions]
    began, spent = time.perf_counter(), one.processor_seconds()
    until = began + seconds
    await asyncio.gather(*(_client(one.port, mine, one.known, until, asked) for mine in questions))
    asked.seconds, asked.processor_seconds = time.perf_counter() - began, one.processor_seconds() - spent
    return asked


async def measure(contestants: list[Contestant], rounds: int, seconds: float, texts: list[str]) -> None:
    """All of it, in turns."""
    for one in contestants:  # warm, and what each text is translated as
        await ask(one, 1, max(2.0, seconds), texts, None)
    plans = [(f"{n} clients", n, None) for n in CLIENTS] + [(f"4 clients, lists of {BATCH}", 4, BATCH)]
    for number in range(rounds):
        for name, clients, size in plans:
            for one in contestants if number % 2 == 0 else contestants[::-1]:
                found = await ask(one, clients, seconds, texts, size)
                one.measured.setdefault(name, Asked()).add(found)


def start(run: Path, beam_size: int, folder: Path) -> list[Contestant]:
    """Both, one after the other."""
    cores = available_cores()
    exported = folder / "ctranslate2"
    repose.export(run, to="ctranslate2", out=exported)
    serve = ["serve", run, "--port", 0, "--beam-size", beam_size, "--workers", cores, "--quiet"]
    peer = [PEERS / "serve_ctranslate2.py", exported, beam_size, cores]
    commands = {"repose serve": ["-c", COMMAND, *serve], "CTranslate2, minimal server": peer}
    return [Contestant(name, [sys.executable, *map(str, command)]) for name, command in commands.items()]


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--beam-size", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    texts = [source for source, _ in phrasebook.read()["test"]]
    load = [os.getloadavg()[0]]
    results, memory = {}, {}
    for beam_size in options.beam_size:
        with tempfile.TemporaryDirectory() as folder:
            contestants = start(options.run, beam_size, Path(folder))
            try:
                asyncio.run(measure(contestants, options.rounds, options.seconds, texts))
                memory = {one.name: one.memory() for one in contestants}
            finally:
                for one in contestants:
                    one.end()
        results[f"beam {beam_size}"] = {
            one.name: {name: asked.as_json() for name, asked in one.measured.items()} for one in contestants
        }
        load.append(os.getloadavg()[0])
        show(f"beam {beam_size}", results[f"beam {beam_size}"])
    libraries = ("torch", "onnxruntime", "ctranslate2", "starlette", "uvicorn")
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "load": load,
        "versions": {"repose": repose.__version__, **{name: version(name) for name in libraries}},
        "model": _about(options.run),
        "settings": {name: getattr(options, name) for name in ("beam_size", "rounds", "seconds")},
        "mean_characters": float(np.mean([len(text) for text in texts])),
        "memory_bytes": memory,
        "results": results,
    }
    write(options.out, record)


def show(title: str, results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """A table for each number of clients."""
    for name in next(iter(results.values())):
        rows = [
            [one, *(f"{found[name][key]:,.1f}" for key in SHOWN), str(found[name]["wrong"] + found[name]["failed"])]
            for one, found in results.items()
        ]
        headings = [f"{title}, {name}", "requests/s", "processor ms", "p50 ms", "p95 ms", "p99 ms", "wrong or failed"]
        print(table(headings, rows), end="\n\n")


def _about(run: Path) -> dict[str, Any]:
    from repose.saved_model import directory

    config = directory.read_config(run)
    return {"run_id": config.get("run_id"), "architecture": config["architecture"]}


if __name__ == "__main__":
    main()
