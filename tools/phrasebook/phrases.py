"""Noun phrases and predicates of the phrasebook, each in both Portuguese and English."""

from dataclasses import dataclass

from phrasebook.inflection import EnglishVerb, PortugueseVerb
from phrasebook.lexicon import Lexicon

ARTICLES = ("o", "a", "os", "as")

_FUSED = {"de": "d", "em": "n"}
_FUSED_WITH_A = {"o": "ao", "a": "à", "os": "aos", "as": "às", "aquele": "àquele", "aquela": "àquela"}
_FUSED_WITH_A |= {"aqueles": "àqueles", "aquelas": "àquelas"}
_DEMONSTRATIVES = ("este", "esta", "estes", "estas", "aquele", "aquela", "aqueles", "aquelas")
_FUSING = (*ARTICLES, *_DEMONSTRATIVES, "ele", "ela", "eles", "elas")

_BE = {"I": "am", "you": "are", "he": "is", "they": "are"}
_WAS = {"I": "was", "you": "were", "he": "was", "they": "were"}


@dataclass(frozen=True)
class Phrase:
    """A part of a sentence in both languages, with the word combinations in it."""

    pt: str
    en: str
    combinations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase. Its determiner `det` is separate because Portuguese prepositions merge with it."""

    det: str
    rest: str
    en: str
    person: int
    """Index into `PERSONS`."""
    en_person: str
    """`I`, `you`, `he` (he, she, it) or `they` (we, they)."""
    gender: str
    plural: bool
    kinds: frozenset[str]
    noun: str
    """The Portuguese head noun ("" for a pronoun)."""
    combinations: tuple[tuple[str, str], ...] = ()

    @property
    def pt(self) -> str:
        """The whole phrase in Portuguese."""
        return f"{self.det} {self.rest}".strip()

    def same_head(self, other: "NounPhrase") -> bool:
        """Return whether both have the same head noun in either language (neighbor: "a vizinha", "o vizinho")."""
        return self.noun == other.noun or self.en.split()[-1] == other.en.split()[-1]

    def after(self, prep: str) -> str:
        """Return the Portuguese phrase after a preposition: de + o = do, em + a = na, a + as = às, por + o = pelo."""
        if not prep:
            return self.pt
        if prep in _FUSED and self.det in _FUSING:
            fused = _FUSED[prep] + self.det
        elif prep == "a" and self.det in _FUSED_WITH_A:
            fused = _FUSED_WITH_A[self.det]
        elif prep == "por" and self.det in ARTICLES:
            fused = "pel" + self.det
        else:
            fused = f"{prep} {self.det}".strip()
        return f"{fused} {self.rest}".strip()


@dataclass(frozen=True)
class Predicate:
    """A verb in one tense and person, in the parts that statements, negation and questions need.

    Portuguese: `pt_aux` ("vai") and `pt_main` ("comprar"); a clitic goes between them. English: `aux` is the
    verb that is moved and negated ("is", "did"), `bare` the words after it ("going to buy", "buy"), and `plain` the
    affirmative form ("is going to buy", "bought").
    """

    pt_aux: str
    pt_main: str
    aux: str
    bare: str
    plain: str


def predicate(pt: PortugueseVerb, en: EnglishVerb, tense: str, subject: NounPhrase) -> Predicate:
    """Conjugate a verb for a subject in one of the phrasebook's tenses."""
    p, third = subject.person, subject.en_person == "he"
    be, was, do = _BE[subject.en_person], _WAS[subject.en_person], "does" if third else "do"
    match tense:
        case "present":
            return Predicate("", pt.present[p], do, en.base, en.third if third else en.base)
        case "preterite":
            return Predicate("", pt.preterite[p], "did", en.base, en.past)
        case "future":
            bare = f"going to {en.base}"
            return Predicate(("vou", "vai", "vamos", "vão")[p], pt.infinitive, be, bare, f"{be} {bare}")
        case "progressive":
            estar = ("estou", "está", "estamos", "estão")[p]
            return Predicate(estar, pt.gerund, be, en.ing, f"{be} {en.ing}")
        case "past progressive":
            estar = ("estava", "estava", "estávamos", "estavam")[p]
            return Predicate(estar, pt.gerund, was, en.ing, f"{was} {en.ing}")
        case "imperfect":
            return Predicate("", pt.imperfect[p], "did", f"use to {en.base}", f"used to {en.base}")
        case "can":
            return Predicate(("posso", "pode", "podemos", "podem")[p], pt.infinitive, "can", en.base, f"can {en.base}")
        case "want":
            bare, plain = f"want to {en.base}", f"{'wants' if third else 'want'} to {en.base}"
            return Predicate(("quero", "quer", "queremos", "querem")[p], pt.infinitive, do, bare, plain)
        case "must":
            bare, plain = f"have to {en.base}", f"{'has' if third else 'have'} to {en.base}"
            ter = ("tenho", "tem", "temos", "têm")[p]
            return Predicate(f"{ter} que", pt.infinitive, do, bare, plain)
    raise AssertionError(tense)


def be_predicate(copula: str, tense: str, subject: NounPhrase, lexicon: Lexicon) -> Predicate:
    """Conjugate `ser` or `estar` in the present or imperfect: is, was."""
    verb = lexicon.portuguese(copula)
    forms = verb.present if tense == "present" else verb.imperfect
    be = (_BE if tense == "present" else _WAS)[subject.en_person]
    return Predicate("", forms[subject.person], be, "", be)


def negated(p: Predicate) -> str:
    """Return the English predicate with "not"."""
    return f"{'cannot' if p.aux == 'can' else p.aux + ' not'} {p.bare}".strip()


PRONOUNS = {
    "eu": NounPhrase("", "eu", "I", 0, "I", "m", False, frozenset({"human"}), ""),
    "você": NounPhrase("", "você", "you", 1, "you", "m", False, frozenset({"human"}), ""),
    "ele": NounPhrase("ele", "", "he", 1, "he", "m", False, frozenset({"human"}), ""),
    "ela": NounPhrase("ela", "", "she", 1, "he", "f", False, frozenset({"human"}), ""),
    "nós": NounPhrase("", "nós", "we", 2, "they", "m", True, frozenset({"human"}), ""),
    "eles": NounPhrase("eles", "", "they", 3, "they", "m", True, frozenset({"human"}), ""),
    "elas": NounPhrase("elas", "", "they", 3, "they", "f", True, frozenset({"human"}), ""),
}
