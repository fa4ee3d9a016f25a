"""Readable labels for tokens, as shown next to the rows and columns of an attention plot."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate

CONTINUES = "·"
"""Put before a token that continues the word of the token before it."""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF = {chr(b): b for b in _PRINTABLE} | {chr(256 + place): b for place, b in enumerate(_OTHERS)}
"""The byte of each stand-in character of byte-level tokenizers (GPT-2's table: a printable byte stands for itself)."""

_LOST_BYTES = re.compile("[\udc80-\udcff]+")


def byte_labels(tokens: Sequence[str | None]) -> list[str]:
    """Label byte-level tokens, given as stand-in characters. None stands for a special token, which ends a word.

    The space that begins most words is omitted. `CONTINUES` is put before a token that begins inside a run of letters,
    digits or signs. Bytes that do not form a whole UTF-8 character are shown as hex: <E7 BB>.
    """
    pieces = [b" " if token is None else bytes(BYTE_OF[char] for char in token) for token in tokens]
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    runs = [run for char in text for run in [_run(char)] * len(char.encode("utf-8", "surrogateescape"))]
    ends = list(accumulate(map(len, pieces)))
    labels = []
    for token, piece, end in zip(tokens, pieces, ends, strict=True):
        start = end - len(piece)
        goes_on = 0 < start < end and runs[start - 1] == runs[start] != "space"
        label = shown(piece.removeprefix(b" ").decode("utf-8", "surrogateescape") or " ")
        labels.append("" if token is None else CONTINUES * goes_on + label)
    return labels


def piece_labels(tokens: Sequence[str | None], prefix: str) -> list[str]:
    """Label tokens that are text. Tokens with `prefix`, unless it is empty, continue the word before them."""
    return [
        "" if t is None else (CONTINUES + shown(t[len(prefix) :]) if prefix and t.startswith(prefix) else shown(t))
        for t in tokens
    ]


def shown(text: str) -> str:
    """Make everything in a text visible: spaces as ␣, control and format characters by number, bytes in hex.

    A leading combining mark gets a dotted circle to combine with.
    """
    seen = "".join(_seen(char, alone=len(text) == 1) for char in text)
    seen = _LOST_BYTES.sub(lambda m: f"<{m[0].encode('utf-8', 'surrogateescape').hex(' ').upper()}>", seen)
    return "◌" + seen if unicodedata.category(seen[:1] or " ").startswith("M") else seen


def _seen(char: str, *, alone: bool) -> str:
    if char == " ":
        return "␣"
    if char in "\u200c\u200d" and not alone:  # joiners: part of the spelling of Persian, Hindi and emoji
        return char
    if _LOST_BYTES.match(char):
        return char
    return f"<U+{ord(char):04X}>" if unicodedata.category(char)[0] in "CZ" else char


def _run(char: str) -> str:
    """Return the kind of run that a character belongs to.

    Unlike in GPT-2, marks count as letters, so no word breaks at a vowel sign.
    """
    if char.isspace():
        return "space"
    return {"L": "letters", "M": "letters", "N": "digits"}.get(unicodedata.category(char)[0], "signs")
