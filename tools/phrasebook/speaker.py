"""Draw words, noun phrases, places and times at random, each in both Portuguese and English."""

import random
from collections.abc import Sequence
from typing import TypeVar

from phrasebook.lexicon import Adjective, Frame, Lexicon, Noun
from phrasebook.phrases import ARTICLES, PRONOUNS, NounPhrase, Phrase

T = TypeVar("T")


_OWNERS = {"his": "dele", "her": "dela", "their": "deles"}


class Speaker:
    """Draws words and phrases at random. Uses only `random()`, whose sequence Python guarantees."""

    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon = lexicon
        self._random = rng.random
        self._named: set[str] = set()
        self._frames: dict[tuple[str, bool, bool], tuple[Frame, ...]] = {}
        self._nouns: dict[frozenset[str], tuple[Noun, ...]] = {}
        self._adjectives: dict[str, tuple[Adjective, ...]] = {
            noun.pt: tuple(a for a in lexicon.adjectives if a.kinds & noun.kinds) for noun in lexicon.nouns
        }

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def share(self) -> float:
        """Draw a number from 0 (included) to 1 (excluded)."""
        return self._random()

    def pick(self, items: Sequence[T]) -> T:
        """Draw one of the items, all with the same probability."""
        return items[int(self._random() * len(items))]

    def start(self) -> None:
        """Begin a new sentence, in which names used before can appear again."""
        self._named.clear()

    def noun(self, kinds: frozenset[str]) -> Noun:
        """Draw a noun of any of these kinds. No name appears twice in a sentence."""
        if kinds not in self._nouns:
            self._nouns[kinds] = self.lexicon.of_kinds(kinds)
        noun = self.pick(self._nouns[kinds])
        while noun.pt in self._named:
            noun = self.pick(self._nouns[kinds])
        if "name" in noun.kinds:
            self._named.add(noun.pt)
        return noun

    def adjectives_of(self, noun: str) -> tuple[Adjective, ...]:
        """Return the adjectives that go with a noun."""
        return self._adjectives[noun]

    def adjective(self, noun: Noun) -> Adjective | None:
        """Draw an adjective that can stand beside this noun; None if there is none."""
        fitting = [a for a in self._adjectives[noun.pt] if a.attribute]
        return self.pick(fitting) if fitting else None

    def frames(self, *, tense: str = "", human_only: bool = False, unmistakable: bool = False) -> tuple[Frame, ...]:
        """Return frames. Options: with this tense; whose verb takes only people as object; whose verb has one sense."""
        key = (tense, human_only, unmistakable)
        if key not in self._frames:
            self._frames[key] = tuple(
                frame
                for frame in self.lexicon.frames
                if (not tense or tense in frame.tenses)
                and not (human_only and any(f.object != {"human"} for f in self._same_verb(frame)))
                and not (unmistakable and any(f.en.base != frame.en.base for f in self._same_verb(frame)))
            )
        return self._frames[key]

    def _same_verb(self, frame: Frame) -> list[Frame]:
        return [f for f in self.lexicon.frames if f.pt.infinitive == frame.pt.infinitive]

    # ----------------------------------------------------------------------------------- noun phrases
    def phrase(self, noun: Noun, det: str, *, plural: bool = False, adjective: Adjective | None = None) -> NounPhrase:
        """Return a noun with a determiner: `the a bare this that my our his her their name of many some several all`,
        or a number as an English word."""
        plural = (plural or noun.number == "plural") and noun.number not in ("singular", "mass")
        combinations: tuple[tuple[str, str], ...] = ()
        pt, en = (noun.pt_plural, noun.en_plural) if plural else (noun.pt, noun.en)
        if adjective is not None:
            agreed = adjective.agree(noun.gender, plural)
            pt = f"{agreed} {pt}" if adjective.before else f"{pt} {agreed}"
            en = f"{adjective.en} {en}"
            combinations = ((noun.pt, adjective.pt),)
        det_pt, pt, en = self._determined(noun, det, plural, pt, en)
        person, en_person = (3, "they") if plural else (1, "he")
        return NounPhrase(det_pt, pt, en, person, en_person, noun.gender, plural, noun.kinds, noun.pt, combinations)

    def _determined(self, noun: Noun, det: str, plural: bool, pt: str, en: str) -> tuple[str, str, str]:
        slot = 2 * plural + (noun.gender == "f")
        article = ARTICLES[slot]
        match det:
            case "bare":
                return "", pt, en
            case "the":
                return article, pt, f"the {en}"
            case "a":
                return ("um", "uma")[slot % 2], pt, f"{self.lexicon.article(en)} {en}"
            case "this":
                return ("este", "esta", "estes", "estas")[slot], pt, f"{'these' if plural else 'this'} {en}"
            case "that":
                that = ("aquele", "aquela", "aqueles", "aquelas")[slot]
                return that, pt, f"{'those' if plural else 'that'} {en}"
            case "my":
                return article, f"{('meu', 'minha', 'meus', 'minhas')[slot]} {pt}", f"my {en}"
            case "our":
                return article, f"{('nosso', 'nossa', 'nossos', 'nossas')[slot]} {pt}", f"our {en}"
            case "his" | "her" | "their":
                return article, f"{pt} {_OWNERS[det]}", f"{det} {en}"
            case "name":
                name = self.noun(frozenset({"name"}))
                return article, f"{pt} de {name.pt}", f"{name.en}'s {en}"
            case "of":
                owner_noun = self.noun(frozenset({"job"}))
                owner = self.phrase(owner_noun, "the")
                return article, f"{pt} {owner.after('de')}", f"{owner.en}'s {en}"
            case "many" | "some" | "several":
                stem = {"many": "muit", "some": "algun", "several": "vári"}[det]
                ending = "s" if noun.gender == "m" and det == "some" else ("os", "as")[slot % 2]
                stem = "algum" if det == "some" and noun.gender == "f" else stem
                return stem + ending, pt, f"{det} {en}"
            case "all":
                return ("todos", "todas")[slot % 2], f"{article} {pt}", f"all the {en}"
        number = next(n for n in self.lexicon.times["numbers"] if n[2] == det)
        return number[slot % 2], pt, f"{det} {en}"

    def possessor(self, noun: Noun, owner: NounPhrase | None = None) -> str:
        """Draw a possessive determiner that this noun can take. `owner`: the subject of the sentence."""
        if owner is not None and owner.pt in ("eu", "nós") and self.chance(0.7):
            return "my" if owner.pt == "eu" else "our"
        if owner is not None and owner.pt == "nós":
            return self.pick(("his", "her", "their", "name"))
        if "spouse" in noun.kinds:
            return self.pick(("my", "my", "name", "of"))
        return self.pick(("my", "my", "our", "his", "her", "their", "name", "name", "of"))

    def human(self, *, indefinite: bool = False, kind: str = "person") -> NounPhrase:
        """Draw a person: a name, a relative, or somebody of this kind (a man, a doctor)."""
        draw = self._random()
        if draw < 0.25:
            return self.phrase(self.noun(frozenset({"name"})), "bare")
        if draw < 0.5:
            noun = self.noun(frozenset({"kin"}))
            adjective = self.adjective(noun) if "aged" in noun.kinds and self.chance(0.3) else None
            adjective = adjective if adjective is not None and not adjective.copula else None
            return self.phrase(noun, self.possessor(noun), plural=self.chance(0.15), adjective=adjective)
        noun = self.noun(frozenset({kind}))
        return self.definite(noun, relational="relational" in noun.kinds, indefinite=indefinite)

    def definite(
        self, noun: Noun, *, relational: bool, indefinite: bool = False, owner: NounPhrase | None = None
    ) -> NounPhrase:
        """Draw a phrase for something known: with the, this, that or, where it makes sense, my."""
        adjective = self.adjective(noun) if self.chance(0.2) else None
        plural = noun.number == "both" and self.chance(0.25)
        draw = self._random()
        if draw < 0.15 and relational:
            det = self.possessor(noun, owner)
        elif draw < 0.27:
            det = self.pick(("this", "that"))
        elif draw < 0.32 and plural and indefinite:
            det = self.pick(self.lexicon.times["numbers"][:3])[2]
        elif draw < 0.42 and indefinite and not plural:
            det = "a"
        else:
            det = "the"
        return self.phrase(noun, det, plural=plural, adjective=adjective)

    def subject(self, frame: Frame, *, question: bool = False) -> NounPhrase:
        """Draw a subject that the verb selects."""
        human, others = "human" in frame.subject, frame.subject - {"human"}
        if human and not (others and self.chance(0.3)):
            if self.chance(0.45 if question else 0.35):
                names = ("você", "você", "você", "ele", "ela", "eles", "elas")
                everyday = ("eu", "eu", "ele", "ela", "nós", "nós", "eles", "elas", "você")
                return PRONOUNS[self.pick(names if question else everyday)]
            return self.human(kind="grown" if frame.adult else "person")
        noun = self.noun(others)
        return self.definite(noun, relational="pet" in noun.kinds)

    def thing(self, noun: Noun, style: str, owner: NounPhrase) -> NounPhrase:
        """Draw a thing as object. `style`: `free`, `specific` (no quantities, for negation and questions),
        `known` (also without "a") or `habit` (not a single thing, for events of every day)."""
        if noun.kinds & {"bare", "proper"}:
            return self.phrase(noun, "bare")
        adjective = self.adjective(noun) if self.chance(0.3) else None
        if noun.number == "mass":
            det = "bare" if style == "habit" or self.chance(0.6) else self.pick(("the", "the", "this", "that"))
            return self.phrase(noun, det, adjective=adjective)
        if style == "habit":
            det = "the" if noun.number == "singular" else "bare"
            return self.phrase(noun, det, plural=True, adjective=adjective)
        plural = noun.number == "plural" or (noun.number == "both" and self.chance(0.35))
        draw = self._random()
        if draw < 0.4:
            det = "the"
        elif draw < 0.5:
            det = self.pick(("this", "that"))
        elif draw < 0.65 and not noun.kinds & {"portion", "transport"}:
            det = self.possessor(noun, owner)
        elif not plural:
            det = "the" if style == "known" else "a"
        elif style != "free":
            det = "the"
        else:
            number = self.pick(self.lexicon.times["numbers"])[2]
            det = self.pick((number, number, "many", "some", "several", "all", "bare"))
        return self.phrase(noun, det, plural=plural, adjective=adjective)

    # ------------------------------------------------------------------------------- places and times
    def place(self, verb: str, kinds: frozenset[str], prep: str = "em") -> Phrase:
        """Draw where something happens: "no parque", "in the park"; `prep` "a" for arriving."""
        noun = self.noun(kinds)
        combinations = ((verb, noun.pt),)
        if "proper" in noun.kinds:
            name = NounPhrase(noun.article, noun.pt, noun.en, 1, "he", noun.gender, False, noun.kinds, noun.pt)
            return Phrase(name.after(prep), f"{noun.at} {noun.en}", combinations)
        phrase = self.phrase(noun, "the")
        return Phrase(phrase.after(prep), f"{noun.at} {noun.named or phrase.en}", combinations)

    def destination(self, verb: str, kinds: frozenset[str]) -> Phrase:
        """Draw where somebody goes: "ao parque", "to the park"; "para a França", "to France"."""
        noun = self.noun(kinds)
        combinations = ((verb, noun.pt),)
        if "proper" in noun.kinds:
            pt = f"para {noun.article} {noun.pt}" if noun.article else f"para {noun.pt}"
            return Phrase(pt, f"to {noun.en}", combinations)
        phrase = self.phrase(noun, "the")
        prep = "para" if "event" in noun.kinds else "a"
        return Phrase(phrase.after(prep), f"to {noun.named or phrase.en}", combinations)

    def weekday(self) -> tuple[str, str, str]:
        """Draw a weekday: Portuguese, English, and the gender of the Portuguese word."""
        pt, en = self.pick(self.lexicon.times["weekdays"])
        return pt, en, "f" if pt.endswith("feira") else "m"

    def clock(self) -> Phrase:
        """Draw a time of day: "às sete horas da manhã", "at seven o'clock in the morning"."""
        if self.chance(0.12):
            pt, en = self.pick(self.lexicon.times["special"])
            return Phrase(pt, en)
        number = self.pick(self.lexicon.times["numbers"])
        if self.chance(0.35):
            return Phrase(f"às {number[1]} e meia", f"at half past {number[2]}")
        part = ""
        if number[2] in ("seven", "eight", "nine", "ten") and self.chance(0.5):
            return Phrase(f"às {number[1]} horas da manhã{part}", f"at {number[2]} o'clock in the morning{part}")
        return Phrase(f"às {number[1]} horas", f"at {number[2]} o'clock")

    def time(self, tense: str, *, long: str = "") -> Phrase:
        """Draw a time that fits the tense and makes it clear. `long`: as in the verb's frame."""
        times = self.lexicon.times
        draw = self._random()
        if long == "only":
            draw = 0.35 if draw < 0.35 and tense == "preterite" else 0.9
        match tense:
            case "preterite":
                if draw < 0.25:
                    pt, en, gender = self.weekday()
                    return Phrase(f"n{'ao'[gender == 'm']} {pt} passad{'ao'[gender == 'm']}", f"last {en}")
                if draw < 0.4 and long:
                    number, unit = self.pick(times["numbers"]), self.pick(times["units"])
                    return Phrase(f"há {number[unit[0] == 'semanas']} {unit[0]}", f"{number[2]} {unit[1]} ago")
                if draw < 0.5:
                    number = self.pick(times["numbers"][:4])
                    return Phrase(f"há {number[0]} dias", f"{number[2]} days ago")
                pt, en = self.pick(times["past"] * (long != "only") + times["past_long"] * 2 * bool(long))
            case "future":
                if draw < 0.3:
                    pt, en, gender = self.weekday()
                    article = "ao"[gender == "m"]
                    return Phrase(f"n{article} próxim{article} {pt}", f"next {en}")
                pt, en = self.pick(times["future"] * (long != "only") + times["future_long"] * 2 * bool(long))
            case "progressive":
                pt, en = self.pick(times["now"])
            case _:
                if draw < 0.4:
                    pt, en, gender = self.weekday()
                    return Phrase(f"{'às' if gender == 'f' else 'aos'} {self.plural_day(pt)}", f"on {en}s")
                pt, en = self.pick(times["habit"])
        return Phrase(pt, en)

    @staticmethod
    def plural_day(day: str) -> str:
        """Return the plural of a weekday: segunda-feira, segundas-feiras; sábado, sábados."""
        return "-".join(part + "s" for part in day.split("-"))
