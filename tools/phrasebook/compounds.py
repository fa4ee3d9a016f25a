"""Templates with two clauses."""

from dataclasses import replace

from phrasebook.clauses import Clause, Sentence, assertion, exchangeable, finish, join
from phrasebook.drawing import (
    complete,
    described,
    draw_clause,
    other_human,
    predicates,
    simple_clause,
)
from phrasebook.phrases import PRONOUNS, NounPhrase, Phrase, be_predicate
from phrasebook.speaker import Speaker

_STORIES = {
    # verb: adjectives that are a reason for doing it ("so"), adjectives that are a reason against it ("but")
    "comprar": (("bonito", "barato", "novo", "interessante"), ("caro", "velho", "pequeno")),
    "vender": (("velho",), ("bonito", "novo", "rápido")),
    "ler": (("interessante", "importante", "famoso"), ("longo",)),
    "lavar": (("sujo",), ()),
    "comer": (("delicioso", "fresco"), ()),
    "beber": (("quente", "frio"), ()),
    "limpar": (("sujo",), ()),
}
_CHILDHOOD = ("ler", "jogar", "tocar", "comer")
_WORK = ("beber", "vender", "comprar", "trabalhar")


def while_(speaker: Speaker) -> list[Sentence]:
    """Draw "… while …", also with the two people exchanged."""
    a, b = simple_clause(speaker, "preterite"), simple_clause(speaker, "progressive")
    b = replace(b, tense="past progressive")
    if a.subject.noun == b.subject.noun or b.frame.pt is a.frame.pt:
        return []
    return _two(a, b, "enquanto", "while")


def and_(speaker: Speaker) -> list[Sentence]:
    """Draw "… and …", also with the two people exchanged."""
    tense = speaker.pick(("preterite", "future", "present"))
    a = simple_clause(speaker, tense)
    b = replace(
        complete(speaker, replace(a, recipient=None, tail=()), "known"), subject=other_human(speaker, a.subject)
    )
    if a.rest.pt == b.rest.pt or (b.object and b.object.noun == b.subject.noun):
        return []
    return _two(a, b, "e", "and")


def _two(a: Clause, b: Clause, pt: str, en: str) -> list[Sentence]:
    objects = [c.object for c in (a, b) if c.object]
    if any(x.same_head(y) for x in objects for y in (a.subject, b.subject)):
        return []

    def say(x: Clause, y: Clause) -> Sentence:
        one, two = assertion(x), assertion(y)
        found = one.combinations + two.combinations
        return finish(f"{one.pt} {pt} {two.pt}", f"{one.en} {en} {two.en}", ".", found)

    if not exchangeable(a.subject, b.subject):
        return [say(a, b)]
    swapped = (replace(a, subject=b.subject), replace(b, subject=a.subject))
    fits = all(f.kinds & c.frame.subject and ("human" in f.kinds) for f, c in ((b.subject, a), (a.subject, b)))
    return [say(a, b)] + ([say(*swapped)] if fits else [])


def before_after(speaker: Speaker) -> list[Sentence]:
    """Draw "… before Maria", also with the two people exchanged, or "… after eating an apple"."""
    order = speaker.pick((("antes de", "before"), ("depois de", "after")))
    a = simple_clause(speaker, speaker.pick(("preterite", "future")))
    if speaker.chance(0.5):
        b = simple_clause(speaker, "preterite")
        if b.frame.pt is a.frame.pt or (b.object and b.object.noun == a.subject.noun):
            return []
        one, rest = assertion(a), b.rest
        found = one.combinations + rest.combinations
        pt = join(one.pt, order[0], b.frame.pt.infinitive, rest.pt)
        return [finish(pt, join(one.en, order[1], b.frame.en.ing, rest.en), ".", found)]
    other = other_human(speaker, a.subject)
    if (a.object and a.object.noun == other.noun) or any(p.en.startswith("with") for p in a.tail):
        return []

    def say(x: NounPhrase, y: NounPhrase) -> Sentence:
        one = assertion(replace(a, subject=x))
        pt = f"{one.pt} {order[0].removesuffix(' de')} {y.after('de')}"
        return finish(pt, f"{one.en} {order[1]} {y.en}", ".", one.combinations + y.combinations)

    both = exchangeable(a.subject, other) and a.subject.det == other.det and "human" in a.subject.kinds
    return [say(a.subject, other)] + ([say(other, a.subject)] if both else [])


def because(speaker: Speaker) -> list[Sentence]:
    """Draw "did not … because she was tired"."""
    frames = tuple(f for f in speaker.frames(tense="preterite") if "human" in f.subject and not f.clock)
    clause = draw_clause(speaker, frames, tenses=("preterite",), style="known", timed=0.0)
    subject = clause.subject
    if "human" not in subject.kinds:
        return []
    names = ("ele", "ela", "eles", "elas")
    again = subject if not subject.noun else PRONOUNS[names[2 * subject.plural + (subject.gender == "f")]]
    bad = ("triste", "cansado", "doente", "preocupado", "ocupado", "nervoso", "atrasado")
    adjective = speaker.pick(tuple(a for a in predicates(speaker) if a.pt in bad))
    be = be_predicate("estar", "imperfect", again, speaker.lexicon)
    did = assertion(replace(clause, time=None), negative=True)
    agreed = adjective.agree(again.gender, again.plural)
    return [
        finish(
            f"{did.pt} porque {again.pt} {be.pt_main} {agreed}",
            f"{did.en} because {again.en} {be.aux} {adjective.en}",
            ".",
            did.combinations,
        )
    ]


