"""Word processor files: formatting, links, notes, fields and tables stay; hostile files are refused in a sentence."""

import contextlib
import io
import itertools
import re
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from xml.etree import ElementTree

import pytest
from archives import member, packed

from repose.documents import archive, office, segment, xml_source
from repose.documents.archive import Archive
from repose.documents.office import OfficeDocument
from repose.documents.opendocument import OpenDocument
from repose.documents.segment import Text
from repose.documents.wordprocessing import WordDocument
from repose.system.errors import DataError

Shout = Callable[..., bytes]
Sentences = Callable[..., list[str]]
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'


def run(text: str, looks: str = "") -> str:
    return f'<w:r>{looks}<w:t xml:space="preserve">{text}</w:t></w:r>'


def docx(body: str, **others: str) -> bytes:
    document = f"{HEAD}<w:document {W}><w:body>{body}</w:body></w:document>"
    return packed({"[Content_Types].xml": "<Types/>", "word/document.xml": document, **others})


def body(data: bytes) -> str:
    found = re.search("<w:body>(.*)</w:body>", member(data, "word/document.xml"), re.DOTALL)
    assert found is not None
    return found[1]


BOLD = "<w:rPr><w:b/></w:rPr>"
BEGIN, SEPARATE, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
GONE = run("gone")
LINK = '<w:hyperlink r:id="rId1" xmlns:r="urn:r">'
SIMPLE = '<w:fldSimple w:instr="REF x">'
MATH = '<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">'
BOX = f"<w:r><w:drawing><w:txbxContent><w:p>{run('{}')}</w:p></w:txbxContent></w:drawing></w:r>"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (run("a &amp; b"), run("A &amp; B")),
        (run("one.\nTwo\r\nthree."), run("ONE. TWO THREE.")),
        (run("one ") + run("tw") + '<w:proofErr w:type="x"/>' + run("o."), run("ONE TWO.")),
        (run("one two ") + run("th", BOLD) + run("r", BOLD), run("ONE TWO ") + run("THR", BOLD)),
        (f"{LINK}{run('one', BOLD)}</w:hyperlink>{run(' two three')}",) * 2,
        (run("one") + "<w:r><w:tab/></w:r>" + run("two"), run("ONE") + "<w:r><w:tab/></w:r>" + run("TWO")),
        ('<w:bookmarkStart w:id="0"/>' + run("one") + '<w:bookmarkEnd w:id="0"/>',) * 2,
        (run("one") + '<w:r><w:footnoteReference w:id="2"/></w:r>' + run(" two"),) * 2,
        (f"{run('a ')}{BEGIN}<w:r><w:instrText> LINK x </w:instrText></w:r>{SEPARATE}{run('b')}{END}",) * 2,
        (f"{run('a')}{END}{BEGIN}{run(' b')}", f"{run('A')}{END}{BEGIN}{run(' B')}"),
        ("<w:pPr><w:jc/></w:pPr>" + run("one"),) * 2,
        (f"<w:del>{GONE}</w:del><w:ins>{run('new')}</w:ins>", f"<w:del>{GONE}</w:del><w:ins>{run('NEW')}</w:ins>"),
        (run("one ") + BOX.format("inner") + run(" two"), run("ONE ") + BOX.format("INNER") + run(" TWO")),
        (f"{run('as ')}{SIMPLE}{run('figure one')}</w:fldSimple>{run(' shows')}",) * 2,
        (f"{run('as ')}{MATH}1</m:oMath>{run(' shows')}",) * 2,
        (f"<w:sdt><w:sdtPr/><w:sdtContent>{run('one')}</w:sdtContent></w:sdt>",) * 2,
    ],
)  # fmt: skip
def test_paragraphs_of_word(shouted_bytes: Shout, source: str, wanted: str) -> None:
    def loud(text: str) -> str:
        return re.sub(r"(?<=>)[a-z &;.]+(?=</w:t>)", lambda found: found[0].upper().replace("&AMP;", "&amp;"), text)

    wanted = loud(wanted) if "gone" not in wanted else wanted
    found = shouted_bytes(WordDocument(docx(f'<w:p w:rsidR="1">{source}</w:p><w:sectPr/>')))
    assert body(found) == f'<w:p w:rsidR="1">{wanted}</w:p><w:sectPr/>'


