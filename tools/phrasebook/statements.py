"""Templates of statements with one verb: negation, habits, object pronouns, modal verbs, the passive."""

from dataclasses import replace

from phrasebook.clauses import (
    Clause,
    Sentence,
    finish,
    fronted,
    join,
    mirrored,
    question,
    statement,
)
from phrasebook.drawing import draw_clause, other_human
from phrasebook.phrases import NounPhrase, Phrase
from phrasebook.speaker import Speaker


def plain(speaker: Speaker) -> list[Sentence]:
    """Draw a statement, sometimes with its mirror image."""
    clause = draw_clause(speaker, speaker.lexicon.frames, timed=0.65)
    mirror = mirrored(clause)
    if mirror is not None:
        return [statement(clause), statement(mirror)]
    if clause.time is not None and clause.tense in ("preterite", "future") and speaker.chance(0.3):
        return [fronted(clause)]
    return [statement(clause)]


def negation(speaker: Speaker) -> list[Sentence]:
    """Draw a statement with "não"."""
    clause = draw_clause(speaker, speaker.lexicon.frames, style="specific", timed=0.5)
    mirror = mirrored(clause)
    if mirror is not None and speaker.chance(0.5):
        return [statement(clause, negative=True), statement(mirror, negative=True)]
    return [statement(clause, negative=True)]


def frequency(speaker: Speaker) -> list[Sentence]:
    """Draw a statement with "sempre" or "nunca"."""
    frames = tuple(f for f in speaker.frames(tense="present") if len(f.tenses) > 1)
    clause = draw_clause(speaker, frames, tenses=("present",), timed=0.0)
    if clause.time is not None:  # "nós sempre compramos" could be past
        return []
    pt, en = speaker.pick(speaker.lexicon.times["often"])
    return [statement(clause, often=Phrase(pt, en))]


def clitic(speaker: Speaker) -> list[Sentence]:
    """Draw a statement with me, nos, o, a, os or as before the verb: "ela me viu"."""
    frames = tuple(f for f in speaker.frames() if "human" in f.object and not f.prep and "human" in f.subject)
    tenses: tuple[str, ...] = ("preterite", "preterite", "present", "future", "can", "want")
    pronouns = [("me", "me"), ("me", "me"), ("nos", "us")]
    if speaker.chance(0.4):
        frames = speaker.frames(human_only=True)
        tenses = ("preterite", "preterite", "present")
        pronouns = [("o", "him"), ("a", "her"), ("os", "them"), ("as", "them")]
    clause = draw_clause(speaker, frames, tenses=tenses, style="specific", timed=0.8)
    if clause.frame.tenses == ("present",):
        clause = replace(clause, tense="present", time=None)
    pt, en = speaker.pick(pronouns)
    if clause.subject.pt in ("eu", "nós") and en in ("me", "us"):
        return []
    clause = replace(clause, object=None)
    p = clause.predicate
    negative, asked = speaker.chance(0.2), speaker.chance(0.4 if clause.subject.pt == "você" else 0.15)
    rest, time = clause.rest, clause.time or Phrase("", "")
    particle = clause.frame.en.base.partition(" ")[2]
    said = join(clause.subject.pt, "não" * negative, p.pt_aux, pt, p.pt_main, rest.pt, time.pt)
    if negative and not asked:
        verb = f"{'cannot' if p.aux == 'can' else p.aux + ' not'} {p.bare}"
        return [finish(said, join(clause.subject.en, verb, en, rest.en, time.en), ".", clause.combinations)]
    if asked:
        said = join(clause.subject.pt, p.pt_aux, pt, p.pt_main, rest.pt, time.pt)
        back = join(p.aux, clause.subject.en, p.bare, en, rest.en, time.en)
        return [finish(said, back, "?", clause.combinations)]
    assert particle == "" or p.plain.endswith(particle)
    return [finish(said, join(clause.subject.en, p.plain, en, rest.en, time.en), ".", clause.combinations)]


def modal(speaker: Speaker) -> list[Sentence]:
    """Draw a statement with "can", "want to" or "have to"."""
    frames = tuple(f for f in speaker.frames() if {"present", "future"} & set(f.tenses) and "human" in f.subject)
    frames = tuple(f for f in frames if f.tenses != ("present",) or f.skill)
    kind = speaker.pick(("affirmative", "negative", "question"))
    style = "free" if kind == "affirmative" else "specific"
    clause = draw_clause(speaker, frames, tenses=("can", "want", "must"), style=style, timed=0.5)
    match kind:
        case "affirmative":
            return [statement(clause)]
        case "negative":
            return [statement(clause, negative=True)]
    return [question(clause)]


def passive(speaker: Speaker) -> list[Sentence]:
    """Say in the passive what was done by whom, sometimes with the mirror image."""
    clause = draw_clause(speaker, tuple(f for f in speaker.frames() if f.passive), tenses=("preterite",), timed=0.6)
    agent, patient = clause.subject, clause.object
    if agent.noun == "":
        agent = other_human(speaker, agent)
    if patient is None or (not patient.det and "name" not in patient.kinds) or agent.noun == patient.noun:
        return []
    clause = replace(clause, subject=agent)
    mirror = mirrored(replace(clause, recipient=None))
    both = mirror is not None and agent.gender == patient.gender
    return [_passive(clause, patient, agent)] + ([_passive(clause, agent, patient)] if both else [])


def _passive(clause: Clause, patient: NounPhrase, agent: NounPhrase) -> Sentence:
    participle = clause.frame.pt.participle
    ending = ("o", "a", "os", "as")[2 * patient.plural + (patient.gender == "f")]
    tail, time = replace(clause, object=None, recipient=None).rest, clause.time or Phrase("", "")
    be, was = ("foram", "were") if patient.plural else ("foi", "was")
    found = ((clause.frame.pt.infinitive, patient.noun), *patient.combinations, *agent.combinations)
    return finish(
        join(patient.pt, be, participle[:-1] + ending, tail.pt, agent.after("por"), time.pt),
        join(patient.en, was, clause.frame.en.participle, tail.en, f"by {agent.en}", time.en),
        ".",
        found + tail.combinations,
    )
