"""Gradients of weights on a GPU, computed on a separate CUDA stream beside the backward pass.

The operations of a small model leave most of a GPU idle, and no layer waits for the gradients of weights; only the
optimizer's step does. So they run on a separate stream and are added to `.grad` at once. In bf16, all weights are
converted by one operation instead of one each.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

_BEHIND = 4
"""Number of layers by which the gradients of weights may lag behind. Until then, their inputs stay in memory."""


class Beside:
    """Computes the gradients of weights beside the backward pass, for layers that run while it is `active`."""

    def __init__(self, stream: torch.cuda.Stream | None, narrow: Mapping[Tensor, Tensor]) -> None:
        """`stream`: the separate stream; None for the current one.

        `narrow`: for each parameter, its copy for products under autocast.
        """
        self._stream, self._narrow = stream, dict(narrow)
        self._pending: deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = deque()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use this object for the layers that this thread computes within the context. On leaving, `join`."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)
            self.join()  # even if a pass failed: a graph being recorded must not end with work that nobody waits for

    def linear(self, x: Float[Tensor, "*N D_in"], weight: Tensor, bias: Tensor | None) -> Float[Tensor, "*N D_out"]:
        """Return x weightᵀ + bias.

        The backward pass adds to the `.grad` of weight and bias itself, and passes no gradient for them to autograd.
        """
        return _Linear.apply(x, weight, bias, self)  # type: ignore[no-untyped-call]

    def layer_norm(self, x: Float[Tensor, "*N D"], weight: Tensor, bias: Tensor, eps: float) -> Float[Tensor, "*N D"]:
        """Return the layer norm of each row; gradients as for `linear`."""
        return _LayerNorm.apply(x, weight, bias, eps, self)  # type: ignore[no-untyped-call]

    def embedding(self, ids: Int[Tensor, "*N"], table: Float[Tensor, "V D"]) -> Float[Tensor, "*N D"]:
        """Return rows of the table; gradients as for `linear`."""
        return _Embedding.apply(ids, table, self)  # type: ignore[no-untyped-call]

    def read(self, parameter: Tensor) -> Tensor:
        """Return the tensor that products read for this parameter: under autocast, its narrow copy."""
        narrow = torch.is_autocast_enabled(parameter.device.type)
        return self._narrow.get(parameter, parameter) if narrow else parameter

    def aside(self, compute: Callable[[], None], *read: Tensor) -> None:
        """Call `compute` on the separate stream. It adds to gradients, and reads the tensors `read`."""
        if self._stream is None:
            compute()
            return
        present = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            compute()
            self._pending.append((self._stream.record_event(), read))
        if len(self._pending) > _BEHIND:
            present.wait_event(self._pending.popleft()[0])

    def join(self) -> None:
        """Make the current stream wait for all gradients."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        self._pending.clear()


def active() -> Beside | None:
    """Return this thread's active `Beside`; None if there is none, or no gradients are needed."""
    return _ACTIVE.get() if torch.is_grad_enabled() else None


_ACTIVE: ContextVar[Beside | None] = ContextVar("gradients of weights beside the others", default=None)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, beside: Beside) -> Tensor:
        matrix, offset = beside.read(weight), None if bias is None else beside.read(bias)
        rows = x.to(matrix.dtype)
        ctx.save_for_backward(rows, matrix)
        ctx.beside, ctx.parameters, ctx.dtype = beside, (weight, bias), x.dtype
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(rows, matrix, offset)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weight, bias), (rows, matrix) = ctx.parameters, ctx.saved_tensors

        def add() -> None:
            of_rows, total = grad.flatten(0, -2), _gradient(weight)
            if total.dtype == of_rows.dtype:
                total.addmm_(of_rows.t(), rows.flatten(0, -2))
            else:
                total.add_(torch.mm(of_rows.t(), rows.flatten(0, -2)))
            if bias is not None:  # in fp32: the gradient of a key bias consists of rounding errors alone
                _gradient(bias).add_(of_rows.sum(0, dtype=bias.dtype))

        ctx.beside.aside(add, grad, rows)
        return (grad @ matrix).to(ctx.dtype) if ctx.needs_input_grad[0] else None, None, None, None


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, beside: Beside) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, weight.dtype))
        out, mean, rstd = torch.native_layer_norm(wide, weight.shape, weight, bias, eps)
        ctx.save_for_backward(wide, mean, rstd)
        ctx.beside, ctx.parameters, ctx.dtype = beside, (weight, bias), x.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weight, bias), (x, mean, rstd) = ctx.parameters, ctx.saved_tensors
        gradients = partial(
            torch.ops.aten.native_layer_norm_backward, grad, x, weight.shape, mean, rstd, weight.detach(), bias.detach()
        )

        def add() -> None:
            _, of_weight, of_bias = gradients([False, True, True])
            _gradient(weight).add_(of_weight)
            _gradient(bias).add_(of_bias)

        ctx.beside.aside(add, grad, x, mean, rstd)
        of_rows = gradients([True, False, False])[0].to(ctx.dtype) if ctx.needs_input_grad[0] else None
        return of_rows, None, None, None, None


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, beside: Beside) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.beside, ctx.table = beside, table
        return F.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        (ids,) = ctx.saved_tensors

        def add() -> None:
            gradient = torch.ops.aten.embedding_dense_backward(grad, ids, len(ctx.table), -1, False)
            _gradient(ctx.table).add_(gradient)

        ctx.beside.aside(add, grad, ids)
        return None, None, None


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None, "a learner's parameters have gradients that are added to"
    return parameter.grad
