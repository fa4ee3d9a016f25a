"""Presentations, other OpenDocument files, and books."""

import contextlib
import io
import zipfile
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from repose.documents import html
from repose.documents.archive import Limits
from repose.documents.epub import EpubDocument
from repose.documents.opendocument import read_opendocument
from repose.documents.presentation import read_pptx
from repose.system.errors import DataError

Shout = Callable[..., bytes]
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
BOLD, SMALL = '<a:rPr b="1"/>', '<a:rPr sz="900"><a:solidFill/></a:rPr>'
RAISED = '<a:rPr baseline="30000"/>'


def packed(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


def member(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        text = file.read(name).decode()
    ElementTree.fromstring(text)
    return text


def run(text: str, looks: str = "") -> str:
    return f"<a:r>{looks}<a:t>{text}</a:t></a:r>"


def slide(paragraph: str) -> str:
    return f"<p:sld {A} xmlns:p='urn:p'><p:txBody><a:bodyPr/><a:p>{paragraph}</a:p></p:txBody></p:sld>"


def translated(shouted_bytes: Shout, paragraph: str) -> str:
    found = member(
        shouted_bytes(read_pptx(packed({"ppt/slides/slide1.xml": slide(paragraph)}))), "ppt/slides/slide1.xml"
    )
    return found.split("<a:p>")[1].split("</a:p>")[0]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (run("a &amp; b"), run("A &amp; B")),
        (run("one ") + run("tw", '<a:rPr lang="en-US" dirty="0"/>') + run("o.", "<a:rPr err='1'/>"), run("ONE TWO.")),
        (run("one two ") + run("three", BOLD), run("ONE TWO ") + run("THREE", BOLD)),
        (
            run("one two ") + run("thr", '<a:rPr lang="de" b="1"/>') + run("ee", '<a:rPr b="1" lang="en"/>'),
            run("ONE TWO ") + run("THREE", BOLD),
        ),
        (run("one two ") + run("three", SMALL), run("ONE TWO ") + run("THREE", SMALL)),
        (run("one") + "<a:br><a:rPr/></a:br>" + run("two"), run("ONE") + "<a:br><a:rPr/></a:br>" + run("TWO")),
        (
            f'<a:pPr lvl="1"/>{run("one")}<a:endParaRPr lang="de"/>',
            f'<a:pPr lvl="1"/>{run("ONE")}<a:endParaRPr lang="de"/>',
        ),
        (
            run("page ") + '<a:fld id="{1}" type="slidenum"><a:t>7</a:t></a:fld>',
            run("PAGE ") + '<a:fld id="{1}" type="slidenum"><a:t>7</a:t></a:fld>',
        ),
        (run("ten 10") + run("6", RAISED) + run(" cells"), run("TEN 10") + run("6", RAISED) + run(" CELLS")),
        (run("12.5"), run("12.5")),
    ],
)
def test_paragraphs_of_slides(shouted_bytes: Shout, source: str, wanted: str) -> None:
    found = translated(shouted_bytes, source)
    # A raised number and a field stay as they are written, in runs of their own.
    assert found == wanted


def test_slides_notes_charts_and_diagrams_alone(shouted_bytes: Shout) -> None:
    names = ("slides/slide1", "slides/slide12", "notesSlides/notesSlide1", "charts/chart3", "diagrams/data1")
    others = ("slideMasters/slideMaster1", "slideLayouts/slideLayout2", "comments/comment1")
    source = packed({f"ppt/{name}.xml": slide(run("one")) for name in (*names, *others)} | {"ppt/media/a.png": "x"})
    found = shouted_bytes(read_pptx(source))
    assert [member(found, f"ppt/{name}.xml") == slide(run("ONE")) for name in names] == [True] * 5
    assert [member(found, f"ppt/{name}.xml") == slide(run("one")) for name in others] == [True] * 3


def test_other_prefixes(shouted_bytes: Shout) -> None:
    content = slide(run("one")).replace("a:", "x:").replace("xmlns:x:", "xmlns:x=").replace("xmlns:a", "xmlns:x")
    assert "<x:t>one</x:t>" in content
    found = member(shouted_bytes(read_pptx(packed({"ppt/slides/slide1.xml": content}))), "ppt/slides/slide1.xml")
    assert "<x:r><x:t>ONE</x:t></x:r>" in found


