"""Read sentence pairs from a translation memory in TMX, the exchange format of translators' tools.

TMX 1.4b has units (`tu`) with a variant (`tuv`) for each language. A variant has a segment (`seg`) of text, which may
contain the codes of the translated document (`bpt`, `ept`, `it`, `ph`, `ut`). Files are read in constant memory and in
the encoding that they state. Control characters are accepted: some tools write them, although XML allows none.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html.entities import html5
from itertools import islice
from pathlib import Path
from xml.parsers import expat

from repose.data.language import code_of, short_code
from repose.data.lines import blocks
from repose.data.pairs import MAX_CHARACTERS, Counts, Pair, Row
from repose.data.tables import BY_FIELDS
from repose.system.errors import DataError

_PAIRED, _ALONE = frozenset({"bpt", "ept"}), frozenset({"it", "ph", "ut"})
"""Codes that enclose text, and codes that stand for something in it, such as a line break or a number."""
_MOST_LANGUAGES = 100
"""Most languages of one unit, and in a message."""
_MOST_DEPTH, _MOST_MARKUP, _MOST_NAMES = 200, 1 << 20, 10_000
"""Most nested elements, most bytes of one tag or comment, and most names; the parser holds all of these in memory."""
_CODE_LENGTH = 40
_LOOKED_AT = 1_000
"""Units from which the languages are guessed."""
_BREAK = re.compile(r"[\r\n]+")
_CONTROL = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:x0*(?:[0-8bcef]|1[0-9a-f])|0*(?:[0-8]|1[124-9]|2\d|3[01]));", re.I
)
_BEGUN = re.compile(rb"&#?\w{0,12}\Z")
"""A character reference that the next block completes."""
_HOLE = "\0"
"""Marks the place of a standalone code in a segment until the segment is complete."""
_NAME_BOTH = f'say which are source and target ("en" is "en-US", too), with {BY_FIELDS}'

Unit = dict[str, str]
"""Text by language code, as the file writes the codes."""


def languages_of_memory(path: Path, fields: Sequence[str | None]) -> Pair:
    """Choose source and target language: those in `fields`, if given, else those of the first thousand units.

    The default source is the language that the file declares as its own, or else the first one. Raises DataError if the
    file is not TMX, or if there are several languages to choose from.
    """
    src, tgt = fields
    if src is not None and tgt is not None:
        return src, tgt
    codes: dict[str, None] = {}
    owns = set()
    for own, unit in islice((found for found in _units(path) if len(found[1]) > 1), _LOOKED_AT):
        owns.add(own)
        codes.update(dict.fromkeys(list(unit)[: _MOST_LANGUAGES - len(codes)]))
    if not codes:
        raise DataError(f"{path} has no unit in two languages: export the translation memory again")
    bases = list(dict.fromkeys(map(short_code, codes)))
    names = bases if len(bases) > 1 else list(codes)  # the two languages may be "pt-PT" and "pt-BR"

    def others(named: str) -> list[str]:
        return [name for name in names if not _is(name, named) and not _is(named, name)]

    sources = names if tgt is None else others(tgt)
    src = src or next((name for name in sources if any(_is(own, name) for own in owns)), "")
    src = src or (sources[0] if len(sources) == (2 if tgt is None else 1) else "")
    targets = [tgt] if tgt is not None else others(src)
    if not src or len(targets) != 1:
        raise DataError(f"{path} has texts in {', '.join(map(repr, codes))}: {_NAME_BOTH}")
    return src, targets[0]


def memory_pairs(path: Path, languages: Pair, counts: Counts) -> Iterator[Row]:
    """Yield source and target of each unit, or the reason why it has none; "pt" also means "pt-BR".

    Raises DataError if the file is not TMX, and after the last unit if no unit had one of the languages.
    """
    counts.languages = languages
    found: set[str] = set()
    seen: dict[str, None] = {}
    for _, unit in _units(path, counts):
        texts = _sides(unit, languages)
        seen.update(dict.fromkeys(list(unit)[: _MOST_LANGUAGES - len(seen)]))
        found.update(language for language, text in zip(languages, texts, strict=True) if text is not None)
        src, tgt = texts
        if src is None or tgt is None:
            yield f"no text in {languages[1] if src is not None else languages[0]}"
        else:
            yield src, tgt
    if seen and (absent := [language for language in languages if language not in found]):
        raise DataError(f"{path} has no text in {absent[0]!r} (present: {', '.join(map(repr, seen))}): {_NAME_BOTH}")


def _sides(unit: Unit, languages: Pair) -> tuple[str | None, str | None]:
    """Return the texts of source and target, from two different codes.

    Of several variants, take the first that is not blank.
    """
    texts: list[str | None] = [None, None]
    taken = None
    # If one language includes the other, choose the narrower one first: of "pt" and "pt-BR" the latter.
    for side in (1, 0) if _is(languages[1], languages[0]) else (0, 1):
        fit = [code for code in unit if code != taken and _is(code, languages[side])]
        code = next((code for code in fit if unit[code].strip()), fit[0] if fit else None)
        if code is not None:
            texts[side], taken = unit[code], code
    return texts[0], texts[1]


@lru_cache(maxsize=1024)
def _is(code: str, wanted: str) -> bool:
    """Return whether a code is that of a language or of one of its variants.

    "pt-BR" is "pt", but not the reverse; "por" and "Portuguese" are "pt".
    """
    own, other = (
        "-".join((short_code(text), *text.casefold().replace("_", "-").split("-")[1:]))
        for text in map(code_of, (code, wanted))
    )
    return own == other or own.startswith(f"{other}-")


def _units(path: Path, counts: Counts | None = None) -> Iterator[tuple[str, Unit]]:
    """Yield the units, each with the language that the file declares as its own. Without `counts`, no text is kept."""
    parser = _Parser(path, 0 if counts is None else MAX_CHARACTERS + 1)
    num_removed = 0
    for block, number in _without_control(blocks(path)):
        num_removed += number
        parser.feed(block)
        read, parser.units = parser.units, []
        for unit in read:
            yield parser.own_language, unit
    parser.feed(b"", is_last=True)
    if counts is not None and num_removed:
        counts.notes["control character read as a space"] = num_removed


def _without_control(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield blocks, in UTF-8 if the file was UTF-16, with spaces instead of characters that XML does not allow, and how
    many were replaced in each block."""
    decoder: codecs.IncrementalDecoder | None = None
    left, is_first = b"", True
    for piece in pieces:
        if is_first and (order := _utf_16(piece)) is not None:
            decoder = codecs.getincrementaldecoder(order)(errors="replace")
        is_first = False
        data = left + (piece if decoder is None else decoder.decode(piece).encode("utf-8", "replace"))
        left = found[0] if (found := _BEGUN.search(data)) else b""
        yield _CONTROL.subn(b" ", data[: len(data) - len(left)])
    yield left, 0


