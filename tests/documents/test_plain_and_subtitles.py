"""Plain text and subtitles: white space, numbers and timings stay."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repose.documents import plain, subtitles
from repose.documents.plain import PlainDocument
from repose.documents.segment import Text
from repose.documents.subtitles import SubtitleDocument
from repose.system.errors import DataError

Shout = Callable[..., str]


@pytest.mark.parametrize(
    ("text", "lines", "paragraphs"),
    [
        ("one two\nthree.", "ONE TWO\nTHREE.", "ONE TWO THREE."),
        ("  one\r\n\ttwo  \r\n\r\n\r\nthree", "  ONE\r\n\tTWO  \r\n\r\n\r\nTHREE", "  ONE TWO  \r\n\r\n\r\nTHREE"),
        ("- one\ntwo\n- three", "- ONE\nTWO\n- THREE", "- ONE TWO\n- THREE"),
        ("12\n\n3. one\n# two", "12\n\n3. ONE\n# TWO", "12\n\n3. ONE\n# TWO"),
        ("日本。\n猫。\n", "日本。\n猫。\n", "日本。猫。\n"),
        ("One.  Two.\tThree.", "ONE.  TWO.\tTHREE.", "ONE.  TWO.\tTHREE."),
        ("we meet on\n3. May", "WE MEET ON\n3. MAY", "WE MEET ON 3. MAY"),
        ("he came\n– as ever –\nlate", "HE CAME\n– AS EVER –\nLATE", "HE CAME – AS EVER – LATE"),
        ("a list\n1. one\n2. two,\n3. three", "A LIST\n1. ONE\n2. TWO,\n3. THREE", "A LIST\n1. ONE\n2. TWO,\n3. THREE"),
        ("– one\n— two\ngoes on", "– ONE\n— TWO\nGOES ON", "– ONE\n— TWO GOES ON"),
        ("저는 학교에\n갔습니다.", "저는 학교에\n갔습니다.", "저는 학교에 갔습니다."),
        ("## head\ntext\non", "## HEAD\nTEXT\nON", "## HEAD\nTEXT ON"),
        ("> > one\n> two", "> > ONE\n> TWO", "> > ONE\n> TWO"),
        ("", "", ""),
    ],
)
def test_white_space_and_what_begins_a_line_of_a_list_stay(
    shout: Shout, text: str, lines: str, paragraphs: str
) -> None:
    assert shout(PlainDocument(text)) == lines
    assert shout(PlainDocument(text, paragraphs=True)) == paragraphs


@given(st.text(alphabet="aB. \n\r\t-1\u2028é猫", max_size=60))
def test_lines_are_kept(shout: Shout, text: str) -> None:
    document = PlainDocument(text)
    assert document.text([[Text(segment.text)] for segment in document.segments]) == text
    found = shout(document)
    assert "".join(found.split()) == "".join(text.upper().split())
    assert re.findall("[\r\n]+", found) == re.findall("[\r\n]+", text)
    whole = PlainDocument(text, paragraphs=True)
    assert "".join(shout(whole).split()) == "".join(text.upper().split())


SRT = """1
00:00:01,000 --> 00:00:02,500 X1:40
<i>one two</i> three
four & five < six

2
00:00:03,000 --> 00:00:04,000
- {\\an8}one?
- <b>two</b>

