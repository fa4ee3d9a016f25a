"""Compare `repose serve` with LibreTranslate and a minimal CTranslate2 server: requests per second, latency, memory.

All serve the same trained model with the same beam on the same cores, in processes that keep running. They are measured
in turns (A B C D D C B A ...), so that changes in the machine's speed affect all alike. Clients are connections of one
asyncio process. Each sends its next request as soon as it has an answer. An answer counts as wrong if it differs from
the first answer to the same text. `peers/libretranslate_.py` says how LibreTranslate gets the model, which must have
one tokenizer for both sides; LibreTranslate is left out if its environment is missing (`make bench-peers`).
`peers/serve_ctranslate2.py` does what LibreTranslate does at its core, and less.

    repose train --config demo --preset ablation-none --set tokenizer.sharing=shared --out runs/mine
    python benchmarks/serve.py runs/mine --seconds 4 --out results/speed/serve.json

With --soak, the server alone is measured for that many minutes. Every request is a new text, whose translation is known
sentence by sentence. Every twenty seconds, one of the server's workers is killed.

    python benchmarks/serve.py runs/mine --beam-size 1 --soak 10 --clients 200 --out results/speed/serve-soak.json
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import uvloop

import repose
from interleave import python_of
from peers.protocol import descendants
from records import command_line, record, table, write
from repose.data import phrasebook
from repose.system.device import available_cores

PEERS = Path(__file__).resolve().parent / "peers"
LIBRETRANSLATE = python_of("libretranslate")
CLIENTS = (1, 8, 64, 256)
BATCH = 32
"""Texts per request in the measurement of lists."""
KILL_SECONDS = 20
"""Seconds between two killed workers, with --soak."""
SHOWN = ("requests_per_second", "processor_ms_per_request", "p50_ms", "p95_ms", "p99_ms")
HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
Check = Callable[[str, str], bool]
"""Returns whether the translation of a text is right."""
COMMAND = "import sys; from repose.cli.main import main; main()"


@dataclass
class Asked:
    """The counts of a measurement."""

    requests: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    """Processor time of the server's processes. It varies less than wall time if other programs use the machine."""
    latencies: list[float] = field(default_factory=list)
    wrong: int = 0
    """Answers that differ from earlier ones to the same texts."""
    failed: int = 0
    """Requests with a status other than 200, or no answer."""

    def add(self, other: "Asked") -> None:
        """Add the counts of another round."""
        for name in ("requests", "seconds", "processor_seconds", "wrong", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latencies += other.latencies

    def as_json(self) -> dict[str, Any]:
        """Return the figures, with latencies in milliseconds."""
        p50, p95, p99 = np.percentile(self.latencies, [50, 95, 99]) * 1000
        return {
            "requests_per_second": self.requests / self.seconds,
            "processor_ms_per_request": 1000 * self.processor_seconds / self.requests,
            **{"p50_ms": p50, "p95_ms": p95, "p99_ms": p99},
            **{"requests": self.requests, "wrong": self.wrong, "failed": self.failed},
        }


class Contestant:
    """A server process, and its first answer to each text."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        self.port, said = 0, ""
        for line in self._process.stdout:
            if found := re.search(r"^(\d+)$|at http://[\d.]+:(\d+)$", line.strip()):
                self.port = int(found[1] or found[2])
                break
            said = line
        if not self.port:
            raise SystemExit(f"{name} did not start: {said}")
        # Read its further output, so that the pipe does not fill up.
        threading.Thread(target=collections.deque, args=(self._process.stdout, 0), daemon=True).start()
        self.known: dict[str, Any] = {}
        self.measured: dict[str, Asked] = {}

    def is_known(self, text: str, got: str) -> bool:
        """Return whether a text was translated as it was the first time."""
        return bool(self.known.setdefault(text, got) == got)

    @property
    def pids(self) -> list[int]:
        """Ids of all its processes."""
        return [self._process.pid, *descendants(self._process.pid)]

    def memory(self) -> int:
        """Return its memory in bytes. Pages that processes share are divided among them."""
        return sum(map(_proportional_bytes, self.pids))

    def processor_seconds(self) -> float:
        """Return the processor seconds of all its processes so far, including processes that have ended."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids]
        return sum(sum(map(int, stat[11:15])) for stat in stats) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End the process and wait for it."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return 1024 * int(found[1]) if found else 0
    return 0


class _Client(asyncio.Protocol):
    """A client that keeps its connection and sends requests until the time is up.

    It speaks only as much HTTP as needed, because it runs on the measured machine.
    """

    def __init__(self, questions: Iterator[Any], is_right: Check, until: float, asked: Asked) -> None:
        self._questions, self._is_right, self._until, self._asked = questions, is_right, until, asked
        self._received, self._length, self._began = b"", 0, 0.0
        self._question: Any = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._began = time.perf_counter()
        self._question = next(self._questions, None) if self._began < self._until else None
        if self._question is None:
            self._transport.close()
            return
        body = json.dumps({"q": self._question, "source": "pt", "target": "en"}).encode()
        self._received, self._length = b"", 0
        self._transport.write(b"%s%d\r\n\r\n%s" % (HEAD, len(body), body))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._length and (end := self._received.find(b"\r\n\r\n")) > 0:
            found = re.search(rb"content-length: (\d+)", self._received[:end], re.IGNORECASE)
            assert found is not None
            self._length = end + 4 + int(found[1])
        if self._length and len(self._received) >= self._length:
            self._answered(int(self._received.split(b" ", 2)[1]), self._received.partition(b"\r\n\r\n")[2])
            self._ask()

    def _answered(self, status: int, content: bytes) -> None:
        asked, question = self._asked, self._question
        asked.latencies.append(time.perf_counter() - self._began)
        asked.requests += 1
        asked.failed += status != 200
        if status == 200:
            answer = json.loads(content)["translatedText"]
            several = zip(question, answer, strict=True) if isinstance(question, list) else [(question, answer)]
            asked.wrong += not all(self._is_right(text, got) for text, got in several)

    def connection_lost(self, _: Exception | None) -> None:
        self._asked.failed += self._question is not None
        self.done.set_result(None)


async def _ask_all(port: int, questions: list[Iterator[Any]], is_right: Check, until: float, asked: Asked) -> None:
    """Run one client for each iterator of questions."""
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(partial(_Client, mine, is_right, until, asked), "127.0.0.1", port))[1]
        for mine in questions
    ]
    await asyncio.gather(*(client.done for client in clients))