TAB, BREAK = "<w:r><w:tab/></w:r>", "<w:r><w:br/></w:r>"


@pytest.mark.parametrize(
    ("source", "sentences", "wanted"),
    [
        (run("1") + TAB + run("a black cat") + TAB + run("3"), ["a black cat"], "1|CAT BLACK A|3"),
        (run("Dear Sir") + BREAK + run("We thank you."), ["Dear Sir", "We thank you."], "SIR DEAR|. YOU THANK WE"),
        (run("10 ") + BREAK + BREAK + run("Main Street", BOLD), ["Main Street"], "10 ||STREET MAIN"),
        (
            run("one two", BOLD) + f"<w:r>{BOLD}<w:tab/></w:r>" + run("three", BOLD),
            ["one two", "three"],
            "TWO ONE|THREE",
        ),
        (run("the black") + BREAK + run("cat sat"), ["the black cat sat"], None),
        (TAB + run("one two ") + TAB, ["one two"], "|TWO ONE |"),
        (run("one ") + BREAK + TAB + run("two"), ["one", "two"], "ONE ||TWO"),
    ],
)
def test_no_sentence_goes_on_beyond_a_tab_or_a_line(
    shouted_bytes: Shout, read_sentences: Sentences, source: str, sentences: list[str], wanted: str | None
) -> None:
    """Nor does one beyond a line's end, unless the text goes on in lower case."""
    content = docx(f"<w:p>{source}</w:p>")
    assert read_sentences(WordDocument(content)) == sentences
    found = body(shouted_bytes(WordDocument(content), lambda number: range(number)[::-1]))
    assert found.count("<w:tab/>") + found.count("<w:br/>") == source.count("<w:tab/>") + source.count("<w:br/>")
    if wanted is not None:
        assert re.sub("<[^>]*>", "", re.sub("<w:(?:tab|br)/>", "|", found)) == wanted


def test_a_language_and_what_is_not_checked_are_no_looks(shouted_bytes: Shout) -> None:
    unseen = '<w:noProof/><w:lang w:val="pt-PT"/>'
    source = run("one tw") + run("o ", f"<w:rPr>{unseen}</w:rPr>") + run("three", f"<w:rPr><w:b/>{unseen}</w:rPr>")
    assert body(shouted_bytes(WordDocument(docx(f"<w:p>{source}</w:p>")))) == (
        f"<w:p>{run('ONE TWO ')}{run('THREE', BOLD)}</w:p>"
    )


RAISED, LOWERED = (f'<w:rPr><w:vertAlign w:val="{way}script"/></w:rPr>' for way in ("super", "sub"))


@pytest.mark.parametrize(
    "source",
    [
        run("TEN 10") + run("6", RAISED) + run(" CELLS."),
        run("TEN 10") + run("6 ", RAISED) + run("CELLS."),
        run("H") + run("2", LOWERED) + run("O OF ") + run("14", RAISED) + run("C."),
        run("SAID.") + run("3 ", RAISED) + run("NEXT."),
        run("THE 1") + run("ST", RAISED) + run(" OF MAY"),
        f"{LINK}{run('ONE')}{run('1', RAISED)}</w:hyperlink>{run(' TWO')}{LINK}{run('2', RAISED)}</w:hyperlink>",
    ],
)
def test_raised_and_lowered_runs_of_word(shouted_bytes: Shout, source: str) -> None:
    assert body(shouted_bytes(WordDocument(docx(f"<w:p>{source}</w:p>")))) == f"<w:p>{source}</w:p>"


def test_a_model_does_not_read_a_raised_number_as_a_part_of_another() -> None:
    source = docx(f"<w:p>{run('ten 10')}{run('6', RAISED)}{run(' cells')}</w:p>")
    assert [segment.text for segment in WordDocument(source).segments] == ["ten 10 cells"]


