"""`repose bulk` and `score-corpus` with real models and processes."""

import contextlib
import dataclasses
import gzip
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import MODEL_KIND
from repose.model.presets import preset
from repose.saved_model import directory
from repose.saved_model.api import build

WORDS = ["ka", "lo", "mi", "nu", "pe", "ra", "so", "ti"]
TINY = {"d_token": 16, "num_heads": 2, "head_dim": 8, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
Run = Callable[..., tuple[int, str, str]]


def save_model(
    folder: Path, seed: int, languages: tuple[str, str] = ("und", "und"), tags: tuple[str, ...] = ()
) -> Path:
    """An untrained model, which says something else of every sentence. Its own tag is the first of these."""
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, kind="wordlevel", vocab_size=50, tags=tags)
    architecture = dataclasses.replace(preset("original"), **TINY, max_length=24)
    torch.manual_seed(seed)
    size = tokenizer.vocab_size
    model = build(architecture, src_vocab_size=size, tgt_vocab_size=size, seed=seed)
    extra = {
        "decoding": {"beam_size": 2, "max_extra_tokens": 3},
        "src_lang": languages[0],
        "tgt_lang": languages[1],
        **({"tag": tags[0]} if tags else {}),
    }
    directory.save(folder, MODEL_KIND, model, [tokenizer.json] * 2, card="", extra=extra)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "model", 1)


def corpus(path: Path, number: int, seed: int = 0) -> Path:
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(0, 9))) for _ in range(number)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_processes_give_what_translate_gives(run_repose: Run, tmp_path: Path, model: Path) -> None:
    text, out = corpus(tmp_path / "in.txt", 300), tmp_path / "out"
    code, wanted, _ = run_repose("translate", model, text, "--workers", 1)
    assert (code, len(wanted.splitlines())) == (0, 300)
    command = ("bulk", model, text, "--out", out, "--shard-lines", 40)
    code, said, told = run_repose(*command, "--shard", "1/4", "--workers", 1)
    assert (code, said) == (0, f"{out}\n"), told
    code, said, told = run_repose(*command, "--workers", 2, "--merge")
    assert (code, said) == (0, f"{out / 'merged.txt'}\n"), told
    assert "300 lines in 8 shards, 2 of them done" in told
    assert (out / "merged.txt").read_text(encoding="utf-8") == wanted
    code, said, _ = run_repose("bulk", "status", out)
    assert "8 of 8" in said
    assert "figure" in said, "the columns have names"
    assert "300 of 300" in said
    assert run_repose("bulk", "merge", out)[:2] == (0, f"{out / 'merged.txt'}\n")
    packed, out = tmp_path / "in.txt.gz", tmp_path / "packed"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    command = ("bulk", model, packed, "--out", out, "--workers", 1)
    assert run_repose(*command)[0] == 0
    assert list((out / "unpacked").iterdir())
    assert run_repose(*command, "--merge")[0] == 0
    assert (out / "merged.txt").read_text(encoding="utf-8") == wanted
    assert not list((out / "unpacked").iterdir()), "what was unpacked is no longer needed"
    assert run_repose(*command)[0] == 0
    assert not list((out / "unpacked").iterdir()), "what is done needs no input"


