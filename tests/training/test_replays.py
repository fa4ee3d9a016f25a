"""Which passes are recorded and replayed, with a stand-in for CUDA (`test_gpu` covers the GPU's results)."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from repose.training import replays
from repose.training.replays import Replays

WAIT = "called a synchronizing CUDA operation"


class Batch(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor | None = None


class Graph:
    """Does again what was done while it was the present one."""

    present: "Graph | None" = None

    def __init__(self) -> None:
        self.steps: list[Callable[[], Any]] = []

    def replay(self) -> None:
        for step in self.steps:
            step()

    def pool(self) -> None:
        pass

    @contextlib.contextmanager
    def recording(self, **_: Any) -> Iterator[None]:
        Graph.present = self
        try:
            yield
        finally:
            Graph.present = None


class Stream:
    def wait_stream(self, other: "Stream") -> None:
        pass


@pytest.fixture(autouse=True)
def _cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = ["default"]
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Graph.recording)


def power(micro_batch: Batch, number: torch.Tensor) -> torch.Tensor:
    """Of what is in memory at the time."""

    def compute() -> torch.Tensor:
        return (micro_batch.x if micro_batch.y is None else micro_batch.x + micro_batch.y) ** number

    out = compute()
    if Graph.present is not None:
        Graph.present.steps.append(lambda: out.copy_(compute()))
    return out


def check(made: Replays, run: Any, size: int, start: int, *, pair: bool = False) -> None:
    x, number = torch.arange(start, start + size), torch.tensor(2 + start % 2)
    assert made(run, Batch(x, x if pair else None), number).tolist() == ((1 + pair) * x).pow(number).tolist()


def test_each_shape_is_recorded_when_it_comes_again() -> None:
    made = Replays()
    for start, wanted in enumerate((0, 0, 1, 2, 2, 2)):
        check(made, power, 3 + start % 2, start)
        assert made.number == wanted
    check(made, power, 3, 7, pair=True)
    check(made, power, 3, 8, pair=True)
    assert made.number == 3


def waiting(times: int) -> Any:
    """A function whose first passes wait so often, and that may not be recorded if it waits."""
    left = [times]

    def run(micro_batch: Batch, number: torch.Tensor) -> torch.Tensor:
        if left[0]:
            assert Graph.present is None
            left[0] -= 1
            warnings.warn(WAIT, stacklevel=1)
        return power(micro_batch, number)

    return run


@pytest.mark.parametrize(("times", "recorded"), [(0, 2), (1, 2), (2, 0), (99, 0)])
@pytest.mark.filterwarnings(f"ignore:{WAIT}")
def test_a_function_that_waits_twice_is_not_recorded(times: int, recorded: int) -> None:
    made, run = Replays(), waiting(times)
    for start in range(8):
        check(made, run, 3 + start % 2, start)
    assert made.number == recorded
    assert made.works == (recorded > 0)


def test_no_more_than_the_most_are_recorded_and_shapes_seen_once_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST", 2)
    made = Replays()
    for start, size in enumerate((1, 2, 3, 4, 5, 4, 5, 1, 1, 4, 5)):
        check(made, power, size, start)
    assert made.number == 2


def test_without_memory_for_another_shape_those_recorded_go_on() -> None:
    recordings, made = [], Replays()

    def run(micro_batch: Batch, number: torch.Tensor) -> torch.Tensor:
        if Graph.present is not None:
            recordings.append(len(micro_batch.x))
            if len(micro_batch.x) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return power(micro_batch, number)

    for start, size in enumerate((3, 3, 5, 5, 4, 4, 5, 3)):
        check(made, run, size, start)
    assert made.number == 1
    assert recordings == [3, 5]


def test_other_warnings_of_a_first_pass_are_told() -> None:
    def run(micro_batch: Batch, number: torch.Tensor) -> torch.Tensor:
        warnings.warn("mind this", stacklevel=1)
        return power(micro_batch, number)

    with pytest.warns(UserWarning, match="mind this"):
        check(Replays(), run, 3, 0)