@pytest.mark.parametrize("name", ["smartTag", "customXml"])
def test_properties_stay_the_first_in_their_element(shouted_bytes: Shout, name: str) -> None:
    tag = f"<w:{name}><w:{name}Pr><w:attr/></w:{name}Pr>"
    source = docx(f"<w:p>{run('one ')}{tag}{run('two')}</w:{name}></w:p>")
    found = shouted_bytes(WordDocument(source), lambda _: [0, 0])  # no word comes from "two"
    assert f"{tag}{run('ONE')}</w:{name}>" in body(found)


def test_a_section_of_character_data_is_text(shouted_bytes: Shout) -> None:
    for section in ("<![CDATA[tres & quatro]]>", "<![CDATA[tres\n& ]]><![CDATA[]]><![CDATA[quatro]]>"):
        source = f"<text:p>um <text:span>dois</text:span>{section} cinco</text:p>"
        found = ElementTree.fromstring(member(shouted_bytes(OpenDocument(odt(source))), "content.xml"))
        assert " ".join("".join(found.itertext()).split()) == "UM DOISTRES & QUATRO CINCO"
    kept = "<text:p>1<![CDATA[2 & 3]]>4</text:p>"
    assert kept in member(shouted_bytes(OpenDocument(odt(kept))), "content.xml")


def test_tables_notes_headers_and_all_else(shouted_bytes: Shout) -> None:
    inner = f"<w:tbl><w:tr><w:tc><w:p>{run('deep')}</w:p></w:tc></w:tr></w:tbl>"
    table = f"<w:tbl><w:tr><w:tc><w:p>{run('one')}</w:p>{inner}</w:tc></w:tr></w:tbl><w:p/><w:p>{run('42')}</w:p>"
    note = (
        f"<w:footnotes {W}><w:footnote><w:p><w:r><w:footnoteRef/></w:r>{run(' note')}</w:p></w:footnote></w:footnotes>"
    )
    header = f"<w:hdr {W}><w:p>{run('head')}</w:p></w:hdr>"
    others = {"word/footnotes.xml": note, "word/header1.xml": header, "word/media/x.bin": "\0\1", "word/a.xml": "<a/>"}
    data = docx(table, **others)
    found = shouted_bytes(WordDocument(data))
    assert body(found) == table.replace("deep", "DEEP").replace("one", "ONE")
    assert member(found, "word/footnotes.xml") == note.replace(" note", " NOTE")
    assert ">HEAD<" in member(found, "word/header1.xml")
    with zipfile.ZipFile(io.BytesIO(found)) as new, zipfile.ZipFile(io.BytesIO(data)) as old:
        assert new.namelist() == old.namelist()
        assert new.read("word/media/x.bin") == b"\0\1"


def test_other_prefixes_of_the_same_namespace(shouted_bytes: Shout) -> None:
    renamed = f"<w:document {W}><w:body><w:p>{run('one')}</w:p></w:body></w:document>".replace("w:", "x:")
    renamed = renamed.replace("xmlns:w", "xmlns:x")
    found = shouted_bytes(WordDocument(packed({"word/document.xml": renamed})))
    assert member(found, "word/document.xml") == renamed.replace("one", "ONE")


def test_a_prefix_means_what_the_nearest_element_says(shouted_bytes: Shout) -> None:
    here, elsewhere = (f'<p><r><t xml:space="preserve">{text}</t></r></p>' for text in ("one", "two"))
    main = W.replace(":w", "")
    source = f'<b {main}>{here}<c xmlns="urn:other">{elsewhere}<d {main}>{here}</d>{elsewhere}</c>{here}</b>{elsewhere}'
    assert body(shouted_bytes(WordDocument(docx(source)))) == source.replace("one", "ONE")


def test_the_usual_prefix_of_another_namespace(shouted_bytes: Shout) -> None:
    own, other = (f"<w:p>{run(text)}</w:p>" for text in ("one", "two"))
    source = f'{own}<c xmlns:w="urn:other">{other}<d {W}>{own}</d></c>'
    assert body(shouted_bytes(WordDocument(docx(source)))) == source.replace("one", "ONE")


ODF = "urn:oasis:names:tc:opendocument:xmlns:"
NAMES = f'xmlns:office="{ODF}office:1.0" xmlns:text="{ODF}text:1.0" xmlns:draw="{ODF}drawing:1.0"'


