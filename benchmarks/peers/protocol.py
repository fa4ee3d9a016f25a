"""The protocol of every contestant of a benchmark. Needs only numpy, so that it runs in every peer's environment.

A contestant is a process. Its command line (`parse`) names a workload and a task. It builds its model and calls
`serve`, which talks to the benchmark through stdin and stdout, one JSON object per line:

    contestant  {"ready": true, "name": "...", "parameters": 2809634, "versions": {...}, "processes": 2, "threads": 1}
    benchmark   20
    contestant  {"units": 18432, "seconds": 1.9, "peak_rss": 402653184}

Each number asks for that many further batches of the task; after the last batch, the first one follows. Units are
target tokens (labels that are not padding) for `train`, and sentences for `decode`. The contestant ends when stdin
does.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

PAD, UNK, START, END = 0, 1, 2, 3
MODELS = ("reinforced", "baseline", "small-rotary")
"""All models that some contestant has."""
NEW_TOKENS = 14
"""Number of tokens that `decode` generates for each sentence. Weights are random, so END is forbidden up to there."""
DECODE_BATCH = 64
"""Number of sentences in a batch of `decode`."""
LEARNING_RATE, ADAM_BETAS, ADAM_EPS = 1e-4, (0.9, 0.98), 1e-9
_WARM_UP = 5  # batches


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, named as in `repose.model.architecture.Architecture`."""

    d_token: int
    d_model: int
    num_heads: int
    head_dim: int
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    combine: str
    """How embeddings, scaled by sqrt(d_token), meet positions: add, concat, rotary (RoFormer, arXiv 2104.09864)."""
    values: str
    """Source of attention's values: hidden, or tokens (normalised by column, of width d_token)."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_eps: float = 1e-3
    token_norm_eps: float = 1e-6


def sizes_of(model: str, size: str) -> Sizes:
    """Return the sizes of a model.

    exact     those of arXiv 2410.04731, and of `small-rotary`
    nearest   the same with head_dim = d_model / num_heads, as is usual
    """
    exact = size == "exact"
    if model == "small-rotary":
        return Sizes(128, 128, 4, 64 if exact else 32, 256, 2, 2, combine="rotary", values="hidden")
    if model == "baseline":
        return Sizes(128, 128, 8, 128 if exact else 16, 512, 4, 4, combine="add", values="hidden")
    return Sizes(64, 128, 4, 64 if exact else 32, 256, 2, 2, combine="concat", values="tokens")


@dataclass(frozen=True)
class Options:
    """The command line of a contestant."""

    workload: Path
    task: str
    model: str
    size: str
    precision: str
    batches: str
    beam: int
    processes: int
    threads: int
    """Threads of each process."""
    device: str
    engine: str
    """Decoding engine, for this project."""
    alone: int
    """Decode sentence by sentence, as requests arrive at an idle server."""

    @property
    def sizes(self) -> Sizes:
        """Sizes of the requested model."""
        return sizes_of(self.model, self.size)


def parse(
    description: str,
    *,
    tasks: Sequence[str] = ("train", "decode"),
    sizes: Sequence[str] = ("exact", "nearest"),
    precisions: Sequence[str] = ("fp32", "bf16"),
    max_processes: int = 1,
    devices: Sequence[str] = ("cpu",),
    models: Sequence[str] = ("reinforced", "baseline"),
) -> Options:
    """Parse the command line of a contestant that supports the given values.

    Any other value is a usage error (exit code 2).
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("workload", type=Path, help="folder written by workload.py")
    parser.add_argument("--task", choices=tasks, default=tasks[0])
    parser.add_argument("--model", choices=models, default=models[0])
    parser.add_argument("--size", choices=sizes, default=sizes[0])
    parser.add_argument("--precision", choices=precisions, default=precisions[0])
    parser.add_argument("--batches", choices=("random64", "tokens1600"), default="random64", help="of training")
    parser.add_argument("--beam", type=int, choices=(1, 4), default=1, help="of decoding; 1 is greedy")
    parser.add_argument("--processes", type=int, default=1, help=f"at most {max_processes}")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument("--engine", choices=("torch", "onnx"), default="torch", help="of this project's decoding")
    parser.add_argument("--alone", type=int, default=0, help="1: decode one sentence after the other")
    options = Options(**vars(parser.parse_args()))
    if not 1 <= options.processes <= max_processes:
        parser.error(f"--processes {options.processes}: at most {max_processes}")
    return options


