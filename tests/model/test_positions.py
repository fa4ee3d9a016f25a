"""Positional encodings against their equations in loops."""

import cmath
import dataclasses
import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from repose.model.architecture import Architecture, PositionsKind
from repose.model.attention import Attention, record
from repose.model.audit import audit
from repose.model.cached_attention import cached
from repose.model.embedding import Embedding
from repose.model.kernels.blocks import Blocks
from repose.model.kernels.local import LocalBlocks
from repose.model.kernels.packing import Packing
from repose.model.positions import Rotary, TablePositions, buckets, positions_of, sinusoids, upscale
from repose.model.presets import preset
from repose.model.transformer import Transformer, build
from repose.system.device import num_threads
from repose.system.errors import DataError


def test_interleaved_is_vaswani_3_5() -> None:
    table = sinusoids("interleaved", 50, 16)
    for pos in range(50):
        for i in range(8):
            angle = pos / 10000 ** (2 * i / 16)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_halves_is_interleaved_with_its_columns_permuted() -> None:
    halves, interleaved = sinusoids("halves", 128, 64), sinusoids("interleaved", 128, 64)
    torch.testing.assert_close(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1))


def test_printed_is_equation_3_to_the_letter() -> None:
    table = sinusoids("printed", 20, 8)
    for i in range(1, 21):
        for j in range(1, 9):
            angle = i / 10000 ** (2 * j / 8)
            wanted = math.sin(angle) if j <= 4 else math.cos(angle)
            assert table[i - 1, j - 1].item() == pytest.approx(wanted, abs=1e-6)


def test_half_of_the_printed_columns_are_nearly_constant() -> None:
    """The figures of docs/decisions/005-printed-equations.md."""
    away = (1 - sinusoids("printed", 2048, 64)[:, 32:]).amax(dim=1)  # row 0 is position 1
    assert away[58] < 1e-5 < away[59]
    assert away[127].item() == pytest.approx(4.6e-5, rel=0.01)
    assert away[2047].item() == pytest.approx(1.2e-2, rel=0.02)
    assert sinusoids("halves", 128, 64).std(dim=0)[32:48].min() > 1e-2


def test_learned_positions_are_one_row_each_and_trained() -> None:
    learned = TablePositions(Architecture(positions="learned", max_length=10, d_token=4), causal=True)
    rows = learned.rows(torch.tensor([3, 3, 0]))
    assert torch.equal(rows[0], learned.table[3])
    assert torch.equal(rows[0], rows[1])
    assert [p.shape for p in learned.parameters()] == [(10, 4)]


def test_fixed_positions_are_no_part_of_a_checkpoint() -> None:
    assert not TablePositions(Architecture(positions="halves", max_length=10, d_token=4), causal=True).state_dict()


def test_a_sequence_longer_than_the_table_is_an_error() -> None:
    embedding = Embedding(Architecture(max_length=8, d_token=4), 20, "none")
    ids = torch.ones(1, 9, dtype=torch.long)
    with pytest.raises(DataError, match=r"9 tokens.*max_length of 8"):
        embedding(ids, Packing(ids != 0))


