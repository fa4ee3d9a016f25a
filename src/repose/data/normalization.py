"""Rewrite a user's text in the characters of the training text.

A model knows only the characters that it was trained on. A user may type a straight apostrophe, or paste a no-break
space, a soft hyphen or a letter with a separate accent, where the training text writes something else; the model sees
noise. So characters that the training sources (almost) never contain are replaced by the ones they use instead, before
the text is tokenised. Training itself reads its text unchanged.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

from repose.data.scripts import LEAST_SHARE

Form = Literal["", "NFC", "NFD"]
_FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")

_ALIKE = (
    " \u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "'\u2018\u2019\u201b\u02bc\u2032\u00b4`",
    ",\uff0c",
    "!\uff01",
    "?\uff1f",
    ":\uff1a",
    ";\uff1b",
    "(\uff08",
    ")\uff09",
)
"""Groups of characters with the same meaning."""
_HYPHENS, _DASHES = "-\u2010\u2011\u2212", "\u2013\u2012\u2014\u2015"
"""Hyphens with the same meaning, and dashes, which become hyphens if the training text has no dashes."""
_QUOTES = '"\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033'
"""Quotation marks become the first of these if the training text contains it. Otherwise they stay, because the right
replacement would depend on the context."""
_LONGER = {"\u2026": "...", "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl"}
"""Single characters that stand for several letters or dots, as in PDF files."""
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Soft hyphen, zero-width space, direction marks, word joiner, byte-order mark. The zero-width joiners are not
included: they are part of the spelling."""
_SPELLED = frozenset({*_LONGER, *_INVISIBLE})


@dataclass(frozen=True)
class Normalization:
    """The changes made to a text before it is tokenised."""

    form: Form = ""
    """Unicode normal form of the whole text; "": unchanged."""
    replace: Mapping[str, str] = field(default_factory=dict)
    """Single characters and their replacements, applied after `form`. No such character occurs in a replacement."""

    def __call__(self, text: str) -> str:
        """Return the text as the model should read it."""
        normal = unicodedata.normalize(self.form, text) if self.form and not text.isascii() else text
        return self._found.sub(lambda found: self.replace[found[0]], normal) if self.replace else normal

    @cached_property
    def _found(self) -> re.Pattern[str]:
        return re.compile(f"[{re.escape(''.join(self.replace))}]")

    def most_bytes(self, text: str) -> int:
        """Return an upper bound of the result's size in UTF-8 bytes."""
        grown = 3 if self.form and not text.isascii() else 1  # factors: https://unicode.org/faq/normalization.html
        return len(text.encode()) * grown * self._growth

    @cached_property
    def _growth(self) -> int:
        return max([1, *(-(-len(new.encode()) // len(old.encode())) for old, new in self.replace.items())])

    def steps(self) -> list[dict[str, Any]]:
        """Return the same steps as normalizers of a tokenizer.json."""
        form = [{"type": self.form}] if self.form else []
        replaced = [
            {"type": "Replace", "pattern": {"String": found}, "content": instead}
            for found, instead in self.replace.items()
        ]
        return [*form, *replaced]

    def to_json(self) -> dict[str, Any]:
        """Return the normalization as a JSON object."""
        return {"form": self.form, "replace": dict(self.replace)}

    @classmethod
    def from_json(cls, content: object) -> Self:
        """Return the normalization that `to_json` wrote. Raises ValueError for anything else."""
        if not isinstance(content, dict) or content.keys() != {"form", "replace"}:
            raise ValueError("a normalization has a form and what to replace")
        form, replace = content["form"], content["replace"]
        if form not in get_args(Form) or not isinstance(replace, dict):
            raise ValueError("a normalization's form is NFC, NFD or none, and it replaces texts by texts")
        if not all(isinstance(instead, str) for instead in replace.values()) or not cls._can_replace(replace):
            raise ValueError("a normalization replaces single characters by others")
        return cls(form, replace)

    @classmethod
    def taken_from(cls, steps: Sequence[Mapping[str, Any]]) -> tuple[Self, list[Mapping[str, Any]]]:
        """Split a tokenizer.json's normalizers into a normalization (the first ones) and the remaining ones."""
        rest = list(steps)
        form: Form = rest.pop(0)["type"] if rest and rest[0]["type"] in get_args(Form) else ""
        replace: dict[str, str] = {}
        while rest and rest[0]["type"] == "Replace" and (found := rest[0]["pattern"].get("String")) is not None:
            more = {**replace, found: rest[0]["content"]}
            if found in replace or not cls._can_replace(more):
                break
            replace = more
            del rest[0]
        return cls(form, replace), rest

    @staticmethod
    def _can_replace(replace: Mapping[str, str]) -> bool:
        """Return whether replacing one character after the other gives the same as replacing all at once."""
        return all(len(found) == 1 for found in replace) and replace.keys().isdisjoint("".join(replace.values()))

    def __and__(self, other: Self) -> Self:
        """Return the changes that both normalizations make."""
        form = self.form if self.form == other.form else ""
        return type(self)(form, dict(item for item in self.replace.items() if item in other.replace.items()))


def normalization_to(lines: Iterable[str]) -> Normalization:
    """Derive the normalization of texts to translate, for a model trained on these lines.

    Among characters with the same meaning, those with less than `LEAST_SHARE` of the occurrences become the most
    frequent one. Characters that stand for several are spelled out, and invisible ones removed, if less than that share
    of the lines contains them. The normal form is the one that all but less than that share of the lines have.
    """
    characters: Counter[str] = Counter()
    having: Counter[str] = Counter()
    other_forms: Counter[str] = Counter()
    num_lines = 0
    for line in lines:
        num_lines += 1
        characters.update(line)
        if not line.isascii():
            having.update(_SPELLED.intersection(line))
            other_forms.update(form for form in _FORMS if not unicodedata.is_normalized(form, line))
    few = LEAST_SHARE * num_lines
    replace = {
        **{found: instead for found, instead in _LONGER.items() if having[found] < few},
        **{found: "" for found in _INVISIBLE if having[found] < few},
    }
    dashes = sum(characters[dash] for dash in _DASHES) >= max(1, few)
    for alike in (*_ALIKE, _HYPHENS, *[_DASHES] * dashes):
        replace |= dict.fromkeys(_rare(alike, characters), _usual(alike, characters))
    if not dashes:
        replace |= dict.fromkeys(_DASHES, _usual(_HYPHENS, characters))
    if _QUOTES[0] not in (rare := _rare(_QUOTES, characters)):
        replace |= dict.fromkeys(rare, _QUOTES[0])
    form: Form = next((form for form in _FORMS if other_forms[form] < few), "")
    return Normalization(form, replace)


def _usual(alike: str, characters: Counter[str]) -> str:
    """Return the most frequent character; the first one if none occurs."""
    return max(alike, key=lambda character: characters[character])


def _rare(alike: str, characters: Counter[str]) -> list[str]:
    """Return characters with less than `LEAST_SHARE` of the occurrences, or none, except for the most frequent one."""
    least = max(1, LEAST_SHARE * sum(characters[character] for character in alike))
    usual = _usual(alike, characters)
    return [c for c in alike if c != usual and characters[c] < least]
