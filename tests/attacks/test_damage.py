"""Every file of a run, a model directory and a prepared corpus is damaged in every way, then used by every command.

There are two ways to end: the result that the undamaged files give, or one sentence and an exit code.
"""

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from victims import SETTINGS, Said, Victim, fresh_copy, result_of, run_cli

DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
    "emptied": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}

COMMANDS: dict[str, Callable[[Victim], list[object]]] = {
    "train": lambda v: ["train", v.corpus, *SETTINGS, "--workers", 1, "--out", v.finished],
    "resume": lambda v: ["train", v.corpus, *SETTINGS, "--workers", 1, "--out", v.stopped],
    "prepare": lambda v: ["prepare", v.corpus, *SETTINGS],
    "translate": lambda v: ["translate", v.finished, v.root / "src.txt", "--workers", 1],
    "score": lambda v: ["score", v.finished, v.root / "src.txt", v.root / "tgt.txt"],
    "evaluate": lambda v: ["evaluate", v.finished, "--workers", 1],
    "evaluate files": lambda v: ["evaluate", v.finished, v.root / "src.txt", v.root / "tgt.txt", "--workers", 1],
    "audit": lambda v: ["audit", v.finished],
    "report": lambda v: ["report", v.finished, "--out", v.root / "report", "--format", "csv"],
    "plot curves": lambda v: ["plot", "curves", v.finished, "--out", v.root / "curves.svg"],
    "plot attention": lambda v: ["plot", "attention", v.finished, "Ele", "--kind", "cross", "--out", v.root / "a.svg"],
}

OF_RUN = ("config.json", "metrics.jsonl", "train.log", "scores.test.json", "hypotheses/test.greedy.txt")
OF_MODEL = ("config.json", "model.safetensors", "tokenizer.src.json", "tokenizer.tgt.json", "README.md")
OF_STATE = ("last.safetensors", "weights-00000005.safetensors")
FILES = {
    "finished": [*OF_RUN, *(f"model/{name}" for name in OF_MODEL), *(f"state/{name}" for name in OF_STATE)],
    "stopped": ["config.json", "metrics.jsonl", "model/model.safetensors", *(f"state/{name}" for name in OF_STATE)],
    "prepared": [
        *("report.json", "text/train.src", "text/valid.tgt", "text/test.src", "tokenizer.src.json"),
        *(f"train/{name}" for name in ("meta.json", "src.ids", "tgt.ids", "src.offsets")),
        *("valid/meta.json", "valid/tgt.ids"),
    ],
}
READERS = {
    "finished": [name for name in COMMANDS if name not in ("resume", "prepare")],
    "stopped": ["resume"],
    "prepared": ["train", "resume", "prepare", "evaluate"],
}
READ_BY = {  # what notices first, where the default suite tries one command per damage
    "config.json": "plot curves",
    "metrics.jsonl": "report",
    "model/config.json": "score",
    "model/model.safetensors": "translate",
    "model/tokenizer.src.json": "evaluate files",
    "model/tokenizer.tgt.json": "plot attention",
}
SAID_BY_A_REPORT = ("report", "finished", "scores.test.json", "missing")
"""Nothing is damaged: the run is reported as one without scores."""


Case = tuple[str, str, str, str]
"""Command, victim, file, damage."""


def every_case() -> list[Case]:
    files = [(victim, name) for victim, names in FILES.items() for name in names]
    return [(command, *file, damage) for file in files for damage in DAMAGES for command in READERS[file[0]]]


def some_cases() -> Iterator[Case]:
    """Of each file a flipped bit before `train`, and the other damages in turn before what reads the file, too."""
    yield "report", "finished", "metrics.jsonl", "truncated"
    others = itertools.cycle(damage for damage in DAMAGES if damage != "flipped")
    for victim, names in FILES.items():
        for name in names:
            yield READERS[victim][0], victim, name, "flipped"
            yield READ_BY.get(name, READERS[victim][0]), victim, name, next(others)
            if victim == "finished" and name in READ_BY:
                yield READ_BY[name], victim, name, "flipped"


