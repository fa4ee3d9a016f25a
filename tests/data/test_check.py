"""Corpora with one problem each: what the check finds, how often, and on which line of the file."""

import gzip
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from repose.data import corpus_statistics
from repose.data.advice import WITHOUT_NUMBERS
from repose.data.check import check_corpus
from repose.data.findings import CorpusCheck, Finding, Kind
from repose.data.pairs import write_pairs
from repose.data.readers import PairReader
from repose.system.errors import DataError

Pairs = list[tuple[str, str]]
NOUNS = {"cat": "gato", "dog": "cão", "bird": "pássaro", "house": "casa", "tree": "árvore", "girl": "menina"}
VERBS = {"sees": "vê", "likes": "ama", "finds": "acha", "hears": "ouve", "follows": "segue", "draws": "desenha"}
ENDS = {
    "": "",
    " again": " outra vez",
    " in the garden": " no jardim",
    " on a very cold morning": " de manhã cedo e com frio",
    " and it is never too late for that": " e para isso nunca é tarde demais",
    ", which nobody in the whole town would ever have believed": ", no que ninguém na cidade inteira teria acreditado",
}


def sentences(number: int) -> Pairs:
    """Different ones, of different lengths, that begin differently."""
    made = [
        (f"{noun} {verb} the {other}{end}", f"{NOUNS[noun]} {VERBS[verb]} o {NOUNS[other]}{ENDS[end]}")
        for noun in NOUNS
        for verb in VERBS
        for other in NOUNS
        for end in ENDS
    ]
    return [
        made[(place * 389) % len(made)] for place in range(number)
    ]  # of 1,296, which has no divisor in common with 389


def checked(pairs: Pairs, folder: Path, identify: Callable[[str], tuple[str, float]] | None = None) -> CorpusCheck:
    (folder / "c.src").write_text("".join(src + "\n" for src, _ in pairs), encoding="utf-8")
    (folder / "c.tgt").write_text("".join(tgt + "\n" for _, tgt in pairs), encoding="utf-8")
    return check_corpus({"train": PairReader([folder / "c.src", folder / "c.tgt"])}, identify)


def changed(lines: Sequence[int], src: Callable[[str], str], tgt: Callable[[str], str] = str) -> Pairs:
    """The corpus of 200 pairs with some lines, from 1, changed."""
    pairs = sentences(200)
    for line in lines:
        pairs[line - 1] = src(pairs[line - 1][0]), tgt(pairs[line - 1][1])
    return pairs


def numbered(beginning: str) -> Pairs:
    """The same corpus, with a number before the sources of all lines but two."""
    return [
        (src if line in (50, 51) else beginning.format(line) + src, tgt)
        for line, (src, tgt) in enumerate(sentences(200), 1)
    ]


def of_kind(check: CorpusCheck, kind: Kind) -> list[Finding]:
    return [finding for finding in check.findings if finding.kind is kind]


FEW = [7, 50, 120]
MANY = [*range(3, 201)]
CASES: dict[str, tuple[Pairs, Finding]] = {}


def case(name: str, pairs: Pairs, kind: Kind, count: int, line: int, side: str = "", detail: str = "") -> None:
    of = len(pairs)
    CASES[name] = (
        pairs,
        Finding(kind=kind, split="train", side=side, count=count, of=of, line=line, detail=detail),
    )


