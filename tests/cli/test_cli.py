"""The command line as users see it: what they type, what they read, and the exit code."""

import codecs
import csv
import gzip
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

import repose
from repose.cli import main as cli
from repose.cli.tables import evaluation_table
from repose.config.file import load
from repose.data import phrasebook
from repose.data.dataset import PairDataset
from repose.runs.run import run as run_training
from repose.saved_model.directory import change_config
from repose.saved_run.folder import OTHER_CODE
from repose.system.device import available_cores
from repose.system.errors import ReposeError, WriteError
from repose.system.terminal import Say
from repose.tasks import inflation

TINY = [
    "architecture.d_token=16",
    "architecture.num_heads=2",
    "architecture.head_dim=8",
    "architecture.d_ff=32",
    "architecture.max_length=128",  # and a line of more is no long search
    "tokenizer.vocab_size=400",
    "training.batch_size=600",
    "training.epochs=2",
    "training.bleu_every_epochs=1",
    "decoding.max_extra_tokens=3",
]
SETTINGS = [part for setting in TINY for part in ("--set", setting)]
Run = Callable[..., tuple[int, str, str]]


def _on_one_core() -> None:
    """One worker with one thread, however many tests run beside."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("corpus")
    pairs = phrasebook.read()
    for split, number in (("train", 400), ("valid", 10), ("test", 10)):
        for side, language in enumerate(("pt", "en")):
            text = "".join(pair[side] + "\n" for pair in pairs[split][:number])
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder / "train.pt", folder / "train.en"


@pytest.fixture(scope="session")
def trained(corpus: tuple[Path, Path], home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the default recipe in the small."""
    out = tmp_path_factory.mktemp("runs") / "small"
    said, shown = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), redirect_stdout(shown):
        patch.setenv("REPOSE_HOME", str(home))
        command = ("repose", "train", *map(str, corpus), "--out", str(out), *SETTINGS, "--workers", "1")
        patch.setattr(sys, "argv", list(command))
        torch.set_num_threads(1)
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main()
    assert "held out: 20 validation and 20 test pairs" in said.getvalue()
    assert "beam4 bleu" in shown.getvalue()
    return out


def test_a_run_directory_is_whole(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "metrics.jsonl", "train.log", "model", "state", "scores.test.json", "hypotheses"} <= names
    config = json.loads((trained / "config.json").read_text())
    assert config["experiment"]["architecture"]["d_token"] == 16
    assert config["versions"]["repose"] == repose.__version__
    scores = json.loads((trained / "scores.test.json").read_text())
    assert scores["run_id"] == config["run_id"]
    assert scores["num_sentences"] == 20
    for decoding in ("greedy", "beam4"):
        assert "tok:13a" in scores["decoded"][decoding]["bleu"]["signature"]
        assert len((trained / "hypotheses" / f"test.{decoding}.txt").read_text().split("\n")) == 21
    assert scores["teacher_forced"].keys() == {"tf_loss", "tf_accuracy", "tf_bleu", "tf_bleu_sentence_mean"}


def test_no_held_out_sentence_is_trained_on(trained: Path) -> None:
    name = json.loads((trained / "config.json").read_text())["data"]
    prepared = Path(os.environ["REPOSE_HOME"]) / "prepared" / name
    for side in ("src", "tgt"):
        train, valid, test = (
            set((prepared / "text" / f"{split}.{side}").read_text().splitlines())
            for split in ("train", "valid", "test")
        )
        assert not train & valid
        assert not train & test
        assert not valid & test
    assert len(PairDataset.open(prepared / "train")) == 360


def test_a_finished_run_is_not_repeated(trained: Path, corpus: tuple[Path, Path], run: Run) -> None:
    before = (trained / "metrics.jsonl").read_bytes(), (trained / "model" / "model.safetensors").stat().st_mtime_ns
    code, out, _ = run("train", *corpus, "--out", trained, *SETTINGS)
    after = (trained / "metrics.jsonl").read_bytes(), (trained / "model" / "model.safetensors").stat().st_mtime_ns
    assert code == 0
    assert "beam4 bleu" in out
    assert before == after


def test_other_settings_do_not_touch_a_run(trained: Path, corpus: tuple[Path, Path], run: Run) -> None:
    code, _, err = run("train", *corpus, "--out", trained, *SETTINGS, "--set", "training.seed=1")
    assert code == 1
    assert "these settings and data would make another (training.seed was 0, is 1): choose another folder" in err
    assert "or the settings of that run (--set training.seed=0)" in err
    assert "pairs read" not in err, "the corpus was prepared before"
    code, _, err = run("train", *corpus, "--out", trained, *SETTINGS, "--preset", "ablation-none")
    assert code == 1
    assert err.count("\n") == len(err.splitlines())


