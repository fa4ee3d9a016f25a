"""Files by their suffix: how each is read into segments, and in which encoding text is read and written."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from repose.documents.html import HtmlDocument
from repose.documents.opendocument import read_odt
from repose.documents.plain import PlainDocument
from repose.documents.segment import Document, Placed, Segment
from repose.documents.subtitles import SubtitleDocument
from repose.documents.wordprocessing import read_docx
from repose.system.errors import ConfigError, DataError

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


class TextDocument(Protocol):
    """A document that is text."""

    @property
    def segments(self) -> Sequence[Segment]:
        """What is to be translated."""

    def text(self, placed: Sequence[Placed]) -> str:
        """With these translations."""


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
        """Those of the document."""
        return self.document.segments

    def assemble(self, placed: Sequence[Placed]) -> bytes:
        """The file with these translations. Text of an encoding that does not have all its characters is in UTF-8."""
        text = self.document.text(placed)
        try:
            return self.mark + text.encode(self.encoding, "xmlcharrefreplace" if self.references else "strict")
        except UnicodeEncodeError:
            return text.encode("utf-8", "replace")


class Format(NamedTuple):
    """A kind of file."""

    read: Callable[[bytes], Document]
    """Raises DataError for a damaged one."""
    archive: bool
    """Whether it is an archive of XML, which costs more than its size says."""


def _text_format(make: Callable[[str], TextDocument], *, markup: bool = False) -> Format:
    def read(data: bytes) -> Document:
        mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
        declared = _CHARSET.search(data[:2048]) if markup else None
        candidates = [encoding] if encoding else [declared[1].decode() if declared else "utf-8", "utf-8"]
        for name in candidates:
            try:
                return Encoded(make(data[len(mark) :].decode(name)), name, mark, references=markup)
            except (UnicodeError, LookupError):
                continue
        raise DataError("the file is not in UTF-8: save it in UTF-8 first")

    return Format(read, archive=False)


_PARAGRAPHS = _text_format(lambda text: PlainDocument(text, paragraphs=True))
_HTML = _text_format(HtmlDocument, markup=True)
FORMATS: dict[str, Format] = {
    ".txt": _text_format(PlainDocument),
    ".html": _HTML,
    ".htm": _HTML,
    ".srt": _text_format(lambda text: SubtitleDocument(text, escaped=False)),
    ".vtt": _text_format(lambda text: SubtitleDocument(text, escaped=True)),
    ".docx": Format(read_docx, archive=True),
    ".odt": Format(read_odt, archive=True),
}
"""By suffix, in lower case."""


def read_document(data: bytes, suffix: str, *, paragraphs: bool = False) -> Document:
    """A file's content, by the suffix of its name, such as ".docx". `paragraphs`: of plain text, see `PlainDocument`.

    Raises ConfigError for a suffix that is not known, DataError for a file that is damaged or not what it says.
    """
    format_ = FORMATS.get(suffix.lower())
    if format_ is None:
        what = f"files that end in {suffix!r}" if suffix else "files without a suffix"
        raise ConfigError(f"{what} cannot be translated: known are {', '.join(FORMATS)}")
    return _PARAGRAPHS.read(data) if paragraphs and suffix.lower() == ".txt" else format_.read(data)
