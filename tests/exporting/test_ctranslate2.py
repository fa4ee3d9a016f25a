"""CTranslate2 computes what the model computes, for every axis value that it can express."""

import dataclasses
import json
import math
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import tests.axes
import torch
from tests.axes import DEFAULTS

import repose
from repose.data.tokenizer import Tokenizer
from repose.exporting import to_ctranslate2
from repose.exporting.ctranslate2_spec import _REASONS, ANY_VALUE, EXPRESSED, why_not
from repose.graphs.stacks import COMPUTED
from repose.graphs.stacks import why_not as graphs_why_not
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS, preset
from repose.saved_model.api import build
from repose.saved_model.description import read_description
from repose.system.errors import CheckpointError, ConfigError

from .conftest import TEXT, TINY, Saving, shaken

EXPRESSIBLE: dict[str, dict[str, Any]] = {
    "vaswani": {},
    **{f"positions {p}": {"positions": p} for p in ("halves", "printed", "learned", "policy", "rotary", "t5", "none")},
    "concat": {"combine": "concat", "tie_embeddings": "none"},
    "concat, vocabulary norms": {
        "combine": "concat",
        "tie_embeddings": "none",
        "encoder_token_norm": "vocabulary",
        "decoder_token_norm": "vocabulary",
    },
    "running norms": {"encoder_token_norm": "running", "decoder_token_norm": "running"},
    "scale 1/sqrt": {"embedding_scale": "inverse_sqrt", "decoder_token_norm": "vocabulary", "token_norm_eps": 0.1},
    "no scale, other tables": {"embedding_scale": "none", "tie_embeddings": "none"},
    "tied output": {"tie_embeddings": "output"},
    "norms of tokens and positions": {"input_norm": "separate", "positions": "learned"},
    "norms of halves": {"input_norm": "separate", "combine": "concat", "tie_embeddings": "none"},
    "norm of the sum": {"input_norm": "sum", "norm_eps": 1e-2},
    "norm of the sum, weighted residual": {"input_norm": "sum", "residual_weight": 3.0, "norm_eps": 0.1},
    "weighted residual": {"residual_weight": 4.0, "norm_eps": 1e-3},
    "norm before": {"norm": "pre", "input_norm": "sum"},
    "RMSNorm": {"norm_kind": "rms", "norm_eps": 1e-2},
    "RMSNorm, weighted residual": {"norm_kind": "rms", "residual_weight": 3.0, "norm_eps": 0.1},
    "ScaleNorm before, norms of tokens and positions": {"norm_kind": "scale", "norm": "pre", "input_norm": "separate"},
    **{kind: {"feed_forward": kind, "residual_weight": 2.0} for kind in ("gelu", "geglu", "swiglu")},
    **{f"{n} of keys": {"num_heads": 4, "num_kv_heads": n, "attention_bias": True} for n in (1, 2)},
    "1 of keys, rotary": {"num_heads": 4, "num_kv_heads": 1, "positions": "rotary"},
    "2 of keys, t5": {"num_heads": 4, "num_kv_heads": 2, "positions": "t5"},
    "biases": {"attention_bias": True, "output_bias": True},
    "rotary, biases, weighted residual": {"positions": "rotary", "attention_bias": True, "residual_weight": 0.5},
    "heads wider than the model": {"head_dim": 24, "num_heads": 3, "num_encoder_layers": 1},
}
AXES = {
    axis: tuple(value for value in values if axis in ANY_VALUE or value in EXPRESSED.get(axis, (DEFAULTS[axis],)))
    for axis, values in tests.axes.AXES.items()
    if axis != "initialisation"
}
"""Every axis with its values that CTranslate2 can express."""
REFUSED = [(axis, value) for axis in AXES for value in tests.axes.AXES[axis] if value not in AXES[axis]]


def is_one_kind_of_norm(a: Architecture) -> bool:
    """CTranslate2's are either all layer norms or none."""
    return a.input_norm != "sum" or a.norm_kind == "layer"


