"""Measure the cost of a training step against sentence length, width and corpus size, next to the predicted cost.

There are four sweeps, each in one process with one thread, for `reinforced` and for `ablation-none`, which has the same
sizes and none of its three changes:

    n       tokens of a sentence, with a constant number of tokens in a batch
    d       d_model (twice d_token where positions are concatenated), with all other sizes fixed
    widths  d_model with head width d_model / heads and d_ff = 2 d_model, as in the complexity table
    pairs   pairs of random ids in the corpus; seconds are those of an epoch in random batches of 64

An exponent is the slope of log seconds over log size. Predicted exponents are slopes of the FLOPs of each part
(`flops.py`). "Attention is all you need", table 1, has n²d for self-attention and nd² for layers that act on each
position. With a constant number of tokens in a batch, these become nd and d²; and a width that is fixed does not count.

    python benchmarks/scaling.py --out results/scaling.json
"""

import argparse
import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from flops import Flops, training
from interleave import Result, as_json, rotate
from records import command_line, record, table, write
from repose.config.experiment import TrainingConfig
from repose.data.batching import Batches
from repose.data.dataset import PairDataset
from repose.data.prepare import LengthLimits, prepare
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.model.transformer import build
from repose.system.device import tuned
from repose.system.token_ids import END, START
from repose.tasks.translation import TASK, PairBatch
from repose.training.distributed import World
from repose.training.feed import Feed, GlobalBatch
from repose.training.learner import Learner
from workload import SRC_VOCAB_SIZE, TGT_VOCAB_SIZE, RandomIds

CONTESTANTS = ("reinforced", "ablation-none")
TOKENS = 2048
"""Target tokens of a batch in sweep n, and also its source tokens."""
LENGTH, SENTENCES = 16, 64
"""Tokens of a sentence, and sentences of a batch, in sweeps d and widths."""
EPOCH_LENGTHS = (5, 15)
"""Shortest and longest sentence of sweep pairs, in tokens. All lengths between them are equally frequent."""
WARM_UP = 2
"""Updates at the start of each measurement that are not timed."""
RATES = "updates per second; with pairs, pairs per second"
ALONE = World(0, 1, torch.device("cpu"))


@dataclasses.dataclass(frozen=True)
class Point:
    """One model at one size of one sweep."""

    sweep: str
    size: int
    contestant: str
    architecture: Architecture
    length: int
    sentences: int

    @property
    def flops(self) -> Flops:
        """FLOPs of one update."""
        return training(self.architecture, self.length, self.length, TGT_VOCAB_SIZE).times(self.sentences)

    @property
    def name(self) -> str:
        """Name in records."""
        return f"{self.contestant}, {self.sweep} = {self.size}"


