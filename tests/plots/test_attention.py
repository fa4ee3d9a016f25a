"""Attention maps of models: weights, labels, numbers, and what the pictures show."""

import json
import math
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import repose
from repose.model.architecture import Architecture
from repose.plots.attention import AttentionNumbers, Kind, Maps, mean_numbers, read, visible_keys
from repose.plots.attention_figure import draw, make_grid, plot_attention
from repose.plots.canvas import canvas
from repose.system.errors import CheckpointError, ConfigError, DataError

SENTENCE, TARGET = "O gato viu o cachorro.", "The cat saw the dog."


def numbers_of(kind: Kind, weights: Tensor, visible: Tensor) -> list[AttentionNumbers]:
    labels = tuple("abcdefgh"[: weights.shape[1]]), tuple("abcdefgh"[: weights.shape[2]])
    return Maps(kind, (weights,), *labels, visible).numbers_of(weights)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_numbers_equal_loops(kind: Kind) -> None:
    visible = torch.ones(5, 5, dtype=torch.bool)
    visible = visible.tril() if kind == "decoder" else visible
    scores = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0)) * 2
    weights = scores.masked_fill(~visible, -torch.inf).softmax(2)
    found = numbers_of(kind, weights, visible)
    for head in range(3):
        entropies, normalised, own = [], [], []
        for i in range(5):
            keys = [j for j in range(5) if visible[i, j]]
            if len(keys) < 2:
                continue  # the first row of a decoder has no choice
            entropies.append(-sum(w * math.log(w) for w in (weights[head, i, j].item() for j in keys)))
            normalised.append(entropies[-1] / math.log(len(keys)))
            own.append(weights[head, i, i].item())
        assert len(entropies) == (4 if kind == "decoder" else 5)
        assert found[head].entropy == pytest.approx(sum(entropies) / len(entropies), abs=1e-6)
        assert found[head].normalised_entropy == pytest.approx(sum(normalised) / len(normalised), abs=1e-6)
        expected = None if kind == "cross" else pytest.approx(sum(own) / len(own), abs=1e-6)
        assert found[head].diagonal == expected
    mean = mean_numbers(found)
    assert mean.entropy == pytest.approx(sum(n.entropy for n in found) / 3)


def test_entropy_at_its_ends() -> None:
    visible = torch.ones(4, 4, dtype=torch.bool)
    (even,) = numbers_of("encoder", torch.full((1, 4, 4), 0.25), visible)
    (sharp,) = numbers_of("encoder", torch.eye(4)[None], visible)
    assert (even.entropy, even.normalised_entropy, even.diagonal) == pytest.approx((math.log(4), 1.0, 0.25))
    assert (sharp.entropy, sharp.normalised_entropy, sharp.diagonal) == pytest.approx((0.0, 0.0, 1.0))


def test_rows_that_do_not_sum_to_one_are_shares_of_their_sum() -> None:
    weights = torch.tensor([[[0.0, 0.2, 0.2], [0.1, 0.0, 0.1], [0.3, 0.3, 0.0]]])
    (found,) = numbers_of("encoder", weights, ~torch.eye(3, dtype=torch.bool))
    assert (found.entropy, found.normalised_entropy, found.diagonal) == pytest.approx((math.log(2), 1.0, 0.0))


AXES: dict[str, dict[str, Any]] = {
    "keep": {},
    "zero": {"self_score": "zero"},
    "exclude": {"self_score": "exclude"},
    "zero_weights": {"self_score": "zero_weights"},
    "window": {"attention_window": 4},
    "window without itself": {"attention_window": 2, "self_score": "exclude"},
}


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES.keys())
def test_what_is_visible_is_what_gets_weight(axes: dict[str, Any], make_model: Any) -> None:
    folder = make_model("original", **axes)
    reading = read(folder, SENTENCE, TARGET)
    for kind in ("encoder", "decoder", "cross"):
        maps = reading.maps[kind]
        for weights in maps.layers:
            assert torch.equal((weights > 0).all(0), maps.visible), kind


