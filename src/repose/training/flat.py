"""A model's parameters as views of one flat tensor, so that exchange, clipping and Adam each act on one tensor."""

import torch
from torch import Tensor, nn

_ALIGNMENT = 16
"""Each parameter begins at a multiple of this many elements: matrix products like whole cache lines."""


class FlatParameters:
    """Names, shapes and places of a model's parameters in a flat tensor; tied ones once. Gaps are and stay zero."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = dict(model.named_parameters())
        self._starts: dict[str, int] = {}
        self.size = 0
        """Elements of a flat tensor."""
        for name, parameter in self._parameters.items():
            assert parameter.dtype == torch.float32
            self._starts[name] = self.size
            self.size += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Each parameter's part of a flat tensor, in its shape, by name."""
        return {
            name: flat[start : start + self._parameters[name].numel()].view_as(self._parameters[name])
            for name, start in self._starts.items()
        }

    def use(self, weights: Tensor, gradient: Tensor) -> None:
        """Make the model's parameters and their gradients views of these flat tensors, whose content then counts.

        Backward passes add to `gradient`, which is to be zeroed instead of being set to None.
        """
        gradients = self.views(gradient)
        for name, view in self.views(weights).items():
            self._parameters[name].data = view
            self._parameters[name].grad = gradients[name]

    def write(self, weights: Tensor) -> None:
        """Copy the model's present parameters into a flat tensor."""
        for name, view in self.views(weights).items():
            view.copy_(self._parameters[name].data)
