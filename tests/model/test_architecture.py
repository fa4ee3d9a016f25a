"""Which axis values can be combined, and what the presets are."""

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest
import tests.axes
import torch
from pydantic import ValidationError

from repose.model import architecture as architecture_module
from repose.model.architecture import Architecture, PositionsKind
from repose.model.describe import describe
from repose.model.presets import PRESETS, difference, exact_preset_name, preset, preset_name
from repose.model.transformer import Transformer, build
from repose.system.errors import ConfigError


@pytest.mark.parametrize("axis", tests.axes.AXES)
def test_the_docstring_of_an_axis_names_its_values(axis: str) -> None:
    """It is all the documentation that they have: docs/architectures.md repeats it."""
    said = vars(Architecture)["__pydantic_fields__"][axis].description
    named = (value for value in tests.axes.NAMED.get(axis, ()) if isinstance(value, str))
    assert said
    assert [value for value in named if f"`{value}`" not in said] == []


def test_the_page_has_the_docstrings_of_all_settings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "architectures.md").read_text(encoding="utf-8")
    rows = [["setting", "default", "what it decides"], ["---"] * 3]
    for name, field in vars(Architecture)["__pydantic_fields__"].items():
        rows.append([f"`{name}`", f"`{field.default}`".lower(), " ".join(field.description.split())])
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    new = "".join(line for line in lines if line not in page)
    assert not new, f"docs/architectures.md should have these rows:\n{new}"
    assert f"\n\n{''.join(lines)}\n" in page, "the table in docs/architectures.md has other rows, or another order"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"combine": "concat"}, "tie_embeddings"),
        ({"combine": "concat", "tie_embeddings": "output"}, "tie_embeddings"),
        ({"combine": "concat", "tie_embeddings": "none", "positions": "none"}, "nothing to set beside"),
        ({"combine": "concat", "tie_embeddings": "none", "positions": "rotary"}, "nothing to set beside"),
        ({"input_norm": "separate", "positions": "rotary"}, "'rotary' is no second"),
        ({"positions": "rotary", "head_dim": 7}, "even head_dim, not 7"),
        ({"norm": "pre", "residual_weight": 4.0}, "without bound"),
        ({"token_norm_site": "after_concat", "encoder_token_norm": "sentence"}, "token half"),
        (
            {
                "token_norm_site": "every_layer",
                "encoder_token_norm": "vocabulary",
                "combine": "concat",
                "tie_embeddings": "none",
            },
            "rows of the embedding table",
        ),
        ({"token_norm_site": "after_concat", "combine": "concat", "tie_embeddings": "none"}, "nothing to place"),
        ({"d_token": 15}, "even d_token"),
        ({"values": "both", "num_heads": 3}, "even num_heads, not 3"),
    ],
)
def test_senseless_combinations_are_refused_in_a_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Architecture(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"positions": "spiral"}, {"d_token": 0}, {"dropout": 1.0}, {"unknown": 1}])
def test_unknown_values_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Architecture(**settings)  # type: ignore[arg-type]


def test_d_model_is_derived() -> None:
    assert preset("reinforced").d_model == 128
    assert preset("reinforced").d_token == preset("reinforced").d_value == 64
    assert preset("ablation-none").d_model == preset("ablation-none").d_value == 128


def test_only_sentence_norm_in_the_decoder_looks_ahead() -> None:
    ahead = {name for name, p in PRESETS.items() if p.architecture.looks_ahead}
    assert ahead == {"reinforced-lookahead", "reinforced-printed"}


def test_presets_are_what_their_papers_say() -> None:
    base = preset("vaswani-base")
    assert (base.num_encoder_layers, base.d_model, base.d_ff, base.num_heads, base.head_dim) == (6, 512, 2048, 8, 64)
    big = difference(preset("vaswani-big"))
    assert {name: value for name, (_, value) in big.items()} == {
        "d_token": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "dropout": 0.3,
        "attention_output_dropout": 0.3,
    }
    assert set(difference(preset("reinforced-printed"), preset("reinforced-lookahead"))) == {"positions"}
    assert set(difference(preset("baseline-printed"), preset("baseline"))) == {"positions", "embedding_scale"}


def test_ablations_are_the_three_changes_alone_in_pairs_and_together() -> None:
    def changes(architecture: Architecture) -> set[str]:
        flags = {
            "concat": architecture.combine == "concat",
            "norm": architecture.encoder_token_norm == architecture.decoder_token_norm == "vocabulary",
            "values": architecture.values == "tokens",
        }
        return {name for name, on in flags.items() if on}

    for name, p in PRESETS.items():
        if name.startswith("ablation-"):
            named = set(name.removeprefix("ablation-").split("-")) - {"none"}
            assert changes(p.architecture) == named, name
            assert (p.architecture.d_model, p.architecture.num_encoder_layers, p.architecture.d_ff) == (128, 2, 256)
    assert changes(preset("reinforced")) == {"concat", "norm", "values"}
    all_but_sizes = difference(preset("reinforced"), preset("ablation-concat-norm"))
    assert set(all_but_sizes) == {"values"}


