"""Find installed fonts for labels in any script, or say which fonts are missing."""

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from repose.system.errors import ConfigError

_SCRIPTS = {
    "CJK": "Chinese characters",
    "HIRAGANA": "Japanese kana",
    "KATAKANA": "Japanese kana",
    "HANGUL": "Korean",
    "IDEOGRAPHIC": "East Asian punctuation",
    "FULLWIDTH": "East Asian letters",
}
_CJK = "Noto Sans CJK (Debian and Ubuntu: apt install fonts-noto-cjk)"
_SYMBOLS = "Symbola (Debian and Ubuntu: apt install fonts-symbola)"  # matplotlib cannot draw colour emoji
_OTHER = "one of the Noto fonts (Debian and Ubuntu: apt install fonts-noto-core)"


def families(text: str, font: Path | None = None) -> list[str]:
    """Return font families that together have every character of `text`, in order of preference.

    `font` comes first, then DejaVu Sans, which comes with matplotlib; characters that neither has are looked up in the
    fonts of this machine. Raises ConfigError if no font has a character, or if `font` is not a font.
    """
    first = [] if font is None else [font]
    first.append(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    missing = {char for char in text if _is_drawn(char)}
    chosen = []
    for path in first:
        face = _face(path)
        if face is None:
            raise ConfigError(f"{path} is not a font that can be read: give --font a .ttf, .otf or .ttc file")
        missing -= _has(face, missing)
        chosen.append(_register(path, face))
    faces = [(path, face) for path in _installed() if (face := _face(path))] if missing else []
    while missing:
        best = max(faces, key=lambda found: len(_has(found[1], missing)), default=None)
        if best is None or not (had := _has(best[1], missing)):
            raise ConfigError(_nothing_has(missing))
        missing -= had
        chosen.append(_register(*best))
    return chosen


def _is_drawn(char: str) -> bool:
    """Return whether a character needs a glyph; spaces, joiners and variation selectors do not."""
    return not char.isspace() and unicodedata.category(char)[0] != "C" and not 0xFE00 <= ord(char) <= 0xFE0F


def _installed() -> list[Path]:
    """Return this machine's fonts, upright sans serif of normal weight first; among equals, the first one wins."""

    def rank(path: Path) -> tuple[int, str]:
        name = path.stem.lower()
        unlikely = ("bold", "black", "light", "thin", "medium", "italic", "oblique", "mono", "serif", "condensed")
        return sum(word in name for word in unlikely) - ("sans" in name), str(path)

    return sorted(map(Path, font_manager.findSystemFonts()), key=rank)


def _face(path: Path) -> Any:
    """Open a font file; None if it is not a font, or a bitmap font, which matplotlib cannot draw."""
    try:
        face = FT2Font(str(path))
    except (OSError, RuntimeError):
        return None
    return face if face.scalable else None


def _has(face: Any, chars: Iterable[str]) -> set[str]:
    return {char for char in chars if face.get_char_index(ord(char))}


def _register(path: Path, face: Any) -> str:
    """Register a font with matplotlib, which may not know it yet; return its family's name."""
    if str(path) not in {entry.fname for entry in font_manager.fontManager.ttflist}:
        font_manager.fontManager.addfont(str(path))
    return str(face.family_name)


def _nothing_has(missing: set[str]) -> str:
    scripts = sorted({_script(char) for char in missing})
    sample = "".join(sorted(missing)[:8])
    font = _CJK if set(scripts) & set(_SCRIPTS.values()) else _SYMBOLS if scripts == ["symbols"] else _OTHER
    return f"no font on this machine has {' and '.join(scripts)} ({sample}): install {font}, or name one with --font"


def _script(char: str) -> str:
    """Return a character's script: the first words of its Unicode name."""
    if unicodedata.category(char).startswith("S"):
        return "symbols"
    name = unicodedata.name(char, "an unnamed script").split()[0].split("-")[0]
    return _SCRIPTS.get(name, name.capitalize())
