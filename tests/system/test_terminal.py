"""Tables on narrow terminals: nothing is cut, names stay whole if possible, numbers are not broken."""

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from repose.system import terminal
from repose.system.terminal import make_table, quoted, say, shortened, show

NAMES = [f"ablation-norm-lookahead-{n}" for n in range(3)]
Show = Callable[[int, list[str], list[tuple[str, ...]], Sequence[int]], list[str]]


def test_names_of_pictures_in_a_text_stay(capsys: pytest.CaptureFixture[str]) -> None:
    show("a :heart: b [b]")
    assert capsys.readouterr().out == "a :heart: b [b]\n"


def test_a_path_in_a_command_is_quoted_as_the_system_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [quoted(Path("runs/mine")), quoted("my runs")] == ["runs/mine", "'my runs'"]
    monkeypatch.setattr(terminal, "os", SimpleNamespace(name="nt"))
    assert [quoted("runs\\mine"), quoted("my runs\\mine")] == ["runs\\mine", '"my runs\\mine"']


def test_what_is_longer_than_the_terminal_is_wide_is_cut_by_columns() -> None:
    """Letters of Chinese, Japanese and Korean take two."""
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
    assert shortened("가나다라", 6) == "가나 …"
    assert shortened("a\x1bb", 6) == "a\\x1bb"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """The lines that a terminal of a width shows."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    def lines(width: int, heads: list[str], rows: list[tuple[str, ...]], right: Sequence[int]) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        show(make_table(heads, rows, right=right, title="Scores"))
        found = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
        assert max(map(len, found)) <= width
        assert not any("…" in line for line in found)
        return found

    return lines


@pytest.mark.parametrize("width", [60, 80, 200])
def test_numbers_without_room_are_in_several_tables_each_with_the_names(width: int, shown: Show) -> None:
    heads = [
        "system",
        "n",
        *(f"{metric} {way}" for metric in ("BLEU", "chrF", "accuracy") for way in ("greedy", "beam")),
    ]
    rows = [(name, "3", *(f"{n}{column}.25 ± 0.75 *" for column in range(6))) for n, name in enumerate(NAMES)]
    lines = shown(width, heads, rows, range(1, 8))
    assert sum("Scores" in line for line in lines) == 1
    tables = sum(line.startswith("┏") for line in lines)
    assert tables == {60: 6, 80: 3, 200: 1}[width]
    for name, *cells in rows:
        assert sum(name in line for line in lines) == tables
        for cell in cells[1:]:
            assert sum(cell in line for line in lines) == 1


def test_texts_are_folded_beside_whole_names(shown: Show) -> None:
    reason = "the loss is no longer a finite number, since the learning rate is too high " * 2
    lines = shown(80, ["cell", "status", "progress"], [(name, "failed", reason) for name in NAMES], [])
    assert all(any(name in line for line in lines) for name in NAMES)
    assert sum("finite" in line for line in lines) == 6


def test_a_long_name_and_a_long_word_are_folded(shown: Show) -> None:
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    lines = shown(60, ["score", "value", "signature"], [("greedy bleu", "12.25", signature)], [1])
    assert "".join(line.split("│")[3].strip() for line in lines if line.startswith("│")) == signature
    lines = shown(40, ["system", "BLEU"], [("long" * 30, "12.25")], [1])
    assert sum(line.count("long") for line in lines) >= 20
    assert any("12.25" in line for line in lines)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_cannot_be_said_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        say("a line")
        with pytest.raises(OSError, match="No space"):
            print("a line", file=full, flush=True)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
