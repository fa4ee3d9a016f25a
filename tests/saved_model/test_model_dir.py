"""Model directories: round trips, damaged ones are refused, and no reader sees half a model."""

import dataclasses
import gc
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import LOOKS_AHEAD, MODEL_KIND
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.model.transformer import Transformer, build
from repose.saved_model import directory as model_dir
from repose.system.device import find_device
from repose.system.errors import CheckpointError, DeviceError, WriteError
from repose.system.files import previous

LINES = ["the small boat waits", "a boat and a small lamp", "lamps wait in the rain", "the rain is small"]
TINY = dataclasses.replace(
    preset("reinforced"), d_token=8, num_heads=2, head_dim=4, d_ff=12, max_length=32, num_encoder_layers=1
)
TIED = dataclasses.replace(
    Architecture(), d_token=8, num_heads=2, head_dim=4, d_ff=12, max_length=32, num_encoder_layers=1
)
ARCHITECTURES = {
    "reinforced": TINY,
    "looks ahead": dataclasses.replace(TINY, decoder_token_norm="sentence"),
    "one table": TIED,
    "tied output": dataclasses.replace(TIED, tie_embeddings="output"),
    "learned positions, pre-norm": dataclasses.replace(TIED, positions="learned", norm="pre"),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, kind="wordlevel", vocab_size=40)


@pytest.fixture(scope="module")
def other_tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES[:2], kind="wordlevel", vocab_size=40)


def built(tokenizer: Tokenizer, architecture: Architecture = TINY, seed: int = 0) -> Transformer:
    size = tokenizer.vocab_size
    return build(architecture, src_vocab_size=size, tgt_vocab_size=size, seed=seed).eval()


def saved(folder: Path, tokenizer: Tokenizer, model: Transformer | None = None, **extra: object) -> Path:
    """A model directory with seed 0's weights, or those of `model`."""
    model, texts = model or built(tokenizer), [tokenizer.json] * 2
    warning = LOOKS_AHEAD if model.architecture.looks_ahead else None
    model_dir.save(folder, MODEL_KIND, model, texts, card="# A model\n", extra=extra, warning=warning)
    return folder


def logits(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[2, 5, 6, 3], [2, 4, 3, 0]]), torch.tensor([[2, 4, 5], [2, 6, 0]]))


