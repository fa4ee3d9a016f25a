"""Models on a hub: here a local server with the hub's endpoints."""

import dataclasses
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import repose
from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import MODEL_KIND
from repose.model.presets import preset
from repose.runs.fine_tuning import settings_of
from repose.saved_model import directory, hub
from repose.saved_model.api import build
from repose.system.errors import CheckpointError, ConfigError, HubError

constants = pytest.importorskip("huggingface_hub.constants")

TINY = {"d_token": 8, "num_heads": 1, "head_dim": 8, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
COMMITS = {"main": "1" * 40, "v1": "2" * 40}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory, with code beside it, as somebody might put there."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    tokenizer = Tokenizer.train(["a b c d"], kind="wordlevel", vocab_size=20)
    size = tokenizer.vocab_size
    made = build(
        dataclasses.replace(preset("baseline"), **TINY, max_length=16), src_vocab_size=size, tgt_vocab_size=size
    )
    directory.save(folder, MODEL_KIND, made, [tokenizer.json] * 2, card="# A model\n", extra={"run_id": "r1"})
    (folder / "modeling.py").write_text("raise SystemExit")
    return folder


class Hub:
    """What the server has and does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status: tuple[int, str] | None = None
        """Answers with this, and this error code."""
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers, body."""
        self.asked.append(path)
        if self.status is not None:
            return self.status[0], {"X-Error-Code": self.status[1]}, b"{}"
        match path.partition("?")[0].strip("/").split("/"):
            case ["api", "models", "o", "m", "revision", revision] if revision in {
                **COMMITS,
                **dict.fromkeys(COMMITS.values()),
            }:
                return self._json({"id": "o/m", "sha": COMMITS[revision]})
            case ["api", "models", "o", "m", "revision", _]:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            case ["api", "models", "o", "m", "tree", _]:
                return self._json(
                    [
                        {
                            "type": "file",
                            "path": f.relative_to(self.folder).as_posix(),
                            "size": f.stat().st_size,
                            "oid": _digest(f)[:40],
                        }
                        for f in sorted(self.folder.rglob("*"))
                        if f.is_file()
                    ]
                )
            case ["o", "m", "resolve", commit, *names] if (file := self.folder.joinpath(*names)).is_file():
                headers = {"X-Repo-Commit": commit, "ETag": f'"{_digest(file)[:40]}"'}
                return 200, headers, file.read_bytes()
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    @staticmethod
    def _json(content: object) -> tuple[int, dict[str, str], bytes]:
        return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def server(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    shutil.copytree(model, tmp_path / "on-hub")
    served = Hub(tmp_path / "on-hub")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = served.answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    served.url = f"http://127.0.0.1:{http.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(directory, "_ATTEMPTS", 1)
    try:
        yield served
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def refusal(call: Callable[[], object], kind: type[Exception] = HubError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_is_loaded_by_its_name(server: Hub, model: Path) -> None:
    there = repose.load("hf://o/m", workers=1)
    here = repose.load(model, workers=1)
    assert there.config == here.config
    assert there.translate(["a b"])[0] == here.translate(["a b"])[0]
    fetched = {path.split("/")[-1] for path in server.asked if "/resolve/" in path}
    assert fetched == {"config.json", "model.safetensors", "tokenizer.src.json", "tokenizer.tgt.json", "README.md"}


@pytest.mark.usefixtures("server")
def test_a_training_starts_from_what_was_fetched() -> None:
    over = settings_of(Path("hf://o/m")).over.tables
    assert over["training"]["init_from"] == str(hub.fetch("hf://o/m"))
    assert (Path(over["training"]["init_from"]) / "model.safetensors").is_file()


def test_a_revision_is_asked_for(server: Hub) -> None:
    repose.load("hf://o/m@v1", workers=1)
    assert any(f"/resolve/{COMMITS['v1']}/" in path for path in server.asked)
    assert not any(f"/resolve/{COMMITS['main']}/" in path for path in server.asked)
    assert refusal(lambda: repose.load("hf://o/m@v9")).startswith("the model o/m has no revision v9: ")


def test_the_cache_serves_without_a_network(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hub.fetch("hf://o/m")
    assert (folder / "model.safetensors").is_symlink()  # into the cache's blobs
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    for name in ("hf://o/m", folder):
        assert repose.load(name, workers=1).config["run_id"] == "r1"
    number = len(server.asked)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert repose.load("hf://o/m", workers=1).config["run_id"] == "r1"
    assert len(server.asked) == number


def test_an_export_to_onnx_is_loaded_from_there(server: Hub, model: Path) -> None:
    for extra in ("onnx", "onnxruntime"):
        pytest.importorskip(extra)
    shutil.rmtree(server.folder)
    repose.export(model, to="onnx", out=server.folder)
    there = repose.load("hf://o/m", workers=1)
    assert there.engine.name == "onnx"
    assert there.translate(["a b"])[0].text == repose.load(model, workers=1).translate(["a b"])[0].text
    assert any(path.endswith("/step.onnx") for path in server.asked)


def test_an_export_in_a_folder_of_the_repository_stays_there(server: Hub) -> None:
    beside = server.folder / "onnx"
    beside.mkdir()
    for name in ("encoder.onnx", "step.onnx", "config.json", "repose-onnx.json"):
        (beside / name).write_text("{}")
    folder = hub.fetch("hf://o/m")
    assert (folder / "config.json").is_file()
    assert not (folder / "onnx").exists()


@pytest.mark.usefixtures("server")
def test_links_lead_nowhere_but_to_the_cache(tmp_path: Path) -> None:
    folder = hub.fetch("hf://o/m")
    outside = tmp_path / "outside.json"
    shutil.copyfile((folder / "tokenizer.src.json").resolve(), outside)
    (folder / "tokenizer.src.json").unlink()
    (folder / "tokenizer.src.json").symlink_to(outside)
    assert "not a file within the model directory" in refusal(lambda: repose.load(folder), CheckpointError)


def test_what_is_not_what_its_config_says_is_refused(server: Hub) -> None:
    weights = server.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert "its SHA-256 is not config.json's" in refusal(lambda: repose.load("hf://o/m"), CheckpointError)


@pytest.mark.usefixtures("server")
def test_no_network_and_no_cache_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    said = refusal(lambda: repose.load("hf://o/m"))
    assert (
        said == "http://127.0.0.1:1 cannot be reached, and o/m is not completely in the cache: try again with a network"
    )


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, "RepoNotFound", "there is no model o/m on {url}, or it is private: check the name, or set HF_TOKEN"),
        (404, "RepoNotFound", "there is no model o/m on {url}, or it is private: check the name, or set HF_TOKEN"),
        (403, "GatedRepo", "{url} does not give o/m to everyone: ask for access on its page, and set HF_TOKEN"),
        (418, "", "{url} answered with 418 where o/m was asked for: try again later"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(server: Hub, status: int, code: str, said: str) -> None:
    server.status = (status, code)
    assert refusal(lambda: repose.load("hf://o/m")) == said.format(url=server.url)


@pytest.mark.parametrize(
    "name", ["hf://m", "hf://o/m/deep", "hf://", "hf://o/m@", "hf://../m?x", "hf://o/m..n", "hf://o/-m", "hf://o/m@a b"]
)
def test_other_forms_are_refused_before_anything_is_asked(server: Hub, name: str) -> None:
    said = refusal(lambda: repose.load(name), ConfigError)
    assert said.startswith(f"{name} is not a model on a hub: write hf://owner/name")
    assert server.asked == []


@pytest.mark.usefixtures("server")
def test_verbs_take_such_names(tmp_path: Path, run_repose: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run_repose("translate", "hf://o/m", "--workers", "1", stdin=b"a b\n")
    assert code == 0
    assert len(out.splitlines()) == 1
    code, out, _ = run_repose("describe", "hf://o/m")
    assert code == 0
    assert "hf://o/m" in out
    assert run_repose("audit", "hf://o/m")[0] == 0
    for name in ("src", "tgt"):
        (tmp_path / name).write_text("a b\nc\n")
    code, out, _ = run_repose("evaluate", "hf://o/m", tmp_path / "src", tmp_path / "tgt", "--workers", "1")
    assert (code, "greedy bleu" in out) == (0, True)
    code, _, err = run_repose("translate", "hf://o/none")
    assert code == 1
    assert "there is no model o/none" in err


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    said = refusal(lambda: repose.load("hf://o/m"), ConfigError)
    assert said == "models on a hub need huggingface_hub: pip install 'repose-nmt[hub]'"


def test_a_folder_is_a_folder(tmp_path: Path) -> None:
    assert hub.local_folder(tmp_path) == tmp_path
    assert hub.local_folder("runs/hf") == Path("runs/hf")
    assert [hub.is_on_hub(name) for name in ("hf://o/m", Path("hf://o/m"), "hf", "runs/hf:/x")] == [
        True,
        True,
        False,
        False,
    ]