after a blank line
3
00:00:05,000 --> 00:00:06,000
♪
4
00:00:07,000 --> 00:00:08,000
seven</i> eight
"""


def test_subrip(shout: Shout) -> None:
    wanted = SRT.replace("<i>one two</i> three\nfour & five < six", "<i>ONE TWO</i> THREE\nFOUR & FIVE < SIX")
    wanted = wanted.replace("one?", "ONE?").replace("two</b>", "TWO</b>").replace("seven</i> eight", "SEVEN</i> EIGHT")
    wanted = wanted.replace("after a blank line", "AFTER A BLANK LINE")
    assert shout(SubtitleDocument(SRT, webvtt=False)) == wanted
    windows = SRT.replace("\n", "\r\n")
    assert shout(SubtitleDocument(windows, webvtt=False)) == wanted.replace("\n", "\r\n")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("cue", "order", "wanted"),
    [
        ("la casa <i>grande\nroja</i>", (0, 2, 3, 1), "LA <i>GRANDE\nROJA</i> CASA"),
        ("<i>uno\ndos</i> tres cuatro", (3, 2, 1, 0), "CUATRO TRES\n<i>DOS UNO</i>"),
    ],
)
def test_tags_around_words_of_two_lines_go_with_them(
    shout: Shout, cue: str, order: tuple[int, ...], wanted: str, end: str
) -> None:
    time = "1\n00:01,000 --> 00:02,000\n"
    source = (time + cue).replace("\n", end)
    found = shout(SubtitleDocument(source, webvtt=False), lambda _: order)
    assert found == (time + wanted).replace("\n", end)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blank_lines_stay_in_a_cue_of_subrip(shout: Shout, end: str) -> None:
    source = (
        "1\n00:01,000 --> 00:02,000\n\none\n\n\n2\n00:03,000 --> 00:04,000\ntwo,\nthree\n\n \nfour\n\n"
        "3\n00:05,000 --> 00:06,000\n\n4\n00:07,000 --> 00:08,000\n5\n\n\nsix"
    ).replace("\n", end)
    document = SubtitleDocument(source, webvtt=False)
    assert [segment.text for segment in document.segments] == ["one", "two, three", "four", "six"]
    assert shout(document) == source.upper()


def test_webvtt(shout: Shout) -> None:
    source = (
        "WEBVTT - a title\n\nNOTE kept\nas it is\n\nSTYLE\n::cue { color: red }\n\n"
        "intro\n00:01.000 --> 00:02.000 line:0\n"
        "<v Bob>one &amp; <c.loud>two</c> <00:01.500>three\n"
    )
    found = shout(SubtitleDocument(source, webvtt=True))
    assert found == source.replace("one", "ONE").replace("two", "TWO").replace("three", "THREE")


@pytest.mark.parametrize(
    ("cue", "wanted"),
    [
        ("- Are you\ncoming home?\n- No, I\nam not.", "- ARE YOU\nCOMING HOME?\n- NO, I\nAM NOT."),
        ("where is it?\n- here it is.", "WHERE IS IT?\n- HERE IT IS."),
        ("<i>Where?</i>\n<i>- Here.</i>", "<i>WHERE?</i>\n<i>- HERE.</i>"),
        ("<i>- Where?</i>\n- 12 miles", "<i>- WHERE?</i>\n- 12 MILES"),
        ("{\\an8}- Where?\n<i><b>- Here.</b></i>", "{\\an8}- WHERE?\n<i><b>- HERE.</b></i>"),
        ("<i>- Where</i> is it?\n- Here.", "- <i>WHERE</i> IS IT?\n- HERE."),
        ("<v Bob>a long line\nof mine\n<v Ann>no", "<v Bob>A LONG LINE\nOF MINE\n<v Ann>NO"),
        ("<v.loud Bob>one</v> <v Ann>two\nthree</v>", "<v.loud Bob>ONE</v> <v Ann>TWO\nTHREE</v>"),
    ],
)
def test_what_each_speaker_says_is_translated_apart(shout: Shout, cue: str, wanted: str) -> None:
    document = SubtitleDocument("00:01.000 --> 00:02.000\n" + cue, webvtt=True)
    assert len(document.segments) == 2
    assert not any("-" in segment.text for segment in document.segments), "a dash is no word"
    assert shout(document).split("\n", 1)[1] == wanted


def test_the_reading_of_a_character_is_no_part_of_the_sentence(shout: Shout) -> None:
    document = SubtitleDocument("00:01.000 --> 00:02.000\n<ruby>漢<rt>kan</rt>字</ruby>を", webvtt=True)
    assert [segment.text for segment in document.segments] == ["漢字を"]
    assert shout(document).endswith("<ruby>漢<rt>kan</rt>字</ruby>を")


@pytest.mark.parametrize("cue", ["all of it\n- or most -\nis gone", "<i>it is</i>\n- well, gone", "one,\n- two"])
def test_a_dash_within_a_sentence_is_no_speaker(cue: str) -> None:
    assert len(SubtitleDocument("00:01.000 --> 00:02.000\n" + cue, webvtt=False).segments) == 1


def test_lines_without_spaces_are_read_as_one_word_after_another() -> None:
    (segment,) = SubtitleDocument("00:01.000 --> 00:02.000\n<i>我喜欢</i>\n<i>猫和</i> dogs\n很", webvtt=False).segments
    assert segment.text == "我喜欢猫和 dogs 很"


def test_a_translation_without_spaces_is_broken_into_lines() -> None:
    document = SubtitleDocument("00:01.000 --> 00:02.000\na cat\nsees it", webvtt=False)
    for text, lines in (
        ("猫がそれを見ています。", ["猫がそれを", "見ています。"]),
        ("今日は「はいって", ["今日は", "「はいって"]),
    ):
        assert document.text([[Text(text)]]).splitlines()[1:] == lines
    assert document.text([[Text("はい。")]]).splitlines()[1:] == ["は", "い。"]
    assert document.text([[Text("ah。」")]]).splitlines()[1:] == ["ah。」"]


@pytest.mark.parametrize("cue", ["I <3 you > him", "a < b and c > d", "x <- y -> z"])
def test_signs_that_are_no_tags_are_text(cue: str) -> None:
    document = SubtitleDocument("00:01.000 --> 00:02.000\n" + cue, webvtt=False)
    assert [segment.text for segment in document.segments] == [cue]
    assert [segment.marks for segment in document.segments] == [()]


def test_a_translation_cannot_make_a_timing() -> None:
    document = SubtitleDocument(SRT, webvtt=False)
    found = document.text([[Text("00:00:00,000 --> 00:00:01,000")] for _ in document.segments])
    assert found.count("-->") == SRT.count("-->")
    vtt = SubtitleDocument("WEBVTT\n\n00:01.000 --> 00:02.000\none", webvtt=True)
    assert vtt.text([[Text("a --> <b>")]]).endswith("a --&gt; &lt;b&gt;")


CUES = st.text(alphabet="ab <i>/{}\\\n\r-0.", max_size=40).filter(lambda cue: "-->" not in cue)


@given(st.lists(CUES, max_size=4), st.booleans())
def test_timings_stay_in_order(shout: Shout, cues: list[str], webvtt: bool) -> None:
    timings = [f"00:00:{place:02},000 --> 00:00:{place:02},900" for place in range(len(cues))]
    source = "\n\n".join(f"{t}\n{cue}" for t, cue in zip(timings, cues, strict=True))
    found = shout(SubtitleDocument(source, webvtt=webvtt)).splitlines()
    assert [line for line in found if "-->" in line] == timings


def test_texts_of_more_lines_than_a_document_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    PlainDocument("a\n" * 40)
    monkeypatch.setattr(plain, "MOST_NODES", 30)
    PlainDocument("a\n" * 30)
    PlainDocument("a\n" * 40, paragraphs=True)
    for text, paragraphs in (("a\n" * 31, False), ("a\n\n" * 31, True)):
        with pytest.raises(DataError, match="elements and texts: split it"):
            PlainDocument(text, paragraphs=paragraphs)


@pytest.mark.parametrize("lines", ["- a\n" * 40, "a\n\n00:02.000 --> 00:03.000\n" * 40])
def test_subtitles_of_more_lines_than_a_film_has_are_refused(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SubtitleDocument("00:01.000 --> 00:02.000\n" + lines, webvtt=False)
    monkeypatch.setattr(subtitles, "MOST_NODES", 30)
    with pytest.raises(DataError, match="elements and texts: split it"):
        SubtitleDocument("00:01.000 --> 00:02.000\n" + lines, webvtt=False)


@pytest.mark.parametrize(("ending", "tag"), [("srt", "<i>"), ("vtt", "<c>")])
def test_subtitles_of_more_tags_than_a_film_has_are_refused(
    ending: str, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtitles, "MOST_NODES", 30)
    cue = "00:00:01,000 --> 00:00:02,000\n{}a\n\n"
    SubtitleDocument(cue.format(tag * 20), webvtt=ending == "vtt")
    for text in (cue.format(tag * 40), cue.format(tag * 20) * 2):
        with pytest.raises(DataError, match="elements and texts: split it"):
            SubtitleDocument(text, webvtt=ending == "vtt")


def test_a_sign_in_a_tag_of_its_own_is_no_word(shout: Shout) -> None:
    document = SubtitleDocument("1\n00:00:01,000 --> 00:00:02,000\n<i>♪</i> one two", webvtt=False)
    assert [segment.text for segment in document.segments] == ["one two"]
    assert "<i>♪</i>" in shout(document, lambda number: range(number - 1, -1, -1))
