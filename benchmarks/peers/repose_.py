"""This project. Training uses its own workers, feed, learner and settings, as `repose train` does.

The project's own feed assembles batches and distributes them to the workers. `reinforced` is the preset of that name,
which normalises token columns over the vocabulary.
"""

import dataclasses
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line does; read when torch is loaded

import numpy as np
import torch
import torch.distributed as dist
from protocol import ADAM_BETAS, ADAM_EPS, END, LEARNING_RATE, MODELS, NEW_TOKENS, Options, Workload, parse, serve

from repose._version import __version__
from repose.config.experiment import TrainingConfig
from repose.data.batching import Batches
from repose.data.dataset import PairDataset
from repose.decoding.engine import Engine
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.options import SearchOptions
from repose.decoding.pool import Pool
from repose.decoding.torch_engine import TorchEngine
from repose.decoding.worker import Batch
from repose.graphs.folder import ENCODER, STEP, GraphFolder
from repose.graphs.writing import write_graphs
from repose.model.kernels.linear import quantize
from repose.model.presets import preset
from repose.model.transformer import Transformer, build
from repose.system.device import tuned
from repose.tasks.translation import TASK
from repose.training import distributed
from repose.training.distributed import World
from repose.training.feed import Feed
from repose.training.learner import Learner

RECIPES = {"random64": ("sentences", 64), "tokens1600": ("tokens", 1600)}
"""Settings `training.batching` and `training.batch_size` for each list of batches; the same as in workload.py."""
MAX_PROCESSES = 64
VERSIONS = {"repose": __version__, "torch": torch.__version__}


def make_model(options: Options, workload: Workload) -> Transformer:
    """Return the preset with random weights, at the exact sizes or with head_dim = d_model / num_heads."""
    architecture = dataclasses.replace(preset(options.model), head_dim=options.sizes.head_dim)
    return build(architecture, src_vocab_size=workload.src_vocab_size, tgt_vocab_size=workload.tgt_vocab_size)


def count_parameters(model: Transformer) -> int:
    """Return the number of all parameters, counting tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


class Training:
    """One worker. The benchmark tells the first what to do, and the first tells the others."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.workload = Workload(options)
        batching, batch_size = RECIPES[options.batches]
        config = TrainingConfig(
            batching=batching,  # type: ignore[arg-type]
            batch_size=batch_size,
            schedule="constant",
            learning_rate=LEARNING_RATE,
            adam_beta1=ADAM_BETAS[0],
            adam_beta2=ADAM_BETAS[1],
            adam_eps=ADAM_EPS,
            precision=options.precision,  # type: ignore[arg-type]
        )
        model = make_model(options, self.workload)
        self.parameters = count_parameters(model)
        self.learner = Learner(TASK, model, config, world)
        data = PairDataset.open(options.workload / "prepared")
        batches = Batches(data.src_lengths, data.tgt_lengths, config.batching, batch_size, config.seed)
        self._check(batches)
        self.feed = Feed(TASK, lambda _: data, batches, world=world, num_micro_batches=1)
        self.batches = self.feed.epoch(0, 0)
        self.position = 0  # number of the batch that `batches` gives next
        self.update = 0

    def run(self, numbers: list[int]) -> int:
        """Make all workers train on these consecutive batches."""
        self._tell(numbers[0], len(numbers))
        return self._compute(numbers[0], len(numbers))

    def follow(self) -> None:
        """Do what the first worker says, until it says to end."""
        order = torch.zeros(2, dtype=torch.long, device=self.world.device)
        while True:
            dist.broadcast(order, 0)
            first, count = order.tolist()
            if count == 0:
                return
            self._compute(first, count)

    def end(self) -> None:
        """Tell the other workers to end."""
        self._tell(0, 0)

    def _tell(self, first: int, count: int) -> None:
        if self.world.size > 1:
            dist.broadcast(torch.tensor([first, count], device=self.world.device), 0)

    def _compute(self, first: int, count: int) -> int:
        if first != self.position:
            self.batches = self.feed.epoch(0, first)
        tokens = 0
        for _ in range(count):
            batch = next(self.batches)
            self.learner.backward(batch, self.update)
            if self.world.device.type == "cpu":
                self._look()
            self.learner.step(LEARNING_RATE)
            self.update += 1
            tokens += batch.tokens
            if batch.last:
                self.batches = self.feed.epoch(0, 0)
        self.position = (first + count) % self.workload.num_batches
        self._look()
        return tokens

    def _look(self) -> None:
        """Sum the losses of all workers, as the training loop does after each update (on a GPU, after ten)."""
        self.world.add(self.learner.sums).tolist()
        self.learner.sums.zero_()

    def _check(self, batches: Batches) -> None:
        """Raise SystemExit if another version made the workload."""
        pairs = zip(batches.epoch(0), self.workload.train_batches, strict=True)
        if not all(np.array_equal(ours, theirs) for ours, theirs in pairs):
            raise SystemExit("repose makes other batches than this workload has: delete its folder and make it again")


