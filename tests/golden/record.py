"""Records what the package does today, in the JSON files beside this script: `python tests/golden/record.py`.

`test_golden` computes the same again with these functions and compares. Record anew only after a change of numbers that
is meant, and say so in the CHANGELOG. `--fixtures` also makes `corpus/` and the old directories anew; these were
trained by the code of then, and stand for what users have on their disks, so that there should be no reason to.

All that is not public is imported in the next few lines.
"""

# Internal to the package: to be edited when modules move.
import repose.training.loop as training_loop  # RECORD_EVERY: updates between records in metrics.jsonl
from repose.cli.main import app
from repose.config.file import from_json, load, shipped
from repose.config.run_id import run_id
from repose.grids.grid import read_grid, shipped_grids
from repose.model.presets import PRESETS

# isort: split
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner, Result

import repose

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "results"
_LONG = re.compile(rb"\d+\.\d{10,}(?:e-?\d+)?")
CORPUS, OLD_RUN, OLD_MODEL, OLD_LANGUAGE_RUN = (
    HERE / name for name in ("corpus", "old_run", "old_model", "old_language_run")
)
UPDATES = 20
TRAINED = ("baseline", "reinforced", "original", "enhanced", "tupe-r", "rotary")
"""Presets that are trained: those whose code differs most."""
TRAININGS = (
    *((name, "translation", precision) for name in TRAINED for precision in ("fp32", "bf16")),
    ("reinforced-prefix", "language_modelling", "fp32"),
    ("reinforced", "parsing", "fp32"),
)
"""(preset, task, precision)."""
REPORTS = ("reinforced-trials-small", "language-modelling-small", "enhanced-small/ko-en")
"""Folders of results/: a grid of translations, one of another task, runs without a grid."""
EXAMPLE = "reinforced-trials-small"
"""That whose report is kept in results/ as an example; pages of the others are made when they are wanted."""
MARKDOWN = "enhanced-small/ko-en"
"""That whose Markdown is kept as a whole."""
SIZES = {"d_token": 16, "num_heads": 2, "head_dim": 8, "d_ff": 32, "num_encoder_layers": 2, "num_decoder_layers": 2}
ENDINGS = {"translation": ("pt", "en"), "language_modelling": ("en",), "parsing": ("conllu",)}


def environment() -> dict[str, str]:
    """What the last bits of a float depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.M) if cpuinfo.exists() else None
    return {
        "processor": found.group(1) if found else platform.processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        **{name: importlib.metadata.version(name) for name in ("torch", "tokenizers", "matplotlib")},
    }


@contextlib.contextmanager
def surroundings(home: Path, folder: Path) -> Iterator[None]:
    """Within: one thread, this cache, this working directory."""
    before, threads = os.environ.get("REPOSE_HOME"), torch.get_num_threads()
    os.environ["REPOSE_HOME"] = str(home)
    torch.set_num_threads(1)
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        torch.set_num_threads(threads)
        if before is None:
            del os.environ["REPOSE_HOME"]
        else:
            os.environ["REPOSE_HOME"] = before


def cli(*args: str | Path) -> Result:
    """The command line, in this process."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def sha256(content: bytes | str) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def files_of(folder: Path) -> dict[str, str]:
    """Every file under a folder, by its SHA-256; a lock says which process had it last."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock")
    return {path.relative_to(folder).as_posix(): sha256(_content(path)) for path in files}


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return _rounded(content) if path.suffix in (".csv", ".json") else content


def _rounded(content: bytes) -> bytes:
    """With nine digits of long numbers: versions of Python add numbers up differently."""
    return _LONG.sub(lambda found: b"%.9g" % float(found[0]), content)


# Models


def model(name: str) -> dict[str, Any]:
    """A preset: the parameters of its full size; keys, shapes and initial values of a small one, and its loss."""
    architecture = repose.presets()[name]
    tied = architecture.tie_embeddings == "all"
    with torch.device("meta"):
        full = repose.Transformer(architecture, src_vocab_size=7765, tgt_vocab_size=7765 if tied else 7010)
    small = dataclasses.replace(architecture, **SIZES, max_length=64)
    built = repose.build(small, src_vocab_size=96, tgt_vocab_size=96 if tied else 80, seed=0).eval()
    state = built.state_dict()
    with torch.no_grad():
        src, tgt = (_ids(rows=3, columns=columns) for columns in (9, 7))
        losses = torch.nn.functional.cross_entropy(built(src, tgt[:, :-1]).mT, tgt[:, 1:], reduction="none")
    return {
        "parameters": sum(parameter.numel() for parameter in full.parameters()),
        "published": PRESETS[name].published_parameters,
        "values": sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in state.values())),
        "sum": sum(tensor.double().abs().sum().item() for tensor in state.values()),
        "loss": losses.double().mean().item().hex(),
        "shapes": {key: " ".join(map(str, tensor.shape)) for key, tensor in state.items()},
    }


def models() -> dict[str, Any]:
    """Of every preset. Shapes that an earlier one has are that one's name."""
    found = {name: model(name) for name in PRESETS}
    first: dict[str, str] = {}
    for name, content in found.items():
        twin = first.setdefault(json.dumps(content["shapes"]), name)
        if twin != name:
            content["shapes"] = twin
    return found


