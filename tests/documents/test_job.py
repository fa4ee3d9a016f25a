"""Translating documents: what the model gets, where its words go, and where marks without words go."""

import errno
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from repose.data.input_warning import InputWarning, Unlike, input_warning
from repose.decoding.lengths import Lengths
from repose.decoding.parts import Part, pieces_together
from repose.decoding.translator import Hypothesis, Translation
from repose.documents import job as documents_job
from repose.documents.alignment import for_placement, token_spans, units_of, words_of
from repose.documents.formats import FORMATS, read_document
from repose.documents.html import HtmlDocument
from repose.documents.job import Job, Reader, translate_document, translate_text
from repose.documents.plain import PlainDocument
from repose.system.errors import ConfigError, DataError

SOURCE: Any = SimpleNamespace(encode=list, most_tokens=len, spans=lambda _: [(0, 0), (0, 3), (4, 7), (7, 8), (8, 8)])
TARGET: Any = SimpleNamespace(ids=list, decoded_spans=lambda _: [(0, 3), (3, 6), (6, 7)])
READER = Reader("en", Lengths(SOURCE, usual=999, longest=999), TARGET)

ENGLISH = "The cat saw the white dog in the park yesterday, and then it went home to sleep."


def translated(rows: list[list[float]], src: int = 5, text: str = "abcdef.") -> Translation:
    weights = np.zeros((2, 1, len(rows) + 1, src), np.float32)
    weights[-1, 0, : len(rows)] = rows
    tokens = ("abc", "##def", ".")
    return Translation(text, 0.0, (Hypothesis(text, tokens, 0.0, 0.0, True),), ("",) * src, False, weights)


def test_a_word_came_from_what_its_tokens_looked_at_most_together() -> None:
    made = translated([[0.9, 0.0, 0.1, 0, 0], [0, 0.3, 0.3, 0, 0.4], [0, 0, 0, 0.4, 0.6]])
    word, stop = units_of("one two.", made, SOURCE, TARGET)
    assert (word.start, word.end, word.came_from) == (0, 6, 4)
    assert (stop.start, stop.end, stop.came_from) == (6, 7, 7)
    assert stop.attention is not None
    assert stop.attention.within(7, 8) == pytest.approx(0.4)
    assert stop.attention.within(0, 7) == 0.0
    moved = stop.moved(3, 10)
    assert (moved.start, moved.came_from) == (9, 17)
    assert moved.attention is not None
    assert moved.attention.within(17, 18) == pytest.approx(0.4)


def test_a_tag_before_the_source_moves_its_tokens() -> None:
    assert token_spans("one two.", 6, SOURCE) == [(0, 0), (0, 0), (0, 3), (4, 7), (7, 8), (0, 0)]
    assert token_spans("one two.", 4, SOURCE) == [(0, 0), (0, 3), (4, 7), (0, 0)], "a long source was cut"
    made = translated([[0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]], src=6)
    assert [unit.came_from for unit in units_of("one two.", made, SOURCE, TARGET)] == [4, 7]


def test_without_attention_words_are_in_proportion() -> None:
    made = Translation("abc def", 0.0, (), (), False)
    assert [unit.came_from for unit in units_of("one two three.", made, SOURCE, TARGET)] == [0, 8]


def test_words() -> None:
    text = "Don't e-mail (3.5 हिन्दी) 猫が."
    found = [text[start:end] for start, end in words_of(text)]
    assert found == ["Don't", "e-mail", "(", "3.5", "हिन्दी", ")", "猫", "が", "."]


def test_what_has_no_letters_is_not_translated() -> None:
    job = Job(PlainDocument("One. 2. Three.\n12:30 — 5 €\n\n  four"), READER)
    assert job.sentences == ["One.", "2. Three.", "four"] or job.sentences == ["One.", "Three.", "four"]
    assert job.with_attention == [False] * len(job.sentences)
    marked = Job(HtmlDocument("<p>one <b>two</b></p><p>three"), READER)
    assert (marked.sentences, marked.with_attention) == (["one two", "three"], [True, False])


