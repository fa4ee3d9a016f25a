"""`repose serve` as a process with a model, from start to end and under load."""

import contextlib
import dataclasses
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import repose
from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import MODEL_KIND
from repose.model.architecture import Architecture
from repose.model.presets import preset
from repose.model.transformer import build
from repose.saved_model import directory
from repose.serving.catalogue import read_catalogue
from repose.serving.log import Log
from repose.serving.server import Server, _listen
from repose.serving.settings import ServeSettings
from repose.system.errors import ConfigError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

HERE = Path(__file__).parent
WORDS = ["ka", "lo", "mi", "nu", "pe", "ra", "so", "ti"]
SIZES = {"d_token": 16, "num_heads": 2, "head_dim": 16, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
STUB = """
import sys
from pathlib import Path
from repose.serving.log import Log
from repose.serving.server import serve
from repose.serving.settings import Limits, ServeSettings
runs, port = [Path(run) for run in sys.argv[2:]], 0
limits = Limits(char_limit=200, timeout=600)
settings = ServeSettings(runs=tuple(runs), port=port, workers=2, metrics=True, limits=limits)
sys.path.append(sys.argv[1])
serve(settings, lambda line: print(line, file=sys.stderr, flush=True), Log(sys.stderr), "stub_translator:load")
"""
WITHOUT_SIGNAL_HANDLERS = """
import asyncio.unix_events
import sys
def refuse(*_):
    raise NotImplementedError
sys.modules["uvloop"] = None
asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
"""
CLI = "import sys; from repose.cli.main import main; main()"


SMALL = dataclasses.replace(preset("baseline"), **SIZES, max_length=24)


def write_model(
    folder: Path, seed: int, *, architecture: Architecture = SMALL, warning: str | None = None, **config: Any
) -> Path:
    """A model with random weights, from aa into bb."""
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, kind="wordlevel", vocab_size=50)
    model = build(architecture, src_vocab_size=12, tgt_vocab_size=12, seed=seed)
    extra = {"src_lang": "aa", "tgt_lang": "bb", "run_id": "0", "decoding": {"beam_size": 2, "max_extra_tokens": 3}}
    extra |= config
    directory.save(folder, MODEL_KIND, model, [tokenizer.json] * 2, card="A test.", extra=extra, warning=warning)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "one", 0)


class Running:
    """A server process, with what it has logged so far."""

    def __init__(self, code: str, *arguments: object) -> None:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0

    def wait_for_start(self, until: str) -> None:
        """Until a line has this in it; `port` is then known if the server has said it."""
        self.wait_for(until)
        self.port = next((int(line.rpartition(":")[2]) for line in self.lines if "translates" in line), 0)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, text: str) -> None:
        """Until there is a line with this in it."""
        self.wait_until(lambda: any(text in line for line in self.lines))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Or fail, with what it has said so far."""
        until = time.monotonic() + 180
        while not condition():
            assert time.monotonic() < until, self.lines
            assert self.process.poll() is None or self._reader.is_alive(), self.lines
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """Of the workers that have been started."""
        events = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [event["pid"] for event in events if event["event"] == "worker_ready"]

    def post(self, path: str, content: object) -> Any:
        """Of a 200."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(content).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=180) as response:
            return json.load(response)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        code = self.process.wait(180)
        self._reader.join(60)
        return code


@contextlib.contextmanager
def started(code: str, *arguments: object, until: str = "translates") -> Iterator[Running]:
    server = Running(code, *arguments)
    try:
        server.wait_for_start(until)
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server._reader.join(60)
        assert server.process.stderr is not None
        server.process.stderr.close()


def test_a_server_without_workers_is_refused(model: Path) -> None:
    settings, catalogue = ServeSettings(runs=(model,), workers=0), read_catalogue([model], [])
    with socket.socket() as listener, pytest.raises(ConfigError, match="0"):
        Server(settings, catalogue, listener, print, Log(None), "")


