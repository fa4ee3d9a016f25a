"""Vaswani et al. (2017), Table 1: counts and measurements against formulas, and formulas against the paper."""

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import layer_types
from layer_kinds import LAYER_KINDS, Convolutional, dilated, dilated_hops
from layer_types import (
    USUAL,
    count_operations,
    hand_overs,
    layers_needed,
    measure_paths,
    operations,
    sequential,
    sweeps,
)

EVERY = pytest.mark.parametrize("name", LAYER_KINDS)
SMALL = {
    "LENGTHS": (16, 32),
    "WIDTHS": (8, 16),
    "SIZES": {"": (), "k": (3, 5), "r": (8, 16)},
    "USUAL": {"": 0, "k": 3, "r": 8},
    "AT": 16,
    "PATH_LENGTHS": (9, 12),
    "TIMED_LENGTHS": (4, 8),
    "TIMED_WIDTHS": (8,),
    "TOKENS": 8,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of milliseconds."""
    for name, value in SMALL.items():
        monkeypatch.setattr(layer_types, name, value)


def powers(order: str) -> Iterator[tuple[str, int]]:
    """Of each letter in the paper's O(..), such as n and 2."""
    for factor in order.removeprefix("O(").removesuffix(")").split(" · "):
        name, _, power = factor.partition("^")
        yield name, int(power or 1)


@EVERY
@pytest.mark.parametrize(("n", "d"), [(13, 8), (24, 16)])
def test_counts_are_what_the_formulas_say(name: str, n: int, d: int) -> None:
    kind = LAYER_KINDS[name]
    for size in {"": (0,), "k": (3, 5), "r": (6, 8)}[kind.size]:
        formula = {part: f(n, d, size) for part, f in kind.operations.items()}
        assert operations(kind.make(d, size, 0), n, d) == formula


def test_constants_by_hand() -> None:
    """4 n² d and 8 n d² of attention; of three keys in a band two are near; an LSTM has four times the matrices."""
    parts = {
        name: operations(kind.make(16, 8 if kind.size == "r" else 3, 0), 32, 16) for name, kind in LAYER_KINDS.items()
    }
    assert parts["self-attention"] == {"product": 4 * 32**2 * 16, "projections": 8 * 32 * 16**2}
    assert parts["self-attention (restricted)"] == {"product": 6 * 8 * 32 * 16, "projections": 8 * 32 * 16**2}
    assert parts["recurrent (RNN)"] == {"recurrence": 4 * 32 * 16**2}
    assert parts["recurrent (LSTM)"] == {"recurrence": 16 * 32 * 16**2}
    assert parts["convolutional"] == parts["convolutional (dilated)"] == {"convolution": 2 * 3 * 32 * 16**2}
    assert parts["convolutional (separable)"] == {"depthwise": 2 * 3 * 32 * 16, "pointwise": 2 * 32 * 16**2}


@EVERY
@pytest.mark.usefixtures("small")
def test_exponents_are_the_papers(name: str) -> None:
    kind = LAYER_KINDS[name]
    exponents = count_operations(kind, sweeps(kind))["exponents"]
    for part, order in kind.paper.operations.items():
        assert exponents[part] == pytest.approx(dict.fromkeys(exponents[part], 0) | dict(powers(order)))
    if "projections" in exponents:
        assert exponents["projections"] == pytest.approx({"n": 1, "d": 2} | ({"r": 0} if kind.size else {}))
        assert 1 <= exponents["all"]["n"] < 2


@EVERY
def test_longest_chains(name: str) -> None:
    """The paper's 1 and n, times the products that one such operation is made of."""
    kind = LAYER_KINDS[name]
    wanted = {"self-attention": 4, "recurrent": 1, "convolutional": 1, "convolutional (separable)": 2}
    each = wanted.get(name, wanted[name.split(" (")[0]])
    for n in (8, 16):
        layer = kind.make(8, USUAL[kind.size], 0).double()
        chain = sequential(layer(torch.randn(1, n, 8, dtype=torch.float64)))
        assert chain == each * (n if kind.paper.sequential == "O(n)" else 1)


def test_chain_counts_what_depends_and_nothing_beside_it() -> None:
    x, w = torch.randn(2, 3, 3, requires_grad=True)
    assert sequential(x + w) == 0
    assert sequential((x @ w) + (w @ x)) == 1
    assert sequential(((x @ w) @ w) + (w @ x)) == 2
    y = x
    for _ in range(2000):  # deeper than Python's recursion
        y = y @ w
    assert sequential(y) == 2000


@EVERY
def test_paths_are_what_the_formulas_say(name: str) -> None:
    kind = LAYER_KINDS[name]
    points = [(n, size) for n in (5, 9, 14) for size in {"": (0,), "k": (3, 5), "r": (4, 8)}[kind.size]]
    for found in measure_paths(kind, points, 8).values():
        assert found["hops"] == found["hops_formula"]
        assert found["layers"] == (1 if kind.paper.path == "O(n)" else found["hops"])


def test_paths_by_hand() -> None:
    hops = {name: kind.hops(129, {"": 0, "k": 5, "r": 32}[kind.size]) for name, kind in LAYER_KINDS.items()}
    assert hops == {
        "self-attention": 1,
        "self-attention (restricted)": 128 // 16,
        "recurrent (RNN)": 128,
        "recurrent (LSTM)": 128,
        "convolutional": 128 // 2,
        "convolutional (dilated)": math.ceil(math.log(129, 5)),
        "convolutional (separable)": 128 // 2,
    }
    assert [dilated_hops(n, 3) for n in (3, 4, 9, 10, 27, 28)] == [1, 2, 2, 3, 3, 4]


def test_layers_are_needed_until_the_derivative_is_not_zero() -> None:
    assert layers_needed(lambda _: nn.Linear(4, 4), 6, 4, most=8) is None  # each position by itself
    assert layers_needed(lambda below: dilated(4, 2, 2**below), 8, 4, most=5) == 3
    assert layers_needed(lambda below: dilated(4, 2, 2**below), 9, 4, most=5) == 4


def test_centred_dilations_do_not_connect_both_ends() -> None:
    """From 0 to 15 leads 27 - 9 - 3 alone, which leaves the sequence; 13 = 1 + 3 + 9 does not."""

    def centred(below: int) -> Convolutional:
        return Convolutional(convolution=nn.Conv1d(4, 4, 3, padding="same", dilation=3**below))

    assert layers_needed(centred, 14, 4, most=6) == 3
    assert layers_needed(centred, 16, 4, most=6) is None


def test_hand_overs_of_a_state_that_carries_nothing() -> None:
    rnn = nn.RNN(4, 4, batch_first=True)
    assert hand_overs(rnn, 6, 4) == 5
    nn.init.zeros_(rnn.weight_hh_l0)
    assert hand_overs(rnn, 6, 4) == 6  # nothing reaches the end, cut or whole


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("timed", [True, False])
def test_record(
    timed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "layer-types.json"
    options = ["--rounds", "2"] if timed else ["--no-times"]
    monkeypatch.setattr(sys, "argv", ["layer_types.py", *options, "--out", str(out)])
    assert layer_types.main() == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["layers"].keys() == LAYER_KINDS.keys()
    assert ("rounds" in found["settings"]) == timed
    for name, layer in found["layers"].items():
        assert layer.keys() == {"paper", "exponents", "operations", "paths", "milliseconds"}
        assert layer["milliseconds"].keys() == ({"n = 4, d = 8", "n = 8, d = 8"} if timed else set())
        for times in layer["milliseconds"].values():
            assert 0 < times["min"] <= times["median"] <= times["max"]
        assert len(layer["paths"]) == (3 if LAYER_KINDS[name].size else 2)
    assert found["operations_ratios"]["self-attention, product alone / recurrent (RNN)"] == 1  # n = d
    assert re.search(r"^self-attention: product +O\(n\^2 · d\) +2\.00 +1\.00$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.usefixtures("small")
def test_a_wrong_formula_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["layer_types.py", "--no-times"])
    monkeypatch.setitem(LAYER_KINDS["recurrent (RNN)"].operations, "recurrence", lambda n, d, _: 2 * n * d**2)
    assert layer_types.main() == 1


def test_the_record_in_results_is_of_this_benchmark() -> None:
    path = Path(__file__).parents[2] / "results" / "speed" / "layer-types.json"
    layers = json.loads(path.read_text(encoding="utf-8"))["layers"]
    assert layers.keys() == LAYER_KINDS.keys()
    assert all(map(layer_types.as_formulas, layers.values()))
