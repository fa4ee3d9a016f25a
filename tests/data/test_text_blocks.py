"""Text for language modelling: what is predicted, from which context, and what is counted."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from repose.data import text_blocks
from repose.data.columns import Columns, write_columns
from repose.data.text_blocks import Documents, TextBlocks, write_blocks
from repose.data.tokenizer import Tokenizer
from repose.system.errors import DataError
from repose.system.token_ids import END, START

LINES = ["the sun and the moon", "a fish", "é", "one two one two one two one two one"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, kind="bpe", vocab_size=280)


def blocks_of(folder: Path, tokenizer: Tokenizer, max_tokens: int) -> TextBlocks:
    (folder / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    write_blocks(Documents(folder / "lines.txt"), tokenizer, folder / "blocks", max_tokens=max_tokens)
    return TextBlocks.open(folder / "blocks")


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 100])
def test_every_token_is_predicted_once_from_the_one_before(
    tmp_path: Path, tokenizer: Tokenizer, max_tokens: int
) -> None:
    blocks = blocks_of(tmp_path, tokenizer, max_tokens)
    predicted, given = [], []
    for index in range(len(blocks)):
        ids, labels = blocks.batch(np.array([index]))
        assert 1 <= len(labels) <= max_tokens
        assert blocks.tgt_lengths[index] == len(labels) == ids.size
        predicted += labels.tolist()
        given += ids[0].tolist()
    documents = tokenizer.encode_batch(LINES)
    assert predicted == [token for ids in documents for token in ids[1:]]
    assert given == [token for ids in documents for token in ids[:-1]]
    assert given.count(START) == predicted.count(END) == len(LINES)


def test_a_batch_is_padded_on_the_right(tmp_path: Path, tokenizer: Tokenizer) -> None:
    blocks = blocks_of(tmp_path, tokenizer, 100)
    together = blocks.batch(np.arange(len(blocks)))
    alone = [blocks.batch(np.array([index])) for index in range(len(blocks))]
    for row, (ids, _) in zip(together[0], alone, strict=True):
        assert row.tolist() == [*ids[0], *[0] * (together[0].shape[1] - ids.size)]
    assert together[1].tolist() == np.concatenate([labels for _, labels in alone]).tolist()


def test_bytes_and_tokens_are_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    blocks = blocks_of(tmp_path, tokenizer, 4)
    assert blocks.num_bytes == len(("\n".join(LINES) + "\n").encode())
    assert blocks.columns.info["num_documents"] == len(LINES)
    assert blocks.tgt_lengths.sum() == blocks.columns.info["num_tokens"]


def test_lines_without_text_are_no_documents(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write("one\n \n\n two\n")
    assert list(Documents(tmp_path / "a.txt.gz")) == ["one", " two"]
    with pytest.raises(DataError, match="there is no file"):
        list(Documents(tmp_path / "b.txt"))


def test_a_line_without_end_is_left_out_and_said(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_blocks, "MAX_LINE_BYTES", 20)
    (tmp_path / "a.txt").write_text("the sun\n" + "moon " * 10 + "\na fish\n" + "é" * 11)
    documents = Documents(tmp_path / "a.txt")
    assert list(documents) == list(documents) == ["the sun", "a fish"]
    said = write_blocks(documents, tokenizer, tmp_path / "d", max_tokens=9)
    assert said.startswith("2 documents of ")
    assert said.endswith(", 2 dropped (longer than 20 bytes)")


def test_the_digest_is_that_of_the_content(tmp_path: Path) -> None:
    digests = []
    for name, (values, info) in enumerate([([1, 2], {}), ([1, 2], {}), ([1, 3], {}), ([1, 2], {"x": 1})]):
        write_columns(tmp_path / str(name), ["a", "b"], [(values, [4]), ([], [5])], info)
        digests.append(Columns.open(tmp_path / str(name)).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    write_columns(tmp_path / "moved", ["a", "b"], [([1], [4]), ([2], [5])], {})
    assert Columns.open(tmp_path / "moved").digest not in digests


def test_columns_come_back(tmp_path: Path) -> None:
    write_columns(tmp_path / "d", ["a", "b"], [([1, 2], [4]), ([], [5]), ([6], [7])], {"x": 1})
    found = Columns.open(tmp_path / "d")
    assert (found.num_examples, found.info) == (3, {"x": 1})
    assert found.digest.startswith("9c7e94a2b770695f"), "as in the ids of old runs"
    assert found.lengths("a").tolist() == [2, 0, 1]
    assert found.padded("a", np.array([2, 0]), -1).tolist() == [[6, -1], [1, 2]]
    assert found.flat("a", np.array([2, 1, 0])).tolist() == [6, 1, 2]


def test_what_is_damaged_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to learn from"):
        write_columns(tmp_path / "d", ["a"], [], {})
    with pytest.raises(DataError, match="is not a prepared dataset"):
        Columns.open(tmp_path / "d")
    write_columns(tmp_path / "d", ["a"], [([1, 2],)], {})
    (tmp_path / "d" / "a.ids").write_bytes(b"\0" * 4)
    with pytest.raises(DataError, match=r"is damaged \(a\.offsets does not fit a\.ids\)"):
        Columns.open(tmp_path / "d")
    meta = json.loads((tmp_path / "d" / "meta.json").read_text())
    (tmp_path / "d" / "meta.json").write_text(json.dumps(meta | {"format_version": 3}))
    with pytest.raises(DataError, match="has format 3"):
        Columns.open(tmp_path / "d")