case("entities", changed(FEW, lambda s: s + " &apos;s"), Kind.ENTITIES, 3, 7, "src", "&apos;")
case("a spreadsheet's quotes", changed(FEW, lambda s: f'"{s}, so"'), Kind.QUOTED, 3, 7, "src")
case("quotes of all", changed(range(1, 201), str, lambda s: f'"{s}"'), Kind.QUOTED, 200, 1, "tgt")
case("spaces before stops", changed(MANY, lambda s: s + " ."), Kind.TOKENISED, 198, 3, "src")
case("brackets", changed(MANY, str, lambda s: "( risos ) " + s), Kind.TOKENISED, 198, 3, "tgt")
case("clitics", changed(MANY, lambda s: s + " it 's"), Kind.TOKENISED, 198, 3, "src")
case("a full-width stop", changed(MANY, lambda s: s + " 。"), Kind.TOKENISED, 198, 3, "src")
case("tags inside", changed(FEW, lambda s: s + " <b>here</b>"), Kind.MARKUP, 3, 7, "src", "<b>")
case("a language tag", changed(range(1, 201), lambda s: "<2en> " + s), Kind.PREFIX, 200, 1, "src", "<2en>")
case("a tag on some", changed(MANY, lambda s: ">>en<< " + s), Kind.PREFIX, 198, 3, "src", ">>en<<")
case("a constant word", changed(MANY, lambda s: "Ich " + s), Kind.PREFIX, 198, 3, "src", "Ich")
case("numbers", numbered("{}. "), Kind.NUMBERED, 198, 1, "src", "1.")
case("numbers in brackets", numbered("({})"), Kind.NUMBERED, 198, 1, "src", "(1)")
case("numbers and tabs", numbered("{}\t"), Kind.NUMBERED, 198, 1, "src", "1")
case("a prefix without a space", changed(range(1, 201), lambda s: "en:" + s), Kind.PREFIX, 200, 1, "src", "en:")
case("a bell", changed(FEW, lambda s: s + "\a"), Kind.CONTROL, 3, 7, "src")
case("a zero-width space", changed(FEW, str, lambda s: "\u200b" + s), Kind.CONTROL, 3, 7, "tgt")
case("a replacement character", changed(FEW, lambda s: s + "\ufffd"), Kind.CONTROL, 3, 7, "src")
case("UTF-8 as Latin-1", changed([9], str, lambda s: s + "caf\u00c3\u00a9"), Kind.CONTROL, 1, 9, "tgt")
case("lost letters", changed(FEW, str, lambda s: s + " gar?on"), Kind.LOST, 3, 7, "tgt")
case("accents apart", changed(FEW, lambda s: s + " cafe\u0301"), Kind.DECOMPOSED, 3, 7, "src")
NUKTA = changed(MANY, lambda s: s + " \u09dc\u09df")
case("codes as names", [("pt-BR", "en"), *sentences(200)], Kind.COLUMN_NAMES, 1, 1, detail="pt-BR, en")
case("other names", [('"Source"', " TARGET"), *sentences(200)], Kind.COLUMN_NAMES, 1, 1, detail='"Source",  TARGET')
case("an own name", [("Galego", "English"), *sentences(200)], Kind.COLUMN_NAMES, 1, 1, detail="Galego, English")
case("names of languages", [("English", "ewe"), *sentences(200)], Kind.COLUMN_NAMES, 1, 1, detail="English, ewe")
case("repetitions", sentences(200) + sentences(50), Kind.REPEATED, 50, 201)
case(
    "several translations",
    [*sentences(200), *((src, f"então {tgt}") for src, tgt in sentences(100))],
    Kind.RETRANSLATED,
    100,
    201,
    "src",
)
case(
    "untranslated", [(s, t) if n % 40 else (s, s) for n, (s, t) in enumerate(sentences(200), 1)], Kind.IDENTICAL, 5, 40
)
case("case aside", changed(FEW, lambda _: "OK Then  go", lambda _: "ok then go"), Kind.IDENTICAL, 3, 7)
case(
    "copied words",
    [(s, t) if n % 40 else (f"Some {s} there", f"algo {s} there") for n, (s, t) in enumerate(sentences(200), 1)],
    Kind.COPIED,
    5,
    40,
)
case(
    "half translated",
    changed(FEW, lambda _: "and so it went on for quite some time", lambda _: "sim"),
    Kind.UNEQUAL,
    3,
    7,
)
case("two translations", changed(FEW, str, lambda s: f"{s} / sim, {s}."), Kind.ALTERNATIVES, 3, 7, "tgt")
case("three sources", changed(FEW, lambda s: f"Oh, {s}! | {s} | so"), Kind.ALTERNATIVES, 3, 7, "src")
case("explanations", changed(FEW, str, lambda s: s + " (informal)."), Kind.EXPLAINED, 3, 7, "tgt", "(informal)")
case("in square brackets", changed(FEW, lambda s: s + " [coll.]"), Kind.EXPLAINED, 3, 7, "src", "[coll.]")
case("in wide brackets", changed(FEW, lambda s: s + "（口语）。"), Kind.EXPLAINED, 3, 7, "src", "（口语）")
case("too long", changed([5, 6], lambda s: "so " * 101 + s, lambda s: "e " * 150 + s), Kind.LONG, 2, 5)
case("too long without spaces", changed([5], str, lambda s: s + "é" * 600), Kind.LONG, 1, 5)
case("no words", changed(FEW, lambda _: "...", lambda _: "!!!"), Kind.WORDLESS, 3, 7)
case("empty", changed(FEW, lambda _: " "), Kind.UNUSABLE, 3, 7, detail="source empty")
case("another script", changed(FEW, str, lambda _: "Кот видит дом"), Kind.SCRIPT, 3, 7, "tgt", "Cyrillic")