def test_a_changed_model_and_wrong_uses_are_one_sentence(run_repose: Run, tmp_path: Path) -> None:
    model, text = save_model(tmp_path / "model", 2), corpus(tmp_path / "in.txt", 9)
    command = ("bulk", model, text, "--out", tmp_path / "out", "--engine", "torch", "--workers", 1)
    assert run_repose(*command)[0] == 0
    code, _, told = run_repose(*command, "--beam-size", 3)
    assert (code, told.count("\n")) == (2, 1)
    assert "settings of the search differ" in told
    save_model(model, 3)
    code, _, told = run_repose(*command)
    assert (code, told.count("\n")) == (2, 1)
    assert "(the model or its engine differ): choose another --out, or delete that folder" in told
    for arguments, sentence in (
        (("--on", "mars"), "there is no backend 'mars'"),
        (("--shard", "4/4"), "--shard should be I/N"),
        (("--failed", "hide"), "there is no choice 'hide'"),
        (("--pairs", "-n", "2"), "--pairs is for text"),
        (("-n", "9", "--beam-size", "4"), "num_hypotheses is 9"),
        (("--format", "docx"), "there is no format 'docx'"),
    ):
        code, _, told = run_repose("bulk", model, text, "--out", tmp_path / "other", *arguments)
        assert code == 2, arguments
        assert sentence in told.splitlines()[-1]
    pairs = text.with_name("pairs.tsv")
    pairs.write_text("a\tb\n")
    assert run_repose("bulk", model, text, "--out", tmp_path / "other", "--workers", 0)[0] == 2
    assert not (tmp_path / "other").exists(), "nothing was planned"
    code, _, told = run_repose("bulk", model, pairs, "--out", tmp_path / "other")
    assert (code, "holds pairs by its name: write the side to be translated into a text file" in told) == (2, True)
    assert not (tmp_path / "other").exists(), "said before anything is written"
    code, _, told = run_repose("bulk", "status", tmp_path)
    assert (code, told) == (1, f"repose: {tmp_path} holds no job: it has no plan.json\n")


def test_the_best_pairs(run_repose: Run, tmp_path: Path) -> None:
    forward = save_model(tmp_path / "forward", 4, ("pt", "en"))
    backward = save_model(tmp_path / "backward", 5, ("en", "pt"))
    src, tgt, out = corpus(tmp_path / "a.pt", 30, 1), corpus(tmp_path / "a.en", 30, 2), tmp_path / "out"
    lines = [path.read_text().splitlines() for path in (src, tgt)]
    lines[1][3] = lines[0][3] = "ka lo mi nu"
    for path, changed in zip((src, tgt), lines, strict=True):
        path.write_text("".join(f"{line}\n" for line in changed))
    command = ("score-corpus", forward, src, tgt, "--backward", backward, "--out", out, "--engine", "torch")
    code, said, told = run_repose(*command, "--workers", 1, "--shard-lines", 7, "--keep", 10)
    assert (code, said) == (0, f"{out / 'scores.tsv'}\n{out / 'kept.src'} {out / 'kept.tgt'}\n"), told
    assert "left out whatever the score: 11 pairs (blank: 7, copied: 4)\n" in told
    rows = [line.split("\t") for line in (out / "scores.tsv").read_text().splitlines()]
    scores = [float(row[0]) for row in rows]
    assert rows[3] == ["0", "nan", "nan", "copied"]
    best = sorted(sorted(range(30), key=lambda n: -scores[n])[:10])
    for side, path in enumerate((out / "kept.src", out / "kept.tgt")):
        assert path.read_text().splitlines() == [lines[side][n] for n in best]
    _, given, _ = run_repose("score", forward, src, tgt, "--engine", "torch")
    place = best[0]
    tokens = len(lines[1][place].split()) + 1
    assert float(rows[place][1]) == pytest.approx(-float(given.splitlines()[place]) / tokens, abs=1e-3)
    code, _, told = run_repose(*command, "--workers", 1, "--shard-lines", 7, "--threshold", scores[place])
    assert code == 0, told
    assert len((out / "kept.src").read_text().splitlines()) == sum(score >= scores[place] for score in scores)
    code, _, told = run_repose("score-corpus", forward, src, tgt, "--backward", forward, "--out", tmp_path / "x")
    assert code == 2
    assert "--backward is for the reverse" in told


