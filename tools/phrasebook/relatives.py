"""Templates with relative clauses."""

from dataclasses import replace

from phrasebook.clauses import (
    Clause,
    Combination,
    Sentence,
    ambiguous,
    assertion,
    finish,
    join,
    mirrored,
    verb_phrase,
)
from phrasebook.drawing import complete, predicates
from phrasebook.phrases import NounPhrase, Phrase, be_predicate
from phrasebook.speaker import Speaker


def fact(speaker: Speaker, about: NounPhrase) -> Phrase:
    """Draw a fact about a person: where they live or work, or what they are like."""
    draw = speaker.pick(("live", "work", "speak", "is", "is"))
    if draw == "is":
        adjectives = tuple(a for a in predicates(speaker) if a.copula == "ser" and a.kinds & {"person"})
        adjective = speaker.pick(adjectives)
        be = be_predicate("ser", "present", about, speaker.lexicon)
        pt = f"{be.pt_main} {adjective.agree(about.gender, about.plural)}"
        return Phrase(pt, f"{be.aux} {adjective.en}", ((about.noun, adjective.pt),))
    frame = next(f for f in speaker.lexicon.frames if f.en.base == draw)
    clause = complete(speaker, Clause(frame, "present", about), "free")
    return verb_phrase(replace(clause, tail=tuple(p for p in clause.tail if not p.en.startswith("with"))))


def relative_person(speaker: Speaker) -> list[Sentence]:
    """Draw "the man who saw the woman …" and "the man who the woman saw …"."""
    frames = tuple(f for f in speaker.frames(tense="preterite") if "human" in f.subject and f.object and not f.prep)
    if speaker.chance(0.5):
        frames = tuple(f for f in frames if "human" in f.object)
    noun = speaker.noun(frozenset({"person"}))
    head = speaker.phrase(noun, speaker.pick(("the", "the", "the", "that")), plural=speaker.chance(0.25))
    clause = complete(speaker, Clause(speaker.pick(frames), "preterite", head), "free")
    clause = replace(clause, tail=(), recipient=None)
    time = speaker.time("preterite") if speaker.chance(0.25) else Phrase("", "")
    said, target = fact(speaker, head), clause.object
    assert target is not None
    if target.noun == head.noun or target.pt.startswith(("meu", "minha")):
        return []
    did = verb_phrase(clause)
    found = did.combinations + said.combinations
    sentences = [
        finish(
            join(head.pt, "que", did.pt, time.pt, said.pt),
            join(head.en, "who", did.en, time.en, said.en),
            ".",
            found,
        )
    ]
    if mirrored(clause) is not None:
        p = replace(clause, subject=target, object=None).predicate
        pt = join(head.pt, "que", target.pt, p.pt_main, time.pt, said.pt)
        en = join(head.en, "who", target.en, p.plain, time.en, said.en)
        sentences.append(finish(pt, en, ".", found))
    return sentences


def relative_thing(speaker: Speaker) -> list[Sentence]:
    """Draw "the book that I bought yesterday is interesting" or "this is the book that …"."""
    frames = tuple(
        f
        for f in speaker.frames(tense="preterite")
        if "human" in f.subject and f.object and not f.prep and not f.object & {"human", "transport", "sent"}
    )
    frame = speaker.pick(frames)
    noun = speaker.noun(frame.object)
    if noun.kinds & {"bare", "kin", "child"} or frame.article:
        return []
    head = speaker.phrase(noun, "the", plural=speaker.chance(0.3))
    clause = Clause(frame, "preterite", speaker.subject(frame))
    if clause.subject.det.startswith("aquel"):  # "the book that that man read"
        return []
    if ambiguous(frame.pt, "preterite", clause.subject) or speaker.chance(0.35):
        clause = replace(clause, time=speaker.time("preterite", long=frame.long))
    did = assertion(clause)
    found: tuple[Combination, ...] = (*did.combinations, (frame.pt.infinitive, noun.pt))
    head_pt, head_en = f"{head.pt} que {did.pt}", f"{head.en} that {did.en}"
    adjectives = tuple(a for a in speaker.adjectives_of(noun.pt) if a.copula == "ser")
    be = be_predicate("ser", "present", head, speaker.lexicon)
    if speaker.chance(0.35) or not adjectives:
        slot = 2 * head.plural + (head.gender == "f")
        this, en = ("este", "esta", "estes", "estas")[slot], "these" if head.plural else "this"
        return [finish(f"{this} {be.pt_main} {head_pt}", f"{en} {be.aux} {head_en}", ".", found)]
    adjective = speaker.pick(adjectives)
    very = Phrase("muito", "very") if adjective.comparative and speaker.chance(0.4) else Phrase("", "")
    agreed = adjective.agree(head.gender, head.plural)
    return [
        finish(
            join(head_pt, be.pt_main, very.pt, agreed),
            join(head_en, be.aux, very.en, adjective.en),
            ".",
            (*found, (noun.pt, adjective.pt)),
        )
    ]