@pytest.mark.parametrize("name", CASES)
def test_one_thing_is_wrong(name: str, tmp_path: Path) -> None:
    pairs, expected = CASES[name]
    found = of_kind(checked(pairs, tmp_path), expected.kind)
    assert found == [expected]
    lines = [] if found[0].lines is None else found[0].lines.tolist()
    assert (len(lines), expected.line in lines, lines == sorted(set(lines))) == (expected.count, True, True)


@pytest.mark.parametrize("beginning", ["{}. ", "{}) ", "({}) ", "{}: ", "{}\t", " {} "])
def test_numbers_of_lines_are_taken_away_by_the_command_that_is_advised(beginning: str, tmp_path: Path) -> None:
    pairs = [(beginning.format(line) + src, tgt) for line, (src, tgt) in enumerate(sentences(200), 1)]
    assert of_kind(checked(pairs, tmp_path), Kind.NUMBERED)
    command = f"{WITHOUT_NUMBERS} c.src"
    without = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert without.splitlines() == [src for src, _ in sentences(200)]


def test_numbers_that_do_not_rise_are_those_of_sentences(tmp_path: Path) -> None:
    pairs = [(f"{line * 89 % 200} {src}", tgt) for line, (src, tgt) in enumerate(sentences(200), 1)]
    assert not of_kind(checked(pairs, tmp_path), Kind.NUMBERED)
    rising = [(f"{line} {src}", tgt) for line, (src, tgt) in enumerate(sentences(9), 1)]
    assert not of_kind(checked(rising, tmp_path), Kind.NUMBERED)


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        ("{} on 9 / 11", "{} no 11 de setembro"),
        ("{} and/or", "{} e"),
        ("{} / so it is", "{} / assim é"),
        ("{} | so it is", "{}/assim é"),
    ],
)
def test_a_sign_on_both_sides_or_within_a_word_parts_no_alternatives(src: str, tgt: str, tmp_path: Path) -> None:
    assert not of_kind(checked(changed(FEW, src.format, tgt.format), tmp_path), Kind.ALTERNATIVES)


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        ("{} (again)", "{} (outra vez)"),
        ("{} (again)", "[Outra vez] {}"),
        ("{} (again) and so on", "{} outra vez"),
        ("(Laughter)", "{}"),
        ("{} (in a list", "{}"),
    ],
)
def test_brackets_on_both_sides_or_around_or_within_a_sentence_explain_nothing(
    src: str, tgt: str, tmp_path: Path
) -> None:
    assert not of_kind(checked(changed(FEW, src.format, tgt.format), tmp_path), Kind.EXPLAINED)


def test_a_name_in_a_short_sentence_is_not_copied(tmp_path: Path) -> None:
    assert not of_kind(checked(changed(MANY, lambda _: "I saw Olga", lambda _: "eu vi Olga"), tmp_path), Kind.COPIED)


def test_repetitions_are_no_other_translations(tmp_path: Path) -> None:
    assert not of_kind(checked(sentences(200) + sentences(100), tmp_path), Kind.RETRANSLATED)


def test_rows_that_are_no_pairs_are_not_in_two_sets(tmp_path: Path) -> None:
    sets = {}
    for name, pairs in (("train", sentences(900)[:800]), ("test", sentences(900)[800:])):
        write_pairs(tmp_path, name, [*pairs, *[(" ", "nada")] * 30])
        sets[name] = PairReader([tmp_path / f"{name}.{side}" for side in ("src", "tgt")])
    assert {one.kind for one in check_corpus(sets).findings} == {Kind.UNUSABLE}


def test_the_order_of_numbers_does_not_matter() -> None:
    seen = corpus_statistics.CorpusStatistics()
    seen.add(("on 3 May 1990", "em 1990, 3 de maio"))
    assert seen.sides["src"].numbers.tolist() == seen.sides["tgt"].numbers.tolist()


def test_a_clean_corpus_has_no_finding(tmp_path: Path) -> None:
    assert checked(sentences(1200), tmp_path) == CorpusCheck({"train": 1200}, ())
    assert checked(sentences(1), tmp_path).findings == ()