def reported(speaker: Speaker) -> list[Sentence]:
    """Draw "thinks that …" or "said that …", also with the two people exchanged."""
    clause = draw_clause(
        speaker,
        tuple(f for f in speaker.lexicon.frames if "human" in f.subject and len(f.tenses) > 1),
        tenses=("future", "future", "preterite"),
        timed=0.5,
    )
    person = speaker.subject(speaker.lexicon.frames[0])
    while "human" not in person.kinds or person.noun == clause.subject.noun or person.person == 2:
        person = speaker.subject(speaker.lexicon.frames[0])
    if clause.subject.det.startswith("aquel"):  # "said that that man"
        return []
    thinks = speaker.chance(0.5)
    pt, en = speaker.lexicon.portuguese("achar"), speaker.lexicon.verb("think")
    said_pt, said_en = speaker.lexicon.portuguese("dizer"), speaker.lexicon.verb("say")

    def say(who: NounPhrase, what: Clause) -> Sentence:
        verb = pt.present[who.person] if thinks else said_pt.preterite[who.person]
        says = (en.third if who.en_person == "he" else en.base) if thinks else said_en.past
        told = assertion(what)
        found = told.combinations + who.combinations
        return finish(f"{who.pt} {verb} que {told.pt}", f"{who.en} {says} that {told.en}", ".", found)

    both = exchangeable(person, clause.subject) and "human" in clause.subject.kinds
    both = both and (clause.object is None or clause.object.noun != person.noun)
    sentences = [say(person, clause)]
    return sentences + ([say(clause.subject, replace(clause, subject=person))] if both else [])


def childhood(speaker: Speaker) -> list[Sentence]:
    """Draw "when I was a child, … used to …"."""
    child = speaker.pick((PRONOUNS["eu"], PRONOUNS["eu"], PRONOUNS["nós"], speaker.human(kind="child")))
    if child.noun and "name" not in child.kinds:
        return []
    subject = PRONOUNS["ela" if child.gender == "f" else "ele"] if child.noun else child
    if not child.noun and speaker.chance(0.6):
        subject = speaker.phrase(speaker.noun(frozenset({"kin"})), "our" if child.plural else "my")
        subject = subject if "aged" not in subject.kinds and "spouse" not in subject.kinds else child
    verbs = _CHILDHOOD + (_WORK if subject.noun else ())
    frames = tuple(f for f in speaker.lexicon.frames if f.pt.infinitive in verbs and "human" in f.subject)
    frames = tuple(f for f in frames if not f.object & {"goods", "owned"})
    be = be_predicate("ser", "imperfect", child, speaker.lexicon)
    did = assertion(complete(speaker, Clause(speaker.pick(frames), "imperfect", subject), "free"))
    kind = ("crianças", "children") if child.plural else ("criança", "a child")
    pt = f"quando {child.pt} {be.pt_main} {kind[0]}, {did.pt}"
    return [finish(pt, f"when {child.en} {be.aux} {kind[1]}, {did.en}", ".", did.combinations)]


def story(speaker: Speaker) -> list[Sentence]:
    """Draw "the car was expensive, but I bought it": the clitic agrees with its noun."""
    verb = speaker.pick(tuple(_STORIES))
    so, but = _STORIES[verb]
    reason = speaker.pick(so + but)
    adjective = next(a for a in predicates(speaker) if a.pt == reason)
    frames = tuple(f for f in speaker.lexicon.frames if f.pt.infinitive == verb and "human" in f.subject)
    frame = speaker.pick(frames)
    nouns = tuple(n for n in speaker.lexicon.of_kinds(frame.object) if n.kinds & adjective.kinds)
    if not nouns:
        return []
    noun = speaker.pick(nouns)
    thing = described(speaker, noun, plain=speaker.chance(0.7))
    clause = Clause(frame, "preterite", PRONOUNS[speaker.pick(("eu", "ele", "ela", "nós", "eles", "elas", "você"))])
    if speaker.chance(0.3):
        clause = replace(clause, subject=speaker.human())
    p, be = clause.predicate, be_predicate(adjective.copula, "imperfect", thing, speaker.lexicon)
    if clause.subject.person == 2 or speaker.chance(0.3):
        clause = replace(clause, time=speaker.time("preterite", long=frame.long))
    when = clause.time or Phrase("", "")
    slot = 2 * thing.plural + (thing.gender == "f")
    clitic, it = ("o", "a", "os", "as")[slot], "them" if thing.plural else "it"
    link = Phrase(", por isso", ", so") if reason in so else Phrase(", mas", ", but")
    pt = f"{thing.pt} {be.pt_main} {adjective.agree(thing.gender, thing.plural)}{link.pt} {clause.subject.pt}"
    en = f"{thing.en} {be.aux} {adjective.en}{link.en} {clause.subject.en} {p.plain} {it}"
    found = (*thing.combinations, *clause.combinations, (verb, noun.pt), (noun.pt, reason))
    return [finish(join(pt, clitic, p.pt_main, when.pt), join(en, when.en), ".", found)]
