"""Translating in several processes: results, what happens to the workers, and messages when one fails."""

import contextlib
import copy
import dataclasses
import io
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from repose.data.tokenizer import Tokenizer
from repose.decoding import pool
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.translator import Translation, Translator
from repose.decoding.worker import Batch, Worker, main
from repose.graphs.folder import ENCODER, STEP, GraphFolder
from repose.graphs.writing import write_graphs
from repose.model.kernels.linear import quantize
from repose.model.presets import preset
from repose.model.transformer import Transformer, build
from repose.system.device import tuned
from repose.system.errors import OUT_OF_MEMORY, ConfigError, ReposeError

WORDS = ["ka", "lo", "mi", "nu", "pe", "ra", "so", "ti"]
SIZES = {"d_token": 16, "num_heads": 2, "head_dim": 16, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
WORTH_SECONDS = pool.WORTH_SECONDS
SOURCES = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 12)) for i in range(160)]


@pytest.fixture(autouse=True)
def _no_worker_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine as on a fast one."""
    monkeypatch.setattr(pool, "WORTH_SECONDS", math.inf)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)] * 3, kind="wordlevel", vocab_size=50)


@pytest.fixture(scope="module")
def model() -> Transformer:
    architecture = dataclasses.replace(preset("baseline"), **SIZES, max_length=24)
    return build(architecture, src_vocab_size=12, tgt_vocab_size=12)


@pytest.fixture(scope="module")
def graphs(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    """The model as graphs, whose workers are there sooner: for what is about processes alone."""
    folder = tmp_path_factory.mktemp("graphs")
    return OnnxEngine(GraphFolder(folder / ENCODER, folder / STEP, write_graphs(folder, model), {}))


def of(model: Transformer | OnnxEngine, tokenizer: Tokenizer, workers: int) -> Translator:
    return Translator(model, tokenizer, tokenizer, batch_size=16, max_extra_tokens=3, workers=workers)


@pytest.fixture(scope="module")
def translator(model: Transformer, tokenizer: Tokenizer) -> Iterator[Translator]:
    """Two processes, kept from test to test."""
    with of(model, tokenizer, workers=2) as translator:
        yield translator


@pytest.fixture(scope="module")
def expected(model: Transformer, tokenizer: Tokenizer) -> list[Translation]:
    """The translations of one process."""
    return translate(of(model, tokenizer, workers=1))


@pytest.fixture(scope="module")
def of_graphs(graphs: OnnxEngine, tokenizer: Tokenizer) -> Iterator[Translator]:
    with of(graphs, tokenizer, workers=2) as translator:
        yield translator


@pytest.fixture(scope="module")
def expected_of_graphs(graphs: OnnxEngine, tokenizer: Tokenizer) -> list[Translation]:
    return translate(of(graphs, tokenizer, workers=1))


def workers(translator: Translator) -> list[Worker]:
    return translator._pool._crew.workers


def start(translator: Translator) -> subprocess.Popen[bytes]:
    """Have its worker ready, as a process."""
    translator._pool.start(translator.engine)
    (worker,) = workers(translator)
    return worker._process


def translate(translator: Translator) -> list[Translation]:
    return translator.translate(SOURCES, beam_size=2, num_hypotheses=2)


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_is_told_as_it_is_made(
    model: Transformer, translator: Translator, tokenizer: Tokenizer, processes: int
) -> None:
    shares = list[float]()
    one = of(model, tokenizer, workers=1) if processes == 1 else translator
    one.translate(SOURCES, beam_size=2, on_progress=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert (len(shares), shares[-1]) == (10, 1.0) or processes == 2
    shares.clear()
    one.force(SOURCES, [tokenizer.encode(source) for source in SOURCES], on_progress=shares.append)
    assert (len(shares), shares[-1]) == (10, 1.0)
    assert shares[0] > shares[1] - shares[0] > 0


def test_progress_counts_what_workers_take_at_once(
    model: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares, opened = list[float](), pool._Crew.opened

    @contextlib.contextmanager
    def taken_at_once(crew: pool._Crew, call: pool._Call) -> Iterator[pool._Call]:
        with opened(crew, call):
            index = call.take()
            assert index is not None
            call.results[index] = call.batches[index].search(translator.engine)
            yield call

    monkeypatch.setattr(pool._Crew, "opened", taken_at_once)
    with of(model, tokenizer, workers=2) as translator:
        translator.translate(["ka lo mi"] * 64, on_progress=shares.append)  # four batches
    assert shares == [0.5, 0.75, 1.0]


def ask_otherwise(monkeypatch: pytest.MonkeyPatch, change: Any) -> list[Batch]:
    """Workers are given `change(worker, batch)` for each batch; returns the batches, as they come."""
    asked, ask = [], Worker.ask

    def changed(worker: Worker, message: Any) -> Any:
        if isinstance(message, Batch):
            asked.append(message)
            message = change(worker, message)
        return ask(worker, message)

    monkeypatch.setattr(Worker, "ask", changed)
    return asked


def test_memory_that_runs_out_in_a_worker_is_told_as_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(_: bytes) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    source, sink = io.BytesIO(pickle.dumps(b"a model")), io.BytesIO()
    monkeypatch.setattr("repose.decoding.worker.open_pipes", lambda: (source, sink))
    monkeypatch.setattr("repose.decoding.worker.built", built)
    main()
    answer = pickle.loads(sink.getvalue().partition(b"\n")[2])
    assert (type(answer), str(answer)) == (ReposeError, OUT_OF_MEMORY)


def test_a_worker_is_given_each_weight_once_and_nothing_else_of_a_model(
    model: Transformer, tokenizer: Tokenizer, expected: list[Translation]
) -> None:
    """Not what a program hangs on a model, and not the whole of a tensor that weights are parts of, as in training."""
    changed = copy.deepcopy(model)
    changed.register_forward_hook(lambda *_: None)
    weights = list(changed.parameters())
    parts = torch.cat([weight.detach().flatten() for weight in weights]).split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part.view_as(weight)
    with of(changed, tokenizer, workers=2) as translator:
        assert len(translator.engine.message()) < 1.1 * len(of(model, tokenizer, workers=1).engine.message())
        start(translator)
        assert translate(translator) == expected


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False


def test_translations_are_those_of_one_process(
    translator: Translator, expected: list[Translation], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask_otherwise(monkeypatch, lambda _, batch: batch)
    start(translator)
    assert translate(translator) == expected
    assert 0 < len(asked) < len(SOURCES) // 16, "each process takes some"


def test_what_a_worker_raises_is_raised_here(
    translator: Translator, expected: list[Translation], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(translator)
    with monkeypatch.context() as patched:
        ask_otherwise(patched, lambda _, batch: batch._replace(sources=[[2, 99, 3]], max_lengths=[4]))
        with pytest.raises(ReposeError, match="worker failed: IndexError") as caught:
            translate(translator)
    assert caught.type is ReposeError
    assert translate(translator) == expected
    assert process.poll() is None, "a worker stays after an error"


def test_a_fork_has_workers_of_its_own(
    of_graphs: Translator, expected_of_graphs: list[Translation], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, ours = start(of_graphs), of_graphs._pool._crew
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        of_graphs.close()
        assert translate(of_graphs) == expected_of_graphs
        assert of_graphs._pool._crew is not ours
        of_graphs._pool._crew = ours
    assert process.poll() is None


def test_changed_weights_are_noticed(translator: Translator, expected: list[Translation]) -> None:
    process, model = start(translator), translator.model
    alone = Translator(model, translator.src_tokenizer, translator.tgt_tokenizer, max_extra_tokens=3, workers=1)
    with torch.no_grad():
        model.output.weight.neg_()
    changed = [t.text for t in translate(translator)]
    assert changed == [t.text for t in translate(alone)] != [t.text for t in expected]
    assert process.poll() == -signal.SIGKILL
    with torch.no_grad():
        model.output.weight.neg_()


def test_a_worker_that_dies_is_reported_and_replaced(
    of_graphs: Translator, expected_of_graphs: list[Translation], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(of_graphs)
    process.kill()
    process.wait()
    translate(of_graphs)  # one that died idle has lost nothing

    def killed(worker: Worker, batch: Batch) -> Batch:
        worker.end()
        return batch

    start(of_graphs)
    with monkeypatch.context() as patched:
        ask_otherwise(patched, killed)
        with pytest.raises(ReposeError, match="a translation worker was killed by signal 9"):
            translate(of_graphs)
    assert translate(of_graphs) == expected_of_graphs


@pytest.mark.parametrize("end", ["close", "refresh"])
def test_a_call_ends_without_workers_that_another_thread_ends(
    of_graphs: Translator, expected_of_graphs: list[Translation], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    process = start(of_graphs)
    monkeypatch.setattr(pool, "WORTH_SECONDS", 0.0)

    def ended(_: Worker, batch: Batch) -> Batch:
        getattr(of_graphs, end)()
        return batch

    asked = ask_otherwise(monkeypatch, ended)
    assert translate(of_graphs) == expected_of_graphs
    assert len(asked) == 1
    assert process.poll() == -signal.SIGKILL
    assert workers(of_graphs) == []


def test_a_worker_that_cannot_start_is_reported(
    model: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator(model, tokenizer, tokenizer, workers=2)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ReposeError, match="a translation worker ended with exit code 1"):
        start(translator)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ReposeError, match=r"could not be started \(No such file.*workers = 1"):
        start(translator)


def test_workers_end_with_their_translator(graphs: OnnxEngine, tokenizer: Tokenizer) -> None:
    translator = Translator(graphs, tokenizer, tokenizer, workers=2)
    process = start(translator)
    del translator
    assert process.returncode == -signal.SIGKILL


def test_little_is_translated_without_workers(
    graphs: OnnxEngine, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator(graphs, tokenizer, tokenizer, workers=2, batch_size=8)
    monkeypatch.setattr(pool, "WORTH_SECONDS", WORTH_SECONDS)
    translator.translate(SOURCES[:20], beam_size=1)
    assert workers(translator) == []
    monkeypatch.setattr(pool, "WORTH_SECONDS", 0.0)
    translator.translate(SOURCES[:8], beam_size=1)  # one batch cannot be shared
    assert workers(translator) == []
    with translator:
        translator.translate(SOURCES[:20], beam_size=1)
        (worker,) = workers(translator)
        assert not worker.ready, "it was not waited for"
    assert not worker.is_alive()
    assert workers(translator) == []


def test_numbers_of_workers(model: Transformer, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="workers = 0"):
        Translator(model, tokenizer, tokenizer, workers=0)
    monkeypatch.setattr("repose.system.device.available_cores", lambda: 5)
    translator = Translator(model, tokenizer, tokenizer)
    assert translator.workers == copy.deepcopy(translator).workers == 5
    on_meta = copy.deepcopy(model).to("meta")
    assert Translator(on_meta, tokenizer, tokenizer).workers == 1
    with pytest.raises(ConfigError, match="leave workers out on meta"):
        Translator(on_meta, tokenizer, tokenizer, workers=2)


def test_translating_within_training_leaves_denormals_flushed(translator: Translator) -> None:
    denormal = torch.tensor(1e-40)
    with tuned():
        translator.translate(SOURCES[:2])
        assert denormal.mul(1.0).item() == 0
    assert denormal.mul(1.0).item() != 0


SCRIPT = """
import sys
from pathlib import Path

