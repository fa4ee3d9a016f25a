"""The graphs of every architecture compute what the model computes, for whole sentences and for beams."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tests.axes
import torch
from torch import nn

from repose.decoding import onnx_engine
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.options import SearchOptions
from repose.decoding.search import TokenHypothesis, beam_search
from repose.decoding.torch_engine import TorchEngine
from repose.decoding.worker import Batch
from repose.exporting import ctranslate2_spec
from repose.graphs.folder import BEAM, ENCODER, GREEDY, STEP, GraphFolder
from repose.graphs.graph import Graph
from repose.graphs.searches import best_of
from repose.graphs.stacks import COMPUTED, graphs_of, why_not
from repose.graphs.writing import write_graphs
from repose.model.architecture import Architecture
from repose.model.positions import Alibi, Positions
from repose.model.presets import PRESETS
from repose.model.transformer import Transformer, build
from repose.system.errors import ConfigError, ReposeError

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

VOCAB = 23
SIZES: dict[str, Any] = {"d_ff": 16, "num_encoder_layers": 2, "num_decoder_layers": 3, "max_length": 72}
WIDTHS = [{"d_token": 8, "num_heads": 2, "head_dim": 4}, {"d_token": 8, "num_heads": 4, "head_dim": 2}]
WIDTHS += [{"d_token": 4, "num_heads": 2, "head_dim": 16}]
LONG = [4 + 7 * n % (VOCAB - 4) for n in range(66)]
"""Words of a sentence in which what goes wrong at some distance only is seen."""
AXES = {axis: COMPUTED.get(axis, x) for axis, x in tests.axes.AXES.items() if axis != "initialisation"}
DRAWN = [
    dataclasses.replace(a, **tests.axes.pick(WIDTHS, "width", repr(a)))
    for a in tests.axes.one_for_each_value(AXES, **SIZES, **WIDTHS[0])
]


def make(a: Architecture) -> Transformer:
    """With weights that are all moved, so that none is as a layer begins."""
    table = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0]) if a.positions == "policy" else None
    model = build(a, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, position_table=table)
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith(("norm.mean", "norm.var")):
            buffer.copy_(0.5 + torch.rand_like(buffer))
    return model


def both(a: Architecture, folder: Path) -> tuple[TorchEngine, OnnxEngine]:
    model = make(a)
    facts = write_graphs(folder, model)
    return TorchEngine(model), OnnxEngine(GraphFolder(folder / ENCODER, folder / STEP, facts, {}))


def both_ways(
    graphs: OnnxEngine, source: list[int], limit: int, *, beam_size: int, num_hypotheses: int = 1
) -> tuple[list[TokenHypothesis], list[TokenHypothesis]]:
    """What a search finds for one sentence step by step, and in one call."""
    options = SearchOptions(beam_size, num_hypotheses=num_hypotheses)
    at_once = graphs.search(source, limit, options)
    assert at_once is not None
    return beam_search(graphs.step, graphs.start([source]), [limit], options)[0], at_once


ROUNDING = 0.1
"""Nats from which on rounding may decide between words of models made as these are."""


def check(a: Architecture, folder: Path) -> None:
    ours, graphs = both(a, folder)
    sources = [[2, 5, 6, 7, 8, 9, 10, 3], [2, 9, 3], [2, 4, 4, 11, 3], [2, 3], [2, *LONG, 3]]
    targets = [[2, 8, 9, 4, 5, 6, 7, 8, 3], [2, 6, 3], [2, 7, 7, 12, 3], [2, 3], [2, *LONG[::-1], 3]]
    exact = TorchEngine(make(a).double())
    forced = list(zip(ours.force(sources, targets), exact.force(sources, targets), strict=True))
    # Layer norms make rounding hundreds of times as large where a token norm leaves next to nothing of START. How far
    # torch is off by itself shows how large, to a factor of about ten.
    near = max(1e-4, *(16 * float(np.abs(one.log_probs - true.log_probs).max()) for one, true in forced))
    for (one, true), other in zip(forced, graphs.force(sources, targets), strict=True):
        np.testing.assert_allclose(other.log_probs, true.log_probs, atol=near)
        assert other.predictions == one.predictions or near > ROUNDING
    if near > ROUNDING:
        return  # rounding decides between words, in torch as well
    sources, targets = sources[:-1], targets[:-1]
    batch = Batch(sources, [7, 3, 9, 5], SearchOptions(3, num_hypotheses=3))
    for hypotheses, others in zip(batch.search(ours), batch.search(graphs), strict=True):
        assert [h.tokens for h in hypotheses] == [h.tokens for h in others]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in others], abs=1e-3)
    for source, limit in zip(sources, (7, 1, 9, 5), strict=True):
        for beam_size, num_hypotheses in ((1, 1), (3, 2)):
            by_steps, at_once = both_ways(graphs, source, limit, beam_size=beam_size, num_hypotheses=num_hypotheses)
            assert [(h.tokens, h.finished) for h in at_once] == [(h.tokens, h.finished) for h in by_steps]
            assert [h.score for h in at_once] == pytest.approx([h.score for h in by_steps], abs=1e-4)
    pairs = [(source, target[:-1]) for source, target in zip(sources, targets, strict=True)]
    weights = [[engine.attention(*pair) for engine in (exact, ours, graphs)] for pair in pairs]
    near = max(5e-5, *(16 * float(np.abs(one - true).max()) for true, one, _ in weights))
    for true, _, other in weights:
        np.testing.assert_allclose(other, true, atol=near)


@pytest.mark.parametrize("name", [name for name, p in PRESETS.items() if not p.architecture.looks_ahead])
def test_a_preset(name: str, tmp_path: Path) -> None:
    check(dataclasses.replace(PRESETS[name].architecture, **SIZES, **WIDTHS[0]), tmp_path)


@pytest.mark.parametrize("architecture", DRAWN, ids=tests.axes.ids(AXES, DRAWN))
def test_every_value_among_drawn_ones(architecture: Architecture, tmp_path: Path) -> None:
    check(architecture, tmp_path)


GROUPED: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"positions": "rotary"},
    "t5": {"positions": "t5"},
    "alibi, local": {"positions": "alibi", "attention_window": 4},
    "own scores": {"self_score": "exclude"},
    "residual scores": {"score_residual": "previous_layer"},
    "normed": {"qk_norm": "l2"},
    "values of both kinds": {"values": "both"},
    "embeddings as values": {"values": "tokens", "combine": "concat", "tie_embeddings": "none", "head_dim": 16},
}


@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("changes", GROUPED.values(), ids=GROUPED.keys())
def test_heads_that_share_keys(changes: dict[str, Any], num: int, tmp_path: Path) -> None:
    if changes.get("values") == "both" and num == 1:
        pytest.skip("one head cannot be halved")
    how: dict[str, Any] = {"attention_bias": True, **SIZES, **WIDTHS[1], "num_kv_heads": num, **changes}
    check(Architecture(**how), tmp_path)


def with_value(name: str, value: object) -> Architecture:
    """An architecture with a value that somebody is about to add."""
    a = dataclasses.replace(PRESETS["original"].architecture)
    object.__setattr__(a, name, value)
    return a


@pytest.mark.parametrize("axis", ["positions", "norm", "self_score", "values"])
def test_a_value_without_graphs_is_refused_by_name(axis: str) -> None:
    reason = why_not(with_value(axis, "new"))
    assert reason == f"{axis} = 'new' is not among what repose.graphs computes"
    assert f"{axis} = 'new' is not among" in str(ctranslate2_spec.why_not(with_value(axis, "new")))
    with pytest.raises(ConfigError, match=f"this model has no graphs: {axis} = 'new'"):
        graphs_of(SimpleNamespace(architecture=with_value(axis, "new")))  # type: ignore[arg-type]


NORMS = [None, nn.RMSNorm(4), nn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm(4, bias=False), nn.Dropout()]


@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_what_is_no_layer_norm_has_no_graph(norm: nn.Module | None) -> None:
    """A norm that is missing in the model is not left out in silence."""
    g = Graph("norm", int8=False)
    assert g.norm("x", nn.Identity()) == "x"
    with pytest.raises(TypeError, match="write its graph there"):
        g.norm("x", norm)


def test_a_new_axis_is_refused_unless_it_is_as_before() -> None:
    made = dataclasses.make_dataclass("made", [("gate", str, "none")], bases=(Architecture,), frozen=True, kw_only=True)
    assert why_not(made()) is None
    assert why_not(made(gate="glu")) == "gate = 'glu' is not among what repose.graphs computes"


@pytest.mark.parametrize("axis", [axis for axis in tests.axes.NAMED if axis != "initialisation"])
def test_graphs_compute_every_value_that_can_be_decoded_step_by_step(axis: str) -> None:
    wanted = {value for value in tests.axes.NAMED[axis] if (axis, value) != ("decoder_token_norm", "sentence")}
    listed = set(COMPUTED.get(axis, ()))
    assert listed == wanted, (
        f"{axis}: write the graphs of {wanted - listed or 'no value'}, and list it where they are; "
        f"{listed - wanted or 'no value'} is none of the axis any more"
    )


def test_another_score_of_distances_needs_no_graph_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant of ALiBi's, here with the logarithm of the distance, is computed where the model computes it."""

    def by_logarithm(self: Alibi, distance: torch.Tensor) -> torch.Tensor:
        return -self.slopes[:, None, None] * distance.abs().float().log1p()[..., None, :, :]

    monkeypatch.setattr(Alibi, "of_distances", by_logarithm)
    check(Architecture(positions="alibi", **SIZES, **WIDTHS[0]), tmp_path)


