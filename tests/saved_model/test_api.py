"""The short forms of `import repose`, used wrongly."""

import re
from typing import Any

import numpy as np
import pytest
import torch

import repose
from repose.system.errors import ConfigError


@pytest.mark.parametrize("size", [0, 4, -1, 10.5, "10", None, True])
@pytest.mark.parametrize("name", ["src_vocab_size", "tgt_vocab_size"])
def test_a_size_that_no_vocabulary_has_is_refused(name: str, size: Any) -> None:
    sizes: Any = {"src_vocab_size": 10, "tgt_vocab_size": 10, name: size}
    with pytest.raises(ConfigError, match=f"{name} = {size!r}: give a whole number of tokens, at least 5"):
        repose.build("reinforced", **sizes)


def test_sizes_may_be_numpys() -> None:
    small: Any = np.int64(5)
    assert repose.build("reinforced", src_vocab_size=small, tgt_vocab_size=small).src_vocab_size == 5


@pytest.mark.parametrize("model", ["reinforced", None, torch.nn.Linear(1, 1)])
def test_what_is_no_model_is_not_audited(model: Any) -> None:
    said = re.escape(f"audit takes a model that translates, not {model!r}")
    with pytest.raises(ConfigError, match=rf"{said}: give it repose.build\(name, ...\)"):
        repose.audit(model)
