"""Languages are detected by py3langid's model or from the names of files."""

from pathlib import PurePath

import pytest

from repose.data.language import (
    identify,
    is_language,
    language_name,
    languages_in_names,
    names_of_pair,
    other_language,
    rank,
)

GERMAN = "Auf der Straße war niemand, der uns den Weg zum Bahnhof hätte zeigen können."


def test_long_sentences_are_told_with_certainty() -> None:
    for language, text in {
        "en": "There was nobody in the street who could have told us the way to the station.",
        "de": GERMAN,
        "pt": "Não havia ninguém na rua que nos pudesse ter mostrado o caminho para a estação.",
    }.items():
        found, certainty = identify(text)
        assert found == language
        assert 0.9 <= certainty <= 1.0


def test_another_language_is_only_told_with_certainty() -> None:
    assert other_language(GERMAN, "pt", 0.9) == "de"
    assert other_language(GERMAN, "pt", 1.1) is None
    assert other_language(GERMAN, "de-AT", 0.9) is None
    assert other_language(GERMAN, "gsw", 0.9) is None, "which cannot be identified"


def test_a_rank_is_among_the_languages_given() -> None:
    assert sum(probability for _, probability in rank(GERMAN, ["pt", "en"])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("files", "fields", "languages"),
    [
        (["a/corpus.pt", "a/corpus.en"], ("src", "tgt"), ("pt", "en")),
        (["train.pt-BR.gz", "train.por_Latn.txt"], ("src", "tgt"), ("pt-BR", "por_Latn")),
        (["train.pt.GZ", "train.en.Txt.xz"], ("src", "tgt"), ("pt", "en")),
        (["c.quy", "c.es.txt.xz"], ("src", "tgt"), ("quy", "es")),
        (["corpus.src", "corpus.tgt"], ("src", "tgt"), ("und", "und")),
        (["corpus.en", "corpus.ref"], ("src", "tgt"), ("und", "und")),
        (["corpus.txt", "corpus.tsv"], ("src", "tgt"), ("und", "und")),
        (["corpus", "en"], ("src", "tgt"), ("und", "und")),
        (["news.deu-eng.tsv"], ("src", "tgt"), ("deu", "eng")),
        (["de-en.jsonl.gz"], ("src", "tgt"), ("de", "en")),
        (["old.de-en.tmx", "new.de-en.tmx", "x.de-en.tmx"], ("src", "tgt"), ("de", "en")),
        (["old.de-en.tmx", "new.tmx"], ("src", "tgt"), ("und", "und")),
        (["old.de-en.tmx", "new.de-fr.tmx"], ("src", "tgt"), ("und", "und")),
        (["0.parquet", "1.parquet", "2.parquet"], ("translation.fr", "translation.br"), ("fr", "br")),
        (["x.parquet"], ("translation.fr", "translation.br"), ("fr", "br")),
        (["x.csv"], ("Breton", "french"), ("br", "fr")),
        (["x.csv"], ("Breton", "comment"), ("und", "und")),
        (["en_to_de.tsv"], ("src", "tgt"), ("en", "de")),
        (["ted.en-to-de.tsv"], ("src", "tgt"), ("en", "de")),
        (["ted_en_de.tsv"], ("src", "tgt"), ("en", "de")),
        (["to_en.tsv"], ("src", "tgt"), ("und", "und")),
        (["to-en.tsv"], ("src", "tgt"), ("to", "en")),
        (["pairs.tsv"], ("src", "tgt"), ("und", "und")),
        ([], ("src", "tgt"), ("und", "und")),
    ],
)
def test_names_of_files_tell_languages(files: list[str], fields: tuple[str, str], languages: tuple[str, str]) -> None:
    assert languages_in_names([PurePath(name) for name in files], fields) == languages


def test_codes_have_names() -> None:
    assert [language_name(code) for code in ("pt", "por", "pt-BR", "por_Latn", "xx", "und")] == (
        ["Portuguese"] * 4 + ["xx", "und"]
    )
    assert not is_language("und")
    assert names_of_pair(("pt", "und")) == ("Portuguese", None)
    assert names_of_pair(("pt", "pt")) == ("Portuguese", "Portuguese")
    assert names_of_pair(("pt-PT", "pt-BR")) == ("Portuguese (pt-PT)", "Portuguese (pt-BR)")