STYLE = f'xmlns:style="{ODF}style:1.0"'
STYLES = """<office:automatic-styles><style:style style:name="T1" style:family="text"><style:text-properties
    style:text-position="super 58%"/></style:style></office:automatic-styles>"""


def odt(text: str) -> bytes:
    content = f"{STYLES}<office:body>{text}</office:body>"
    whole = f"{HEAD}<office:document-content {NAMES} {STYLE}>{content}</office:document-content>"
    data = packed({"mimetype": "application/vnd.oasis.opendocument.text"}, zipfile.ZIP_STORED)
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("content.xml", whole)
    return out.getvalue()


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("<text:p>a\n  b &amp; <text:a>c</text:a></text:p>", "<text:p>A B &amp; <text:a>C</text:a></text:p>"),
        ("<text:h>a<text:line-break/>b</text:h><text:p/>", "<text:h>A<text:line-break/>B</text:h><text:p/>"),
        ("<text:p>1<text:tab/>a b<text:tab/>C D</text:p>", "<text:p>1<text:tab/>A B<text:tab/>C D</text:p>"),
        (
            "<text:p>a<text:note><text:note-body><text:p>b</text:p></text:note-body></text:note>.</text:p>",
            "<text:p>A<text:note><text:note-body><text:p>B</text:p></text:note-body></text:note>.</text:p>",
        ),
        ("<text:tracked-changes><text:p>a</text:p></text:tracked-changes>",) * 2,
        ("<text:p>a<text:s text:c='3'/>b<text:soft-page-break/> c</text:p>", "<text:p>A B C</text:p>"),
        (
            "<text:p><text:s text:c='4'/>a  b<text:s text:c='3'/>c<text:s/></text:p><text:p><text:s/></text:p>",
            "<text:p><text:s text:c='4'/>A B C<text:s/></text:p><text:p><text:s/></text:p>",
        ),
        (
            "<text:p>By <text:title>Bo</text:title> see <text:bookmark-ref>two</text:bookmark-ref>.</text:p>",
            "<text:p>BY <text:title>Bo</text:title> SEE <text:bookmark-ref>two</text:bookmark-ref>.</text:p>",
        ),
        ("<text:p>A 10<text:span>6</text:span> B</text:p>",) * 2,
        ("<text:p>A 10<text:span text:style-name='T1'>6 </text:span>B</text:p>",) * 2,
        ("<text:p><!-- k -->a<text:bookmark n='x'/></text:p>", "<text:p><!-- k -->A<text:bookmark n='x'/></text:p>"),
    ],
)  # fmt: skip
def test_paragraphs_of_opendocument(shouted_bytes: Shout, source: str, wanted: str) -> None:
    found = shouted_bytes(OpenDocument(odt(source)))
    assert f"<office:body>{wanted}</office:body>" in member(found, "content.xml")
    with zipfile.ZipFile(io.BytesIO(found)) as file:
        first = file.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)


def test_characters_that_xml_cannot_hold_are_left_out() -> None:
    found = OpenDocument(odt("<text:p>a</text:p>")).assemble([[Text("x\x00\x08\ufffe]]>\ud800y")]])
    assert "<text:p>x]]&gt;y</text:p>" in member(found, "content.xml")


