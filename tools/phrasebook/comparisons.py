"""Templates that compare, count and date things and people."""

from dataclasses import replace

from phrasebook.being import is_said
from phrasebook.clauses import Sentence, assertion, exchangeable, finish, join
from phrasebook.drawing import described, draw_clause, predicates
from phrasebook.lexicon import Adjective
from phrasebook.phrases import NounPhrase, Phrase, be_predicate
from phrasebook.speaker import Speaker


def pair(speaker: Speaker) -> tuple[NounPhrase, NounPhrase, Adjective] | None:
    """Draw two phrases of one kind, and an adjective that fits both."""
    adjective = speaker.pick(tuple(a for a in predicates(speaker) if a.comparative))
    kind = frozenset({speaker.pick(sorted(adjective.kinds))})
    a, b = (described(speaker, speaker.noun(kind)) for _ in range(2))
    if a.same_head(b):
        return None
    return a, b, adjective


def comparison(speaker: Speaker) -> list[Sentence]:
    """Compare: more … than, as … as; with the mirror image."""
    drawn = pair(speaker)
    if drawn is None:
        return []
    a, b, adjective = drawn
    equal, negative = speaker.chance(0.3), speaker.chance(0.15)

    def say(x: NounPhrase, y: NounPhrase) -> Sentence:
        be = be_predicate(adjective.copula, "present", x, speaker.lexicon)
        pt, en = f"{adjective.compared(x.gender, x.plural)} do que", f"{adjective.comparative} than"
        if equal:
            pt, en = f"tão {adjective.agree(x.gender, x.plural)} quanto", f"as {adjective.en} as"
        return finish(
            join(x.pt, "não" * negative, be.pt_main, pt, y.pt),
            join(x.en, be.aux, "not" * negative, en, y.en),
            ".",
            (*x.combinations, *y.combinations, (x.noun, adjective.pt), (y.noun, adjective.pt)),
        )

    both = exchangeable(a, b) and a.gender == b.gender and not equal
    return [say(a, b)] + ([say(b, a)] if both else [])


def contrast(speaker: Speaker) -> list[Sentence]:
    """Contrast: this is … and that is …; also with the adjectives exchanged."""
    drawn = pair(speaker)
    if drawn is None or drawn[0].plural != drawn[1].plural or drawn[0].gender != drawn[1].gender:
        return []
    a, b, first = drawn
    fitting = [
        x
        for x in predicates(speaker)
        if x in speaker.adjectives_of(a.noun) and x in speaker.adjectives_of(b.noun) and x.copula == first.copula
    ]
    second = speaker.pick(fitting)
    if second is first:
        return []

    def say(one: Adjective, two: Adjective) -> Sentence:
        be = be_predicate(first.copula, "present", a, speaker.lexicon)
        pts = [f"{n.pt} {be.pt_main} {z.agree(n.gender, n.plural)}" for n, z in ((a, one), (b, two))]
        ens = [f"{n.en} {be.aux} {z.en}" for n, z in ((a, one), (b, two))]
        found = (*a.combinations, *b.combinations, (a.noun, one.pt), (b.noun, two.pt))
        return finish(" e ".join(pts), " and ".join(ens), ".", found)

    return [say(first, second), say(second, first)]


def superlative(speaker: Speaker) -> list[Sentence]:
    """Name the tallest … in the city."""
    subject = speaker.human()
    if subject.plural or "person" in subject.kinds:
        return []
    nouns = tuple(n for n in speaker.lexicon.nouns if {"job"} & n.kinds or n.pt in ("aluno", "aluna"))
    noun = speaker.pick(tuple(n for n in nouns if n.gender == subject.gender and n.number == "both"))
    adjective = speaker.pick(tuple(a for a in speaker.adjectives_of(noun.pt) if a.comparative and a.attribute))
    head = speaker.phrase(noun, "the", adjective=None)
    much = adjective.comparative
    best = f"most {adjective.en}" if much.startswith("more ") else f"{much[:-1]}st"
    where = ("da cidade", "in the city")
    if noun.en in ("doctor", "nurse"):
        where = ("do hospital", "at the hospital")
    elif noun.en in ("teacher", "student"):
        where = ("da escola", "at school")
    found = (*subject.combinations, (noun.pt, adjective.pt))
    agreed = adjective.agree(noun.gender, False)
    return [
        finish(
            f"{subject.pt} é {head.pt} mais {agreed} {where[0]}",
            f"{subject.en} is the {best} {noun.en} {where[1]}",
            ".",
            found,
        )
    ]


