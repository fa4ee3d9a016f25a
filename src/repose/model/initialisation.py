"""Initial values of the weights: the axis `initialisation`.

| scheme  | embedding tables      | attention's projections              | other matrices  | biases        |
|---------|-----------------------|--------------------------------------|-----------------|---------------|
| xavier  | N(0, 1/sqrt(width))   | Glorot uniform                       | Glorot uniform  | 0             |
| keras   | U(-0.05, 0.05)        | Glorot uniform, fans of a 3-D kernel | Glorot uniform  | 0             |
| fairseq | N(0, 1/sqrt(width))   | Glorot uniform; those of queries,    | Glorot uniform  | 0             |
|         |                       | keys and values divided by sqrt(2)   |                 |               |
| kaiming | Kaiming uniform       | Kaiming uniform                      | Kaiming uniform | nn.Linear's   |

xavier: common practice; Vaswani et al. do not say how they initialise.
keras: what the TF tutorial's layers actually draw. Before Keras 3.15, the kernel (D, H, C) of a MultiHeadAttention is
    treated like a convolution's, which makes its values 1.3 to 4.8 times smaller than Glorot's.
fairseq: as Ott et al. (2019, arXiv 1904.01038) initialise Transformers: as if the kernels of queries, keys and values
    were one kernel of Glorot's.
kaiming: as in the code presumed behind arXiv 2310.10930, embedding tables included.

Norms start as the identity.
"""

import math
import threading
from collections.abc import Callable
from typing import TypeVar, assert_never

import torch
from torch import Tensor, nn

from repose.model.architecture import Architecture, Initialisation
from repose.model.attention import Attention
from repose.model.kernels.linear import Linear, SideBySide
from repose.model.positions import Positions
from repose.system.device import own_defaults
from repose.system.errors import ConfigError

_SEEDING = threading.Lock()
"""Held while torch's own generator, which all threads share, is set to a model's seed."""

M = TypeVar("M", bound=nn.Module)


def initialise(model: nn.Module, scheme: Initialisation) -> None:
    """Draw every matrix and bias of `model` from torch's global generator, in the order of its modules."""
    in_attention: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, Attention):
            _attention(module, scheme)
            in_attention.update(module.modules())
        elif isinstance(module, nn.Linear) and module not in in_attention:
            _linear(module, scheme)
        elif isinstance(module, Positions):
            for table in module.tables():
                _table(table, scheme)
    # Tables last: a tied output projection is an embedding table, and is drawn like one.
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            _table(module.weight, scheme)


def fresh(make: Callable[..., M], a: Architecture, *vocab_sizes: int, seed: int, position_table: Tensor | None) -> M:
    """Return a freshly initialised model; the same seed gives the same weights.

    `make` creates the model. Torch's global random state stays as it was. Raises ConfigError if `positions = policy`
    comes without a `position_table`, and if memory is too small for the model.
    """
    a.check_size(*vocab_sizes)
    if a.positions == "policy" and position_table is None:
        raise ConfigError("positions = 'policy' needs a position_table: read one with repose.positions_rl.table")
    with _SEEDING, own_defaults(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
        model = make(a, position_table=position_table)
        initialise(model, a.initialisation)
    return model


def keras_limits(attention: Attention) -> dict[str, float]:
    """Return the half-width of each projection's uniform distribution, as Keras' `glorot_uniform` computes it.

    A kernel of shape (..., a, b) has fans a·r and b·r, where r is the product of the leading dimensions. The kernels of
    queries, keys and values are (width in, H, C), the output kernel is (H, C, D). Values of two kinds have two kernels
    of H/2 heads each.
    """
    heads, width = attention.num_heads, attention.head_dim
    shapes = {
        name: (layer.in_features, layer.out_features // width, width) for name, layer in _projections(attention).items()
    }
    shapes["output"] = (heads, width, attention.output.out_features)
    return {name: math.sqrt(6 / (leading * (a + b))) for name, (leading, a, b) in shapes.items()}


def _projections(attention: Attention) -> dict[str, Linear]:
    """Return the projections of an attention by name, in the order in which they are drawn."""
    match attention.value:
        case SideBySide() as value:
            values = {"value.first": value.first, "value.second": value.second}
        case Linear() as value:
            values = {"value": value}
    return {"query": attention.query, "key": attention.key, **values, "output": attention.output}


def _attention(attention: Attention, scheme: Initialisation) -> None:
    limits = keras_limits(attention)
    for name, layer in _projections(attention).items():
        if scheme == "keras":
            nn.init.uniform_(layer.weight, -limits[name], limits[name])
            _zero(layer.bias)
        else:
            _linear(layer, scheme)
            if scheme == "fairseq" and name != "output":
                with torch.no_grad():
                    layer.weight.div_(math.sqrt(2))


def _linear(layer: nn.Linear, scheme: Initialisation) -> None:
    match scheme:
        case "xavier" | "keras" | "fairseq":
            nn.init.xavier_uniform_(layer.weight)
            _zero(layer.bias)
        case "kaiming":
            nn.init.kaiming_uniform_(layer.weight)
        case _:
            assert_never(scheme)


def _table(table: Tensor, scheme: Initialisation) -> None:
    match scheme:
        case "xavier" | "fairseq":
            nn.init.normal_(table, std=1 / math.sqrt(table.shape[1]))
        case "keras":
            nn.init.uniform_(table, -0.05, 0.05)
        case "kaiming":
            nn.init.kaiming_uniform_(table)
        case _:
            assert_never(scheme)


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        nn.init.zeros_(bias)