def crowded(number: int) -> bytes:
    return packed({f"x{place}": "" for place in range(number)})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a document"),
        (b"PK\x03\x04 and then nothing", "not a document"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "the document is encrypted, or of Office before 2007"),
        (packed({"META-INF/manifest.xml": "<m><encryption-data/></m>"}), "the document is encrypted: save it"),
        (packed({"a.txt": "x"}), "is not a Word document"),
        (packed({"word/document.xml": "<w:document"}), "word/document.xml is damaged"),
        (packed({"word/document.xml": "<w:document/>"}), "word/document.xml is damaged"),
        (packed({"word/document.xml": f"{'<a>' * 300}{'</a>' * 300}"}), "more than 200 levels of elements"),
        (packed({"word/document.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "document type"),
        (packed({"word/document.xml": f'<a:b xmlns:a="{"u" * 1000}"/>'}), "a namespace of more than 256 characters"),
        (packed({"word/document.xml": "<a/>".encode("utf-16")}), "not in UTF-8"),
        (packed({"word/document.xml": '<?xml version="1.0" encoding="latin-1"?><a/>'}), "latin-1"),
        (packed({"word/document.xml": b" " * (4 << 20)}), "far more than is packed"),
        (packed({"word/document.xml": "<a/>"}, zipfile.ZIP_LZMA), "unusual way"),
        (crowded(4001), "4,001 members"),
        (docx(f"<w:p>{run('one')}</w:p>")[:-40], "not a document"),
        (docx(f"<w:p>{run('one')}</w:p>").replace(b"[Content_Types].xml", b"word/document.xml\0\0"), "twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",  # what is packed holds the time
)
def test_what_is_hostile_or_damaged_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=re.escape(says)) as caught:
        WordDocument(data)
    assert "\n" not in str(caught.value)


def test_all_files_of_a_document_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_source, "MOST_NODES", 30)
    monkeypatch.setattr(segment, "MOST_NODES", 30)
    paragraph = f"<w:p>{run('one')}</w:p>"
    headers = {f"word/header{n}.xml": f"<w:hdr {W}>{paragraph * 3}</w:hdr>" for n in range(3)}
    assert len(WordDocument(docx(paragraph)).segments) == 1
    with pytest.raises(DataError, match="the document has more than 30 elements and texts"):
        WordDocument(docx(paragraph, **headers))


def test_an_archive_that_lies_about_its_sizes_is_read_no_further_than_it_says() -> None:
    data = bytearray(packed({"a": b"x" * 1000}))
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = (10).to_bytes(4, "little")
    with pytest.raises(DataError):
        Archive(bytes(data))


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({"a": b"x" * 1000, "b": b"y" * 1000})
    assert len(Archive(data).members) == 2
    for name, most in {"MOST_MEMBERS": 1, "MOST_MEMBER_BYTES": 999, "MOST_BYTES": 1999}.items():
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, most)
            with pytest.raises(DataError):
                Archive(data)


LONG = f'<w:rPr><w:x w:y="{"z" * 10_000}"/></w:rPr>'


@pytest.mark.parametrize("kind", ["bookmark", "commentRange"])
def test_ranges_begin_before_they_end_wherever_words_go(shouted_bytes: Shout, kind: str) -> None:
    start, end = f'<w:{kind}Start w:id="0"/>', f'<w:{kind}End w:id="0"/>'
    text = run("he ") + run("has", BOLD) + start + run(" the book") + end + run(" read")
    for order in itertools.permutations(range(5)):
        found = body(shouted_bytes(WordDocument(docx(f"<w:p>{text}</w:p>")), lambda _, order=order: order))
        assert found.index(start) < found.index(end), order


INSTRUCTION = "<w:r><w:instrText> REF x </w:instrText></w:r>"
ADDED, END_ADDED = '<w:ins w:id="1">', "</w:ins>"


@pytest.mark.parametrize(
    "field",
    [
        f"{ADDED}{BEGIN}{INSTRUCTION}{END_ADDED}{ADDED}{SEPARATE}{run('Table')}{END}{END_ADDED}",
        f"{ADDED}{run('see ')}{BEGIN}{END_ADDED}{INSTRUCTION}{SEPARATE}{run('Table')}{ADDED}{END}{END_ADDED}",
        f"{ADDED}{BEGIN}{END_ADDED}{INSTRUCTION}{SEPARATE}{run('Table')}{END}",
    ],
)
def test_a_field_of_several_changes_stays_as_it_is(shouted_bytes: Shout, field: str) -> None:
    text = f"<w:p>{run('one ')}{field}{run(' two three')}</w:p>"
    for order in itertools.permutations(range(3)):
        found = body(shouted_bytes(WordDocument(docx(text)), lambda _, order=order: order))
        assert field in found, order


TICK = run("☐", "<w:rPr><w:rFonts/></w:rPr>")