def decoded() -> dict[str, Any]:
    """Translations by an untrained model of every preset that can translate; sizes and dropout apart, each once.

    Sources are of one and three words. Weights are doubled, for probabilities that differ; the tokenizers are those of
    the old model.
    """
    words = (CORPUS / "test.pt").read_text(encoding="utf-8").split()
    sources = [" ".join(words[5 * n : 5 * n + n]) for n in (1, 3)]
    found, seen = {}, set()
    with repose.load(OLD_MODEL, workers=1) as loaded, surroundings(HERE, HERE):
        src, tgt = loaded.src_tokenizer, loaded.tgt_tokenizer
        for name, architecture in repose.presets().items():
            tie = architecture.tie_embeddings.replace("all", "output")
            dropout = dict.fromkeys(("dropout", "attention_dropout", "attention_output_dropout"), 0.0)
            small = dataclasses.replace(architecture, **SIZES, **dropout, max_length=64, tie_embeddings=tie)
            if not small.looks_ahead and small not in seen:
                seen.add(small)
                built = repose.build(small, src_vocab_size=src.vocab_size, tgt_vocab_size=tgt.vocab_size, seed=1)
                for parameter in built.parameters():
                    parameter.data.mul_(2.0)
                found[name] = _searched(repose.Translator(built, src, tgt, max_extra_tokens=0, workers=1), sources)
    return found


def _ids(rows: int, columns: int) -> torch.Tensor:
    """Token ids, START first, the last row padded."""
    ids = 4 + torch.arange(rows * columns).mul(37).remainder(71).view(rows, columns)
    ids[:, 0], ids[:, -1], ids[-1, -2:] = 2, 3, 0
    return ids


# Trainings


def corpus_settings(task: str) -> list[str]:
    """The corpus, found from this folder."""
    files = {split: [f"corpus/{split}.{end}" for end in ENDINGS[task]] for split in ("train", "valid", "test")}
    return [f"corpus.{split}={json.dumps(names)}" for split, names in files.items()]


def training_settings(preset: str, task: str, *more: str) -> list[str]:
    """Arguments of `repose train` for a small model of a preset and a short training."""
    sizes = {f"architecture.{name}": value for name, value in (SIZES | {"max_length": 64}).items()}
    settings: dict[str, object] = sizes | {
        "tokenizer.vocab_size": 300,
        "training.task": task,
        "training.batch_size": 300,
        "training.max_src_tokens": 60,
        "training.max_tgt_tokens": 60,
        "training.epochs": "none",
        "training.updates": UPDATES,
        "training.schedule": "constant",
        "training.learning_rate": 0.01,
        "training.warmup_share": "none",
        "training.warmup_updates": 2,
        "training.label_smoothing": 0.0 if task == "parsing" else 0.1,
        "training.patience": "none",
        "decoding.max_extra_tokens": 5,
    }
    pairs = [*corpus_settings(task), *(f"{name}={value}" for name, value in settings.items()), *more]
    return ["--preset", preset, *(word for pair in pairs for word in ("--set", pair))]


def train(folder: Path, preset: str, task: str, *more: str) -> Result:
    """`repose train` on the corpus of the working directory."""
    where = ("--config", "default", "--out", folder, "--device", "cpu", "--workers", "1")
    return cli("train", *where, *training_settings(preset, task, *more))


