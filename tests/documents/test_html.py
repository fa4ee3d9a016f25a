"""HTML: every tag stays, correctly nested, around its words; nothing else changes."""

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repose.documents import html as reading
from repose.documents.html import VOID, HtmlDocument
from repose.documents.segment import Text
from repose.system.errors import DataError

Shout = Callable[..., str]


def backwards(number: int) -> Sequence[int]:
    return range(number - 1, -1, -1)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("a &lt; b &amp; c", "A &lt; B &amp; C"),
        ("<p>one <b>two</b> three", "<p>ONE <b>TWO</b> THREE"),
        ("<p>One.<p>Two.<li>Three.", "<p>ONE.<p>TWO.<li>THREE."),
        ("one<br>two<BR/>three", "ONE<br>TWO<BR/>THREE"),
        ("<td>12<td> 1,5 &euro;<td>x", "<td>12<td> 1,5 &euro;<td>X"),
        ("<!DOCTYPE html>\n<title>one\n two</title>", "<!DOCTYPE html>\n<title>ONE TWO</title>"),
        ("see <code>x &lt; <i>y</code> there", "SEE <code>x &lt; <i>y</code> THERE"),
        ("a <i translate=no>Acme <i>Inc</i></i>, ok", "A <i translate=no>Acme <i>Inc</i></i>, OK"),
        ('<div class="x notranslate"><p>a</p></div><p>b', '<div class="x notranslate"><p>a</p></div><p>B'),
        ("<p translate=no>kept<p>said", "<p translate=no>kept<p>SAID"),
        ("<code>never closed<p>said", "<code>never closed<p>SAID"),
        ("<script>if (a<b) 'x'</script>said", "<script>if (a<b) 'x'</script>SAID"),
        ("<style><!-- p{} --></style>said", "<style><!-- p{} --></style>SAID"),
        ("said<script></b>x</script>", "SAID<script></b>x</script>"),
        ("<script type=x><div>x</div></script><p>said", "<script type=x><div>x</div></script><p>SAID"),
        ("<pre>\n  <b>x</b></pre><textarea><b>x</textarea>y", "<pre>\n  <b>x</b></pre><textarea><b>x</textarea>Y"),
        ("<p>one<!---><p>two<!--><p>x<!--y--!><p>z", "<p>ONE<!---><p>TWO<!--><p>X<!--y--!><p>Z"),
        ("one <!-- <b> x --> two<![CDATA[ z ]]>", "ONE<!-- <b> x --> TWO<![CDATA[ z ]]>"),
        ("one <?php echo 'x' ?>two", "ONE<?php echo 'x' ?> TWO"),
        ("<b>open <i>cross</b> closed</i> x", "<b>OPEN <i>CROSS</b> CLOSED</i> X"),
        ("never </b> opened <a href=x>never closed", "NEVER </b> OPENED <a href=x>NEVER CLOSED"),
        ("<table><tr><td>a<table><td>b</table></table>", "<table><tr><td>A<table><td>B</table></table>"),
        ("x&y &copy &#233; &notit; &#0;", "X&amp;Y © É ¬IT; \ufffd"),
        ("a < b <3 <", "A &lt; B &lt;3 &lt;"),
        ("one <img src=a alt=x> two<img src=b>", "ONE <img src=a alt=x> TWO<img src=b>"),
        ('say <x id="1"/>twice', 'SAY <x id="1"/>TWICE'),
        ("<my-card>one</my-card><my-card>two</my-card>", "<my-card>ONE</my-card><my-card>TWO</my-card>"),
        ("press <kbd>x</kbd>. <kbd>y</kbd> leaves", "PRESS <kbd>x</kbd>. <kbd>y</kbd> LEAVES"),
        ("<svg class='i'/> said <math/>too<svg><svg/>x</svg>", "<svg class='i'/> SAID <math/>TOO<svg><svg/>x</svg>"),
        ("<code/>kept</code> said", "<code/>kept</code> SAID"),
        ("text<sup><a href=#1>1</a></sup> more", "TEXT<sup><a href=#1>1</a></sup> MORE"),
        ("one <b>two <img></b> three", "ONE <b>TWO <img></b> THREE"),
        ("one <img src=a><img src=b> two", "ONE <img src=a><img src=b> TWO"),
        ("CO<sub>2</sub> or H<sub>2</sub>O", "CO<sub>2</sub> OR H<sub>2</sub>O"),
        ("a 10<sup>6 </sup>b <sup>14</sup>c 1<sup>st</sup>", "A 10<sup>6 </sup>B <sup>14</sup>C 1<sup>ST</sup>"),
        ("one <![if !x]>two<![endif]> <![foo[ <!> <!x", "ONE<![if !x]> TWO<![endif]> <![foo[ <!> <!x"),
        ("AT&#T <b>one</b> &#12ab; &#x; <i>two</i>&", "AT&amp;#T <b>ONE</b> \x0cAB; &amp;#X; <i>TWO</i>&amp;"),
        ("said <!-- <b>never ends", "SAID <!-- <b>never ends"),
        ('said <a title="x>never ends<p>', 'SAID <a title="x>never ends<p>'),
        ("<ruby>漢<rp>(</rp><rt>x</rt><rp>)</rp>字</ruby>を", "<ruby>漢<rp>(</rp><rt>x</rt><rp>)</rp>字</ruby>を"),
        ("<html translate=no><p>kept<body><p>kept", "<html translate=no><p>kept<body><p>kept"),
        ("<ul><li translate=no>a<p>b<ul><li>c</ul><li>d</ul>e", "<ul><li translate=no>a<p>b<ul><li>c</ul><li>D</ul>E"),
        ("<table><tr translate=no><td>a<td>b<tr><td>c</table>", "<table><tr translate=no><td>a<td>b<tr><td>C</table>"),
        ("<td translate=no>a<p>b<td>c", "<td translate=no>a<p>b<td>C"),
        ("<dl><dd translate=no><p>a<dt>b</dl>c", "<dl><dd translate=no><p>a<dt>B</dl>C"),
        ("<title>the <script> &amp; x</TITLE\n><p>said", "<title>THE &lt;SCRIPT&gt; &amp; X</TITLE\n><p>SAID"),
        ("<textarea><script></textarea><p>said", "<textarea><script></textarea><p>SAID"),
        ("<title>never <b>ends", "<title>NEVER <b>ENDS"),
        ("<title>x</tıtle>y</title><p>said", "<title>X&lt;/TITLE&gt;Y</title><p>SAID"),  # in ASCII alone
        ("one</> two", "ONE</> TWO"),
        ("one</b title='x>y'> two", "ONE</b title='x>y'> TWO"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_shown_is_translated(shout: Shout, source: str, wanted: str) -> None:
    assert re.sub(r"\s+", " ", shout(HtmlDocument(source))) == re.sub(r"\s+", " ", wanted)


def test_marks_go_with_their_words(shout: Shout) -> None:
    found = shout(HtmlDocument("<p>one <b>two <i>three</i></b> four <a href=x>five</a></p>"), backwards)
    assert found == "<p><a href=x>FIVE</a> FOUR <b><i>THREE</i> TWO</b> ONE</p>"


@pytest.mark.parametrize("sign", ["★", " ✓ ", "→", "☑\N{VARIATION SELECTOR-16}", "\ue80b", "[12]", "<i></i>&#9733;"])
def test_a_sign_in_its_own_markup_is_no_word_that_another_one_could_replace(shout: Shout, sign: str) -> None:
    page = HtmlDocument(f"<p>one <span>{sign}</span> two</p>")
    assert [segment.text.split() for segment in page.segments] == [["one", "two"]]
    assert f"<span>{sign}</span>" in shout(page, backwards)


@pytest.mark.parametrize("word", ["two", "2", "!", "25 €", "+", "4°", "1.", "㎏", "㈱", "⠓⠑"])
def test_what_a_model_reads_in_markup_is_no_sign(word: str) -> None:
    (segment,) = HtmlDocument(f"<p>one <span>{word}</span> two</p>").segments
    assert segment.text == f"one {word} two"


def test_a_raised_number_goes_with_its_word(shout: Shout) -> None:
    assert shout(HtmlDocument("<p>CO<sub>2</sub> now<sup>1</sup> is in</p>"), backwards) == (
        "<p>IN IS NOW<sup>1</sup> CO<sub>2</sub></p>"
    )


def test_a_mark_whose_words_part_covers_what_is_between_them_but_no_other_marks_words(shout: Shout) -> None:
    assert shout(HtmlDocument("<b>one two</b> three"), lambda _: [0, 2, 1]) == "<b>ONE THREE TWO</b>"
    found = shout(HtmlDocument("<b>one</b> <i>two three four</i>"), lambda _: [1, 0, 2, 3])
    assert found == "TWO <b>ONE</b> <i>THREE FOUR</i>"


def test_translations_are_escaped_and_never_unescaped() -> None:
    document = HtmlDocument("<p>one</p>")
    found = document.text([[Text('<img src=x onerror="alert(1)"> &lt;script&gt;')]])
    assert found == '<p>&lt;img src=x onerror="alert(1)"&gt; &amp;lt;script&amp;gt;</p>'


def test_an_attribute_that_comes_twice_counts_the_first_time(shout: Shout) -> None:
    assert shout(HtmlDocument("x <i translate=no translate=yes>y</i>")) == "X <i translate=no translate=yes>y</i>"


WORDS = st.sampled_from(
    ["one", "two ", " three", " four. Five ", " ", "\n", "&amp;", "7", "&nbsp;", ", ", "日本。", " < ", "&#x41;"]
)
TAGS = st.sampled_from(
    [
        "b",
        "i",
        "a href='x'",
        "p",
        "div",
        "td",
        "code",
        "span translate=no",
        "br",
        "img src=x",
        "script",
        "em",
        "title",
        "sup",
        "sub",
    ]
)


@st.composite
def pages(draw: st.DrawFn, depth: int = 0) -> str:
    """Well nested."""
    pieces = []
    for _ in range(draw(st.integers(0, 4))):
        if depth == 3 or draw(st.booleans()):
            pieces.append(draw(WORDS))
            continue
        tag = draw(TAGS)
        name = tag.split()[0]
        if name in VOID:
            pieces.append(f"<{tag}>")
        elif name == "script":
            pieces.append("<script>if (1<2) 'x'</script>")
        elif name == "title":
            pieces.append(f"<title>{draw(WORDS)}</title>")  # tags would be letters there
        else:
            pieces.append(f"<{tag}>{draw(pages(depth + 1))}</{name}>")
    return "".join(pieces)


class Outline(HTMLParser):
    """The tags outside of opaque elements, and whether they nest."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.nests = True
        self.tags: Counter[str] = Counter()
        self.feed(source)
        self.close()
        self.nests = self.nests and not self.opened

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[f"<{tag} {attrs}>"] += 1
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags[f"</{tag}>"] += 1
        self.nests = self.nests and bool(self.opened) and self.opened.pop() == tag


def said(source: str) -> str:
    """Letters and white space as a reader of words sees them."""
    return "".join(
        html.unescape(re.sub(r"<script>.*?</script>|<[a-z/][^>]*>", "", source, flags=re.DOTALL)).split()
    ).upper()


ORDERS: list[Callable[[int], Sequence[int]]] = [range, backwards, lambda n: [*range(n // 2, n), *range(n // 2)]]


def test_an_element_that_no_word_came_from_takes_one_of_several_of_another(shout: Shout) -> None:
    """So that a link can be seen and clicked."""
    page = "<p><a href=1>one</a> <a href=2>two</a> <a href=3>three</a></p>"
    all_from_the_second = shout(HtmlDocument(page), lambda number: [1] * number)
    assert all_from_the_second == "<p><a href=1>TWO</a> <a href=2>TWO</a> <a href=3>TWO</a></p>"
    page = "<p><a href=1>one</a> <a href=2>two</a></p>"
    assert shout(HtmlDocument(page), lambda number: [0] * number) == "<p><a href=1>ONE</a> <a href=2>ONE</a></p>"


@settings(max_examples=150)
@given(source=pages(), order=st.sampled_from(ORDERS))
def test_no_tag_is_lost_and_all_stay_nested(shout: Shout, source: str, order: Callable[[int], Sequence[int]]) -> None:
    found = shout(HtmlDocument(source), order)
    before, after = Outline(source), Outline(found)
    assert before.nests
    assert after.nests
    assert after.tags == before.tags
    assert Counter(said(found)) == Counter(said(source))
    if order is range:
        assert said(found) == said(source)


ODD = st.sampled_from(
    [
        "<!--",
        "-->",
        "<![CDATA[",
        "<?",
        "&",
        "<a <b>",
        "</p x>",
        "<x/>",
        "<!x",
        "<![if x]>",
        "<![",
        "<![x[",
        "'",
        '"',
        "<",
    ]
)
ANY = st.lists(st.one_of(st.text(max_size=5), WORDS, TAGS.map("<{}>".format), TAGS.map("</{}>".format), ODD))


@settings(max_examples=150)
@given(source=ANY.map("".join))
@example(source="<title><b></title>")
def test_of_any_source_every_slice_is_kept_or_said(shout: Shout, source: str) -> None:
    def tags(page: str) -> Counter[str]:
        outside = re.sub(r"(?s)<(title|textarea)>.*?</\1>", "", page)  # in which a tag is text
        return Counter(re.findall(r"</?(?:p|div|td|br|b|i)>", outside))

    assert tags(shout(HtmlDocument(source))) == tags(source)


def test_untouched_sources_are_kept_to_the_byte() -> None:
    source = "<!doctype html>\r\n<P  CLASS=x >12 &euro; <!-- a --></P\n><script>x</script>\t<img src='a'/> 3"
    document = HtmlDocument(source)
    assert document.segments == []
    assert document.text([]) == source


@pytest.mark.parametrize(
    "piece", ["<b>", "<code>", "</i>", "<b>x</b> ", "<img> x ", "<span translate=no>", "&", "<", "<!--"]
)
def test_hostile_pages_end(shout: Shout, piece: str) -> None:
    source = piece * 4000
    assert len(shout(HtmlDocument(source))) >= len(source) - source.count(" ")


def test_a_page_of_more_tags_than_a_book_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_NODES", 30)
    HtmlDocument("<p>a</p>" * 10)
    with pytest.raises(DataError, match="elements and texts: split it"):
        HtmlDocument("<p>a</p>" * 11)
