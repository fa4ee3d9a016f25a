"""What a decoder keeps from one step to the next, in slots per component."""

from jaxtyping import Int
from torch import Tensor, nn


class Cache:
    """Tensors that decoding keeps between steps, each under the component that owns them.

    A slot holds one or more tensors whose first dimension is the batch: keys and values of an attention, running
    statistics of a token norm. All are reordered together, so beam search cannot forget one.
    """

    def __init__(self) -> None:
        self.length = 0
        """Target tokens consumed so far, the same for every row."""
        self._slots: dict[nn.Module, tuple[Tensor, ...]] = {}
        self._constants: dict[nn.Module, tuple[Tensor, ...]] = {}

    def get(self, component: nn.Module) -> tuple[Tensor, ...] | None:
        """What the component put last, in the order of today's rows; None where it put nothing yet."""
        return self._slots.get(component)

    def put(self, component: nn.Module, *tensors: Tensor) -> None:
        """Replaces the component's slot; each tensor is (B, ...)."""
        self._slots[component] = tensors

    def get_constants(self, component: nn.Module) -> tuple[Tensor, ...] | None:
        """What the component keeps that is the same for every row."""
        return self._constants.get(component)

    def put_constants(self, component: nn.Module, *tensors: Tensor) -> None:
        """Keeps tensors that no reordering touches, such as statistics of the embedding table."""
        self._constants[component] = tensors

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Makes row i what row `rows[i]` was: reorders, repeats or drops rows of every slot, in place."""
        for component, tensors in self._slots.items():
            self._slots[component] = tuple(tensor.index_select(0, rows) for tensor in tensors)
