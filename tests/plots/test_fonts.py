"""Labels in any script: a font is found, or a sentence says which one is missing."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure

from repose.plots.attention_figure import plot_attention
from repose.plots.canvas import canvas, save
from repose.plots.fonts import families
from repose.system.errors import ConfigError

DEJAVU = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SCRIPTS = {
    "Chinese characters": "猫",
    "Japanese kana": "ひ",
    "Korean": "한",
    "Devanagari": "अ",
    "Thai": "ก",
    "symbols": "🦊",
}


def system_fonts(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda *_, **__: [str(path) for path in paths])


@pytest.mark.usefixtures("no_fonts")
def test_most_of_europe_needs_no_font_of_the_machine() -> None:
    assert families("Zażółć gęślą jaźń, Ελληνικά, Кириллица, עברית, ␣·◌…<E7>") == ["DejaVu Sans"]


@pytest.mark.usefixtures("no_fonts")
@pytest.mark.parametrize(("script", "char"), SCRIPTS.items(), ids=SCRIPTS.keys())
def test_a_missing_script_is_one_sentence(script: str, char: str) -> None:
    with pytest.raises(ConfigError, match=f"{script} \\({char}\\)") as raised:
        families(f"a{char}")
    assert "--font" in str(raised.value)
    assert ("fonts-noto-cjk" in str(raised.value)) == (char in "猫ひ한")


@pytest.mark.usefixtures("no_fonts")
def test_what_draws_nothing_needs_no_font() -> None:
    assert families(" \n\t\u3000\u200c\u200d\ufe0f") == ["DejaVu Sans"]


def test_a_font_of_the_machine_is_found_for_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # STIX has the script capital U+1D49C, which DejaVu Sans has not; a file that is no font is passed over.
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    system_fonts(monkeypatch, tmp_path / "broken.ttf", DEJAVU / "DejaVuSansMono.ttf", DEJAVU / "STIXGeneral.ttf")
    assert families("a\U0001d49c") == ["DejaVu Sans", "STIXGeneral"]
    with pytest.raises(ConfigError, match=r"Chinese characters \(猫\)"):
        families("\U0001d49c猫")


def test_the_given_font_comes_first() -> None:
    assert families("abc", DEJAVU / "DejaVuSerif.ttf") == ["DejaVu Serif", "DejaVu Sans"]
    with pytest.raises(ConfigError, match="not a font that can be read"):
        families("abc", Path(__file__))


def test_the_users_own_settings_do_not_matter(tmp_path: Path) -> None:
    def drawn(name: str) -> bytes:
        with canvas():
            figure = Figure()
            figure.subplots().set_title("a title in $text")
            return save(figure, tmp_path / name)[0].read_bytes()

    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "black", "axes.grid": True}):
        theirs = drawn("a.svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert theirs == drawn("b.svg")
    assert "a title in $text" in list(ET.fromstring(theirs).itertext())


@pytest.mark.usefixtures("no_fonts")
def test_a_sentence_that_no_font_can_draw(make_model: Any, tmp_path: Path) -> None:
    folder = make_model("original", text=["猫が犬を見た。"] * 30)
    with pytest.raises(ConfigError, match="no font on this machine has"):
        plot_attention(folder, "猫が犬を見た。", tmp_path / "a", target="The cat saw the dog.")
    assert list(tmp_path.iterdir()) == []


def test_japanese_where_a_font_has_it(make_model: Any, tmp_path: Path) -> None:
    try:
        families("猫が犬を見た。")
    except ConfigError:
        pytest.skip("no Japanese font on this machine")
    folder = make_model("original", text=["猫が犬を見た。"] * 30)
    plot_attention(folder, "猫が犬を見た。", tmp_path / "a.svg", target="The cat saw the dog.", kind="cross")
    assert "見" in "".join(ET.parse(tmp_path / "a.svg").getroot().itertext())
    assert plot_attention(folder, "猫が犬を見た。", tmp_path / "a.png", target="The cat.", kind="cross").files
