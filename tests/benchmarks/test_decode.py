from argparse import Namespace
from pathlib import Path

import protocol
import pytest

import decode
import train
from decode import Run, architecture, compare, contestants, plan
from interleave import Result


def asked(**changes: object) -> Namespace:
    """A command line."""
    usual = {
        "model": "reinforced",
        "size": "nearest",
        "beam": [1],
        "precision": ["fp32"],
        "device": "cpu",
        "alone": False,
    }
    return Namespace(**usual | {"contestants": list(decode.ENTRIES)} | changes)


@pytest.mark.parametrize("size", ["exact", "nearest"])
@pytest.mark.parametrize("model", protocol.MODELS)
def test_sizes_are_the_contestants_own(model: str, size: str) -> None:
    wanted = protocol.sizes_of(model, size)
    ours = architecture("repose", model, size)
    for name in ("d_token", "d_model", "num_heads", "head_dim", "d_ff", "num_encoder_layers", "num_decoder_layers"):
        assert getattr(ours, name) == getattr(wanted, name)
    positions = "rotary" if ours.positions == "rotary" else ours.combine
    assert (positions, ours.values) == (wanted.combine, wanted.values)


def test_peers_are_plain_transformers_of_the_same_width() -> None:
    wanted, plain = protocol.sizes_of("reinforced", "nearest"), architecture("marian", "reinforced", "nearest")
    assert (plain.d_model, plain.head_dim, plain.d_ff) == (wanted.d_model, wanted.head_dim, wanted.d_ff)
    assert (plain.combine, plain.values) == ("add", "hidden")


def test_a_pass_holds_all_sentences() -> None:
    assert (decode.PASS - 1) * protocol.DECODE_BATCH < 1000 <= decode.PASS * protocol.DECODE_BATCH


@pytest.mark.parametrize(
    ("changes", "able"),
    [
        ({}, ["repose", "repose-onnx", "ctranslate2", "marian"]),
        ({"size": "exact"}, ["repose", "repose-onnx"]),
        ({"size": "exact", "model": "baseline"}, ["repose", "repose-onnx", "ctranslate2"]),
        ({"precision": ["int8"]}, ["repose", "repose-onnx", "ctranslate2"]),
        ({"device": "cuda"}, ["repose", "marian"]),
        ({"precision": ["bf16"], "contestants": ["marian"]}, ["marian"]),
    ],
)
def test_only_what_a_contestant_can_do_is_asked_of_it(changes: dict[str, object], able: list[str]) -> None:
    assert [run.entry for run in plan(asked(**changes))] == able


def test_each_precision_has_its_ceiling_and_every_contestant_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode, train):
        monkeypatch.setattr(module, "available_cores", lambda: 2)
    args = asked(precision=["fp32", "bf16", "int8"], beam=[1, 4])
    runs = plan(args)
    found = {each.name: each.command for each in contestants(runs, args, Path("folder"))}
    gemms = [name for name in found if name.split()[0] in decode.CEILINGS]
    assert {(name.split()[0], name.split()[-1]) for name in gemms} == {
        ("gemm", "fp32"),
        ("torch.mm", "fp32"),
        ("gemm", "bf16"),
    }
    assert len(found) - len(gemms) == len(runs) == 2 * (2 + 2 + 2 + 2)
    for name, command in found.items():
        options = dict(zip(command[3::2], command[4::2], strict=True))
        assert int(options["--processes"]) * int(options["--threads"]) == 2
        if "beam 4" in name:
            assert (options["--task"], options["--beam"]) == ("decode", "4")


def test_ratios() -> None:
    runs = [Run("repose", "fp32", 1), Run("repose", "int8", 1), Run("marian", "fp32", 1), Run("marian", "fp32", 4)]
    rates = {"repose fp32, greedy": 100, "repose int8, greedy": 150, "marian fp32, greedy": 50}
    gemms = {"gemm 1x2 fp32": 9e9, "gemm 2x1 fp32": 1e10, "torch.mm 1x2 fp32": 8e9, "gemm 2x1 bf16": 3e10}
    results = {name: Result([rate]) for name, rate in (rates | gemms).items()}
    results["marian fp32, beam 4"] = Result(problem="died")
    assert compare(runs, results, {run.label: 4e7 for run in runs}) == {
        "repose fp32, greedy / gemm": pytest.approx(0.4),
        "repose fp32, greedy / torch.mm": pytest.approx(0.5),
        "repose int8, greedy / gemm": pytest.approx(0.6),
        "repose int8, greedy / torch.mm": pytest.approx(0.75),
        "marian fp32, greedy / gemm": pytest.approx(0.2),
        "marian fp32, greedy / torch.mm": pytest.approx(0.25),
        "repose fp32, greedy / marian fp32, greedy": 2,
        "repose int8, greedy / repose fp32, greedy": 1.5,
        "repose int8, greedy / marian fp32, greedy": 3,
    }
