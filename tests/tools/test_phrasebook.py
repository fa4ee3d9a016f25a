"""The embedded corpus's grammar: distinct, deterministic, grammatical, one translation each; order matters."""

import lzma
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from importlib import resources
from itertools import islice, pairwise
from pathlib import Path

import pytest

from phrasebook import MAX_WORDS, MIN_WORDS, corpus, sentences
from phrasebook.inflection import (
    conjugate,
    english_plural,
    english_verb,
    portuguese_feminine,
    portuguese_plural,
)
from phrasebook.lexicon import load
from repose.data.phrasebook import SIZES, read

TOOLS = Path(__file__).parents[2] / "tools"
SLOTS = (("m", 0), ("f", 0), ("m", 1), ("f", 1))
DETERMINERS = {
    prefix + word: slot
    for prefix, forms in (
        ("", "o a os as"),
        ("n", "o a os as"),
        ("d", "o a os as"),
        ("pel", "o a os as"),
        ("", "este esta estes estas"),
        ("n", "este esta estes estas"),
        ("d", "este esta estes estas"),
        ("", "aquele aquela aqueles aquelas"),
        ("d", "aquele aquela aqueles aquelas"),
    )
    for word, slot in zip(forms.split(), SLOTS, strict=True)
}
DETERMINERS |= {"ao": ("m", 0), "à": ("f", 0), "aos": ("m", 1), "às": ("f", 1)}
DETERMINERS |= {"meu": ("m", 0), "minha": ("f", 0), "meus": ("m", 1), "minhas": ("f", 1)}
DETERMINERS |= {"um": ("m", 0), "uma": ("f", 0), "dois": ("m", 1), "duas": ("f", 1)}
DETERMINERS |= {"muitos": ("m", 1), "muitas": ("f", 1), "alguns": ("m", 1), "algumas": ("f", 1)}


PAIRS = 8_000


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return corpus.generate(PAIRS, seed=1)


@pytest.fixture(scope="module")
def parts() -> corpus.PhrasebookSplits:
    return corpus.splits(num_train=4_000, num_valid=120, num_test=120, seed=2)


def words(sentence: str) -> list[str]:
    return re.findall(r"[\w'-]+", sentence.lower())


def bag(sentence: str) -> tuple[str, ...]:
    """Words and marks without their order; a question is not the same bag as a statement."""
    return tuple(sorted(re.findall(r"[\w'-]+|[.,?]", sentence.lower())))


# ------------------------------------------------------------------------------------------ the corpus
def test_same_seed_same_pairs_whatever_the_hash_seed() -> None:
    code = "from phrasebook.corpus import generate; print(ascii(generate(1500, seed=5)))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TOOLS)},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1
    assert printed.pop().decode().strip() == ascii(corpus.generate(1500, seed=5))


def test_prefix_and_seed() -> None:
    assert corpus.generate(300, seed=3) == corpus.generate(600, seed=3)[:300]
    assert corpus.generate(300, seed=3) != corpus.generate(300, seed=4)


def test_pairs_are_distinct_on_both_sides(pairs: list[tuple[str, str]]) -> None:
    assert len({pt for pt, _ in pairs}) == len({en for _, en in pairs}) == len(pairs) == PAIRS


@pytest.mark.slow
def test_two_hundred_thousand_distinct_pairs() -> None:
    assert len({pt for pt, _ in corpus.generate(200_000)}) == 200_000


def test_one_translation_each_way() -> None:
    """Before anything is dropped: a source never has two translations; 99 % of translations have one source
    (the rest is "eles" and "elas", "o médico" and "a médica")."""
    english, portuguese = defaultdict(set), defaultdict(set)
    for sentence in islice(sentences(7), PAIRS):
        english[sentence.pt].add(sentence.en)
        portuguese[sentence.en].add(sentence.pt)
    assert max(map(len, english.values())) == 1
    assert sum(len(sources) > 1 for sources in portuguese.values()) < 0.01 * len(portuguese)


def test_order_matters(pairs: list[tuple[str, str]]) -> None:
    """At least 15 % (measured: 19 %) share all their words with another sentence of another translation."""
    translations = defaultdict(set)
    for pt, en in pairs:
        translations[bag(pt)].add(en)
    assert sum(len(translations[bag(pt)]) > 1 for pt, _ in pairs) >= 0.15 * len(pairs)