import repose
from repose.data.tokenizer import Tokenizer
from repose.decoding import pool
from repose.decoding.engine import built

print("begins", flush=True)
pool.WORTH_SECONDS = 0.0
tokenizer = Tokenizer.train(["ka lo mi nu"] * 3, kind="wordlevel", vocab_size=50)
graphs = built(Path(sys.argv[1]).read_bytes())
translator = repose.Translator(graphs, tokenizer, tokenizer, workers=2, batch_size=4)
translator.translate(["ka lo", "mi nu"] * 20)
translator._pool.start(translator.engine)
print(*[worker._process.pid for worker in translator._pool._crew.workers], flush=True)
while True:
    translator.translate(["ka lo", "mi nu"] * 50)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_script_without_main_guard(tmp_path: Path, graphs: OnnxEngine, how: signal.Signals) -> None:
    """It is run once, and its worker ends with it, without a word."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    model = tmp_path / "graphs"
    model.write_bytes(graphs.message())
    command = [sys.executable, str(script), str(model)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begins\n"
        worker = int(process.stdout.readline())
        assert is_running(worker)
        time.sleep(0.3)
        os.killpg(process.pid, how)
        try:
            assert process.wait(20) == -how
        finally:
            process.kill()
        assert process.stdout.read() == ""
        assert process.stderr.read().count("Traceback") == (how is signal.SIGINT)
    deadline = time.monotonic() + 5
    while is_running(worker):
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.05)


def test_workers_of_an_int8_model_multiply_in_int8(model: Transformer, tokenizer: Tokenizer) -> None:
    rounded = copy.deepcopy(model)
    quantize(rounded)
    alone = Translator(rounded, tokenizer, tokenizer, batch_size=16, max_extra_tokens=3, workers=1)
    assert alone.precision == "int8"
    with Translator(rounded, tokenizer, tokenizer, batch_size=16, max_extra_tokens=3, workers=2) as shared:
        start(shared)
        scores = [t.score for t in translate(shared)]
    assert scores == [t.score for t in translate(alone)]
    assert scores != [t.score for t in translate(Translator(model, tokenizer, tokenizer, batch_size=16, workers=1))]


def test_what_derives_from_the_weights_is_made_anew_when_they_change(model: Transformer, tokenizer: Tokenizer) -> None:
    changing = copy.deepcopy(model)
    translator = Translator(changing, tokenizer, tokenizer, workers=1)
    before = translator.translate(SOURCES[:3])
    with torch.no_grad():
        for parameter in changing.parameters():
            parameter.mul_(1.5)
    after = translator.translate(SOURCES[:3])
    assert [t.score for t in after] != [t.score for t in before]
    fresh = Translator(changing, tokenizer, tokenizer, workers=1).translate(SOURCES[:3])
    assert [t.score for t in after] == [t.score for t in fresh]
