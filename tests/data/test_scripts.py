"""Scripts are detected by the names of letters."""

import pytest

from repose.data.scripts import scripts_in, unseen_script


def test_scripts_of_a_text() -> None:
    assert scripts_in(["O gato º ª 12 ﬁ", "Привет"]) == ["Cyrillic", "Latin"]
    assert scripts_in(["日本のテキスト"]) == ["Han"]
    assert scripts_in(["the " * 1000 + "α"]) == ["Latin"], "a foreign letter is no script of the text"
    assert scripts_in(["12 ... 34", ""]) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Привет, мир", "Cyrillic"),
        ("O gato Иван", None),
        ("12 + 3 = 15", None),
        ("", None),
        ("नमस्ते", "Devanagari"),
    ],
)
def test_a_line_in_a_script_never_seen(line: str, found: str | None) -> None:
    assert unseen_script(line, {"Latin"}) == found
