"""Portuguese and English inflection by rule. `lexicon.toml` lists only exceptions."""

from dataclasses import dataclass

PERSONS = ("eu", "ele", "nós", "eles")
"""The persons of Portuguese verb forms, in their order; `você` takes the second."""

_PRESENT = {"ar": "o a amos am", "er": "o e emos em", "ir": "o e imos em"}
_PRETERITE = {"ar": "ei ou amos aram", "er": "i eu emos eram", "ir": "i iu imos iram"}
_IMPERFECT = {"ar": "ava ava ávamos avam", "er": "ia ia íamos iam", "ir": "ia ia íamos iam"}
_VOWELS = "aeiou"


@dataclass(frozen=True)
class PortugueseVerb:
    """The forms of a Portuguese verb; tenses are tuples over `PERSONS`."""

    infinitive: str
    present: tuple[str, ...]
    preterite: tuple[str, ...]
    imperfect: tuple[str, ...]
    gerund: str
    participle: str
    """Masculine singular form."""


@dataclass(frozen=True)
class EnglishVerb:
    """The forms of an English verb, each with its particle ("waits for")."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


def portuguese_plural(word: str) -> str:
    """Return the plural of a Portuguese noun or adjective: casa, casas; flor, flores; jornal, jornais; leão, leões."""
    if " " in word:
        first, last = word.rsplit(" ", 1)
        return f"{first} {portuguese_plural(last)}"
    for ending, plural in (("ão", "ões"), ("m", "ns"), ("ês", "eses"), ("el", "éis"), ("il", "eis")):
        if word.endswith(ending):
            return word[: -len(ending)] + plural
    if word.endswith("l"):
        return word[:-1] + "is"
    if word.endswith(("r", "z")):
        return word + "es"
    return word if word.endswith("s") else word + "s"


def portuguese_feminine(word: str) -> str:
    """Return the feminine of an adjective: alto, alta; francês, francesa; forte, forte."""
    if word.endswith("o"):
        return word[:-1] + "a"
    return word[:-2] + "esa" if word.endswith("ês") else word


def english_plural(word: str) -> str:
    """Return the plural of an English noun: book, books; box, boxes; story, stories; tomato, tomatoes."""
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "ch", "sh")) or word in ("tomato", "potato"):
        return word + "es"
    return word + "s"


def english_verb(base: str, irregular: dict[str, str], doubling: list[str]) -> EnglishVerb:
    """Return the forms of an English verb; only the first word is inflected ("wait for", "waits for")."""
    head, _, particle = base.partition(" ")
    tail = f" {particle}" if particle else ""
    stem = head + head[-1] if head in doubling else head
    third = "has" if head == "have" else "goes" if head == "go" else "does" if head == "do" else ""
    third = third or english_plural(head)
    if stem.endswith("e") and not stem.endswith("ee"):
        past, ing = stem + "d", stem[:-1] + "ing"
    elif stem.endswith("y") and stem[-2] not in _VOWELS:
        past, ing = stem[:-1] + "ied", stem + "ing"
    else:
        past, ing = stem + "ed", stem + "ing"
    participle = past
    if head in irregular:
        past, participle = irregular[head].split()
    return EnglishVerb(base, third + tail, past + tail, participle + tail, ing + tail)


def _spell(stem: str, ending: str, group: str) -> str:
    """Keep the sound of the stem before another vowel: toquei, cheguei, abracei, dirijo, conheço."""
    hard = ending[0] in "aoá"
    if group == "ar" and ending[0] == "e":
        for letter, spelt in (("c", "qu"), ("g", "gu"), ("ç", "c")):
            if stem.endswith(letter):
                return stem[: -len(letter)] + spelt + ending
    if group != "ar" and hard:
        for letter, spelt in (("c", "ç"), ("g", "j")):
            if stem.endswith(letter):
                return stem[: -len(letter)] + spelt + ending
    return stem + ending


def conjugate(infinitive: str, irregular: dict[str, str]) -> PortugueseVerb:
    """Return the forms of a Portuguese verb by its group (-ar, -er, -ir), unless `irregular` gives them."""
    stem, group = infinitive[:-2], infinitive[-2:]

    def tense(name: str, endings: dict[str, str]) -> tuple[str, ...]:
        if name in irregular:
            return tuple(irregular[name].split())
        # The phrasebook has no "pôr" or other groups.
        return tuple(_spell(stem, ending, group) for ending in endings[group].split())

    participle = stem + ("ado" if group == "ar" else "ido")
    return PortugueseVerb(
        infinitive,
        tense("present", _PRESENT),
        tense("preterite", _PRETERITE),
        tense("imperfect", _IMPERFECT),
        infinitive[:-1] + "ndo",
        irregular.get("participle", participle),
    )
