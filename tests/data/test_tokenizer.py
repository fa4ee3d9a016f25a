"""Tokenizers: no text is lost where it must not be, and no text can produce a special token."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from repose.data.tokenizer import Kind, Tokenizer
from repose.system.errors import ConfigError, DataError, WriteError
from repose.system.token_ids import END, PAD, START, UNK

KINDS: tuple[Kind, ...] = ("wordpiece", "wordlevel", "bpe", "unigram")
LOSSLESS: tuple[Kind, ...] = ("bpe", "unigram")
TEXT = [
    "The old lighthouse keeper counts the ships, and the ships count on him.",
    "Żółta łódka płynie; the yellow boat does not wait!",
    "Der Leuchtturmwärter zählt die Schiffe: eins, zwei, drei ...",
    "灯台守は船を数える。 등대지기는 배를 센다. 灯塔看守人数着船。",
    "A line that spells [PAD] [UNK] [START] [END] and ##ing is a line like any other [END]",
] * 3
HARD = [
    "",
    " ",
    "  leading, trailing and   inner spaces  ",
    "tab\tcarriage\rnew\nline\r\n\x0b\x0c",
    "\u2028line\u2029and\u0085next\u00a0space\u3000\u200b\ufeff",
    "null \x00 and bell \x07, \x1c\x1d\x1e\x1f",
    "Zażółć, e\u0301 = \u00e9, \u0301 alone, \ufb01 ligature, \u212b",
    "👩\u200d👩\u200d👧 🏳️\u200d🌈 \U0010ffff \U000e0041",
    "日本語と한국어 한국어 和中文",
    "don't isn 't I'll 'S ##ing Ġword Ċ ▁under",
    "[PAD][UNK][START][END] <s> </s> [end]",
    "a" * 5000 + " " * 5000 + "é" * 5000,
]
HOSTILE = [
    "[END]",
    "[PAD]",
    " [START] ",
    "x [END] y",
    "[PAD][PAD]",
    "[[END]]",
    "[END",
    "x[END].",
    "[UNK] [START]\n[END]",
]


@pytest.fixture(scope="module")
def trained() -> dict[Kind, Tokenizer]:
    return {kind: Tokenizer.train(TEXT, kind=kind, vocab_size=600) for kind in KINDS}


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("text", HARD + HOSTILE)
def test_hard_text_survives(trained: dict[Kind, Tokenizer], kind: Kind, text: str) -> None:
    ids = trained[kind].encode(text)
    assert trained[kind].decode(ids) == text
    assert UNK not in ids


@settings(max_examples=200)
@given(text=st.one_of(st.text(), st.lists(st.sampled_from(HARD[:-1] + HOSTILE)).map("".join)))
def test_any_text_survives(trained: dict[Kind, Tokenizer], text: str) -> None:
    for kind in LOSSLESS:
        ids = trained[kind].encode(text)
        assert trained[kind].decode(ids) == text
        assert ids[0] == START
        assert ids[-1] == END
        assert all(i > END for i in ids[1:-1])


@pytest.mark.parametrize("kind", LOSSLESS)
def test_every_character_survives(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    text = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    every_16th = text[:0x3000] + text[0x3000::16]
    assert trained[kind].round_trip(every_16th) == every_16th


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HOSTILE)
def test_text_cannot_spell_a_special_token(trained: dict[Kind, Tokenizer], kind: Kind, text: str) -> None:
    for tokenizer in (trained[kind], pickle.loads(pickle.dumps(trained[kind]))):
        ids = tokenizer.encode(text)
        assert (ids[0], ids[-1]) == (START, END)
        assert not {PAD, START, END} & set(ids[1:-1])


@pytest.mark.parametrize("kind", ["wordpiece", "wordlevel"])
def test_a_spelled_special_token_is_ordinary_words(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    assert trained[kind].round_trip("[END]") == "[ END ]"
    assert UNK not in trained[kind].encode("[END] [UNK]")


def test_a_foreign_vocabulary_that_holds_the_word_end_gives_unk() -> None:
    backend = tokenizers.Tokenizer(
        models.WordLevel({"[PAD]": 0, "[UNK]": 1, "[START]": 2, "[END]": 3, "ship": 4}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    assert Tokenizer(backend.to_str()).encode("ship [END] [PAD] boat") == [START, 4, UNK, UNK, UNK, END]
    backend.model.unk_token = "<unk>"
    with pytest.raises(DataError, match="cannot encode a text"):
        Tokenizer(backend.to_str()).encode("boat")


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_and_batches(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    tokenizer = trained[kind]
    assert tokenizer.tokens([0, 1, 2, 3]) == ["[PAD]", "[UNK]", "[START]", "[END]"]
    assert tokenizer.encode("") == [START, END]
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode_batch(TEXT[:5]) == [tokenizer.encode(text) for text in TEXT[:5]]
    assert len(tokenizer.tokens(tokenizer.encode(TEXT[0]))) == len(tokenizer.encode(TEXT[0]))


@pytest.mark.parametrize("kind", KINDS)
def test_decode_drops_all_special_tokens_but_unk(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    ids = trained[kind].encode("the ships")
    assert trained[kind].decode([*ids, PAD, PAD]) == "the ships"
    assert trained[kind].decode(np.array(ids)) == "the ships"
    assert "[UNK]" in trained[kind].decode([*ids[:-1], UNK, END])
    assert trained[kind].decode([]) == ""


def test_wordpiece_decodes_as_the_field_does() -> None:
    tokenizer = Tokenizer.train(["walk walks do not , ."], kind="wordpiece", vocab_size=60)
    ids = [tokenizer.encode(word)[1:-1] for word in ("walks", ",", "do", "not", ".")]
    assert tokenizer.decode([i for word in ids for i in word]) == "walks , do not ."  # neither "walks," nor "don't"
    pieces = Tokenizer.train(["ab ac"], kind="wordpiece", vocab_size=10)  # a b c ##b ##c and ab
    assert pieces.tokens(pieces.encode("ac abc"))[1:-1] == ["a", "##c", "ab", "##c"]
    assert pieces.round_trip("ac abc") == "ac abc"


def test_unknown_words_are_unk_as_a_whole() -> None:
    tokenizer = Tokenizer.train(["the ship sails", "the ship"], kind="wordpiece", vocab_size=200)
    assert tokenizer.encode("the shipx")[2:] == [UNK, END]
    assert UNK not in tokenizer.encode("s" + "h" * 99)
    assert tokenizer.encode("s" + "h" * 100) == [START, UNK, END]
    words = Tokenizer.train(["the ship sails", "the ship"], kind="wordlevel", vocab_size=200, min_frequency=2)
    assert words.round_trip("the ship, sails") == "the ship [UNK] [UNK]"


def test_a_model_may_emit_broken_bytes(trained: dict[Kind, Tokenizer]) -> None:
    ids = trained["bpe"].encode("ÿ")  # no merge joins its two bytes
    assert len(ids) == 4
    assert trained["bpe"].decode(ids[:2]) == "\ufffd"


def test_a_bare_text_is_not_taken_for_several(trained: dict[Kind, Tokenizer]) -> None:
    for call in (trained["bpe"].encode_batch, lambda text: Tokenizer.train(text, kind="bpe", vocab_size=300)):
        with pytest.raises(
            ConfigError, match=r"a tokenizer takes a list of texts, not 'the cat': write \[text\] for one"
        ):
            call("the cat")


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(trained: dict[Kind, Tokenizer], kind: Kind, tmp_path: Path) -> None:
    path, again = tmp_path / "tokenizer.json", tmp_path / "again.json"
    trained[kind].save(path)
    loaded = Tokenizer.load(str(path))
    loaded.save(str(again))
    assert again.read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.json", "tokenizer.json"]
    for other in (loaded, pickle.loads(pickle.dumps(loaded))):
        assert other.digest == trained[kind].digest
        assert (other.kind, other.vocab_size, other.lossless) == (kind, trained[kind].vocab_size, kind in LOSSLESS)
        assert (other.lowercase, other.strip_accents) == (False, False)
        assert other.encode_batch(TEXT) == trained[kind].encode_batch(TEXT)
    # Other programs that read the file frame a text in the same way.
    assert tokenizers.Tokenizer.from_file(str(path)).encode("the ships").ids == loaded.encode("the ships")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, False), (False, True), (True, True)])
def test_options_survive_saving(kind: Kind, lowercase: bool, strip_accents: bool, tmp_path: Path) -> None:
    lines = ["Zażółć ŻÓŁTĄ łódkę", "zażółć żółtą łódkę", "zazołc zołta łodke ZOŁTA", "배", "कि"]
    made = Tokenizer.train(lines, kind=kind, vocab_size=400, lowercase=lowercase, strip_accents=strip_accents)
    made.save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.lossless) == (lowercase, strip_accents, False)
    expected = "ŻÓŁTĄ łódkę"
    if strip_accents:
        expected = "ZOŁTA łodke"  # ł is a letter of its own
    if lowercase:
        expected = expected.lower()
    assert tokenizer.round_trip("ŻÓŁTĄ łódkę") == expected
    # Stripping takes nonspacing marks only, and leaves Hangul and spacing vowel signs as they were.
    assert tokenizer.round_trip("배") == "배"
    assert tokenizer.round_trip("कि") == "कि"


@pytest.mark.parametrize(
    ("normalizer", "lowercase", "strip_accents"),
    [
        (normalizers.BertNormalizer(lowercase=True), True, True),  # strip_accents is not told: it follows
        (normalizers.BertNormalizer(lowercase=True, strip_accents=False), True, False),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), False, True),
        (normalizers.NFC(), False, False),
    ],
)
def test_a_foreign_normalizer_is_recognised(
    trained: dict[Kind, Tokenizer], normalizer: normalizers.Normalizer, lowercase: bool, strip_accents: bool
) -> None:
    backend = tokenizers.Tokenizer.from_str(trained["bpe"].json)
    backend.normalizer = normalizer
    tokenizer = Tokenizer(backend.to_str())
    assert (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.lossless) == (lowercase, strip_accents, False)


@pytest.mark.parametrize("change", ["prefix space", "no regex", "no byte", "added token", "no decoder"])
def test_lossless_is_not_claimed_of_a_changed_construction(trained: dict[Kind, Tokenizer], change: str) -> None:
    spec = json.loads(trained["unigram"].json)
    match change:
        case "prefix space":
            spec["pre_tokenizer"]["add_prefix_space"] = True
        case "no regex":
            spec["pre_tokenizer"]["use_regex"] = False
        case "no byte":
            spec["model"]["vocab"] = [[p if p != "ÿ" else "ÿÿ", score] for p, score in spec["model"]["vocab"]]
        case "added token":
            spec["added_tokens"].append(
                {**spec["added_tokens"][3], "id": len(spec["model"]["vocab"]), "content": "ship", "special": False}
            )
            spec["model"]["vocab"].append(["ship", -9.0])
        case "no decoder":
            spec["decoder"] = None
    assert Tokenizer(json.dumps(spec)).lossless is False


def test_digest_is_of_the_content_not_of_the_layout(trained: dict[Kind, Tokenizer]) -> None:
    spec = json.loads(trained["bpe"].json)
    relaid = json.dumps(dict(reversed(spec.items())), indent=7)
    assert relaid != trained["bpe"].json
    assert Tokenizer(relaid).digest == trained["bpe"].digest
    spec["pre_tokenizer"]["trim_offsets"] = not spec["pre_tokenizer"]["trim_offsets"]
    assert Tokenizer(json.dumps(spec)).digest != trained["bpe"].digest
    assert len({tokenizer.digest for tokenizer in trained.values()}) == len(KINDS)


@pytest.mark.parametrize("kind", ["wordpiece", "wordlevel", "bpe"])
def test_training_is_deterministic(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    again = Tokenizer.train(iter(TEXT), kind=kind, vocab_size=600)
    assert again.json == trained[kind].json


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_is_as_large_as_the_text_allows(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    few = Tokenizer.train(["ab ab"], kind=kind, vocab_size=8000)
    assert few.vocab_size < 300
    assert trained[kind].vocab_size <= 600
    assert len(set(trained[kind].tokens(range(trained[kind].vocab_size)))) == trained[kind].vocab_size


@pytest.mark.parametrize(("kind", "minimum"), [("bpe", 261), ("unigram", 261), ("wordlevel", 5), ("wordpiece", 13)])
def test_a_vocabulary_below_the_minimum_is_refused(kind: Kind, minimum: int) -> None:
    lines = ["abc abd", "xbd abd"]  # wordpiece: a b c d x ##b ##c ##d
    assert Tokenizer.train(lines, kind=kind, vocab_size=minimum).vocab_size <= minimum
    for asked in (minimum - 1, 0, -3):
        with pytest.raises(ConfigError, match=f"vocab_size is {asked}, but {kind} needs at least {minimum} "):
            Tokenizer.train(lines, kind=kind, vocab_size=asked)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], ["", "  ", "\n\u2028"]])
def test_training_needs_text(kind: Kind, lines: list[str]) -> None:
    with pytest.raises(DataError, match="no text to train on"):
        Tokenizer.train(lines, kind=kind, vocab_size=300)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="knows no min_frequency"):
        Tokenizer.train(TEXT, kind="unigram", vocab_size=300, min_frequency=2)
    with pytest.raises(ConfigError, match="no word is left at min_frequency 99"):
        Tokenizer.train(TEXT, kind="wordlevel", vocab_size=300, min_frequency=99)
    given: dict[str, Any] = {"kind": "bpe", "vocab_size": 300}
    for wrong, sentence in (
        ({"kind": "BPE"}, "there is no kind of tokenizer 'BPE': known are wordpiece, "),
        ({"kind": None}, "there is no kind of tokenizer None: known are wordpiece, "),
        ({"vocab_size": "300"}, "vocab_size = '300': give a whole number of tokens"),
        ({"vocab_size": True}, "vocab_size = True: give a whole number of tokens"),
        ({"min_frequency": 0}, "min_frequency = 0: give a whole number, at least 1"),
        ({"min_frequency": 1.5}, "min_frequency = 1.5: give a whole number, at least 1"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
            Tokenizer.train(TEXT, **{**given, **wrong})


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogates_are_refused(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    with pytest.raises(DataError, match=r"'broken \\ud800' holds a lone surrogate"):
        Tokenizer.train(["fine", "broken \ud800"], kind=kind, vocab_size=300)
    with pytest.raises(DataError, match=r"'broken \\ud800' holds a lone surrogate"):
        trained[kind].encode_batch(["fine", "broken \ud800"])


def test_errors_of_the_caller_pass_through_training() -> None:
    def lines() -> "list[str]":
        yield "fine"
        raise DataError("line 2 is damaged")

    with pytest.raises(DataError, match="line 2 is damaged"):
        Tokenizer.train(lines(), kind="bpe", vocab_size=300)


@pytest.mark.parametrize("foreign", [-1, 10**6, 10**20])
def test_foreign_ids_are_refused(trained: dict[Kind, Tokenizer], foreign: int) -> None:
    with pytest.raises(DataError, match=f"id {foreign} is not in this tokenizer of"):
        trained["bpe"].decode([5, foreign])
    with pytest.raises(DataError, match=f"id {foreign} is not in this tokenizer of"):
        trained["bpe"].tokens([foreign])


def test_unreadable_files_are_refused_in_one_sentence(trained: dict[Kind, Tokenizer], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match=r"no tokenizer can be read from .*: No such file"):
        Tokenizer.load(path)
    with pytest.raises(DataError, match="no tokenizer can be read from"):
        Tokenizer.load(tmp_path)
    whole = trained["bpe"].json.encode()
    for damaged in (b"", b"{}", b"[1, 2]", whole[: len(whole) // 2], whole + b"}"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"is damaged or no tokenizer\.json"):
            Tokenizer.load(path)
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(DataError, match="not UTF-8"):
        Tokenizer.load(path)
    with pytest.raises(WriteError, match=r"tokenizer\.json/inner cannot be written"):
        trained["bpe"].save(path / "inner")


def test_a_tokenizer_with_other_special_tokens_is_refused(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "[START]": 2, "[END]": 3}, "[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"needs \[PAD\], \[UNK\], \[START\], \[END\] as its ids 0, 1, 2, 3"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_foreign_file_cannot_truncate_or_pad(trained: dict[Kind, Tokenizer]) -> None:
    backend = tokenizers.Tokenizer.from_str(trained["bpe"].json)
    backend.enable_truncation(3)
    backend.enable_padding(length=90)
    assert Tokenizer(backend.to_str()).encode(TEXT[0]) == trained["bpe"].encode(TEXT[0])


def test_a_foreign_file_cannot_draw(trained: dict[Kind, Tokenizer]) -> None:
    spec = json.loads(trained["bpe"].json)
    spec["model"]["dropout"] = 0.5
    drawing = Tokenizer(json.dumps(spec))
    assert all(drawing.encode(TEXT[0]) == trained["bpe"].encode(TEXT[0]) for _ in range(20))


def test_long_runs_train_in_bounded_time() -> None:
    # Uncut, each of the 300 merges would go through all of the run: minutes instead of a moment.
    run = "".join(chr(97 + (i * i // 7) % 26) for i in range(300_000))
    tokenizer = Tokenizer.train([run, " " * 300_000 + "x"], kind="bpe", vocab_size=600)
    assert tokenizer.round_trip(run) == run


FORKED = """
import os, sys
from repose.data.tokenizer import Tokenizer
lines = ["the ships count on him"] * 3000
tokenizer = Tokenizer.train(lines, kind="bpe", vocab_size=270)
tokenizer.encode_batch(lines)
assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
child = os.fork()
ids = tokenizer.encode_batch(lines)
if not child:
    os._exit(0 if len(ids) == 3000 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_nothing_is_printed_and_a_forked_process_goes_on() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", FORKED], env=environment, capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_id_far_beyond_the_vocabulary_is_refused() -> None:
    """The library would take memory for every number up to it."""
    spec = json.loads(Tokenizer.train(["a b c"], kind="wordlevel", vocab_size=9).json)
    spec["model"]["vocab"]["a"] = 2**31
    with pytest.raises(DataError, match=r"it numbers 7 tokens up to 2,147,483,648"):
        Tokenizer(json.dumps(spec))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_digits_are_tokens_of_their_own(kind: Kind) -> None:
    lines = [f"in {number} the {number % 7}th of {number * 31}, no. {number}" for number in range(1900, 2000)]
    tokenizer = Tokenizer.train(lines, kind=kind, vocab_size=400, single_digits=True)
    for text in ("in 1987", "7,000,000 and ¾ of २०"):
        pieces = tokenizer.tokens(tokenizer.encode(text))
        assert all(sum(character.isdigit() for character in piece) <= 1 for piece in pieces)
    assert tokenizer.lossless == (kind in LOSSLESS)
    if tokenizer.lossless:
        assert tokenizer.round_trip("in 1987  the 12th,\t3x4 = 12") == "in 1987  the 12th,\t3x4 = 12"


def test_a_word_level_tokenizer_cannot_take_digits_apart() -> None:
    with pytest.raises(ConfigError, match="single_digits"):
        Tokenizer.train(["a 12"], kind="wordlevel", vocab_size=10, single_digits=True)


@pytest.mark.parametrize(
    "given",
    [
        {"lines": None},
        {"lines": [None]},
        {"tags": "en"},
        {"tags": ["END"]},
        {"tags": ["en", "a b"]},
        {"vocab_size": 10**9},
    ],
)
def test_what_is_no_text_and_too_large_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Tokenizer.train(**{"lines": ["the cat"], "kind": "bpe", "vocab_size": 300, **given})


@pytest.mark.parametrize("ids", ["99", None, [5.9], ["9"]])
def test_ids_are_whole_numbers(trained: dict[Kind, Tokenizer], ids: Any) -> None:
    for read in (trained["bpe"].decode, trained["bpe"].tokens):
        with pytest.raises(DataError, match="ids are whole numbers in a list, not"):
            read(ids)


def test_texts_may_come_from_an_iterator(trained: dict[Kind, Tokenizer]) -> None:
    tokenizer = trained["bpe"]
    assert tokenizer.encode_batch(text for text in ["the", "cat"]) == tokenizer.encode_batch(["the", "cat"])
    for wrong in (["a"], None, b"a"):
        with pytest.raises(ConfigError, match="a text is expected"):
            tokenizer.encode(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_know_where_they_stand(trained: dict[Kind, Tokenizer], kind: Kind) -> None:
    tokenizer, text = trained[kind], "  The old łódka, 灯台守 wait!"
    ids, spans = tokenizer.encode(text), tokenizer.spans(text)
    assert len(spans) == len(ids)
    assert (spans[0], spans[-1]) == ((0, 0), (len(text), len(text)))
    covered = {place for start, end in spans for place in range(start, end)}
    assert "".join(text[place] for place in sorted(covered)) == "".join(text.split())
    written = tokenizer.decode(ids)
    found = tokenizer.decoded_spans(ids)
    assert len(found) == len(ids)
    covered = {place for start, end in found for place in range(start, end)}
    assert "".join(written[place] for place in sorted(covered)) == "".join(written.split())
    old = next(place for place, (start, end) in enumerate(found) if written[start:end].startswith("o"))
    assert old >= 1
    assert tokenizer.spans("") == [(0, 0), (0, 0)]
