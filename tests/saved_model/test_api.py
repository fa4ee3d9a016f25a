"""Wrong uses of the short functions of `import repose`."""

import re
from typing import Any

import numpy as np
import pytest
import torch

import repose
from repose.system.errors import ConfigError, DataError


@pytest.mark.parametrize("size", [0, 4, -1, 10.5, "10", None, True])
@pytest.mark.parametrize("name", ["src_vocab_size", "tgt_vocab_size"])
def test_a_size_that_no_vocabulary_has_is_refused(name: str, size: Any) -> None:
    sizes: Any = {"src_vocab_size": 10, "tgt_vocab_size": 10, name: size}
    with pytest.raises(ConfigError, match=f"{name} = {size!r}: give a whole number of tokens, at least 5"):
        repose.build("reinforced", **sizes)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "a", None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    sizes = {"src_vocab_size": 9, "tgt_vocab_size": 9}
    with pytest.raises(ConfigError, match=r"give a whole number from 0 to 2\^64 - 1"):
        repose.build("reinforced", **sizes, seed=seed)
    with pytest.raises(ConfigError, match=r"give a whole number from 0 to 2\^64 - 1"):
        repose.audit(repose.build("reinforced", **sizes), seed=seed)


def test_a_seed_may_be_numpys() -> None:
    sizes = {"src_vocab_size": 9, "tgt_vocab_size": 9}
    model = repose.build("reinforced", **sizes, seed=np.int64(3))
    assert torch.equal(model.output.weight, repose.build("reinforced", **sizes, seed=3).output.weight)
    assert repose.audit(model, seed=np.int64(3)) == repose.audit(model, seed=3)


@pytest.mark.parametrize("length", [2, 3.5, "x"])
def test_a_length_that_cannot_be_audited_is_refused(length: Any) -> None:
    with pytest.raises(ConfigError, match="give a whole number of tokens, at least 3"):
        repose.audit(repose.build("reinforced", src_vocab_size=9, tgt_vocab_size=9), length=length)


@pytest.mark.parametrize("architecture", [None, 5, ["reinforced"]])
def test_what_is_no_architecture_is_not_built(architecture: Any) -> None:
    with pytest.raises(ConfigError, match=r"build takes the name of a preset or a repose\.Architecture"):
        repose.build(architecture, src_vocab_size=9, tgt_vocab_size=9)


def test_sizes_may_be_numpys() -> None:
    small: Any = np.int64(5)
    assert repose.build("reinforced", src_vocab_size=small, tgt_vocab_size=small).src_vocab_size == 5


@pytest.mark.parametrize("name", ["baseline", "reinforced"])
@pytest.mark.parametrize(("num_sources", "num_targets"), [(1, 2), (2, 1), (2, 3), (1, 0)])
def test_as_many_sources_as_targets_are_computed(name: str, num_sources: int, num_targets: int) -> None:
    model = repose.build(name, src_vocab_size=9, tgt_vocab_size=9)
    src, tgt = (torch.full((number, 4), 5) for number in (num_sources, num_targets))
    for call in (model, model.hidden, model.attention):
        with pytest.raises(DataError, match=rf"sources and targets differ \({num_sources} and {num_targets}\)"):
            call(src, tgt)
    assert model(src[:0], tgt[:0]).shape == (0, 4, 9)


@pytest.mark.parametrize("model", ["reinforced", None, torch.nn.Linear(1, 1)])
def test_what_is_no_model_is_not_audited(model: Any) -> None:
    said = re.escape(f"audit takes a model that translates, not {model!r}")
    with pytest.raises(ConfigError, match=rf"{said}: give it repose.build\(name, ...\)"):
        repose.audit(model)
