"""Several workers compute the same numbers as one, and all of them end whatever happens to one."""

import functools
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children, get_all_start_methods, get_context
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from repose.system.errors import ConfigError, LostWorkerError, ReposeError
from repose.system.signals import Interrupted
from repose.training import checkpoint, distributed
from repose.training.distributed import Outer, choose_workers, outer_launcher
from repose.training.learner import Learner
from repose.training.run import train

CPU = torch.device("cpu")
SCRIPT = """
import pickle, sys
from pathlib import Path
from repose.system.errors import ReposeError
from repose.training.run import train

if __name__ == "__main__":
    job, run_dir, workers = pickle.loads(Path(sys.argv[1]).read_bytes())
    try:
        print(train(job, run_dir, device="cpu", workers=workers, progress="none").status)
    except ReposeError as error:
        sys.exit(str(error))
"""


class Child:
    """A training in another process."""

    def __init__(self, job: Any, run_dir: Path, workers: int) -> None:
        run_dir.mkdir(exist_ok=True)
        (run_dir / "script.py").write_text(SCRIPT)
        (run_dir / "job").write_bytes(pickle.dumps((job, run_dir, workers)))
        self.metrics = run_dir / "metrics.jsonl"
        self.process = subprocess.Popen(
            [sys.executable, run_dir / "script.py", run_dir / "job"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def wait_for(self, path: Path) -> None:
        """Until the training has written something there."""
        deadline = time.monotonic() + 120
        while not (path.exists() and path.stat().st_size):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def workers(self) -> list[int]:
        """Process ids of the workers that it started."""
        pid = self.process.pid
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]

    def end(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out.strip(), err.strip()


def gone(pid: int, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def pair(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two workers come to, without dropout; the last batch of an epoch has three sentences for four shares."""
    run_dir = tmp_path_factory.mktemp("pair")
    assert lab.go(two_worker_job(lab), run_dir, workers=2).update == 15
    return run_dir


def two_worker_job(lab: Any, **training: Any) -> Any:
    # With Adam's usual epsilon its first steps follow the sign of a gradient, however small: rounding would show.
    return lab.job(lab.still, adam_eps=0.1, accumulation=2, clip_norm=0.5, save_every_minutes=1e-9, **training)


def test_two_workers_equal_one(lab: Any, pair: Path, tmp_path: Path) -> None:
    lab.go(two_worker_job(lab), tmp_path, workers=1)
    one, two = lab.checkpoint(tmp_path), lab.checkpoint(pair)
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(lab.figures(tmp_path), lab.figures(pair), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=1e-5)


def test_no_worker_reads_the_mean_of_weights_that_another_writes_as_the_model(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, load = two_worker_job(lab, average_checkpoints=2), checkpoint._load_average

    def load_slowly(*arguments: Any) -> None:
        load(*arguments)
        time.sleep(0.3)

    assert lab.go(job, tmp_path / "usual", workers=2).status == "done"
    monkeypatch.setattr(checkpoint, "_load_average", load_slowly)
    assert lab.go(job, tmp_path / "slow", workers=2).status == "done"
    lab.assert_same_run(tmp_path / "usual", tmp_path / "slow")


def at_update(monkeypatch: pytest.MonkeyPatch, update: int, act: Callable[[], object]) -> None:
    """Do something in this process as an update begins."""
    backward = Learner.backward

    def acted(self: Learner, batch: Any, number: int) -> None:
        if number == update:
            act()
        backward(self, batch, number)

    monkeypatch.setattr(Learner, "backward", acted)


def test_a_signal_to_a_worker_that_is_still_importing_asks_it_to_stop(
    lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = functools.partial(distributed.start_processes, start_method="spawn")  # forked, it has imported everything

    def start_and_signal(*arguments: Any, **options: Any) -> Any:
        context = start(*arguments, **options)
        for process in context.processes:
            os.kill(process.pid, signal.SIGUSR1)
        return context

    monkeypatch.setattr(distributed, "start_processes", start_and_signal)
    outcome = lab.go(two_worker_job(lab), tmp_path, workers=2)
    assert (outcome.status, outcome.reason) == ("stopped", "other_worker")


def test_two_workers_resume_as_two(lab: Any, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        at_update(patch, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
        outcome = lab.go(two_worker_job(lab), tmp_path, workers=2)
    assert (outcome.status, outcome.reason, outcome.update) == ("stopped", "SIGTERM", 7)
    assert lab.go(two_worker_job(lab), tmp_path, workers=None).status == "done"
    assert (tmp_path / "train.log").read_text().count("2 workers of 1 thread on cpu") == 2
    lab.assert_same_run(pair, tmp_path)


def test_a_killed_worker_ends_the_run_which_then_resumes(
    lab: Any, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other worker waits for it in an exchange."""
    sentence = "a worker was killed by signal 9 (out of memory?): run the same command again, training then resumes"
    with monkeypatch.context() as patch:
        at_update(patch, 8, lambda: [os.kill(int(p.pid or 0), signal.SIGKILL) for p in active_children()])
        with pytest.raises(LostWorkerError) as caught:
            lab.go(two_worker_job(lab), tmp_path, workers=2)
    assert str(caught.value) == sentence
    assert (tmp_path / "train.log").read_text().splitlines()[-1].endswith(f"failed: {sentence}")
    assert lab.go(two_worker_job(lab), tmp_path, workers=None).status == "done"
    lab.assert_same_run(pair, tmp_path)


def test_workers_do_not_outlive_a_killed_parent(lab: Any, tmp_path: Path) -> None:
    child = Child(lab.job(epochs=10_000), tmp_path, workers=2)
    child.wait_for(child.metrics)
    (worker,) = child.workers()
    child.process.kill()
    child.end()
    assert gone(worker)


def fail(world: distributed.World) -> None:
    raise ReposeError(f"worker {world.rank} has its reasons")


def fail_otherwise(_world: distributed.World) -> None:
    raise ValueError("repose.system.errors.\nno sentence for a user")


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (fail, "a worker failed: worker 1 has its reasons"),
        (fail_otherwise, "a worker failed: ValueError: repose.system.errors. no sentence for a user"),
    ],
)
def test_a_failing_worker_is_heard_and_leaves_nothing(
    what: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_temp_dir()  # its own folder, which goes with this process, is elsewhere
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ReposeError) as caught, distributed.started(2, CPU, 1, what, ()) as world:
        world.add(torch.ones(1))
    assert str(caught.value) == sentence
    assert list(tmp_path.iterdir()) == []


def meet(world: distributed.World) -> None:
    world.share_error(None)


WAITING = """
import os, time, torch
from repose.training import distributed

def die(world):
    os._exit(3)

if __name__ == "__main__":
    distributed._GRACE, distributed._waits_for_the_dead = 0.1, lambda _: True
    with distributed.started(2, torch.device("cpu"), 1, die, ()):
        time.sleep(100)  # as for an exchange on a GPU
"""


def test_a_worker_that_dies_ends_a_process_that_would_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WAITING)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr) == (1, "repose: a worker failed: it has ended\n")


