"""What strangers send: never a 500, never without bound, never a file that is not theirs."""

import asyncio
import io
import json
import socket
import time
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stub_server import Shouting, ask, body, running, service

from repose.serving.app import make_app
from repose.serving.files import Downloads
from repose.serving.messages import Answer
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


@settings(max_examples=150, deadline=None)
@given(PATHS, st.fixed_dictionaries({}, optional=PLAUSIBLE))
def test_any_json(path: str, fields: dict[str, object]) -> None:
    check(path, content=json.dumps(fields).encode(), headers={"content-type": "application/json"})


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(PATHS, st.binary(max_size=60), st.binary(max_size=120), st.text(max_size=8))
def test_any_form(path: str, name: bytes, value: bytes, charset: str) -> None:
    safe = urllib.parse.quote(charset)
    head = b'--x\r\nContent-Disposition: form-data; name="q"; filename="' + name + b'"\r\n\r\n'
    kind = f"multipart/form-data; boundary=x; charset={safe}"
    check(path, content=head + value + b"\r\n--x--\r\n", headers={"content-type": kind})
    query = urllib.parse.quote_from_bytes(b"q=" + value + b"&source=pt&target=en", safe="=&")
    check(f"{path}?{query}", content=value, headers={"content-type": "application/x-www-form-urlencoded"})


@pytest.mark.parametrize(
    "text", ["a\x00b", "\u202eabc\u202c", "<script>alert(1)</script>", "\ud800x", "\ufeffa", "a\u2028b"]
)
def test_odd_characters_go_through(text: str) -> None:
    content = json.dumps({"q": text, "source": "pt", "target": "en"}).encode()
    found = body(ask(APP, "POST", "/translate", content=content, headers={"content-type": "application/json"}))
    assert found["translatedText"] == text.replace("\ud800", "\ufffd").upper()


def test_many_parameters() -> None:
    response = ask(APP, "POST", "/translate", content=b"&".join(b"q%d=1" % n for n in range(10_000)))
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


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "", "\x00", "a.txt", "A" * 22 + ".txt", "%2e%2e"])
def test_files_of_others_cannot_be_had(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    now = [0.0]
    downloads = Downloads(Limits(max_files=2, file_seconds=10.0), clock=lambda: now[0])
    names = [downloads.put(".txt", b"content") for _ in range(3)]
    with pytest.raises(RequestError):
        downloads.get(name)
    with pytest.raises(RequestError):
        downloads.get(names[0])
    assert [downloads.get(names[2]) for _ in range(2)] == [b"content"] * 2
    now[0] = 11.0
    with pytest.raises(RequestError):
        downloads.get(names[1])
    name = downloads.put(".txt", b"")
    assert downloads.get(name) == b""
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
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
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


def test_connections_are_bounded_and_silent_ones_end(port: int) -> None:
    silent = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(20)]
    try:
        found, content = exchange(port, b"")
        assert (found, content) == (503, {"error": "Server is busy"})
        assert [connection.recv(1) for connection in silent] == [b""] * 20
    finally:
        for connection in silent:
            connection.close()
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
    kept = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(16)]
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


def test_the_rest_of_a_body_that_was_answered_already_is_not_waited_for_forever(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"x")
        while connection.recv(65536):
            pass  # until the server ends it, after `receive_seconds`


def test_a_client_that_goes_is_not_translated_for() -> None:
    cancelled: list[bool] = []

    class Slow(Shouting):
        async def translate(self, *_: Any) -> list[Answer]:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
            return []

    with running(service(engine=Slow())) as url:
        content = b'{"q": "a", "source": "pt", "target": "en"}'
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5) as connection:
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(content) + content)
            time.sleep(0.2)
        until = time.monotonic() + 5
        while not cancelled and time.monotonic() < until:
            time.sleep(0.01)
    assert cancelled == [True]


def test_bodies_together_are_bounded() -> None:
    app = make_app(service(limits={"max_bodies": 1_000}))
    content = json.dumps({"q": "a" * 900, "source": "pt", "target": "en"}).encode()
    headers = {"content-type": "application/json"}
    assert ask(app, "POST", "/translate", content=content, headers=headers).status_code == 200
    assert ask(app, "POST", "/translate", content=content, headers=headers).status_code == 200, "given back"
    response = ask(app, "POST", "/translate", content=content + b" " * 100, headers=headers)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert app.bodies.taken == 0
