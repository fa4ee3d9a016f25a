"""Linear layers: the same numbers and gradients as torch's, whichever library multiplies."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from repose.model.kernels import linear
from repose.model.kernels.linear import (
    Affine,
    Int8,
    Linear,
    matmul_nt,
    products_of_new_shapes,
    quantize,
    training_products,
)


@pytest.fixture(params=[False, True], ids=["torch", "onednn"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: request.param)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 3, 7), (0, 7)])
def test_linear_is_torchs(bias: bool, shape: tuple[int, ...]) -> None:
    layer = Linear(7, 11, bias=bias)
    x = torch.randn(shape, requires_grad=True)
    inputs = (x, *layer.parameters())
    wanted = F.linear(x, layer.weight, layer.bias)
    gradient = torch.randn_like(wanted).transpose(0, 1).contiguous().transpose(0, 1)  # as autograd may hand it down
    with training_products():
        out = layer(x)
        gradients = torch.autograd.grad(out, inputs, gradient)
    torch.testing.assert_close(out, wanted)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), wanted.detach())
    for a, b in zip(gradients, torch.autograd.grad(wanted, inputs, gradient), strict=True):
        torch.testing.assert_close(a, b)


def test_the_library_is_torchs_own_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_stays_in_fp32", lambda: True)
    before, inside = torch.backends.mkldnn.matmul.fp32_precision, "bf16" if linear.onednn_is_faster() else "none"
    with training_products():
        assert torch.backends.mkldnn.matmul.fp32_precision == inside
        with products_of_new_shapes():
            assert torch.backends.mkldnn.matmul.fp32_precision == "none"
        assert torch.backends.mkldnn.matmul.fp32_precision == inside
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_products_of_training_round_to_nothing_less_than_fp32() -> None:
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    with training_products():
        torch.testing.assert_close(a @ b, (a.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)


def test_linear_in_double_precision_and_under_autocast() -> None:
    layer, x = Linear(7, 11), torch.randn(5, 7)
    assert layer.double()(x.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(x).dtype == torch.bfloat16


def test_threads_that_pack_weights_at_once_leave_each_other_and_torch_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepack, engines = torch.ops.quantized.linear_prepack, set[str]()

    def slow(*arguments: Any) -> Any:
        time.sleep(0.05)  # meanwhile other threads begin, or restore the engine
        engines.add(torch.backends.quantized.engine)
        return prepack(*arguments)

    monkeypatch.setattr(torch.ops.quantized, "linear_prepack", slow)
    before = torch.backends.quantized.engine
    weights = [torch.randn(8, 8) for _ in range(4)]
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda weight: Int8(weight, None), weights))
        assert (engines, torch.backends.quantized.engine) == ({"onednn"}, before)
    finally:
        torch.backends.quantized.engine = before


@pytest.mark.parametrize("bias", [True, False])
def test_int8_is_close_to_fp32_and_has_its_bias(bias: bool) -> None:
    layer, x = Linear(16, 8, bias=bias), torch.randn(5, 16)
    if bias:
        torch.nn.init.uniform_(layer.bias, 2.0, 3.0)
    with torch.no_grad():
        wanted = layer(x)
        quantize(layer)
        torch.testing.assert_close(layer(x), wanted, atol=0.1, rtol=0)
        torch.testing.assert_close(Affine(layer.weight, layer.bias, layer)(x), wanted, atol=0.1, rtol=0)


def test_products_of_transposed_views() -> None:
    a, b = torch.randn(7, 5), torch.randn(7, 3)
    torch.testing.assert_close(matmul_nt(a.t(), b.t()), a.t() @ b)
    torch.testing.assert_close(
        matmul_nt(a, b.t()[:1].repeat(5, 1).t()[:, :5].contiguous()), a @ b[:, :1].repeat(1, 5).t()
    )