def test_the_best_device_is_the_cpu_of_a_machine_without_a_gpu(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("repose.system.device.available_cores", lambda: 3)
    settings = ServeSettings(runs=(model,), device="auto")
    with socket.socket() as listener:
        server = Server(settings, read_catalogue([model], []), listener, print, Log(None), "")
    dispatcher = server._service.dispatcher
    assert (dispatcher._num_workers, [of.settings["device"] for of in dispatcher._models]) == (3, ["cpu"])


def test_a_model_from_the_command_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_model(run / "model", 0)
    texts = ["ka lo mi", "ti so ra pe nu", "ka"]
    with started(CLI, "serve", run, "--port", 0, "--workers", 1) as server:
        found = server.post("/translate", {"q": texts, "source": "aa", "target": "bb"})
        with repose.load(run, workers=1) as translator:
            assert found["translatedText"] == [t.text for t in translator.translate(texts)]
            forced = translator.translate(["ka lo mi"], attention=True)[0]
        explained = server.post("/explain", {"q": "ka lo mi", "source": "aa", "target": "bb"})
        (sentence,) = explained["sentences"]
        assert explained["model"]["sha256"] == directory.read_config(run)["sha256"][directory.WEIGHTS]
        assert [token["text"] for token in sentence["source"]["tokens"]] == ["[START]", "ka", "lo", "mi", "[END]"]
        tokens = sentence["target"]["tokens"]
        assert sum(token["logProbability"] for token in tokens) == pytest.approx(forced.score, abs=1e-3)
        assert [len(row) for row in sentence["attention"][0][0]] == [5] * len(tokens)
        assert sum(sentence["attention"][0][0][0]) == pytest.approx(1, abs=1e-3)
        assert server.end() == 0
    assert not any(word in line for line in server.lines for word in (*texts, "ka lo"))
    (ready,) = (json.loads(line) for line in server.lines if "worker_ready" in line)
    assert ready["engines"] == [translator.engine.name]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["{model}", "--lang", "aa:bb"], "--lang aa:bb belongs to no model"),
        (["{model}", "{model}"], "both translate from aa into bb: serve one of them, or each on a port of its own"),
        (["{nameless}"], "name them, as in --lang pt:en"),
        (["{nameless}", "--lang", "pten"], "write it as pt:en"),
        (["{model}", "--port", "1", "--host", "203.0.113.1"], "choose another --port or --host"),
        (["{model}", "--host", "a..b"], "choose another --port or --host"),
        (["{model}", "--char-limit", "0"], "char_limit = 0"),
        (["{model}", "--timeout", "nan"], "timeout = nan, but it should be more than 0"),
        (["{model}", "--suggestions", "{model}/config.json/said"], "said cannot be written"),
        (["{model}", "--key-required"], "give a file with a key per line"),
    ],
)
def test_what_cannot_be_served_is_a_sentence(
    arguments: list[str], sentence: str, model: Path, tmp_path: Path, run_repose: Any
) -> None:
    nameless = write_model(tmp_path / "nameless", 0, src_lang="und", tgt_lang="und")
    code, _, said = run_repose("serve", *(argument.format(model=model, nameless=nameless) for argument in arguments))
    assert code in (1, 2)
    assert sentence in said
    assert len(said.strip().splitlines()) == 1


class Client(threading.Thread):
    """Asks again and again over one connection, and remembers every answer."""

    def __init__(self, port: int, number: int, until: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port, self._number, self._until = port, number, until
        self.good, self.wrong = 0, list[object]()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=180)
        turn = 0
        while not self._until.is_set():
            turn += 1
            text = f"text {self._number} of {turn}. and more of {self._number}"
            try:
                connection.request(
                    "POST", "/translate", json.dumps({"q": text, "source": "aa", "target": "bb"}),
                    {"Content-Type": "application/json"},
                )  # fmt: skip
            except OSError:  # no request was accepted
                break
            try:
                response = connection.getresponse()
                answer = (response.status, json.loads(response.read()))
            except http.client.RemoteDisconnected:  # an idle connection was closed before the request was read
                break
            except Exception as error:
                self.wrong.append(error)
                break
            if answer == (200, {"translatedText": text.upper()}):
                self.good += 1
            else:
                self.wrong.append(answer)
        connection.close()