def test_mirror_images_are_translated_as_mirror_images() -> None:
    """Of two sentences with the same words and the nouns exchanged, the translations have them exchanged too."""
    english = {noun.pt: noun.en for noun in load().nouns if noun.kinds & {"animal", "person"}}
    subjects: dict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
    for pt, en in read()["train"]:
        verb, time = (
            r"(?:viu|seguiu|ajudou|procurou|visitou|chamou|abraçou|perseguiu|assustou|foi \w+ pel[oa])",
            r"(?: (?:ontem|hoje|há|n[oa]) [^.]*)?",
        )
        match = re.fullmatch(rf"[OA] (\w+) {verb} (?:[oa] )?(\w+){time}\.", pt)
        if match and match[1] in english and match[2] in english:
            assert re.match(rf"The {english[match[1]]} [a-z ]+ the {english[match[2]]}\b", en)
            subjects[bag(pt)].add((match[1], match[2]))
    mirrored = [found for found in subjects.values() if len(found) == 2]
    assert all(len({frozenset(pair) for pair in found}) == 1 for found in mirrored)
    assert len(mirrored) >= 10


def test_length_and_marks(pairs: list[tuple[str, str]]) -> None:
    for pt, en in pairs:
        assert MIN_WORDS <= len(pt.split()) <= MAX_WORDS
        assert MIN_WORDS <= len(en.split()) <= MAX_WORDS
        assert pt[0].isupper()
        assert en[0].isupper()
        assert pt[-1] == en[-1]
        assert pt[-1] in ".?"
        assert "  " not in pt + en
    mean = sum(len(pt.split()) for pt, _ in pairs) / len(pairs)
    assert 7 <= mean <= 10


def test_size_of_the_vocabulary(pairs: list[tuple[str, str]]) -> None:
    forms = [{word for pair in pairs for word in words(pair[side])} for side in (0, 1)]
    assert 1000 <= len(forms[0]) <= 1300
    assert 600 <= len(forms[1]) <= 900


def test_every_word_of_the_lexicon_occurs(pairs: list[tuple[str, str]]) -> None:
    said = {word for pt, _ in pairs for word in words(pt)}
    lexicon = load()
    for noun in lexicon.nouns:
        assert {noun.pt.lower(), noun.pt_plural.lower()} & said, noun.pt
    for adjective in lexicon.adjectives:
        assert {form.split()[-1] for form in adjective.forms} & said, adjective.pt
    for frame in lexicon.frames:
        assert {frame.pt.infinitive, *frame.pt.present, *frame.pt.preterite} & said, frame.pt.infinitive
    lemmas = {n.pt for n in lexicon.nouns} | {a.pt for a in lexicon.adjectives}
    assert len(lemmas | {f.pt.infinitive for f in lexicon.frames}) >= 300