def train(world: World, options: Options) -> None:
    """Run one worker."""
    with tuned():
        training = Training(world, options)
        if world.rank > 0:
            training.follow()
            return
        facts = {"parameters": training.parameters, "versions": VERSIONS}
        serve(options, training.workload.num_batches, training.run, name="repose", **facts)
        training.end()


class Decoding:
    """Translates ids to ids in a pool of processes, with sentences of similar length together, as `Translator` does."""

    def __init__(self, options: Options, workload: Workload) -> None:
        self.options, self.workload = options, workload
        self.model = make_model(options, workload).to(options.device).eval()
        with torch.no_grad():
            self.model.output.bias[END] = -1e9  # every output runs to its limit
        self.folder = tempfile.TemporaryDirectory()
        self.engine = self.made_engine()
        self.pool = Pool(options.processes)
        self.pool.start(self.engine)

    def made_engine(self) -> Engine:
        """Return an engine with the model, or with its graphs."""
        int8 = self.options.precision == "int8"
        if self.options.engine == "onnx":
            folder = Path(self.folder.name)
            facts = write_graphs(folder, self.model, int8=int8)
            return OnnxEngine(GraphFolder(folder / ENCODER, folder / STEP, facts, {}))
        if int8:
            quantize(self.model)
        return TorchEngine(self.model)

    def run(self, numbers: list[int]) -> int:
        """Translate these batches, with all sentences sorted by length, the longest first."""
        options = self.options
        sentences = [ids.tolist() for n in numbers for ids in self.workload.decode_batches[n]]
        sentences.sort(key=len, reverse=True)
        size = 1 if options.alone else max(map(len, self.workload.decode_batches))
        parts = [sentences[start : start + size] for start in range(0, len(sentences), size)]
        search = SearchOptions(options.beam)
        batches = [Batch(part, [NEW_TOKENS] * len(part), search) for part in parts]
        if options.alone:
            found = [self.pool.search(self.engine, [batch])[0] for batch in batches]
        else:
            found = self.pool.search(self.engine, batches)
        written = [hypotheses[0].tokens for batch in found for hypotheses in batch]
        assert all(len(tokens) == NEW_TOKENS for tokens in written), "END was forbidden"
        return len(written)


def decode(options: Options) -> None:
    """Run the first process of decoding."""
    if options.precision == "bf16":
        raise SystemExit("there is no decoding in bf16, which was no faster: take fp32 or int8")
    if options.device != "cpu" and (options.processes > 1 or options.precision != "fp32"):
        raise SystemExit("on a GPU one process decodes, in fp32")
    if options.threads > 1:
        raise SystemExit("decoding has one thread in each process: leave --threads at 1")
    workload = Workload(options)
    decoding = Decoding(options, workload)
    facts = {"parameters": count_parameters(decoding.model), "versions": VERSIONS}
    serve(options, workload.num_batches, decoding.run, name="repose", **facts)


def main() -> None:
    """Command-line entry point: train or decode until stdin ends."""
    precisions = ("fp32", "bf16", "int8")
    options = parse(__doc__, max_processes=MAX_PROCESSES, devices=("cpu", "cuda"), precisions=precisions, models=MODELS)
    if options.task == "decode":
        decode(options)
        return
    device = torch.device(options.device)
    with distributed.started(options.processes, device, options.threads, train, (options,)) as world:
        train(world, options)


if __name__ == "__main__":
    main()