def training(preset: str, task: str, precision: str, home: Path, folder: Path) -> dict[str, Any]:
    """Losses and norms of each update, in hexadecimal; the last validation; scores; and translations."""
    before, training_loop.RECORD_EVERY = training_loop.RECORD_EVERY, 1
    try:
        with surroundings(home, HERE):
            words = ["tokenizer.kind=wordpiece", "training.batch_size=90"] if task == "translation" else []
            train(folder, preset, task, f"training.precision={precision}", *words)
            found = _trained(folder)
            if task == "translation" and precision == "fp32":
                found["translations"] = translations(folder)
    finally:
        training_loop.RECORD_EVERY = before
    return found


def _trained(folder: Path) -> dict[str, Any]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    updates = [record for record in records if record["kind"] == "train"]
    config, scores = (json.loads((folder / name).read_text()) for name in ("config.json", "scores.test.json"))
    figures = scores.get("teacher_forced") or {name: f["value"] for name, f in scores["figures"].items()}
    return {
        "run_id": config["run_id"],
        "digests": config["digests"],
        "losses": [record["loss"].hex() for record in updates],
        "norms": [record["grad_norm"].hex() for record in updates],
        "valid": [record["tf_loss"].hex() for record in records if record["kind"] == "valid"],
        "figures": {name: float(value).hex() for name, value in figures.items() if "flops" not in name},
    }