@pytest.mark.parametrize(
    "sign",
    [
        f"<w:sdt><w:sdtPr><w:checkbox/></w:sdtPr><w:sdtContent>{TICK}</w:sdtContent></w:sdt>",
        TICK,
        f"{LINK}{run('→')}</w:hyperlink>",
        f"{BEGIN}{INSTRUCTION}{SEPARATE}{run('12')}{END}",
        f"{SIMPLE}{run('[3]')}</w:fldSimple>",
        f"{SIMPLE}{run('12')}</w:fldSimple>",
    ],
)
def test_signs_and_what_fields_compute_are_no_words_that_others_could_replace(
    shouted_bytes: Shout, read_sentences: Sentences, sign: str
) -> None:
    document = WordDocument(docx(f"<w:p>{run('one ')}{sign}{run(' two')}</w:p>"))
    assert [sentence.split() for sentence in read_sentences(document)] == [["one", "two"]]
    for order in itertools.permutations(range(2)):
        assert sign in body(shouted_bytes(document, lambda _, order=order: order))


def test_a_sign_of_an_opendocument_is_no_word(shouted_bytes: Shout) -> None:
    sign = '<text:span text:style-name="T1">✓</text:span>'
    found = shouted_bytes(OpenDocument(odt(f"<text:p>one {sign} two</text:p>")), lambda _: (1, 0))
    assert sign in member(found, "content.xml")


def test_fields_within_fields_without_end_are_all_kept(shouted_bytes: Shout) -> None:
    fields = f"{(BEGIN + SEPARATE) * 2_000}{run('word')}{END * 2_000}"
    found = body(shouted_bytes(WordDocument(docx(f"<w:p>{run('one ')}{fields}</w:p>"))))
    assert [found.count(bound) for bound in (BEGIN, SEPARATE, END)] == [2_000] * 3
    assert [text for text in re.findall(">([^<>]+)<", found) if text.strip()] == ["ONE", "word"]


def test_a_field_of_several_paragraphs_is_translated(shouted_bytes: Shout) -> None:
    text = f"<w:p>{BEGIN}{INSTRUCTION}{SEPARATE}{run('one')}</w:p><w:p>{run('two')}{END}</w:p>"
    found = body(shouted_bytes(WordDocument(docx(text))))
    assert re.findall(">([A-Z]+)<", found) == ["ONE", "TWO"]


def test_what_stood_in_one_run_stays_in_one(shouted_bytes: Shout) -> None:
    """Its looks are not written for each piece of it: 553 bytes became 4.8 GB."""
    tabs = f"<w:r>{LONG}<w:tab/>{'<w:br/>' * 500}<w:tab/></w:r>"
    assert f"{run('ONE', LONG)}{tabs}" in body(
        shouted_bytes(WordDocument(docx(f"<w:p>{run('one', LONG)}{tabs}</w:p>")))
    )
    mixed = f"<w:r>{LONG}<w:t>one </w:t><w:tab/><w:tab/><w:t>two</w:t></w:r>"
    assert body(shouted_bytes(WordDocument(docx(f"<w:p>{mixed}</w:p>")))).count(LONG) == 3
    instruction = '<w:fldChar w:fldCharType="begin"/><w:instrText>X</w:instrText><w:fldChar w:fldCharType="separate"/>'
    field = f"<w:r>{BOLD}{instruction}</w:r>{run('ONE', BOLD)}{END}{run('TWO')}"
    assert body(shouted_bytes(WordDocument(docx(f"<w:p>{field}</w:p>")))) == f"<w:p>{field}</w:p>"


def nested(begin: str, end: str, levels: int) -> str:
    return f"<w:p>{begin}" * levels + f"<w:p>{run('one ' * 20_000)}</w:p>" + f"{end}{run('two')}</w:p>" * levels


