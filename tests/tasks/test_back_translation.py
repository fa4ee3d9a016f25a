from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repose.decoding.sampling import Sampling
from repose.system.errors import ConfigError
from repose.tasks import back_translation
from repose.tasks.back_translation import back_translate


class Translating:
    """Translates each line to itself, or as its word says, and records how it was asked."""

    workers, config = 1, {"src_lang": "und", "tgt_lang": "und"}

    def __init__(self) -> None:
        self.asked = list[tuple[int | None, int | None, str | None]]()

    def translate(self, lines: list[str], *, beam_size: int | None, sampling: Any, to: str | None) -> list[Any]:
        self.asked.append((None if sampling is None else sampling.first, beam_size, to))
        texts = {"empty": "\0 ", "loops": "so so so", "parted": "two\nlines"}
        return [
            SimpleNamespace(
                text=texts.get(line, line.upper()),
                truncated=line == "long",
                hypotheses=[SimpleNamespace(finished=line != "endless")],
            )
            for line in lines
        ]


def test_lines_without_a_usable_translation_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_translation, "_WINDOW", 4)
    lines = ["good", "", "with\0nul", "x" * 70_000, "long", "empty", "endless", "loops", "parted"]
    (tmp_path / "mono.txt").write_text("\n".join(lines) + "\n")
    translator: Any = Translating()
    sampling = Sampling(seed=1)
    counts = back_translate(translator, tmp_path / "mono.txt", tmp_path / "bt", sampling=sampling, beam_size=3, to="de")
    assert (tmp_path / "bt.src").read_text() == "GOOD\ntwo lines\n"
    assert (tmp_path / "bt.tgt").read_text() == "good\nparted\n"
    assert (counts.lines, counts.pairs) == (9, 2)
    assert counts.dropped == {
        "blank line": 1,
        "NUL character": 1,
        "line longer than 65,536 bytes": 1,
        "longer than the model reads": 1,
        "translation empty": 1,
        "translation without an end": 1,
        "translation loops": 1,
    }
    assert translator.asked == [(0, 3, "de"), (4, 3, "de"), (8, 3, "de")], "what is drawn for a line is its number's"


@pytest.mark.parametrize("there", ["bt.src", "bt.tgt"])
def test_neither_side_is_written_over(tmp_path: Path, there: str) -> None:
    (tmp_path / "mono.txt").write_text("good\n")
    (tmp_path / there).write_text("mine")
    translator: Any = Translating()
    with pytest.raises(ConfigError, match="exists already"):
        back_translate(translator, tmp_path / "mono.txt", tmp_path / "bt", sampling=None)
    with pytest.raises(ConfigError, match="is a folder"):
        back_translate(translator, tmp_path / "mono.txt", Path(), sampling=None)
    assert (tmp_path / there).read_text() == "mine"