def test_the_best_pairs_by_a_model_of_both_directions(run_repose: Run, tmp_path: Path) -> None:
    model = save_model(tmp_path / "both", 6, ("pt", "en"), tags=("en", "pt"))
    src, tgt = corpus(tmp_path / "a.pt", 20, 1), corpus(tmp_path / "a.en", 20, 2)
    command = ("score-corpus", model, src, tgt, "--engine", "torch", "--workers", 1, "--no-checks")
    both = (*command, "--backward", model, "--out", tmp_path / "out")
    code, _, told = run_repose(*both, "--backward-to", "pt")
    assert code == 0, told
    rows = [line.split("\t") for line in (tmp_path / "out" / "scores.tsv").read_text().splitlines()]
    for column, arguments in ((1, (src, tgt, "--to", "en")), (2, (tgt, src, "--to", "pt"))):
        _, given, _ = run_repose("score", model, *arguments, "--engine", "torch")
        targets = arguments[1].read_text().splitlines()
        for row, value, target in zip(rows, given.splitlines(), targets, strict=True):
            if row[3] == "":
                assert float(row[column]) == pytest.approx(-float(value) / (len(target.split()) + 1), abs=1e-3)
    assert sum(row[3] == "" for row in rows) > 10
    assert run_repose(*both, "--to", "en", "--backward-to", "pt")[0] == 0, "the model's own tag makes no other job"
    code, _, told = run_repose(*both, "--to", "pt", "--backward-to", "en")
    assert (code, "differ" in told) == (2, True)
    for arguments, sentence in (
        (("--backward", model), "--backward is for the reverse"),
        (("--backward-to", "pt"), "name it with --backward"),
        (("--to", "gl"), "gl"),
    ):
        code, _, told = run_repose(*command, *arguments, "--out", tmp_path / "other")
        assert (code, told.count("\n")) == (2, 1), told
        assert sentence in told


@pytest.mark.parametrize("pack", [("gz", gzip.compress), ("xz", lzma.compress)], ids=lambda pack: pack[0])
def test_the_best_pairs_of_packed_files(
    run_repose: Run, tmp_path: Path, model: Path, pack: tuple[str, Callable[[bytes], bytes]]
) -> None:
    texts = [corpus(tmp_path / f"a.{side}", 20, seed) for seed, side in enumerate(("pt", "en"))]
    command = ("score-corpus", model, "--engine", "torch", "--workers", 1, "--keep", 7)
    assert run_repose(*command, *texts, "--out", tmp_path / "plain")[0] == 0
    packed = [text.with_name(f"{text.name}.{pack[0]}") for text in texts]
    for text, file in zip(texts, packed, strict=True):
        file.write_bytes(pack[1](text.read_bytes()))
    for again in range(2):
        code, _, told = run_repose(*command, *packed, "--out", tmp_path / "out")
        assert (code, "7 of 20 pairs kept" in told) == (0, True), (again, told)
        for name in ("kept.src", "kept.tgt"):
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
        assert not list((tmp_path / "out" / "unpacked").iterdir()), "what was unpacked is no longer needed"
    code, _, told = run_repose(*command[:-2], "--threshold", 1, *packed, "--out", tmp_path / "out")
    assert (code, told.count("no pair is left")) == (1, 1)


