"""Clauses of the phrasebook, rendered as statements and questions in both languages."""

from dataclasses import dataclass, replace

from phrasebook.inflection import PortugueseVerb
from phrasebook.lexicon import Frame
from phrasebook.phrases import NounPhrase, Phrase, Predicate, negated, predicate

Combination = tuple[str, str]


@dataclass(frozen=True)
class Sentence:
    """A sentence pair and the word combinations (verb and object, noun and adjective …) in it."""

    pt: str
    en: str
    combinations: tuple[Combination, ...]


@dataclass(frozen=True)
class Clause:
    """A clause: who does what to whom, for whom, where and when."""

    frame: Frame
    tense: str
    subject: NounPhrase
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    tail: tuple[Phrase, ...] = ()
    time: Phrase | None = None

    @property
    def predicate(self) -> Predicate:
        """The conjugated verb."""
        return predicate(self.frame.pt, self.frame.en, self.tense, self.subject)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The word combinations in the whole clause."""
        found = self.subject.combinations + self.rest.combinations
        return found + (self.time.combinations if self.time else ())

    @property
    def rest(self) -> Phrase:
        """Everything after the verb, except the time."""
        pt, en = [], []
        found: tuple[Combination, ...] = ()
        verb = self.frame.pt.infinitive
        if self.object is not None:
            pt.append(self.object.after(self.frame.prep))
            en.append(f"the {self.object.en}" if self.frame.article else self.object.en)
            found += ((verb, self.object.noun), *self.object.combinations)
        if self.recipient is not None:
            pt.append(self.recipient.after("para"))
            en.append(f"{self.frame.recipient} {self.recipient.en}")
            found += ((verb, self.recipient.noun), *self.recipient.combinations)
        for phrase in self.tail:
            pt.append(phrase.pt)
            en.append(phrase.en)
            found += phrase.combinations
        return Phrase(" ".join(pt), " ".join(en), found)


def join(*parts: str) -> str:
    """Join words with single spaces, without empty parts."""
    return " ".join(part for part in parts if part)


def finish(pt: str, en: str, mark: str, combinations: tuple[Combination, ...]) -> Sentence:
    """Return a sentence, with its capital letter and final mark."""
    return Sentence(pt[0].upper() + pt[1:] + mark, en[0].upper() + en[1:] + mark, combinations)


def verb_phrase(clause: Clause, *, negative: bool = False, often: Phrase | None = None) -> Phrase:
    """Return the clause without its subject and time."""
    p, rest = clause.predicate, clause.rest
    pt = join("não" if negative else "", often.pt if often else "", p.pt_aux, p.pt_main, rest.pt)
    en = join(often.en if often else "", negated(p) if negative else p.plain, rest.en)
    return Phrase(pt, en, rest.combinations)


def assertion(clause: Clause, *, negative: bool = False, often: Phrase | None = None) -> Phrase:
    """Return the clause as a statement, without capital letter and final mark."""
    verb, time = verb_phrase(clause, negative=negative, often=often), clause.time
    return Phrase(
        join(clause.subject.pt, verb.pt, time.pt if time else ""),
        join(clause.subject.en, verb.en, time.en if time else ""),
        clause.combinations,
    )


def statement(clause: Clause, *, negative: bool = False, often: Phrase | None = None) -> Sentence:
    """Return the clause as a statement."""
    said = assertion(clause, negative=negative, often=often)
    return finish(said.pt, said.en, ".", said.combinations)


def fronted(clause: Clause) -> Sentence:
    """Return the clause with its time first: "Ontem, …", "Yesterday, …"."""
    assert clause.time is not None
    said = assertion(replace(clause, time=None))
    pt, en = f"{clause.time.pt}, {said.pt}", f"{clause.time.en}, {said.en}"
    return finish(pt, en, ".", clause.combinations)


def question(clause: Clause, pt: str = "", en: str = "", combinations: tuple[Combination, ...] = ()) -> Sentence:
    """Return a question. `pt` and `en` are its first words ("Quem", "Who"), empty for yes or no."""
    p, rest, time = clause.predicate, clause.rest, clause.time
    return finish(
        join(pt, clause.subject.pt, p.pt_aux, p.pt_main, rest.pt, time.pt if time else ""),
        join(en, p.aux, clause.subject.en, p.bare, rest.en, time.en if time else ""),
        "?",
        clause.combinations + combinations,
    )


def ambiguous(verb: PortugueseVerb, tense: str, subject: NounPhrase) -> bool:
    """Return whether the verb form can be present or past, so that a time must decide ("nós compramos")."""
    return tense in ("present", "preterite") and verb.present[subject.person] == verb.preterite[subject.person]


def exchangeable(a: NounPhrase, b: NounPhrase) -> bool:
    """Return whether two phrases can change places without changing the verb form."""
    return bool(a.noun and b.noun) and a.person == b.person and a.en_person == b.en_person


def mirrored(clause: Clause) -> Clause | None:
    """Return the clause with subject and object (or recipient) exchanged: the same words with another meaning.

    None if that makes no sense.
    """
    subject, frame = clause.subject, clause.frame
    other = clause.recipient or clause.object
    if other is None or not exchangeable(subject, other):
        return None
    if clause.recipient is not None:
        fits = "human" in subject.kinds
        return replace(clause, subject=other, recipient=subject) if fits else None
    if not (other.kinds & frame.subject and subject.kinds & frame.object):
        return None
    return replace(clause, subject=other, object=subject)
