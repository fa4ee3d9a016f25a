"""One tiny corpus and two runs of it, made once: the victims. Attacks are made on copies, in this process."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from repose.cli import main as cli
from repose.data import phrasebook

TINY = [
    *(f"architecture.{name}" for name in ("d_token=8", "num_heads=1", "head_dim=8", "d_ff=8", "dropout=0")),
    *(f"architecture.{name}=1" for name in ("num_encoder_layers", "num_decoder_layers")),
    *("tokenizer.kind=wordlevel", "tokenizer.vocab_size=80", "corpus.held_out_valid=4", "corpus.held_out_test=4"),
    "training.keep=last",  # so that the mean of both validations is the model
    *("training.batch_size=100", "training.epochs=2", "training.average_checkpoints=2", "training.max_src_tokens=32"),
    *("training.max_tgt_tokens=32", "decoding.max_extra_tokens=2", "decoding.beam_size=2"),
]
SETTINGS = [part for setting in TINY for part in ("--set", setting)]


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def is_one_sentence(self) -> bool:
        """It failed, and the last line of stderr says why."""
        last = self.err.splitlines()[-1] if self.err else ""
        return self.code in (1, 2) and last.startswith("repose: ") and last.isprintable() and len(last) < 1000


@dataclass(frozen=True)
class Victim:
    """What is attacked, in a folder of its own."""

    root: Path

    @property
    def home(self) -> Path:
        """The cache."""
        return self.root / "home"

    @property
    def corpus(self) -> Path:
        """Sentence pairs."""
        return self.root / "pairs.tsv"

    @property
    def prepared(self) -> Path:
        """The prepared corpus."""
        return next((self.home / "prepared").glob("[!.]*"))

    @property
    def finished(self) -> Path:
        """A finished run."""
        return self.root / "finished"

    @property
    def stopped(self) -> Path:
        """The same, stopped in its second epoch."""
        return self.root / "stopped"


Run = Callable[..., Said]


def run_cli(*arguments: object, stdin: bytes = b"") -> Said:
    """`repose` in this process. Whatever it does not make a sentence of, it raises."""
    streams, before = [io.TextIOWrapper(io.BytesIO(content)) for content in (stdin, b"", b"")], sys.argv
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["repose", *map(str, arguments)]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        cli.main()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    finally:
        sys.argv = before
        sys.stdin, sys.stdout, sys.stderr = kept
    for stream in streams[1:]:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams[1:])  # type: ignore[attr-defined]
    return Said(code, out, err)


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs `repose`."""
    return run_cli


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    """The victim, unharmed."""
    torch.set_num_threads(1)  # as every test does, but later
    root = tmp_path_factory.mktemp("victim") / "whole"
    root.mkdir()
    victim = Victim(root)
    pairs = [pair for pair in phrasebook.read()["train"] if len(pair[0]) < 30][:60]
    victim.corpus.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOSE_HOME", str(victim.home))
        train = ["train", victim.corpus, *SETTINGS, "--workers", 1, "--out"]
        done = run_cli(*train, victim.finished)
        assert done.code == 0, done.err
        stopped = run_cli(*train, victim.stopped, "--stop-after", 7)
        assert stopped.code == 3, stopped.err
    return victim


@pytest.fixture
def victim(whole: Victim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Victim:
    """A copy, at the same place for every attack."""
    return fresh_copy(whole, tmp_path, monkeypatch)


def fresh_copy(whole: Victim, place: Path, patch: pytest.MonkeyPatch) -> Victim:
    """A copy of the victim at `place`, whose cache is the one that is used."""
    root = place / "copy"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(whole.root, root)
    patch.setenv("REPOSE_HOME", str(root / "home"))
    return Victim(root)


def result_of(folder: Path) -> dict[str, Any]:
    """What a training leaves that counts: its model, records and scores."""
    model = [f"model/{name}" for name in ("config.json", "model.safetensors", "tokenizer.src.json")]
    hypotheses = sorted(path.relative_to(folder).as_posix() for path in folder.glob("hypotheses/*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    records = [{name: value for name, value in line.items() if name != "wall"} for line in lines]
    files = ["scores.test.json", *hypotheses, *model]
    return {"records": records, **{name: (folder / name).read_bytes() for name in files}}