def start(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def workers_of(parent: int) -> list[int]:
    """Processes that this one has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def bulk_command(model: Path, text: Path, out: Path, shard_lines: int) -> list[str]:
    command = [sys.executable, "-m", "repose", "bulk", str(model), str(text), "--out", str(out)]
    return [*command, "--shard-lines", str(shard_lines), "--engine", "torch", "--workers", "2"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_fifty_kills(run_repose: Run, tmp_path: Path, model: Path) -> None:
    """Of the driver, of a worker, and requests to stop, at random moments: the bytes stay the same."""
    text, out = corpus(tmp_path / "in.txt", 40_000), tmp_path / "out"
    _, wanted, _ = run_repose("translate", model, text, "--engine", "torch", "--workers", 1)
    command, rng = bulk_command(model, text, out, 100), random.Random(3)
    counts = {"driver": 0, "worker": 0, "stop": 0}
    while sum(counts.values()) < 50:
        process = start(command)
        time.sleep(rng.uniform(0.5, 6.0))
        kind = rng.choice(["driver", "worker", "stop"])
        if kind == "worker":
            for worker in rng.sample(victims := workers_of(process.pid), min(1, len(victims))):
                os.kill(worker, rng.choice([signal.SIGKILL, signal.SIGTERM]))
            time.sleep(rng.uniform(0.0, 1.0))
        counts[kind] += 1
        process.send_signal(signal.SIGKILL if kind == "driver" else signal.SIGTERM)
        _, told = process.communicate(timeout=60)
        assert process.returncode in ((-signal.SIGKILL, 0) if kind == "driver" else (3, 0, -signal.SIGTERM)), told
    code, _, told = run_repose(*command[3:], "--merge")
    assert code == 0, told
    assert (out / "merged.txt").read_text(encoding="utf-8") == wanted
    assert not [path for path in (out / "parts").iterdir() if path.name.startswith(".")]
    manifests = [json.loads(path.read_text()) for path in (out / "parts").glob("*.json")]
    assert sum(manifest["lines"] for manifest in manifests) == 40_000


def test_a_job_of_problems_alone_fails(run_repose: Run, tmp_path: Path, model: Path) -> None:
    """Plain text that is read as records, say. Its output is there all the same, for a look."""
    text, out = corpus(tmp_path / "in.txt", 20), tmp_path / "out"
    command = ("bulk", model, text, "--format", "jsonl", "--workers", 1, "--merge", "--out")
    code, said, told = run_repose(*command, out)
    assert (code, said) == (1, f"{out / 'merged.jsonl'}\n")
    assert "nothing was translated, all lines had a problem" in told
    with text.open("a") as file:
        file.write('{"text": "ka"}\n')
    code, _, told = run_repose(*command, tmp_path / "other")
    assert code == 0, told


def test_text_in_another_language_is_said_at_the_beginning(run_repose: Run, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", 4, ("pt", "en"))
    english = ["The weather was cold and the streets were empty."] * 5
    portuguese = ["O tempo estava frio e as ruas estavam vazias hoje."] * 5
    files = [tmp_path / "a.src", tmp_path / "a.tgt"]
    for path, lines in zip(files, (english, portuguese), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    reads = "the text seems to be in English (en), but this model reads Portuguese (pt): expect nonsense\n"
    code, _, told = run_repose("bulk", model, files[0], "--workers", 1, "--out", tmp_path / "1")
    assert (code, told.count(reads)) == (0, 1)
    code, _, told = run_repose("bulk", model, files[1], "--workers", 1, "--out", tmp_path / "2")
    assert (code, "expect nonsense" in told) == (0, False)
    command = ("score-corpus", model, *files, "--workers", 1, "--out")
    code, _, told = run_repose(*command, tmp_path / "3", "--no-checks")
    assert (code, told.count(reads), "the targets seem to be in Portuguese" in told) == (0, 1, True)
    code, _, told = run_repose(*command, tmp_path / "4")
    assert (code, "a problem (another language) in 5 of 5 lines" in told) == (1, True)


def test_why_a_pair_is_none_comes_before_how_long_it_is(run_repose: Run, tmp_path: Path, model: Path) -> None:
    files = [tmp_path / "a.src", tmp_path / "a.tgt"]
    for path, last in zip(files, ("ka " * 40, "lo " * 40), strict=True):
        path.write_text("mi nu " * 30 + f"\n{last}\n")
    code, _, told = run_repose("score-corpus", model, *files, "--workers", 1, "--out", tmp_path / "out")
    assert code == 1
    reasons = [line.split("\t")[3] for line in (tmp_path / "out" / "scores.tsv").read_text().splitlines()]
    assert reasons == ["copied", "too long"]
    assert "too long: the source has more tokens than the longest that the model was trained on" in told