def test_under_load_nothing_is_lost_or_mixed_up_whoever_is_killed(model: Path) -> None:
    with started(STUB, HERE, model) as server:
        until = threading.Event()
        clients = [Client(server.port, number, until) for number in range(200)]
        for client in clients:
            client.start()
        time.sleep(0.3)
        os.kill(server.pids()[-1], signal.SIGKILL)
        server.wait_until(lambda: len(server.pids()) >= 3)  # another one is in its place
        time.sleep(0.3)
        os.kill(server.pids()[-1], signal.SIGKILL)
        time.sleep(0.3)
        assert all(client.is_alive() for client in clients)
        code = server.end()  # they go on asking
        until.set()
        for client in clients:
            client.join(180)
        assert code == 0
        assert [wrong for client in clients for wrong in client.wrong] == []
        assert sum(client.good for client in clients) > 200
        assert sum("worker_died" in line for line in server.lines) == 2
        (ended,) = (line for line in server.lines if '"ended"' in line)
        assert ended == server.lines[-1]


def test_models_are_exchanged_while_it_serves(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0, run_id="before")
    asked = {"q": ["model", "how"], "source": "aa", "target": "bb"}
    with started(STUB, HERE, run) as server:
        assert server.post("/translate", asked) == {"translatedText": ["before", "None None"]}
        write_model(run, 1, run_id="after")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("reloaded")
        assert server.post("/translate", asked) == {"translatedText": ["after", "None None"]}
        (run / "config.json").write_text("{")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("reload_failed")
        assert server.post("/translate", asked) == {"translatedText": ["after", "None None"]}
        assert server.end() == 0


def test_a_reload_that_is_asked_for_too_early_comes_once_the_first_models_are_there(tmp_path: Path) -> None:
    early = (
        "import asyncio, os, signal\n"
        "from repose.serving.dispatcher import Dispatcher\n"
        "start = Dispatcher.start\n"
        "async def slow(self):\n"
        "    Dispatcher.start = start\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    await asyncio.sleep(2)\n"
        "    await start(self)\n"
        "Dispatcher.start = slow\n"
    )
    with started(early + STUB, HERE, write_model(tmp_path / "run", 0)) as server:
        server.wait_for('"reloaded"')
        events = [json.loads(line)["event"] for line in server.lines if line.startswith("{")]
        assert events.index("ready") < events.index("reloaded")
        assert server.end() == 0


SLOW_RELOADS = """
import repose.serving.server as server
from pathlib import Path
read, times = server.read_catalogue, []
def slow(runs, languages):
    found = read(runs, languages)
    times.append(1)
    if len(times) == 2:
        import os, time
        os.write(2, b"reading\\n")
        while not (runs[0] / "go").exists():
            time.sleep(0.005)
    return found
server.read_catalogue = slow
"""


def test_a_reload_that_is_asked_for_during_another_comes_after_it(tmp_path: Path) -> None:
    """The one under way may have read the older files."""
    run = write_model(tmp_path / "run", 0, run_id="before")
    with started(SLOW_RELOADS + STUB, HERE, run) as server:
        write_model(run, 1, run_id="second")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("reading")
        write_model(run, 2, run_id="third")
        server.process.send_signal(signal.SIGHUP)
        (run / "go").touch()
        asked = {"q": "model", "source": "aa", "target": "bb"}
        server.wait_until(lambda: server.post("/translate", asked)["translatedText"] == "third")
        assert server.end() == 0
    assert sum('"reloaded"' in line for line in server.lines) <= 2


def test_sigterm_during_a_reload_ends_the_new_workers_too(tmp_path: Path) -> None:
    write_model(tmp_path / "one", 0)
    write_model(tmp_path / "endless", 1)
    run = tmp_path / "run"
    run.symlink_to("one")
    with started(STUB, HERE, run) as server:
        run.unlink()
        run.symlink_to("endless")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("loading")
        assert server.end() == 0
    workers = [*server.pids(), *(int(path.stem) for path in (tmp_path / "endless").glob("*.pid"))]
    assert len(workers) >= 3
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@contextlib.contextmanager
def held_request(server: Running, run: Path) -> Iterator[threading.Thread]:
    """A request that the stub holds until the end of the block, and then answers."""
    (run / "hold").touch()
    answers: list[Any] = []
    slow = {"q": "slow", "source": "aa", "target": "bb"}
    asking = threading.Thread(target=lambda: answers.append(server.post("/translate", slow)))
    asking.start()
    server.wait_until((run / "held").exists)
    yield asking
    (run / "held").unlink()
    asking.join(180)
    assert answers == [{"translatedText": "SLOW"}]