def pooled_as_printed(table: Tensor, factor: int) -> Tensor:
    """PAPERS C4: nearest upscaling, then average pooling with kernel factor + 1, windows cut at the edges."""
    blocks = table.double().repeat_interleave(factor, 0).repeat_interleave(factor, 1)
    return F.avg_pool2d(blocks[None], factor + 1, 1, factor // 2, count_include_pad=False)[0]


def test_upscaling_is_the_papers_but_for_the_first_and_the_last_positions() -> None:
    table = torch.rand(8, 16) * 2 - 1
    full, printed = upscale(table, 256, 512), pooled_as_printed(table, 32)
    assert full.shape == (256, 512)
    torch.testing.assert_close(full[16:-16], printed[16:-16].float(), atol=1e-6, rtol=0)


def test_no_two_upscaled_positions_are_the_same() -> None:
    """Pooled as printed, the first 16 positions, a sentence of Multi30k, are one row: so the table goes on with its
    slope."""
    table = torch.rand(8, 16) * 2 - 1
    assert len(pooled_as_printed(table, 32)[:32].mul(1e6).round().unique(dim=0)) == 17
    full = upscale(table, 256, 512)
    assert len(full.mul(1e5).round().unique(dim=0)) == 256
    steps = full[1:] - full[:-1]
    torch.testing.assert_close(steps[:15], steps[16:17].expand(15, -1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("length", "width"), [(8, 16), (20, 24), (100, 30), (5, 7), (9, 17)])
def test_upscaling_to_any_size(length: int, width: int) -> None:
    """One window at a time; half of it is half a block, rounded up, and nothing where a block is one number or less."""
    table = torch.rand(8, 16) * 2 - 1
    beyond = {-1: 2 * table[0] - table[1], 8: 2 * table[-1] - table[-2]}
    reach = [math.ceil(big / small / 2) if big > small else 0 for big, small in ((length, 8), (width, 16))]

    def row(i: int) -> Tensor:
        return beyond[-1] if i < 0 else beyond[8] if i >= length else table[i * 8 // length]

    found = upscale(table, length, width)
    for i in range(length):
        mean = torch.stack([row(i + d) for d in range(-reach[0], reach[0] + 1)]).mean(0)
        for j in range(width):
            inside = [mean[c * 16 // width] for c in range(j - reach[1], j + reach[1] + 1) if 0 <= c < width]
            assert found[i, j].item() == pytest.approx(sum(inside).item() / len(inside), abs=1e-5)  # type: ignore[union-attr]


def test_a_table_of_one_position_has_no_slope() -> None:
    assert upscale(torch.ones(1, 2), 4, 4).eq(1).all()


def test_policy_positions_are_part_of_a_checkpoint_and_are_not_trained() -> None:
    table = torch.rand(4, 2)
    policy = TablePositions(Architecture(positions="policy", max_length=16, d_token=8), causal=True, table=table)
    assert list(policy.state_dict()) == ["table"]
    assert not list(policy.parameters())
    rows = policy.rows(torch.tensor([3, 0]))
    assert torch.equal(rows, upscale(table, 16, 8)[[3, 0]])


# --- rotary ---


def turned(x: Tensor, position: int) -> Tensor:
    """One head's query or key (arXiv 2104.09864, 3.2.2): its pairs as complex numbers, each times e^(j m theta_i)."""
    out = []
    for i in range(len(x) // 2):
        pair = complex(x[2 * i], x[2 * i + 1]) * cmath.exp(1j * position * 10000 ** (-2 * i / len(x)))
        out += [pair.real, pair.imag]
    return torch.tensor(out)


def test_rotary_turns_pairs_of_each_head() -> None:
    rows, positions = torch.randn(4, 3 * 6), torch.tensor([0, 39, 2, 39])
    rotary = Rotary(Architecture(positions="rotary", max_length=40, head_dim=6), causal=False)
    wanted = torch.stack(
        [torch.cat([turned(head, int(m)) for head in row.split(6)]) for row, m in zip(rows, positions, strict=True)]
    )
    torch.testing.assert_close(rotary.turn(rows, positions), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(rotary.turn(rows[[1, 3]], 39), wanted[[1, 3]], atol=1e-5, rtol=0)  # as decoding does
    rounded = rotary.turn(rows.bfloat16(), positions)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), wanted, atol=0.05, rtol=0)
    assert not rotary.state_dict()
    assert not list(rotary.parameters())


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [4, 16])
def test_rotary_attention(head_dim: int, causal: bool, window: int | None) -> None:
    """softmax((R_i q_i)·(R_j k_j) / sqrt(C)), one head, query and key at a time, in sentences of several lengths; heads
    so wide that they would be absorbed, too."""
    c = head_dim
    a = Architecture(positions="rotary", max_length=20, d_token=6, num_heads=2, head_dim=c, attention_bias=True)
    rotary = positions_of(a, causal=causal)
    attention = Attention(a, rotary).eval()
    packing = Packing(torch.arange(9)[None] < torch.tensor([9, 3, 7])[:, None])
    how: dict[str, Any] = {"num_heads": 2, "causal": causal, "positions": rotary}
    blocks = Blocks(packing, packing, **how) if window is None else LocalBlocks(packing, window=window, **how)
    x = torch.randn(32, 6)
    with record(attention) as recorded, torch.no_grad():
        out = packing.pad(attention(x, x, x, blocks))
        q, k, v = (packing.pad(f(x)) for f in (attention.query, attention.key, attention.value))
    for n, length in enumerate((9, 3, 7)):
        heads = torch.zeros(length, 2 * c)
        for h in (0, 1):
            part = slice(h * c, h * c + c)
            qs, ks = ([turned(y[n, m, part], m) for m in range(length)] for y in (q, k))
            for i in range(length):
                far = [(causal and j > i) or (window is not None and abs(i - j) > window // 2) for j in range(length)]
                scores = [(qs[i] @ key).item() / math.sqrt(c) for key in ks]
                powers = [0.0 if far[j] else math.exp(score) for j, score in enumerate(scores)]
                weights = torch.tensor(powers) / sum(powers)
                torch.testing.assert_close(recorded[""][0][n, h, i, :length], weights, atol=1e-5, rtol=0)
                heads[i, part] = weights @ v[n, :length, part]
        torch.testing.assert_close(out[n, :length], attention.output(heads), atol=1e-5, rtol=0)


def rotary_model(**changes: int | str) -> Transformer:
    sizes = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "num_encoder_layers": 2, "num_decoder_layers": 2}
    a = dataclasses.replace(preset("rotary"), **(sizes | {"max_length": 32} | changes))  # type: ignore[arg-type]
    return build(a, src_vocab_size=20, tgt_vocab_size=20).eval()


def test_rotary_models_see_distances_and_no_places() -> None:
    """A sentence that begins at position 5 is read as one that begins at 0; one in another order is not."""
    tokens = [2, 5, 9, 7, 3]
    at_0, at_5, other = ([0] * n + x for n, x in ((0, tokens), (5, tokens), (0, [2, 9, 5, 7, 3])))
    model = rotary_model()
    first, shifted, swapped = (model.hidden(torch.tensor([x]), torch.tensor([x])) for x in (at_0, at_5, other))
    torch.testing.assert_close(shifted, first, atol=1e-5, rtol=0)
    assert (swapped[-1] - first[-1]).abs().max() > 1e-3
    still = rotary_model(positions="interleaved")
    a, b = (still.hidden(torch.tensor([x]), torch.tensor([x])) for x in (at_0, at_5))
    assert (a - b).abs().max() > 1e-3


def test_rotary_is_of_self_attention_alone() -> None:
    model = rotary_model()
    assert isinstance(model.encoder.positions, Rotary)
    for layer in model.decoder.layers:
        assert (layer.self_attention.may_absorb, layer.cross_attention.may_absorb) == (False, True)
    ids = torch.tensor([[7, 7, 7]])
    hidden = model.encoder.embedding(ids, Packing(ids != 0)).hidden
    assert torch.equal(hidden[0], hidden[2])  # nothing is added to the input


@pytest.mark.parametrize("positions", ["rotary", "interleaved"])
def test_wide_heads_are_not_absorbed_where_keys_turn(positions: str) -> None:
    model = rotary_model(positions=positions, head_dim=16)
    assert audit(model, length=9).passed
    layer = model.decoder.layers[0]
    state = model.start(model.encode(torch.tensor([[2, 5, 3]])))
    for attention, wanted in ((layer.self_attention, positions != "rotary"), (layer.cross_attention, True)):
        assert attention.is_absorbed == cached(attention, state.cache).is_absorbed == wanted


# --- scores of distances ---


def distance_scores(a: Architecture, *, causal: bool) -> list[list[list[float]]]:
    """Scores of the positions of ten tokens, [head][query][key]."""
    at = torch.arange(10)
    scores = positions_of(a, causal=causal).scores(at, at)
    assert scores is not None
    return scores.tolist()


@pytest.mark.parametrize(
    ("num_heads", "slopes"),
    [(1, [1 / 256]), (4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]), (3, [1 / 16, 1 / 256, 1 / 4])],
)
def test_alibi_falls_with_the_distance(num_heads: int, slopes: list[float]) -> None:
    """Slopes as the paper's and its code's: for three heads those of two, then the first of four's."""
    scores = distance_scores(Architecture(positions="alibi", num_heads=num_heads), causal=False)
    for head, slope in zip(scores, slopes, strict=True):
        for i, row in enumerate(head):
            assert row == pytest.approx([-slope * abs(i - j) for j in range(10)])


@pytest.mark.parametrize("causal", [False, True])
def test_t5_has_one_learned_score_for_each_head_and_class_of_distances(causal: bool) -> None:
    a = Architecture(positions="t5", num_heads=2)
    assert torch.tensor(distance_scores(a, causal=causal)).eq(0).all()
    positions = positions_of(a, causal=causal)
    (weights,) = positions.parameters()
    torch.nn.init.normal_(weights)
    queries_at, keys_at = torch.arange(40), torch.arange(30)
    scores = positions.scores(queries_at, keys_at)
    assert scores is not None
    for i, j in [(0, 0), (3, 1), (39, 0), (0, 29), (20, 29)]:
        # below half of a side's buckets each distance has its own; later keys, which a decoder never sees, have 0's
        side, distance = (0 if causal or j <= i else 16), (max(i - j, 0) if causal else abs(i - j))
        if distance < (16 if causal else 8):
            assert torch.equal(scores[:, i, j], weights[:, side + distance])
    assert torch.equal(scores[:, 5:, 5:], scores[:, :-5, :-5])  # only distances count


def of_bucket(positions: Any, head: int, distance: int) -> float:
    return float(positions.distances[head, buckets(torch.tensor(distance), causal=positions.causal)])


EQUATIONS: dict[str, Callable[[Any, int, int], float]] = {
    "alibi": lambda p, head, distance: -float(p.slopes[head]) * abs(distance),
    "t5": of_bucket,
    "untied_relative": of_bucket,
}
"""The score of a distance j - i in a head, for positions that have some."""


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", get_args(PositionsKind))
@torch.no_grad()
def test_scores_of_distances_are_their_equations(kind: PositionsKind, causal: bool) -> None:
    positions = positions_of(Architecture(positions=kind, num_heads=2, max_length=150), causal=causal)
    for weights in positions.parameters():
        torch.nn.init.normal_(weights)
    every = range(-149, 1 if causal else 150)
    found = positions.of_distances(torch.tensor([*every])[None])
    if found is None:
        assert kind not in EQUATIONS
        return
    assert kind in EQUATIONS, f"write the score of a distance for positions = {kind!r} here, as its paper has it"
    wanted = [[[EQUATIONS[kind](positions, head, distance) for distance in every]] for head in range(2)]
    torch.testing.assert_close(found, torch.tensor(wanted))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", get_args(PositionsKind))
def test_beyond_the_farthest_distance_scores_stay_the_same(kind: PositionsKind, causal: bool) -> None:
    """Or graphs, whose tables end there, would compute others."""
    positions = positions_of(Architecture(positions=kind, num_heads=2, max_length=300), causal=causal)
    for weights in positions.parameters():
        torch.nn.init.normal_(weights)
    every = torch.arange(-299, 300)[None]
    found, far = positions.of_distances(every), positions.farthest
    assert 0 < far <= 299
    if found is not None:
        torch.testing.assert_close(found, positions.of_distances(every.clamp(-far, far)), atol=0, rtol=0)
        assert found.shape == (2, 1, 599)


@pytest.mark.parametrize("kind", ["t5", "untied", "untied_relative"])
def test_gradients_within_a_window_are_the_same_bits_with_two_threads(kind: PositionsKind) -> None:
    """Threads that add to one row in the order in which they come would give others at every run."""
    a = Architecture(positions=kind, d_token=64, num_heads=8, head_dim=8, attention_window=32, max_length=128)
    positions = positions_of(a, causal=True)
    at = torch.arange(128).expand(4, 128)
    weights = torch.randn(4, 8, 128, 128, generator=torch.Generator().manual_seed(0))
    found = []
    with num_threads(2):
        for _ in range(20):
            positions.zero_grad()
            (positions.scores(at, at) * weights).sum().backward()
            found.append(torch.cat([p.grad.flatten() for p in positions.parameters() if p.grad is not None]))
    assert all(torch.equal(gradient, found[0]) for gradient in found)