def _utf_16(data: bytes) -> str | None:
    """Return the codec of a UTF-16 file, from its byte-order mark or its first character; None for other files."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}.get(data[:2])


class _Parser:
    def __init__(self, path: Path, longest: int) -> None:
        self.own_language = ""
        self.units: list[Unit] = []
        """Units that were read and not taken yet."""
        self._path, self._longest = path, longest
        self._unit: Unit = {}
        self._language = ""
        self._pieces: list[str] | None = None  # of a segment; None outside segments
        self._length = 0
        self._codes = 0  # depth of nested codes of the translated document
        self._depth = self._fed = 0
        self._expat: expat.XMLParserType | None = None

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        if self._expat is None:
            if not data:
                return
            self._expat = self._made(data)
        try:
            self._expat.Parse(data, is_last)
            self._fed += len(data)
            if self._fed - self._expat.CurrentByteIndex > _MOST_MARKUP:
                raise DataError(f"{self._path} has a tag or comment of more than {_MOST_MARKUP:,} bytes: remove it")
            if len(self._expat.intern) > _MOST_NAMES:
                raise DataError(
                    f"{self._path} has more than {_MOST_NAMES:,} names of elements: it is not a translation memory"
                )
        except DataError:
            raise
        except (expat.ExpatError, UnicodeDecodeError, LookupError) as error:
            place = f"{self._path}, line {self._expat.CurrentLineNumber:,}"
            what = str(error).partition(": line")[0]
            raise DataError(
                f"{place}: this is not XML ({what}): mend the line, or export the translation memory again"
            ) from error
        except ValueError as error:
            raise DataError(
                f"{self._path} is in an encoding that cannot be read ({error}): save it in UTF-8"
            ) from error

    def _made(self, begins: bytes) -> expat.XMLParserType:
        # UTF-16 has been converted to UTF-8 by now, whatever the file says.
        says = re.match(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*encoding\s*=\s*["']utf-?16""", begins, re.IGNORECASE)
        parser = expat.ParserCreate("utf-8" if says else None)
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._refuse
        parser.SkippedEntityHandler = self._reference
        parser.UseForeignDTD(True)  # without it, a reference such as &nbsp; would be an error
        return parser

    def _start(self, written: str, attributes: dict[str, str]) -> None:
        name = _local(written)
        if not self._depth and name != "tmx":
            raise DataError(
                f"{self._path} is not a translation memory but an XML file of <{written[:40]}>: export it as TMX"
            )
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise DataError(
                f"{self._path} has more than {_MOST_DEPTH} levels of elements: it is not a translation memory"
            )
        if name in ("header", "tuv"):
            values = {_local(key): value for key, value in attributes.items()}
        match name:
            case "header":
                self.own_language = values.get("srclang", "")[:_CODE_LENGTH]
            case "tu":
                self._unit = {}
            case "tuv":
                self._language = values.get("lang", "")[:_CODE_LENGTH] or "und"
            case "seg":
                self._pieces, self._length, self._codes = [], 0, 0
            case _ if name in _PAIRED or name in _ALONE:
                self._codes += 1

    def _text(self, text: str) -> None:
        if self._pieces is not None and not self._codes and self._length < self._longest:
            self._pieces.append(text[: self._longest - self._length])
            self._length += len(text)

    def _reference(self, name: str, _: bool) -> None:
        """Resolve a reference to an entity that an external document type might declare: HTML's entities are known."""
        self._text(html5.get(f"{name};", f"&{name};"))

    def _end(self, written: str) -> None:
        name = _local(written)
        self._depth -= 1
        if name == "seg" and self._pieces is not None:
            if len(self._unit) < _MOST_LANGUAGES:
                text = "".join(self._pieces)  # kept as it is if it is too long for a sentence
                self._unit.setdefault(self._language, _whole(text) if self._length <= MAX_CHARACTERS else text)
            self._pieces = None
        elif name == "tu":
            self.units.append(self._unit)
        elif name in _PAIRED or name in _ALONE:
            self._codes -= 1
            if name in _ALONE:
                self._text(_HOLE)

    def _refuse(self, *_: object) -> None:
        raise DataError(f"{self._path} declares entities, which are not read: export the translation memory again")