def refusal(folder: Path) -> str:
    """What a user reads."""
    with pytest.raises(CheckpointError) as caught:
        model_dir.load(folder, MODEL_KIND)
    text = str(caught.value)
    assert "\n" not in text
    return text


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    """Change config.json, as somebody's hand could."""
    path = folder / "config.json"
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def sign(folder: Path) -> None:
    """Write the digests of the files as they are, so that what lies behind that check is reached."""
    names = ["model.safetensors", "tokenizer.src.json", "tokenizer.tgt.json"]
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    edit(folder, lambda table: table.update(sha256=digests))


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage stays; only the test of a writer at work needs another attempt."""
    monkeypatch.setattr(model_dir, "_ATTEMPTS", 1)


# Round trip


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_is_saved_is_loaded(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = built(tokenizer, ARCHITECTURES[name], seed=3)
    loaded = model_dir.load(
        saved(tmp_path / "a" / "model", tokenizer, model, run_id="abc", decoding={"beam_size": 2}), MODEL_KIND
    )
    assert torch.equal(logits(loaded.model), logits(model))
    assert loaded.model.architecture == model.architecture
    assert not loaded.model.training
    assert [t.json for t in loaded.tokenizers] == [tokenizer.json] * 2
    assert (loaded.config["run_id"], loaded.config["decoding"]) == ("abc", {"beam_size": 2})
    assert loaded.config["format_version"] == 1
    assert loaded.config["src_vocab_size"] == loaded.config["tgt_vocab_size"] == tokenizer.vocab_size
    assert loaded.config["versions"]["torch"] == torch.__version__
    assert loaded.config["architecture"] == dataclasses.asdict(model.architecture)
    tied = sum(p.numel() for p in loaded.model.parameters())
    assert tied == sum(p.numel() for p in model.parameters()), "tied matrices are tied again"


def test_the_folder_holds_five_files(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    names = {"config.json", "model.safetensors", "tokenizer.src.json", "tokenizer.tgt.json", "README.md"}
    assert {path.name for path in folder.iterdir()} == names
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (folder / "README.md").read_text() == "# A model\n"


def test_buffers_and_tied_matrices_are_not_stored_twice(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = built(tokenizer, TIED)
    with safe_open(saved(tmp_path / "model", tokenizer, model) / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert names == {name for name, _ in model.named_parameters()}
    assert len([name for name in names if "tokens" in name or name == "output.weight"]) == 1


def test_the_two_sides_are_kept_apart(tmp_path: Path, tokenizer: Tokenizer, other_tokenizer: Tokenizer) -> None:
    sizes = (tokenizer.vocab_size, other_tokenizer.vocab_size)
    assert sizes[0] != sizes[1]
    model = build(TINY, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1])
    texts = [tokenizer.json, other_tokenizer.json]
    model_dir.save(tmp_path / "m", MODEL_KIND, model, texts, card="", extra={})
    loaded = model_dir.load(tmp_path / "m", MODEL_KIND)
    assert [t.json for t in loaded.tokenizers] == texts
    assert (loaded.model.src_vocab_size, loaded.model.tgt_vocab_size) == sizes


def test_loading_leaves_the_random_state_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    before = torch.get_rng_state()
    model_dir.load(folder, MODEL_KIND)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_directory_is_accepted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    saved(tmp_path / "run" / "model", tokenizer, run_id="abc")
    (tmp_path / "run" / "config.json").write_text("{}")
    assert model_dir.load(tmp_path / "run", MODEL_KIND).config["run_id"] == "abc"
    assert model_dir.read_config(tmp_path / "run")["run_id"] == "abc"


def test_a_model_that_looks_ahead_says_so(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = built(tokenizer, ARCHITECTURES["looks ahead"])
    folder = saved(tmp_path / "model", tokenizer, model)
    assert LOOKS_AHEAD in (folder / "README.md").read_text()
    assert model_dir.load(folder, MODEL_KIND).config["looks_ahead"] == LOOKS_AHEAD
    assert model_dir.load(saved(tmp_path / "b", tokenizer), MODEL_KIND).config["looks_ahead"] is None


def test_the_settings_can_be_read_without_torch(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer, run_id="abc")
    code = (
        "import sys, pathlib, repose.saved_model.directory as m; "
        "print(m.read_config(pathlib.Path(sys.argv[1]))['run_id']); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    assert done.stdout == "abc\n"


# Damage


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.src.json", "tokenizer.tgt.json"])
def test_missing_files(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    (folder / name).unlink()
    assert f"{folder / name} is missing" in refusal(folder)


def test_missing_folders(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal(tmp_path / "file")
    assert "is not a model: it holds neither config.json nor model.safetensors" in refusal(tmp_path)
    (tmp_path / "model.safetensors").write_text("")
    assert "config.json is missing" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.src.json", "tokenizer.tgt.json"])
def test_changed_bytes_are_found(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    assert f"{folder / name} is damaged or of another model" in refusal(folder)


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flip(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


@pytest.mark.parametrize(
    "damage", [_cut, lambda _: b"", lambda data: data[:4], *map(_flip, (0, 7, 8, 12, 20, 60, 100, 200))]
)
def test_damaged_weights_behind_the_digest(
    damage: Callable[[bytes], bytes], tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    sign(folder)
    assert str(path) in refusal(folder)


def test_weights_of_another_architecture(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    path = folder / "model.safetensors"
    weights = {name: weight.clone() for name, weight in load_file(path).items()}  # whose file is written over
    name = "output.weight"
    cases = {
        "tensor 'output.weight' is missing where": {n: w for n, w in weights.items() if n != name},
        "tensor 'new' is ((1,), float32) where its config.json has nothing": {**weights, "new": torch.zeros(1)},
        "tensor 'output.weight' is ((2, 3), float32) where": {**weights, name: torch.zeros(2, 3)},
        "float16) where its config.json has": {**weights, name: weights[name].half()},
    }
    for expected, tensors in cases.items():
        save_file(tensors, path)
        sign(folder)
        assert expected in refusal(folder)


def test_a_pickle_is_not_executed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    folder = saved(tmp_path / "model", tokenizer)
    for name in ("model.safetensors", "tokenizer.src.json"):
        folder = saved(tmp_path / "model", tokenizer)
        (folder / name).write_bytes(pickle.dumps(Bomb()))
        sign(folder)
        assert str(folder / name) in refusal(folder)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.update(format_version=2), "written by a newer repose (format 2, this one reads 1)"),
        (lambda c: c.update(format_version="1"), "has no format_version"),
        (lambda c: c.pop("format_version"), "has no format_version"),
        (lambda c: c["architecture"].update(positions="spiral"), "architecture.positions = 'spiral'"),
        (lambda c: c["architecture"].update(rotary=True), "architecture.rotary = True"),
        (
            lambda c: c["architecture"].update(tie_embeddings="all"),
            "can be built: tie_embeddings",
        ),
        (lambda c: c["architecture"].update(d_token=10**15), "describes no model that can be built"),
        (lambda c: c["architecture"].update(d_token=10**400), "has architecture.d_token = 1000000"),
        (
            lambda c: c["architecture"].update(d_ff=10**11),
            "can be built: this architecture has about",
        ),
        (lambda c: c["architecture"].update(d_ff=10**6), "belongs to another architecture"),
        (lambda c: c["architecture"].update(num_decoder_layers=10**9), "the file is damaged"),
        (lambda c: c["architecture"].update(max_length=10**9), "the file is damaged"),
        (lambda c: c.update(architecture=3), "has no section architecture"),
        (lambda c: c.pop("architecture"), "has no section architecture"),
        (lambda c: c.update(src_vocab_size=10), "belongs to another architecture"),
        (lambda c: c.update(src_vocab_size=10**12), "belongs to another architecture"),
        (lambda c: c.update(tgt_vocab_size=-1), "no usable tgt_vocab_size"),
        (lambda c: c.update(tgt_vocab_size="x"), "no usable tgt_vocab_size"),
        (lambda c: c.pop("sha256"), "has no section sha256"),
        (lambda c: c.update(sha256=[]), "has no section sha256"),
        (lambda c: c.update(task=3), "has no usable task"),
        (lambda c: c.update(task="evil"), "holds a model of 'evil', but one of 'translation' is needed"),
        (lambda c: c.update(task="evil\x1b[31m"), "has no usable task"),
        (lambda c: c.update(run_id="\x1b]0;mine\x07"), "has no usable run_id"),
        (lambda c: c.update(run_id={"a": 1}), "has no usable run_id"),
        (lambda c: c.update(decoding=[["beam_size", 4]]), "has no usable decoding"),
        (lambda c: c.update(decoding_asked=None), "has no usable decoding_asked"),
        (lambda c: c.update(architecture="ab"), "has no section architecture"),
        (lambda c: c["architecture"].update(positions=[]), "config.json"),
        (lambda c: c.update(sha256={}), "its SHA-256 is not config.json's"),
    ],
)
def test_settings_that_cannot_be_used(
    change: Callable[[dict], object], expected: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    edit(folder, change)
    assert expected in refusal(folder)


def test_tables_that_no_file_bounds_are_refused_before_they_are_allocated(tmp_path: Path, tokenizer: Tokenizer) -> None:
    wide = dataclasses.replace(TIED, d_token=512, d_ff=1)
    folder = saved(tmp_path / "model", tokenizer, built(tokenizer, wide))
    edit(folder, lambda c: c["architecture"].update(max_length=2**20))
    assert "tables of positions take 4,096 MiB, but at most 1,024 MiB are read" in refusal(folder)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, "\0"])
def test_settings_that_are_no_json_object(text: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    (folder / "config.json").write_text(text)
    assert str(folder / "config.json") in refusal(folder)


def test_settings_that_were_damaged_are_not_written_over(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    text = (folder / "config.json").read_text().replace('"d_ff"', '"d_fg"')
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match="has changed since it was written"):
        model_dir.change_config(folder, {"decoding": {}})
    assert (folder / "config.json").read_text() == text


def test_a_file_name_with_a_nul_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    edit(folder, lambda c: c["sha256"].update({"a\0b": "0" * 64}))
    with pytest.raises(CheckpointError, match="cannot be read"):
        model_dir.check(folder)


def test_a_weights_file_too_large_for_its_model_is_not_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(2**40)  # a hole, which takes no space
    assert f"has {2**40} bytes" in refusal(folder)


def test_a_tokenizer_of_another_size(tmp_path: Path, tokenizer: Tokenizer, other_tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    (folder / "tokenizer.tgt.json").write_text(other_tokenizer.json)
    sign(folder)
    assert f"has {other_tokenizer.vocab_size} tokens where the model has {tokenizer.vocab_size}" in refusal(folder)


@pytest.mark.parametrize("number", [2**31, 10**6])
def test_an_id_beyond_the_vocabulary_is_refused_at_once(number: int, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The library would write, and so hold, a vocabulary of so many places."""
    folder = saved(tmp_path / "model", tokenizer)
    spec = json.loads(tokenizer.json)
    spec["model"]["vocab"]["far"] = number
    (folder / "tokenizer.src.json").write_text(json.dumps(spec))
    sign(folder)
    assert f"up to {number:,}, so train or copy the tokenizer again" in refusal(folder)


