"""An export to ONNX translates with only the packages of the extra `runtime` installed."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import repose
from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import MODEL_KIND
from repose.saved_model import directory

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LINES = ["ka lo mi", "lo lo"]
MOST_MEGABYTES = 200


def add(requirements: list[str], extra: str, found: dict[str, metadata.Distribution], *but: str) -> None:
    """The distributions that these requirements bring, by name, without those in `but` and what only they bring."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            key = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if key not in found and key not in but:
                found[key] = metadata.distribution(key)
                for each in requirement.extras or {""}:
                    add(metadata.requires(key) or [], each, found, *but)


def put_together(folder: Path, *but: str) -> int:
    """Fill a folder with what `pip install repose-nmt[runtime]` would bring; its size in bytes."""
    found: dict[str, metadata.Distribution] = {}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    add([*project["dependencies"], *project["optional-dependencies"]["runtime"]], "", found, *but)
    num_bytes = 0
    for distribution in found.values():
        for file in distribution.files or []:
            place = Path(str(distribution.locate_file(file)))
            if place.is_file() and ".." not in file.parts and place.suffix != ".pyc":
                num_bytes += place.stat().st_size
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(place.resolve())
    (folder / "repose").symlink_to(Path(repose.__file__).parent)
    return num_bytes


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder of what it would bring, and its size in bytes."""
    folder = tmp_path_factory.mktemp("environment")
    return folder, put_together(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    tokenizer = Tokenizer.train(["ka lo mi"] * 3, kind="wordlevel", vocab_size=20)
    torch.manual_seed(0)
    sizes = {"src_vocab_size": tokenizer.vocab_size, "tgt_vocab_size": tokenizer.vocab_size}
    made = repose.build("reinforced", **sizes).eval()
    directory.save(folder, MODEL_KIND, made, (tokenizer.json,) * 2, card="", extra={})
    return folder


def run(
    environment: Path, *command: str, given: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Python that finds nothing but the environment and its own library."""
    start = f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(environment)!r}]; "
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + command[0], *command[1:]],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )


def test_what_it_brings_is_small(environment: tuple[Path, int]) -> None:
    folder, num_bytes = environment
    assert not (folder / "torch").exists()
    assert not (folder / "onnx").exists()
    assert num_bytes < MOST_MEGABYTES * 1e6


def test_an_export_translates(environment: tuple[Path, int], model: Path, tmp_path: Path) -> None:
    repose.export(model, to="onnx", out=tmp_path / "out")
    expected = [t.text for t in repose.load(model, engine="torch").translate(LINES)]
    program = "import repose, sys; print(*[t.text for t in repose.load(sys.argv[1]).translate(sys.argv[2:])], sep='|')"
    done = run(environment[0], program, str(tmp_path / "out"), *LINES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().split("|") == expected
    command = "sys.argv[0] = 'repose'; from repose.cli.main import main; main()"
    done = run(environment[0], command, "translate", str(tmp_path / "out"), given="".join(f"{x}\n" for x in LINES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.skipif(sys.platform != "linux", reason="where it keeps its identifier was looked up on Linux")
def test_onnx_runtime_does_not_report_home(environment: tuple[Path, int], model: Path, tmp_path: Path) -> None:
    """Its builds send events to their maker; the first thing that they write is an identifier of the machine."""
    repose.export(model, to="onnx", out=tmp_path / "out")
    program = "import repose, sys; repose.load(sys.argv[1]).translate(['ka'])"
    home = tmp_path / "home"
    home.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")}
    done = run(environment[0], program, str(tmp_path / "out"), env={**env, "HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert [path for path in home.rglob("*") if "Microsoft" in path.parts] == []


def test_a_hubs_library_is_required_and_not_needed(model: Path, tmp_path: Path) -> None:
    """The package `tokenizers` requires it, with all that it requires in turn, and asks it only for a hub's files."""
    folder = tmp_path / "environment"
    folder.mkdir()
    put_together(folder, "huggingface-hub")
    assert not (folder / "hf_xet").exists()
    repose.export(model, to="onnx", out=tmp_path / "out")
    command = "sys.argv[0] = 'repose'; from repose.cli.main import main; main()"
    done = run(folder, command, "translate", str(tmp_path / "out"), given="".join(f"{x}\n" for x in LINES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [t.text for t in repose.load(model, engine="torch").translate(LINES)]


def test_an_export_scores_pairs(environment: tuple[Path, int], model: Path, tmp_path: Path) -> None:
    repose.export(model, to="onnx", out=tmp_path / "out")
    for name in ("src", "tgt"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    command = "sys.argv[0] = 'repose'; from repose.cli.main import main; main()"
    done = run(environment[0], command, "score", *(str(tmp_path / name) for name in ("out", "src", "tgt")))
    assert done.returncode == 0, done.stderr
    expected = repose.load(model, engine="torch").score(LINES, LINES)
    assert [float(line) for line in done.stdout.splitlines()] == pytest.approx(expected, abs=1e-3)


def test_a_wrong_folder_is_said_before_what_it_would_need(environment: tuple[Path, int], tmp_path: Path) -> None:
    command = "sys.argv[0] = 'repose'; from repose.cli.main import main; main()"
    for name, said in (("nope", "does not exist"), (".", "holds neither config.json nor model.safetensors")):
        done = run(environment[0], command, "translate", str(tmp_path / name), given="ka\n")
        assert said in " ".join(done.stderr.split()), done.stderr


def test_what_needs_torch_says_so(environment: tuple[Path, int], model: Path, tmp_path: Path) -> None:
    command = "sys.argv[0] = 'repose'; from repose.cli.main import main; main()"
    for arguments in (("translate", str(model)), ("export", str(model), "--to", "onnx", "--out", str(tmp_path / "x"))):
        done = run(environment[0], command, *arguments, given="ka\n")
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert "pip install 'repose-nmt[train]'" in done.stderr
        assert "Traceback" not in done.stderr
    repose.export(model, to="onnx", out=tmp_path / "out")
    program = """
import repose, sys
for call in ("repose.load(sys.argv[1]).model", "repose.load(sys.argv[2], 'auto')", "repose.train", "repose.audit"):
    try:
        eval(call)
    except repose.ReposeError as error:
        print(error)
"""
    done = run(environment[0], f"exec({program!r})", str(tmp_path / "out"), str(model))
    assert done.returncode == 0, done.stderr
    of_export, *others = done.stdout.splitlines()
    assert "this needs the torch model, which an export does not hold" in of_export
    assert len(others) == 3
    assert all("pip install 'repose-nmt[train]'" in sentence for sentence in others), others