FAILING = """
import time, torch
from repose.system.errors import ReposeError
from repose.training import distributed

def wait(world):
    time.sleep(100)  # for the first worker, in an exchange on a GPU

def leave():
    assert all(not process.is_alive() for process in torch.multiprocessing.active_children())
    print("left", flush=True)
    time.sleep(100)  # as NCCL may, for workers that have ended

if __name__ == "__main__":
    distributed._GRACE, distributed._waits_for_the_dead = 0.5, lambda _: True
    distributed.dist.destroy_process_group = leave
    try:
        with distributed.started(2, torch.device("cpu"), 1, wait, ()):
            raise ReposeError("mine")
    except ReposeError as error:
        print(error)
"""


def test_an_error_is_told_though_the_group_of_workers_cannot_be_left(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FAILING)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (0, "left\nmine\n"), done.stderr


def test_a_group_of_the_callers_own_is_left_alone(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=(tmp_path / "group").as_uri(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="twice"), distributed.started(2, CPU, 1, meet, ()):
            pass
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_no_two_processes_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    outer = Outer(2, 3, 2, "127.0.0.1", 1)
    with pytest.raises(ConfigError, match="start at most 2 processes"), distributed.joined(outer, torch.device("cuda")):
        pass


def test_an_error_of_the_first_worker_reaches_all() -> None:
    with (
        pytest.raises(ReposeError, match=r"^mine$"),
        distributed.started(2, CPU, 1, meet, ()) as world,
    ):
        world.share_error(ReposeError("mine"))


def test_later_errors_are_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has them begin with "[rank0]:", also after the group of workers has been left."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    with distributed.started(2, CPU, 1, meet, ()) as world:
        world.share_error(None)
    assert sys.excepthook is sys.__excepthook__


def train_alone(job: Any, run_dir: Path) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    train(job, run_dir, device="cpu", workers=1, progress="none")


def kill_often(lab: Any, whole: Path, run_dir: Path, kills: int, job: Any) -> None:
    """Kill a training that writes checkpoints all the time, again and again; it must not show."""
    draw, checkpoint = random.Random(1), run_dir / "state" / "last.safetensors"  # it draws a soon one first
    hits = 0
    for _ in range(kills):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        process = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn").Process(
            target=train_alone, args=(job, run_dir)
        )
        process.start()
        while process.is_alive() and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.001)
        process.join(draw.uniform(0, 0.3))
        hits += process.exitcode is None
        process.kill()
        process.join()
    assert hits
    assert lab.go(job, run_dir).status == "done"
    lab.assert_same_run(whole, run_dir)


