"""Encodings of text files: read a file in its encoding, and write it again in the same one."""

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from repose.data.lines import WHERE_ENCODING, order_of_utf_16
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
"""Encodings that a page may declare, by Python's names.

They are those of browsers, except for UTF-16, which a page cannot declare in itself. Some of Python's other codecs do
not encode text, and some take hours.
"""
_TO_BROWSERS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""Encodings that browsers use in place of declared ones: supersets of them.

Source: https://encoding.spec.whatwg.org/#names-and-labels.
"""
_OTHER_LABELS = {
    **{"windows-31j": "cp932", "windows-874": "cp874", "windows-949": "cp949"},
    **{"iso-8859-8-i": "iso8859-8", "gb_2312-80": "gb2312", "ksc_5601": "euc_kr"},
}
"""Labels that Python does not know, besides those with the prefix x-."""
_LOOKED_AT = 2048
_UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@dataclass(frozen=True)
class Encoded:
    """A text document from a file. It is written in the encoding in which it was read."""

    document: TextDocument
    encoding: str
    mark: bytes
    """The byte order mark, or nothing."""
    references: bool
    """Whether a character that is missing from the encoding can be written as a numeric reference."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The document's segments."""
        return self.document.segments

    @property
    def charset(self) -> str:
        """The encoding's name for an HTTP header, if it is UTF-8 or UTF-16. A page in another encoding declares it."""
        return {"utf-8": "utf-8", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}.get(self.encoding, "")

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """Return the file with these translations."""
        text = self.document.text(placed)
        return self.mark + text.encode(self.encoding, "xmlcharrefreplace" if self.references else "replace")

    def decoded(self, data: bytes) -> str:
        """Return the text of a file that `assemble` returned."""
        return data.removeprefix(self.mark).decode(self.encoding)


def read_text(
    data: bytes, make: Callable[[str], TextDocument], *, markup: Literal["html", "xhtml"] | None = None
) -> Encoded:
    """Read a text file and return its document. `make`: makes the document from the text.

    The encoding is that of the byte order mark; or, with `markup`, the declared one; or else UTF-8. Raises DataError if
    the file is in none of them.
    """
    if data.startswith(_UTF_32):
        raise DataError("the file is in UTF-32: save it in UTF-8 first")
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
    if not mark and (order := order_of_utf_16(data[:_LOOKED_AT].split(b"\n")[0])):
        raise DataError(f"the file is in UTF-16 without its mark: convert it with `iconv -f utf-16{order} -t utf-8`")
    label, declared = ("", "utf-8") if markup is None else _declared(data, markup)
    candidates = [encoding] if encoding else [declared, "utf-8"]
    if declared == "cp1252" and markup == "html":
        candidates.append("latin-1")  # defines every byte, as browsers' cp1252 does
    for name in candidates:
        try:
            return Encoded(make(data[len(mark) :].decode(name)), name, mark, references=markup is not None)
        except UnicodeError:
            continue
    if declared != "utf-8" and not encoding:
        raise DataError(f"the file is neither in {label}, as it declares, nor in UTF-8: save it in UTF-8 first")
    command = "iconv -f ENCODING -t utf-8"
    raise DataError(f"the file is not in UTF-8: save it in UTF-8, or convert it with `{command}`, {WHERE_ENCODING}")


def _declared(data: bytes, markup: Literal["html", "xhtml"]) -> tuple[str, str]:
    """Return the encoding that a page declares: its label, and Python's name for it.

    For HTML, it is the encoding that browsers use for the label. For XHTML, only the XML declaration in the first line
    counts. The name is UTF-8 if the page declares nothing, or an encoding that no page can have.
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