def test_visible_by_hand() -> None:
    a = Architecture(attention_window=4, self_score="exclude")
    rows = ["-1100", "1-110", "11-11", "011-1", "0011-"]
    assert visible_keys(a, 5, causal=False).int().tolist() == [[int(c == "1") for c in row] for row in rows]
    assert visible_keys(Architecture(), 3, causal=True).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_maps_and_labels_are_the_models(original: Path) -> None:
    reading = read(original, SENTENCE, TARGET)
    translator = repose.load(original)
    src, tgt = translator.src_tokenizer.encode(SENTENCE), translator.tgt_tokenizer.encode(TARGET)
    expected = translator.model.attention(torch.tensor([src]), torch.tensor([tgt[:-1]]))
    for kind in ("encoder", "decoder", "cross"):
        for layer in range(2):
            assert torch.equal(reading.maps[kind].layers[layer], getattr(expected, kind)[layer][0])
    assert reading.target == TARGET
    assert reading.maps["encoder"].keys == reading.maps["cross"].keys
    assert (reading.maps["encoder"].keys[0], reading.maps["encoder"].keys[-1]) == ("[START]", "[END]")
    # In cross-attention a row is the token written after looking: one place further than what the decoder had read.
    assert reading.maps["decoder"].queries[0] == "[START]"
    assert reading.maps["cross"].queries == (*reading.maps["decoder"].queries[1:], "[END]")


def test_without_a_target_the_models_own_translation_is_read(original: Path) -> None:
    (translation,) = repose.load(original).translate([SENTENCE], attention=True)
    reading = read(original, SENTENCE)
    assert reading.target == translation.text
    assert not translation.hypotheses[0].finished  # it was never trained: no [END], and no row for it
    assert "[END]" not in reading.maps["cross"].queries
    assert translation.attention is not None
    expected = torch.from_numpy(translation.attention[:, :, :-1])
    assert torch.allclose(torch.stack(reading.maps["cross"].layers), expected, atol=1e-6)


def test_a_picture_for_each_kind_with_its_labels(original: Path, tmp_path: Path) -> None:
    picture = plot_attention(original, SENTENCE, tmp_path / "a", target=TARGET)
    assert [path.name for path in picture.files] == [
        *(f"a.{kind}.{suffix}" for kind in ("encoder", "decoder", "cross") for suffix in ("png", "svg")),
        "a.json",
    ]
    text = list(ET.parse(tmp_path / "a.cross.svg").getroot().itertext())
    maps = read(original, SENTENCE, TARGET).maps["cross"]
    for label in (*maps.keys, *maps.queries, "layer 2, head 1", "Cross-attention of original"):
        assert label in text
    assert not any("Ġ" in piece for piece in text)
    numbers = json.loads((tmp_path / "a.json").read_text())
    assert (numbers["sentence"], numbers["target"]) == (SENTENCE, TARGET)
    layers = numbers["models"][0]["layers"]
    assert [(layer["kind"], layer["layer"]) for layer in layers] == [
        (kind, layer) for kind in ("encoder", "decoder", "cross") for layer in (1, 2)
    ]
    assert layers[0]["entropy"] == pytest.approx(sum(h["entropy"] for h in layers[0]["heads"]) / 2, rel=1e-5)
    assert layers[-1]["diagonal"] is None
    assert {len(row) for row in picture.rows} == {len(picture.header)}
    assert picture.rows[0][:3] == ["original", "encoder", "1"]


def test_one_layer_and_head(original: Path, tmp_path: Path) -> None:
    picture = plot_attention(original, SENTENCE, tmp_path / "a.svg", target=TARGET, kind="encoder", layer=2, head=1)
    assert [path.name for path in picture.files] == ["a.svg", "a.json"]
    titles = [text for text in ET.parse(tmp_path / "a.svg").getroot().itertext() if text.startswith("layer")]
    assert titles == ["layer 2, head 1"]