@pytest.mark.parametrize(("method", "says"), [("scores", "has scores of its own"), ("turn", "turns queries and keys")])
def test_positions_without_a_graph_are_not_left_out_in_silence(method: str, says: str) -> None:
    other = type("Other", (Positions,), {method: lambda *_: None})
    model = make(Architecture(positions="none", **SIZES, **WIDTHS[0]))
    model.encoder.position_scores = other(model.architecture, causal=False)
    with pytest.raises(TypeError, match=f"^Other {says}: write"):
        graphs_of(model)


IN_INT8 = ("values", "input_norm", "norm", "norm_kind", "feed_forward")
"""Axes that decide what products with weights read, and so how much numbers of 8 bits lose."""


@pytest.mark.parametrize(("axis", "value"), [(axis, value) for axis in IN_INT8 for value in COMPUTED[axis]])
def test_int8_is_near(axis: str, value: object, tmp_path: Path) -> None:
    """Within 0.2 nats: half of that was found."""
    model = make(dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0], **{axis: value}))
    facts = write_graphs(tmp_path, model, int8=True)
    graphs = OnnxEngine(GraphFolder(tmp_path / ENCODER, tmp_path / STEP, facts, {}))
    sources, targets = [[2, 5, 6, 7, 3], [2, 9, 3]], [[2, 8, 9, 3], [2, 6, 3]]
    for one, other in zip(TorchEngine(model).force(sources, targets), graphs.force(sources, targets), strict=True):
        why = f"{axis} = {value!r} loses more in int8 than any other value: see rows_alike in CONTRIBUTING.md"
        np.testing.assert_allclose(other.log_probs, one.log_probs, atol=0.2, err_msg=why)
        assert not np.array_equal(other.log_probs, one.log_probs)


