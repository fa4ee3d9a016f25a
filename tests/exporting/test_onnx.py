"""Exports to ONNX, their engine, and the cache of graphs."""

import copy
import dataclasses
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.exporting.conftest import TINY, shaken

import repose
from repose.decoding import graph_cache
from repose.decoding.engine import Precision, built
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.options import SearchOptions
from repose.decoding.translator import MODEL_KIND, Translation, Translator
from repose.graphs import folder as graphs
from repose.graphs import searches
from repose.graphs.writing import write_graphs
from repose.model.presets import preset
from repose.model.transformer import Transformer
from repose.saved_model import directory
from repose.saved_model.api import build
from repose.saved_model.description import read_description
from repose.system.errors import CheckpointError, ConfigError, DataError
from repose.tasks.cache import remove_graphs

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Saving = Callable[..., Path]
Copying = Callable[[Translator], Translator]
TEXTS = ["O gato viu 21 cães.", "A casa é azul.", "", "the small boat"]
DOCS = Path(__file__).parents[2] / "docs" / "export.md"


def texts(found: list[Translation]) -> list[str]:
    return [translation.text for translation in found]


def test_what_serves_it_says_which_weights_and_precision(saving: Saving, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from repose.serving.catalogue import read_catalogue
    from repose.serving.metrics import Metrics

    model = saving("reinforced", {"src_lang": "pt", "tgt_lang": "en"})
    repose.export(model, to="onnx", out=tmp_path / "out", precision="int8")
    digest = json.loads((model / "config.json").read_text())["sha256"]["model.safetensors"]
    for folder, precision in ((model, None), (tmp_path / "out", "int8")):
        (about,) = read_catalogue([folder], []).models_json()
        assert (about["sha256"], about["precision"]) == (digest, precision)
        loaded, *_ = directory.load(model, MODEL_KIND)
        assert about["parameters"] == sum(p.numel() for p in loaded.parameters())
        metrics = Metrics()
        metrics.set_models([about], "fp32")
        assert f'precision="{precision or "fp32"}",' in metrics.exposed().decode()


@pytest.mark.parametrize(("tag", "longest"), [({}, 12), ({"tag": "xx"}, 11)])
def test_what_serves_it_leaves_room_for_a_tag_that_the_model_reads(
    saving: Saving, tag: dict[str, str], longest: int
) -> None:
    pytest.importorskip("starlette")
    from repose.serving.catalogue import read_catalogue

    model = saving(
        "reinforced", {"src_lang": "pt", "tgt_lang": "en", "max_src_tokens": 12, "split_src_tokens": 9, **tag}
    )
    served = read_catalogue([model], []).models[0]
    assert (served.lengths.longest, served.lengths.usual) == (longest, longest - 3)


def test_it_translates_as_the_model_does(saving: Saving, tmp_path: Path) -> None:
    model = saving("reinforced", {"src_lang": "pt", "decoding": {"beam_size": 3, "length_penalty": 0.0}})
    made = repose.export(model, to="onnx", out=tmp_path / "out")
    assert made.largest_difference is not None
    assert made.largest_difference < 1e-4
    exact, exported = repose.load(model, engine="torch"), repose.load(made.folder)
    assert (exported.engine.name, exported.precision, exported.beam_size, exported.length_penalty) == (
        "onnx",
        "fp32",
        3,
        0.0,
    )
    assert exported.config["src_lang"] == "pt"
    for how in ({}, {"beam_size": 1}, {"num_hypotheses": 3}, {"no_repeat_ngram_size": 2}, {"to": "xx"}):
        assert texts(exported.translate(TEXTS, **how)) == texts(exact.translate(TEXTS, **how))
    (ours,), (theirs,) = (each.translate(TEXTS[:1], attention=True) for each in (exact, exported))
    assert ours.attention is not None
    assert theirs.attention is not None
    np.testing.assert_allclose(theirs.attention, ours.attention, atol=1e-5)
    assert exported.score(TEXTS[:2], TEXTS[:2]) == pytest.approx(exact.score(TEXTS[:2], TEXTS[:2]), abs=1e-3)


Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_it_is_evaluated_on_files(saving: Saving, tmp_path: Path, run_repose: Run, precision: str) -> None:
    model, out, scores = saving("reinforced"), tmp_path / "out", tmp_path / "scores"
    repose.export(model, to="onnx", out=out, precision=precision)
    files = tmp_path / "few.pt", tmp_path / "few.en"
    for path in files:
        path.write_text("O gato viu 21 cães.\nA casa é azul.\n", encoding="utf-8")
    common = ("--beam-size", 1, "--workers", 1, "--out", scores)
    for more in ((), ("--engine", "onnx"), ("--engine", "auto")):
        code, _, err = run_repose("evaluate", out, *files, *common, *more)
        assert code == 0, err
        found = json.loads((scores / "scores.few.json").read_text())
        assert found["decoding"]["engine"] == "onnx"
        assert found["decoding"].get("precision", "fp32") == precision
    if precision == "fp32":
        assert run_repose("evaluate", model, *files, *common)[0] == 0
        of_model = json.loads((scores / "scores.few.json").read_text())
        assert "engine" not in of_model["decoding"]
        assert found["decoded"] == of_model["decoded"]
    code, _, err = run_repose("evaluate", out, *files, "--engine", "torch")
    assert (code, "which the engine onnx computes on a CPU: load the model itself" in err) == (2, True)
    code, _, err = run_repose("evaluate", out)
    assert (code, err) == (2, "repose: name source and reference files: an export has no set of its own\n")


@pytest.mark.parametrize("verb", ["serve", "backtranslate", "evaluate"])
def test_help_says_where_it_is_taken(verb: str, run_repose: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert re.search("exports? to ONNX", run_repose(verb, "--help")[1])


def test_several_processes_translate_as_one(saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.decoding.pool.WORTH_SECONDS", 0.0)
    repose.export(saving("baseline"), to="onnx", out=tmp_path / "out")
    lines = [f"{text} {n}" for n in range(40) for text in TEXTS]
    alone = repose.load(tmp_path / "out", workers=1)
    with repose.load(tmp_path / "out", workers=2) as two:
        two.batch_size = alone.batch_size = 8
        two._pool.start(two.engine)
        assert texts(two.translate(lines, beam_size=1)) == texts(alone.translate(lines, beam_size=1))


def test_int8_hardly_depends_on_its_company(saving: Saving, tmp_path: Path) -> None:
    model = saving("reinforced")
    made = repose.export(model, to="onnx", out=tmp_path / "out", precision="int8")
    plain = repose.export(model, to="onnx", out=tmp_path / "plain")
    assert sum(made.files.values()) < sum(plain.files.values())
    small = repose.load(made.folder)
    assert small.precision == "int8"
    together = small.translate(TEXTS[:2], beam_size=1)
    for text, translation in zip(TEXTS, together, strict=False):
        assert small.translate([text], beam_size=1)[0].score == pytest.approx(
            translation.score, rel=0.02
        )  # of some -117
    with pytest.raises(ConfigError, match="exported in int8: export the model with --precision fp32"):
        repose.load(made.folder, precision="fp32")


def test_what_cannot_be_exported_or_loaded_is_one_sentence(saving: Saving, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be exported to ONNX: its decoder normalises over the whole target"):
        repose.export(saving("reinforced-lookahead"), to="onnx", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    model = saving("baseline")
    with pytest.raises(ConfigError, match=r"^single_file is for the target web: leave it out$"):
        repose.export(model, to="onnx", out=tmp_path / "out", single_file=True)
    with pytest.raises(ConfigError, match="there is no engine 'tensorflow'"):
        repose.load(model, engine="tensorflow")
    with pytest.raises(ConfigError, match="engine = 'onnx' is for the CPU"):
        repose.load(model, "cuda", engine="onnx")
    repose.export(model, to="onnx", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="holds ONNX graphs"):
        repose.load(tmp_path / "out", engine="torch")
    with pytest.raises(CheckpointError, match="out is an export to onnx: name the run or model"):
        repose.export(tmp_path / "out", to="web", out=tmp_path / "other")
    with pytest.raises(ConfigError, match="an export does not hold"):
        _ = repose.load(tmp_path / "out").model


@pytest.mark.parametrize(
    "name", ["encoder.onnx", "step.onnx", "greedy.onnx", "beam.onnx", "tokenizer.src.json", "repose-onnx.json"]
)
def test_damaged_folders_are_refused(saving: Saving, tmp_path: Path, name: str) -> None:
    repose.export(saving("baseline"), to="onnx", out=tmp_path / "out")
    path = tmp_path / "out" / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"damaged") as caught:
        repose.load(tmp_path / "out")
    assert "repose-onnx.json" in str(caught.value)
    path.unlink()
    if name in ("greedy.onnx", "beam.onnx"):
        path.symlink_to("nowhere")
    with pytest.raises(CheckpointError, match=r"missing|is not a model|does not exist"):
        repose.load(tmp_path / "out")


def test_a_folder_without_searches_translates_alike(saving: Saving, tmp_path: Path) -> None:
    out = repose.export(saving("baseline"), to="onnx", out=tmp_path / "out").folder
    expected = [texts(repose.load(out).translate(TEXTS, beam_size=beam_size)) for beam_size in (1, 3)]
    for name in ("greedy.onnx", "beam.onnx"):
        (out / name).unlink()
    assert [texts(repose.load(out).translate(TEXTS, beam_size=beam_size)) for beam_size in (1, 3)] == expected


def test_facts_that_are_not_those_of_the_graphs_are_refused(saving: Saving, tmp_path: Path) -> None:
    out = repose.export(saving("baseline"), to="onnx", out=tmp_path / "out").folder
    description = json.loads((out / "repose-onnx.json").read_text())
    facts = description["graphs"]
    (first, *rest) = facts["kept"]
    sizes = [{"max_length": n} for n in (0, -5, 1 << 30)] + [{"precision": "fp16"}, {"num_layers": 0}]
    sizes += [{"kept": [{**first, key: -1}, *rest]} for key in ("groups", "width")]
    others = [{"tgt_vocab_size": facts["tgt_vocab_size"] + 1}, {"num_layers": 9}, {"memory": ["x", *facts["memory"]]}]
    others += [{"kept": [{**first, key: value}, *rest]} for key, value in (("name", "x"), ("groups", 9), ("width", 9))]
    others += [{"kept": rest}, {"kept": [first, *facts["kept"]]}, {"memory": facts["memory"][1:]}]
    for changes, match in [*((one, "usable section graphs") for one in sizes), *((one, "not those") for one in others)]:
        (out / "repose-onnx.json").write_text(json.dumps({**description, "graphs": facts | changes}))
        with pytest.raises(CheckpointError, match=match):
            repose.load(out)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_one_sentence(saving: Saving, tmp_path: Path, name: str) -> None:
    out = repose.export(saving("baseline"), to="onnx", out=tmp_path / "out").folder
    description = json.loads((out / "repose-onnx.json").read_text())
    description["sha256"][name] = "0"
    (out / "repose-onnx.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match="names a file that cannot exist"):
        repose.load(out)


def test_another_format_is_refused(saving: Saving, tmp_path: Path) -> None:
    repose.export(saving("baseline"), to="onnx", out=tmp_path / "out")
    path = tmp_path / "out" / "repose-onnx.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 99}))
    with pytest.raises(CheckpointError, match="exported by another repose, in format 99"):
        repose.load(tmp_path / "out")


def test_what_computes_something_else_is_not_left_behind(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_cache, "TOLERANCE", 0.0)
    monkeypatch.setattr(graph_cache, "_TIMES_OWN_ERROR", 0.5)
    with pytest.raises(CheckpointError, match="differs from the model's log-probabilities"):
        repose.export(saving("baseline"), to="onnx", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "beam_size"), [("greedy", 1), ("beam", 4)])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_search_that_finds_something_else_is_not_left_behind(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, beam_size: int, precision: Precision
) -> None:
    write = getattr(searches, name)

    def wrong(model: Transformer, memory: Any, *, int8: bool) -> Any:
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.output.weight.neg_()
        return write(other, memory, int8=int8)

    monkeypatch.setattr(searches, name, wrong)
    with pytest.raises(CheckpointError, match=f"with a beam of {beam_size} differs from the same search step by step"):
        repose.export(saving("baseline"), to="onnx", out=tmp_path / "out", precision=precision)
    assert not (tmp_path / "out").exists()


def test_an_export_describes_the_weights_that_it_holds(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may go on training meanwhile."""
    model = saving("baseline", {"run_id": "first"})
    config = json.loads((model / "config.json").read_text())
    write = write_graphs

    def saved_meanwhile(*given: Any, **how: Any) -> graphs.GraphFacts:
        saving("baseline", {"run_id": "second"}, d_ff=20)
        return write(*given, **how)

    monkeypatch.setattr("repose.exporting.to_onnx.write_graphs", saved_meanwhile)
    repose.export(model, to="onnx", out=tmp_path / "out")
    described = read_description(tmp_path / "out", "onnx")
    assert described["run_id"] == described["config"]["run_id"] == "first"
    assert described["weights_sha256"] == config["sha256"]["model.safetensors"]


def test_graphs_that_round_as_much_as_the_model_are_no_others(tmp_path: Path) -> None:
    changes = {**TINY, "max_length": 48, "tie_embeddings": "none", "token_norm_site": "after_concat"}
    architecture = dataclasses.replace(preset("reinforced-prefix"), **changes)
    model = shaken(build(architecture, src_vocab_size=280, tgt_vocab_size=272))
    with torch.no_grad():
        model.output.weight.mul_(10)
    facts = write_graphs(tmp_path, model)
    engine = OnnxEngine(graphs.GraphFolder(tmp_path / graphs.ENCODER, tmp_path / graphs.STEP, facts, {}))
    assert 1e-4 < graph_cache.compare(engine, model) < 1e-2
    with torch.no_grad():
        model.output.weight.mul_(1.001)
    with pytest.raises(CheckpointError, match="differs from the model's log-probabilities"):
        graph_cache.compare(engine, model)


def test_graphs_that_are_wrong_at_a_distance_only_are_found(tmp_path: Path) -> None:
    architecture = dataclasses.replace(preset("alibi"), **TINY, max_length=200)
    model = shaken(build(architecture, src_vocab_size=12, tgt_vocab_size=12))
    facts = write_graphs(tmp_path, model)
    engine = OnnxEngine(graphs.GraphFolder(tmp_path / graphs.ENCODER, tmp_path / graphs.STEP, facts, {}))
    assert graph_cache.compare(engine, model) < 1e-4
    step, steps = engine.step, 0

    def wrong(tokens: Any, state: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(tokens, state) - (1.0 if steps > 100 else 0.0)

    engine.step = wrong  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="differs from the model"):
        graph_cache.compare(engine, model)


@pytest.mark.parametrize("size", [12, 1031])
def test_a_word_that_is_never_said_makes_no_difference(size: int, tmp_path: Path) -> None:
    architecture = dataclasses.replace(preset("reinforced"), **TINY, max_length=16)
    model = shaken(build(architecture, src_vocab_size=12, tgt_vocab_size=size))
    with torch.no_grad():
        model.output.bias[torch.arange(4, size, 2)] = -torch.inf
    facts = write_graphs(tmp_path, model)
    engine = OnnxEngine(graphs.GraphFolder(tmp_path / graphs.ENCODER, tmp_path / graphs.STEP, facts, {}))
    assert graph_cache.compare(engine, model) < 1e-4
    with torch.no_grad():
        model.output.bias[5] = -torch.inf
    with pytest.raises(CheckpointError, match="differs from the model"):
        graph_cache.compare(engine, model)


def test_graphs_are_made_once(saving: Saving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    model = saving("baseline")
    first = repose.load(model)
    assert first.engine.name == "onnx"
    (kept,) = [path for path in (tmp_path / "home" / "onnx").iterdir() if path.is_dir()]
    monkeypatch.setattr(directory, "load", lambda *_: pytest.fail("the model is not needed again"))
    again = repose.load(model)
    assert texts(again.translate(TEXTS)) == texts(first.translate(TEXTS))
    (kept / "step.onnx").write_bytes(b"")
    monkeypatch.undo()
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    assert texts(repose.load(model).translate(TEXTS)) == texts(first.translate(TEXTS)), "damaged ones are made anew"
    assert repose.load(model, engine="torch").engine.name == "torch"


def test_models_with_the_same_weights_have_graphs_of_their_own(saving: Saving) -> None:
    """Which positions there are changes no weight."""
    scores = []
    for positions in ("halves", "interleaved"):
        model = saving("baseline", positions=positions)
        exact, made = (repose.load(model, engine=engine) for engine in ("torch", "onnx"))
        assert made.score(TEXTS[:2], TEXTS[:2]) == pytest.approx(exact.score(TEXTS[:2], TEXTS[:2]), abs=1e-3)
        scores.append(exact.score(TEXTS[:1], TEXTS[:1])[0])
    assert scores[0] != pytest.approx(scores[1], abs=1e-2)


def test_an_export_that_is_replaced_is_not_mixed_with_what_was_loaded(saving: Saving, tmp_path: Path) -> None:
    """A lone sentence has a graph of its own, which is opened when the first one comes."""
    repose.export(saving("reinforced"), to="onnx", out=tmp_path / "out")
    expected = repose.load(tmp_path / "out").translate(TEXTS[:1], beam_size=1)
    loaded = repose.load(tmp_path / "out")
    assert isinstance(loaded.engine, OnnxEngine)
    shutil.rmtree(tmp_path / "model")
    repose.export(saving("reinforced", positions="interleaved"), to="onnx", out=tmp_path / "out")
    assert repose.load(tmp_path / "out").translate(TEXTS[:1], beam_size=1) != expected
    assert loaded.translate(TEXTS[:1], beam_size=1)[0].text == expected[0].text
    assert loaded.engine.search([2, 5, 3], 9, SearchOptions(1)) is None
    _, read = pickle.loads(loaded.engine.message())
    with pytest.raises(CheckpointError, match="was replaced since it was read: load it again"):
        OnnxEngine.of_message(read)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_export_that_is_overwritten_does_not_change_what_was_loaded(
    saving: Saving, tmp_path: Path, beam_size: int
) -> None:
    """As `cp` writes: into the files that are there, in which ONNX Runtime would look for weights later."""
    repose.export(saving("reinforced"), to="onnx", out=tmp_path / "out")
    loaded = repose.load(tmp_path / "out")
    expected = loaded.translate(TEXTS[:1], beam_size=beam_size)
    shutil.rmtree(tmp_path / "model")
    repose.export(saving("reinforced", positions="interleaved"), to="onnx", out=tmp_path / "other")
    for file in (tmp_path / "other").glob("*.onnx"):
        (tmp_path / "out" / file.name).write_bytes(file.read_bytes()[::-1])
    assert loaded.translate(TEXTS[:1], beam_size=beam_size) == expected
    assert loaded.engine.search([2, 5, 3], 9, SearchOptions(beam_size)) is not None, "by the graph that has been open"


@pytest.mark.parametrize("name", ["baseline", "reinforced"])
@pytest.mark.parametrize("default", ["float64", "meta"])
def test_defaults_of_torch_change_nothing(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: str, name: str
) -> None:
    model = saving(name)
    expected = repose.load(model, engine="torch").translate(TEXTS)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path))
    try:
        torch.set_default_dtype(torch.float64 if default == "float64" else torch.float32)
        torch.set_default_device(None if default == "float64" else default)
        loaded = repose.load(model, engine="torch")
        assert loaded.translate(TEXTS) == expected
        assert loaded.score(TEXTS, TEXTS) == pytest.approx(repose.load(model, engine="onnx").score(TEXTS, TEXTS))
        built = repose.build(name, src_vocab_size=9, tgt_vocab_size=9).state_dict().values()
        assert {(x.dtype, x.device.type) for x in built} == {(torch.float32, "cpu")}
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
@pytest.mark.parametrize(
    ("target", "match"),
    [
        ([], r"a target has the ids \[\], but needs START and one more"),
        ([2], r"a target has the ids \[2\], but needs START and one more"),
        ([5, 3], r"a target has the ids \[5, 3\], but needs START and one more"),
        ([2, 0, 3], r"padding in it \(id 0\): leave it out"),
        ([2, "ab"], "a target is a list of the ids"),
        (["a", "b"], "a target is a list of the ids"),
        (None, "a target is a list of the ids"),
        ([2, -1, 3], "id -1 is not in the target vocabulary of 272 tokens"),
        ([2, 272, 3], "id 272 is not in the target vocabulary of 272 tokens"),
    ],
)
def test_targets_that_cannot_be_forced(saving: Saving, engine: str, target: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        repose.load(saving("baseline"), engine=engine).force(["a", "a"], [[2, 3], target])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"device": None}, "device is None, but must be the name of one"),
        ({"device": 0}, "device is 0, but must be the name of one"),
        ({"engine": None}, "there is no engine None: known are torch, onnx, auto"),
        ({"precision": 8}, "there is no precision 8: known are"),
        ({"workers": "2"}, "workers = '2', but it should be a whole number"),
        ({"workers": 1.5}, r"workers = 1\.5, but it should be a whole number"),
        ({"workers": True}, "workers = True, but it should be a whole number"),
    ],
)
def test_arguments_of_load(saving: Saving, wrong: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        repose.load(saving("baseline"), **wrong)


def test_a_device_may_be_torchs_own_and_workers_numpys(saving: Saving) -> None:
    workers: Any = np.int64(1)
    loaded = repose.load(saving("baseline"), torch.device("cpu"), workers)
    assert (loaded.engine.name, loaded.workers) == ("onnx", 1)
    assert repose.load(saving("baseline"), torch.device("cpu", 0), precision="int8").engine.name == "onnx"


def test_folders_that_cannot_be() -> None:
    no_folder: Any
    for no_folder in (None, b"out"):
        with pytest.raises(ConfigError, match=f"the folder of a model is {no_folder!r}, but must be a path"):
            repose.load(no_folder)
    with pytest.raises(CheckpointError) as caught:
        repose.load("a" * 5000)
    assert len(str(caught.value)) < 200 or sys.version_info >= (3, 14)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_length_penalty_may_be_numpys(saving: Saving, kind: Any) -> None:
    loaded = repose.load(saving("reinforced"), engine="onnx")
    assert loaded.translate(TEXTS[:1], length_penalty=kind(0.5)) == loaded.translate(TEXTS[:1], length_penalty=0.5)


def test_the_torch_model_is_the_one_that_translates(saving: Saving) -> None:
    loaded = repose.load(saving("reinforced"), engine="onnx")
    directory.change_config(loaded.folder, {"decoding": {"beam_size": 1}})
    assert loaded.model.architecture.positions == preset("reinforced").positions
    late = repose.load(saving("reinforced"), engine="onnx")
    saving("reinforced", positions="interleaved")
    with pytest.raises(CheckpointError, match="was replaced since it was read: load it again"):
        _ = late.model


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loaded: pickle.loads(pickle.dumps(loaded))])
def test_translators_can_be_copied_and_pickled(saving: Saving, tmp_path: Path, copied: Copying) -> None:
    model = saving("baseline")
    exported = repose.export(model, to="onnx", out=tmp_path / "out").folder
    for loaded in (repose.load(model, engine="onnx"), repose.load(exported)):
        again = copied(loaded)
        assert again.engine is not loaded.engine
        assert again.translate(TEXTS) == loaded.translate(TEXTS)
        assert (again.folder, again.config, again.workers) == (loaded.folder, loaded.config, loaded.workers)


def test_a_relative_path_outlives_a_change_of_the_current_folder(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repose.export(saving("baseline"), to="onnx", out=tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    exported, model = repose.load("out"), repose.load("model", engine="onnx")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert isinstance(built(exported.engine.message()), OnnxEngine), "as a worker that is started now"
    for beam_size in (1, 3):  # each has a graph of its own, which is opened now
        found = exported.engine.search([2, 5, 3], 9, SearchOptions(beam_size))
        assert found is not None
    assert model.model.architecture.max_length == model.max_length, "the torch model is loaded now"


def test_an_export_that_does_not_say_its_sizes_is_refused(saving: Saving, tmp_path: Path) -> None:
    folder = repose.export(saving("baseline"), to="onnx", out=tmp_path / "out").folder
    description = json.loads((folder / "repose-onnx.json").read_text())
    del description["config"]["src_vocab_size"]
    (folder / "repose-onnx.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match="has no usable src_vocab_size"):
        repose.load(folder)


@pytest.mark.parametrize("max_length", [1, 2, 3])
def test_graphs_of_models_that_read_next_to_nothing(saving: Saving, max_length: int) -> None:
    assert repose.load(saving("baseline", max_length=max_length)).engine.name == "onnx"


def test_graphs_that_cannot_be_made_are_no_reason_not_to_translate(
    saving: Saving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_repose: Run
) -> None:
    compare, compared = graph_cache.compare, []

    def refused(*_: object) -> None:
        compared.append(1)
        raise CheckpointError("what ONNX Runtime computes differs")

    monkeypatch.setattr(graph_cache, "compare", refused)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    model = saving("baseline")
    for _ in range(2):
        loaded = repose.load(model)
        assert loaded.engine.name == "torch"
        assert loaded.why_torch is not None
        assert loaded.why_torch.startswith("what ONNX Runtime compute")
    assert len(compared) == 1, "what was refused is not made again"
    code, _, said = run_repose("translate", model, "--workers", 1, stdin=b"O gato viu.\n")
    assert code == 0
    assert said.startswith("torch translates, which is slower than ONNX Runtime: what ONNX Runtime computes differ")
    assert repose.load(model, engine="torch").why_torch is None
    with pytest.raises(CheckpointError, match="what ONNX Runtime computes differs"):
        repose.load(model, engine="onnx")
    assert len(compared) == 2, "unless it is asked for"
    monkeypatch.setattr("onnxruntime.__version__", "99.0")
    assert repose.load(model).engine.name == "torch"
    assert len(compared) == 3, "or ONNX Runtime is another one"
    remove_graphs()
    monkeypatch.setattr(graph_cache, "compare", compare)
    assert repose.load(model).engine.name == "onnx"


@pytest.mark.parametrize("library", ["onnxruntime", "onnx"])
def test_a_library_that_does_not_fit_the_system(
    saving: Saving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text("raise ImportError('GLIBC_2.38 not found')")
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, library)
    model = saving("baseline")
    assert repose.load(model).engine.name == "torch"
    with pytest.raises(ConfigError, match=r"which cannot be imported \(GLIBC_2.38 not found\): pip install"):
        repose.load(model, engine="onnx")


def test_without_a_cache_the_model_itself_translates(
    saving: Saving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "file"))
    assert repose.load(saving("baseline")).engine.name == "torch"


def test_a_model_that_looks_ahead_has_the_engine_torch(saving: Saving) -> None:
    model = saving("reinforced-lookahead")
    assert repose.load(model).engine.name == "torch"
    with pytest.raises(ConfigError, match="which this model cannot"):
        repose.load(model, engine="onnx")


@pytest.mark.parametrize("text", ["O gato viu o cachorro.", "O [END] gato."])
def test_the_program_of_the_documentation(saving: Saving, tmp_path: Path, text: str) -> None:
    repose.export(saving("reinforced"), to="onnx", out=tmp_path / "exported")
    (program,) = [code for code in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "ort." in code]
    program = program.replace("O gato viu o cachorro.", text)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    (expected,) = repose.load(tmp_path / "exported").translate([text], beam_size=1)
    assert done.stdout.rstrip("\n") == expected.text


@pytest.mark.parametrize("decoding", [[["beam_size", 4]], None])
def test_an_export_whose_settings_are_no_table_is_refused(decoding: object, saving: Saving, tmp_path: Path) -> None:
    from repose.serving.catalogue import read_catalogue

    repose.export(saving("baseline"), to="onnx", out=tmp_path / "out")
    description = tmp_path / "out" / "repose-onnx.json"
    content = json.loads(description.read_text(encoding="utf-8"))
    content["config"]["decoding"] = decoding
    description.write_text(json.dumps(content), encoding="utf-8")
    for read in (repose.load, lambda folder: read_catalogue([folder], ["aa:bb"])):
        with pytest.raises(CheckpointError, match="has no usable section config: export the model again"):
            read(tmp_path / "out")