def test_long_sentences_are_split_and_counted() -> None:
    reader = Reader("en", Lengths(SOURCE, usual=20, longest=20), TARGET)
    job = Job(PlainDocument("a first clause, a second one\nshort"), reader)
    assert job.sentences == ["a first clause,", "a second one", "short"]
    assert job.too_long == 1


def test_the_tag_of_the_language_that_is_asked_for_takes_a_token() -> None:
    tokenizer = SimpleNamespace(encode=str.split, most_tokens=len, spans=None)
    model = SimpleNamespace(
        tag=None, max_length=9, config={"src_lang": "en"}, src_tokenizer=tokenizer, tgt_tokenizer=None
    )
    text = "uno two three four, five six seven eight nïne"
    plain, tagged = (Job(PlainDocument(text), Reader.of(model, to)) for to in (None, "pt"))  # type: ignore[arg-type]
    assert plain.sentences == [text]
    assert tagged.sentences == ["uno two three four,", "five six seven eight nïne"]


def test_what_cannot_be_split_is_cut_where_the_model_has_read_nothing_longer() -> None:
    """As `repose translate` and the server do."""
    read: list[str] = []

    def translate(texts: list[str], attention: bool) -> list[Translation]:  # noqa: ARG001
        read.extend(texts)
        return [Translation(text.upper(), 0.0, (), (), False) for text in texts]

    tokenizer = SimpleNamespace(encode=list, most_tokens=len, spans=None)
    model: Any = SimpleNamespace(
        tag=None,
        max_length=99,
        config={"src_lang": "th", "max_src_tokens": 12},
        src_tokenizer=tokenizer,
        tgt_tokenizer=None,
        translate=translate,
    )
    job = Job(PlainDocument("ก" * 50 + "\nสั้น"), Reader.of(model))
    _, cut = translate_document(model, job)
    assert (sorted(map(len, read)), cut) == ([4, 12], 1)


def test_of_attention_only_what_markup_is_placed_by_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_job, "_AT_ONCE", 2)
    alive: list[int] = []
    attention = np.random.default_rng(0).random((3, 4, 3, 5), dtype=np.float32)
    best = Hypothesis("ONE TWO", ("ONE", "TWO"), -1.0, -1.0, True)
    made = Translation("ONE TWO", -1.0, (best,), ("[START]", "one", "two", ".", "[END]"), False, attention)
    small = for_placement(made)
    assert small.attention is not None
    assert small.attention.shape == (1, 1, 3, 5)
    assert [u.came_from for u in units_of("one two.", small, SOURCE, TARGET)] == [
        u.came_from for u in units_of("one two.", made, SOURCE, TARGET)
    ]

    def translate(texts: list[str], attention: bool) -> list[Translation]:
        alive.append(len(texts))
        return [made if attention else replace(made, attention=None) for _ in texts]

    model: Any = SimpleNamespace(translate=translate)
    job = Job(HtmlDocument("<p>one <b>two</b>." * 3), READER)
    translate_document(model, job)
    assert alive == [2, 1]


def test_a_model_that_writes_line_breaks_makes_no_lines() -> None:
    job = Job(PlainDocument("one\ntwo"), READER)
    found = job.finish([Translation(text, 0.0, (), (), False) for text in ("A\nB\u2028C", "D")])
    assert found.decode() == "A B C\nD"


def test_a_text_is_translated_in_one_call() -> None:
    def translate(texts: list[str], beam_size: int, **others: Any) -> list[Translation]:
        assert beam_size == 2
        assert not any(others.values())
        return [Translation(text.upper(), 0.0, (), (), False) for text in texts]

    tokenizer = SimpleNamespace(encode=str.split, most_tokens=len, spans=None)
    model: Any = SimpleNamespace(
        tag=None,
        max_length=99,
        config={"src_lang": "en"},
        src_tokenizer=tokenizer,
        tgt_tokenizer=None,
        translate=translate,
    )
    text = "One is here. Two, too.\r\n\n  - Three\t2026\n"
    assert translate_text(model, text, beam_size=2) == text.upper()
    with pytest.raises(ConfigError, match="translate_text takes a text"):
        translate_text(model, ["One."])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"takes a translator, not 'runs/mine': give it repose\.load"):
        translate_text("runs/mine", "One.")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="lone surrogate"):
        translate_text(model, "One.\n\ud800 2")