def killed_job(lab: Any, epochs: int) -> Any:
    return lab.job(epochs=epochs, save_every_minutes=1e-9, keep="best", average_checkpoints=3, validate_every_updates=3)


def test_kills_leave_no_trace(lab: Any, tmp_path: Path) -> None:
    job = killed_job(lab, epochs=4)
    lab.go(job, tmp_path / "whole")
    kill_often(lab, tmp_path / "whole", tmp_path / "killed", 2, job)


@pytest.mark.slow
def test_many_kills_leave_no_trace(lab: Any, tmp_path: Path) -> None:
    job = killed_job(lab, epochs=200)
    lab.go(job, tmp_path / "whole")
    kill_often(lab, tmp_path / "whole", tmp_path / "killed", 30, job)


def launched(environment: dict[str, str]) -> Outer | None:
    with patch.dict(os.environ, environment, clear=True):
        return outer_launcher()


def test_torchrun_is_joined() -> None:
    environment = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert launched(environment) == Outer(3, 4, 1, "n1", 29500)
    assert launched({"RANK": "3", "WORLD_SIZE": "4"}) is None
    assert launched({}) is None


@pytest.mark.parametrize(
    ("nodes", "first"), [("n7", "n7"), ("n7,n9", "n7"), ("gpu-[07-09,12],x1", "gpu-07"), ("a[3,5]", "a3")]
)
def test_slurm_step_is_joined(nodes: str, first: str) -> None:
    step = {
        "SLURM_JOB_ID": "70123",
        "SLURM_PROCID": "2",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "4",
        "SLURM_STEP_NODELIST": nodes,
    }
    assert launched(step) is None  # a batch script: srun has not run
    step["SLURM_STEP_NUM_TASKS"] = "4"
    assert launched(step) == Outer(2, 4, 0, first, 30_123)
    assert launched({**step, "MASTER_ADDR": "here", "MASTER_PORT": "7"}) == Outer(2, 4, 0, "here", 7)


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "1"},
        {"SLURM_STEP_NUM_TASKS": "2"},
    ],
)
def test_half_a_launcher_is_none(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="says that a launcher started this process, but not where"):
        launched(environment)


def test_processes_that_do_not_come_are_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "COMING", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(LostWorkerError, match=r"some of the 3 processes have not joined \(1, 2\)"):
        distributed.joined(Outer(0, 3, 0, "127.0.0.1", port), torch.device("cpu")).__enter__()
    with pytest.raises(LostWorkerError, match=r"the first process is not at 127\.0\.0\.1"):
        distributed.joined(Outer(1, 3, 1, "127.0.0.1", port), torch.device("cpu")).__enter__()


def test_who_waits_for_others_hears_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    while_waiting = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(distributed, "time", while_waiting)
    with pytest.raises(Interrupted):
        distributed.joined(Outer(0, 2, 0, "127.0.0.1", port), torch.device("cpu")).__enter__()


def test_one_gpu_is_none_for_several_processes() -> None:
    outer = Outer(0, 2, 0, "n1", 29500)
    with pytest.raises(ConfigError, match="is one GPU, but 2 processes train"):
        distributed.joined(outer, torch.device("cuda:1")).__enter__()


def test_choice_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(requested: int | None, recorded: int | None, tokens: int = 10**6, device: str = "cpu") -> int:
        place = torch.device(device)
        return choose_workers(place, requested=requested, recorded=recorded, tokens_per_batch=tokens)

    monkeypatch.setattr(distributed, "available_cores", lambda: 8)
    assert choose(None, None) == 8
    assert choose(None, None, tokens=1000) == 3
    assert choose(None, None, tokens=10) == 1
    assert choose(None, 2) == 2
    assert choose(5, 2) == 5
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert choose(None, None, device="cuda") == 4
    assert choose(None, 8, device="cuda") == 4
    assert choose(None, None, device="cuda:2") == 1
    with pytest.raises(ConfigError, match="give at most 1"):
        choose(2, None, device="cuda:2")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert [distributed.threads_for(workers) for workers in (1, 2, 3, 9)] == [8, 4, 2, 1]


@pytest.mark.slow
def test_joins_torchrun(lab: Any, pair: Path, tmp_path: Path) -> None:
    """Two processes that a launcher starts, which this package did not."""
    job = two_worker_job(lab)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "job").write_bytes(pickle.dumps((job, tmp_path, None)))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launcher, tmp_path / "script.py", tmp_path / "job"], capture_output=True, text=True, timeout=200
    )
    assert done.stdout.split() == ["done", "done"], done.stderr
    for name, tensor in lab.checkpoint(pair).items():
        torch.testing.assert_close(lab.checkpoint(tmp_path)[name], tensor, rtol=1e-4, atol=1e-6)