async def ask(one: Contestant, clients: int, seconds: float, texts: list[str], size: int | None) -> Asked:
    """Run this many clients at once. `size`: the length of lists; None sends one text per request."""
    asked = Asked()
    rng = np.random.default_rng(clients)
    # More questions than can be answered, in another order for each client.
    orders = [rng.integers(len(texts), size=4_000 * (size or 1)).tolist() for _ in range(clients)]
    questions: list[list[Any]] = [[texts[i] for i in order] for order in orders]
    if size is not None:
        questions = [[many[i : i + size] for i in range(0, len(many), size)] for many in questions]
    began, spent = time.perf_counter(), one.processor_seconds()
    until = began + seconds
    await _ask_all(one.port, list(map(iter, questions)), one.is_known, until, asked)
    asked.seconds, asked.processor_seconds = time.perf_counter() - began, one.processor_seconds() - spent
    return asked


async def measure(contestants: list[Contestant], rounds: int, seconds: float, texts: list[str]) -> None:
    """Run all measurements, in turns."""
    for one in contestants:  # warms up, and learns the translation of each text
        await ask(one, 1, max(2.0, seconds), texts, None)
    plans = [(f"{n} clients", n, None) for n in CLIENTS] + [(f"4 clients, lists of {BATCH}", 4, BATCH)]
    for number in range(rounds):
        for name, clients, size in plans:
            for one in contestants if number % 2 == 0 else contestants[::-1]:
                found = await ask(one, clients, seconds, texts, size)
                one.measured.setdefault(name, Asked()).add(found)


def start(run: Path, beam_size: int, folder: Path | None) -> list[Contestant]:
    """Start the server, and with a folder, into which the model is exported, the other contestants too."""
    cores = available_cores()
    serve = ["serve", run, "--port", 0, "--beam-size", beam_size, "--workers", cores, "--quiet"]
    commands = {"repose serve": [sys.executable, "-c", COMMAND, *serve]}
    if folder is not None:
        exported = folder / "ctranslate2"
        repose.export(run, to="ctranslate2", out=exported)
        if LIBRETRANSLATE.exists():
            for name, at_once in (("LibreTranslate", 0), ("LibreTranslate, a thread per translation", cores)):
                peer = [LIBRETRANSLATE, PEERS / "libretranslate_.py", exported, beam_size]
                commands[name] = [*peer, at_once, folder / f"libretranslate-{at_once}"]
        minimal = [sys.executable, PEERS / "serve_ctranslate2.py", exported, beam_size, cores]
        commands["CTranslate2, minimal server"] = minimal
    return [Contestant(name, [*map(str, command)]) for name, command in commands.items()]