def test_no_two_products_in_int8_exceed_16_bits(tmp_path: Path) -> None:
    """Processors without VNNI add them there, and cut what does not fit; this one may have it, so that no result
    would tell."""
    onnx = pytest.importorskip("onnx")
    model = make(dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0]))
    write_graphs(tmp_path, model, int8=True)
    largest = []
    for name in (ENCODER, STEP):
        graph = onnx.load(tmp_path / name).graph
        weights = {w.name: onnx.numpy_helper.to_array(w) for w in graph.initializer}
        products = [weights[node.input[1]] for node in graph.node if node.op_type == "MatMulInteger"]
        assert products
        largest += [np.abs(w.astype(int)).max() for w in products]
    assert 2 * 255 * max(largest) < 2**15
    assert min(largest) > 60, "all of what fits is used"


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_alone_takes_one_call(beam_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, graphs = both(dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0]), tmp_path)
    by_steps, at_once = both_ways(graphs, [2, 5, 6, 7, 3], 9, beam_size=beam_size)
    monkeypatch.setattr(graphs, "step", None)
    assert Batch([[2, 5, 6, 7, 3]], [9], SearchOptions(beam_size)).search(graphs) == [at_once]
    assert [h.tokens for h in at_once] == [h.tokens for h in by_steps]


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("why", ["large", "an export without it", "another version of ONNX Runtime cannot read it"])
def test_where_a_sentence_goes_step_by_step(
    why: str, beam_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, graphs = both(dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0]), tmp_path)
    path = graphs.graphs.search(beam_size)
    if why == "large":
        monkeypatch.setattr(onnx_engine, "_LARGE", 1000)
    elif why == "an export without it":
        path.unlink()
    else:
        path.write_bytes(b"?")
    source, options = [2, 5, 6, 7, 3], SearchOptions(beam_size)
    assert graphs.search(source, 9, options) is None
    expected = beam_search(graphs.step, graphs.start([source]), [9], options)
    assert Batch([source], [9], options).search(graphs) == expected