def test_other_opendocument_files(shouted_bytes: Shout) -> None:
    namespaces = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:d="urn:d"'
    content = f"<d:body {namespaces}><d:page><text:p>one</text:p></d:page><text:p>3.5</text:p></d:body>"
    found = member(shouted_bytes(read_opendocument(packed({"mimetype": "x", "content.xml": content}))), "content.xml")
    assert found == content.replace("one", "ONE")


# Books

PAGE = '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>\n'


def book(*pages: str, **others: str) -> bytes:
    named = {f"EPUB/c{number}.xhtml": PAGE.format(page) for number, page in enumerate(pages)}
    return packed({"mimetype": "application/epub+zip", "META-INF/container.xml": "<container/>", **named, **others})


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("<h1>one</h1><p>two <em>three</em>&#160;&amp; x</p>", "<h1>ONE</h1><p>TWO <em>THREE</em>\xa0&amp; X</p>"),
        ('<p>one <a id="p1"/>two</p>', '<p>ONE <a id="p1"/>TWO</p>'),
        ('<script src="a.js"/><p>one</p><script>two</script>', '<script src="a.js"/><p>ONE</p><script>two</script>'),
        ("<p/><div/><p>one<br/>two</p>", "<p/><div/><p>ONE<br/>TWO</p>"),
        ("<style/><title/><p>one</p>", "<style/><title/><p>ONE</p>"),
    ],
)
def test_pages_of_books(shouted_bytes: Shout, source: str, wanted: str) -> None:
    found = shouted_bytes(EpubDocument(book(source, "<p>last</p>")))
    assert member(found, "EPUB/c0.xhtml") == PAGE.format(wanted)
    assert member(found, "EPUB/c1.xhtml") == PAGE.format("<p>LAST</p>")


def test_what_is_no_page_stays_and_the_kind_comes_first(shouted_bytes: Shout) -> None:
    others = {"EPUB/toc.ncx": "<ncx><text>one</text></ncx>", "EPUB/a.css": "p {}", "EPUB/content.opf": "<package/>"}
    found = shouted_bytes(EpubDocument(book("<p>one</p>", **others)))
    with zipfile.ZipFile(io.BytesIO(found)) as file:
        assert file.namelist()[0] == "mimetype"
        assert {name: file.read(name).decode() for name in others} == others


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (packed({"mimetype": "application/epub+zip"}), "this is no book"),
        (book("<p>x</p>", **{"META-INF/encryption.xml": '<x URI="EPUB/c0.xhtml"/>'}), "the book is encrypted"),
        (b"PK", "this is no document"),
    ],
)
def test_what_is_no_book(data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        EpubDocument(data)


def test_a_page_in_another_encoding_is_refused() -> None:
    out = io.BytesIO(book("<p>x</p>"))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("EPUB/d.html", b"<p>\xff</p>")
    with pytest.raises(DataError, match="not in UTF-8"):
        EpubDocument(out.getvalue())


def test_all_pages_of_a_book_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MOST_NODES", 100)
    page = "<i>x</i>" * 20
    assert EpubDocument(book(page)).segments
    with pytest.raises(DataError, match="has more than"):
        EpubDocument(book(page, page))
    with pytest.raises(DataError, match="bytes of text and markup"):
        EpubDocument(book("<p>x</p>" * 9, "<p>x</p>" * 9), Limits(member_bytes=200))


def test_any_cut_or_changed_byte_is_a_sentence_or_a_document() -> None:
    for source, read in (
        (packed({"ppt/slides/slide1.xml": slide(run("one ") + run("two", BOLD))}), read_pptx),
        (book("<p>one <b>two</b></p>"), EpubDocument),
    ):
        for place in range(0, len(source), 3):
            for damaged in (source[:place], source[:place] + bytes([source[place] ^ 21]) + source[place + 1 :]):
                with contextlib.suppress(DataError):
                    assert read(damaged).segments is not None