def test_a_set_whose_files_are_swapped_is_found(tmp_path: Path) -> None:
    right = [(f"Кот номер {n} видит дом", f"the cat number {n} sees the house") for n in range(300)]
    sets = {}
    for name, pairs in (("train", right[:250]), ("valid", [(tgt, src) for src, tgt in right[250:]])):
        write_pairs(tmp_path, name, pairs)
        sets[name] = PairReader([tmp_path / f"{name}.{side}" for side in ("src", "tgt")])
    found = [(f.side, f.count, f.line, f.detail) for f in of_kind(check_corpus(sets), Kind.OTHER_SCRIPT)]
    assert found == [("src", 50, 1, "Latin"), ("tgt", 50, 1, "Cyrillic")]
    assert not of_kind(check_corpus({"train": sets["train"], "test": sets["train"]}), Kind.OTHER_SCRIPT)
    further = {"train": sets["train"], "also0": sets["valid"]}  # of another direction or language
    assert not of_kind(check_corpus(further), Kind.OTHER_SCRIPT)


def in_two_scripts(number: int) -> Pairs:
    """The corpus with its English in Greek letters, twice as long as its Portuguese."""
    greek = str.maketrans("abcdefghiklmnoprstuvwxyz", "αβκδεφγηιχλμνοπρστυβωξυζ")
    return [(f"{src} {src}".translate(greek), tgt) for src, tgt in sentences(number)]


@pytest.mark.parametrize("end", ["? what? so?", " what?Yes", " www.it.pt/see?so=it", " 你好?我很好", " 3?a"])
def test_question_marks_of_people_and_addresses_are_no_lost_letters(end: str, tmp_path: Path) -> None:
    assert not of_kind(checked(changed(MANY, lambda s: s + end), tmp_path), Kind.LOST)


@pytest.mark.parametrize("every", [100, 10, 3, 2])
def test_pairs_in_the_other_direction_are_nothing_else(every: int, tmp_path: Path) -> None:
    by_length = sorted(in_two_scripts(900), key=lambda pair: len(pair[0]))  # so that a pair may fit the next one
    pairs = [(tgt, src) if row % every == 1 else (src, tgt) for row, (src, tgt) in enumerate(by_length)]
    number = len(range(1, 900, every))
    (found,) = checked(pairs, tmp_path).findings
    assert found == Finding(kind=Kind.REVERSED, split="train", count=number, of=900, line=2, detail="Latin to Greek")
    assert not of_kind(checked([(tgt, src) for src, tgt in in_two_scripts(900)], tmp_path), Kind.REVERSED)


def test_languages_are_those_of_the_pairs_in_the_right_direction(tmp_path: Path) -> None:
    def identify(text: str) -> tuple[str, float]:
        return ("pt" if text.lower() < "α" else "el"), 1.0

    long = [(src * 2, f"{tgt} {tgt} {tgt} {tgt}") for src, tgt in in_two_scripts(600)]
    pairs = [(tgt, src) if row % 3 == 1 else (src, tgt) for row, (src, tgt) in enumerate(long)]
    found = checked(pairs, tmp_path, identify)
    assert {one.kind for one in found.findings} == {Kind.REVERSED}
    assert found.detected == ("el", "pt")


def test_a_language_of_two_scripts_has_no_direction(tmp_path: Path) -> None:
    """Half of each side's lines, and of any pairing of scripts a quarter."""
    greek = [src for src, _ in in_two_scripts(402)]
    pairs = [
        (src if row & 1 else greek[row], tgt if row & 2 else greek[-row])
        for row, (src, tgt) in enumerate(sentences(402)[2:], 2)
    ]
    assert not of_kind(checked(pairs, tmp_path), Kind.REVERSED)


def test_letters_that_have_no_form_of_one_character_are_no_finding(tmp_path: Path) -> None:
    assert not of_kind(checked(NUKTA, tmp_path), Kind.DECOMPOSED)


@pytest.mark.parametrize(("above", "line"), [("", 1), (";\n", 2), ("O meu glosario;\n;\n", 3)])
@pytest.mark.parametrize("names", ["Galego;English", "Galego;Anglès"])
def test_names_of_columns_are_found_below_other_rows(names: str, above: str, line: int, tmp_path: Path) -> None:
    rows = "".join(f"{a};{b}\n" for a, b in sentences(200))
    (tmp_path / "c.csv").write_text(f"{above}{names}\n{rows}", encoding="utf-8")
    found = of_kind(check_corpus({"train": PairReader([tmp_path / "c.csv"])}), Kind.COLUMN_NAMES)
    assert [one.line for one in found] == [line]


