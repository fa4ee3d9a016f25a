"""Sentence pairs of a translation memory: TMX, the format in which translators' tools exchange them.

TMX 1.4b: units (`tu`) of variants (`tuv`), one for each language, with a segment (`seg`) of text in which the codes of
the translated document may stand (`bpt`, `ept`, `it`, `ph`, `ut`). Read in constant memory, in the encoding that the
file states.
"""

import re
from collections.abc import Iterator, Sequence
from html.entities import html5
from pathlib import Path
from xml.parsers import expat

from repose.data.lines import blocks
from repose.data.pairs import Pair
from repose.system.errors import DataError

_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
_MOST_LANGUAGES = 100
"""Of one unit, and in a message."""
_NAME_BOTH = (
    "say which are source and target with --set corpus.src_field=... and corpus.tgt_field=..., or in `evaluate` with "
    "--src-field and --tgt-field"
)
_BREAK = re.compile(r"[ \t]*[\r\n]+[ \t\r\n]*")

Unit = dict[str, str]
"""Text by the code of its language, as it is written."""


def languages_of_memory(path: Path, fields: Sequence[str | None]) -> Pair:
    """Source and target language, as the file writes them: `fields`, and for None of them, what the first unit in two
    languages has: as the source, the language that the file names as its own, or else the first.

    Raises DataError for a file that is no TMX, and where there are several languages to choose the target from."""
    src, tgt = fields
    if src is not None and tgt is not None:
        return src, tgt
    own, unit = next(((own, unit) for own, unit in _units(path) if len(unit) > 1), ("", {}))
    if not unit:
        raise DataError(f"{path} has no unit in two languages: export the translation memory again")
    known = [code for code in unit if tgt is None or not _is(code, tgt)]
    if not known:
        raise DataError(f"{path} has texts in {', '.join(map(repr, unit))}: {_NAME_BOTH}")
    src = src or next((code for code in known if _is(code, own) or _is(own, code)), known[0])
    others = [code for code in unit if not _is(code, src)]
    if tgt is None and len(others) != 1:
        raise DataError(f"{path} has texts in {', '.join(map(repr, unit))}: {_NAME_BOTH}")
    return src, tgt or others[0]


def memory_pairs(path: Path, languages: Pair, longest: int) -> Iterator[Pair | str]:
    """Source and target of each unit, or why it has none. A text of more than `longest` characters is cut there, one
    character later; "pt" means "pt-BR", too. Raises DataError for a file that is no TMX, and after the last unit if
    none had one of the languages."""
    found: set[str] = set()
    seen: dict[str, None] = {}
    for _, unit in _units(path, longest + 1):
        texts = [next((text for code, text in unit.items() if _is(code, wanted)), None) for wanted in languages]
        seen.update(dict.fromkeys(list(unit)[: _MOST_LANGUAGES - len(seen)]))
        found.update(language for language, text in zip(languages, texts, strict=True) if text is not None)
        src, tgt = texts
        if src is None or tgt is None:
            yield f"no text in {languages[1] if src is not None else languages[0]}"
        else:
            yield src, tgt
    if seen and (absent := [language for language in languages if language not in found]):
        raise DataError(f"{path} has no text in {absent[0]!r} (present: {', '.join(map(repr, seen))}): {_NAME_BOTH}")


def _is(code: str, wanted: str) -> bool:
    """Whether a code is that of a language, or of one of its variants: "pt-BR" is "pt", but not the reverse."""
    own, other = (text.casefold().replace("_", "-") for text in (code, wanted))
    return own == other or own.startswith(f"{other}-")


def _units(path: Path, longest: int = 0) -> Iterator[tuple[str, Unit]]:
    """The units, each with the language that the file names as its own."""
    parser = _Parser(path, longest)
    for block in blocks(path):
        parser.feed(block)
        read, parser.units = parser.units, []
        for unit in read:
            yield parser.own_language, unit
    parser.feed(b"", is_last=True)


class _Parser:
    def __init__(self, path: Path, longest: int) -> None:
        self.own_language = ""
        self.units: list[Unit] = []
        """Those that were read, and not taken yet."""
        self._path, self._longest = path, longest
        self._unit: Unit = {}
        self._language = ""
        self._pieces: list[str] | None = None  # of a segment, where the parser is in one
        self._length = 0
        self._codes = 0  # of a document, one in the other
        self._is_first = True
        self._expat = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._refuse
        parser.SkippedEntityHandler = self._reference

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        try:
            self._expat.Parse(data, is_last)
        except (expat.ExpatError, UnicodeDecodeError, LookupError, ValueError) as error:
            if self._is_first and is_last:
                return  # an empty file
            raise DataError(
                f"{self._path}, line {self._expat.CurrentLineNumber:,}: this is no XML ({error}): mend the line, or "
                "export the translation memory again"
            ) from error

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._is_first and name != "tmx":
            raise DataError(f"{self._path} is no translation memory but an XML file of <{name[:40]}>: export it as TMX")
        self._is_first = False
        match name:
            case "header":
                self.own_language = attributes.get("srclang", "")
            case "tu":
                self._unit = {}
            case "tuv":
                self._language = attributes.get("xml:lang") or attributes.get("lang") or "und"
            case "seg":
                self._pieces, self._length, self._codes = [], 0, 0
            case _ if name in _CODES:
                self._codes += 1

    def _text(self, text: str) -> None:
        if self._pieces is not None and not self._codes and self._length < self._longest:
            self._pieces.append(text[: self._longest - self._length])
            self._length += len(text)

    def _reference(self, name: str, _: bool) -> None:
        """To an entity that a document type elsewhere might declare: those of HTML are known."""
        self._text(html5.get(f"{name};", f"&{name};"))

    def _end(self, name: str) -> None:
        if name == "seg" and self._pieces is not None:
            if len(self._unit) < _MOST_LANGUAGES:
                lines = _BREAK.split("".join(self._pieces))  # which is how the file is laid out
                self._unit.setdefault(self._language, " ".join(filter(None, lines)))
            self._pieces = None
        elif name == "tu":
            self.units.append(self._unit)
        elif name in _CODES:
            self._codes -= 1

    def _refuse(self, *_: object) -> None:
        raise DataError(f"{self._path} declares entities, which are not read: export the translation memory again")
