"""Presentations, other OpenDocument files, and books."""

import contextlib
import io
import itertools
import re
import zipfile
from collections.abc import Callable

import pytest
from archives import member, packed

from repose.documents import epub, html
from repose.documents.epub import EpubDocument
from repose.documents.opendocument import OpenDocument
from repose.documents.presentation import Presentation
from repose.documents.segment import Text
from repose.documents.xml_source import Xml
from repose.system.errors import DataError

Shout = Callable[..., bytes]
Sentences = Callable[..., list[str]]
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
BOLD, SMALL = '<a:rPr b="1"/>', '<a:rPr sz="900"><a:solidFill/></a:rPr>'
RAISED = '<a:rPr baseline="30000"/>'


def run(text: str, looks: str = "") -> str:
    return f"<a:r>{looks}<a:t>{text}</a:t></a:r>"


def slide(paragraph: str) -> str:
    return f"<p:sld {A} xmlns:p='urn:p'><p:txBody><a:bodyPr/><a:p>{paragraph}</a:p></p:txBody></p:sld>"


def translated(shouted_bytes: Shout, paragraph: str) -> str:
    found = member(
        shouted_bytes(Presentation(packed({"ppt/slides/slide1.xml": slide(paragraph)}))), "ppt/slides/slide1.xml"
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


LINK = '<a:rPr><a:hlinkClick r:id="rId2" xmlns:r="urn:r"/></a:rPr>'


def test_a_link_of_most_of_a_paragraph_is_kept_wherever_its_words_go(shouted_bytes: Shout) -> None:
    """Another look that covers all of them would be in its place."""
    source = run("our project documentation", LINK) + run(" explains it")
    content = packed({"ppt/slides/slide1.xml": slide(source)})
    for order in itertools.permutations(range(5)):
        found = member(shouted_bytes(Presentation(content), lambda _, order=order: order), "ppt/slides/slide1.xml")
        assert "hlinkClick" in found


def test_tabs_of_slides_stay_between_their_words(shouted_bytes: Shout) -> None:
    (segment,) = Presentation(packed({"ppt/slides/slide1.xml": slide(run("name of it\ttotal", BOLD))})).segments
    assert segment.text == "name of it total"
    found = translated(shouted_bytes, run("name of it\ttotal", BOLD))
    assert "".join(re.findall("<a:t>([^<]*)</a:t>", found)).split("\t") == ["NAME OF IT", "TOTAL"]


def test_slides_notes_charts_and_diagrams_alone(shouted_bytes: Shout) -> None:
    names = ("slides/slide1", "slides/slide12", "notesSlides/notesSlide1", "charts/chart3", "diagrams/data1")
    others = ("slideMasters/slideMaster1", "slideLayouts/slideLayout2", "comments/comment1")
    source = packed({f"ppt/{name}.xml": slide(run("one")) for name in (*names, *others)} | {"ppt/media/a.png": "x"})
    found = shouted_bytes(Presentation(source))
    assert [member(found, f"ppt/{name}.xml") == slide(run("ONE")) for name in names] == [True] * 5
    assert [member(found, f"ppt/{name}.xml") == slide(run("one")) for name in others] == [True] * 3


def test_other_prefixes(shouted_bytes: Shout) -> None:
    content = slide(run("one")).replace("a:", "x:").replace("xmlns:x:", "xmlns:x=").replace("xmlns:a", "xmlns:x")
    assert "<x:t>one</x:t>" in content
    found = member(shouted_bytes(Presentation(packed({"ppt/slides/slide1.xml": content}))), "ppt/slides/slide1.xml")
    assert "<x:r><x:t>ONE</x:t></x:r>" in found


def test_other_opendocument_files(shouted_bytes: Shout) -> None:
    namespaces = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:d="urn:d"'
    content = f"<d:body {namespaces}><d:page><text:p>one</text:p></d:page><text:p>3.5</text:p></d:body>"
    found = member(shouted_bytes(OpenDocument(packed({"mimetype": "x", "content.xml": content}))), "content.xml")
    assert found == content.replace("one", "ONE")


ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{full}:1.0"'
    for name, full in {"text": "text", "table": "table", "office": "office", "draw": "drawing"}.items()
)
PRESENTATION = 'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0"'


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            '<table:table-cell office:value-type="string" office:string-value="one">\n'
            "<text:p>one</text:p></table:table-cell>",
            '<table:table-cell office:value-type="string">\n<text:p>ONE</text:p></table:table-cell>',
        ),
        (
            '<table:table-cell office:value-type="string" office:string-value="one"/><table:table-cell '
            'office:string-value="one"><text:p>one</text:p></table:table-cell>',
            '<table:table-cell office:value-type="string" office:string-value="one"/><table:table-cell>'
            "<text:p>ONE</text:p></table:table-cell>",
        ),
        *(
            (f"<table:table-cell {stays}><text:p>one</text:p></table:table-cell>",) * 2
            for stays in (
                'office:value-type="float" office:value="1"',
                'office:value-type="date"',
                'table:formula="of:=A1" office:value-type="string" office:string-value="one"',
            )
        ),
        ("<table:tracked-changes><text:p>one</text:p></table:tracked-changes>",) * 2,
        ('<draw:frame presentation:placeholder="true"><text:p>one</text:p></draw:frame>',) * 2,
        (
            '<presentation:footer-decl presentation:name="f">one</presentation:footer-decl>',
            '<presentation:footer-decl presentation:name="f">ONE</presentation:footer-decl>',
        ),
    ],
)
def test_cells_and_slides_of_opendocument(shouted_bytes: Shout, source: str, wanted: str) -> None:
    content = f"<office:body {ODF} {PRESENTATION}>{{}}<text:p>two</text:p></office:body>"
    data = packed({"content.xml": content.format(source)})
    found = member(shouted_bytes(OpenDocument(data)), "content.xml")
    assert found == content.format(wanted).replace("two", "TWO")