@pytest.mark.parametrize(
    "first",
    [
        ("no", "No"),
        ("Is it", "en"),
        ("no-one", "it"),
        ("so", "if"),
        ("No.", "It."),
        ("English", "English"),
        ("I am English", "English"),
    ],
)
def test_a_first_pair_of_words_is_no_line_of_names(first: tuple[str, str], tmp_path: Path) -> None:
    assert of_kind(checked([first, *sentences(200)], tmp_path), Kind.COLUMN_NAMES) == []
    few = [("pt", "en"), *[("gato", "cat"), ("cão", "dog"), ("casa", "house")] * 9]
    assert of_kind(checked(few, tmp_path), Kind.COLUMN_NAMES) == []  # of a list of words


KOREAN = [(f"한국어 문장 번호 {n} 입니다", f"Sentence number {n} is in English") for n in range(99)]


@pytest.mark.parametrize(
    ("first", "pairs", "is_found"),
    [
        (("영어", "포르투갈어"), sentences(200), True),
        (("Angol", '"Galego"'), sentences(200), True),
        (("Koreanisch", "Englisch"), KOREAN, True),
        (("한국어", "영어"), KOREAN, True),
        (("안녕하세요", "Hello"), [("네", "Yes"), *KOREAN], False),  # as short as another
        (("Go.", "Vai."), sentences(200), False),
        (("Angol", "Galego"), [("the cat", "o gato"), *sentences(200)], False),
        (("Angol", "Galego"), sentences(9), False),  # too few to compare with
        (("mot", "parole"), [("gato", "cat"), ("cão", "dog")] * 99, False),  # of a list of words
    ],
)
def test_names_of_columns_in_other_words(first: tuple[str, str], pairs: Pairs, is_found: bool, tmp_path: Path) -> None:
    rows = [first, *pairs]
    for name, separator in (("c.tsv", "\t"), ("c.csv", ";")):
        (tmp_path / name).write_text("".join(f"{a}{separator}{b}\n" for a, b in rows), encoding="utf-8")
        found = of_kind(check_corpus({"train": PairReader([tmp_path / name])}), Kind.COLUMN_NAMES)
        assert [one.line for one in found] == [1] * is_found


def test_quotes_of_a_spreadsheet_are_told_from_those_of_the_text(tmp_path: Path) -> None:
    """It quotes all cells that have a quote, and doubles it; people quote a whole sentence now and then."""
    quoted = changed(range(1, 200, 10), lambda s: f'"{s}."')  # 20 of 200
    assert len(of_kind(checked(quoted, tmp_path), Kind.QUOTED)) == 1
    for line in (2, 3, 4):
        quoted[line - 1] = (f'"{quoted[line - 1][0]}", he said', quoted[line - 1][1])
    assert of_kind(checked(quoted, tmp_path), Kind.QUOTED) == []
    for line in (1, 11):
        quoted[line - 1] = ('"He said ""yes""."', quoted[line - 1][1])
    (found,) = of_kind(checked(quoted, tmp_path), Kind.QUOTED)  # as where files of both kinds are one
    assert (found.count, found.line) == (20, 1)
    whole = changed(range(1, 201), lambda s: f'"{s}"')
    assert {one.kind for one in checked(whole, tmp_path).findings} == {Kind.QUOTED}  # and no beginning to cut off


@pytest.mark.parametrize(("missing", "amount"), [("src", 1), ("tgt", -1)])
def test_a_missing_line_is_found(missing: str, amount: int, tmp_path: Path) -> None:
    """Line 300 is missing on one side, and something stands at the end instead."""
    src, tgt = map(list, zip(*sentences(700), strict=True))
    side = src if missing == "src" else tgt
    side.append(side.pop(299))
    (found,) = of_kind(checked(list(zip(src, tgt, strict=True)), tmp_path), Kind.SLIPPED)
    assert found.amount == amount
    assert found.line == pytest.approx(300, abs=8)
    assert found.count == pytest.approx(400, abs=8)


