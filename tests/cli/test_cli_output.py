"""Output that nobody reads or that cannot be stored: a closed pipe, a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import repose
from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import MODEL_KIND
from repose.saved_model import directory

FULL = Path("/dev/full")
COMMANDS = [
    ["fetch"],
    ["describe", "reinforced"],
    ["train", "--out", "run", "--print-config"],
    ["score", "m", "s", "t"],
]

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model `m`, sentences `s` and translations `t`."""
    folder = tmp_path_factory.mktemp("output")
    tokenizer = Tokenizer.train(["ka lo mi"] * 3, kind="wordlevel", vocab_size=20)
    torch.manual_seed(0)
    made = repose.build("reinforced", src_vocab_size=tokenizer.vocab_size, tgt_vocab_size=tokenizer.vocab_size).eval()
    directory.save(folder / "m", MODEL_KIND, made, (tokenizer.json,) * 2, card="", extra={})
    for name in ("s", "t"):
        (folder / name).write_text("ka lo\n")
    return folder


def ran(folder: Path, command: list[str], stdout: int) -> tuple[int, str]:
    """Exit code and stderr of a process that buffers what it prints, as usual."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    program = [sys.executable, "-m", "repose", *command]
    done = subprocess.run(program, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=folder, env=env, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_full_disk_is_one_sentence(folder: Path, command: list[str]) -> None:
    with FULL.open("w") as full:
        told = "repose: No space left on device, so make room, or write elsewhere\n"
        assert ran(folder, command, full.fileno()) == (1, told)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_reader_that_has_gone_ends_it_without_a_word(folder: Path, command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        assert ran(folder, command, pipe.fileno()) == (1, "")


def test_an_output_that_is_closed_from_the_start_is_no_error(folder: Path) -> None:
    program = 'exec "$0" -m repose fetch >&-'
    done = subprocess.run(["sh", "-c", program, sys.executable], stderr=subprocess.PIPE, cwd=folder, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