# Books

PAGE = '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>\n'


def book(*pages: str, **others: str) -> bytes:
    named = {f"EPUB/c{number}.xhtml": PAGE.format(page) for number, page in enumerate(pages)}
    return packed({"mimetype": "application/epub+zip", "META-INF/container.xml": "<container/>", **named, **others})


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("<h1>one</h1><p>two <em>three</em>&#160;&amp; x</p>", "<h1>ONE</h1><p>TWO <em>THREE</em>\xa0&amp; X</p>"),
        ('<p>one <a id="p1"/>two</p>', '<p>ONE<a id="p1"/> TWO</p>'),  # which nobody sees
        ('<p>an exam<span id="p12"/>ple of it</p>', '<p>AN EXAM<span id="p12"/>PLE OF IT</p>'),
        (
            '<p>let <m:math xmlns:m="urn:m"><m:mi>x</m:mi><m:mo>=</m:mo></m:math> be</p>',
            '<p>LET <m:math xmlns:m="urn:m"><m:mi>x</m:mi><m:mo>=</m:mo></m:math> BE</p>',
        ),
        (
            "<s:svg xmlns:s='urn:s'><s:title>x</s:title></s:svg><p>one <b>two</b></p><svg><title>z</title></svg>",
            "<s:svg xmlns:s='urn:s'><s:title>x</s:title></s:svg><p>ONE <b>TWO</b></p><svg><title>z</title></svg>",
        ),
        ("<title>x <i>y</i></title><p>one</p>", "<title>X <i>Y</i></title><p>ONE</p>"),
        ("<p>x <?foo bar > baz?> y</p>", "<p>X<?foo bar > baz?> Y</p>"),
        ("<p>hello <![CDATA[a < b]]> again</p>", "<p>HELLO A &lt; B AGAIN</p>"),
        ('<script src="a.js"/><p>one</p><script>two</script>', '<script src="a.js"/><p>ONE</p><script>two</script>'),
        (
            '<h:div xmlns:h="urn:h"><h:style>b</h:style><p>one</p><h:script>two</h:script><p>three</p></h:div>',
            '<h:div xmlns:h="urn:h"><h:style>b</h:style><p>ONE</p><h:script>two</h:script><p>THREE</p></h:div>',
        ),
        ("<p/><div/><p>one<br/>two</p>", "<p/><div/><p>ONE<br/>TWO</p>"),
        ("<style/><title/><p>one</p>", "<style/><title/><p>ONE</p>"),
    ],
)
def test_pages_of_books(shouted_bytes: Shout, source: str, wanted: str) -> None:
    found = shouted_bytes(EpubDocument(book(source, "<p>last</p>")))
    assert member(found, "EPUB/c0.xhtml") == PAGE.format(wanted)
    assert member(found, "EPUB/c1.xhtml") == PAGE.format("<p>LAST</p>")


