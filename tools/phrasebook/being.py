"""Templates about what things and people are, and where they are."""

from phrasebook.clauses import Sentence, exchangeable, finish, join
from phrasebook.drawing import described, other_human, predicates
from phrasebook.phrases import PRONOUNS, NounPhrase, Phrase, Predicate, be_predicate
from phrasebook.speaker import Speaker


def copula(speaker: Speaker) -> list[Sentence]:
    """Say that something is (was, is not; or ask whether it is) expensive, tired, open."""
    adjective = speaker.pick(predicates(speaker))
    noun = speaker.noun(adjective.kinds)
    subject = described(speaker, noun)
    if "human" in adjective.kinds and speaker.chance(0.5):
        subject = PRONOUNS[speaker.pick(tuple(PRONOUNS))]
    tense, time = "present", Phrase("", "")
    if adjective.copula == "estar" and speaker.chance(0.7):
        tense = speaker.pick(("present", "imperfect"))
        time = Phrase("hoje", "today") if tense == "present" else speaker.time("preterite")
    very = Phrase("muito", "very") if adjective.comparative and speaker.chance(0.35) else Phrase("", "")
    be = be_predicate(adjective.copula, tense, subject, speaker.lexicon)
    said = join(very.pt, adjective.agree(subject.gender, subject.plural), time.pt)
    en = join(very.en, adjective.en, time.en)
    found = (((subject.noun, adjective.pt),) if subject.noun else ()) + subject.combinations
    return [is_said(speaker, subject, be, Phrase(said, en, found))]


def is_said(speaker: Speaker, subject: NounPhrase, be: Predicate, what: Phrase) -> Sentence:
    """Say that somebody is or is not something, or ask whether."""
    pt = f"{subject.pt} {be.pt_main} {what.pt}"
    match speaker.pick(("is", "is", "is", "is not", "question")):
        case "is not":
            pt = f"{subject.pt} não {be.pt_main} {what.pt}"
            return finish(pt, f"{subject.en} {be.aux} not {what.en}", ".", what.combinations)
        case "question":
            return finish(pt, f"{be.aux} {subject.en} {what.en}", "?", what.combinations)
    return finish(pt, f"{subject.en} {be.aux} {what.en}", ".", what.combinations)


def job(speaker: Speaker) -> list[Sentence]:
    """Say what somebody's job is, or what they want to be."""
    frame = speaker.lexicon.frames[0]
    subject = speaker.subject(frame)
    if "human" not in subject.kinds or "person" in subject.kinds:
        return []
    pair = speaker.pick(speaker.lexicon.partners)
    noun = pair[subject.gender == "f"]
    adjective = speaker.pick(tuple(a for a in speaker.adjectives_of(noun.pt) if a.before or not a.comparative))
    chosen = adjective if adjective.attribute and speaker.chance(0.4) else None
    # "é um bom médico" has an article, "é médico" has none; English always has one.
    pt_form = speaker.phrase(noun, "bare", plural=subject.plural, adjective=chosen)
    en = pt_form.en if subject.plural else f"{speaker.lexicon.article(pt_form.en)} {pt_form.en}"
    one = "" if chosen is None or subject.plural else ("uma" if noun.gender == "f" else "um")
    said, found = join(one, pt_form.pt), pt_form.combinations + subject.combinations
    be = be_predicate("ser", "present", subject, speaker.lexicon)
    if speaker.chance(0.25):
        want = ("quero", "quer", "queremos", "querem")[subject.person]
        wants = "wants" if subject.en_person == "he" else "want"
        return [finish(f"{subject.pt} {want} ser {said}", f"{subject.en} {wants} to be {en}", ".", found)]
    return [is_said(speaker, subject, be, Phrase(said, en, found))]


def located(speaker: Speaker) -> list[Sentence]:
    """Say where things, animals and buildings are, sometimes with the mirror image."""
    relation = speaker.pick(
        (("atrás de", "behind"), ("ao lado de", "next to"), ("perto de", "near"), ("na frente de", "in front of"))
    )
    if speaker.chance(0.4):
        kinds = frozenset({"building"})
        a, b = speaker.phrase(speaker.noun(kinds), "the"), speaker.phrase(speaker.noun(kinds), "the")
        verb = ("fica", "is")
    else:
        kinds = speaker.pick((frozenset({"pet"}), frozenset({"container", "toy", "dish"}), frozenset({"human"})))
        human = "human" in kinds
        a = speaker.human() if human else described(speaker, speaker.noun(kinds))
        b = other_human(speaker, a) if human else described(speaker, speaker.noun(kinds))
        past = speaker.chance(0.4)
        be = be_predicate("estar", "imperfect" if past else "present", a, speaker.lexicon)
        verb = (be.pt_main, be.aux)
    if a.same_head(b):
        return []

    def say(x: NounPhrase, y: NounPhrase) -> Sentence:
        found = (*x.combinations, *y.combinations, (relation[0], y.noun))
        pt = f"{x.pt} {verb[0]} {relation[0].removesuffix(' de')} {y.after('de')}"
        return finish(pt, f"{x.en} {verb[1]} {relation[1]} {y.en}", ".", found)

    both = exchangeable(a, b) and a.det == b.det
    return [say(a, b)] + ([say(b, a)] if both else [])


def there_is(speaker: Speaker) -> list[Sentence]:
    """Say that there are (were, are no) … on the table."""
    things, spots = speaker.pick(
        (
            ("portable dish", "surface store mala mochila caixa room"),
            ("fruit vegetable", "mesa mochila caixa cozinha"),
            ("gato cachorro coelho", "room park"),
            ("tree flower", "park"),
        )
    )
    noun, where = speaker.noun(frozenset(things.split())), speaker.noun(frozenset(spots.split()))
    place, at = speaker.phrase(where, "the"), where.at or "in"
    if noun.pt == where.pt:
        return []
    prep = speaker.pick(("em", "embaixo de")) if "surface" in where.kinds else "em"
    if prep == "embaixo de":
        at, spot = "under", f"embaixo {place.after('de')}"
    else:
        spot = place.after("em")
    past = speaker.chance(0.3)
    adjective = speaker.adjective(noun) if speaker.chance(0.35) else None
    plural = noun.number == "plural" or speaker.chance(0.6)
    verb, be = ("havia", "were" if plural else "was") if past else ("há", "are" if plural else "is")
    number = speaker.pick(speaker.lexicon.times["numbers"])[2]
    negative = plural and speaker.chance(0.25)
    det = "bare" if negative else speaker.pick((number, number, "many", "some", "several")) if plural else "a"
    thing = speaker.phrase(noun, det, plural=plural, adjective=adjective)
    found = (*thing.combinations, (noun.pt, where.pt))
    return [
        finish(
            join("não" * negative, verb, thing.pt, spot),
            join("there", be, "no" * negative, thing.en, at, place.en),
            ".",
            found,
        )
    ]