@pytest.mark.parametrize("size", [23, 1024, 1031, 1100])
@pytest.mark.parametrize("width", [1, 3, 20])
@pytest.mark.parametrize("equals", [False, True])
def test_the_best_of_a_vocabulary(size: int, width: int, equals: bool) -> None:
    """A large one is searched in blocks, some of which are not looked into."""
    g = Graph("best", int8=False)
    found = best_of(g, size, g.input("log_probs", ["R", size]), g.input("width", [1], "INT64"))
    g.output("values", found[0], ["R", "W"])
    g.output("ids", found[1], ["R", "W"], "INT64")
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(size + width)
    log_probs = -random.integers(0, 40 if equals else 1 << 20, (6, size)).astype(np.float32)
    log_probs[3:, [0, 2]] = 5.0  # what may not be chosen is best
    log_probs[3:, 4:60] = -(2.0**20)  # and stands alone in its block
    values, ids = session.run(None, {"log_probs": log_probs, "width": np.array([width])})
    log_probs[:, [0, 2]] = -np.inf
    expected = np.argsort(-log_probs, axis=1, kind="stable")[:, :width]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(log_probs, expected, 1))


@pytest.mark.parametrize("beam_size", [1, 2, 20])
def test_a_search_of_a_large_vocabulary_is_that_of_every_step(beam_size: int, tmp_path: Path) -> None:
    a = dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0])
    facts = write_graphs(tmp_path, build(a, src_vocab_size=VOCAB, tgt_vocab_size=1031))
    graphs = OnnxEngine(GraphFolder(tmp_path / ENCODER, tmp_path / STEP, facts, {}))
    by_steps, at_once = both_ways(graphs, [2, 5, 6, 7, 3], 4, beam_size=beam_size, num_hypotheses=beam_size)
    assert [(h.tokens, h.finished) for h in at_once] == [(h.tokens, h.finished) for h in by_steps]
    assert [h.score for h in at_once] == pytest.approx([h.score for h in by_steps], abs=1e-4)


@pytest.mark.parametrize("size", [VOCAB, 1031])
@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_sentence_alone_is_refused_where_probabilities_are_none(beam_size: int, size: int, tmp_path: Path) -> None:
    a = dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0])
    model = build(a, src_vocab_size=VOCAB, tgt_vocab_size=size)
    model.output.bias.data[7] = float("nan")
    facts = write_graphs(tmp_path, model)
    graphs = OnnxEngine(GraphFolder(tmp_path / ENCODER, tmp_path / STEP, facts, {}))
    with pytest.raises(ReposeError, match="NaN"):
        graphs.search([2, 5, 3], 5, SearchOptions(beam_size))


