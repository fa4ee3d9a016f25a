"""Measure what bf16 saves: processor seconds of an update in fp32 and in bf16, with the settings of `repose train`.

For the default and each recipe (docs/little-data.md), two models take turns on the same batches, with one worker of one
thread.

    python benchmarks/precision.py train.de train.en --out precision.json
"""

import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from records import command_line, record, table, write
from repose.config.experiment import Experiment
from repose.config.file import load
from repose.data.batching import Batches
from repose.data.dataset import PairDataset
from repose.data.tokenizer import Tokenizer
from repose.model.transformer import build
from repose.runs.arguments import RECIPES
from repose.system.device import tuned
from repose.tasks.corpus import prepare_corpus
from repose.tasks.translation import TASK
from repose.training.distributed import World
from repose.training.feed import Feed
from repose.training.learner import Learner

PRECISIONS, SIDES = ("fp32", "bf16"), ("src", "tgt")
WARM = 4


def compare(name: str, experiment: Experiment, steps: int) -> dict[str, Any]:
    """Return the medians of both, and the median of their ratios over batches."""
    prepared, config, world = prepare_corpus(experiment), experiment.training, World(0, 1, torch.device("cpu"))
    data = PairDataset.open(prepared.ids("train"))
    order = Batches(data.src_lengths, data.tgt_lengths, config.batching, config.batch_size, config.seed)
    batches = Feed(TASK, lambda _: data, order, world=world, num_micro_batches=1).epoch(0, 0)
    sizes = {f"{side}_vocab_size": Tokenizer.load(prepared.tokenizer_path(side)).vocab_size for side in SIDES}
    learners = []
    for precision in PRECISIONS:
        model = build(experiment.architecture, **sizes)
        learners.append(Learner(TASK, model, dataclasses.replace(config, precision=precision), world))
    seconds: list[list[float]] = [[], []]
    for number in range(WARM + steps):
        batch = next(batches)
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            learners[which].backward(batch, number)
            learners[which].step(1e-4)
            seconds[which].append(time.process_time() - began)
    fp32, bf16 = (each[WARM:] for each in seconds)
    return {
        "settings": name,
        "fp32_s": statistics.median(fp32),
        "bf16_s": statistics.median(bf16),
        "ratio": statistics.median(a / b for a, b in zip(fp32, bf16, strict=True)),
        "updates": steps,
    }


def main() -> None:
    """Command-line entry point."""
    parser = command_line(__doc__)
    parser.add_argument("train", type=Path, nargs=2, help="two aligned text files")
    parser.add_argument("--updates", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    with tuned():
        for name in (*RECIPES.values(), "default"):
            experiment = load(name, train=options.train).experiment
            found.append(compare(name, experiment, options.updates))
    rows = [[x["settings"], f"{x['fp32_s']:.3f}", f"{x['bf16_s']:.3f}", f"{x['ratio']:.2f}"] for x in found]
    print(table(["settings", "fp32, s", "bf16, s", "fp32 over bf16"], rows))
    write(options.out, record("precision", results=found))


if __name__ == "__main__":
    main()
