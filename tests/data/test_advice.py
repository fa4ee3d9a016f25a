"""The messages of `repose check`."""

from repose.data import advice
from repose.data.findings import CorpusCheck, Finding, Kind


def finding(kind: Kind, count: int = 44, **more: object) -> Finding:
    return Finding(**{"kind": kind, "split": "train", "count": count, "of": 100, "line": 1200, **more})  # type: ignore[arg-type]


def test_every_kind_has_words_and_advice() -> None:
    for kind in Kind:
        assert advice.what(finding(kind))
        assert advice.what_to_do(finding(kind)).endswith(".")


def test_where_it_is() -> None:
    assert advice.where(finding(Kind.REPEATED)) == "44 training pairs (44 %; first line 1,200)"
    entity = finding(Kind.ENTITIES, 2, side="tgt", split="valid", detail="&apos;")
    assert advice.where(entity) == "2 validation targets (2.0 %; first line 1,200: &apos;)"
    language = finding(Kind.LANGUAGE, 3, side="src", split="test", detail="fr")
    assert advice.where(language) == "3 of 100 long test sources (3.0 %; first line 1,200: fr)"
    joined = finding(Kind.SWAPPED, 5, of=5, side="src", detail="ko", is_joined=True)
    assert advice.where(joined).startswith("5 of 5 samples of several short training sources (100 %; first")
    known = "44 test pairs of 40 or more characters (44 %; first line 1,200)"
    assert advice.where(finding(Kind.TRAINED_ON, split="test", amount=40)) == known
    assert advice.where(finding(Kind.TRAINED_ON, split="test")) == "44 test pairs (44 %; first line 1,200)"
    assert advice.where(finding(Kind.SLIPPED, amount=-1)).endswith("(44 %; from line 1,200 on, 1 line too early)")
    assert advice.where(finding(Kind.SLIPPED, amount=2)).endswith("2 lines too late)")
    assert "source empty, first line 1,200" in advice.where(finding(Kind.UNUSABLE, detail="source empty"))
    tab = finding(Kind.UNUSABLE, detail="no tab, first on line 1,200")
    assert advice.where(tab) == "44 training pairs (44 %; no tab, first on line 1,200)"
    assert advice.where(finding(Kind.REPEATED, 1)) == "1 training pair (1.0 %; first line 1,200)"
    language = finding(Kind.LANGUAGE, 1, side="tgt", detail="fr")
    assert advice.where(language) == "1 of 100 long training targets (1.0 %; first line 1,200: fr)"
    assert advice.share(finding(Kind.CONTROL, 1, of=29_000)) == "0.0034 %"


def test_lines_left_out_are_explained_by_the_columns_of_tables_only() -> None:
    text, tsv, csv = (
        advice.what_to_do(finding(Kind.UNUSABLE, detail=detail, places=places))
        for detail, places in (
            ("source empty", ""),
            ("no tab, first on line 1", ""),
            ("more than 2 columns, first on row 1", "row"),
        )
    )
    assert text == "Fix these lines on both sides, or delete them from both."
    assert tsv.startswith(f"{text} More columns come from a tab")
    assert csv == f"{text} More columns come from a separator inside a cell that is not in quotes."


def test_each_kind_of_file_has_its_own_advice_once() -> None:
    empty, no_tab, unit = (
        finding(Kind.UNUSABLE, detail=detail, places=places)
        for detail, places in (("source empty", ""), ("no tab, first on line 1", ""), ("no text in en", "unit"))
    )
    assert advice.all_to_do([empty, no_tab, empty]) == [advice.what_to_do(no_tab)]
    assert advice.all_to_do([empty, unit]) == [advice.what_to_do(empty), advice.what_to_do(unit)]


def test_how_sides_are_named_goes_by_the_kind_of_file() -> None:
    by_fields = "(--src-field and --tgt-field"
    assert advice.name_sides("text").endswith(f"{by_fields})")
    assert advice.name_sides().endswith(f"{by_fields}, or corpus.src_field and corpus.tgt_field among settings)")
    assert advice.name_sides("jsonl").endswith(f"{by_fields}, or --src-lang and --tgt-lang)")
    assert advice.name_sides("csv").endswith(f"{by_fields}, or a first line that names both columns)")
    assert advice.name_sides("tmx").endswith(f"{by_fields}, or --src-lang and --tgt-lang)")


def test_a_tokenised_corpus_that_is_meant_to_be() -> None:
    assert "pretokenized" in advice.what_to_do(finding(Kind.TOKENISED))
    assert "tok:none" in advice.what_to_do(finding(Kind.TOKENISED), pretokenized=True)


def test_a_summary_has_a_line_for_each_kind_the_worst_first() -> None:
    found = (
        finding(Kind.REPEATED),
        finding(Kind.TOKENISED, 90, side="src"),
        finding(Kind.TOKENISED, 80, side="tgt"),
        finding(Kind.TOKENISED, 70, side="src", split="test"),
    )
    first, second, last = advice.summary(CorpusCheck({"train": 100, "test": 100}, found))
    assert first.startswith("check: Tokenised already")
    assert first.endswith("90 training sources (90 %; first line 1,200), and in 2 more places")
    assert second == "check: Repetitions of an earlier pair: 44 training pairs (44 %; first line 1,200)"
    assert "repose check" in last
    only, _ = advice.summary(CorpusCheck({"train": 100, "test": 100}, found), pretokenized=True)
    assert only == second, "who asked for tokenised text need not be told of it"
    assert advice.summary(CorpusCheck({"train": 100}, ())) == []
    _, todo, _ = advice.summary(CorpusCheck({"train": 100}, (finding(Kind.SWAPPED),)))
    assert todo.startswith("check: The files seem to be swapped"), "nothing can be learnt, so it is said at once"
    assert advice.sizes(CorpusCheck({"train": 1000, "test": 20}, ())) == "1,000 training, 20 test pairs"
    assert advice.sizes(CorpusCheck({"train": 1}, ())) == "1 training pair"
