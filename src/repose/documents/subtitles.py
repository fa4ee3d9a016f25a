"""Subtitles: SubRip (.srt) and WebVTT (.vtt). Numbers, timings, notes and styles stay exactly as they are.

A WebVTT cue ends at a blank line. A SubRip cue may contain blank lines, and ends at the next number and timing.

The words of one speaker in a cue are translated as a whole, and broken into as many lines as before. A new speaker
starts at each line that begins with a dash, and at each voice tag. Tags are placed as in HTML. Tags without a partner
keep their positions.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from unicodedata import category

from repose.data.scripts import has_letters
from repose.decoding.parts import is_wide
from repose.documents.segment import (
    LINE,
    MOST_NODES,
    Close,
    Open,
    Piece,
    Placed,
    Point,
    Text,
    TextDocument,
    is_sign,
    paired,
    segment,
    sign,
    text_of,
    too_many_nodes,
)
from repose.system.errors import DataError

_TAG = r"(?:</?(?:[A-Za-z][^<>]*|\s+(?:[biuBIU]\s*|(?:font|FONT)\b[^<>]*))>|<[\d:.]+>)"
"""A tag, or a time inside a WebVTT cue; but not "I <3 you >" or "a < b > c"."""
_STYLE = r"\{\\[^{}]*\}"
_MARKUP = re.compile(rf"({_TAG}|{_STYLE})")
_READING = re.compile(r"<rt[.>]")
"""The start tag of a ruby's reading, which is shown above the letters before it."""
_SPEAKER = re.compile(rf"\s*+(?:{_TAG}|{_STYLE})*+\s*+[-–—]")
_DASH = re.compile(rf"(\s*+(?:{_STYLE}\s*+)*+)((?:{_TAG}\s*+)*+)([-–—]\s*)")
"""Three groups: the position style at the start of a turn, tags, and a speaker's dash."""
_VOICE = re.compile(r"(?=<v(?:[\s.][^<>]*)?>)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_STAYS = frozenset("ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー々")
"""Characters that cannot begin a line in Japanese."""
_TAG_NAME = re.compile(r"</?\s*([A-Za-z]+)")


class SubtitleDocument(TextDocument):
    """A file of cues. `webvtt`: whether it is WebVTT, which escapes characters like HTML, or SubRip."""

    def __init__(self, source: str, *, webvtt: bool) -> None:
        super().__init__()
        self._webvtt = webvtt
        self._nodes = 0
        self._lines: list[tuple[int, str]] = []
        """The number of lines of each segment, and their line end."""
        in_cue = False
        lines: list[str] = []
        for line in LINE.findall(source):
            times = "-->" in line
            if in_cue and not times and (line.strip() or not webvtt):
                lines.append(line)
                continue
            number = lines[-1:] if times and lines[-1:] and lines[-1].strip().isdigit() else []  # no blank line before
            self._cue(lines[: len(lines) - len(number)])
            lines = []
            self._parts += [*number, line]
            in_cue = times
        self._cue(lines)
        if "-->" not in source and not webvtt and has_letters(source):
            raise DataError("no cue was found: each has a line such as 00:00:01,000 --> 00:00:02,000")

    def _cue(self, lines: Sequence[str]) -> None:
        for turn in _turns(lines):
            self._nodes += 1 + sum(1 for _ in islice(_MARKUP.finditer(turn), MOST_NODES))
            if self._nodes > MOST_NODES:
                raise too_many_nodes()
            before, body, after = _without_dash(turn)
            bodies = _LINE_END.split(body)
            pieces = self._pieces("".join(_with_spaces(bodies)))
            if not has_letters(text_of(pieces)):
                self._parts.append(turn)
                continue
            _, made, _ = segment(pieces, collapse=True)
            end = found[0] if (found := _LINE_END.search(body)) else ""
            self._add(before, made, after)
            self._lines.append((len(bodies), end))

    def _pieces(self, text: str) -> list[Piece]:
        tokens = [token for token in _MARKUP.split(text) if token]
        partners = paired(_tags(tokens))
        pieces: list[Piece] = []
        read_to = 0
        for place, token in enumerate(tokens):
            if place < read_to:
                continue
            if _READING.match(token) and (last := partners.get(place, place)) > place:
                read_to = last + 1
                pieces.append(Point("".join(tokens[place:read_to]), shows=False))
            elif not _MARKUP.fullmatch(token):
                pieces.append(Text(html.unescape(token) if self._webvtt else token))
            elif partners.get(place) == place + 2 and is_sign(tokens[place + 1]):
                read_to = place + 3
                pieces.append(sign("".join(tokens[place:read_to]), tokens[place + 1]))
            elif place not in partners:
                pieces.append(Point(token, shows=token[1:2].isdigit()))  # a time inside a cue is visible
            else:
                pieces.append(Open(token) if partners[place] > place else Close(token))
        return pieces

    def _written(self, number: int, placed: Placed) -> str:
        lines, end = self._lines[number]
        tokens = [self._letters(piece.text) if isinstance(piece, Text) else str(piece.source) for piece in placed]
        return end.join(_broken(tokens, lines))

    def _letters(self, text: str) -> str:
        return html.escape(text, quote=False) if self._webvtt else text.replace("-->", "->")


def _with_spaces(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines that can be joined: with a space before each, except in text that is written without spaces."""
    last = ""
    for line in lines:
        shown = _MARKUP.sub("", line).strip()
        joined = last and shown and is_wide(last) and is_wide(shown[0])
        yield line.lstrip() if joined else " " + line
        last = shown[-1:]


class _Turn(NamedTuple):
    """The words of one speaker in a cue."""

    before: str
    """The dash, and markup before it that stays."""
    body: str
    after: str
    """End tags that stay, and white space."""


def _without_dash(turn: str) -> _Turn:
    """Split the dash at the start off a turn.

    Tags before the dash stay there if they enclose the whole turn. Otherwise they come after the dash, since they may
    move with the words that they enclose.
    """
    body = turn.rstrip()
    after = turn[len(body) :]
    if (found := _DASH.match(body)) is None:
        return _Turn("", body, after)
    place, tags, dash = found.groups()
    tokens = [token for token in _MARKUP.split(body[found.end(1) :]) if token]
    number = len([token for token in _MARKUP.split(tags) if token])
    partners = paired(_tags(tokens))
    if any(partners.get(start) != len(tokens) - 1 - start for start in range(number)):
        return _Turn(place + dash, tags + body[found.end() :], after)
    ends = "".join(tokens[len(tokens) - number :])
    return _Turn(found[0], body[found.end() : len(body) - len(ends)], ends + after)


def _turns(lines: Sequence[str]) -> Iterator[str]:
    """Yield the turns in a cue: split at new speakers and at blank lines."""
    dashes = {number for number, line in enumerate(lines) if _SPEAKER.match(line)}
    if len(dashes) == 1 and _goes_on(lines[: min(dashes)]):
        dashes = set()
    turn = ""
    for number, line in enumerate(lines):
        after_blank = number > 0 and line.strip() and not lines[number - 1].strip()
        for place, piece in enumerate(_VOICE.split(line)):
            if turn and (place > 0 or number in dashes or after_blank):
                yield turn
                turn = ""
            turn += piece
    yield turn


def _goes_on(lines: Sequence[str]) -> bool:
    """Return whether these lines end inside a sentence, so that a dash after them may be part of it."""
    last = _MARKUP.sub("", lines[-1]).rstrip()[-1:] if lines else ""
    return last.islower() or last == ","


def _tags(tokens: Sequence[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield the place, the name, and whether it is a start tag, for each tag."""
    for place, token in enumerate(tokens):
        if _MARKUP.fullmatch(token) and (found := _TAG_NAME.match(token)) is not None:
            yield place, found[1].lower(), not token.startswith("</")


def _broken(tokens: Sequence[str], lines: int) -> Iterator[str]:
    """Break a text, given as letters and tags, into at most `lines` lines of about equal length without tags."""
    whole = "".join(tokens)
    seen = [place for place, inside in enumerate(_inside_tags(whole)) if not inside]
    ends = [number for number in range(1, len(seen)) if _may_end(whole[seen[number - 1]], whole[seen[number]])]
    begun = used = 0
    for line in range(1, lines):
        if used == len(ends):
            break
        wanted = len(seen) * line / lines
        after = bisect_left(ends, wanted, used)
        near = range(max(used, after - 1), min(after + 1, len(ends)))
        best = min(near, key=lambda number: abs(ends[number] - wanted))
        place = seen[ends[best]]
        yield whole[begun:place]
        begun, used = place + (whole[place] == " "), best + 1
    yield whole[begun:]


def _may_end(before: str, after: str) -> bool:
    """Return whether a line may end between two characters.

    It may end at a space, and anywhere in text that is written without spaces, but not before punctuation or a small
    kana, nor after an opening bracket.
    """
    if after == " ":
        return True
    if not (is_wide(before) and is_wide(after)) or category(before) == "Ps" or after in _STAYS:
        return False
    return category(after) == "Ps" or category(after)[0] not in "PM"


def _inside_tags(text: str) -> list[bool]:
    inside = [False] * len(text)
    for found in _MARKUP.finditer(text):
        inside[found.start() : found.end()] = [True] * len(found[0])
    return inside
