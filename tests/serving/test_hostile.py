"""Hostile requests: never a 500, never unbounded, never somebody else's file."""

import asyncio
import contextlib
import errno
import http.client
import io
import json
import socket
import threading
import time
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import httpx
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from stub_server import Shouting, ask, body, running, service
from uvicorn.server import ServerState

from repose.decoding.translator import Translation
from repose.documents.html import HtmlDocument
from repose.serving import documents
from repose.serving.app import Service, make_app
from repose.serving.files import Downloads
from repose.serving.log import Log
from repose.serving.protocol import guarded
from repose.serving.refusals import RequestError
from repose.serving.settings import Limits

APP = make_app(service(limits={"char_limit": 200, "batch_limit": 8}))
REFUSALS = {200, 400, 403, 404, 405, 408, 413, 429, 431}
PATHS = st.sampled_from(["/translate", "/detect", "/explain", "/suggest", "/translate_file"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
PLAUSIBLE = {
    "q": st.text(max_size=250) | st.lists(st.text(max_size=30), max_size=10) | JSON,
    "source": st.sampled_from(["pt", "en", "auto", "zz", "\ud800", "", "PB"]) | JSON,
    "target": st.sampled_from(["pt", "en", "auto", "\x00"]) | JSON,
    "format": st.sampled_from(["text", "html"]) | JSON,
    "alternatives": st.integers(-3, 99) | JSON,
    "api_key": JSON,
}


def check(path: str, **how: Any) -> None:
    response = ask(APP, "POST", path, **how)
    assert response.status_code in REFUSALS, response.text
    body(response)


@settings(max_examples=150)
@given(PATHS, st.fixed_dictionaries({}, optional=PLAUSIBLE))
def test_any_json(path: str, fields: dict[str, object]) -> None:
    check(path, content=json.dumps(fields).encode(), headers={"content-type": "application/json"})


@settings(max_examples=100)
@given(
    PATHS,
    st.binary(max_size=300),
    st.sampled_from(
        ["", "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ";;;",
         "multipart/form-data", "multipart/form-data; boundary=" + "b" * 300, "text/plain", "application/xml+json"]
    ),
)  # fmt: skip
def test_any_bytes(path: str, content: bytes, kind: str) -> None:
    check(path, content=content, headers={"content-type": kind})


@settings(max_examples=60)
@given(PATHS, st.binary(max_size=60), st.binary(max_size=120), st.text(max_size=8))
def test_any_form(path: str, name: bytes, value: bytes, charset: str) -> None:
    safe = urllib.parse.quote(charset)
    head = b'--x\r\nContent-Disposition: form-data; name="q"; filename="' + name + b'"\r\n\r\n'
    kind = f"multipart/form-data; boundary=x; charset={safe}"
    check(path, content=head + value + b"\r\n--x--\r\n", headers={"content-type": kind})
    query = urllib.parse.quote_from_bytes(b"q=" + value + b"&source=pt&target=en", safe="=&")
    check(f"{path}?{query}", content=value, headers={"content-type": "application/x-www-form-urlencoded"})


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-7", "unicode_escape", "no such", "latin-1", "UTF-8"])
def test_a_multipart_form_is_utf_8_whatever_it_says(charset: str) -> None:
    fields = {"q": "vão-vem +AGE- \\x41", "source": "pt", "target": "en"}
    parts = [f'--a"b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n' for name in fields]
    kind = f'multipart/form-data; charset="{charset}"; boundary="a\\"b"'
    content = "".join([*parts, '--a"b--\r\n']).encode()
    response = ask(APP, "POST", "/translate", content=content, headers={"content-type": kind})
    assert body(response)["translatedText"] == fields["q"].upper()


@pytest.mark.parametrize(
    "text", ["a\x00b", "\u202eabc\u202c", "<script>alert(1)</script>", "\ud800x", "\ufeffa", "a\u2028b"]
)
def test_odd_characters_go_through(text: str) -> None:
    content = json.dumps({"q": text, "source": "pt", "target": "en"}).encode()
    found = body(ask(APP, "POST", "/translate", content=content, headers={"content-type": "application/json"}))
    assert found["translatedText"] == text.replace("\ud800", "\ufffd").upper()


def test_many_parameters() -> None:
    response = ask(APP, "POST", "/translate", content=b"&".join(b"q%d=1" % n for n in range(5_000)))
    assert body(response) == {"error": "Invalid request: more than 64 parameters"}


def test_an_archive_that_unpacks_to_much_is_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (80 << 20))
    for content in (packed.getvalue(), packed.getvalue()[:-30], b"PK", b""):
        file = {"file": ("a.docx", content)}
        response = ask(APP, "POST", "/translate_file", data={"source": "pt", "target": "en"}, files=file)
        assert response.status_code == 400
        assert body(response)["error"].startswith("Invalid request: ")


def test_few_archives_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, most = 0, 0

    async def read(_: bytes, __: str) -> None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await turns()
        reading -= 1
        raise RequestError(400, "")

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(app=make_app(service()))
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            asked = {"data": {"source": "pt", "target": "en"}, "files": {"file": ("a.docx", b"PK")}}
            answers = await asyncio.gather(*(client.post("/translate_file", **asked) for _ in range(9)))
        return [answer.status_code for answer in answers]

    monkeypatch.setattr(documents, "read", read)
    assert (asyncio.run(statuses()), most) == ([400] * 9, 4)


def test_a_translated_file_that_no_disk_holds_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    downloads = Downloads(Limits())
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(RequestError, match="The translated file cannot be kept: No space left on device") as caught:
        downloads.put(".txt", b"x", "text/plain")
    assert caught.value.status == 507


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "", "\x00", "a.txt", "A" * 22 + ".txt", "%2e%2e"])
def test_files_of_others_cannot_be_had(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    now = [0.0]
    downloads = Downloads(Limits(max_files=2, file_seconds=10.0), clock=lambda: now[0])
    names = [downloads.put(".txt", b"content", "text/plain") for _ in range(3)]
    with pytest.raises(RequestError):
        downloads.get(name)
    with pytest.raises(RequestError):
        downloads.get(names[0])
    assert [downloads.get(names[2]) for _ in range(2)] == [(b"content", "text/plain")] * 2
    now[0] = 11.0
    with pytest.raises(RequestError):
        downloads.get(names[1])
    name = downloads.put(".txt", b"", "a/b")
    assert downloads.get(name) == (b"", "a/b")
    assert not list(tmp_path.iterdir()), "a killed server leaves nothing behind"
    downloads.close()
    with pytest.raises(RequestError):
        downloads.get(name)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    limits = {"max_body": 100_000, "char_limit": 1_000, "receive_seconds": 0.8, "max_connections": 20}
    with running(service(limits=limits)) as url:
        yield int(url.rpartition(":")[2])


def exchange(port: int, *pieces: bytes, pause: float = 0.0) -> tuple[int, Any]:
    """Status and body of what comes back for bytes that are sent piece by piece."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
                head, _, rest = answer.partition(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")), None
                )
                if length is not None and len(rest) >= length:
                    break
        except ConnectionResetError:
            pass
    return int(answer.split(b" ")[1]), json.loads(rest)


POST = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("pieces", "pause", "status"),
    [
        ((b"nonsense\r\n\r\n",), 0.0, 400),
        ((b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",), 0.0, 431),
        ((b"GET /?" + b"a" * 500_000,), 0.0, 431),
        ((b"GET / HTTP/1.1\r\nlong: ", *[b"a" * 10_000] * 50), 0.0, 431),
        ((POST + b"Content-Length: 100001\r\n\r\n",), 0.0, 413),
        ((POST + b"Content-Length: 99999999999999999999\r\n\r\n",), 0.0, 400),
        ((POST + b"Transfer-Encoding: chunked\r\n\r\n", *[b"2710\r\n" + b" " * 10_000 + b"\r\n"] * 12), 0.0, 413),
        ((b"GET / HTTP/1.1\r\n", b"a", b"b", b"c"), 0.3, 408),
        ((POST + b"Content-Length: 1000\r\n\r\n", b"{", b'"', b"q"), 0.3, 408),
        ((POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",), 0.0, 400),
    ],
    ids=["no HTTP", "10,000 headers", "long path", "long header", "large", "too large to be", "endless", "slow head",
         "slow body", "two lengths"],
)  # fmt: skip
def test_on_the_wire(port: int, pieces: tuple[bytes, ...], pause: float, status: int) -> None:
    found, content = exchange(port, *pieces, pause=pause)
    assert found == status
    assert list(content) == ["error"]


def test_connections_are_bounded_and_silent_ones_end() -> None:
    with (
        running(service(limits={"receive_seconds": 3.0, "max_connections": 20})) as url,
        contextlib.ExitStack() as stack,
    ):
        port = int(url.rpartition(":")[2])
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(20)]
        found, content = exchange(port, b"")
        assert (found, content) == (503, {"error": "Server is busy"})
        assert [connection.recv(1) for connection in silent] == [b""] * 20
        assert exchange(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") == (200, {"status": "ok"})


def was_closed(connection: socket.socket) -> bool:
    """After an answer."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    return True


def test_idle_connections_make_room_where_there_are_many(port: int) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    kept = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(16)]
    try:
        for connection in kept:
            connection.sendall(request)
            connection.settimeout(0.3)
        assert any(map(was_closed, kept))
        assert exchange(port, request) == (200, {"status": "ok"})
    finally:
        for connection in kept:
            connection.close()


