"""Templates of questions: yes or no, who, what, which, how many, where, when, why, how much, whose."""

from dataclasses import replace

from phrasebook.clauses import (
    Combination,
    Sentence,
    ambiguous,
    finish,
    mirrored,
    question,
    statement,
)
from phrasebook.drawing import draw_clause
from phrasebook.phrases import NounPhrase
from phrasebook.speaker import Speaker

QUEM = NounPhrase("", "quem", "who", 1, "he", "m", False, frozenset({"human"}), "")


def yes_no(speaker: Speaker) -> list[Sentence]:
    """Ask a yes-or-no question."""
    clause = draw_clause(speaker, speaker.lexicon.frames, style="specific")
    mirror = mirrored(clause)
    if mirror is not None and speaker.chance(0.4):
        return [question(clause), question(mirror)]
    return [question(clause)]


def who(speaker: Speaker) -> list[Sentence]:
    """Ask who did something, and to whom."""
    frames = tuple(f for f in speaker.frames(tense="preterite", unmistakable=True) if "human" in f.subject)
    clause = draw_clause(speaker, frames, tenses=("preterite", "preterite", "future"), style="specific")
    subject, target = clause.subject, clause.object
    sentences = [statement(replace(clause, subject=QUEM))]
    if target is not None and "human" in target.kinds and target.person == 1:
        subject = target if speaker.chance(0.7) else subject
        asked = replace(clause, subject=subject, object=None)
        if subject.person != 0 and (clause.time is not None or subject.person != 2):
            sentences.append(question(asked, "quem", "who"))
    # End with a question mark, not a full stop.
    return [Sentence(s.pt[:-1] + "?", s.en[:-1] + "?", s.combinations) for s in sentences]


def what(speaker: Speaker) -> list[Sentence]:
    """Ask what, how many or which."""
    frames = tuple(f for f in speaker.frames(tense="preterite") if f.object and "human" not in f.object and not f.prep)
    single = speaker.frames(unmistakable=True)
    clause = draw_clause(speaker, frames, tenses=("preterite", "preterite", "future"), style="specific", timed=0.7)
    assert clause.object is not None
    noun = speaker.noun(clause.frame.object - {"human"})
    bare, verb = replace(clause, object=None), clause.frame.pt.infinitive
    if clause.frame.article or noun.kinds & {"bare", "animal", "human"}:
        return []
    if clause.frame in single and speaker.chance(0.3):
        return [question(bare, "o que", "what")]
    found: tuple[Combination, ...] = ((verb, noun.pt),)
    adjective = speaker.adjective(noun) if speaker.chance(0.3) else None
    if noun.number == "both" and speaker.chance(0.5):
        thing = speaker.phrase(noun, "bare", plural=True, adjective=adjective)
        many = "quantos" if noun.gender == "m" else "quantas"
        return [question(bare, f"{many} {thing.pt}", f"how many {thing.en}", found + thing.combinations)]
    if noun.number == "mass":
        return []
    thing = speaker.phrase(noun, "bare", plural=speaker.chance(0.3), adjective=adjective)
    which = "quais" if thing.plural else "qual"
    return [question(bare, f"{which} {thing.pt}", f"which {thing.en}", found + thing.combinations)]


def where_when_why(speaker: Speaker) -> list[Sentence]:
    """Ask where, when or why."""
    asked = speaker.pick((("onde", "where"), ("quando", "when"), ("por que", "why")))
    tenses: tuple[str, ...] = ("preterite", "future")
    clause = draw_clause(speaker, speaker.frames(tense="preterite"), tenses=tenses, style="specific", timed=0.4)
    match asked[1]:
        case "where":
            if not clause.frame.place:
                return []
            clause = replace(clause, tail=())
        case "when":
            if ambiguous(clause.frame.pt, clause.tense, clause.subject):
                return []
            clause = replace(clause, time=None)
    return [question(clause, *asked)]


def cost(speaker: Speaker) -> list[Sentence]:
    """Ask what something costs, or whose it is."""
    noun = speaker.noun(frozenset({"goods", "owned", "instrument", "furniture"}))
    lasting = tuple(a for a in speaker.adjectives_of(noun.pt) if a.copula == "ser" and a.attribute)
    fitting = speaker.pick(lasting) if lasting and speaker.chance(0.7) else None
    if speaker.chance(0.4):
        thing = speaker.phrase(noun, speaker.pick(("this", "that")), plural=speaker.chance(0.3), adjective=fitting)
        verb, be = ("são", "are") if thing.plural else ("é", "is")
        this, en = thing.en.split(" ", 1)
        return [finish(f"de quem {verb} {thing.pt}", f"whose {en} {be} {this}", "?", thing.combinations)]
    thing = speaker.phrase(noun, speaker.pick(("the", "this", "that")), plural=speaker.chance(0.35), adjective=fitting)
    verb, do = ("custam", "do") if thing.plural else ("custa", "does")
    return [finish(f"quanto {verb} {thing.pt}", f"how much {do} {thing.en} cost", "?", thing.combinations)]