DRAWN = list(tests.axes.one_for_each_value(AXES, is_one_kind_of_norm, **TINY, max_length=24))


def vocabulary(size: int) -> list[str]:
    return ["[PAD]", "[UNK]", "[START]", "[END]", *(f"t{i}" for i in range(4, size))]


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_an_axis_is_exact(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    architecture = dataclasses.replace(Architecture(), **{**TINY, "max_length": 24, **EXPRESSIBLE[name]})
    check(architecture, tmp_path)


def check(architecture: Architecture, folder: Path) -> None:
    assert why_not(architecture) is None
    src, tgt = (40, 40) if architecture.tie_embeddings == "all" else (40, 33)
    model = shaken(build(architecture, src_vocab_size=src, tgt_vocab_size=tgt))
    vocabularies = [vocabulary(src), vocabulary(tgt)]
    to_ctranslate2._write(model, vocabularies, folder, None)
    compared = to_ctranslate2.compare(model, vocabularies, folder, "fp32")
    assert compared.largest_difference < 5e-5
    assert compared.worst_choice < 1e-5
    assert compared.equal_greedy >= 23  # of 24; a tie may go the other way


@pytest.mark.parametrize("max_length", [1, 2, 3])
def test_the_shortest_models_are_exact(max_length: int, saving: Saving, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    made = repose.export(saving("original", max_length=max_length), to="ctranslate2", out=tmp_path / "out")
    assert made.largest_difference is not None
    assert made.largest_difference < 5e-5


@pytest.mark.parametrize("architecture", DRAWN, ids=tests.axes.ids(AXES, DRAWN))
def test_every_value_that_is_listed_is_exact_among_drawn_ones(architecture: Architecture, tmp_path: Path) -> None:
    check(architecture, tmp_path)


def test_a_value_that_has_graphs_is_refused_until_it_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPUTED, "norm", (*COMPUTED["norm"], "new"))  # type: ignore[arg-type]
    a = Architecture()
    object.__setattr__(a, "norm", "new")
    assert graphs_why_not(a) is None
    assert why_not(a) == "norm = 'new' is not among what this export was written for"


@pytest.mark.parametrize(("axis", "value"), REFUSED)
def test_what_cannot_be_expressed_names_its_axis(axis: str, value: object) -> None:
    rng = random.Random(1)
    drawn = (tests.axes.architecture(rng, AXES, **{axis: value}) for _ in range(1000))
    reason = why_not(next(filter(is_one_kind_of_norm, drawn)))
    assert reason is not None
    assert reason.startswith(f"{axis} = {value!r} ")
    assert ";" not in reason


def test_every_reason_is_of_a_value_that_is_refused() -> None:
    assert _REASONS.keys() - {("input_norm", "sum")} <= {*REFUSED}  # beside another kind of norm: below


def test_norms_of_two_kinds_cannot_be_expressed() -> None:
    reason = why_not(Architecture(input_norm="sum", norm_kind="rms"))
    assert reason.startswith("input_norm = 'sum' is a layer norm beside norms of another kind, but CTranslate2")


@pytest.mark.parametrize("name", [name for name, p in PRESETS.items() if why_not(p.architecture) is None])
def test_a_preset_is_exact(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = shaken(
        build(dataclasses.replace(preset(name), **TINY, max_length=24), src_vocab_size=30, tgt_vocab_size=30)
    )
    to_ctranslate2._write(model, [vocabulary(30)] * 2, tmp_path, None)
    assert to_ctranslate2.compare(model, [vocabulary(30)] * 2, tmp_path, "fp32").largest_difference < 5e-5


def test_the_documentation_has_the_presets_that_a_target_refuses() -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    rows = [["preset", "ctranslate2", "onnx, web"], ["---"] * 3]
    for name, each in PRESETS.items():
        reasons = [reason_of(each.architecture) for reason_of in (why_not, graphs_why_not)]
        if any(reasons):
            rows.append([f"`{name}`", *map(_verdict, reasons)])
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    assert f"\n\n{table}\n" in page, f"docs/export.md should have this table:\n{table}"


def _verdict(reason: str | None) -> str:
    """Yes, or the settings that a reason names; of one that names none, its beginning."""
    if reason is None:
        return "yes"
    settings = [" ".join(part.split()[:3]) for part in reason.split("; ") if part.split()[1] == "="]
    return "no: " + (", ".join(f"`{setting}`" for setting in settings) or reason.partition(",")[0])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_folder_says_how_it_is_loaded(precision: str, saving: Saving, tmp_path: Path) -> None:
    """Its own lines, executed, translate like the model; int8 up to what it moves."""
    pytest.importorskip("ctranslate2")
    decoding = {"length_penalty": 0.6, "beam_size": 1, "max_extra_tokens": 3}
    model = saving("original", {"src_lang": "pt", "decoding": decoding}, positions="rotary")
    made = repose.export(model, to="ctranslate2", out=tmp_path / "out", precision=precision)
    described = read_description(made.folder, "ctranslate2")
    assert made.largest_difference == described["comparison"]["largest_difference"]
    assert (made.largest_difference < 1e-4) == (precision == "fp32")
    assert (described["src_lang"], described["precision"], described["max_length"]) == ("pt", precision, 48)
    assert described["decoding"]["length_penalty"] == pytest.approx(0.45)
    assert set(described["sha256"]) == set(made.files) - {"repose-ctranslate2.json", "README.md"}

    lines = described["how_to_load"]
    start = next(place for place, line in enumerate(lines) if line.startswith("tokens = "))
    names: dict[str, Any] = {"FOLDER": str(made.folder)}
    exec("\n".join(lines[:start]).replace("compute_type", "intra_threads=1, compute_type"), names)
    translated = []
    for text in TEXT:
        names["text"] = text
        exec("\n".join(lines[start:-1]), names)
        translated.append(eval(lines[-1], names))
    own = [found.text for found in repose.load(model, workers=1).translate(TEXT, beam_size=1)]
    assert sum(a == b for a, b in zip(translated, own, strict=True)) >= (4 if precision == "fp32" else 1)


def test_what_differs_is_not_left_behind(saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    model, specification = saving("original"), to_ctranslate2.specification

    def wrong(*arguments: Any) -> Any:
        spec = specification(*arguments)
        spec.decoder.layer[0].ffn.linear_0.bias += 0.5
        return spec

    monkeypatch.setattr(to_ctranslate2, "specification", wrong)
    with pytest.raises(CheckpointError, match="so nothing was exported"):
        repose.export(model, to="ctranslate2", out=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("amount", [0.5, math.nan])
def test_what_differs_at_a_distance_is_found(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amount: float
) -> None:
    pytest.importorskip("ctranslate2")
    model, specification = saving("original", max_length=100), to_ctranslate2.specification

    def wrong(*arguments: Any) -> Any:
        spec = specification(*arguments)
        spec.decoder.position_encodings.encodings[60:] += amount
        return spec

    monkeypatch.setattr(to_ctranslate2, "specification", wrong)
    with pytest.raises(CheckpointError, match="so nothing was exported"):
        repose.export(model, to="ctranslate2", out=tmp_path / "out")


def test_what_differs_names_the_settings_that_may_not_be_folded(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    differs = to_ctranslate2.Comparison(sentences=24, largest_difference=1.0, equal_greedy=0, worst_choice=0.0)
    monkeypatch.setattr(to_ctranslate2, "compare", lambda *_: differs)
    message = (
        r"or exporting/ctranslate2_spec\.py does not fold a setting of this model: norm = 'pre', tie_embeddings = 'n"
    )
    with pytest.raises(CheckpointError, match=message):
        repose.export(saving("vaswani-base", norm="pre"), to="ctranslate2", out=tmp_path / "out")
    assert not to_ctranslate2._or_not_folded(Architecture(d_token=8)), "sizes are none of them"


@pytest.mark.parametrize("norm", [None, torch.nn.Identity(), torch.nn.RMSNorm(16), torch.nn.LayerNorm(16, bias=False)])
def test_a_norm_that_is_none_of_ctranslate2_is_told(norm: torch.nn.Module | None, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = build(Architecture(**TINY, max_length=24), src_vocab_size=30, tgt_vocab_size=30)
    model.encoder.layers[0].feed_forward_sublayer.norm = norm  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"where this model has (nothing|.*Norm|Identity).*: fold it in"):
        to_ctranslate2._write(model, [vocabulary(30)] * 2, tmp_path, None)


@pytest.mark.parametrize("measure", ["largest_difference", "worst_choice"])
def test_either_measure_alone_shows_what_differs(
    measure: str, saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    same = to_ctranslate2.Comparison(sentences=24, largest_difference=0.0, equal_greedy=24, worst_choice=0.0)
    differing = dataclasses.replace(same, **{measure: 1.5 * to_ctranslate2.TOLERANCE})
    monkeypatch.setattr(to_ctranslate2, "compare", lambda *_: differing)
    with pytest.raises(CheckpointError, match=r"by 1\.5e-03, so nothing was exported"):
        repose.export(saving("original"), to="ctranslate2", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("equal", "note"),
    [
        (24, "with greedy search, the text of all 24 random sentences is the model's"),
        (22, "with greedy search, the text of 22 of 24 random sentences is the model's; .* by at most 1.3e-02 nats"),
    ],
)
def test_an_export_tells_how_often_greedy_search_agrees(
    equal: int, note: str, saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    same = to_ctranslate2.Comparison(sentences=24, largest_difference=0.0, equal_greedy=24, worst_choice=0.0)
    in_int8 = dataclasses.replace(same, equal_greedy=equal, worst_choice=0.0125 if equal < 24 else 0.0)
    monkeypatch.setattr(to_ctranslate2, "compare", lambda *given: in_int8 if given[-1] == "int8" else same)
    made = repose.export(saving("original"), to="ctranslate2", out=tmp_path / "out", precision="int8")
    assert re.fullmatch(note, made.notes[0])


def test_what_cannot_be_exported_is_one_sentence(saving: Saving, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"CTranslate2 cannot express this model: values = 'tokens'.*small-rotary"):
        repose.export(saving("reinforced"), to="ctranslate2", out=tmp_path / "out")
    with pytest.raises(ConfigError, match=r"^single_file is for the target web: leave it out$"):
        repose.export(saving("original"), to="ctranslate2", out=tmp_path / "out", single_file=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_without_the_extra_it_says_what_to_install(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[ctranslate2\]'"):
        repose.export(saving("original"), to="ctranslate2", out=tmp_path / "out")


def test_a_vocabulary_with_holes_has_names_for_them(saving: Saving) -> None:
    translator = repose.load(saving("original"), workers=1)
    spec = json.loads(translator.src_tokenizer.json)
    gone = max(spec["model"]["vocab"], key=lambda token: spec["model"]["vocab"][token])
    spec["model"]["vocab"][gone] += 2
    spec["model"]["merges"] = spec["model"]["merges"][:-1] if len(gone) == 1 else spec["model"]["merges"]
    names = to_ctranslate2._vocabulary(Tokenizer(json.dumps(spec)))
    assert len(set(names)) == len(names) == spec["model"]["vocab"][gone] + 1


def test_torch_is_not_left_changed(saving: Saving, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    state = torch.get_rng_state()
    repose.export(saving("original"), to="ctranslate2", out=tmp_path / "out")
    assert torch.equal(torch.get_rng_state(), state)