@pytest.mark.parametrize(
    ("changes", "name", "exact"),
    [
        ({}, "reinforced", "reinforced"),
        ({"dropout": 0.4, "max_length": 99}, "reinforced", None),
        ({"norm": "pre"}, None, None),
    ],
)
def test_a_preset_is_known_by_what_it_computes(changes: dict[str, Any], name: str | None, exact: str | None) -> None:
    architecture = dataclasses.replace(preset("reinforced"), **changes)
    assert preset_name(architecture) == name
    assert exact_preset_name(architecture) == exact


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_its_own_name(name: str) -> None:
    assert preset(preset_name(preset(name)) or "") == preset(name)


def test_an_unknown_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reinforced'"):
        preset("reinforcd")


def test_an_architecture_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        preset("reinforced").d_token = 1  # type: ignore[misc]


def held(a: Architecture, src: int, tgt: int) -> int:
    """Numbers in a model, of which none is made."""
    with torch.device("meta"):
        model = Transformer(a, src_vocab_size=src, tgt_vocab_size=tgt)
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


LAYERS_ALONE = list(tests.axes.one_for_each_value(tests.axes.AXES, max_length=8))


@pytest.mark.parametrize("name", PRESETS)
def test_the_number_of_weights_by_arithmetic(name: str) -> None:
    architecture = preset(name)
    sizes = (7765, 7765 if architecture.tie_embeddings == "all" else 7010)
    assert architecture.num_weights(*sizes) == pytest.approx(held(architecture, *sizes), rel=0.05)


@pytest.mark.parametrize("positions", get_args(PositionsKind))
def test_the_number_of_weights_where_positions_are_most_of_them(positions: PositionsKind) -> None:
    sizes: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 1, "d_ff": 1}
    architecture = Architecture(positions=positions, max_length=1 << 20, **sizes)
    assert architecture.num_weights(9, 9) == pytest.approx(held(architecture, 9, 9), rel=0.05)


@pytest.mark.parametrize("architecture", LAYERS_ALONE, ids=tests.axes.ids(tests.axes.AXES, LAYERS_ALONE))
def test_the_number_of_weights_where_layers_are_most_of_them(architecture: Architecture) -> None:
    counted, there = architecture.num_weights(9, 9), held(architecture, 9, 9)
    assert counted == pytest.approx(there, rel=0.03), (
        f"Architecture.num_weights says {counted:,} of a model that holds {there:,}, so that nothing keeps one from "
        "starting that is larger than memory: count there what a setting adds"
    )


@pytest.mark.parametrize("field", ["d_token", "d_ff", "num_heads", "head_dim"])
def test_a_size_of_a_billion_is_refused_before_anything_is_allocated(field: str) -> None:
    with pytest.raises(ValidationError, match=r"has about .* weights, which take .* GB of at most 400"):
        Architecture(**{field: 10**9})


@pytest.mark.parametrize("field", ["num_encoder_layers", "num_decoder_layers", "max_length"])
def test_a_number_of_a_billion_is_refused(field: str) -> None:
    with pytest.raises(ValidationError):
        Architecture(**{field: 10**9})


def test_a_model_larger_than_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ({"src_vocab_size": 10**12, "tgt_vocab_size": 9}, {"src_vocab_size": 9, "tgt_vocab_size": 10**12}):
        for make in (build, describe):
            with pytest.raises(ConfigError, match="or the vocabulary"):
                make(preset("reinforced"), **size)
    monkeypatch.setattr(architecture_module, "memory_bytes", lambda: 10**6)
    with pytest.raises(ConfigError, match="lower its d_token"):
        build(preset("reinforced"), src_vocab_size=10, tgt_vocab_size=10)
    monkeypatch.setattr(architecture_module, "memory_bytes", lambda: None)
    assert build(preset("reinforced"), src_vocab_size=10, tgt_vocab_size=10)


@pytest.mark.parametrize(
    ("changes", "acts"),
    [
        ({}, False),
        ({"dropout": 0.1}, True),
        ({"attention_dropout": 0.1}, True),
        ({"attention_output_dropout": 0.1}, True),
        ({"value_dropout": 0.1}, False),
        ({"value_dropout": 0.1, "values": "tokens"}, True),
    ],
)
def test_whether_any_dropout_acts(changes: dict[str, Any], acts: bool) -> None:
    none = {"dropout": 0.0, "attention_dropout": 0.0, "attention_output_dropout": 0.0}
    assert Architecture(**{**none, **changes}).has_dropout == acts