def translations(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Tokens and score of the best hypothesis of each test sentence, greedily and with a beam of four."""
    sources = (CORPUS / "test.pt").read_text(encoding="utf-8").splitlines()
    with repose.load(folder, workers=1, engine="torch") as translator:
        return _searched(translator, sources)


def _searched(translator: repose.Translator, sources: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    found = {name: translator.translate(sources, beam_size=size) for name, size in (("greedy", 1), ("beam4", 4))}
    return {
        name: [{"tokens": " ".join(t.hypotheses[0].tokens), "score": t.score.hex()} for t in each]
        for name, each in found.items()
    }


# Run ids


def run_ids() -> dict[str, Any]:
    """Of every shipped experiment and cell, as if all data had one digest; and of every run in results/."""
    grids = [name for name, _, _ in shipped_grids()]
    runs = {}
    for path in sorted(RESULTS.rglob("config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        if "experiment" in config:
            experiment = from_json(json.dumps(config["experiment"]), str(path))
            runs[path.parent.relative_to(RESULTS).as_posix()] = run_id(experiment, config["digests"])
    return {
        "experiments": {name: _run_id(load(name).experiment) for name in shipped() if name not in grids},
        "grids": {name: {cell.name: _run_id(cell.experiment) for cell in read_grid(name).cells} for name in grids},
        "runs": runs,
    }


def _run_id(experiment: repose.Experiment) -> str:
    return run_id(experiment, {"train": "0", "valid": "0", "src": "0", "tgt": "0", "init_from": "0"})


# Reports


_LOOKS = r"<picture>.*?</picture>|<svg\b.*?</svg>|<style>.*?</style>"
"""Pictures of a page and its style sheet, which has their colours."""


def report(source: Path, home: Path, out: Path) -> dict[str, Any]:
    """Digests of what `repose report` writes: text, numbers, and the page with and without its pictures."""
    with surroundings(home, source.parent):
        cli("report", source.name, "--out", out)
    page = (out / "report.html").read_text(encoding="utf-8")
    files = files_of(out)
    return {
        "texts": {name: digest for name, digest in files.items() if name.endswith((".md", ".csv", ".tex"))},
        "json": files["report.json"],
        "html": files["report.html"],
        "html_without_pictures": sha256(_rounded(re.sub(_LOOKS, "", page, flags=re.DOTALL).encode())),
    }


# Old directories

OLD_SETTINGS = (
    *("architecture.num_encoder_layers=1", "architecture.num_decoder_layers=1", "architecture.num_heads=1"),
    *("architecture.d_ff=16", "training.updates=150", "training.validate_every_updates=50", "training.keep=best"),
)


def train_old(folder: Path) -> Result:
    """`repose train` of the old run, in the working directory, which has `corpus`."""
    return train(folder, "reinforced", "translation", *OLD_SETTINGS, "architecture.d_token=10")


def train_old_language(folder: Path) -> Result:
    """The same of the old run of a language model."""
    return train(folder, "reinforced-prefix", "language_modelling", *OLD_SETTINGS, "architecture.d_token=4")


def old(home: Path, folder: Path) -> dict[str, Any]:
    """What is made of the old directories, in a folder with copies of them."""
    for source in (CORPUS, OLD_RUN, OLD_MODEL, OLD_LANGUAGE_RUN):
        shutil.copytree(source, folder / source.name)
    found: dict[str, Any] = {"translations": translations(OLD_MODEL)}
    for name, again in ((OLD_RUN.name, train_old), (OLD_LANGUAGE_RUN.name, train_old_language)):
        with surroundings(home, folder):
            code = again(Path(name)).exit_code
            evaluation = folder / f"evaluation of {name}"
            cli("evaluate", name, "--out", evaluation)
            scores = json.loads((evaluation / "scores.test.json").read_text(encoding="utf-8"))
            for digest in ("sha256", "own_crc32"):  # of the file
                scores.pop(digest, None)
        found[name] = {
            "exit_code": code,
            "files": files_of(folder / name),  # after training again, which changes nothing
            "scores": scores,
            "hypotheses": files_of(evaluation / "hypotheses") if (evaluation / "hypotheses").exists() else {},
            "report": report(folder / name, home, folder / f"report of {name}")["texts"],
        }
    return found


def make_fixtures() -> None:
    """`corpus/` and the old directories."""
    sys.path.append(str(Path(__file__).parents[2] / "tools"))
    from phrasebook.corpus import generate

    pairs = generate(92)
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir()
    for split, part in (("train", pairs[:72]), ("valid", pairs[72:80]), ("test", pairs[80:])):
        for side, language in enumerate(("pt", "en")):
            text = "".join(pair[side] + "\n" for pair in part)
            (CORPUS / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
        text = "".join(_chain(english.split()) for _, english in part)
        (CORPUS / f"{split}.conllu").write_text(text, encoding="utf-8", newline="\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(CORPUS, folder / "corpus")
        for target, make in ((OLD_RUN, train_old), (OLD_LANGUAGE_RUN, train_old_language)):
            with surroundings(folder / "home", folder):
                make(Path(target.name))
            config = folder / target.name / "config.json"  # the one place that has paths: made relative
            config.write_text(config.read_text(encoding="utf-8").replace(f"{folder}/", ""), encoding="utf-8")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder / target.name, target)
    shutil.rmtree(OLD_MODEL, ignore_errors=True)
    shutil.copytree(OLD_RUN / "model", OLD_MODEL)


def _chain(words: Sequence[str]) -> str:
    """A tree in which each word hangs on the next one."""
    last = len(words)
    rows = (f"{n}\t{word}\t_\t_\t_\t_\t{n + 1 if n < last else 0}" for n, word in enumerate(words, 1))
    labels = ("root" if n == last else "long" if len(word) > 4 else "short" for n, word in enumerate(words, 1))
    return "".join(f"{row}\t{label}\t_\t_\n" for row, label in zip(rows, labels, strict=True)) + "\n"


# Files


def read(name: str) -> Any:
    """A golden file."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def _write(name: str, content: object) -> None:
    """JSON with short lists and innermost tables on one line."""
    (HERE / f"{name}.json").write_text(_json(content, "") + "\n", encoding="utf-8")


def _json(content: object, indent: str) -> str:
    line = json.dumps(content, ensure_ascii=False)
    if not isinstance(content, dict | list) or len(indent) + len(line) < 110:
        return line
    deeper = indent + " "
    if isinstance(content, dict):
        rows = [f"{deeper}{json.dumps(key)}: {_json(value, deeper)}" for key, value in content.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _json(value, deeper) for value in content) + f"\n{indent}]"


def training_name(preset: str, task: str, precision: str) -> str:
    """Of a training, in training.json and as a folder."""
    return f"{preset} {task} {precision}"


def main() -> None:
    """Writes all golden files."""
    if "--fixtures" in sys.argv[1:]:
        make_fixtures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        home = folder / "home"
        _write("environment", environment())
        _write("models", models())
        _write("decoded", decoded())
        _write("training", {(n := training_name(*t)): training(*t, home, folder / n) for t in TRAININGS})
        _write("run_ids", run_ids())
        outs = {source: folder / "reports" / source for source in REPORTS}
        _write("reports", {source: report(RESULTS / source, home, out) for source, out in outs.items()})
        shutil.copyfile(outs[MARKDOWN] / "report.md", HERE / "report.md")
        (folder / "old").mkdir()
        _write("old", old(home, folder / "old"))


if __name__ == "__main__":
    main()