@pytest.mark.parametrize(
    ("says", "encoding", "meta"),
    [
        ("utf-8", "utf-8", "iso-8859-1"),
        ("utf-8", "utf-8", "iso-8859-2"),
        ("iso-8859-1", "iso-8859-1", "utf-8"),
        ("", "utf-8", "iso-8859-1"),
    ],
)
def test_a_page_of_a_book_is_in_the_encoding_of_its_declaration(
    shouted_bytes: Shout, says: str, encoding: str, meta: str
) -> None:
    """XHTML's rules, not HTML's."""
    head = f'<?xml version="1.0" encoding="{says}"?>' if says else ""
    page = (
        f'{head}<html><head><meta http-equiv="x" content="text/html; charset={meta}"/></head><body>{{}}</body></html>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("c.xhtml", page.format("<p>caf\xe9 &#233;</p>").encode(encoding))
    with zipfile.ZipFile(io.BytesIO(shouted_bytes(EpubDocument(out.getvalue())))) as file:
        assert file.read("c.xhtml").decode(encoding) == page.format("<p>CAF\xc9 \xc9</p>")


CONTAINER = (
    '<container xmlns="urn:c"><rootfiles><rootfile full-path="OPS/a.opf" media-type="x"/></rootfiles></container>'
)
PACKAGE = """<package xmlns="urn:p"><manifest>
    <item href="one%20a.xml" media-type="application/xhtml+xml"/><item href="../two.html" media-type="text/html"/>
    <item href="toc.ncx" media-type="x"/><item href="gone.xhtml" media-type="application/xhtml+xml"/>
</manifest></package>"""


def test_pages_are_those_that_the_book_names(shouted_bytes: Shout) -> None:
    """Whatever they are called; not what lies beside them."""
    page, loud = PAGE.format("<p>one</p>"), PAGE.format("<p>ONE</p>")
    names = ("OPS/one a.xml", "two.html", "__MACOSX/._two.html", "stray.xhtml")
    source = packed({"META-INF/container.xml": CONTAINER, "OPS/a.opf": PACKAGE, **dict.fromkeys(names, page)})
    found = shouted_bytes(EpubDocument(source))
    assert [member(found, name) == loud for name in names] == [True, True, False, False]
    other = packed(
        {
            "META-INF/container.xml": CONTAINER,
            "OPS/a.opf": PACKAGE,
            "two.html": PAGE.format("<p>two</p>"),
            "OPS/one a.xml": page,
        }
    )
    assert [segment.text for segment in EpubDocument(other).segments] == ["one", "two"], "in the book's order"
    for container in ("<container/>", "<!DOCTYPE x><container/>", CONTAINER):  # without a package: by their names
        found = shouted_bytes(EpubDocument(packed({"META-INF/container.xml": container, **dict.fromkeys(names, page)})))
        assert [member(found, name) == loud for name in names] == [False, True, False, True]


NCX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>{}</text></docTitle>
<docAuthor><text>ana</text></docAuthor><navMap><navPoint><navLabel><text>{}</text></navLabel><content src="a.xhtml"/>
<navPoint><navLabel><text/></navLabel><navLabel><text>{}</text></navLabel></navPoint></navPoint></navMap></ncx>"""


def test_titles_in_a_table_of_contents_of_epub_2(shouted_bytes: Shout) -> None:
    package = PACKAGE.replace('"toc.ncx" media-type="x"', '"toc.ncx" media-type="application/x-dtbncx+xml"')
    named = {"META-INF/container.xml": CONTAINER, "OPS/a.opf": package, "two.html": PAGE.format("<p>one</p>")}
    titles = ("a book", "one\n &amp; \xe9l", "<![CDATA[<b>]]>")
    source = EpubDocument(packed({**named, "OPS/toc.ncx": NCX.format(*titles)}))
    assert [segment.text for segment in source.segments] == ["one", "a book", "one & \xe9l", "<b>"]
    found = shouted_bytes(source)
    assert member(found, "OPS/toc.ncx") == NCX.format("A BOOK", "ONE &amp; \xc9L", "&lt;B&gt;")
    for damaged in ("<ncx><text>one", "<!DOCTYPE x [<!ENTITY a 'b'>]><ncx><text>&a;</text></ncx>", "\0"):
        book_ = EpubDocument(packed({**named, "OPS/toc.ncx": damaged}))
        assert [segment.text for segment in book_.segments] == ["one"], damaged
        with zipfile.ZipFile(io.BytesIO(book_.assemble([[Text("ONE")]]))) as file:
            assert file.read("OPS/toc.ncx").decode() == damaged
    nested = "<ncx><text>one <text>two</text></text></ncx>"
    found = shouted_bytes(EpubDocument(packed({**named, "OPS/toc.ncx": nested})))
    assert member(found, "OPS/toc.ncx") == "<ncx><text>one <text>TWO</text></text></ncx>"


def test_a_package_that_is_named_again_and_again_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(epub, "Xml", lambda data, *rest, **more: parsed.append(rest[1]) or Xml(data, *rest, **more))
    roots = "".join(f'<rootfile full-path="{name}"/>' for name in ["a"] * 500 + [f"b{n}" for n in range(500)])
    assert EpubDocument(
        packed({"META-INF/container.xml": f"<c>{roots}</c>", "a": "<p/>", "x.html": "<p>x</p>"})
    ).segments
    assert len(parsed) <= 5


def test_encrypted_fonts_are_no_pages() -> None:
    encrypted = "<x>" + "".join(f'<CipherReference URI="font{n * 7919}.otf"/>' for n in range(10_000)) + "</x>"
    assert EpubDocument(book("<p>x</p>", **{"META-INF/encryption.xml": encrypted})).segments
    with pytest.raises(DataError, match="the book is encrypted"):
        EpubDocument(packed({"a b.xhtml": "\0", "META-INF/encryption.xml": '<x URI="a%20b.xhtml"/>'}))


def test_what_is_no_page_stays_and_the_kind_comes_first(shouted_bytes: Shout) -> None:
    others = {"EPUB/toc.ncx": "<ncx><text>one</text></ncx>", "EPUB/a.css": "p {}", "EPUB/content.opf": "<package/>"}
    found = shouted_bytes(EpubDocument(book("<p>one</p>", **others)))
    with zipfile.ZipFile(io.BytesIO(found)) as file:
        assert file.namelist()[0] == "mimetype"
        assert {name: file.read(name).decode() for name in others} == others


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (packed({"mimetype": "application/epub+zip"}), "this is not a book"),
        (book("<p>x</p>", **{"META-INF/encryption.xml": '<x URI="EPUB/c0.xhtml"/>'}), "the book is encrypted"),
        (b"PK", "this is not a document"),
        (
            packed({"c.xhtml": '<!DOCTYPE html [<!ENTITY co "x">]><html><p>&co;</p></html>'}),
            "c.xhtml of the book: it declares entities",
        ),
    ],
)
def test_what_is_no_book(data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        EpubDocument(data)


def test_a_page_in_another_encoding_is_refused() -> None:
    out = io.BytesIO(book("<p>x</p>"))
    with zipfile.ZipFile(out, "a") as file:
        file.writestr("EPUB/d.html", b"<p>\xff</p>")
    with pytest.raises(DataError, match=r"EPUB/d\.html of the book: the file is not in UTF-8"):
        EpubDocument(out.getvalue())


def test_all_pages_of_a_book_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MOST_NODES", 100)
    page = "<i>x</i>" * 20
    assert EpubDocument(book(page)).segments
    with pytest.raises(DataError, match="has more than"):
        EpubDocument(book(page, page))
    monkeypatch.setattr(epub, "MOST_MEMBER_BYTES", 200)
    with pytest.raises(DataError, match="bytes of text and markup"):
        EpubDocument(book("<p>x</p>" * 9, "<p>x</p>" * 9))


def test_any_cut_or_changed_byte_is_a_sentence_or_a_document() -> None:
    for source, read in (
        (packed({"ppt/slides/slide1.xml": slide(run("one ") + run("two", BOLD))}), Presentation),
        (book("<p>one <b>two</b></p>"), EpubDocument),
    ):
        for place in range(0, len(source), 3):
            for damaged in (source[:place], source[:place] + bytes([source[place] ^ 21]) + source[place + 1 :]):
                with contextlib.suppress(DataError):
                    assert read(damaged).segments is not None


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        (run("1\tone two\t3"), ["one two"]),
        (run("A title") + "<a:br/>" + run("Below it"), ["A title", "Below it"]),
        (run("A title") + "<a:br/>" + run("of two lines"), ["A title of two lines"]),
    ],
)
def test_sentences_end_at_tabs_and_lines_of_slides(
    read_sentences: Sentences, source: str, sentences: list[str]
) -> None:
    assert read_sentences(Presentation(packed({"ppt/slides/slide1.xml": slide(source)}))) == sentences


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ("1<text:tab/>one two<text:tab/>3", ["one two"]),
        ("<text:span>One<text:line-break/>Two</text:span>", ["One", "Two"]),
    ],
)
def test_sentences_end_at_tabs_and_lines_of_opendocument(
    read_sentences: Sentences, source: str, sentences: list[str]
) -> None:
    content = packed({"content.xml": f"<office:text {ODF}><text:p>{source}</text:p></office:text>"})
    assert read_sentences(OpenDocument(content)) == sentences