def new_texts(texts: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the sentences of new texts, no two alike: the digits, two or more, of consecutive numbers."""
    for number in itertools.count(len(texts)):
        digits, rest = [], number
        while rest:
            rest, digit = divmod(rest, len(texts))
            digits.append(texts[digit])
        yield tuple(digits)


async def soak(server: Contestant, clients: int, minutes: float, texts: list[str]) -> dict[str, Any]:
    """Run this many clients for this many minutes, while workers are killed."""
    asked, kills = Asked(), 0
    await ask(server, 1, 5.0, texts[:1], None)
    await _ask_all(server.port, [iter(texts)], server.is_known, time.perf_counter() + 600, asked)
    assert len(server.known) == len(texts)
    wanted = {}
    memory = [server.memory()]

    def questions() -> Iterator[str]:
        for sentences in shared:
            text = " ".join(sentences)
            wanted[text] = " ".join(server.known[sentence] for sentence in sentences)
            yield text

    shared, asked = new_texts(texts), Asked()
    began, spent = time.perf_counter(), server.processor_seconds()
    until, all_questions = began + 60 * minutes, [questions() for _ in range(clients)]
    work = _ask_all(server.port, all_questions, lambda text, got: wanted.pop(text) == got, until, asked)
    asking = asyncio.create_task(work)
    random = np.random.default_rng(0)
    while not (await asyncio.wait({asking}, timeout=KILL_SECONDS))[0]:
        memory.append(server.memory())
        if workers := server.pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(random.choice(workers)), signal.SIGKILL)
                kills += 1
    asked.seconds, asked.processor_seconds = time.perf_counter() - began, server.processor_seconds() - spent
    # A text that is left in `wanted` had no answer.
    return {
        **{"clients": clients, "minutes": minutes, "killed_workers": kills, "unanswered": len(wanted)},
        **{"sentences": len(texts), "different_translations": len(set(server.known.values()))},
        **asked.as_json(),
        **{"memory_bytes_before": memory[0], "memory_bytes_most": max(memory), "memory_bytes_after": server.memory()},
    }


def main() -> None:
    """Command-line entry point."""
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--beam-size", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="instead of the comparison")
    parser.add_argument("--clients", type=int, default=200, help="of --soak")
    options = parser.parse_args()
    texts = [source for source, _ in phrasebook.read()["test"]]
    load = [os.getloadavg()[0]]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.soak:
            (server,) = start(options.run, options.beam_size[0], None)
            try:
                about = runner.run(soak(server, options.clients, options.soak, texts))
            finally:
                server.end()
            print(json.dumps(about, indent=2))
            found = {"settings": {"beam_size": options.beam_size[0]}, "results": about}
        else:
            found = compare(options, texts, runner, load)
    load.append(os.getloadavg()[0])
    libraries = ("torch", "onnxruntime", "ctranslate2", "starlette", "uvicorn")
    content = record(
        "serve",
        load=load,
        versions={"repose": repose.__version__, **{name: version(name) for name in libraries}, **_libretranslate()},
        model=_about(options.run),
        mean_characters=float(np.mean([len(text) for text in texts])),
        **found,
    )
    write(options.out, content)


def compare(options: argparse.Namespace, texts: list[str], runner: asyncio.Runner, load: list[float]) -> dict[str, Any]:
    """Compare all contestants, for each beam size."""
    results, memory = {}, {}
    for beam_size in options.beam_size:
        with tempfile.TemporaryDirectory() as folder:
            contestants = start(options.run, beam_size, Path(folder))
            try:
                runner.run(measure(contestants, options.rounds, options.seconds, texts))
                memory = {one.name: one.memory() for one in contestants}
            finally:
                for one in contestants:
                    one.end()
        results[f"beam {beam_size}"] = {
            one.name: {name: asked.as_json() for name, asked in one.measured.items()} for one in contestants
        }
        load.append(os.getloadavg()[0])
        show(f"beam {beam_size}", results[f"beam {beam_size}"])
    settings = {name: getattr(options, name) for name in ("beam_size", "rounds", "seconds")}
    return {"settings": settings, "memory_bytes": memory, "results": results}


def show(title: str, results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print a table for each number of clients."""
    for name in next(iter(results.values())):
        rows = [
            [one, *(f"{found[name][key]:,.1f}" for key in SHOWN), str(found[name]["wrong"] + found[name]["failed"])]
            for one, found in results.items()
        ]
        headings = [f"{title}, {name}", "requests/s", "processor ms", "p50 ms", "p95 ms", "p99 ms", "wrong or failed"]
        print(table(headings, rows), end="\n\n")


def _libretranslate() -> dict[str, str]:
    """Return LibreTranslate's version, if it is installed."""
    if not LIBRETRANSLATE.exists():
        return {}
    asked = "from importlib.metadata import version; print(version('libretranslate'))"
    return {"libretranslate": subprocess.check_output([LIBRETRANSLATE, "-c", asked], text=True).strip()}


def _about(run: Path) -> dict[str, Any]:
    from repose.saved_model import directory

    config = directory.read_config(run)
    return {"run_id": config.get("run_id"), "architecture": config["architecture"]}


if __name__ == "__main__":
    main()