def test_a_document_that_would_be_far_larger_than_it_was_is_refused(shouted_bytes: Shout) -> None:
    source = f"<w:p><w:r>{LONG}{'<w:t>one </w:t><w:tab/>' * 200}</w:r></w:p>"
    document = WordDocument(docx(source))
    with pytest.raises(DataError, match="would be far larger than the document"):
        shouted_bytes(document)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<w:pPr>", "</w:pPr>"),
        ("<w:r><w:rPr>", "</w:rPr><w:t>s</w:t></w:r>"),
        ("<w:smartTag><w:smartTagPr>", f"</w:smartTagPr>{run('s')}</w:smartTag>"),
        ("<w:sdt><w:sdtPr>", f"</w:sdtPr><w:sdtContent>{run('s')}</w:sdtContent></w:sdt>"),
        ("<w:sdt>", f"<w:sdtContent>{run('s')}</w:sdtContent></w:sdt>"),
    ],
)
def test_no_paragraph_is_kept_for_each_level_that_it_stands_in(begin: str, end: str) -> None:
    """Settings hold none, and where another element holds one, it is written once."""
    data = docx(nested(begin, end, 40))
    tracemalloc.start()
    document = WordDocument(data)
    with contextlib.suppress(DataError):
        document.assemble([[Text(segment.text)] for segment in document.segments])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_500_000


def steps(function: Callable[[], object]) -> int:
    """Calls of functions, and of generators each time, that it takes."""
    number = 0

    def count(*_: object) -> None:
        nonlocal number
        number += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize(
    "source",
    [
        lambda number: docx(f"<w:p>{run('one ')}{'<w:bookmarkStart/>' * number}{run('two')}</w:p>"),
        lambda number: docx(f"<w:p><w:r>{'<w:t>one</w:t><w:tab/>' * number}</w:r></w:p>"),
        lambda number: odt(f"<text:p>one {'<text:bookmark/>' * number}two</text:p>"),
    ],
)
def test_work_is_in_proportion_to_the_document(shouted_bytes: Shout, source: Callable[[int], bytes]) -> None:
    def translate(data: bytes) -> None:
        shouted_bytes(WordDocument(data) if b"word/" in data else OpenDocument(data))

    few, many = (steps(partial(translate, source(number))) for number in (200, 1_600))
    assert many < 10 * few


def test_any_cut_or_changed_byte_is_a_sentence_or_a_document() -> None:
    data = docx(f"<w:p>{run('one')}</w:p>")
    for place in range(0, len(data), 7):
        for damaged in (data[:place], data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]):
            with contextlib.suppress(DataError):
                assert isinstance(WordDocument(damaged), OfficeDocument)


def test_attributes_that_nobody_reads_take_no_memory() -> None:
    numbers = (number * number * 7919 % 999_983 for number in itertools.count())
    many = (" ".join(f'a{place}="{next(numbers)}"' for place in range(100)) for _ in range(3_000))
    document = docx(f"<w:p>{run('one')}</w:p>" + "".join(f"<w:x {attributes}/>" for attributes in many))
    tracemalloc.start()
    WordDocument(document)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000  # of 4 MB


def test_markup_of_all_members_together_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {f"word/header{number}.xml": f"<w:hdr {W}>{' ' * 400}</w:hdr>" for number in range(3)}
    document = docx(f"<w:p>{run('one')}</w:p>", **parts)
    monkeypatch.setattr(office, "MOST_MEMBER_BYTES", 1_000)
    with pytest.raises(DataError, match="the document has more than 1,000 bytes of text and markup: split it"):
        WordDocument(document)


def test_an_archive_with_an_impossible_place_is_damaged() -> None:
    data = bytearray(docx("<w:p/>"))
    start = data.rindex(b"PK\x01\x02")
    name, extra = (int.from_bytes(data[start + place : start + place + 2], "little") for place in (28, 30))
    far = b"\x01\x00\x08\x00" + (1 << 63).to_bytes(8, "little")
    data[start + 42 : start + 46] = b"\xff" * 4  # where the member begins: see the field of 64 bits
    data[start + 30 : start + 32] = (extra + len(far)).to_bytes(2, "little")
    data[start + 46 + name + extra : start + 46 + name + extra] = far
    end = data.rindex(b"PK\x05\x06")
    size = int.from_bytes(data[end + 12 : end + 16], "little") + len(far)
    data[end + 12 : end + 16] = size.to_bytes(4, "little")
    with pytest.raises(DataError, match="this is not a document, or a damaged one"):
        WordDocument(bytes(data))
