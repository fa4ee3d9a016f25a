"""Measure how fast trained models translate a text, in batches and sentence by sentence, taking turns.

    python benchmarks/translate_runs.py RUN RUN ... --text test.zh --out FILE
    python benchmarks/translate_runs.py RUN --engine torch onnx --batch-size 64 128 256 --text test.zh

Each run translates the first sentences of the text in fp32, in one process with one thread; then the next run does, or
the same one with another engine or size of batch, and so on in each round, A B C B C A ... Rates are sentences per
second, and the result is the median over rounds. In `decode.py`, all contestants generate equally many tokens; here,
translations have their own lengths.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import repose
from interleave import rotate
from records import command_line, record, write
from repose.decoding.options import DEFAULTS
from repose.decoding.translator import Translator

BEAMS = (1, 4)


def rate(translator: Translator, sources: Sequence[str], beam_size: int, *, alone: bool) -> float:
    """Return the number of sentences per second."""
    start = time.perf_counter()
    for batch in ([source] for source in sources) if alone else [sources]:
        translator.translate(batch, beam_size=beam_size)
    return len(sources) / (time.perf_counter() - start)


def main() -> None:
    """Command-line entry point: measure and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--engine", choices=("torch", "onnx"), nargs="+", default=["onnx"])
    parser.add_argument("--batch-size", type=int, nargs="+", default=[DEFAULTS.batch_size])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sources = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    translators: dict[str, Translator] = {}
    for run, engine, size in itertools.product(arguments.runs, arguments.engine, arguments.batch_size):
        translator = translators[f"{run.name}, {engine}, {size}"] = repose.load(run, engine=engine, workers=1)
        translator.batch_size = size
        translator.translate(sources[:50])
    jobs: dict[tuple[str, str], Callable[[], float]] = {}
    for beam_size, alone in itertools.product(BEAMS, (False, True)):
        way = f"{'greedy' if beam_size == 1 else f'beam {beam_size}'}, {'alone' if alone else 'in batches'}"
        for name, translator in translators.items():
            some = sources[:100] if alone else sources
            jobs[name, way] = partial(rate, translator, some, beam_size, alone=alone)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in translators}
    for (name, way), rates in rotate(jobs, arguments.rounds).items():
        found[name][way] = rates
    medians = {run: {way: statistics.median(rates) for way, rates in of_run.items()} for run, of_run in found.items()}
    for run, figures in medians.items():
        print(run, *(f"{way} {figure:,.0f}" for way, figure in figures.items()), sep="\n  ")
    settings = {"sentences": len(sources), "rounds": arguments.rounds, "precision": "fp32"}
    write(arguments.out, record("translate_runs", settings=settings, medians=medians, rates=found))


if __name__ == "__main__":
    main()