def test_ctrl_c_ends_it_in_order_on_a_system_whose_loop_handles_no_signals(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0)
    with started(WITHOUT_SIGNAL_HANDLERS + STUB, HERE, run) as server:
        with held_request(server, run):
            server.process.send_signal(signal.SIGINT)
            server.wait_for("draining")
        assert server.process.wait(180) == 0
        server.wait_for('"ended"')


def test_newer_models_do_not_wait_for_the_requests_of_older_ones(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0, run_id="before")
    with started(STUB, HERE, run) as server:
        server.wait_until(lambda: len(server.pids()) == 2)  # one is held; the other must not find newer files
        with held_request(server, run) as asking:
            for number, name in enumerate(("second", "third"), start=1):
                write_model(run, number, run_id=name)
                server.process.send_signal(signal.SIGHUP)
                asked = {"q": "model", "source": "aa", "target": "bb"}
                server.wait_until(
                    lambda name=name, asked=asked: server.post("/translate", asked)["translatedText"] == name
                )
            assert asking.is_alive()
        assert server.end() == 0


def test_models_that_cannot_be_read_for_whatever_reason_are_told(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0)
    broken = (
        "import repose.serving.server as server\n"
        "read, times = server.read_catalogue, []\n"
        "def once(*given):\n"
        "    times.append(1)\n"
        "    return read(*given) if len(times) == 1 else {}['nothing']\n"
        "server.read_catalogue = once\n"
    )
    with started(broken + STUB, HERE, run) as server:
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("reload_failed")
        assert any("KeyError" in line for line in server.lines)
        assert server.post("/translate", {"q": "how", "source": "aa", "target": "bb"}) == {
            "translatedText": "None None"
        }
        assert server.end() == 0


def test_a_worker_that_replaces_another_never_loads_other_files(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0, run_id="before")
    asked = {"q": ["model", "how"] * 4, "source": "aa", "target": "bb"}
    with started(STUB, HERE, run) as server:
        server.wait_until(lambda: len(server.pids()) == 2)  # both have read the model before it changes
        write_model(run, 1, run_id="after")
        os.kill(server.pids()[0], signal.SIGKILL)
        server.wait_for("reloaded")
        assert server.post("/translate", asked) == {"translatedText": ["after", "None None"] * 4}
        assert any("ModelChangedError" in line for line in server.lines)
        server.wait_until(lambda: len(server.pids()) == 4)
        (run / "config.json").write_text("{")
        os.kill(server.pids()[-1], signal.SIGKILL)
        server.wait_for("reload_failed")  # and the other one goes on
        assert server.post("/translate", asked) == {"translatedText": ["after", "None None"] * 4}
        assert server.end() == 0