def test_json_is_no_larger_than_its_texts_may_be() -> None:
    app = make_app(service(limits={"char_limit": 10, "batch_limit": 2}))
    content = b"[" + b"{}," * 30_000 + b"{}]"
    response = ask(app, "POST", "/translate", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert len(json.dumps(["é" * 5_000] * 128)) < Limits().max_json, "of the default limits"
    assert Limits(char_limit=-1).max_head > Limits().max_body


def test_a_form_is_no_larger_than_its_texts_may_be() -> None:
    """In one line it takes a second to read where it may have eight megabytes."""
    app = make_app(service(limits={"char_limit": 100}))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    for letters, status in ((100, 200), (101, 400), (50_000, 413)):
        content = b"source=pt&target=en&q=" + b"%61" * letters
        assert ask(app, "POST", "/translate", content=content, headers=headers).status_code == status


def test_a_client_that_sends_all_before_it_reads_is_told_that_it_is_too_much(port: int) -> None:
    """As most do: a connection that is closed meanwhile would be all that they see."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/translate", b" " * (20 << 20), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, list(json.loads(response.read()))) == (413, ["error"])


def test_the_rest_of_a_body_that_was_answered_already_is_not_waited_for_forever(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"x")
        while connection.recv(65536):
            pass  # until the server ends it, after `receive_seconds`


def test_a_client_that_goes_is_not_translated_for() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    class Slow(Shouting):
        async def translate(self, *_: Any, **__: Any) -> list[Translation]:
            begun.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return []

    made = service(dispatcher=Slow())
    with running(made) as url:
        content = b'{"q": "a", "source": "pt", "target": "en"}'
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as connection:
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(content) + content)
            assert begun.wait(60)
        assert cancelled.wait(60)
    assert num_gone(made) == 1


def num_gone(made: Service) -> float | None:
    """Texts that were asked for by clients that have gone."""
    labels = {"endpoint": "/translate", "code": "499"}
    return made.metrics.registry.get_sample_value("repose_requests_total", labels)


def test_a_client_that_has_gone_already_is_not_translated_for() -> None:
    class Slow(Shouting):
        async def translate(self, *_: Any, **__: Any) -> list[Translation]:
            await asyncio.sleep(600)
            return []

    made, wire = service(dispatcher=Slow()), Wire()

    async def scenario() -> None:
        protocol = protocol_of(make_app(made), wire, asyncio.get_running_loop())
        protocol.data_received(POST + SIZED[0] + BODY)
        wire.close()
        await turns()
        protocol.connection_lost(None)

    asyncio.run(scenario())
    assert num_gone(made) == 1


class SlowPages:
    """In the place of `HtmlDocument`: counts the pages that are read, each of which waits for `released`."""

    def __init__(self) -> None:
        self.read, self.released = 0, threading.Event()

    def __call__(self, source: str) -> HtmlDocument:
        self.read += 1
        self.released.wait(180)
        return HtmlDocument(source)


AUTO = {"source": "auto", "target": "en", "format": "html"}


def test_pages_whose_language_is_to_be_found_out_have_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "HtmlDocument", pages := SlowPages())
    json_ = AUTO | {"q": ["<b>a"] * 8}
    response = ask(APP, "POST", "/translate", json=json_, headers={"X-Request-Timeout": "0.05"})
    pages.released.set()
    assert (response.status_code, pages.read) == (504, 1), "the pages after it are not read for nobody"


def test_pages_whose_language_is_to_be_found_out_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "HtmlDocument", pages := SlowPages())
    pages.released.set()
    text = "O gato viu o cachorro. " * 200
    response = ask(make_app(service()), "POST", "/translate", json=AUTO | {"q": [text] * 20})
    assert (response.status_code, pages.read) == (200, 20)


def test_texts_do_not_wait_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "HtmlDocument", pages := SlowPages())
    transport = httpx.ASGITransport(app=make_app(service()))

    async def text_is_answered() -> bool:
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            page = {"q": "<b>um", "source": "pt", "target": "en", "format": "html"}
            waiting = [asyncio.create_task(client.post("/translate", json=page)) for _ in range(64)]
            while not pages.read:
                await asyncio.sleep(0)
            text = client.post("/translate", json={"q": "um. " * 1_000, "source": "pt", "target": "en"})
            await asyncio.wait([asyncio.ensure_future(text)], timeout=30)
            found = not pages.released.is_set() and not any(task.done() for task in waiting)
            pages.released.set()
            await asyncio.gather(*waiting)
            return found

    assert asyncio.run(text_is_answered())


def test_bodies_together_are_bounded() -> None:
    app = make_app(service(limits={"max_bodies": 1_000}))
    content = json.dumps({"q": "a" * 900, "source": "pt", "target": "en"}).encode()
    headers = {"content-type": "application/json"}
    assert ask(app, "POST", "/translate", content=content, headers=headers).status_code == 200
    assert ask(app, "POST", "/translate", content=content, headers=headers).status_code == 200, "given back"
    response = ask(app, "POST", "/translate", content=content + b" " * 100, headers=headers)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert app.bodies.taken == 0


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
BODY = b'{"q": "a", "source": "pt", "target": "en"}'
CHUNKED = (
    b"Transfer-Encoding: chunked\r\n\r\n",
    b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:]),
)
SIZED = b"Content-Length: %d\r\n\r\n" % len(BODY), BODY


@pytest.mark.parametrize(("end", "content"), [SIZED, CHUNKED], ids=["sized", "chunked"])
@pytest.mark.parametrize("pieces", ["one", "two", "split head"])
def test_who_offers_http_2_is_answered_in_http_1(port: int, pieces: str, end: bytes, content: bytes) -> None:
    head, after = POST + UPGRADE + end, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    sent = {
        "one": [head + content + after],
        "two": [head, content + after],
        "split head": [head[:-30], head[-30:] + content[:7], content[7:] + after],
    }
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb") as answers:
        for piece in sent[pieces]:
            connection.sendall(piece)
            time.sleep(0.05)
        assert read_answer(answers) == (200, {"translatedText": "A"})
        assert read_answer(answers) == (200, {"status": "ok"})


def read_answer(answers: BinaryIO) -> tuple[int, Any]:
    """The next one of a connection."""
    status = int(answers.readline().split(b" ")[1])
    headers = dict(line.lower().split(b": ") for line in iter(answers.readline, b"\r\n"))
    return status, json.loads(answers.read(int(headers[b"content-length"])))


@pytest.mark.parametrize("target", [b"example.org:443", b"/translate"])
def test_nothing_is_connected_to(port: int, target: bytes) -> None:
    found, content = exchange(port, b"CONNECT " + target + b" HTTP/1.1\r\nHost: x\r\n\r\nabc")
    assert (found, content) == (400, {"error": "Invalid HTTP request"})


class Wire(asyncio.Transport):
    """A connection of which a test knows what has been done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.is_reading_now, self.ended, self.unread = b"", True, "", 0

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


def protocol_of(app: Any, wire: Wire, loop: Any, **limits: Any) -> Any:
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
    made = guarded(Limits(**limits))(config, ServerState(), {}, loop)
    made.connection_made(wire)
    return made


def test_what_is_refused_before_it_is_a_request_is_told() -> None:
    """The application never hears of it."""
    told: list[tuple[int, str]] = []

    async def app(_: Any, __: Any, ___: Any) -> None:
        raise AssertionError

    async def scenario() -> None:
        limits = Limits()
        kind = guarded(limits, lambda status, text: told.append((status, text)))
        for sent in (b"no request\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * limits.max_head):
            config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
            protocol = kind(config, ServerState(), {}, asyncio.get_running_loop())
            protocol.connection_made(Wire())
            protocol.data_received(sent)

    asyncio.run(scenario())
    assert told == [(400, "Invalid HTTP request"), (431, "Invalid request: the head is too large")]


def test_refusals_below_requests_are_counted_and_in_the_log() -> None:
    made, stream = service(), io.StringIO()
    made.log = Log(stream)
    make_app(made).refused(431, "too large")
    assert made.metrics.registry.get_sample_value("repose_requests_total", {"endpoint": "other", "code": "431"}) == 1
    line = json.loads(stream.getvalue())
    assert (line["event"], line["status"], line["text"]) == ("refused", 431, "too large")


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("upgrade", [b"", UPGRADE], ids=["plain", "upgrade"])
def test_requests_that_come_before_answers_are_bounded(upgrade: bytes) -> None:
    begun: list[asyncio.Event] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        begun.append(asyncio.Event())
        await receive()
        await begun[-1].wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def scenario() -> None:
        wire = Wire()
        protocol = protocol_of(app, wire, asyncio.get_running_loop())
        one = b"GET / HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n"
        protocol.data_received(one * 3)
        for number in range(2):
            await turns()
            assert (len(begun), wire.is_reading_now) == (number + 1, False)
            begun[-1].set()
        await turns()
        assert (len(begun), wire.is_reading_now) == (3, True), "what was sent is all at work"
        protocol.data_received(one * 5_000)
        for _ in range(17):
            protocol.data_received(one)
            begun[-1].set()
            await turns()
        assert len(begun) == 3 + 16
        begun[-1].set()
        await turns()
        assert wire.written.count(b"HTTP/1.1 200 OK") == 3 + 16
        assert wire.written.count(b"connection: close") == 1
        assert wire.ended == "closed"

    asyncio.run(scenario())


def test_a_large_request_that_is_whole_does_not_keep_the_end_of_its_connection_from_being_heard() -> None:
    async def app(_: Any, receive: Any, __: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await asyncio.sleep(1_000)

    async def scenario() -> None:
        wire, size = Wire(), 200_000
        protocol = protocol_of(app, wire, asyncio.get_running_loop())
        protocol.data_received(POST + b"Content-Length: %d\r\n\r\n" % size)
        await turns()
        protocol.data_received(b" " * (size - 1))
        assert not wire.is_reading_now, "much is to be read by the application"
        protocol.data_received(b" ")
        assert wire.is_reading_now

    asyncio.run(scenario())


def test_what_is_in_hand_when_the_time_to_end_is_over_is_told_to_come_back(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Shouting):
        async def translate(self, *_: Any, **__: Any) -> list[Translation]:
            await asyncio.sleep(1_000)
            return []

    made, stream = service(dispatcher=Slow()), io.StringIO()
    made.log = Log(stream)
    app, wire = make_app(made), Wire()

    async def scenario() -> None:
        protocol = protocol_of(app, wire, asyncio.get_running_loop())
        protocol.data_received(POST + SIZED[0] + BODY)
        await turns()
        app.draining = True
        (task,) = protocol.tasks
        task.cancel()
        await turns()
        protocol.connection_lost(None)

    asyncio.run(scenario())
    head, _, content = wire.written.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
    assert {b"content-type: application/json", b"retry-after: 1", b"connection: close"} <= set(lines)
    assert json.loads(content) == {"error": "Server is closing"}
    assert (
        made.metrics.registry.get_sample_value("repose_requests_total", {"endpoint": "/translate", "code": "503"}) == 1
    )
    assert [json.loads(line)["status"] for line in stream.getvalue().splitlines()] == [503]
    assert not caplog.records


class Clock:
    """A loop whose time a test moves on."""

    def __init__(self) -> None:
        self.now, self._calls = 0.0, dict[object, tuple[float, Any]]()

    def call_later(self, seconds: float, call: Any) -> Any:
        key = object()
        self._calls[key] = self.now + seconds, call
        return SimpleNamespace(cancel=lambda: self._calls.pop(key, None))

    def move_on(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [(when, key) for key, (when, _) in self._calls.items() if when <= until]:
            self.now, key = min(due, key=lambda one: one[0])
            self._calls.pop(key)[1]()
        self.now = until


def test_who_does_not_read_an_answer_is_cut_off() -> None:
    clock, wire = Clock(), Wire()
    protocol = protocol_of(None, wire, clock, receive_seconds=1_000.0, send_seconds=60.0)
    wire.unread = 200 << 10
    protocol.pause_writing()
    wire.unread -= 64 << 10
    clock.move_on(61)
    assert not wire.ended, "it reads"
    wire.unread = 0
    protocol.resume_writing()
    wire.unread = 300 << 10
    protocol.pause_writing()
    clock.move_on(59)
    assert not wire.ended, "a new answer has a minute of its own"
    wire.unread -= 1 << 10
    clock.move_on(1)
    assert wire.ended == "aborted"


@pytest.mark.parametrize("end", ["refused", "idle", "answered"])
def test_a_closed_connection_waits_for_no_reader_either(end: str) -> None:
    clock, wire = Clock(), Wire()
    protocol = protocol_of(None, wire, clock, receive_seconds=1_000.0, send_seconds=60.0)
    wire.unread = 5 << 10
    if end == "refused":
        protocol.data_received(b"nonsense\r\n\r\n")
    elif end == "idle":
        protocol.timeout_keep_alive_handler()
    else:
        wire.close()
        protocol.on_response_complete()
    assert wire.ended == "closed"
    clock.move_on(60)
    assert wire.ended == "aborted"