def test_a_translation_of_each_sentence_is_asked_for() -> None:
    job = Job(PlainDocument("one\ntwo"), READER)
    for number in (0, 1, 3):
        with pytest.raises(DataError, match=rf"sentences and translations differ \(2 and {number}\)"):
            job.finish([Translation("A", 0.0, (), (), False)] * number)


def test_parts_that_were_glued_get_a_space_in_a_language_that_writes_them() -> None:
    parts = [Part(" ", "猫。", ""), Part("", "犬。", "\n")]
    assert pieces_together(["A cat.", "A dog. "], parts) == [Part(" ", "A cat.", ""), Part(" ", "A dog.", "\n")]


def test_without_the_identifier_no_language_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert input_warning([ENGLISH], ["Latin"], "pt") is not None
    monkeypatch.setitem(sys.modules, "py3langid", None)
    assert input_warning([ENGLISH], ["Latin"], "pt") is None
    assert input_warning(["Привет, мир"], ["Latin"], "pt") is not None


def test_no_language_is_told_where_the_identifier_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It unpacks itself where temporary files lie."""

    def unpack(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("repose.data.input_warning.other_language", unpack)
    assert input_warning([ENGLISH], ["Latin"], "pt") is None


@pytest.mark.parametrize(
    ("texts", "scripts", "language", "wanted"),
    [
        (["Привет, мир"], ["Latin"], "und", InputWarning(Unlike.SCRIPT, "Cyrillic", ("Latin",))),
        (["O gato"], ["Latin"], "pt", None),
        (["12", "— 5 €"], ["Latin"], "pt", None),
        (["Привет"], [], "und", None),
        (["https://a.example", "a@b.example", "Привет"], ["Cyrillic"], "und", None),
        (["https://a.example"], ["Cyrillic"], "und", None),
        ([ENGLISH], ["Latin"], "pt", InputWarning(Unlike.LANGUAGE, "en", ("pt",))),
        ([ENGLISH], ["Latin"], "en-GB", None),
        ([ENGLISH], ["Latin"], "xyz", None),
    ],
)  # fmt: skip
def test_warnings(texts: list[str], scripts: list[str], language: str, wanted: InputWarning | None) -> None:
    found = input_warning(texts, scripts, language)
    assert found == wanted
    if found is not None:
        assert found.found in found.sentence


def same(data: bytes, suffix: str) -> bytes:
    """Through a model that says what it reads."""
    job = Job(read_document(data, suffix), READER)
    return job.finish([Translation(sentence, 0.0, (), (), False) for sentence in job.sentences])


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        ("é\r\n".encode(), ".txt"),
        ("é".encode("utf-8-sig"), ".TXT"),
        (b"\xff\xfe" + "1\n00:00:01,000 --> 00:00:02,000\né€".encode("utf-16-le"), ".srt"),
        ('<meta charset="iso-8859-1"><p>é'.encode("latin-1"), ".html"),
        (b'<meta http-equiv="x" content="text/html; charset=windows-1251"><p>' + "да".encode("cp1251"), ".htm"),
        ("<meta charset=utf-8><p>é€".encode(), ".html"),
        ("<meta charset=zip><p>é".encode(), ".html"),
        ("<meta charset=punycode><p>é-".encode(), ".html"),
        (b"<meta charset=utf-16><p>said ", ".html"),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><p>é'.encode("latin-1"), ".html"),
    ],
)
def test_encodings_are_kept(data: bytes, suffix: str) -> None:
    assert same(data, suffix) == data


def test_paragraphs_are_of_plain_text() -> None:
    assert read_document(b"one\ntwo", ".TXT", paragraphs=True).segments[0].text == "one two"
    with pytest.raises(ConfigError, match=r"paragraphs is for plain text \(.txt\): a file that ends in '.html' says"):
        read_document(b"<p>x", ".html", paragraphs=True)


@pytest.mark.parametrize(
    ("label", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "“said” €"),
        ("us-ascii", "cp1252", "“é”"),
        ("latin1", "latin-1", "é\x81"),
        ("iso-8859-9", "cp1254", "“ş”"),
        ("Shift_JIS", "cp932", "①㈱猫"),
        ("x-sjis", "cp932", "①"),
        ("gb2312", "gb18030", "镕猫€"),
        ("big5", "big5hkscs", "①猫"),
        ("euc-kr", "cp949", "똠"),
        ("windows-949", "cp949", "똠"),
    ],
)
def test_a_declared_encoding_is_what_browsers_mean_by_it(label: str, encoding: str, text: str) -> None:
    data = f"<meta charset={label}><p>{text} x".encode(encoding)
    assert [segment.text for segment in read_document(data, ".html").segments] == [f"{text} x"]
    assert same(data, ".html") == data


def test_text_of_four_bytes_a_letter_is_refused() -> None:
    for encoding in ("utf-32-le", "utf-32-be"):
        with pytest.raises(DataError, match="in UTF-32: save it in UTF-8 first"):
            read_document("\ufeffone".encode(encoding), ".txt")


def test_a_page_that_is_not_in_the_encoding_that_it_declares() -> None:
    with pytest.raises(DataError, match="neither in shift_jis, as it declares, nor in UTF-8"):
        read_document(b"<meta charset=Shift_JIS><p>\x81\xff", ".html")


def test_a_page_that_declares_what_it_cannot_be_in_is_utf_8() -> None:
    for name in (b"utf-16", b"utf-7", b"punycode"):
        document = read_document(b"<meta charset=%s><p>said" % name, ".html")
        assert [segment.text for segment in document.segments] == ["said"]


def test_a_page_whose_encoding_lacks_a_character_gets_its_number() -> None:
    document = read_document(b'<meta charset="iso-8859-2"><p>x', ".html")
    job: Any = Job(document, READER)
    assert job.finish([Translation("€", 0.0, (), (), False)]).endswith(b"<p>&#8364;")


@pytest.mark.parametrize(
    ("data", "suffix"), [(b"\xe9t\xe9", ".txt"), (b"\xe9", ".vtt"), (b"x", ".docx"), (b"x", ".odt")]
)
def test_what_cannot_be_read_is_a_sentence(data: bytes, suffix: str) -> None:
    with pytest.raises(DataError):
        read_document(data, suffix)


@pytest.mark.parametrize("order", ["le", "be"])
def test_a_file_in_utf_16_without_its_mark_is_not_translated_as_noise(order: str) -> None:
    with pytest.raises(
        DataError, match=f"in UTF-16 without its mark: convert it with `iconv -f utf-16{order} -t utf-8`"
    ):
        read_document("O gato é preto.\nÉ.\n".encode(f"utf-16-{order}"), ".txt")


def test_unknown_suffixes() -> None:
    for suffix in (".pdf", ""):
        with pytest.raises(ConfigError, match="cannot be translated"):
            read_document(b"", suffix)
    with pytest.raises(ConfigError, match="takes the bytes of a file, not str"):
        read_document("One.", ".txt")  # type: ignore[arg-type]
    assert [suffix for suffix, each in FORMATS.items() if not each.archive] == [".txt", ".html", ".htm", ".srt", ".vtt"]


def test_the_room_needs_no_torch(run_python: Callable[[str], str]) -> None:
    code = "import sys, repose.documents.formats, repose.documents.job; print('torch' in sys.modules)"
    assert run_python(code).strip() == "False"


@pytest.mark.parametrize("text", ["1\n00:00:01.5 -> 00:00:02.5\nO gato.\n", "{1}{50}O gato.\n", "O gato.\n"])
def test_subtitles_without_a_cue_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="no cue was found"):
        same(text.encode(), ".srt")
    assert same(b"1\n2\n", ".srt") == b"1\n2\n"