def test_where_a_run_cannot_be_written_is_said_before_the_corpus_is_read(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("train", *corpus, "--out", tmp_path / "file" / "run", *SETTINGS)
    assert (code, err.count("pairs read")) == (1, 0)
    assert err.endswith(f"{tmp_path / 'file'} is a file: choose another folder\n")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(WriteError, match=f"nothing may be written in {tmp_path}: choose another folder"):
        run_training(repose.Experiment(), tmp_path / "run", device="cpu")


def test_stopping_is_exit_3_and_the_same_command_goes_on(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    command = ("train", *corpus, "--out", tmp_path / "run", *SETTINGS, "--workers", "1")
    code, _, err = run(*command, "--stop-after", "3")
    assert code == 3
    assert err.count("the same command resumes") == 1
    for verb, *more in (["translate"], ["evaluate"], ["export", "--to", "onnx", "--out", tmp_path / "out"]):
        code, _, err = run(verb, tmp_path / "run", *more)
        what = "is a run without a model: if its training is not finished, run the same `repose train` command again"
        assert (code, err.startswith(f"repose: {tmp_path / 'run'} {what} to resume it")) == (1, True)
    code, out, _ = run(*command)
    assert code == 0
    assert "beam4 bleu" in out


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_a_signal_before_the_run_begins_is_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr("repose.runs.run.run", lambda *_, **__: os.kill(os.getpid(), getattr(signal, name)))
    code, _, err = run("demo", "--out", tmp_path / "run")
    assert (code, err) == (3, f"stopped ({name}): the same command resumes the run\n")


ENDED = {  # what a command calls that a signal then meets, and its arguments
    "evaluate": ("repose.runs.api.evaluate", ["run"]),
    "prepare": ("repose.tasks.corpus.prepare_corpus", []),
    "train": ("repose.runs.arguments.loaded_experiment", ["--out", "run"]),
    "translate": ("repose.decoding.load.load", ["run"]),
    "report": ("repose.report.collect.read_runs", ["run"]),
    "describe": ("repose.model.describe.describe", ["vaswani-base"]),
}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
@pytest.mark.parametrize("verb", ENDED)
def test_a_signal_ends_a_command_with_a_sentence(
    verb: str, name: str, run: Run, monkeypatch: pytest.MonkeyPatch, corpus: tuple[Path, Path]
) -> None:
    place, arguments = ENDED[verb]
    monkeypatch.setattr(place, lambda *_, **__: os.kill(os.getpid(), getattr(signal, name)))
    code, _, err = run(verb, *arguments, *(corpus if verb in ("prepare", "train") else ()))
    said = f"stopped ({name}): give the same command again\n"
    silent = name == "SIGINT" and verb != "train"
    assert code == (130 if silent else 3)
    assert err.endswith(said) != silent


def test_ctrl_c_ends_quietly_while_the_command_line_is_imported() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["repose"].partition(":")
    code = f"""
import signal, sys
class CtrlC:
    def find_spec(name, *_):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, CtrlC)
from {module} import {function}
{function}()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_folder_with_other_files_is_no_run_directory(run: Run, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    code, _, err = run("train", *corpus, "--out", tmp_path, *SETTINGS)
    assert (code, err) == (2, f"repose: {tmp_path} holds thesis.txt and no run: choose another folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_stopping_before_the_first_update_is_wrong_usage(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    assert run("train", *corpus, "--out", tmp_path / "run", "--stop-after", "-1")[0] == 2
    assert not (tmp_path / "run").exists()


def test_a_signal_stops_resumable(corpus: tuple[Path, Path], tmp_path: Path) -> None:
    arguments = ["train", *map(str, corpus), "--out", str(tmp_path / "run"), *SETTINGS, "--set", "training.epochs=500"]
    process = subprocess.Popen(
        [sys.executable, "-m", "repose", *arguments], stderr=subprocess.PIPE, text=True, preexec_fn=_on_one_core
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert (tmp_path / "run" / "state" / "last.safetensors").exists()


def test_translate_is_a_filter(trained: Path, run: Run) -> None:
    lines = ["O gato viu o cachorro.", "", "Ele lê.\u2028Ela canta.", "x" * 200_000]
    code, out, err = run("translate", trained, stdin="\n".join(lines).encode() + b"\n\xff\xfe nada\r\n")
    assert code == 0
    assert out.count("\n") == 5
    assert out.split("\n")[1] == ""
    assert "1 of 5 lines was longer" in err
    assert "1 of 5 lines was not valid UTF-8 or UTF-16: invalid bytes were replaced" in err


@pytest.mark.parametrize("name", ["in.tsv", "in.jsonl.gz", "in.parquet"])
@pytest.mark.parametrize("options", [[], ["--paragraphs"]])
def test_translate_takes_no_files_of_records(
    trained: Path, run: Run, tmp_path: Path, name: str, options: list[str]
) -> None:
    (tmp_path / name).write_bytes(b"O gato dorme.\tThe cat sleeps.\n")
    code, out, err = run("translate", trained, tmp_path / name, *options)
    assert (code, out) == (2, "")
    assert "each line here is one text" in err


def test_translate_reads_what_windows_and_packers_write(trained: Path, run: Run, tmp_path: Path) -> None:
    line = "O gato viu o cachorro.\r\n"
    plain, packed, damaged = (tmp_path / name for name in ("in.txt", "in.txt.gz", "cut.txt.gz"))
    plain.write_bytes(b"\xef\xbb\xbf" + 2 * line.encode())
    packed.write_bytes(gzip.compress(2 * line.encode()))
    damaged.write_bytes(packed.read_bytes()[:-12])
    _, out, _ = run("translate", trained, plain)
    first, second = out.splitlines()
    assert first == second, "the mark of the byte order is no text"
    assert run("translate", trained, packed)[:2] == (0, out)
    plain.write_bytes(b"\xff\xfe" + 2 * line.encode("utf-16-le"))
    assert run("translate", trained, plain)[:2] == (0, out)
    assert run("translate", trained, stdin=plain.read_bytes())[:2] == (0, out)
    for damage in (b"\n", b"\x00\xd8\n\0"):  # half a character, and half a pair of surrogates
        code, _, err = run("translate", trained, stdin=plain.read_bytes() + damage)
        assert (code, "1 of 3 lines was not valid UTF-8 or UTF-16: invalid bytes were replaced" in err) == (0, True)
    plain.write_bytes(line.encode("utf-32"))
    code, out, err = run("translate", trained, plain)
    assert (code, out) == (1, "")
    assert "UTF-32: save it in UTF-8, or pipe it through `iconv -f utf-32 -t utf-8`" in err
    plain.write_bytes(line.encode("utf-16-le"))
    code, out, err = run("translate", trained, plain)
    assert (code, out) == (1, "")
    assert "UTF-16: save it in UTF-8, or pipe it through `iconv -f utf-16le -t utf-8`" in err
    plain.write_bytes(b"PK\x03\x04\x14\0\x06\0 of Word, under another name\n\xff\n")
    code, out, err = run("translate", trained, plain)
    assert (code, out, "translate it with `repose translate-file`, or save it as plain text" in err) == (1, "", True)
    code, _, err = run("translate", trained, damaged)
    assert code == 1
    assert f"{damaged} is damaged or not what its name says" in err


def test_translate_writes_utf_8_whatever_the_locale_and_needs_an_input(trained: Path) -> None:
    command = [sys.executable, "-m", "repose", "translate", str(trained), "--beam-size", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-16"}
    how: dict[str, Any] = {"capture_output": True, "env": environment, "check": False}
    text = "Ele lê.\n".encode() * 2
    found = subprocess.run(command, input=text, **how)
    wanted = subprocess.run(command, input=text, **{**how, "env": {**environment, "PYTHONIOENCODING": "utf-8"}})
    assert (found.returncode, found.stdout) == (0, wanted.stdout)
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], **{**how, "env": None})
    assert closed.returncode == 2
    assert closed.stderr.decode() == "repose: there is no standard input: name a file\n"
    how = {"input": text + b"\xff\n", "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "check": False}
    shut = ['exec "$@" >&-', 'exec "$@" 2>&-', 'exec "$@" --paragraphs >&-', 'exec "$@" -']
    without_output, without_messages, whole, by_dash = (
        subprocess.run(["sh", "-c", s, "sh", *command], **how) for s in shut
    )
    said = b"1 of 3 lines was not valid UTF-8 or UTF-16: invalid bytes were replaced\n"
    assert (without_output.returncode, without_output.stderr) == (0, said)
    assert whole.returncode == 0
    assert without_messages.stdout == by_dash.stdout, "no message among the translations"
    assert (by_dash.stdout.count(b"\n"), by_dash.stderr) == (3, said)


@pytest.mark.parametrize("options", [(), ("--paragraphs",), ("--num-hypotheses", 2)])
def test_translate_writes_a_file(trained: Path, run: Run, tmp_path: Path, options: tuple[str | int, ...]) -> None:
    text, out = tmp_path / "in.txt", tmp_path / "new" / "out.txt"
    text.write_text("Ele lê.\nAção.\n", encoding="utf-8")
    _, wanted, _ = run("translate", trained, text, *options)
    assert run("translate", trained, text, "--out", out, *options)[:2] == (0, f"{out}\n")
    assert out.read_bytes() == wanted.encode()
    assert run("translate", trained, text, "-o", "-", *options)[:2] == (0, wanted)
    link = tmp_path / "link.txt"
    link.symlink_to(text)
    own = "is the text to translate"
    for place, said in ((text, own), (link, own), (tmp_path, "not a file")):
        code, shown, err = run("translate", trained, text, "--out", place, *options)
        assert (code, shown, said in err) == (2, "", True)
    assert text.read_text(encoding="utf-8") == "Ele lê.\nAção.\n"
    damaged = tmp_path / "cut.txt.gz"
    damaged.write_bytes(gzip.compress(text.read_bytes())[:-12])
    before = sorted(tmp_path.rglob("*"))
    assert run("translate", trained, damaged, "--out", out, *options)[0] == 1
    assert (out.read_bytes(), sorted(tmp_path.rglob("*"))) == (wanted.encode(), before), "whole or not at all"


def test_translate_does_not_write_over_what_comes_on_stdin(trained: Path, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("Ele lê.\n", encoding="utf-8")
    command = [sys.executable, "-m", "repose", "translate", str(trained), "--out", str(text)]
    with text.open("rb") as source:
        found = subprocess.run(command, stdin=source, capture_output=True, check=False)
    assert (found.returncode, b"is the text to translate" in found.stderr) == (2, True)
    assert text.read_text(encoding="utf-8") == "Ele lê.\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("options", [(), ("--paragraphs",)])
def test_a_pipe_can_be_translated(trained: Path, run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    pipe, text = tmp_path / "pipe", tmp_path / "text"
    text.write_text("Ele lê.\n")
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("Ele lê.\n"))
    writer.start()
    assert run("translate", trained, pipe, *options)[:2] == run("translate", trained, text, *options)[:2]
    writer.join()


def test_what_is_said_is_in_utf_8_whatever_the_locale() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-m", "repose", "check", "ação.pt", "动.en"]
    found = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert found.returncode == 1
    assert "/ação.pt: check the path" in found.stderr.decode()


@pytest.mark.parametrize(("how", "code"), [("Ctrl-C", 130), ("SIGTERM", 3), ("broken pipe", 1)])
def test_translate_answers_and_ends_at_once_while_its_input_stays_open(trained: Path, how: str, code: int) -> None:
    command = [sys.executable, "-m", "repose", "translate", str(trained), "--beam-size", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for sentence in ("Ele lê.", "Ela canta.")[: 1 if how == "broken pipe" else 2]:
            process.stdin.write(sentence + "\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")  # would wait for ever if it were held back
        if how != "broken pipe":
            process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
        else:
            process.stdout.close()
            process.stdin.write("Ela canta.\n")
            process.stdin.flush()
        try:
            assert process.wait(timeout=20) == code
        finally:
            process.kill()
        assert process.stderr.read() == "stopped (SIGTERM): give the same command again\n" * (how == "SIGTERM")


def test_an_error_ends_translate_while_its_input_stays_open(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as other_end:
        other_end.write("Ele lê.\n")
        other_end.flush()
        monkeypatch.setattr(sys, "argv", ["repose", "translate", str(trained), "--beam-size", "1000000000"])
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as leaving:
            cli.main()
    assert leaving.value.code == 2
    assert "must be from 1 (greedy search) to 1,000" in capsys.readouterr().err


def test_translate_reads_no_more_of_an_endless_line_than_it_can_use(trained: Path, run: Run) -> None:
    text = "O gato viu o cachorro. " + "é" * 600_000 + "\nEle lê."
    code, out, err = run("translate", trained, "--beam-size", 1, stdin=text.encode())
    assert (code, out.count("\n")) == (0, 2)
    assert "1 of 2 lines was longer than 262,144 bytes: no more of them was read" in err
    assert "UTF-8" not in err, "no character was cut"


def test_translate_takes_text_whatever_the_case_of_its_ending(trained: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "IN.TXT").write_text("Ele lê.\n", encoding="utf-8")
    code, out, _ = run("translate", trained, tmp_path / "IN.TXT")
    assert (code, len(out.splitlines())) == (0, 1)


def test_translate_gives_hypotheses_and_scores(trained: Path, run: Run, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("Ele lê. Ela canta.\n12.\nEle lê. 12.\nEle lê.\nEla canta.\n")
    _, scored, _ = run("translate", trained, source, "--scores")
    both, nothing, one_of_two, *parts = (float(line.split("\t")[0]) for line in scored.splitlines())
    assert both == pytest.approx(sum(parts), abs=2e-4), "of several sentences, their sum"
    assert math.isnan(nothing), "of which nothing was translated"
    assert one_of_two == pytest.approx(parts[0], abs=1e-4)
    source.write_text("Ele lê.\nEla canta.\n\n")
    _, out, _ = run("translate", trained, source, "--num-hypotheses", 2, "--beam-size", 3)
    rows = [line.split(" ||| ") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "1", "2"]
    assert rows.pop() == ["2", "", "nan"], "a blank line keeps its place"
    _, scored, _ = run("translate", trained, source, "--scores", "--beam-size", 3)
    values, texts = zip(*(line.split("\t") for line in scored.splitlines()), strict=True)
    assert texts == (rows[0][1], rows[2][1], "")
    assert values == (rows[0][2], rows[2][2], "nan")


def test_score_is_what_translate_reports(trained: Path, run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "src.txt", tmp_path / "tgt.txt"
    source.write_text("Ele lê.\nEla canta.\n")
    target.write_text("He reads.\nShe sings.\n")
    code, out, _ = run("score", trained, source, target)
    assert code == 0
    direct = repose.load(trained).score(["Ele lê.", "Ela canta."], ["He reads.", "She sings."])
    assert [float(line) for line in out.splitlines()] == pytest.approx(direct, abs=1e-3)


def test_score_takes_files_of_one_language(trained: Path, run: Run, tmp_path: Path) -> None:
    """It has no options to name the sides of pairs."""
    for name in ("a.jsonl", "b.jsonl", "a.tsv"):
        (tmp_path / name).write_text('{"src": "Ele lê.", "tgt": "He reads."}\n', encoding="utf-8")
    for files in (("a.jsonl", "b.jsonl"), ("a.tsv", "a.tsv")):
        code, out, err = run("score", trained, *(tmp_path / name for name in files))
        assert (code, out) == (2, "")
        assert "each line here is one text: write each side into a text file" in err


def test_targets_in_another_language_are_said(trained: Path, run: Run, tmp_path: Path) -> None:
    german = "Der Junge sieht heute das kleine Haus und freut sich sehr darüber.\n" * 20
    (tmp_path / "mono.de").write_text(german, encoding="utf-8")
    wrong = "the targets seem to be in German (de), but this model writes English (en): their scores say nothing"
    files = (tmp_path / "mono.pt", tmp_path / "mono.de")
    files[0].write_text("O menino vê hoje a pequena casa e fica muito contente com isso.\n" * 20, encoding="utf-8")
    assert wrong in run("score", trained, *files)[2]
    assert f"WARNING: {wrong}" in " ".join(run("evaluate", trained, *files, "--beam-size", 1)[1].split())
    (tmp_path / "mono.en").write_text(
        "The boy sees the little house today and is glad about it.\n" * 20, encoding="utf-8"
    )
    assert "the targets" not in run("score", trained, files[0], tmp_path / "mono.en")[2]


def test_score_gives_as_many_values_as_lines(trained: Path, run: Run, tmp_path: Path) -> None:
    pairs = [
        ("Ele lê.", "He reads."),
        ("", "Nobody reads."),
        ("Ela canta.", "She sings."),
        ("a" * 20_001, "a"),
        ("nu\0l", "null"),
        ("Ele lê.", "he " * 3000),
        ("Ele lê.", "He reads."),
    ]
    for path, side in zip((tmp_path / "src.txt", tmp_path / "tgt.txt"), zip(*pairs, strict=True), strict=True):
        path.write_text("".join(line + "\n" for line in side))
    code, out, err = run("score", trained, tmp_path / "src.txt", tmp_path / "tgt.txt")
    values = [float(line) for line in out.splitlines()]
    assert code == 0
    assert [math.isnan(value) for value in values] == [False, True, False, True, True, True, False]
    assert values[0] == pytest.approx(values[6], abs=1e-3)
    assert values[2] == pytest.approx(repose.load(trained).score(["Ela canta."], ["She sings."])[0], abs=1e-3)
    assert "4 of 7 pairs without a score (source empty: 1, longer than 20,000 characters: 1, NUL character: 1," in err
    code, out, err = run("evaluate", trained, tmp_path / "src.txt", tmp_path / "tgt.txt", "--beam-size", 1)
    assert code == 0
    assert "left out: 3 pairs (source empty: 1, longer than 20,000 characters: 1, NUL character: 1)" in out


def test_evaluate_scores_a_runs_own_set_or_files(
    trained: Path, corpus: tuple[Path, Path], run: Run, tmp_path: Path
) -> None:
    code, out, _ = run("evaluate", trained, "--beam-size", 1, "--all")
    assert code == 0
    assert "tf_bleu" in out
    assert json.loads((trained / "config.json").read_text())["run_id"] in out
    few = [tmp_path / "few.1.pt", tmp_path / "few.1.en.gz"]
    for path, whole, pack in zip(few, corpus, (bytes, gzip.compress), strict=True):
        path.write_bytes(pack(b"".join(whole.read_bytes().splitlines(keepends=True)[:8])))
    code, out, _ = run("evaluate", trained / "model", *few, "--out", tmp_path / "scores")
    assert code == 0
    assert "tf_" not in out
    assert all(f"beam4 {counted}" in out for counted in ("brevity penalty", "did not end", "loop"))
    assert re.findall("WARNING.*", out) == ["WARNING: scores of only 8 sentences say next to nothing"]
    exact = json.loads((tmp_path / "scores" / "scores.few.1.json").read_text())
    assert exact["num_sentences"] == 8
    out_of = ("--out", tmp_path / "int8", "--precision", "int8", "--workers", 1)
    assert run("evaluate", trained / "model", *few, "--split", "few", *out_of)[0] == 0
    rounded = json.loads((tmp_path / "int8" / "scores.few.json").read_text())
    assert rounded["decoding"] == exact["decoding"] | {"precision": "int8"}
    assert rounded["teacher_forced"]["tf_loss"] == pytest.approx(exact["teacher_forced"]["tf_loss"], rel=0.05)
    assert rounded["teacher_forced"]["tf_loss"] != exact["teacher_forced"]["tf_loss"]
    code, _, err = run("translate", trained, few[0], "--precision", "int9")
    assert code == 2
    assert "int8" in err


def test_several_models_translate_and_are_measured_as_one(
    trained: Path, corpus: tuple[Path, Path], run: Run, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert run("train", *corpus, "--out", other, *SETTINGS, "--set", "training.seed=1", "--workers", 1)[0] == 0
    text = corpus[0].parent / "test.pt"
    together = [
        f
        for _, f, _ in (
            run("translate", a, text, "--scores", "--ensemble", b, "--workers", 1)
            for a, b in ((trained, other), (other, trained))
        )
    ]
    alone = [run("translate", each, text, "--scores", "--workers", 1)[1] for each in (trained, other)]
    assert len({*together, *alone}) == 3, "their order changes nothing, and they are neither of the two"
    assert run("translate", trained, text, "--paragraphs", "--ensemble", other)[0] == 0
    code, _, _ = run("evaluate", trained, "--ensemble", other, "-b", 1, "--out", tmp_path / "scores")
    assert code == 0
    scores = json.loads((tmp_path / "scores" / "scores.test.json").read_text())
    ids = [json.loads((each / "config.json").read_text())["run_id"] for each in (trained, other)]
    assert scores["decoding"]["ensemble"] == ids
    code, _, err = run("evaluate", trained, "--ensemble", other, "--out", trained)
    assert code == 2
    assert "is for the run's model alone: choose another folder" in " ".join(err.split())


def test_what_a_model_does_not_read_is_counted(trained: Path, run: Run, tmp_path: Path) -> None:
    src, tgt = tmp_path / "src.txt", tmp_path / "tgt.txt"
    src.write_text("Ele lê. " * 100 + "\nEle lê.\n", encoding="utf-8")
    tgt.write_text("He reads.\n" + "He reads. " * 100 + "\n", encoding="utf-8")
    _, _, err = run("score", trained, src, tgt)
    assert "1 of 2 pairs had a source longer than the model reads: only its beginning was read" in " ".join(err.split())
    code, out, _ = run("evaluate", trained, src, tgt, "--beam-size", 1, "--all")
    assert code == 0
    assert "cut: 1 source longer than the model reads, translated by its beginning" in " ".join(out.split())
    assert "cut in the figures under tf_: 1 reference longer than the model reads" in " ".join(out.split())


def test_wrong_settings_of_a_measurement_are_refused_before_it(
    trained: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is to be translated")

    monkeypatch.setattr("repose.decoding.translator.Translator.translate", refuse)
    for option, value, said in (("--tokenize", "zhh", "tokenize is 'zhh'"), ("--split", "../x", "leave slashes out")):
        code, _, err = run("evaluate", trained, option, value, "--out", tmp_path / "scores")
        assert code == 2
        assert said in " ".join(err.split())
    (tmp_path / "file").write_text("")
    code, _, err = run("evaluate", trained, "--out", tmp_path / "file")
    assert code == 1
    assert "is a file: choose another folder" in " ".join(err.split())


def test_evaluate_does_not_put_figures_of_other_files_over_a_runs_own(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name, text in (("mine/config.json", "{}"), ("test.pt", "Ele lê.\n"), ("test.en", "He reads.\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    code, _, err = run("evaluate", mine, tmp_path / "test.pt", tmp_path / "test.en", "--out", mine)
    assert code == 2
    assert "is for the run's own set 'test': give these files another name (split)" in " ".join(err.split())


def test_evaluate_does_not_put_other_decodings_over_those_that_a_run_is_judged_by(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(trained, mine)
    before = json.loads((mine / "scores.test.json").read_text())["decoded"]
    for other in (["-b", 1, "-b", 2], ["-b", 1], ["-b", 4, "-b", 1], ["--precision", "int8"]):
        code, _, err = run("evaluate", mine, "--out", mine, *other)
        assert code == 2
        assert "scores.test.json holds the run's own scores (greedy, beam4, fp32), which others (" in err
    stranger = tmp_path / "stranger"
    shutil.copytree(trained / "model", stranger)
    code, _, err = run("evaluate", stranger, "--out", trained)
    assert code == 2
    assert "is for the run's own model, not" in " ".join(err.split())
    assert run("evaluate", mine, "--out", mine)[0] == 0
    assert json.loads((mine / "scores.test.json").read_text())["decoded"] == before
    assert run("evaluate", mine, "--split", "valid", "-b", 1, "--out", mine)[0] == 0, "it is judged by the other set"


def test_scores_of_tokenised_references_are_shown_with_both_figures_and_a_warning(
    trained: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflation, "_DIFFERS", 0.0)  # the model has hardly learnt anything: both are 0
    few = [tmp_path / "few.pt", tmp_path / "few.en"]
    few[0].write_text("Ele lê .\nEla canta .\n", encoding="utf-8")
    few[1].write_text("He reads &quot; it &quot; .\nShe sings .\n", encoding="utf-8")
    code, out, _ = run("evaluate", trained, *few, "--beam-size", 1, "--split", "few", "--out", tmp_path / "scores")
    assert code == 0
    assert "greedy bleu_detokenised" in out
    assert "WARNING: 2 of the 2 references look tokenised and 1 contain HTML entities" in out
    scores = json.loads((tmp_path / "scores" / "scores.few.json").read_text())
    assert scores["references"] == {"tokenised": 2, "entities": 1}
    assert scores["decoded"]["greedy"].keys() >= {"unfinished", "looping", "bleu_detokenised", "chrf_detokenised"}
    assert 0 <= scores["decoded"]["greedy"]["bleu"]["brevity_penalty"] <= 1


def test_figures_of_detokenised_text_that_repeat_the_others_are_left_out(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "few.pt").write_text("Ele lê.\n", encoding="utf-8")
    (tmp_path / "few.en").write_text("He reads &quot; it &quot;.\n", encoding="utf-8")  # BLEU is 0 either way
    command = ("evaluate", trained, tmp_path / "few.pt", tmp_path / "few.en", "-b", 1, "--out", tmp_path / "scores")
    assert "detokenised" not in run(*command)[1]
    assert "greedy bleu_detokenised" in run(*command, "--all")[1]
    (tmp_path / "few.en").write_text("He reads .\n", encoding="utf-8")
    assert "greedy bleu_detokenised" in run(*command)[1], "tokenised throughout"


def test_check_says_what_is_wrong_where_and_what_to_do(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    pairs = [path.read_text(encoding="utf-8").splitlines() for path in corpus]
    (tmp_path / "c.pt").write_text("".join(f"{line}\n" for line in pairs[0][:200] + pairs[0][:50]), encoding="utf-8")
    english = [line.replace(".", " .") for line in pairs[1][:200] + pairs[1][:50]]
    (tmp_path / "c.en").write_text("".join(f"{line}\n" for line in english), encoding="utf-8")
    code, out, _ = run("check", tmp_path / "c.pt", tmp_path / "c.en")
    assert code == 0
    assert "250 training pairs" in out
    assert re.search(r"Tokenised already.* training targets \(\d+ %; first line 1\)", out)
    assert re.search(r"Repetitions.* 50 training pairs \(20 %; first line 201\)", out)
    assert "Detokenise it" in out
    assert "\\n" not in out
    sets = ("--test", tmp_path / "c.pt", tmp_path / "c.en", "--set", "corpus.pretokenized=true")
    code, out, _ = run("check", tmp_path / "c.pt", tmp_path / "c.en", *sets)
    assert "Detokenise it" not in out
    assert "Also in the training set" in out


def test_check_lists_the_lines_with_problems_for_a_spreadsheet(run: Run, tmp_path: Path) -> None:
    """All of them, with their texts; nothing but an earlier list is replaced."""
    pairs = [*phrasebook.read()["train"][:600]]
    pairs[10], pairs[20], pairs[30] = (pairs[10][0], "&quot;x"), (pairs[20][0], ""), ("=1+1", "&amp; so on")
    pairs += pairs[:40]
    text = "Portuguese\tEnglish\n" + "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
    (tmp_path / "c.tsv").write_text(text, encoding="utf-8")
    for _ in range(2):
        assert run("check", tmp_path / "c.tsv", "--out", tmp_path / "found.csv")[0] == 0
    data = (tmp_path / "found.csv").read_bytes()
    assert data.startswith(codecs.BOM_UTF8), "by which Excel knows UTF-8"
    rows = [*csv.reader(data.decode("utf-8-sig").splitlines())]
    assert rows[0] == ["line", "where", "problem", "source", "target"]
    assert [row for row in rows[1:] if row[2] == "HTML entities"] == [
        [str(place + 2), "training target", "HTML entities", src, pairs[place][1]]
        for place, src in ((10, pairs[10][0]), (30, "'=1+1"), (610, pairs[10][0]), (630, "'=1+1"))
    ]
    assert [row for row in rows if row[2].startswith("Left out")] == [
        [str(line), "training pair", "Left out by training: target empty", "", ""] for line in (22, 622)
    ]
    repeated = [int(row[0]) for row in rows if row[2].startswith("Repetitions")]
    assert repeated == [line for line in range(602, 642) if line != 622]
    lines = [int(row[0]) for row in rows[1:]]
    assert lines == sorted(lines)
    (tmp_path / "found.csv").write_text("mine", encoding="utf-8")
    for name in ("found.csv", "c.tsv", "."):
        code, _, err = run("check", tmp_path / "c.tsv", "--out", tmp_path / name)
        assert (code, "is there already and is no list of an earlier" in err) == (2, True), err
    assert (tmp_path / "c.tsv").read_text(encoding="utf-8") == text
    (tmp_path / "clean.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs[100:600]), encoding="utf-8")
    assert run("check", tmp_path / "clean.tsv", "--out", tmp_path / "none.csv")[0] == 0
    assert (tmp_path / "none.csv").read_bytes() == codecs.BOM_UTF8 + b"line,where,problem,source,target\r\n"


def test_check_of_a_clean_corpus_shows_it_in_short(run: Run, tmp_path: Path) -> None:
    """With one line more where there are too few pairs, as `train` says it."""
    pairs = [f"{src}\t{tgt}\n" for src, tgt in phrasebook.read()["train"]]
    (tmp_path / "clean.tsv").write_text("".join(pairs[:600]), encoding="utf-8")
    code, out, err = run("check", tmp_path / "clean.tsv")
    src, tgt = phrasebook.read()["train"][300]
    assert (code, f"line 301:\n    {src}\n    {tgt}\n" in out, err) == (0, True, "")
    assert out.endswith("align them again.\n600 training pairs: no problems found\n")
    (tmp_path / "few.tsv").write_text("".join(pairs[:30]), encoding="utf-8")
    code, out, err = run("check", tmp_path / "few.tsv", "--valid", tmp_path / "clean.tsv")
    assert (code, err) == (0, "")
    few = "30 pairs: too few to learn from: the result will not be a translator\n"
    assert few in out
    code, out, _ = run("check", tmp_path / "few.tsv")
    assert (code, out.endswith(f"{few}30 training pairs: no other problems found\n")) == (0, True)


def test_check_shows_which_side_is_which_and_three_pairs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    pairs = phrasebook.read()["train"][:60]
    shown = [("\x1b[2J", "um"), *pairs, ("x" * 300, "fim")]
    rows = "".join(f"{tgt},{src}\n" for src, tgt in shown if "," not in src + tgt)
    (tmp_path / "c.csv").write_text(f"tgt,src\n{rows}", encoding="utf-8")
    _, out, _ = run("check", tmp_path / "c.csv", "--set", "corpus.src_lang=pt-BR", "--set", "corpus.tgt_lang=en")
    lines = out.splitlines()
    assert lines[:2] == ["source: column src of c.csv, Portuguese (pt-BR)", "target: column tgt of c.csv, English (en)"]
    assert lines[2:5] == ["row 2:", "    \\x1b[2J", "    um"]
    assert lines[9:11] == [f"    {'x' * 95}…", "    fim"]
    assert "Are these translations of each other, the source first?" in lines[11]


def test_check_refuses_what_train_refuses(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.runs.arguments.multiplies_in_bf16", lambda: True)
    (tmp_path / "none.tsv").write_text("um\t\ndois\t \n", encoding="utf-8")
    code, out, err = run("check", tmp_path / "none.tsv")
    sentence = f"none of the 2 pairs in {tmp_path / 'none.tsv'} can be used (target empty: 2): check the files"
    assert (code, out, err) == (1, "", f"repose: {sentence}\n")
    err = run("train", tmp_path / "none.tsv", "--out", tmp_path / "run")[2]
    assert sentence in err
    assert "--set training.precision=bf16\n" in err


def test_check_is_for_pairs_in_files(run: Run, tmp_path: Path) -> None:
    code, _, err = run("check", "--config", "demo")
    assert (code, err) == (2, "repose: the corpus 'phrasebook' ships with repose: there are no files to check\n")
    (tmp_path / "t.txt").write_text("one\n")
    files = ("corpus.train=" + str(tmp_path / "t.txt"), "corpus.valid=" + str(tmp_path / "t.txt"))
    settings = [part for setting in (*files, "training.task=language_modelling") for part in ("--set", setting)]
    code, _, err = run("check", *settings)
    assert (code, "sentence pairs" in err) == (2, True)


def test_audit_passes_what_is_causal_and_fails_what_looks_ahead(trained: Path, run: Run) -> None:
    assert run("audit", trained)[0] == 0
    code, out, _ = run("audit", "reinforced-lookahead")
    assert code == 1
    assert "FAILED" in out
    assert "cannot translate" in out


def test_options_that_contradict_each_other_or_have_no_effect(trained: Path, run: Run, tmp_path: Path) -> None:
    pairs = ("a.src", "b.tgt", "--out", tmp_path / "x", "--print-config")
    there = tmp_path / "folder.txt"
    there.mkdir()
    for command, sentence in (
        (
            ("train", *pairs, "--epochs", 3, "--set", "training.epochs=5"),
            "--epochs and --set training.epochs say",
        ),
        (
            ("train", *pairs, "--minutes", 3, "--set", "training.max_hours=5"),
            "--minutes and --set training.max_hours",
        ),
        *(
            ((command, "a.src", "b.tgt", "--src-lang", "pt", "--set", "corpus.src_lang=en"), "--src-lang and --set")
            for command in ("init", "prepare", "check")
        ),
        (("cache", trained, "--clear"), "name runs, or give --clear"),
        (("fetch", "--from", tmp_path), "needs the name of a corpus: repose fetch NAME --from"),
        (("translate-file", trained, there, tmp_path / "y.txt"), "folder.txt is a folder: name the file to translate"),
        (("translate-file", trained, tmp_path / "y.html", there), "folder.txt is a folder: name the file to write"),
        (("translate", trained, "--num-hypotheses", 0), "num-hypotheses"),
        (("translate", trained / "config.json", trained), "a folder: the model comes first"),
        (("train", "a.src", "b.tgt", "--out", tmp_path / "x", "--device", "gpu"), "an NVIDIA or AMD GPU is cuda"),
    ):
        code, _, err = run(*command)
        assert (code > 0, sentence in " ".join(err.split())) == (True, True), (command, err)
    assert (trained / "model").is_dir()


def test_audit_and_describe_take_a_preset_with_settings_changed(trained: Path, run: Run) -> None:
    changed = ("reinforced", "--set", "architecture.positions=printed", "--set", "architecture.dropout=0.4")
    assert run("audit", *changed)[0] == 0
    assert run("audit", "reinforced", "--set", "architecture.decoder_token_norm=sentence")[0] == 1
    plain, wider = (run("describe", "reinforced", *more)[1] for more in ((), ("--set", "architecture.d_ff=512")))
    assert "2,809,634" in plain
    assert "2,809,634" not in wider
    assert "published" not in wider, "which is another architecture"
    assert run("describe", "reinforced", "--set", "architecture.max_length=64")[0] == 0, "however short its sentences"
    for verb in ("audit", "describe"):
        code, _, err = run(verb, "reinforced", "--set", "training.epochs=3")
        assert (code, "--set training.epochs=3 changes no architecture" in err) == (2, True)
        code, _, err = run(verb, trained, "--set", "architecture.d_ff=512")
        assert (code, "is a trained model, whose architecture stays" in err) == (2, True)


def test_a_run_of_before_a_changed_equation_is_told(trained: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OTHER_CODE not in run("evaluate", trained, "--beam-size", 1)[2]
    monkeypatch.setattr("repose.saved_run.folder.model_code", lambda: "another")
    assert f"{trained}: begun {OTHER_CODE}" in run("evaluate", trained, "--beam-size", 1)[2]


def test_init_writes_a_file_that_train_takes(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    path = tmp_path / "configs" / "mine.toml"
    code, _, err = run("init", corpus[0], tmp_path / "nosuch.en", "--out", path)
    assert (code, "there is no file" in err, path.exists()) == (1, True, False)
    assert run("init", *corpus, "--out", path, *SETTINGS)[0] == 0
    assert run("init", *corpus, "--out", path)[0] == 2
    assert "cannot be written" in run("init", *corpus, "--out", path / "of-a-file.toml")[2]
    from_file = run("train", path, "--out", tmp_path / "x", "--print-config")[1]
    from_line = run("train", *corpus, "--out", tmp_path / "x", *SETTINGS, "--print-config")[1]
    values = [[line.partition("  #")[0].rstrip() for line in text.splitlines()] for text in (from_file, from_line)]
    assert values[0] == values[1]
    assert "file" in from_file


def test_files_with_names_for_their_fields_are_measured_by_the_runs_names(
    run: Run, corpus: tuple[Path, Path], trained: Path, tmp_path: Path
) -> None:
    sides = [path.read_text(encoding="utf-8").splitlines()[:4] for path in corpus]
    lines = [json.dumps({"left": src, "right": tgt}) + "\n" for src, tgt in zip(*sides, strict=True)]
    (tmp_path / "few.jsonl").write_text("".join(lines), encoding="utf-8")
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    config.pop("own_crc32", None)
    config["experiment"]["corpus"] |= {"src_field": "left", "tgt_field": "right"}
    (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert run("evaluate", copy, tmp_path / "few.jsonl", "--beam-size", 1)[0] == 0
    code, _, err = run("evaluate", trained / "model", tmp_path / "few.jsonl", "--beam-size", 1)
    assert (code, "--src-field and --tgt-field" in " ".join(err.split())) == (1, True)
    named = ("--src-field", "left", "--tgt-field", "right")
    assert run("evaluate", trained / "model", tmp_path / "few.jsonl", "--beam-size", 1, *named)[0] == 0
    by_language = [line.replace("left", "pt").replace("right", "en") for line in lines]
    (tmp_path / "few.jsonl").write_text("".join(by_language), encoding="utf-8")
    assert run("evaluate", trained / "model", tmp_path / "few.jsonl", "--beam-size", 1)[0] == 0


def test_a_translation_memory_is_measured_in_the_models_direction(
    run: Run, corpus: tuple[Path, Path], trained: Path, tmp_path: Path
) -> None:
    config = json.loads((trained / "model" / "config.json").read_text(encoding="utf-8"))
    languages = config["src_lang"], config["tgt_lang"]
    pairs = list(zip(*(path.read_text(encoding="utf-8").splitlines()[:3] for path in corpus), strict=True))
    units = ""
    for pair in pairs:
        variants = zip(languages, pair, strict=True)
        units += "<tu>" + "".join(f'<tuv xml:lang="{a}"><seg>{text}</seg></tuv>' for a, text in variants) + "</tu>"
    header = f'<header srclang="{languages[1]}"/>'  # the other one
    (tmp_path / "few.tmx").write_text(f"<tmx>{header}<body>{units}</body></tmx>", encoding="utf-8")
    (tmp_path / "few.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    told = []
    for name in ("few.tmx", "few.tsv"):
        out = tmp_path / name.replace(".", "-")
        assert run("evaluate", trained / "model", tmp_path / name, "--beam-size", 1, "--out", out)[0] == 0
        told.append(json.loads((out / "scores.few.json").read_text(encoding="utf-8"))["decoded"])
    assert told[0] == told[1]


def test_the_direction_of_a_memory_is_told_or_asked_for(run: Run, trained: Path, tmp_path: Path) -> None:
    variants = '<tuv xml:lang="gl"><seg>un {0}</seg></tuv><tuv xml:lang="en-US"><seg>one {0}</seg></tuv>'
    units = "".join(f"<tu>{variants.format(number)}</tu>" for number in range(9))
    (tmp_path / "a.tmx").write_text(f'<tmx><header srclang="en"/><body>{units}</body></tmx>', encoding="utf-8")
    _, out, _ = run("check", tmp_path / "a.tmx")
    assert out.startswith("source: a.tmx, English (en)\ntarget: a.tmx, Galician (gl)\nunit 1:\n    one 0\n    un 0\n")
    assert "swapped, say which side is the source (--src-field and --tgt-field, or --src-lang and --tgt-lang)" in out
    shutil.copytree(trained / "model", tmp_path / "model")
    change_config(tmp_path / "model", {"src_lang": "und", "tgt_lang": "und"})
    code, _, err = run("evaluate", tmp_path / "model", tmp_path / "a.tmx", "--beam-size", 1)
    assert (code, "the model does not know its languages" in err, "--src-field" in err) == (2, True, True)
    named = ("--src-field", "gl", "--tgt-field", "en")
    assert run("evaluate", tmp_path / "model", tmp_path / "a.tmx", "--beam-size", 1, *named)[0] == 0


def test_init_refuses_a_corpus_that_train_refuses(run: Run, tmp_path: Path) -> None:
    """Whose recipe could not be chosen."""
    (tmp_path / "x.tsv").write_text("a\tb\tc\n" * 9, encoding="utf-8")
    code, _, err = run("init", tmp_path / "x.tsv", "--out", tmp_path / "n.toml")
    assert (code, "3 columns instead of 2" in err) == (1, True), err
    assert not (tmp_path / "n.toml").exists()
    (tmp_path / "x.txt").write_text("a text\n", encoding="utf-8")
    task = ("--config", "default", "--set", "training.task=language_modelling")
    assert run("init", tmp_path / "x.txt", *task, "--out", tmp_path / "l.toml")[0] == 0


def test_prepare_and_init_take_the_sets_that_train_takes(run: Run, tmp_path: Path) -> None:
    pairs = phrasebook.read()["train"][:90]
    for name, first in (("all", 0), ("valid", 60), ("test", 70), ("more", 80)):
        for side, lang in enumerate(("pt", "en")):
            lines = (f"{pair[side]}\n" for pair in pairs[first : 60 if name == "all" else first + 10])
            (tmp_path / f"{name}.{lang}").write_text("".join(lines), encoding="utf-8")
    all_, valid, test, more = (
        [tmp_path / f"{n}.{lang}" for lang in ("pt", "en")] for n in ("all", "valid", "test", "more")
    )
    sets = (*all_, "--valid", *valid, "--test", *test, "--synthetic", *more)
    assert run("prepare", *sets, "--out", tmp_path / "data", "--set", "tokenizer.vocab_size=300")[0] == 0
    assert (tmp_path / "data" / "text" / "test.src").read_bytes() == test[0].read_bytes()
    assert (tmp_path / "data" / "text" / "synthetic.src").exists()
    assert run("init", *sets, "--out", tmp_path / "deep" / "run.toml")[0] == 0
    corpus = load(tmp_path / "deep" / "run.toml").experiment.corpus
    assert [[Path(one).resolve() for one in files] for files in (corpus.valid, corpus.synthetic)] == [valid, more]


def test_prepare_says_what_was_dropped(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"um {i}\tone {i}\n" for i in range(60)) + "\tempty\nnul\0\tnul\n")
    code, _, err = run("prepare", tmp_path / "a.tsv", "--out", tmp_path / "data", "--set", "tokenizer.vocab_size=300")
    assert code == 0
    assert "60 of 62 pairs read" in err
    assert "1 dropped (source empty)" in err
    assert "1 dropped (NUL character)" in err


@pytest.mark.parametrize(
    ("given", "workers"), [((), available_cores()), (("--workers", "0"), 0), (("--workers", "1"), 1)]
)
def test_prepare_has_the_workers_that_are_asked_for(
    given: tuple[str, ...], workers: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def prepared(_experiment: object, *, workers: int, say: Say, **_: object) -> None:
        asked.append(workers)
        say("another process prepares this corpus")
        raise ReposeError("that is all")

    monkeypatch.setattr("repose.tasks.corpus.prepare_corpus", prepared)
    code, _, err = run("prepare", *given)
    assert (code, "another process prepares this corpus\n" in err, "that is all" in err) == (1, True, True)
    assert asked == [workers]


def test_fetch_lists_and_names_the_nearest(run: Run) -> None:
    assert "multi30k\t" in run("fetch")[1]
    code, _, err = run("fetch", "multi30")
    assert code == 1
    assert "multi30k" in err


def test_presets_and_describe(run: Run) -> None:
    assert "reinforced-lookahead" in run("presets", "--all")[1]
    out = run("describe", "reinforced")[1]
    assert out.count("2,809,634") == 2
    for preset, targets in (
        ("reinforced", "onnx, web"),
        ("small-rotary", "onnx, ctranslate2, web"),
        ("reinforced-lookahead", "nothing"),
    ):
        assert f"can be exported to  {targets}\n" in run("describe", preset)[1]
    assert "cannot translate" in run("describe", "reinforced-lookahead")[1]
    assert "7,765 source, 7,765 target" in run("describe", "vaswani-base")[1], "one vocabulary"
    assert "900 source, 900 target" in run("describe", "transformer-tiny", "--tgt-vocab", 900)[1]
    for verb in ("describe", "audit"):
        code, _, err = run(verb, "runs/nope")
        assert (code, err.startswith("repose: there is no directory runs/nope: check the path")) == (2, True)
        code, _, err = run(verb, "re-inforced")
        assert (code, err) == (2, "repose: there is no preset or directory 're-inforced': did you mean 'reinforced'?\n")
    for option, value in (("--length", 0), ("--src-vocab", -5), ("--tgt-vocab", 0)):
        assert run("describe", "reinforced", option, value)[0] == 2


BAD = {
    "unknown key": (["--set", "training.epoch=3"], 2, "did you mean 'training.epochs'"),
    "wrong type": (["--set", "training.epochs=many"], 2, "training.epochs"),
    "unknown preset": (["--preset", "reinforcd"], 2, "did you mean 'reinforced'"),
    "unknown device": (["--device", "gpu"], 1, "gpu"),
    "senseless": (["--set", "architecture.positions=none"], 2, "nothing to set beside"),
    "too large a vocabulary": (["--set", "tokenizer.vocab_size=20"], 2, "at least 261"),
}


@pytest.mark.parametrize(("arguments", "code", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_settings_are_one_sentence(
    arguments: list[str], code: int, sentence: str, corpus: tuple[Path, Path], run: Run, tmp_path: Path
) -> None:
    found, _, err = run("train", *corpus, "--out", tmp_path / "run", *arguments)
    assert found == code
    assert sentence in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("repose: ")


BAD_FILES: dict[str, tuple[bytes, bytes, str]] = {
    "different lengths": (b"a\nb\nc\n", b"a\nb\n", "3 .* 2"),
    "empty files": (b"", b"", "nothing in"),
    "invalid UTF-8": (b"a\n\xff\n", b"a\nb\n", "line 2"),
    "one side empty": (b"\n\n\n", b"a\nb\nc\n", "source empty: 3"),
    "all pairs identical": (b"a\n" * 50, b"b\n" * 50, "are the same"),
}


@pytest.mark.parametrize(("src", "tgt", "sentence"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_files_are_one_sentence(src: bytes, tgt: bytes, sentence: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(src)
    (tmp_path / "b").write_bytes(tgt)
    code, _, err = run("train", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "run")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("repose: ")
    assert re.search(sentence, last), last


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems do not take such names")
def test_odd_file_names(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They reach the corpus whole and do not move the cursor; those that no file can hold are one sentence."""
    monkeypatch.chdir(tmp_path)
    Path("\U0001f600\x7f.tsv").write_text("".join(f"um {i}\tone {i}\n" for i in range(60)))
    assert run("prepare", "\U0001f600\x7f.tsv", "--out", "data", "--set", "tokenizer.vocab_size=300")[0] == 0
    Path("a\x1b[31m.tsv").touch()
    code, _, err = run("prepare", "a\x1b[31m.tsv")
    assert (code, "\x1b" in err, r"a\x1b[31m.tsv" in err) == (1, False, True)
    name = os.fsdecode(b"\xff.tsv")
    Path(name).touch()
    code, _, err = run("train", name, "--out", "run")
    assert (code, err.count("\n")) == (2, 1)
    assert "is not UTF-8" in err


def test_control_characters_of_records_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"perplexity\x1b[2J": {"value": 2.0, "unit": "\x9b2J"}}
    evaluation_table({"run_id": "a\x1b[2J", "split": "test", "task": "parsing\r", "figures": figures})
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert r"run a\x1b[2J, test, parsing\r" in out


def test_an_error_of_the_system_is_said_with_its_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere/file")

    monkeypatch.setattr("repose.runs.arguments.load", full)
    assert run("prepare") == (
        1,
        "",
        "repose: /somewhere/file: No space left on device, so make room, or write elsewhere\n",
    )


def test_missing_and_damaged_models_are_one_sentence(trained: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run("translate", tmp_path / "nowhere")
    assert (code, err.count("\n")) == (1, 1)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in (trained / "model").iterdir():
        (damaged / path.name).write_bytes(path.read_bytes()[:1000])
    code, _, err = run("translate", damaged)
    assert (code, err.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), None]
)
def test_memory_that_runs_out_is_one_sentence(
    error: Exception | None, run_repose: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        if error is not None:
            raise error
        torch.empty(1 << 60, dtype=torch.uint8)  # torch's own error

    monkeypatch.setattr("repose.data.corpora.names", fail)
    code, _, said = run_repose("fetch")
    assert (code, said) == (1, "repose: out of memory: use a machine with more, or smaller sizes\n")


def test_an_error_of_ours_keeps_its_traceback(
    run_repose: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("repose.data.corpora.names", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        run_repose("fetch")


def test_plain_options_are_settings(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    valid, test = (
        tuple(corpus[0].with_name(f"{split}.{side}") for side in ("pt", "en")) for split in ("valid", "test")
    )
    command = ["train", "--valid", *valid, "--test", *test, "--epochs", 3, "--minutes", 90, *corpus]
    code, out, err = run(*command, "--out", tmp_path / "run", "--print-config")
    assert code == 0, err
    assert f'valid = ["{valid[0]}", "{valid[1]}"]' in out
    assert f'test = ["{test[0]}", "{test[1]}"]' in out
    assert "epochs = 3 " in out
    assert "max_hours = 1.5 " in out
    smiling = tuple(tmp_path / f"\U0001f600.{side}" for side in ("pt", "en"))
    code, out, err = run(
        "train", *corpus, f"--valid={smiling[0]}", smiling[1], "--out", tmp_path / "run", "--print-config"
    )
    assert code == 0, err
    assert f'valid = ["{smiling[0]}", "{smiling[1]}"]' in out
    (tmp_path / "v.tsv").touch()
    code, out, err = run("train", "--valid", tmp_path / "v.tsv", *corpus, "--out", tmp_path / "run", "--print-config")
    assert code == 0, err
    assert f'valid = ["{tmp_path / "v.tsv"}"]' in out
    assert f'train = ["{corpus[0]}", "{corpus[1]}"]' in out


def test_several_files_of_pairs_follow_an_option(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "v", "w"):
        (tmp_path / f"{name}.jsonl").write_text('{"src": "a", "tgt": "b"}\n')
    place = ("--out", tmp_path / "run", "--print-config")
    train, valid = ([tmp_path / f"{name}.jsonl" for name in names] for names in ("abc", "vw"))
    code, out, err = run("train", *train, *(f"--valid={path}" for path in valid), *place)
    assert code == 0, err
    assert f'train = ["{train[0]}", "{train[1]}", "{train[2]}"]' in out
    assert f'valid = ["{valid[0]}", "{valid[1]}"]' in out
    code, out, err = run("train", f"--valid={valid[0]}", train[0], *place)
    assert code == 0, err
    assert (f'train = ["{train[0]}"]' in out, f'valid = ["{valid[0]}"]' in out) == (True, True)
    code, _, err = run("train", "--valid", valid[0], train[0], *place)
    assert (code, f"does {train[0]} belong to --valid? Write --valid={valid[0]}" in err) == (2, True)
    (tmp_path / "c.tsv").touch()
    code, _, err = run("train", *train, tmp_path / "c.tsv", *place)
    assert (code, "one TSV or CSV file, or JSONL, Parquet or TMX files of one kind" in err) == (2, True)


def test_held_out_sets_do_not_take_the_options_after_them_for_files(
    corpus: tuple[Path, Path], run: Run, tmp_path: Path
) -> None:
    place = ("--out", tmp_path / "run", "--print-config")
    code, out, _ = run("train", *corpus, "--valid", corpus[0], "--epochs", 3, *place)
    assert (code, json.dumps([str(corpus[0])]) in out, "epochs = 3 " in out) == (0, True, True)
    code, _, err = run("check", *corpus, "--valid", corpus[0], "--set", "corpus.split_seed=1")
    assert (code, f"{corpus[0]} alone cannot be a corpus: name two aligned text files" in err) == (1, True)
    code, _, err = run("train", *corpus, "--test", "--tensorboard", *place)
    assert (code, "--test needs two aligned text files after it, or a file of pairs, such as TSV\n" in err) == (
        2,
        True,
    )


def test_the_end_shows_translations_and_what_to_try(trained: Path, corpus: tuple[Path, Path], run: Run) -> None:
    code, out, _ = run("train", *corpus, "--out", trained, *SETTINGS)
    assert code == 0
    assert "held-out sentence" in out
    for verb in ("translate", "evaluate", "report"):
        assert f"repose {verb} {trained}" in out
    assert "updates" not in out, "which the end of the training has told"


def test_a_device_that_cannot_train_is_refused_before_the_corpus_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    (tmp_path / "a.tsv").write_text("um\tone\n" * 40)
    code, _, err = run("train", tmp_path / "a.tsv", "--out", tmp_path / "run", "--device", "mps")
    assert (code, err) == (1, "repose: training does not run on mps: use cpu or cuda\n"), "before the corpus is counted"
    code, _, err = run("train", tmp_path / "a.tsv", "--out", tmp_path / "run", "--device", "mpsx")
    assert (code, err) == (1, "repose: there is no device 'mpsx': known are cpu, cuda\n")


def test_tensorboard_is_looked_for_before_the_corpus_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = run("train", "--config", "demo", "--tensorboard", "--out", tmp_path / "run")
    assert (code, "pip install 'repose-nmt[tensorboard]'" in err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_characters_that_training_never_wrote_are_read_as_what_it_wrote(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    said = json.loads((trained / "model" / "config.json").read_text())["src_normalization"]
    assert (said["form"], said["replace"]["\u00a0"]) == ("NFC", " ")
    usual = "O gato vê a avó.\n"
    unusual = "O\u00a0ga\u00adto ve\u0302 a avo\u0301.\n"
    assert run("export", trained, "--to", "onnx", "--out", tmp_path / "graphs")[0] == 0
    alone = tokenizers.Tokenizer.from_file(str(tmp_path / "graphs" / "tokenizer.src.json"))
    assert alone.encode(usual).ids == alone.encode(unusual).ids, "as any program reads the export"
    assert [t.text for t in repose.load(trained).translate(["\u00ad", "\ufeff "])] == ["", ""]
    for model in (trained, tmp_path / "graphs"):
        (_, first, _), (_, second, _) = (run("translate", model, stdin=text.encode()) for text in (usual, unusual))
        assert first == second != ""


def test_an_address_that_stays_as_it_is_is_in_no_script(trained: Path, run: Run, tmp_path: Path) -> None:
    model = shutil.copytree(trained / "model", tmp_path / "model")
    change_config(model, {"src_scripts": ["Cyrillic"]})
    code, out, err = run("translate", model, "--beam-size", 1, stdin="https://a.example\nEle lê.\n".encode())
    assert (code, out.split("\n")[0]) == (0, "https://a.example")
    assert err == "line 2 is in Latin script, which this model's training hardly saw: expect nonsense\n"


def test_translate_splits_paragraphs_and_warns_of_scripts(trained: Path, run: Run) -> None:
    config = json.loads((trained / "model" / "config.json").read_text())
    assert config["src_scripts"] == ["Latin"]
    assert 10 < config["split_src_tokens"] < config["max_src_tokens"] < 128, "the longest source that training read"
    lines = ["Ele lê. Ela canta.", "Ele lê.", "Ela canta.", "Привет, мир.", "как дела"]
    code, out, err = run("translate", trained, "--beam-size", 1, stdin="\n".join(lines).encode())
    assert code == 0
    both, first, second, *_ = out.split("\n")
    assert both.split() == f"{first} {second}".split()
    assert err == "line 4 is in Cyrillic script, which this model's training hardly saw: expect nonsense\n"
    long = ", ".join(["o gato viu o cachorro"] * 60)
    _, out, err = run("translate", trained, "--beam-size", 1, stdin=long.encode())
    assert (
        "1 of 1 line had a sentence longer than almost all that the model was trained on: it was translated in parts"
        in err
    )


def test_a_model_without_tags_takes_no_language(trained: Path, run: Run) -> None:
    code, _, err = run("translate", trained, "--to", "en", stdin=b"O gato.\n")
    assert (code, err) == (2, "repose: this model has no tags: leave `to` (--to) out\n")


def test_translate_takes_settings_of_the_search(trained: Path, run: Run) -> None:
    text = b"O gato viu o cachorro."
    words = run("translate", trained, "--beam-size", 1, "--no-repeat-ngram-size", 1, stdin=text)[1].split()
    assert len(words) == len(set(words))
    assert run("translate", trained, "--length-penalty", 11, stdin=text)[0] == 2
    assert run("translate", trained, "--length-penalty", 0, stdin=text)[0] == 0


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
def test_a_person_at_a_terminal_is_asked_for_a_sentence(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    person, terminal = os.openpty()
    os.write(person, b"Ele.\n\x04")
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "argv", ["repose", "translate", str(trained), "--beam-size", "1"])
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit):
            cli.main()
    os.close(person)
    assert capsys.readouterr().err == "type a sentence; Ctrl-D ends\n"


def test_a_file_that_is_not_there_is_said_without_a_number(trained: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run("translate", trained, "nosuch.txt")
    command = f"echo '…' | repose translate {trained}"
    sentence = f"check the path; to translate a sentence, echo it, as in {command}"
    assert (code, err) == (1, f"repose: there is no file nosuch.txt: {sentence}\n")
    (tmp_path / "page.html").write_text("<p>O gato vive.")
    code, _, err = run("translate", trained, tmp_path / "page.html")
    assert (code, "with more than text in it: translate it with `repose translate-file " in err) == (2, True)
    for sentence in (["O gato vive."], ["O gato vive, " * 40], ["O gato vive.", "--paragraphs"]):
        code, _, err = run("translate", trained, *sentence)
        assert code == 1
        assert f"echo '…' | repose translate {trained}" in err


def test_resuming_with_other_settings_names_them(trained: Path, corpus: tuple[Path, Path], run: Run) -> None:
    changed = ("--set", "training.seed=1", "--set", "architecture.d_ff=16")
    code, _, err = run("train", *corpus, "--out", trained, *SETTINGS, *changed)
    assert code == 1
    assert "(architecture.d_ff was 32, is 16, training.seed was 0, is 1)" in err


def test_slips_of_the_keyboard_are_understood(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run")
    assert "write training.epochs=VALUE" in run("train", *corpus, *out, "--set", "training.epochs")[2]
    code, _, err = run("train", "reinforced-paper", *out)
    assert (code, "write --config reinforced-paper" in err) == (2, True)
    code, _, err = run("train", "reinforced", *out)
    assert (code, "write --preset reinforced, and name the files" in err) == (2, True)
    split = ("--set", f"corpus.valid=[{corpus[0]},", f"{corpus[1]}]")
    code, _, err = run("train", *corpus, *out, *split)
    assert (code, "ends at a space: write it without spaces, or in quotes" in err) == (2, True)
    unquoted = f"corpus.train=[{corpus[0]}, {corpus[1]}]"
    assert f'train = ["{corpus[0]}", "{corpus[1]}"]' in run("train", *out, "--set", unquoted, "--print-config")[1]


def test_a_model_that_will_look_ahead_is_named_before_it_is_trained(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("repose.runs.run.prepare_corpus", stop)
    err = run("train", *corpus, "--out", tmp_path / "run", "--preset", "reinforced-lookahead")[2]
    assert "cannot translate" in err


def test_the_next_step_has_a_place_for_languages_that_are_not_known(
    run: Run, corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("one.txt", "two.txt")]
    for file, text in zip(files, corpus, strict=True):
        file.write_bytes(text.read_bytes())
    for pair, place in ((files, True), (corpus, False)):
        code, said, err = run("train", *pair, "--out", tmp_path / f"run{place}", *SETTINGS, "--workers", "1")
        assert (code, "--lang SOURCE:TARGET" in said) == (0, place), err


def test_a_model_whose_training_is_not_over_says_so_when_it_is_used(
    run: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not over" not in run("translate", trained, stdin=b"O gato.\n")[2]
    assert "not over" not in run("evaluate", trained)[2]
    monkeypatch.setattr("repose.saved_run.folder.RunFolder.is_under_way", True)
    for path in (trained, trained / "model"):
        for verb in (["translate", path], ["translate", path, "--paragraphs"], ["evaluate", path]):
            assert run(*verb, stdin=b"O gato.\n")[2].count(f"the training of {trained} is not over") == 1


def test_a_model_that_looks_ahead_says_so_when_it_is_used(
    run: Run, corpus: tuple[Path, Path], trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    preset = ("--preset", "reinforced-lookahead")
    code, said, err = run("train", *corpus, "--out", out, *preset, *SETTINGS, "--workers", "1")
    assert (code, "repose serve" in said, "repose translate" in said) == (0, False, False), err
    (tmp_path / "in.txt").write_text("O gato.")
    for path, warns in ((out, True), (trained, False)):
        for verb in (["translate", path], ["translate", path, "--paragraphs"]):
            assert ("cannot translate" in run(*verb, stdin=b"O gato.\n")[2]) == warns
        files = (tmp_path / "in.txt", tmp_path / f"{warns}.txt")
        assert ("cannot translate" in run("translate-file", path, *files)[2]) == warns
        bulk = run("bulk", path, tmp_path / "in.txt", "--out", tmp_path / f"bulk-{warns}", "--workers", "1")
        assert (bulk[0], "cannot translate" in bulk[2]) == (0, warns)


def test_a_folder_of_models_is_no_model(run: Run, trained: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(trained if name == "one" else trained / "model")
    for verb in ("translate", "serve"):
        code, _, err = run(verb, tmp_path, stdin=b"O gato.\n")
        named = f"name one of {tmp_path / 'one'}, {tmp_path / 'two'}"
        assert (code, err) == (1, f"repose: {tmp_path} is a folder of models: {named}\n")


def test_presets_are_a_short_table(run: Run) -> None:
    out = run("presets")[1]
    assert out.count("\n") < 45
    assert max(map(len, out.splitlines())) < 125
    assert re.search(r"│ reinforced +│ +\d\.\d M │ reinforced position", out)
    assert "to translate, leave --preset out: `repose train` chooses" in out
    assert "arXiv 2410.04731" in run("presets", "--all")[1]
    assert "arXiv" not in out


def test_a_run_that_is_called_like_a_preset_is_a_run(
    trained: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "baseline")
    out = run("describe", "baseline")[1]
    assert "published" not in out
    assert "tutorial" not in out


def test_presets_runs_and_models_are_taken_alike(trained: Path, run: Run, tmp_path: Path) -> None:
    totals = [re.findall(r"total +│ +([\d,]+)", run("describe", path)[1]) for path in (trained, trained / "model")]
    assert totals[0] == totals[1]
    assert totals[0]
    assert run("audit", trained / "model")[0] == 0
    assert run("report", trained / "model", "--format", "md", "--out", tmp_path / "report")[0] == 0
    for verb in ("evaluate", "translate", "report"):
        code, _, err = run(verb, "reinforced")
        assert code == 1
        assert "reinforced is a preset, an architecture without weights" in err
    copied = tmp_path / "copied"
    shutil.copytree(trained / "model", copied)
    code, _, err = run("evaluate", copied)
    assert (code, err.count("\n")) == (1, 1)
    assert "is a model directory, which knows no corpus" in err
    assert "is a model directory, without records of its training" in run("report", copied)[2]


def test_given_files_are_not_called_test(trained: Path, corpus: tuple[Path, Path], run: Run) -> None:
    files = [corpus[0].with_name("valid.pt"), corpus[0].with_name("valid.en")]
    out = run("evaluate", trained, *files, "--beam-size", 1)[1]
    assert "valid: 10 sentences" in out


def test_the_cache_is_listed_and_cleared(
    trained: Path, corpus: tuple[Path, Path], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = tmp_path / "finished"
    shutil.copytree(trained, finished)
    weights = (finished / "model" / "model.safetensors").read_bytes()
    code, _, err = run("cache", finished)
    assert (code, "MB of state removed" in err, (finished / "state").exists()) == (0, True, False)
    code, out, _ = run("train", *corpus, "--out", finished, *SETTINGS)
    assert (code, "beam4 bleu" in out) == (0, True), "a finished run stays finished"
    assert (finished / "model" / "model.safetensors").read_bytes() == weights
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    assert run("prepare", *corpus, "--set", "tokenizer.vocab_size=300")[0] == 0
    assert "train.pt, train.en" in run("cache")[1]
    assert "400 of 400 pairs read" in run("cache")[1]
    assert "of 1 prepared corpora removed" in run("cache", "--clear")[2]
    assert "0.0 MB of prepared corpora" in run("cache")[1]


@pytest.mark.usefixtures("locks_of_windows")
def test_the_state_goes_though_its_lock_is_in_it(trained: Path, run: Run, tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    shutil.copytree(trained, finished)
    assert run("cache", finished)[0] == 0
    assert not (finished / "state").exists()


def test_the_state_of_a_run_that_is_not_finished_stays(corpus: tuple[Path, Path], run: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("train", *corpus, "--out", out, *SETTINGS, "--workers", "1", "--stop-after", "1")[0] == 3
    code, _, err = run("cache", out)
    assert (code, "needs its state to go on" in err) == (1, True)
    assert (out / "state" / "last.safetensors").exists()


def test_help_is_grouped_for_newcomers(run: Run) -> None:
    out = run("--help")[1]
    titles = ("Train and translate", "Compare", "Architectures of papers", "Corpora and files")
    places = [out.index(title) for title in titles]
    assert places == sorted(places)


def test_help_keeps_its_brackets(run: Run) -> None:
    assert "a table [search]" in " ".join(run("search", "--help")[1].split())


@pytest.mark.parametrize(
    ("beam_size", "repeats", "said"),
    [
        (1, 0, "greedily"),
        (4, 0, "with a beam of 4 and a length penalty of 1.0"),
        (4, 5, "with a beam of 4 and a length penalty of 1.0, and never says the same 5 tokens in a row twice"),
    ],
)
def test_what_is_said_of_a_chosen_search(
    beam_size: int, repeats: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from repose.cli import tables
    from repose.saved_run.folder import RunFolder

    decoding = {"beam_size": beam_size, "length_penalty": 1.0, "no_repeat_ngram_size": repeats}
    monkeypatch.setattr(tables, "read_config", lambda _: {"decoding": decoding})
    assert tables._how_it_searches(RunFolder(tmp_path)) == said


def test_samples_are_those_of_the_search_that_was_chosen() -> None:
    from repose.cli.tables import _search_of

    decoded = {"decoded": {"greedy": {}, "beam4": {}}}
    tried = [{"beam_size": 1, "length_penalty": 0.0, "bleu": 2.0}, {"beam_size": 4, "length_penalty": 0.6, "bleu": 3.0}]
    assert _search_of(decoded) == "beam4"
    assert _search_of({**decoded, "decoding_chosen": tried}) == "beam4"
    assert _search_of({**decoded, "decoding_chosen": [{**tried[0], "bleu": 3.0}, tried[1]]}) == "greedy"
