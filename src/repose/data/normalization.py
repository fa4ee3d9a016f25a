"""A user's text in the characters of the training text.

A model knows the characters that it was trained on. Whoever types a straight apostrophe, or copies a no-break space, a
soft hyphen or a letter with a separate accent from somewhere, means what the training text writes in another way; to
the model it is noise. So what the training sources (almost) never write is replaced by what they write instead, before
anything is tokenised. Training itself reads its text as it is.
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
"""Characters that stand for one another."""
_HYPHENS, _DASHES = "-\u2010\u2011\u2212", "\u2013\u2012\u2014\u2015"
"""Hyphens that stand for one another, and dashes, which become hyphens where no dash is written."""
_QUOTES = '"\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033'
"""They become the first where that is written. Where only others are, which of them it stands for depends on what is
around it, so all stay."""
_LONGER = {"\u2026": "...", "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl"}
"""Characters that stand for several, as PDF files have them."""
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Soft hyphen, zero-width space, marks of direction, word joiner, byte order mark; not the joiners, which spell."""
_SPELLED = frozenset({*_LONGER, *_INVISIBLE})


@dataclass(frozen=True)
class Normalization:
    """What is done to a text before it is tokenised."""

    form: Form = ""
    """Unicode normal form of the whole; "": as it comes."""
    replace: Mapping[str, str] = field(default_factory=dict)
    """Single characters and what replaces them after that; none of them occurs in a replacement."""

    def __call__(self, text: str) -> str:
        """The text as the model is to read it."""
        normal = unicodedata.normalize(self.form, text) if self.form and not text.isascii() else text
        return self._found.sub(lambda found: self.replace[found[0]], normal) if self.replace else normal

    @cached_property
    def _found(self) -> re.Pattern[str]:
        return re.compile(f"[{re.escape(''.join(self.replace))}]")

    def most_bytes(self, text: str) -> int:
        """An upper bound of the bytes that the result has in UTF-8."""
        grown = 3 if self.form and not text.isascii() else 1  # https://unicode.org/faq/normalization.html, factors
        return len(text.encode()) * grown * self._growth

    @cached_property
    def _growth(self) -> int:
        return max([1, *(-(-len(new.encode()) // len(old.encode())) for old, new in self.replace.items())])

    def steps(self) -> list[dict[str, Any]]:
        """The same steps as normalizers of a tokenizer.json."""
        form = [{"type": self.form}] if self.form else []
        replaced = [
            {"type": "Replace", "pattern": {"String": found}, "content": instead}
            for found, instead in self.replace.items()
        ]
        return [*form, *replaced]

    def to_json(self) -> dict[str, Any]:
        """The normalization as a JSON object."""
        return {"form": self.form, "replace": dict(self.replace)}

    @classmethod
    def from_json(cls, content: object) -> Self:
        """The normalization that `to_json` gave; raises ValueError for anything else."""
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
        """What the first normalizers of a tokenizer.json do, and the others."""
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
        """Whether to replace one after the other is to replace all at once."""
        return all(len(found) == 1 for found in replace) and replace.keys().isdisjoint("".join(replace.values()))

    def __and__(self, other: Self) -> Self:
        """What both do."""
        form = self.form if self.form == other.form else ""
        return type(self)(form, dict(item for item in self.replace.items() if item in other.replace.items()))


def normalization_to(lines: Iterable[str]) -> Normalization:
    """The normalization of texts to translate, for a model trained on these lines.

    Of characters that stand for one another, those with less than `LEAST_SHARE` of the occurrences become the most
    frequent. Characters that stand for several are spelled out, and invisible ones left out, where less than that
    share of the lines has them. The normal form is the one that all but less than that share have.
    """
    characters: Counter[str] = Counter()
    having: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    num_lines = 0
    for line in lines:
        num_lines += 1
        characters.update(line)
        if not line.isascii():
            having.update(_SPELLED.intersection(line))
            forms.update(form for form in ("NFC", "NFD") if not unicodedata.is_normalized(form, line))
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
    return Normalization(_form(forms, few), replace)


def _usual(alike: str, characters: Mapping[str, int]) -> str:
    """The most frequent; the first, if none occurs."""
    return max(alike, key=lambda character: characters.get(character, 0))


def _rare(alike: str, characters: Mapping[str, int]) -> list[str]:
    """Those with less than `LEAST_SHARE` of the occurrences, and those that do not occur; not the most frequent."""
    least = max(1, LEAST_SHARE * sum(characters.get(character, 0) for character in alike))
    usual = _usual(alike, characters)
    return [c for c in alike if c != usual and characters.get(c, 0) < least]


def _form(others: Mapping[str, int], few: float) -> Form:
    if others.get("NFC", 0) < few:
        return "NFC"
    return "NFD" if others.get("NFD", 0) < few else ""