def counted(speaker: Speaker) -> list[Sentence]:
    """Count: two books and three pens; also with the numbers exchanged."""
    frames = tuple(f for f in speaker.frames(tense="preterite") if f.pt.infinitive in ("comprar", "receber", "trazer"))
    clause = draw_clause(speaker, frames, tenses=("preterite", "future"), style="known")
    x, y = (speaker.noun(clause.frame.object) for _ in range(2))
    m, n = (speaker.pick(speaker.lexicon.times["numbers"])[2] for _ in range(2))
    if "mass" in (x.number, y.number) or x is y or m == n or x.kinds & {"dwelling"} or y.kinds & {"dwelling"}:
        return []

    def say(i: str, j: str) -> Sentence:
        a, b = speaker.phrase(x, i, plural=True), speaker.phrase(y, j, plural=True)
        verb = clause.frame.pt.infinitive
        both = Phrase(f"{a.pt} e {b.pt}", f"{a.en} and {b.en}", ((verb, x.pt), (verb, y.pt)))
        done = replace(clause, object=None, recipient=None, tail=(both,))
        said = assertion(done)
        return finish(said.pt, said.en, ".", said.combinations)

    return [say(m, n), say(n, m)] if x.gender == y.gender else [say(m, n)]


def date(speaker: Speaker) -> list[Sentence]:
    """Say when a party is, or when a shop opens or closes."""
    if speaker.chance(0.4):
        noun = speaker.noun(frozenset({"shop"}))
        place = speaker.phrase(noun, speaker.pick(("the", "the", "this", "that")))
        pt, en, gender = speaker.weekday()
        day = Phrase(f"{'às' if gender == 'f' else 'aos'} {speaker.plural_day(pt)}", f"on {en}s")
        hours = [speaker.pick(speaker.lexicon.times["numbers"][5:9]) for _ in range(2)]
        a, b = (Phrase(f"às {hour[1]} horas", f"at {hour[2]} o'clock") for hour in hours)
        verbs = (("abre", "fecha"), ("opens", "closes"))
        if speaker.chance(0.3):
            verb = speaker.pick((("abre", "open"), ("fecha", "close")))
            return [finish(f"{place.pt} não {verb[0]} {day.pt}", f"{place.en} does not {verb[1]} {day.en}", ".", ())]
        if a.pt == b.pt:
            return []

        def shop(x: Phrase, y: Phrase) -> Sentence:
            return finish(
                f"{place.pt} {verbs[0][0]} {x.pt} e {verbs[0][1]} {y.pt}",
                f"{place.en} {verbs[1][0]} {x.en} and {verbs[1][1]} {y.en}",
                ".",
                (),
            )

        return [shop(a, b), shop(b, a)]
    noun = speaker.noun(frozenset({"invitation", "scheduled", "birthday"}))
    owned = noun.kinds & {"birthday"} or (noun.pt in ("festa", "casamento") and speaker.chance(0.5))
    event = speaker.phrase(noun, speaker.possessor(noun) if owned else "the")
    if speaker.chance(0.35):
        month = speaker.pick(speaker.lexicon.times["months"])
        when = Phrase(f"em {month[0]}", f"in {month[1]}")
    elif speaker.chance(0.4) and "birthday" not in noun.kinds:
        pt, en, gender = speaker.weekday()
        clock = speaker.clock()
        when = Phrase(f"n{'ao'[gender == 'm']} {pt} {clock.pt}", f"on {en} {clock.en}")
    else:
        month = speaker.pick(speaker.lexicon.times["months"])
        number = speaker.pick(speaker.lexicon.days)
        when = Phrase(f"no dia {number} de {month[0]}", f"on {month[1]} {number}")
    be = be_predicate("ser", "present", event, speaker.lexicon)
    return [is_said(speaker, event, be, Phrase(when.pt, when.en, event.combinations))]