# Nothing outside


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.src.json"])
def test_links_out_of_the_folder_are_refused(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert "is not a file within the model directory" in refusal(folder)


def test_what_is_no_regular_file_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    path = folder / "tokenizer.src.json"
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    assert "is not a file within the model directory" in refusal(folder)
    path.unlink()
    path.symlink_to(path.name)  # a loop
    assert "cannot be read" in refusal(folder)


def test_a_reader_without_weights_begins_again_too(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "m", tokenizer)
    read, tries = model_dir._without_weights, iter([True])

    def once_overtaken(*args: Any) -> Any:
        if next(tries, False):
            raise CheckpointError("another model by now")
        return read(*args)

    monkeypatch.setattr(model_dir, "_ATTEMPTS", 2)
    monkeypatch.setattr(model_dir, "_without_weights", once_overtaken)
    assert model_dir.load_without_weights(tmp_path / "m", MODEL_KIND)[1] == model_dir.read_config(tmp_path / "m")


def test_a_link_to_the_folder_is_followed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer)
    (tmp_path / "link").symlink_to(folder)
    assert model_dir.load(tmp_path / "link", MODEL_KIND).config["format_version"] == 1
    saved(tmp_path / "link", tokenizer, run_id="new")
    assert (tmp_path / "link").is_symlink()
    assert model_dir.read_config(folder)["run_id"] == "new"


