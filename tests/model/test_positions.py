"""Positional encodings against loop transcriptions of their equations."""

import math

import pytest
import torch

from repose.errors import DataError
from repose.model.positions import PositionalEncoding, sinusoids


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


def test_half_of_the_printed_columns_are_constant() -> None:
    table = sinusoids("printed", 128, 64)
    assert table[:, 32:].std(dim=0).max() < 1e-4
    assert sinusoids("halves", 128, 64).std(dim=0)[32:48].min() > 1e-2


def test_learned_positions_are_one_row_each_and_trained() -> None:
    encoding = PositionalEncoding("learned", max_length=10, width=4)
    rows = encoding(torch.tensor([3, 3, 0]), 4)
    assert rows is not None
    assert torch.equal(rows[0], encoding.table[3])
    assert torch.equal(rows[0], rows[1])
    assert [p.shape for p in encoding.parameters()] == [(10, 4)]


def test_fixed_positions_are_no_part_of_a_checkpoint() -> None:
    assert not PositionalEncoding("halves", max_length=10, width=4).state_dict()


def test_a_sequence_longer_than_the_table_is_an_error() -> None:
    encoding = PositionalEncoding("interleaved", max_length=8, width=4)
    with pytest.raises(DataError, match=r"9 tokens.*max_length of 8"):
        encoding(torch.arange(9), 9)