def _local(name: str) -> str:
    """Return an element's name without prefix and in lower case: early tools wrote capitals."""
    return name.rpartition(":")[2].lower()


def _whole(text: str) -> str:
    """Clean up a segment: its line breaks are only layout, and words stay separate where a standalone code stood."""
    text = _closed(text.split(_HOLE)) if _HOLE in text else text
    lines = _BREAK.split(text)
    if len(lines) == 1:
        return text
    first, *others, last = lines
    within = (line.strip(" \t") for line in others)
    return " ".join(filter(None, (first.rstrip(" \t"), *within, last.lstrip(" \t"))))


def _closed(parts: Sequence[str]) -> str:
    """Join parts of a text between which codes were removed.

    A gap becomes one space if it had one, or if two words would run together.
    """
    pieces, has_space = [parts[0].rstrip()], parts[0][-1:].isspace()
    for part in parts[1:]:
        text = part.strip()
        has_space = has_space or part[:1].isspace()
        if not text:
            continue
        before = pieces[-1][-1:]
        if before and (text[0] not in ",.;:!?)" if has_space else before.isalnum() and text[0].isalnum()):
            pieces.append(" ")
        pieces.append(text)
        has_space = part[-1:].isspace()
    return "".join(pieces) + " " * (has_space and bool(parts[-1].strip()))