def test_rough_numbers_that_mislead_are_noticed(tmp_path: Path) -> None:
    """Of more tokens than are looked at exactly, all nearly alike, the rough numbers find the best by chance alone."""
    a = dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0])
    model = build(a, src_vocab_size=VOCAB, tgt_vocab_size=1031)
    torch.manual_seed(1)
    model.output.weight.data[100:200] = model.output.weight.data[100] + 1e-4 * torch.randn(100, a.d_model)
    model.output.bias.data[100:200] = 30.0
    facts = write_graphs(tmp_path, model)
    graphs = OnnxEngine(GraphFolder(tmp_path / ENCODER, tmp_path / STEP, facts, {}))
    options = SearchOptions(1)
    assert graphs.search([2, 5, 3], 5, options) is None
    expected = beam_search(graphs.step, graphs.start([[2, 5, 3]]), [5], options)
    assert Batch([[2, 5, 3]], [5], options).search(graphs) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("widths", WIDTHS)
def test_a_sentence_alone_in_int8_is_near(beam_size: int, widths: dict[str, int], tmp_path: Path) -> None:
    model = build(
        dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **widths),
        src_vocab_size=VOCAB,
        tgt_vocab_size=VOCAB,
    )
    found = {}
    for name in ("fp32", "int8"):
        (tmp_path / name).mkdir()
        facts = write_graphs(tmp_path / name, model, int8=name == "int8")
        graphs = OnnxEngine(GraphFolder(tmp_path / name / ENCODER, tmp_path / name / STEP, facts, {}))
        hypotheses = graphs.search([2, 5, 6, 7, 3], 9, SearchOptions(beam_size))
        assert hypotheses is not None
        found[name] = hypotheses[0]
    assert found["int8"].score != found["fp32"].score
    tokens = [2, *found["int8"].tokens, *([3] if found["int8"].finished else [])]
    (forced,) = TorchEngine(model).force([[2, 5, 6, 7, 3]], [tokens])
    assert found["int8"].score == pytest.approx(forced.log_probs.sum(), abs=0.2)


def test_the_weights_are_on_disk_once(tmp_path: Path) -> None:
    write_graphs(
        tmp_path, make(dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, d_token=64, num_heads=2))
    )
    for name in (GREEDY, BEAM):
        assert (tmp_path / name).stat().st_size < (tmp_path / STEP).stat().st_size / 2


@pytest.mark.parametrize(
    ("int8", "size", "expected"),
    [(False, VOCAB, []), (False, 1031, [GREEDY]), (True, VOCAB, [BEAM, GREEDY]), (True, 1031, [BEAM, GREEDY])],
)
def test_which_graphs_need_onnx_runtime(int8: bool, size: int, expected: list[str], tmp_path: Path) -> None:
    """docs/export.md says which."""
    onnx = pytest.importorskip("onnx")
    a = dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0])
    write_graphs(tmp_path, build(a, src_vocab_size=VOCAB, tgt_vocab_size=size), int8=int8)
    models = {path.name: onnx.load(path, load_external_data=False) for path in sorted(tmp_path.glob("*.onnx"))}
    assert [name for name, model in models.items() if len(model.opset_import) > 1] == expected
    assert {(model.ir_version, model.opset_import[0].version) for model in models.values()} == {(9, 18)}


def test_other_programs_find_what_they_call_by_its_name(tmp_path: Path) -> None:
    """docs/export.md has programs that do: a renamed input breaks those of others, too."""
    onnx = pytest.importorskip("onnx")
    model = make(dataclasses.replace(PRESETS["reinforced"].architecture, **SIZES, **WIDTHS[0]))
    write_graphs(tmp_path, model)
    layers = range(model.architecture.num_decoder_layers)
    memory = [f"{what}_{layer}" for layer in layers for what in ("keys", "values")]
    searched = ["limit", "src_bias", *memory]
    beam = ["limit", "beam_size", "width", "num_hypotheses", "penalties", "src_bias", *memory]
    attention = [f"attention_{layer}" for layer in layers]
    wanted = {
        ENCODER: (["src"], ["src_bias", *memory]),
        STEP: (
            ["tokens", "at", "src_bias", *memory, *(f"past_{name}" for name in memory)],
            ["log_probs", *(f"new_{name}" for name in memory), *attention],
        ),
        GREEDY: (searched, ["tokens", "log_probs", "best"]),
        BEAM: (beam, ["scores", "rows", "tokens", "sums"]),
    }
    for file, names in wanted.items():
        graph = onnx.load(tmp_path / file, load_external_data=False).graph
        assert ([value.name for value in graph.input], [value.name for value in graph.output]) == names
