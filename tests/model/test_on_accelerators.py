"""Computing all positions of a batch, as on accelerators, equals computing only the real tokens."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.axes import AXES, ids, one_for_each_value

from repose.model import attention
from repose.model.architecture import DROPOUTS, Architecture
from repose.model.token_norm import TokenNorm
from repose.model.transformer import Transformer, build
from repose.training.loss import SPARE, cross_entropy

SIZES: dict[str, Any] = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "max_length": 32}
SIZES |= {"num_encoder_layers": 2, "num_decoder_layers": 2, **dict.fromkeys(DROPOUTS, 0.0)}
DRAWN = list(one_for_each_value(AXES, **SIZES))
SRC = torch.tensor([[2, 8, 9, 4, 5, 6, 7, 3], [2, 6, 3, 0, 0, 0, 0, 0], [0] * 8])
TGT = torch.tensor([[2, 8, 9, 4, 5], [2, 6, 3, 9, 0], [2, 7, 0, 0, 0]])
LABELS = torch.tensor([8, 9, 4, 5, 3, 6, 3, 9, 3, 7, 3])


def made(a: Architecture) -> Transformer:
    table = torch.linspace(-1, 1, 4)[:, None] * torch.tensor([1.0, -1.0]) if a.positions == "policy" else None
    model = build(a, src_vocab_size=20, tgt_vocab_size=20, position_table=table).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.rand_like(parameter)
    return model


def results(model: Transformer, *cells: torch.Tensor, labels: torch.Tensor = LABELS) -> list[torch.Tensor]:
    """The loss and all gradients; and what running statistics make of the batch."""
    model.zero_grad()
    norms = [m for m in model.modules() if isinstance(m, TokenNorm) and m.is_running]
    for norm in norms:
        norm.mean.zero_()
        norm.var.fill_(1.0)
    sums = cross_entropy(model.hidden(SRC, TGT, *cells), model.output.weight, model.output.bias, labels)
    sums.loss.backward()
    for norm in norms:
        norm.fold(lambda x: x)
    statistics = [tensor.clone() for norm in norms for tensor in (norm.mean, norm.var)]
    return [*sums, *(p.grad.clone() for p in model.parameters() if p.grad is not None), *statistics]


@pytest.mark.parametrize("a", DRAWN, ids=ids(AXES, DRAWN))
def test_every_axis(a: Architecture, on_an_accelerator: Callable[[], None]) -> None:
    torch.manual_seed(0)
    model = made(a)
    packed = results(model)
    on_an_accelerator()
    whole = results(model)
    assert len(whole) == len(packed) > 3
    for ours, theirs in zip(whole, packed, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_attention_is_computed_in_fp32_where_products_are_in_bf16(
    on_an_accelerator: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused kernel's gradients of scores do not sum to zero in bf16, and biases of keys would grow for ever."""
    model, seen = made(Architecture(**SIZES)).float(), []
    product = attention.F.scaled_dot_product_attention

    def watched(*args: torch.Tensor, **options: Any) -> torch.Tensor:
        seen.extend(x.dtype for x in (*args, options["attn_mask"]))
        seen.append(torch.is_autocast_enabled("cpu"))
        return product(*args, **options)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", watched)
    on_an_accelerator()
    with torch.autocast("cpu", torch.bfloat16):
        model.hidden(SRC, TGT)
    assert len(seen) == 6 * 5
    assert set(seen) == {torch.float32, False}


def test_spare_labels_have_no_part(on_an_accelerator: Callable[[], None]) -> None:
    """So that losses of few shapes are computed; on a CPU too."""
    torch.manual_seed(0)
    model = made(Architecture(**SIZES))
    wanted = results(model)
    cells = (TGT != 0).flatten().nonzero().squeeze(1)
    for switch in (lambda: None, on_an_accelerator):
        switch()
        torch.testing.assert_close(results(model, cells), wanted)
        more, spare = torch.cat([cells, cells[:3] * 0]), torch.cat([LABELS, LABELS[:3] * 0 + SPARE])
        torch.testing.assert_close(results(model, more, labels=spare), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("a", DRAWN, ids=ids(AXES, DRAWN))
def test_weights_of_half_precision(on_an_accelerator: Callable[[], None], a: Architecture, dtype: torch.dtype) -> None:
    """Compute, on a CPU and on an accelerator, whole sentences and steps."""
    torch.manual_seed(0)
    # A norm over a few tokens, of which the first is alone, makes rounding tens of times as large.
    near = 0.3 if {a.encoder_token_norm, a.decoder_token_norm} & {"prefix", "sentence"} else 0.05
    model = made(a).float().eval()

    def apart(log_probs: torch.Tensor) -> float:
        return ((log_probs[TGT != 0] - exact).norm() / exact.norm()).item()

    with torch.no_grad():
        exact = model(SRC, TGT).log_softmax(2)[TGT != 0]
        model.to(dtype)
        moved = apart(copy.deepcopy(model).float()(SRC, TGT).log_softmax(2))
        near = max(near, min(10 * moved, 0.5))  # weights that are rounded may matter as much in fp32
        for switch in (lambda: None, on_an_accelerator):
            switch()
            found = [model(SRC, TGT).log_softmax(2)]
            if not a.looks_ahead:
                state = model.start(model.encode(SRC))
                found.append(torch.stack([model.step(TGT[:, t], state) for t in range(TGT.shape[1])], 1))
            for log_probs in found:
                assert apart(log_probs) < near, (
                    f"{dtype} is far from fp32; rounding its weights alone moves {moved:.1%}"
                )
