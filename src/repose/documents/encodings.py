"""Text in files: in which encoding it is read, and written again."""

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from repose.data.lines import order_of_utf_16
from repose.documents.segment import Placed, Segment, TextDocument
from repose.system.errors import DataError

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([\w.:-]{1,40})""")
_DECLARED = frozenset(
    (
        *("ascii", "utf-8", "cp866", "koi8-r", "koi8-u", "cp874", "tis-620", "mac-roman", "mac-cyrillic"),
        *("gb2312", "gbk", "gb18030", "hz", "big5", "big5hkscs"),
        *("euc_jp", "iso2022_jp", "shift_jis", "cp932", "euc_kr", "cp949"),
        *(f"cp125{n}" for n in range(9)),
        *(f"iso8859-{n}" for n in range(1, 17)),
    )
)
"""Encodings that a page may declare, by Python's names: those that browsers know, but for UTF-16, which no page can
declare in itself. Others of Python's are no encodings of text, and some take hours."""
_TO_BROWSERS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""What browsers mean by some of them (https://encoding.spec.whatwg.org/#names-and-labels): larger ones."""
_OTHER_LABELS = {
    **{"windows-31j": "cp932", "windows-874": "cp874", "windows-949": "cp949"},
    **{"iso-8859-8-i": "iso8859-8", "gb_2312-80": "gb2312", "ksc_5601": "euc_kr"},
}
"""Labels that Python does not know, besides those with x- before them."""
_LOOKED_AT = 2048
_UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@dataclass(frozen=True)
class Encoded:
    """A document of text in a file, written in the encoding that it was read in."""

    document: TextDocument
    encoding: str
    mark: bytes
    """Byte order mark."""
    references: bool
    """Whether a character that the encoding does not have can be written by its number."""

    @property
    def segments(self) -> Sequence[Segment]:
        """What is to be translated in the document."""
        return self.document.segments

    @property
    def charset(self) -> str:
        """The encoding, as a header of HTTP has it; nothing for a page in another one than Unicode's, which says so."""
        return {"utf-8": "utf-8", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}.get(self.encoding, "")

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """The file with these translations."""
        text = self.document.text(placed)
        return self.mark + text.encode(self.encoding, "xmlcharrefreplace" if self.references else "replace")

    def decoded(self, data: bytes) -> str:
        """The text of a file that `assemble` has made."""
        return data.removeprefix(self.mark).decode(self.encoding)


def read_text(
    data: bytes, make: Callable[[str], TextDocument], *, markup: Literal["html", "xhtml"] | None = None
) -> Encoded:
    """A document of a file of text, in the encoding of its byte order mark, or with `markup` in the one that it
    declares, or else in UTF-8. Raises DataError for one in none of them."""
    if data.startswith(_UTF_32):
        raise DataError("the file is in UTF-32: save it in UTF-8 first")
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
    if not mark and (order := order_of_utf_16(data[:_LOOKED_AT].split(b"\n")[0])):
        raise DataError(f"the file is in UTF-16 without its mark: convert it with `iconv -f utf-16{order} -t utf-8`")
    label, declared = ("", "utf-8") if markup is None else _declared(data, markup)
    candidates = [encoding] if encoding else [declared, "utf-8"]
    if declared == "cp1252" and markup == "html":
        candidates.append("latin-1")  # has every byte, as browsers' has
    for name in candidates:
        try:
            return Encoded(make(data[len(mark) :].decode(name)), name, mark, references=markup is not None)
        except UnicodeError:
            continue
    if declared != "utf-8" and not encoding:
        raise DataError(f"the file is neither in {label}, as it declares, nor in UTF-8: save it in UTF-8 first")
    raise DataError(
        "the file is not in UTF-8: save it in UTF-8, or convert it with `iconv -f cp1252 -t utf-8` if it is in cp1252"
    )


def _declared(data: bytes, markup: Literal["html", "xhtml"]) -> tuple[str, str]:
    """What a page calls its encoding, and that by Python's name: of HTML what browsers mean by it; of XHTML, in which a
    page's own words for it count nothing, what its first line says.

    UTF-8 where it says nothing, or names an encoding that no page can be in.
    """
    is_html = markup == "html"
    found = (_CHARSET.search(data[:_LOOKED_AT]) if is_html else None) or _XML_ENCODING.match(data)
    label = found[1].decode().lower() if found else "utf-8"
    known = _OTHER_LABELS.get(label, re.sub("^(x-)+", "", label)) if is_html else label
    try:
        name = codecs.lookup(known).name
    except LookupError:
        return label, "utf-8"
    if name not in _DECLARED:
        return label, "utf-8"
    return label, _TO_BROWSERS.get(name, name) if is_html else name
