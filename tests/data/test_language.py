"""Languages are told by the model that comes with py3langid."""

from repose.data.language import identify


def test_long_sentences_are_told_with_certainty() -> None:
    for language, text in {
        "en": "There was nobody in the street who could have told us the way to the station.",
        "de": "Auf der Straße war niemand, der uns den Weg zum Bahnhof hätte zeigen können.",
        "pt": "Não havia ninguém na rua que nos pudesse ter mostrado o caminho para a estação.",
    }.items():
        found, certainty = identify(text)
        assert found == language
        assert 0.9 <= certainty <= 1.0
