"""Draw clauses: a verb frame with its subject, object, place and time."""

from dataclasses import replace

from phrasebook.clauses import Clause, ambiguous
from phrasebook.lexicon import Adjective, Frame, Noun
from phrasebook.phrases import NounPhrase, Phrase
from phrasebook.speaker import Speaker


def draw_clause(
    speaker: Speaker,
    frames: tuple[Frame, ...],
    *,
    tenses: tuple[str, ...] = (),
    style: str = "free",
    timed: float = 0.6,
) -> Clause:
    """Draw a clause from one of `frames`.

    Its tense is one of `tenses` that the frame has, or any of `tenses` if it has none of them, or any of the frame's if
    `tenses` is empty. `style`: as in `Speaker.thing`. `timed`: probability of a time if none is needed.
    """
    frame = speaker.pick(frames)
    tense = speaker.pick(tuple(t for t in tenses if t in frame.tenses) or tenses or frame.tenses)
    subject = speaker.subject(frame, question=style == "specific")
    timeless = frame.tenses == ("present",)
    while timeless and ambiguous(frame.pt, tense, subject):
        subject = speaker.subject(frame, question=style == "specific")
    clause = complete(speaker, Clause(frame, tense, subject), style)
    needed = ambiguous(frame.pt, tense, subject)
    if not timeless and (needed or speaker.chance(timed)):
        when = "future" if tense in ("can", "want", "must") else tense
        clause = replace(clause, time=speaker.time(when, long=frame.long))
    return clause


def complete(speaker: Speaker, clause: Clause, style: str) -> Clause:
    """Add an object, a recipient, a place, a time of day and company to the clause, as its frame allows."""
    frame, tense, subject = clause.frame, clause.tense, clause.subject
    if frame.object:
        clause = replace(clause, object=draw_object(speaker, frame, tense, subject, style))
    chance = {"": 0.0, "to": 1.0, "for": 0.3}[frame.recipient]
    if frame.recipient and speaker.chance(chance):
        clause = replace(clause, recipient=other_human(speaker, subject))
    verb, tail = frame.pt.infinitive, []
    if frame.to:
        tail.append(speaker.destination(verb, frame.to))
    if frame.skill and tense == "present" and speaker.chance(0.5):
        tail.append(speaker.pick((Phrase("bem", "well"), Phrase("muito bem", "very well"))))
    elif frame.company and "human" in subject.kinds and subject.pt not in ("eu", "nós") and speaker.chance(0.25):
        tail.append(company(speaker, subject))
    if frame.place_needed or (frame.place and clause.recipient is None and speaker.chance(0.3)):
        tail.append(speaker.place(verb, frame.place, frame.prep or "em"))
    if frame.clock and (tense == "present" or speaker.chance(0.6)):
        tail.append(speaker.clock())
    return replace(clause, tail=tuple(tail))


def draw_object(speaker: Speaker, frame: Frame, tense: str, subject: NounPhrase, style: str) -> NounPhrase:
    """Draw an object that the verb selects."""
    others = frame.object - {"human"}
    if "human" in frame.object and not (others and speaker.chance(0.4)):
        return other_human(speaker, subject)
    noun = speaker.noun(others)
    if frame.article:
        return speaker.phrase(noun, "bare")
    while noun.pt == subject.noun:
        noun = speaker.noun(others)
    if noun.kinds & {"animal", "human"}:
        relational = bool(noun.kinds & {"pet", "kin"})
        if "kin" in noun.kinds:
            return speaker.phrase(noun, speaker.possessor(noun, subject))
        indefinite = style == "free" and tense != "present"
        return speaker.definite(noun, relational=relational, indefinite=indefinite, owner=subject)
    if tense in ("present", "imperfect"):
        style = "known" if frame.repeat else "habit"
    return speaker.thing(noun, style, subject)


def other_human(speaker: Speaker, subject: NounPhrase) -> NounPhrase:
    """Draw a person who is not the subject."""
    other = speaker.human(indefinite=True)
    while other.same_head(subject):
        other = speaker.human(indefinite=True)
    return other


def company(speaker: Speaker, subject: NounPhrase) -> Phrase:
    """Draw with whom: "comigo", "com a irmã dela"."""
    if speaker.chance(0.3):
        return speaker.pick((Phrase("comigo", "with me"), Phrase("conosco", "with us")))
    other = other_human(speaker, subject)
    return Phrase(other.after("com"), f"with {other.en}", other.combinations)


def simple_clause(speaker: Speaker, tense: str) -> Clause:
    """Draw a short clause about a person."""
    frames = tuple(f for f in speaker.frames(tense=tense) if "human" in f.subject and not f.long and not f.recipient)
    clause = draw_clause(speaker, frames, tenses=(tense,), style="known", timed=0.0)
    while (
        not clause.subject.noun
        or "human" not in clause.subject.kinds
        or ambiguous(clause.frame.pt, tense, clause.subject)
    ):
        clause = draw_clause(speaker, frames, tenses=(tense,), style="known", timed=0.0)
    return replace(clause, time=None)


def described(speaker: Speaker, noun: Noun, *, plain: bool = False) -> NounPhrase:
    """Draw a definite phrase, as subject of an adjective such as big or tired."""
    if noun.kinds & {"name", "proper"}:
        return speaker.phrase(noun, "bare")
    if "kin" in noun.kinds:
        return speaker.phrase(noun, speaker.possessor(noun), plural=speaker.chance(0.2))
    owned = noun.kinds & {"relational", "pet", "vehicle", "clothing", "portable", "dwelling", "room"}
    det = (
        speaker.possessor(noun)
        if owned and speaker.chance(0.3)
        else speaker.pick(("the", "the", "the", "this", "that"))
    )
    return speaker.phrase(noun, "the" if plain else det, plural=speaker.chance(0.3))


def predicates(speaker: Speaker) -> tuple[Adjective, ...]:
    """Return the adjectives that can follow "is"."""
    return tuple(a for a in speaker.lexicon.adjectives if a.copula)