def of_width(a: Architecture, d_model: int) -> Architecture:
    """Return the architecture with another d_model and the same other sizes."""
    return dataclasses.replace(a, d_token=d_model // 2 if a.combine == "concat" else d_model)


def of_all_widths(a: Architecture, d_model: int) -> Architecture:
    """Return the architecture with every width in proportion to d_model, and the same numbers of heads and layers."""
    return dataclasses.replace(of_width(a, d_model), head_dim=d_model // a.num_heads, d_ff=2 * d_model)


def points(lengths: Sequence[int], widths: Sequence[int]) -> list[Point]:
    """Return all points of the sweeps n, d and widths; at each size, the compared models follow each other."""
    models = [(name, preset(name)) for name in CONTESTANTS]
    return [
        *(Point("n", n, name, a, n, TOKENS // n) for n in lengths for name, a in models),
        *(Point("d", d, name, of_width(a, d), LENGTH, SENTENCES) for d in widths for name, a in models),
        *(Point("widths", d, name, of_all_widths(a, d), LENGTH, SENTENCES) for d in widths for name, a in models),
    ]


def new_learner(a: Architecture) -> Learner:
    """Return a new model with its optimizer, which trains as in `repose train`."""
    return Learner(
        TASK, build(a, src_vocab_size=SRC_VOCAB_SIZE, tgt_vocab_size=TGT_VOCAB_SIZE), TrainingConfig(), ALONE
    )


def random_batch(length: int, sentences: int) -> GlobalBatch:
    """Return a batch of random ids without padding, with equal lengths on both sides."""
    rng = np.random.default_rng(0)

    def side(vocab_size: int, columns: int) -> torch.Tensor:
        ids = torch.from_numpy(rng.integers(END + 1, vocab_size, size=(sentences, columns)))
        ids[:, 0], ids[:, -1] = START, END
        return ids

    src, stored = side(SRC_VOCAB_SIZE, length), side(TGT_VOCAB_SIZE, length + 1)
    batch = PairBatch(src, stored[:, :-1].contiguous(), stored[:, 1:].flatten())
    return GlobalBatch((batch,), sentences, sentences * length, last=False)


def seconds_per_update(point: Point, updates: int) -> float:
    """Return the mean seconds over this many updates of a new model."""
    learner, batch = new_learner(point.architecture), random_batch(point.length, point.sentences)

    def run(count: int) -> None:
        for number in range(count):
            learner.backward(batch, number)
            learner.step(1e-4)

    run(WARM_UP)
    began = time.perf_counter()
    run(updates)
    return (time.perf_counter() - began) / updates


def prepare_random(folder: Path, pairs: int) -> PairDataset:
    """Prepare a corpus of this many pairs of random ids."""
    rng, (shortest, longest) = np.random.default_rng(0), EPOCH_LENGTHS

    def sentence(vocab_size: int) -> str:
        length = rng.integers(shortest, longest + 1)
        return " ".join(map(str, rng.integers(END + 1, vocab_size, size=length - 2)))

    made = ((sentence(SRC_VOCAB_SIZE), sentence(TGT_VOCAB_SIZE)) for _ in range(pairs))
    tokenizers = RandomIds(SRC_VOCAB_SIZE), RandomIds(TGT_VOCAB_SIZE)
    prepare(made, tokenizers, folder, LengthLimits(longest, longest, "drop"), workers=1)
    return PairDataset.open(folder)


def seconds_per_epoch(a: Architecture, data: PairDataset) -> float:
    """Return the seconds of one epoch of training alone, without validation and checkpoints."""
    feed = Feed(
        TASK,
        lambda _: data,
        Batches(data.src_lengths, data.tgt_lengths, "sentences", SENTENCES, 0),
        world=ALONE,
        num_micro_batches=1,
    )
    learner = new_learner(a)
    for number, batch in zip(range(WARM_UP), feed.epoch(1, 0), strict=False):
        learner.backward(batch, number)
    began = time.perf_counter()
    for number, batch in enumerate(feed.epoch(0, 0)):
        learner.backward(batch, number)
        learner.step(1e-4)
    return time.perf_counter() - began


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of log cost over log size by least squares; 0 if a part costs nothing."""
    if min(costs) <= 0:
        return 0.0
    return round(float(np.polyfit(np.log(sizes), np.log(costs), 1)[0]), 4) + 0.0  # avoids minus zero


def exponents(group: Sequence[Point], seconds: Sequence[float]) -> dict[str, float]:
    """Return the exponents of one model in one sweep: measured, and of the FLOPs of each part and of all parts."""
    sizes = [point.size for point in group]
    found = {"measured": exponent(sizes, seconds), "measured, two largest": exponent(sizes[-2:], seconds[-2:])}
    for part in Flops._fields:
        found[f"FLOPs of {part}"] = exponent(sizes, [getattr(point.flops, part) for point in group])
    return found | {"FLOPs": exponent(sizes, [point.flops.total for point in group])}


def show(
    sweep: str, sizes: Sequence[int], medians: dict[str, list[float]], slopes: dict[str, dict[str, float]]
) -> None:
    """Print one sweep: seconds of each model at each size, then the exponents."""
    ours, plain = (medians[name] for name in CONTESTANTS)
    rows = [
        [f"{size:,}", *(f"{medians[name][row]:,.4f}" for name in CONTESTANTS), f"{plain[row] / ours[row]:.2f}"]
        for row, size in enumerate(sizes)
    ]
    labels = slopes[CONTESTANTS[0]]
    rows += [[f"exponent {label}", *(f"{slopes[name][label]:.2f}" for name in CONTESTANTS), ""] for label in labels]
    print("\n" + table([f"{sweep} (seconds)", *CONTESTANTS, "ratio"], rows))


def sweep_updates(args: argparse.Namespace) -> tuple[dict[str, Result], dict[str, dict[str, dict[str, float]]]]:
    """Run the sweeps n, d and widths; return updates per second by point, and exponents by sweep and model."""
    found = points(args.lengths, args.widths)
    jobs = {point.name: functools.partial(seconds_per_update, point, args.updates) for point in found}
    seconds = rotate(jobs, args.rounds)
    slopes: dict[str, dict[str, dict[str, float]]] = {}
    for sweep in ("n", "d", "widths"):
        medians, slopes[sweep] = {}, {}
        for name in CONTESTANTS:
            group = [point for point in found if (point.sweep, point.contestant) == (sweep, name)]
            medians[name] = [statistics.median(seconds[point.name]) for point in group]
            slopes[sweep][name] = exponents(group, medians[name])
        show(sweep, args.lengths if sweep == "n" else args.widths, medians, slopes[sweep])
    return {name: Result([1 / each for each in measured]) for name, measured in seconds.items()}, slopes


def sweep_pairs(args: argparse.Namespace) -> tuple[dict[str, Result], dict[str, dict[str, float]]]:
    """Run the sweep pairs; return pairs per second by point, and exponents by model. The prediction is 1."""
    with tempfile.TemporaryDirectory() as folder:
        corpora = {pairs: prepare_random(Path(folder) / str(pairs), pairs) for pairs in args.pairs}
        jobs = {
            f"{name}, pairs = {pairs}": functools.partial(seconds_per_epoch, preset(name), data)
            for pairs, data in corpora.items()
            for name in CONTESTANTS
        }
        seconds = rotate(jobs, args.epoch_rounds)
    medians = {
        name: [statistics.median(seconds[f"{name}, pairs = {pairs}"]) for pairs in args.pairs] for name in CONTESTANTS
    }
    slopes = {name: {"measured": exponent(args.pairs, medians[name]), "predicted": 1.0} for name in CONTESTANTS}
    show("pairs", args.pairs, medians, slopes)
    rates = {
        f"{name}, pairs = {pairs}": Result([pairs / each for each in seconds[f"{name}, pairs = {pairs}"]])
        for name in CONTESTANTS
        for pairs in args.pairs
    }
    return rates, slopes


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = command_line(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256], help="of sweep n")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512, 1024], help="d_model of d, widths")
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 20_000, 40_000, 80_000, 160_000])
    parser.add_argument("--updates", type=int, default=4, help="timed at each point in each round")
    parser.add_argument("--rounds", type=int, default=5, help="of the sweeps n, d and widths")
    parser.add_argument("--epoch-rounds", type=int, default=1, help="of the sweep pairs")
    return parser.parse_args()


def main() -> None:
    """Command-line entry point: run the sweeps, print a table for each and write the record."""
    args = arguments()
    torch.set_num_threads(1)
    with tuned():
        updates, slopes = sweep_updates(args)
        epochs, slopes["pairs"] = sweep_pairs(args)
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    content = record(
        "scaling",
        workload={"corpus": "random ids", "src_vocab_size": SRC_VOCAB_SIZE, "tgt_vocab_size": TGT_VOCAB_SIZE},
        settings={**settings, "processes": 1, "threads": 1, "precision": "fp32", "rates": RATES},
        contestants=as_json(updates | epochs),
        exponents=slopes,
        versions={"torch": torch.__version__},
    )
    write(args.out, content)


if __name__ == "__main__":
    main()
