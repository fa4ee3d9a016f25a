"""Measure how fast trained models translate a text, in batches and sentence by sentence, taking turns.

    python benchmarks/translate_runs.py RUN RUN ... --text test.zh --out FILE
    python benchmarks/translate_runs.py RUN --engine torch onnx --batch-size 64 128 256 --text test.zh

Each run translates the first sentences of the text in fp32, in one process with one thread; then the next run does, or
the same one with another engine or size of batch, and so on in each round, A B C B C A ... Rates are sentences per
second, and the result is the median over rounds. In `decode.py`, all contestants generate equally many tokens; here,
translations have their own lengths.
"""

import argparse
import datetime
import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import repose
from interleave import machine, write
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
    parser = argparse.ArgumentParser(description="Sentences per second of trained models, in turn.")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--engine", choices=("torch", "onnx"), nargs="+", default=["onnx"])
    parser.add_argument("--batch-size", type=int, nargs="+", default=[DEFAULTS.batch_size])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    arguments = parser.parse_args()
    sources = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    contestants: dict[str, Translator] = {}
    for run, engine, size in itertools.product(arguments.runs, arguments.engine, arguments.batch_size):
        translator = contestants[f"{run.name}, {engine}, {size}"] = repose.load(run, engine=engine, workers=1)
        translator.batch_size = size
    names, translators = list(contestants), list(contestants.values())
    ways = list(itertools.product(BEAMS, (False, True)))
    found: dict[str, dict[str, list[float]]] = {name: {_name(*way): [] for way in ways} for name in names}
    for translator in translators:
        translator.translate(sources[:50])
    for number in range(arguments.rounds):
        turn = number % len(translators)
        order = [*range(turn, len(translators)), *range(turn)]
        for (beam_size, alone), index in itertools.product(ways, order):
            some = sources[:100] if alone else sources
            found[names[index]][_name(beam_size, alone)].append(rate(translators[index], some, beam_size, alone=alone))
    medians = {run: {way: statistics.median(rates) for way, rates in of_run.items()} for run, of_run in found.items()}
    for run, rates in medians.items():
        print(run, *(f"{way} {figure:,.0f}" for way, figure in rates.items()), sep="\n  ")
    if arguments.out is not None:
        settings = {"sentences": len(sources), "rounds": arguments.rounds, "precision": "fp32"}
        about = {"benchmark": "translate_runs", "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
        content = {**about, "machine": machine(), "settings": settings, "medians": medians, "rates": found}
        write(arguments.out, content)


def _name(beam_size: int, alone: bool) -> str:
    return f"{'greedy' if beam_size == 1 else f'beam {beam_size}'}, {'alone' if alone else 'in batches'}"


if __name__ == "__main__":
    main()