def flipped(content: bytes) -> bytes:
    """Three bits are others than they were."""
    changed = bytearray(content)
    for place in range(len(changed) // 4, len(changed), len(changed) // 4 + 1):
        changed[place] ^= 1
    return bytes(changed)


def table_of(said: Said) -> str:
    """What a command printed, but for the clock."""
    return re.sub(r"[\d,]+ (seconds|s|min|h)\b", "", said.out)


Attack = Callable[[Case], str]


@pytest.fixture(scope="module")
def attack(whole: Victim, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    """Makes an attack; what went wrong, "" where the outcome is one of the two."""
    place = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:

        @functools.cache
        def undamaged(command: str) -> tuple[str, dict[str, Any]]:
            victim = fresh(whole, place, patch)
            said = run_cli(*COMMANDS[command](victim))
            assert said.code == 0, (command, said.err)
            return table_of(said), result_of(victim.stopped if command == "resume" else victim.finished)

        def made(case: Case) -> str:
            expected = undamaged(case[0])
            return outcome(case, fresh(whole, place, patch), *expected)

        yield made


def fresh(whole: Victim, place: Path, patch: pytest.MonkeyPatch) -> Victim:
    """A copy, with two sentence pairs beside it; at one place, since paths are part of what is printed."""
    victim = fresh_copy(whole, place, patch)
    (victim.root / "src.txt").write_text("Ele lê.\nEla canta.\n", encoding="utf-8")
    (victim.root / "tgt.txt").write_text("He reads.\nShe sings.\n", encoding="utf-8")
    return victim


def outcome(case: Case, victim: Victim, table: str, result: dict[str, Any]) -> str:
    command, where, name, damage = case
    DAMAGES[damage](getattr(victim, where) / name)
    try:
        said = run_cli(*COMMANDS[command](victim))
    except Exception as error:
        return f"{case}: {error!r}"
    if said.code != 0:
        return "" if said.is_one_sentence else f"{case}: exit code {said.code}, {said.err}"
    if case == SAID_BY_A_REPORT:
        return "" if "trained, but not scored" in said.err else f"{case}: {said.err}"
    if table_of(said) != table:
        return f"{case}: another result, {said.out}"
    if command in ("train", "resume"):
        made = result_of(victim.stopped if command == "resume" else victim.finished)
        different = [file for file in result if made[file] != result[file]]
        return f"{case}: changed {different}" if different else ""
    return ""


@pytest.mark.parametrize("victim", FILES)
def test_a_damaged_file_is_one_sentence_or_does_not_matter(victim: str, attack: Attack) -> None:
    wrong = [problem for case in some_cases() if case[1] == victim and (problem := attack(case))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_damage_before_every_command(command: str, attack: Attack) -> None:
    wrong = [problem for case in every_case() if case[0] == command and (problem := attack(case))]
    assert not wrong, "\n".join(wrong)


PIPES = {
    "config.json": ["plot", "curves"],
    "metrics.jsonl": ["plot", "curves"],
    "scores.test.json": ["plot", "curves"],
    "model/config.json": ["score"],
    "model/model.safetensors": ["score"],
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_the_place_of_a_file_does_not_block(name: str, victim: Victim) -> None:
    path = victim.finished / name
    path.unlink()
    os.mkfifo(path)
    said = run_cli(*COMMANDS[" ".join(PIPES[name])](victim))
    assert said.is_one_sentence, said


@pytest.mark.parametrize("where", ["finished", "stopped"])
def test_a_run_without_its_config_is_not_anothers(where: str, victim: Victim) -> None:
    """Another training is refused before it writes a config.json, so that the run's own command still goes on."""
    folder = getattr(victim, where)
    (folder / "config.json").unlink()
    again = COMMANDS["train" if where == "finished" else "resume"](victim)
    said = run_cli(*again, "--set", "training.seed=9")
    assert said.is_one_sentence, said
    assert not (folder / "config.json").exists()
    assert run_cli(*again).code == 0
    assert (folder / "config.json").exists()