def test_two_models_side_by_side(original: Path, make_model: Any, tmp_path: Path) -> None:
    other = make_model("zero-diagonal", seed=1)
    picture = plot_attention(original, SENTENCE, tmp_path / "c.svg", compare=other)
    text = list(ET.parse(tmp_path / "c.svg").getroot().itertext())
    for label in ("(a) mean of heads", "(b) mean of heads", "(b)", "weight of a token on itself"):
        assert label in text
    assert {row[0] for row in picture.rows} == {"original", "zero-diagonal"}
    assert {row[1] for row in picture.rows} == {"encoder"}
    # Both read what the first one wrote, so that their decoders can be compared, too.
    assert json.loads((tmp_path / "c.json").read_text())["target"] == read(original, SENTENCE).target


def test_models_of_different_tokens_are_not_compared(original: Path, make_model: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the same tokenizer"):
        plot_attention(original, SENTENCE, tmp_path / "c", compare=make_model("original", kind="wordpiece"))


def test_the_grid_fits_and_drops_labels_only_when_they_cannot_be_read() -> None:
    for layers, heads, tokens in ((2, 4, 8), (6, 8, 8), (6, 8, 40), (6, 8, 250), (1, 1, 100)):
        labels = ["cachorro"] * tokens
        grid = make_grid(layers, heads, labels, labels)
        assert max(grid.figure_size) < 34
        assert grid.label / 72 <= grid.cell  # one label per row
        assert (grid.label == 0) == (tokens == 250)
        right, bottom = grid.corner(layers - 1, heads - 1)
        assert right + grid.width <= grid.figure_size[0]
        assert bottom + grid.height + grid.bottom <= grid.figure_size[1]


def test_labels_lie_inside_the_picture_and_beside_their_rows(original: Path) -> None:
    reading = read(original, "O gato preto que dorme na cadeira viu o cachorro.", TARGET)
    with canvas():
        figure = draw(reading, reading.maps["cross"])
        figure.draw_without_rendering()
        width, height = figure.bbox.size
        axes = next(a for a in figure.axes if a.get_xticklabels() and a.get_yticklabels())
        for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
            box = label.get_window_extent()
            assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height) == (True, True, True, True)
        rows = [label.get_window_extent() for label in axes.get_yticklabels()]
        assert all(upper.y0 > lower.y0 for upper, lower in pairwise(rows))


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "empty sentence": ({"sentence": "  "}, ConfigError, "empty sentence"),
    "empty target": ({"target": ""}, ConfigError, "empty sentence"),
    "too long": ({"sentence": "gato " * 100}, DataError, "the model reads at most 64"),
    "no such layer": ({"layer": 3}, ConfigError, "no layer 3: the model has 2"),
    "no such head": ({"head": 0}, ConfigError, "no head 0: the model has 2"),
    "no such kind": ({"kind": "encode"}, ConfigError, "did you mean 'encoder'"),
    "no model": ({"run": Path("nowhere")}, CheckpointError, "nowhere"),
    "suffix": ({"out": Path("a.jpg")}, ConfigError, "not .jpg"),
}


@pytest.mark.parametrize(("change", "error", "sentence"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_drawn_is_one_sentence(
    change: dict[str, Any], error: type[Exception], sentence: str, original: Path, tmp_path: Path
) -> None:
    given = {"run": original, "sentence": SENTENCE, "out": tmp_path / "a", "target": TARGET} | change
    with pytest.raises(error, match=sentence) as raised:
        plot_attention(**given)
    assert "\n" not in str(raised.value)


def test_where_no_row_has_a_choice_there_is_no_number(make_model: Any, tmp_path: Path) -> None:
    folder = make_model("original", self_score="exclude")
    target = "a"  # [START] and one token: neither can attend to two others before it
    plot_attention(folder, SENTENCE, tmp_path / "a.svg", target=target, kind="decoder")
    numbers = json.loads((tmp_path / "a.json").read_text())["models"][0]["layers"]
    assert [layer["entropy"] for layer in numbers] == [None, None]


def test_head_and_compare_exclude_each_other(original: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave --head out"):
        plot_attention(original, SENTENCE, tmp_path / "a", compare=original, head=1)
