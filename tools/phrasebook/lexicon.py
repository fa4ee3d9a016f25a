"""The words of the phrasebook: `lexicon.toml` read into nouns, adjectives and verb frames."""

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from phrasebook.inflection import (
    EnglishVerb,
    PortugueseVerb,
    conjugate,
    english_plural,
    english_verb,
    portuguese_feminine,
    portuguese_plural,
)


@dataclass(frozen=True)
class Noun:
    """A noun in both languages: forms, gender, number, and the kinds that verbs and adjectives select."""

    pt: str
    pt_plural: str
    gender: str
    """`m` or `f`."""
    en: str
    en_plural: str
    number: str
    """`both`, `singular`, `plural` or `mass`: the numbers in which it is used."""
    kinds: frozenset[str]
    at: str
    """English preposition of a place ("" for other nouns)."""
    named: str
    """English name of a place without article, as in "at school" ("" for most)."""
    article: str
    """Portuguese article of a place's proper name."""


@dataclass(frozen=True)
class Adjective:
    """An adjective. `forms`: masculine and feminine singular, masculine and feminine plural."""

    pt: str
    forms: tuple[str, str, str, str]
    en: str
    comparative: str
    """English comparative; "" if there is none."""
    more: str
    """Portuguese comparative if it is one word (maior), else ""."""
    kinds: frozenset[str]
    copula: str
    """`ser`, `estar` or "" (never used as a predicate)."""
    attribute: bool
    before: bool

    def agree(self, gender: str, plural: bool) -> str:
        """Return the form for a gender and number."""
        return self.forms[2 * plural + (gender == "f")]

    def compared(self, gender: str, plural: bool) -> str:
        """Return the Portuguese comparative: mais alta, menores."""
        if self.more:
            return portuguese_plural(self.more) if plural else self.more
        return f"mais {self.agree(gender, plural)}"


@dataclass(frozen=True)
class Frame:
    """One verb in one sense: its forms in both languages and the kinds of noun that it selects."""

    pt: PortugueseVerb
    en: EnglishVerb
    subject: frozenset[str]
    object: frozenset[str]
    prep: str
    place: frozenset[str]
    place_needed: bool
    to: frozenset[str]
    tenses: tuple[str, ...]
    recipient: str
    """English preposition of the recipient, or ""."""
    company: bool
    skill: bool
    repeat: bool
    long: str
    """Whether "last year" fits: "", `also` or `only`."""
    passive: bool
    article: bool
    clock: bool
    adult: bool


@dataclass(frozen=True)
class Lexicon:
    """All words of the phrasebook."""

    nouns: tuple[Noun, ...]
    partners: tuple[tuple[Noun, Noun], ...]
    """Masculine and feminine noun for the same job."""
    adjectives: tuple[Adjective, ...]
    frames: tuple[Frame, ...]
    times: dict[str, list[list[str]]]
    days: tuple[int, ...]
    """Days of the month that dates use."""
    consonant_sound: frozenset[str]
    vowel_sound: frozenset[str]
    irregular: dict[str, dict[str, str]]
    english: dict[str, Any]

    def of_kinds(self, kinds: frozenset[str]) -> tuple[Noun, ...]:
        """Return the nouns of any of these kinds, in the order of the file."""
        return tuple(noun for noun in self.nouns if noun.kinds & kinds)

    def portuguese(self, infinitive: str) -> PortugueseVerb:
        """Conjugate an infinitive."""
        return conjugate(infinitive, self.irregular.get(infinitive, {}))

    def verb(self, base: str) -> EnglishVerb:
        """Return the forms of an English verb. `base`: its base form, with any particle."""
        return english_verb(base, self.english["irregular"], self.english["doubling"])

    def article(self, following: str) -> str:
        """Return `a` or `an`, as the following words need."""
        word = following.split()[0].lower()
        vowel = word[0] in "aeiou" and word not in self.consonant_sound
        return "an" if vowel or word in self.vowel_sound else "a"


def _nouns(group: dict[str, Any]) -> list[list[Noun]]:
    entries = []
    for word in group["words"]:
        genders = [(word["pt"], word.get("gender", "m"))] + ([(word["f"], "f")] if "f" in word else [])
        entries.append(
            [
                Noun(
                    pt,
                    word.get("plural", portuguese_plural(pt)),
                    gender,
                    word["en"],
                    word.get("en_plural", english_plural(word["en"])),
                    word.get("number", group.get("number", "both")),
                    frozenset(f"{group['kinds']} {word.get('also', '')} {pt}".split()),
                    word.get("at", ""),
                    word.get("named", ""),
                    word.get("article", ""),
                )
                for pt, gender in genders
            ]
        )
    return entries


def _adjective(word: dict[str, Any]) -> Adjective:
    masculine, feminine = word["pt"], portuguese_feminine(word["pt"])
    regular = (masculine, feminine, portuguese_plural(masculine), portuguese_plural(feminine))
    given = word.get("forms", "").split()
    return Adjective(
        masculine,
        (given[0], given[1], given[2], given[3]) if given else regular,
        word["en"],
        word.get("comparative", ""),
        word.get("more", ""),
        frozenset(word["kinds"].split()),
        word.get("copula", ""),
        word.get("use") != "predicate",
        word.get("before", False),
    )


def _frame(frame: dict[str, Any], lexicon: Lexicon) -> Frame:
    def kinds(key: str) -> frozenset[str]:
        return frozenset(frame.get(key, "").lstrip("!").split())

    tenses = frame.get("tenses", "preterite present future progressive")
    return Frame(
        pt=lexicon.portuguese(frame["verb"]),
        en=lexicon.verb(frame["en"]),
        subject=kinds("subject"),
        object=kinds("object"),
        prep=frame.get("prep", ""),
        place=kinds("place"),
        place_needed=frame.get("place", "").startswith("!"),
        to=kinds("to"),
        tenses=tuple(tenses.split()),
        recipient=frame.get("recipient", ""),
        company=frame.get("company", False),
        skill=frame.get("skill", False),
        repeat=frame.get("repeat", False),
        long=frame.get("long", ""),
        passive=frame.get("passive", False),
        article=frame.get("article", False),
        clock=frame.get("clock", False),
        adult=frame.get("adult", False),
    )


@cache
def load() -> Lexicon:
    """Read the lexicon beside this module."""
    data = tomllib.loads(Path(__file__).with_name("lexicon.toml").read_text(encoding="utf-8"))
    entries = [entry for group in data["nouns"] for entry in _nouns(group)]
    english = data["english"]
    words = Lexicon(
        nouns=tuple(noun for entry in entries for noun in entry),
        partners=tuple((e[0], e[-1]) for e in entries if "job" in e[0].kinds and len(e) == 2),
        adjectives=tuple(_adjective(word) for word in data["adjectives"]["words"]),
        frames=(),
        times={name: pairs for name, pairs in data["times"].items() if name != "days"},
        days=tuple(data["times"]["days"]),
        consonant_sound=frozenset(english["consonant_sound"]),
        vowel_sound=frozenset(english["vowel_sound"]),
        irregular=data["verbs"]["irregular"],
        english=english,
    )
    frames = tuple(_frame(frame, words) for frame in data["verbs"]["frames"])
    return replace(words, frames=frames)
