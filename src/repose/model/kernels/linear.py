"""Linear layers, through the faster of torch's two matrix libraries, and in int8.

On a CPU, torch multiplies fp32 matrices with MKL, which uses only AVX2 on processors of other makers than Intel.
oneDNN, which torch also ships and uses for bf16, takes AVX-512 if the processor has it: twice as fast on a Zen 5 core
(`docs/speed-details.md`). The products are the same, but summed in another order.
"""

import functools
import platform
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from repose.model.kernels.beside import active
from repose.system.device import own_defaults
from repose.system.errors import ConfigError, ReposeError


class Linear(nn.Linear):
    """A linear layer, x Wᵀ + b, like `torch.nn.Linear`. For translation it can multiply in int8 (`quantize`)."""

    int8: "Int8 | None" = None

    def forward(self, x: Float[Tensor, "*N D_in"]) -> Float[Tensor, "*N D_out"]:
        return linear(x, self.weight, self.bias) if self.int8 is None else self.int8(x)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "int8": self.int8 is not None}  # torch warns when it copies packed weights itself

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.int8 = Int8(self.weight, self.bias) if state.get("int8") else None


def at_least_fp32(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Return x in fp32, or unchanged if it is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class SideBySide(nn.Module):
    """Two linear layers, each for one part of the input: [x_1 W_1ᵀ + b_1 | x_2 W_2ᵀ + b_2] of x = [x_1 | x_2].

    Each has half of the outputs.
    """

    def __init__(self, first: int, second: int, out_features: int, *, bias: bool) -> None:
        super().__init__()
        self.first = Linear(first, out_features // 2, bias=bias)
        self.second = Linear(second, out_features // 2, bias=bias)
        self.in_features = first + second

    def forward(self, x: Float[Tensor, "R D_in"]) -> Float[Tensor, "R D_out"]:
        width = self.first.in_features
        return torch.cat([self.first(x[:, :width]), self.second(x[:, width:])], dim=1)


class Affine:
    """A linear map x Wᵀ + b with given tensors, in int8 if the layer `like` is."""

    def __init__(self, weight: Float[Tensor, "D_out D_in"], bias: Tensor | None, like: Linear) -> None:
        self.weight, self.bias = weight, bias
        self._int8 = None if like.int8 is None else Int8(weight, bias)

    def __call__(self, x: Float[Tensor, "R D_in"]) -> Float[Tensor, "R D_out"]:
        return linear(x, self.weight, self.bias) if self._int8 is None else self._int8(x)


_PACKING = threading.Lock()
"""Held while weights are packed, because torch's engine of int8 and Python's filters of warnings are the process's."""


class Int8:
    """A linear map x Wᵀ + b with 8-bit integers on a CPU, for inference only.

    W has one scale for each row. x has one scale, computed at each call. Sums are 32-bit integers, and the result is
    fp32.
    """

    def __init__(self, weight: Float[Tensor, "D_out D_in"], bias: Tensor | None) -> None:
        scales = weight.detach().abs().amax(1).double().clamp_(min=1e-12) / 127
        zeros = torch.zeros(len(weight), dtype=torch.long, device=weight.device)
        with _PACKING, warnings.catch_warnings():
            # torch warns that such tensors will be removed, but their successor has no dynamic product on a CPU yet.
            warnings.simplefilter("ignore", UserWarning)
            quantized = torch.quantize_per_channel(weight.detach().contiguous(), scales, zeros, 0, torch.qint8)
            before = torch.backends.quantized.engine
            torch.backends.quantized.engine = "onednn"
            try:
                self._packed = torch.ops.quantized.linear_prepack(quantized, bias if bias is None else bias.detach())
            finally:
                torch.backends.quantized.engine = before

    def __call__(self, x: Float[Tensor, "*N D_in"]) -> Float[Tensor, "*N D_out"]:
        # x gets one bit less where the processor adds products in 16 bits, which would overflow.
        return torch.ops.quantized.linear_dynamic(x.contiguous(), self._packed, not torch.cpu._is_vnni_supported())


def quantize(model: nn.Module) -> None:
    """Make `model` multiply by its weights in int8. It must be on a CPU, and can no longer be trained.

    Embeddings, norms, softmax and the attention product stay in fp32. So do absorbed projections over whole sentences
    (`absorption.py`): in translation, those of the baseline's encoder.
    """
    if "onednn" not in torch.backends.quantized.supported_engines:
        raise ConfigError("this build of torch has no oneDNN, which int8 needs: use precision = 'fp32'")
    refuse_nan_weights(model)
    for module in model.modules():
        if isinstance(module, Linear):
            module.int8 = Int8(module.weight, module.bias)


def refuse_nan_weights(model: nn.Module) -> None:
    """Raise ReposeError if a weight is NaN: int8 would turn it into a number, and the model would output something."""
    if any(bool(x.isnan().any()) for x in model.state_dict().values() if x.is_floating_point()):
        raise ReposeError("the model has weights that are NaN: its training has diverged, so try an earlier checkpoint")


def is_quantized(model: nn.Module) -> bool:
    """Return whether `quantize` was called."""
    return any(isinstance(module, Linear) and module.int8 is not None for module in model.modules())


def linear(x: Float[Tensor, "*N D_in"], weight: Float[Tensor, "D_out D_in"], bias: Tensor | None = None) -> Tensor:
    """Return x weightᵀ + bias, (*N, D_out).

    With gradients, it uses the library that `training_products` has chosen, or an active `Beside`.
    """
    if (beside := active()) is not None and weight.is_leaf:
        return beside.linear(x, weight, bias)
    if torch.is_grad_enabled() or not _is_for_onednn(x, weight) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    return matmul_nt(x, weight, bias)


def matmul_nt(a: Float[Tensor, "N K"], b: Float[Tensor, "M K"], bias: Tensor | None = None) -> Float[Tensor, "N M"]:
    """Return a bᵀ + bias, without gradients. Either matrix may be a transposed view."""
    # In bf16, torch's own product with a bias starts by copying the bias for each row.
    if _is_for_onednn(a, b) or (bias is not None and _is_narrow(a)):
        return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return torch.mm(a, b.t()) if bias is None else torch.addmm(bias, a, b.t())


_HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")
_get_precision = torch._C._get_fp32_precision_getter
_set_precision = torch._C._set_fp32_precision_setter


@contextmanager
def training_products() -> Iterator[None]:
    """Within the context, compute torch's fp32 products and their gradients with oneDNN where that is faster."""
    with _library("bf16" if onednn_is_faster() and _stays_in_fp32() else "none"):
        yield


@contextmanager
def products_of_new_shapes() -> Iterator[None]:
    """Within the context, do not: compiling a oneDNN kernel for each new shape takes longer than a small product."""
    with _library("none"):
        yield


@contextmanager
def _library(precision: str) -> Iterator[None]:
    """Within the context, set the precision to which torch may round fp32 products; it decides the library.

    torch uses oneDNN for fp32 if rounding to bf16 is allowed. oneDNN then rounds only on processors with AMX tiles.
    """
    before = _get_precision("mkldnn", "matmul")
    _set_precision("mkldnn", "matmul", precision)
    try:
        yield
    finally:
        _set_precision("mkldnn", "matmul", before)


@functools.cache
def _stays_in_fp32() -> bool:
    """Return whether oneDNN keeps fp32 even when it may round to bf16."""
    with _library("bf16"), own_defaults():
        fine = torch.full((64, 64), 1 + 2.0**-12)
        return bool((torch.mm(fine, torch.eye(64)) == fine).all())


def _is_for_onednn(a: Tensor, b: Tensor) -> bool:
    plain = a.dtype == b.dtype == torch.float32 and a.device.type == "cpu" and a.dim() == 2 and a.numel() > 0
    return plain and onednn_is_faster()


def _is_narrow(a: Tensor) -> bool:
    """Return whether oneDNN computes with this tensor in bf16."""
    return a.dtype == torch.bfloat16 and a.device.type == "cpu" and a.numel() > 0 and _has_bf16()


@functools.cache
def _has_bf16() -> bool:
    return _HAS_ONEDNN and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@functools.cache
def onednn_is_faster() -> bool:
    """Return whether the processor has AVX-512, but MKL uses only AVX2 on it: any maker's except Intel's."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not _HAS_ONEDNN:
        return False
    try:
        return "GenuineIntel" not in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Intel" not in platform.processor()
