"""`repose.presets` and `repose.build`: architectures by name, and models of them."""

import torch

from repose.model.architecture import Architecture
from repose.model.presets import PRESETS, preset
from repose.model.transformer import Transformer
from repose.model.transformer import build as build_architecture
from repose.positions_rl.table import default_table
from repose.system.errors import ConfigError
from repose.system.numbers import checked_seed, is_whole

LEAST_VOCAB_SIZE = 5
"""Padding, unknown, start, end, and one real token."""


def presets() -> dict[str, Architecture]:
    """Return every preset by name: published ones and their variants. `dataclasses.replace` changes single axes."""
    return {name: p.architecture for name, p in PRESETS.items()}


def build(architecture: str | Architecture, *, src_vocab_size: int, tgt_vocab_size: int, seed: int = 0) -> Transformer:
    """Create a freshly initialised `torch.nn.Module` from a preset's name or an Architecture, such as
    `dataclasses.replace(repose.presets()["pre-ln"], d_ff=256)`.

    `model(src, tgt)` takes int64 source ids (B, S) and decoder input (B, T), with 0 padding, 1 unknown, 2 start, 3 end,
    and returns logits (B, T, V) in fp32. Weights are in fp32 on the CPU, whatever torch's defaults are. `positions =
    policy` starts from the table that ships with repose. `examples/own_training.py` trains a model in its own loop.
    `torch.compile` gains nothing, as it cannot follow how sentences are packed. Raises ConfigError for an unknown
    preset, for vocabularies that cannot be tied or are smaller than `LEAST_VOCAB_SIZE`, and for a seed that is not a
    whole number below 2^64.
    """
    for name, size in (("src_vocab_size", src_vocab_size), ("tgt_vocab_size", tgt_vocab_size)):
        if not is_whole(size) or size < LEAST_VOCAB_SIZE:
            raise ConfigError(f"{name} = {size!r}: give a whole number of tokens, at least {LEAST_VOCAB_SIZE}")
    seed = checked_seed(seed)
    if isinstance(architecture, str):
        architecture = preset(architecture)
    if not isinstance(architecture, Architecture):
        raise ConfigError(f"build takes the name of a preset or a repose.Architecture, not {architecture!r:.60}")
    table = torch.tensor(default_table().values, device="cpu") if architecture.positions == "policy" else None
    return build_architecture(
        architecture, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, seed=seed, position_table=table
    )
