"""BPE-dropout against the tokenizer itself, and against the paper's algorithm for one word."""

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from repose.data.bpe_dropout import BpeDropout, Draws, Merges
from repose.data.dataset import PairDataset
from repose.data.prepare import LengthLimits, prepare
from repose.data.tags import TaggingEncoder, tag_pairs
from repose.data.tokenizer import SPECIAL_TOKENS, Tokenizer
from repose.system.errors import ConfigError

LINES = [
    f"the {a} {b} sees a {c} hedgehog 12 times ¿no?"
    for a in ["old", "new", "red"]
    for b in ("fox", "fish", "owl")
    for c in ("big", "small", "tiny")
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, kind="bpe", vocab_size=330)


@pytest.mark.parametrize("affix", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_tokenizers_with_affixes_are_refused(tokenizer: Tokenizer, affix: str) -> None:
    content = json.loads(tokenizer.json)
    content["model"][affix] = "##"
    with pytest.raises(ConfigError, match=rf"training.bpe_dropout knows no tokenizer with {affix} = '##'"):
        Merges(SimpleNamespace(kind="bpe", json=json.dumps(content)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pairs(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> PairDataset:
    folder = tmp_path_factory.mktemp("pairs") / "train"
    texts = [(line, line.upper()) for line in LINES]
    prepare(texts, (tokenizer, tokenizer), folder, LengthLimits(60, 60, "drop"), workers=1)
    return PairDataset.open(folder)


def test_without_dropout_words_are_the_tokenizers(tokenizer: Tokenizer) -> None:
    merges = Merges(tokenizer)
    for line in (*LINES[:5], "unseen wörds: Ωmega", "a" * 300):
        words = [np.array([merges.characters[c] for c in word]) for word in tokenizer.words(line)]
        ids = np.concatenate(merges.segment(words, 0.0, Draws("")))
        assert ids.tolist() == tokenizer.encode(line)[1:-1]


def test_one_word_is_segmented_as_the_papers_algorithm_says(tokenizer: Tokenizer) -> None:
    """Algorithm 1 for one word, with the same draws."""
    model = json.loads(tokenizer.json)["model"]
    ranks = {tuple(m.split(" ")) if isinstance(m, str) else tuple(m): rank for rank, m in enumerate(model["merges"])}
    merges, word = Merges(tokenizer), "Ġhedgehog"
    seen = set()
    for seed in range(40):
        pieces, draws = list(word), Draws(str(seed))
        while len(pieces) > 1:
            kept = draws(len(word) - 1) >= 0.3
            possible = {i: ranks[p] for i, p in enumerate(pairwise(pieces)) if p in ranks and kept[i]}
            if not possible:
                break
            i = min(possible, key=lambda place: possible[place])
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        characters = [np.array([merges.characters[c] for c in word])]
        ours = merges.segment(characters, 0.3, Draws(str(seed)))[0]
        assert tokenizer.tokens(ours.tolist()) == pieces
        seen.add(tuple(pieces))
    assert len(seen) > 3


def test_an_epoch_says_the_same_in_other_pieces(tokenizer: Tokenizer, pairs: PairDataset) -> None:
    drawn = BpeDropout(pairs, (tokenizer, tokenizer), dropout=0.2, limits=(60, 60))
    first, again, second = drawn.epoch(0, 0), drawn.epoch(0, 0), drawn.epoch(0, 1)
    everything = np.arange(len(pairs))
    assert np.array_equal(first.batch(everything).src, again.batch(everything).src)
    assert not np.array_equal(first.src_lengths, second.src_lengths)
    assert not np.array_equal(first.src_lengths, drawn.epoch(1, 0).src_lengths)
    assert first.tgt_lengths.sum() > pairs.tgt_lengths.sum()
    for index, line in enumerate(LINES):
        src, tgt, labels = (row[0] for row in first.batch(np.array([index])))
        assert tokenizer.decode(src.tolist()) == line
        assert (src[0], src[-1], tgt[0], labels[-1]) == (2, 3, 2, 3)
        assert tokenizer.decode(labels.tolist()) == line.upper()
    assert np.array_equal(first.tgt_lengths, (first.batch(everything).labels > 0).sum(1))


def test_a_frequent_word_has_several_segmentations_in_an_epoch(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pairs = [("hedgehog", "hedgehog")] * 40
    prepare(pairs, (tokenizer, tokenizer), tmp_path / "train", LengthLimits(60, 60, "drop"), workers=1)
    stored = PairDataset.open(tmp_path / "train")
    drawn = BpeDropout(stored, (tokenizer, tokenizer), dropout=0.3, limits=(60, 60)).epoch(0, 0)
    assert len({*drawn.src_lengths.tolist()}) > 1


def test_numbers_are_drawn_once() -> None:
    draws = Draws("")
    assert not np.isin(draws(3, 2), draws(6)).any()


def test_sentences_that_grow_too_long_are_read_as_stored(tokenizer: Tokenizer, pairs: PairDataset) -> None:
    limit = int(pairs.src_lengths.max())
    drawn = BpeDropout(pairs, (tokenizer, tokenizer), dropout=0.5, limits=(limit, 60)).epoch(0, 0)
    assert drawn.src_lengths.max() <= limit
    assert (drawn.longest_src, drawn.longest_tgt) == (limit, 60), "shapes of batches are the same in each epoch"
    stored, ours = (data.batch(np.arange(len(pairs))).src for data in (pairs, drawn))
    assert any(np.array_equal(a[a > 0], b[b > 0]) for a, b in zip(stored, ours, strict=True))


@pytest.mark.parametrize("room", [0, 1])
def test_only_what_is_longer_than_the_limits_is_read_as_stored(
    tokenizer: Tokenizer, pairs: PairDataset, room: int
) -> None:
    """Those of targets are of labels: one fewer than tokens."""
    longest = BpeDropout(pairs, (tokenizer, tokenizer), dropout=1.0, limits=(60, 60)).epoch(0, 0)
    most_src, most_tgt = int(longest.src_lengths.max()), int(longest.tgt_lengths.max())
    limits = (most_src - 1 + room, most_tgt - 1 + room)
    drawn = BpeDropout(pairs, (tokenizer, tokenizer), dropout=1.0, limits=limits).epoch(0, 0)
    for most, side in ((most_src, "src_lengths"), (most_tgt, "tgt_lengths")):
        ours, theirs, stored = (getattr(data, side) for data in (drawn, longest, pairs))
        assert (stored < most).all()
        assert np.array_equal(ours, theirs if room else np.where(theirs == most, stored, theirs))


def test_a_sentence_that_was_cut_is_read_as_stored(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Its text does not give its tokens again."""
    texts = [(line, line) for line in LINES]
    prepare(texts, (tokenizer, tokenizer), tmp_path / "train", LengthLimits(3, 2, "truncate"), workers=1)
    stored = PairDataset.open(tmp_path / "train")
    assert [*stored.counts.truncated.values()] == [len(LINES)] * 2
    drawn = BpeDropout(stored, (tokenizer, tokenizer), dropout=1.0, limits=(60, 60)).epoch(0, 0)
    every = np.arange(len(stored))
    for ours, theirs in zip(drawn.batch(every), stored.batch(every), strict=True):
        assert np.array_equal(ours, theirs)


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs a tokenizer of kind 'bpe', not 'unigram'"):
        Merges(Tokenizer.train(LINES, kind="unigram", vocab_size=330))


def test_characters_without_a_token_are_read_as_stored(tmp_path: Path) -> None:
    entries = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a", "b", "ab"]
    model = models.BPE({token: i for i, token in enumerate(entries)}, [("a", "b")], byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    falls_back, lines = Tokenizer(backend.to_str()), ["ab é ab", "ab ab"]
    texts = list(zip(lines, lines, strict=True))
    prepare(texts, (falls_back, falls_back), tmp_path / "train", LengthLimits(60, 60, "drop"), workers=1)
    stored = PairDataset.open(tmp_path / "train")
    drawn = BpeDropout(stored, (falls_back, falls_back), dropout=1.0, limits=(60, 60)).epoch(0, 0)
    lengths = [[len(falls_back.encode(line)) for line in lines], [len(falls_back.encode(lines[0])), len("ab ab") + 2]]
    assert [stored.src_lengths.tolist(), drawn.src_lengths.tolist()] == lengths


def test_a_tokenizer_without_words_is_refused(tokenizer: Tokenizer) -> None:
    spec = json.loads(tokenizer.json)
    spec["pre_tokenizer"] = None
    with pytest.raises(ConfigError, match=r"training.bpe_dropout knows no tokenizer that merges across words"):
        Merges(Tokenizer(json.dumps(spec)))


def test_a_tag_stays_before_a_sentence_in_other_pieces(tmp_path: Path) -> None:
    tagging = Tokenizer.train(LINES, kind="bpe", vocab_size=330, tags=("pt",))
    sources = [*tag_pairs([(line, line) for line in LINES], "pt"), *((line, line) for line in LINES)]
    prepare(sources, (TaggingEncoder(tagging), tagging), tmp_path / "train", LengthLimits(60, 60, "drop"), workers=1)
    stored = PairDataset.open(tmp_path / "train")
    read = BpeDropout(stored, (tagging, tagging), dropout=0.3, limits=(60, 60)).epoch(0, 1)
    every = np.arange(len(stored))
    before, after = stored.batch(every).src, read.batch(every).src
    assert (after[:, 1] == tagging.tags["pt"]).tolist() == [True] * len(LINES) + [False] * len(LINES)
    for row, line in zip(after.tolist(), (*LINES, *LINES), strict=True):
        assert tagging.decode(row) == line
    changed = (read.src_lengths != stored.src_lengths).reshape(2, -1)
    assert changed.any(1).tolist() == [True, True]
    assert before.shape[1] <= after.shape[1] <= 60