# Devices


@pytest.mark.parametrize("name", ["cdua", "cuda:x", "cpu:", "meta", "", "cpu0"])
def test_unknown_devices(name: str) -> None:
    with pytest.raises(DeviceError, match="there is no device"):
        find_device(name)


def test_absent_devices(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(DeviceError, match="'cuda' is not available, this machine has none"):
        model_dir.load(saved(tmp_path / "model", tokenizer), MODEL_KIND, "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="'cuda' is not available, this machine has none"):
        find_device("cuda")  # with a driver that is too old
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceError, match="this machine has only 2"):
        find_device("cuda:2")


# Replacing a model


class Stopped(BaseException):
    """The process ends here."""


def _stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """End the process before the given change of the file system; count how many there were, by this thread alone."""
    count, writer = 0, threading.get_ident()

    def watched(function: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal count
            if threading.get_ident() == writer:  # what other tests left running writes its own files
                if count == step:
                    raise Stopped
                count += 1
            return function(*args, **kwargs)

        return call

    for owner, name in [(Path, "rename"), (Path, "mkdir"), (Path, "open"), (os, "fsync"), (shutil, "rmtree")]:
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    return lambda: count


def test_a_writer_stopped_anywhere_leaves_a_whole_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    old, new = built(tokenizer, seed=1), built(tokenizer, seed=2)
    outcomes = []
    for step in range(100):
        folder = saved(tmp_path / str(step) / "model", tokenizer, old, run_id="old")
        (folder / "notes.txt").write_text("mine")
        with pytest.MonkeyPatch.context() as patch:
            count = _stop_at(step, patch)
            try:
                gc.disable()  # it may remove folders that nobody holds any longer
                saved(folder, tokenizer, new, run_id="new")
                finished = True
            except Stopped:
                finished = False
            finally:
                gc.enable()
            assert count() <= step or finished
        loaded = model_dir.load(folder, MODEL_KIND)
        outcomes.append(loaded.config["run_id"])
        assert torch.equal(logits(loaded.model), logits({"old": old, "new": new}[outcomes[-1]]))
        saved(folder, tokenizer, new, run_id="next")
        assert model_dir.read_config(folder)["run_id"] == "next"
        assert (folder / "notes.txt").read_text() == "mine"
        assert [path.name for path in folder.parent.iterdir()] == ["model"]
        if finished:
            break
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"old", "new"}
    assert len(outcomes) > 15, "the steps were not watched"


def test_a_failed_rename_brings_the_old_model_back(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model", tokenizer, run_id="old")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(WriteError, match=r"cannot be written \(No space left"):
        saved(folder, tokenizer, run_id="new")
    assert folder.is_dir()
    assert model_dir.load(folder, MODEL_KIND).config["run_id"] == "old"


@pytest.mark.parametrize("moment", ["config.json", "model.safetensors", "tokenizer.src.json"])
def test_a_reader_overtaken_by_a_writer_gets_the_new_model(
    moment: str, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = built(tokenizer, seed=1), built(tokenizer, seed=2)
    folder = saved(tmp_path / "model", tokenizer, old, run_id="old")
    read, done = model_dir._read, []
    monkeypatch.setattr(model_dir, "_ATTEMPTS", 2)

    def overtaken(folder: Path, name: str, *rest: object) -> bytes:
        data = read(folder, name, *rest)
        if name == moment and not done:
            done.append(name)
            saved(folder, tokenizer, new, run_id="new")
        return data

    monkeypatch.setattr(model_dir, "_read", overtaken)
    loaded = model_dir.load(folder, MODEL_KIND)
    # Overtaken after the weights were read, the files that follow are the same in both models.
    expected = new if moment == "config.json" else old
    assert loaded.config["run_id"] == ("new" if moment == "config.json" else "old")
    assert torch.equal(logits(loaded.model), logits(expected))


def test_other_folders_are_not_overwritten(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    with pytest.raises(CheckpointError, match="holds something other than a model"):
        saved(tmp_path / "photos", tokenizer)
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "cat"
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot be written"):
        saved(tmp_path / "file" / "model", tokenizer)
    with pytest.raises(WriteError, match="cannot be written"):
        saved(tmp_path / "file", tokenizer)
    (tmp_path / "empty").mkdir()
    assert model_dir.load(saved(tmp_path / "empty", tokenizer), MODEL_KIND)


def test_the_current_folder_may_be_a_model(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(saved(tmp_path / "model", tokenizer))
    assert model_dir.load(Path(), MODEL_KIND)
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="is not a model"):
        model_dir.load(Path(), MODEL_KIND)


def test_names_in_use_while_a_folder_is_replaced() -> None:
    assert previous(Path("a/model")) == Path("a/.model.old")