# ----------------------------------------------------------------------------------------- the grammar
def test_determiners_and_adjectives_agree_with_their_noun(pairs: list[tuple[str, str]]) -> None:
    lexicon = load()
    grammar: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for noun in lexicon.nouns:
        if "bare" not in noun.kinds and noun.pt != noun.pt_plural:
            grammar[noun.pt].add((noun.gender, 0))
            grammar[noun.pt_plural].add((noun.gender, 1))
    verbs = {form for frame in lexicon.frames for form in frame.pt.present}
    adjectives: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for adjective in lexicon.adjectives:
        for slot, form in enumerate(adjective.forms):
            if form not in verbs:  # "limpa" is clean and cleans
                adjectives[form].add(("mf"[slot % 2], slot // 2))
    before = after = 0
    for pt, _ in pairs:
        said = words(pt)
        for first, second in pairwise(said):
            # In "assistem a jogos" the "a" is a preposition.
            if first in DETERMINERS and len(grammar.get(second, ())) == 1 and "assist" not in pt:
                before += 1
                assert DETERMINERS[first] in grammar[second], pt
            if len(grammar.get(first, ())) == 1 and second in adjectives:
                after += 1
                assert adjectives[second] & grammar[first], pt
    assert before > PAIRS / 2
    assert after > PAIRS / 20


def test_verbs_agree_with_pronouns(pairs: list[tuple[str, str]]) -> None:
    """A pronoun and the verb form right after it are of one person, in Portuguese and in English."""
    lexicon = load()
    forms: dict[str, set[int]] = defaultdict(set)
    for verb in {frame.pt for frame in lexicon.frames}:
        for tense in (verb.present, verb.preterite, verb.imperfect):
            for person, form in enumerate(tense):
                forms[form].add(person)
    persons = {"eu": 0, "você": 1, "ele": 1, "ela": 1, "nós": 2, "eles": 3, "elas": 3}
    wrong = {"i": "is|are|has|does", "he": "am|are|have|do", "she": "am|are|have|do", "they": "am|is|has|does"}
    checked = 0
    for pt, en in pairs:
        said = words(pt)
        for first, second in pairwise(said):
            if first in persons and second in forms:
                checked += 1
                assert persons[first] in forms[second], pt
        for pronoun, verbs in wrong.items():
            assert not re.search(rf"^{pronoun} ({verbs})\b", en.lower()), en
    assert checked > PAIRS / 10


def test_prepositions_fuse_with_articles(pairs: list[tuple[str, str]]) -> None:
    for pt, _ in pairs:
        assert not re.search(r"\b(de|em|por) (o|a|os|as)\b", pt), pt
        assert not re.search(r"\b(de|em) (este|esta|aquele|aquela|ele|ela)s?\b", pt), pt
        assert not re.search(r"\ba (o|os|as|aquele|aquela)\b", pt), pt


def test_negation_and_questions_correspond(pairs: list[tuple[str, str]]) -> None:
    kinds: Counter[str] = Counter()
    for pt, en in pairs:
        negative = bool(re.search(r"\bnão\b", pt.lower()))
        assert negative == bool(re.search(r"\b(not|cannot|no)\b", en)), (pt, en)
        assert ("nunca" in words(pt)) == ("never" in words(en))
        kinds["negative"] += negative
        kinds["question"] += pt.endswith("?")
    assert kinds["negative"] > PAIRS / 10
    assert kinds["question"] > 0.15 * PAIRS


def test_times_and_numbers_correspond(pairs: list[tuple[str, str]]) -> None:
    times = load().times
    for pt, en in pairs:
        said, translated = {day.split("-")[0].rstrip("s") for day in words(pt)}, words(en)
        for portuguese, english in times["weekdays"] + times["months"]:
            assert (portuguese.split("-")[0] in said) == (english in re.findall(r"[A-Z][a-z]+?(?=s?\b)", en)), pt
        for masculine, feminine, english in times["numbers"]:
            assert bool({masculine, feminine} & set(words(pt))) == (english in translated), pt


def test_english_articles_and_auxiliaries(pairs: list[tuple[str, str]]) -> None:
    lexicon = load()
    bases = {frame.en.base.split()[0] for frame in lexicon.frames} | {"want", "have", "cost", "open", "close"}
    for _, en in pairs:
        for article, following in re.findall(r"\b([Aa]n?) (\w+)", en):
            vowel = (following[0].lower() in "aeiou" and following != "university") or following == "honest"
            assert (article.lower() == "an") == vowel, en
        for following in re.findall(r"\b(?:did|does|do|can) not (\w+)", en):
            assert following in bases, en


def test_ambiguous_words_are_avoided(pairs: list[tuple[str, str]]) -> None:
    """No "seu", and "nós" with a form that is present and past alike never without a time."""
    lexicon = load()
    both = {f.pt.present[2] for f in lexicon.frames if f.pt.present[2] == f.pt.preterite[2]}
    clear = r"ontem|hoje|passad|há |todos os dias|toda semana|às |aos |manhã|agora|era|estava|porque"
    for pt, _ in pairs:
        assert not {"seu", "sua", "seus", "suas"} & set(words(pt))
        if re.search(rf"\bnós (não )?((o|a|os|as|me|nos) )?({'|'.join(both)})\b", pt.lower()):
            assert re.search(clear, pt.lower()), pt


@pytest.mark.parametrize(
    ("infinitive", "eu_present", "eu_preterite"),
    [
        ("tocar", "toco", "toquei"),
        ("chegar", "chego", "cheguei"),
        ("abraçar", "abraço", "abracei"),
        ("dirigir", "dirijo", "dirigi"),
        ("conhecer", "conheço", "conheci"),
    ],
)
def test_spelling_keeps_the_sound(infinitive: str, eu_present: str, eu_preterite: str) -> None:
    verb = conjugate(infinitive, {})
    assert (verb.present[0], verb.preterite[0]) == (eu_present, eu_preterite)


def test_inflection_rules() -> None:
    plurals = {"casa": "casas", "flor": "flores", "jornal": "jornais", "leão": "leões", "homem": "homens"}
    plurals |= {"hotel": "hotéis", "fácil": "fáceis", "francês": "franceses", "ônibus": "ônibus"}
    assert {word: portuguese_plural(word) for word in plurals} == plurals
    assert [portuguese_feminine(w) for w in ("alto", "francês", "feliz")] == ["alta", "francesa", "feliz"]
    assert [english_plural(w) for w in ("book", "box", "story", "boy")] == ["books", "boxes", "stories", "boys"]
    wait = english_verb("wait for", {}, [])
    assert (wait.third, wait.past, wait.ing) == ("waits for", "waited for", "waiting for")
    assert english_verb("hug", {}, ["hug"]).past == "hugged"
    assert english_verb("study", {}, []).past == "studied"


# ------------------------------------------------------------------------------------------- the splits
def test_splits_share_no_sentence(parts: corpus.PhrasebookSplits) -> None:
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (4_000, 120, 120)
    everything = parts.train + parts.valid + parts.test
    for side in (0, 1):
        assert len({pair[side] for pair in everything}) == len(everything)


def test_held_out_pairs_combine_seen_words_in_unseen_ways(parts: corpus.PhrasebookSplits) -> None:
    combinations = {s.pt: s.combinations for s in islice(sentences(2), 10_000)}
    seen = {combination for pt, _ in parts.train for combination in combinations[pt]}
    for side in (0, 1):
        known = {word for pair in parts.train for word in corpus.words(pair[side])}
        for pair in parts.valid + parts.test:
            assert set(corpus.words(pair[side])) <= known, pair
    for pt, _ in parts.valid + parts.test:
        assert set(combinations[pt]) - seen, pt


def test_held_out_combinations_show_in_the_text(parts: corpus.PhrasebookSplits) -> None:
    """Seen in the sentences alone: a noun with an adjective that never follows it in training."""
    lexicon = load()
    nouns = {noun.pt for noun in lexicon.nouns}
    adjectives = {form: a.pt for a in lexicon.adjectives for form in a.forms[:2] if not a.before}

    def together(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
        return {
            (first, adjectives[second])
            for pt, _ in pairs
            for first, second in pairwise(words(pt))
            if first in nouns and second in adjectives
        }

    assert len(together(parts.test + parts.valid) - together(parts.train)) >= 20


def test_what_is_held_out_does_not_depend_on_the_seed() -> None:
    other = corpus.splits(num_train=2_000, num_valid=50, num_test=50, seed=9)
    again = corpus.splits(num_train=2_000, num_valid=50, num_test=50, seed=9)
    assert other == again
    assert not {pt for pt, _ in other.train} & {pt for pt, _ in again.test}
    trained = {pt for pt, _ in corpus.splits(num_train=4_000, num_valid=0, num_test=0, seed=10).train}
    assert not trained & {pt for pt, _ in other.valid + other.test}


def test_the_grammar_still_writes_what_is_shipped() -> None:
    drawn = corpus.splits(num_train=SIZES["train"], num_valid=SIZES["valid"], num_test=SIZES["test"])
    packed = resources.files("repose.data").joinpath("phrasebook.tsv.xz").read_bytes()
    assert corpus.as_tsv(drawn) == lzma.decompress(packed).decode()
    assert {split: getattr(drawn, split) for split in SIZES} == read()


@pytest.mark.parametrize("num_pairs", [-1, corpus.MAX_PAIRS + 1])
def test_impossible_numbers_are_refused(num_pairs: int) -> None:
    with pytest.raises(ValueError, match="pairs"):
        corpus.generate(num_pairs)


def test_too_many_says_how_many_there_are() -> None:
    with pytest.raises(ValueError, match="500,000"):
        corpus.splits(num_train=corpus.MAX_PAIRS)


def test_too_small_a_training_part_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for more training pairs"):
        corpus.splits(num_train=5, num_valid=20, num_test=20)