def test_a_second_server_on_a_port_is_told_at_once() -> None:
    """Even where the first one is still reading its models."""
    with contextlib.closing(_listen("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port} "):
            _listen("127.0.0.1", port)


FIRST_PROCESS = """
import os, sys, time
from pathlib import Path
from repose.cli.main import main
from repose.serving import server

def read_models(*_):
    if os.fork() == 0:
        os.kill(1, 15)
        os._exit(0)
    for _ in range(2000):  # one long sleep would go on if the signal came just before it
        time.sleep(0.05)

server.serve = read_models
sys.argv[1:] = ["serve", "models"]
main()
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="starts a process as a container does")
def test_the_first_process_of_a_container_can_be_ended_while_it_starts() -> None:
    container = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*container, "true"], capture_output=True).returncode:
        pytest.skip("may not start a process as a container does")
    done = subprocess.run(
        [*container, sys.executable, "-c", FIRST_PROCESS], capture_output=True, text=True, timeout=180
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_log_that_cannot_be_written_stops_nothing(model: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    code = STUB.replace(
        "port = [Path(run) for run in sys.argv[2:]], 0", f"port = [Path(run) for run in sys.argv[2:]], {port}"
    )
    code = code.replace("lambda line: print(line, file=sys.stderr, flush=True)", "say")
    code = code.replace("import sys\n", "import sys\nfrom repose.system.terminal import say\n", 1)
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen([sys.executable, "-c", code, str(HERE), str(model)], stderr=full)
    try:
        until = time.monotonic() + 180
        while time.monotonic() < until:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=180),
            ):
                break
            time.sleep(0.05)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/translate",
            b"q=ka&source=aa&target=bb",
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        with urllib.request.urlopen(request, timeout=180) as response:
            assert json.load(response) == {"translatedText": "KA"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    finally:
        process.kill()
        process.wait()


def test_a_document_that_takes_long_does_not_keep_it_from_ending(model: Path) -> None:
    code = "import time\nfrom repose.serving import documents\ndocuments._submit(time.sleep, 300)\n" + STUB
    with started(code, HERE, model) as server:
        assert server.end() == 0


def test_sigusr1_ends_it_as_sigterm_does(model: Path) -> None:
    """As it ends a training."""
    with started(STUB, HERE, model) as server:
        assert server.end(signal.SIGUSR1) == 0
    assert not any("Traceback" in line for line in server.lines)


def test_sigterm_ends_it_while_models_are_loaded(tmp_path: Path) -> None:
    with started(STUB, HERE, write_model(tmp_path / "endless", 0), until="loading") as server:
        assert server.end() == 0
    events = [json.loads(line)["event"] for line in server.lines if line.startswith("{")]
    assert events == ["draining", "ended"]
    assert [line for line in server.lines if not line.startswith("{") and line != "loading\n"] == []


def test_what_is_no_request_is_a_line_of_json(model: Path) -> None:
    with started(STUB, HERE, model) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=180) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        address = f"http://127.0.0.1:{server.port}/translate"
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(urllib.request.Request(address, b"--some", form), timeout=180)
        assert server.end() == 0
    (said,) = (line for line in server.lines if "Invalid HTTP request" in line)
    assert json.loads(said)["event"] == "refused"
    (said,) = (line for line in server.lines if "boundary character" in line)
    assert json.loads(said)["event"] == "http"


@pytest.mark.parametrize(("changes", "name"), [({"dropout": 0.3, "max_length": 24}, "reinforced"), (SIZES, None)])
def test_models_name_the_preset_as_their_cards_do(tmp_path: Path, changes: dict[str, Any], name: str | None) -> None:
    architecture = dataclasses.replace(preset("reinforced"), **changes)
    (about,) = read_catalogue([write_model(tmp_path / "run", 0, architecture=architecture)], []).models_json()
    assert about["preset"] == name


def test_a_model_says_what_its_card_warns_of(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0, warning="It looks ahead.", validation={"source_gain": 0.0125})
    with started(STUB, HERE, run) as server:
        told = [line.removeprefix("run: ").strip() for line in server.lines if line.startswith("run: ")]
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/models") as answer:
            [about] = json.load(answer)
    measured = "it predicts 0.01 nats per token better with the right source than with another"
    assert told == about["warnings"] == ["It looks ahead.", f"The model hardly reads its source ({measured})."]


def test_a_request_in_hand_is_answered_after_sigterm(tmp_path: Path) -> None:
    run = write_model(tmp_path / "run", 0)
    with started(STUB, HERE, run) as server:
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(server.post("/translate", {"q": "slow", "source": "aa", "target": "bb"}))
        )
        (run / "hold").touch()
        asking.start()
        server.wait_until((run / "held").exists)
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: not listens(server.port))
        time.sleep(0.3)  # longer than one that waits for nobody takes to end
        assert (answers, asking.is_alive()) == ([], True)
        (run / "held").unlink()
        assert server.process.wait(180) == 0
        asking.join(180)
        assert answers == [{"translatedText": "SLOW"}]


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