@pytest.mark.parametrize("noise", [0, 3])
def test_two_files_of_different_lengths_are_told_where_they_part(noise: int, tmp_path: Path) -> None:
    """Also where the last lines fit as they stand, and worse when they are moved."""
    src, tgt = map(list, zip(*sentences(500), strict=True))
    del src[299]
    for row in range(499 - noise, 499):
        src[row], tgt[row] = f"number {row}", f"número {row}"
    (tmp_path / "c.src").write_text("\n".join(src) + "\n", encoding="utf-8")
    (tmp_path / "c.tgt").write_text("\n".join(tgt) + "\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"has 499 lines and .* has 500: .*; they seem to diverge near line (29\d|30\d)$"
    ):
        check_corpus({"train": PairReader([tmp_path / "c.src", tmp_path / "c.tgt"])})
    (tmp_path / "c.src").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line n of the other; their lengths do not show where"):
        check_corpus({"train": PairReader([tmp_path / "c.src", tmp_path / "c.tgt"])})


def test_a_slip_that_ends_is_not_where_two_files_part(tmp_path: Path) -> None:
    src, tgt = map(list, zip(*sentences(500), strict=True))
    tgt[100:200] = [*tgt[101:200], tgt[100]]
    (tmp_path / "c.src").write_text("\n".join(src[:-1]) + "\n", encoding="utf-8")
    (tmp_path / "c.tgt").write_text("\n".join(tgt) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line n of the other; their lengths do not show where"):
        check_corpus({"train": PairReader([tmp_path / "c.src", tmp_path / "c.tgt"])})


@pytest.mark.parametrize("long", [2, 3])
def test_a_side_without_a_name_is_in_the_language_of_its_few_long_lines(long: int, tmp_path: Path) -> None:
    pairs = [("a long line. " * 9, "uma linha. " * 9)] * long + [("short", "curta")] * 9

    def identify(text: str) -> tuple[str, float]:
        return ("en" if "long" in text else "pt"), 1.0

    check = checked(pairs, tmp_path, identify)
    assert check.detected == (("en", "pt") if long == 3 else ("und", "und"))
    languages = iter(["en", "en", "en", "de", "de", "fr", "fr", "pt"] * 9)
    assert checked([pairs[0]] * 8, tmp_path, lambda _: (next(languages), 1.0)).detected == ("und", "und"), "no most"
    assert CorpusCheck.from_json(check.to_json()) == check


def test_the_script_of_a_text_in_two_is_the_same_in_every_process() -> None:
    """Sets of characters have another order in each, and scripts are numbered as they are met."""
    assert corpus_statistics.script_name(corpus_statistics._main_script("ᚁᚂ")) == "Ogham"
    assert corpus_statistics.script_name(corpus_statistics._main_script("ᚁᚂ ᎠᎡ")) == "Cherokee"


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """A TSV file with a line that names its columns, packed; lines that cannot be used count."""
    pairs = sentences(200)
    pairs[30] = pairs[31] = ("&amp; so", "&amp; assim")
    lines = ["tgt\tnumber\tsrc", *(f"{tgt}\t{place}\t{src}" for place, (src, tgt) in enumerate(pairs))]
    lines[11] = "\t10\tempty"
    with gzip.open(tmp_path / "c.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    found = check_corpus({"train": PairReader([tmp_path / "c.tsv.gz"])})
    at = {(one.kind, one.side): (one.line, one.count) for one in found.findings}
    assert at[Kind.UNUSABLE, ""] == (12, 1)
    assert at[Kind.ENTITIES, "src"] == at[Kind.ENTITIES, "tgt"] == (32, 2)
    assert found.looked_at == {"train": 199}


def test_held_out_pairs_that_are_trained_on(tmp_path: Path) -> None:
    """Whole pairs, and single sentences; case and spacing aside. Short ones may well be in both."""
    train = [*sentences(200), ("Thank you.", "Obrigado.")]
    test = sentences(300)[200:]
    test[4] = (train[0][0].upper() + " again and again", f"  {train[0][1]} muito e muito tempo")
    test[5] = (train[50][0].upper(), f"  {train[50][1]}")
    for place in range(10, 20):
        test[place] = (f"{test[place][0]} said somebody else", train[60 + place][1])
    test[30] = ("thank you.", "Obrigado.")
    for name, pairs in (("train", train), ("test", test)):
        text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    found = check_corpus({name: PairReader([tmp_path / f"{name}.tsv"]) for name in ("train", "test")})
    both = of_kind(found, Kind.TRAINED_ON)
    long_enough = len(test[5][0]) + len(test[5][1]) >= 40
    assert long_enough
    assert [(one.split, one.count, one.of, one.line, one.amount) for one in both] == [("test", 1, 100, 6, 40)]
    half = of_kind(found, Kind.HALF_TRAINED_ON)
    assert [(one.split, one.count, one.line, one.amount) for one in half] == [("test", 10, 11, 40)]


@pytest.mark.parametrize(("shared", "is_found"), [(19, False), (20, True), (100, True)])
def test_many_short_pairs_in_two_sets_are_no_chance(shared: int, is_found: bool, tmp_path: Path) -> None:
    short = [(f"is it {n}?", f"é {n}?") for n in range(300)]
    found = {}
    for name, other in (("train", "test"), ("valid", "test")):
        write_pairs(tmp_path, name, short[:200])
        write_pairs(tmp_path, other, short[200 - shared : 300 - shared])
        write_pairs(tmp_path, "rest", sentences(100))
        files = {n: PairReader([tmp_path / f"{n}.src", tmp_path / f"{n}.tgt"]) for n in (name, other, "rest")}
        sets = {"train": files.get("train", files["rest"])} | {n: files[n] for n in (name, other)}
        found[name] = [(one.kind, one.split, one.count, one.amount) for one in check_corpus(sets).findings]
    for name, kind in (("train", Kind.TRAINED_ON), ("valid", Kind.VALIDATED_ON)):
        assert ((kind, "test", shared, 0) in found[name]) is is_found


def by_first_word(text: str) -> tuple[str, float]:
    """Knows one language that begins with "le", one that begins with "der", and is unsure of "um"."""
    return {"le": ("fr", 1.0), "der": ("de", 1.0), "um": ("gl", 0.5)}.get(text.partition(" ")[0], ("en", 1.0))


def long(pairs: Pairs) -> Pairs:
    return [
        (
            f"{src}, as one could see quite well from where we all stood",
            f"der {tgt}, wie man von hier aus recht gut sehen kann, wenn man will",
        )
        for src, tgt in pairs
    ]


def test_lines_in_another_language(tmp_path: Path) -> None:
    pairs = long(sentences(200))
    for line in (9, 80, 81, 150):
        pairs[line - 1] = (pairs[line - 1][0], f"le {pairs[line - 1][1]}")
    for line in (20, 30, 40, 60):
        pairs[line - 1] = (f"um {pairs[line - 1][0]}", pairs[line - 1][1])
    (found,) = of_kind(checked(pairs, tmp_path, by_first_word), Kind.LANGUAGE)
    expected = Finding(kind=Kind.LANGUAGE, split="train", side="tgt", count=4, of=200, line=9, detail="fr")
    assert found == expected
    assert checked(sentences(200), tmp_path, by_first_word).findings == ()  # too short to tell


def test_both_sides_in_one_language(tmp_path: Path) -> None:
    pairs = [(src, f"although {src}") for src, _ in long(sentences(200))]
    (found,) = of_kind(checked(pairs, tmp_path, by_first_word), Kind.SAME_LANGUAGE)
    sets = {"train": PairReader([tmp_path / "c.src", tmp_path / "c.tgt"])}
    assert not of_kind(check_corpus(sets, by_first_word, ("en", "de")), Kind.SWAPPED), "which is the same fault"
    assert (found.detail, found.count, found.side) == ("en", 200, "")


@pytest.mark.parametrize("named", [("en", "de"), ("eng-GB", "de"), ("pt-BR", "pt"), ("und", "und")])
def test_a_side_in_the_language_that_the_other_is_said_to_be_in(named: tuple[str, str], tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", [(tgt, src) for src, tgt in long(sentences(200))])
    sets = {"train": PairReader([tmp_path / "train.src", tmp_path / "train.tgt"])}
    swapped = of_kind(check_corpus(sets, by_first_word, named), Kind.SWAPPED)
    told = [(f.side, f.detail, f.count, f.line) for f in swapped]
    assert told == ([("src", "de", 200, 1), ("tgt", "en", 200, 1)] if "de" in named else [])
    assert not of_kind(check_corpus(sets, by_first_word, ("de", "en")), Kind.SWAPPED)
    assert not of_kind(
        check_corpus({"train": sets["train"], "also1": sets["train"]}, by_first_word, ("de", "en")), Kind.SWAPPED
    )


NAMED_WRONGLY = [
    (("en", "fr"), [(Kind.MISNAMED, "tgt", "de")]),
    (("ko", "ja"), [(Kind.MISNAMED, "src", "en"), (Kind.MISNAMED, "tgt", "de")]),
    (("de", "en"), [(Kind.SWAPPED, "src", "en"), (Kind.SWAPPED, "tgt", "de")]),
    (("de", "und"), [(Kind.MISNAMED, "src", "en"), (Kind.SWAPPED, "tgt", "de")]),
    (("eng_Latn", "de-CH"), []),
    (("en", "gsw"), []),  # which is always taken for another
    (("und", "und"), []),
]


@pytest.mark.parametrize(("named", "expected"), NAMED_WRONGLY)
@pytest.mark.parametrize("is_joined", [False, True])
def test_a_side_in_another_language_than_it_is_named_by(
    named: tuple[str, str], expected: list[tuple[Kind, str, str]], is_joined: bool, tmp_path: Path
) -> None:
    """In short lines, too, ten or so of which are looked at as one."""
    short = [(f"it is {n}", f"der {n}") for n in range(500)]
    write_pairs(tmp_path, "train", short if is_joined else long(sentences(200)))
    sets = {"train": PairReader([tmp_path / "train.src", tmp_path / "train.tgt"])}
    found = check_corpus(sets, by_first_word, named).findings
    kinds = [one for one in found if one.kind in (Kind.MISNAMED, Kind.SWAPPED)]
    assert [(one.kind, one.side, one.detail) for one in sorted(kinds, key=lambda one: one.side)] == expected
    assert all((one.is_joined, one.line) == (is_joined, 1) and one.count == one.of for one in kinds)
    assert all(one.of < 30 for one in kinds if is_joined)


def test_one_language_is_not_told_from_another_like_it(tmp_path: Path) -> None:
    def identify(text: str) -> tuple[str, float]:
        return ("hr" if text.startswith("der") else "zxx"), 1.0

    write_pairs(tmp_path, "train", long(sentences(200)))
    sets = {"train": PairReader([tmp_path / "train.src", tmp_path / "train.tgt"])}
    assert not of_kind(check_corpus(sets, identify, ("en", "sr")), Kind.MISNAMED)
    (found,) = of_kind(check_corpus(sets, identify, ("en", "sl")), Kind.MISNAMED)
    assert (found.side, found.detail) == ("tgt", "hr")


def test_one_file_for_validation_and_test(tmp_path: Path) -> None:
    for name, pairs in (
        ("train", sentences(900)[:800]),
        ("valid", sentences(900)[800:]),
        ("test", sentences(1000)[900:]),
    ):
        write_pairs(tmp_path, name, pairs)
    sets = {n: PairReader([tmp_path / f"{n}.{side}" for side in ("src", "tgt")]) for n in ("train", "valid", "test")}
    assert check_corpus(sets).findings == ()
    (found,) = check_corpus({**sets, "test": sets["valid"]}).findings
    assert (found.kind, found.split, found.of, found.line) == (Kind.VALIDATED_ON, "test", 100, 1)
    assert found.count > 50  # of the long ones


def test_a_sample_is_spread_over_the_whole_corpus(tmp_path: Path) -> None:
    """Of 1,200 long lines 300 are looked at, every fourth: the first in French of those is line 1,001."""
    pairs = long(sentences(1200))
    pairs[1000:] = [(src, f"le {tgt}") for src, tgt in pairs[1000:]]
    (found,) = of_kind(checked(pairs, tmp_path, by_first_word), Kind.LANGUAGE)
    assert (found.count, found.of, found.line) == (50, 300, 1001)


def test_rows_that_are_no_pairs_keep_their_place(tmp_path: Path) -> None:
    pairs = sentences(100) + sentences(100)
    pairs[0] = pairs[100] = (" ", "nada")
    (repeated,) = of_kind(checked(pairs, tmp_path), Kind.REPEATED)
    assert (repeated.count, repeated.of, repeated.line) == (99, 198, 102)


def test_findings_are_numbers_that_come_back(tmp_path: Path) -> None:
    found = checked(changed(FEW, lambda s: s + " &apos;s"), tmp_path)
    again = CorpusCheck.from_json(found.to_json())
    assert again == found
    assert found.findings[0].share == 3 / 200