class Batch(NamedTuple):
    """Padded sentence pairs, int64, 0 on the right."""

    src: np.ndarray
    """(B, S): [START … END]."""
    tgt: np.ndarray
    """(B, T): decoder input, [START …]."""
    labels: np.ndarray
    """(B, T): the token after each, [… END]; 0 exactly where `tgt` is 0."""
    tokens: int
    """Number of labels that are not padding."""


class _Sentences(NamedTuple):
    ids: np.ndarray
    offsets: np.ndarray

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        return self.ids[self.offsets[index] : self.offsets[index + 1]]


class Workload:
    """The token ids and batches of a folder that `workload.py` wrote."""

    def __init__(self, options: Options) -> None:
        facts = json.loads((options.workload / "workload.json").read_text(encoding="utf-8"))
        self.src_vocab_size: int = facts["src_vocab_size"]
        self.tgt_vocab_size: int = facts["tgt_vocab_size"]
        with np.load(options.workload / "pairs.npz") as arrays:
            self._src = _Sentences(arrays["src"], arrays["src_offsets"])
            self._tgt = _Sentences(arrays["tgt"], arrays["tgt_offsets"])
            cuts = arrays[f"{options.batches}_offsets"][1:-1]
            self.train_batches: list[np.ndarray] = np.split(arrays[options.batches], cuts)
            """Pair indices of each training batch."""
        with np.load(options.workload / "decode.npz") as arrays:
            sentences = _Sentences(arrays["src"], arrays["src_offsets"])
            found = [sentences[i] for i in range(len(sentences.offsets) - 1)]
        self.decode_batches = [found[i : i + DECODE_BATCH] for i in range(0, len(found), DECODE_BATCH)]
        """Source ids [START … END] of each sentence, for each batch of decoding."""
        self.num_batches = len(self.train_batches if options.task == "train" else self.decode_batches)
        """Number of batches of the task."""

    def train_batch(self, number: int) -> Batch:
        """Return the arrays of a batch, assembled anew at each call."""
        pairs = self.train_batches[number]
        src = pad([self._src[i] for i in pairs])
        sentences = [self._tgt[i] for i in pairs]
        tgt, labels = pad([ids[:-1] for ids in sentences]), pad([ids[1:] for ids in sentences])
        return Batch(src, tgt, labels, sum(map(len, sentences)) - len(sentences))


def pad(sentences: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sentences as rows, int64 (B, longest), 0 on the right."""
    padded = np.zeros((len(sentences), max(map(len, sentences))), dtype=np.int64)
    for row, ids in zip(padded, sentences, strict=True):
        row[: len(ids)] = ids
    return padded


def peak_rss(pid: int) -> int:
    """Return the peak memory in bytes of a process and its living descendants, summed over them.

    Pages that processes share count once for each. Linux only; 0 elsewhere.
    """
    return sum(map(_high_water_mark, (pid, *descendants(pid))))


def descendants(pid: int) -> list[int]:
    """Return the ids of all living processes below this one. Linux only; none elsewhere."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state parent ...", and the name may hold anything
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # the process has ended meanwhile
            continue
    family = {pid}
    while found := {child for child, parent in parents.items() if parent in family} - family:
        family |= found
    return sorted(family - {pid})


def _high_water_mark(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def serve(
    options: Options,
    num_batches: int,
    run: Callable[[list[int]], int],
    *,
    name: str,
    parameters: int,
    versions: Mapping[str, str],
) -> None:
    """Warm up, report ready, and run batches on request until stdin ends.

    `run` computes the batches with these numbers, each in [0, num_batches), one after the other. It waits until all are
    done, and returns their number of units.
    """
    run([number % num_batches for number in range(-_WARM_UP, 0)])
    ready = {"ready": True, "name": name, "parameters": parameters, "versions": dict(versions)}
    _say(ready | {"processes": options.processes, "threads": options.threads})
    position = 0
    for line in sys.stdin:
        numbers = [number % num_batches for number in range(position, position + int(line))]
        position += int(line)
        began = time.perf_counter()
        units = run(numbers)
        _say({"units": units, "seconds": time.perf_counter() - began, "peak_rss": peak_rss(os.getpid())})


def _say(message: Mapping[str, object]) -> None:
    print(json.dumps(message), flush=True)
