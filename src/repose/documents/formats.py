"""The file formats, by suffix, and how to read each."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from repose.documents.encodings import read_text
from repose.documents.epub import EpubDocument
from repose.documents.html import HtmlDocument
from repose.documents.opendocument import OpenDocument
from repose.documents.plain import PlainDocument
from repose.documents.presentation import Presentation
from repose.documents.segment import Document, TextDocument
from repose.documents.subtitles import SubtitleDocument
from repose.documents.wordprocessing import WordDocument
from repose.system.errors import ConfigError


class Format(NamedTuple):
    """A file format."""

    media_type: str
    read: Callable[[bytes], Document]
    """Reads a file. Raises DataError if it is damaged."""
    archive: bool
    """Whether it is an archive of XML, which needs far more memory than its size."""


def _of_text(media_type: str, make: Callable[[str], TextDocument], markup: Literal["html"] | None = None) -> Format:
    return Format(media_type, lambda data: read_text(data, make, markup=markup), archive=False)


def _of_opendocument(kind: str) -> Format:
    return Format(f"application/vnd.oasis.opendocument.{kind}", OpenDocument, archive=True)


_PARAGRAPHS = _of_text("text/plain", lambda text: PlainDocument(text, paragraphs=True))
_HTML = _of_text("text/html", HtmlDocument, "html")
_OFFICE = "application/vnd.openxmlformats-officedocument"
FORMATS: dict[str, Format] = {
    ".txt": _of_text("text/plain", PlainDocument),
    ".html": _HTML,
    ".htm": _HTML,
    ".srt": _of_text("application/x-subrip", lambda text: SubtitleDocument(text, webvtt=False)),
    ".vtt": _of_text("text/vtt", lambda text: SubtitleDocument(text, webvtt=True)),
    ".docx": Format(f"{_OFFICE}.wordprocessingml.document", WordDocument, archive=True),
    ".pptx": Format(f"{_OFFICE}.presentationml.presentation", Presentation, archive=True),
    ".odt": _of_opendocument("text"),
    ".odp": _of_opendocument("presentation"),
    ".ods": _of_opendocument("spreadsheet"),
    ".epub": Format("application/epub+zip", EpubDocument, archive=True),
}
"""Formats by suffix, in lower case."""
_SAVED_AS = {
    **dict.fromkeys((".xlsx", ".xls", ".csv", ".tsv"), "open it in a spreadsheet program and save it as .ods"),
    **dict.fromkeys((".doc", ".rtf"), "save it as .docx or .odt"),
    ".ppt": "save it as .pptx or .odp",
    ".md": "convert it to .html or .docx (pandoc does), or its code and links would be translated, too",
    ".pdf": "a PDF file has no sentences, only letters at positions; translate the document that it was made from",
}
"""Advice for files of unsupported formats, by suffix."""


def read_document(data: bytes, suffix: str, *, paragraphs: bool = False) -> Document:
    """Read the content of a file.

    `suffix`: the suffix of its name, such as ".docx". `paragraphs`: as for `PlainDocument`, for plain text only.

    Raises ConfigError if the suffix is not supported, if `paragraphs` does not apply to it, or if `data` is not bytes.
    Raises DataError if the file is damaged or not in the suffix's format.
    """
    if not isinstance(data, bytes):
        raise ConfigError(f"read_document takes the bytes of a file, not {type(data).__name__}: text.encode() has them")
    format_ = FORMATS.get(suffix.lower())
    if format_ is None:
        what = f"files that end in {suffix!r}" if suffix else "files without a suffix"
        other = _SAVED_AS.get(suffix.lower())
        raise ConfigError(f"{what} cannot be translated: {other or 'known are ' + ', '.join(FORMATS)}")
    if not paragraphs:
        return format_.read(data)
    if suffix.lower() != ".txt":
        raise ConfigError(f"paragraphs is for plain text (.txt): a file that ends in {suffix!r} says where they begin")
    return _PARAGRAPHS.read(data)
