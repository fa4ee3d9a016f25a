"""`repose.data.download` against a mirror on the loopback interface that fails, stalls, truncates and lies."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from repose.data.download import Expected, MirrorsFailedError, download
from repose.data.unpack import BadCopyError

CONTENT = b"".join(b"line %d of the file\n" % number for number in range(5_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KNOWN = Expected(max_bytes=1 << 20, num_bytes=len(CONTENT), sha256=SHA256)
UNKNOWN = Expected(max_bytes=1 << 20)
STALL = 0.2  # seconds that the client waits in the tests of stalling
HALF = len(CONTENT) // 2

Answer = Callable[["Handler"], None]


class Mirror(ThreadingHTTPServer):
    """Gives the scripted answers one after the other (the last one again and again) and remembers the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.requests: list[dict[str, str]] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/corpus.txt"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is expected here."""


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.requests.append(dict(self.headers))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def whole(content: bytes = CONTENT, headers: dict[str, str] | None = None) -> Answer:
    """The whole file, whatever range is asked for."""
    return lambda handler: handler.reply(200, content, {"Content-Length": str(len(content)), **(headers or {})})


def ranges(content: bytes = CONTENT, etag: str = '"v1"', sent: int | None = None) -> Answer:
    """What RFC 9110 asks of a server that knows ranges; only `sent` bytes of the body, if given, before it hangs up."""

    def answer(handler: Handler) -> None:
        start = 0
        if "Range" in handler.headers and handler.headers.get("If-Range", etag) == etag:
            start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            handler.reply(416, b"", {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"})
            return
        headers = {"Content-Length": str(len(content) - start)}
        # With If-Range the client has the rest of the header fields already.
        headers |= {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {"ETag": etag}
        end = None if sent is None else start + sent
        handler.reply(206 if start else 200, content[start:end], headers)

    return answer


def fails(status: int) -> Answer:
    return lambda handler: handler.reply(status, b"sorry", {"Content-Length": "5"})


def stalls_after(sent: int) -> Answer:
    def answer(handler: Handler) -> None:
        handler.reply(200, CONTENT[:sent], {"Content-Length": str(len(CONTENT)), "ETag": '"v1"'})
        handler.server.closing.wait(30)

    return answer


def never_answers(handler: Handler) -> None:
    handler.server.closing.wait(30)


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mirror]]:
    """Three mirrors that run until the end of the test."""
    monkeypatch.setenv("no_proxy", "*")
    servers = [Mirror() for _ in range(3)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield servers
    for server, thread in zip(servers, threads, strict=True):
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "corpus.txt"


def accept(_path: Path) -> None:
    """A `verify` that has nothing to say."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.data.download.TIMEOUT", STALL)


def get(mirrors: list[Mirror], target: Path, expected: Expected = KNOWN) -> str:
    return download([mirror.url for mirror in mirrors], target, expected, accept)


def reasons_of(mirrors: list[Mirror], target: Path, expected: Expected = KNOWN) -> str:
    """The one reason that a single mirror's failure is given."""
    with pytest.raises(MirrorsFailedError) as failure:
        get(mirrors, target, expected)
    assert not target.exists()
    return str(failure.value)


def test_a_file_arrives_whole_with_progress_and_leaves_no_part(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole()]
    seen: list[tuple[str, int, int | None]] = []
    url = download(
        [mirrors[0].url], target, KNOWN, accept, progress=lambda name, done, total: seen.append((name, done, total))
    )
    assert url == mirrors[0].url
    assert target.read_bytes() == CONTENT
    assert not target.with_name("corpus.txt.part").exists()
    assert {(name, total) for name, _, total in seen} == {("corpus.txt", len(CONTENT))}
    done = [done for _, done, _ in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, len(CONTENT))


def test_a_good_file_is_not_downloaded_again_and_keeps_its_origin(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [fails(404)]
    mirrors[1].answers = [whole()]
    assert get(mirrors[:2], target) == mirrors[1].url
    assert get(mirrors[:2], target) == mirrors[1].url
    assert len(mirrors[1].requests) == 1


def test_a_damaged_file_is_downloaded_again(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole()]
    target.parent.mkdir()
    target.write_bytes(CONTENT[:-1])
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [fails(500)]
    mirrors[1].answers = [fails(404)]
    mirrors[2].answers = [whole()]
    assert get(mirrors, target) == mirrors[2].url
    assert [len(mirror.requests) for mirror in mirrors] == [1, 1, 1]


def test_when_all_mirrors_fail_each_reason_is_given(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [fails(500)]
    mirrors[1].answers = [fails(404)]
    silent = Mirror()
    silent.server_close()  # Nobody listens at this port any more.
    with pytest.raises(MirrorsFailedError) as failure:
        get([*mirrors[:2], silent], target)
    first, second, third = str(failure.value).split("; ")
    assert first.startswith("127.0.0.1: HTTP 500")
    assert second.startswith("127.0.0.1: HTTP 404")
    assert "refused" in third


@pytest.mark.parametrize("sent", [1, HALF, len(CONTENT) - 1])
def test_a_broken_connection_is_resumed_where_it_broke(mirrors: list[Mirror], target: Path, sent: int) -> None:
    mirrors[0].answers = [ranges(sent=sent), ranges()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    again = mirrors[0].requests[1]
    assert again["Range"] == f"bytes={sent}-"
    assert again["If-Range"] == '"v1"'


def test_a_download_that_breaks_twice_keeps_its_version(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(sent=100), ranges(sent=100), ranges()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    assert [request.get("Range") for request in mirrors[0].requests] == [None, "bytes=100-", "bytes=200-"]


def test_a_later_call_resumes_what_an_earlier_one_left(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(sent=HALF), fails(503)]
    assert "HTTP 503" in reasons_of(mirrors[:1], target)
    mirrors[0].answers = [ranges()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    assert mirrors[0].requests[-1]["Range"] == f"bytes={HALF}-"


def test_a_mirror_that_keeps_breaking_off_is_given_up(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(sent=100)]
    reason = reasons_of(mirrors[:1], target)
    assert "closed the connection after 300 of" in reason
    assert len(mirrors[0].requests) == 3


def test_a_server_without_ranges_starts_again(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(sent=HALF), whole()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT


def test_without_a_validator_no_range_is_asked_for(mirrors: list[Mirror], target: Path) -> None:
    def broken(handler: Handler) -> None:
        handler.reply(200, CONTENT[:HALF], {"Content-Length": str(len(CONTENT))})

    mirrors[0].answers = [broken, ranges()]
    get(mirrors[:1], target)
    assert "Range" not in mirrors[0].requests[1]


def test_a_weak_entity_tag_is_no_validator_but_a_date_is(mirrors: list[Mirror], target: Path) -> None:
    date = "Tue, 06 Feb 2024 10:00:00 GMT"

    def broken(handler: Handler) -> None:
        headers = {"Content-Length": str(len(CONTENT)), "ETag": 'W/"v1"', "Last-Modified": date}
        handler.reply(200, CONTENT[:HALF], headers)

    mirrors[0].answers = [broken, whole()]
    get(mirrors[:1], target)
    assert mirrors[0].requests[1]["If-Range"] == date


def test_a_file_that_changed_in_between_is_not_spliced(mirrors: list[Mirror], target: Path) -> None:
    changed = CONTENT.upper()
    mirrors[0].answers = [ranges(sent=HALF), ranges(changed, etag='"v2"')]
    get(mirrors[:1], target, UNKNOWN)
    assert target.read_bytes() == changed


def test_a_splice_by_a_server_that_ignores_if_range_is_noticed_and_mended(mirrors: list[Mirror], target: Path) -> None:
    # Both versions carry the same entity tag, so that only the checksum tells them apart.
    mirrors[0].answers = [ranges(CONTENT.upper(), sent=HALF), ranges()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    assert [request.get("Range") for request in mirrors[0].requests] == [None, f"bytes={HALF}-", None]


def test_another_range_than_asked_for_is_refused(mirrors: list[Mirror], target: Path) -> None:
    def elsewhere(handler: Handler) -> None:
        rest = CONTENT[HALF + 7 :]
        span = f"bytes {HALF + 7}-{len(CONTENT) - 1}/{len(CONTENT)}"
        handler.reply(206, rest, {"Content-Length": str(len(rest)), "Content-Range": span})

    mirrors[0].answers = [ranges(sent=HALF), elsewhere]
    assert "another part" in reasons_of(mirrors[:1], target, UNKNOWN)


def test_a_part_that_is_too_long_for_the_file_is_dropped(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(CONTENT + CONTENT, sent=len(CONTENT) + 5), ranges()]
    get(mirrors[:1], target, UNKNOWN)
    assert target.read_bytes() == CONTENT
    assert len(mirrors[0].requests) == 3, "the second is answered with 416, the third asks for no range"


def test_a_complete_part_is_not_asked_for_again(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(sent=HALF), fails(503)]
    reasons_of(mirrors[:1], target)
    target.with_name("corpus.txt.part").write_bytes(CONTENT)
    before = len(mirrors[0].requests)
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    assert len(mirrors[0].requests) == before


def test_the_part_of_one_mirror_is_not_continued_by_another(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [ranges(CONTENT.upper(), sent=HALF), fails(503)]
    mirrors[1].answers = [ranges()]
    get(mirrors[:2], target, UNKNOWN)
    assert target.read_bytes() == CONTENT
    assert "Range" not in mirrors[1].requests[0]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answer", [never_answers, stalls_after(0)])
def test_a_mirror_that_does_not_answer_gives_way_to_the_next(
    mirrors: list[Mirror], target: Path, answer: Answer
) -> None:
    mirrors[0].answers = [answer]
    mirrors[1].answers = [whole()]
    assert get(mirrors[:2], target) == mirrors[1].url
    assert len(mirrors[0].requests) == 1


@pytest.mark.usefixtures("impatient")
def test_a_stalled_transfer_is_resumed(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [stalls_after(HALF), ranges()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    assert mirrors[0].requests[1]["Range"] == f"bytes={HALF}-"


@pytest.mark.usefixtures("impatient")
def test_a_stall_is_called_one(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [never_answers]
    assert "did not answer in time" in reasons_of(mirrors[:1], target)


def test_a_wrong_size_is_refused_before_the_transfer(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole(CONTENT + b"!")]
    assert f"{len(CONTENT) + 1:,} bytes instead of {len(CONTENT):,}" in reasons_of(mirrors[:1], target)
    assert not target.with_name("corpus.txt.part").exists()


def test_a_wrong_content_of_the_right_size_is_refused(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole(CONTENT.upper())]
    assert "SHA-256" in reasons_of(mirrors[:1], target)
    assert len(mirrors[0].requests) == 1, "what came in one answer is what the mirror has"
    assert not target.with_name("corpus.txt.part").exists()


def without_length(content: bytes) -> Answer:
    """An answer that ends where the connection does."""
    return lambda handler: handler.reply(200, content, {})


def chunked(content: bytes, *, complete: bool) -> Answer:
    def answer(handler: Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        body = b"%x\r\n%s\r\n" % (len(content), content) + (b"0\r\n\r\n" if complete else b"")
        handler.reply(200, body, {"Transfer-Encoding": "chunked", "Connection": "close"})
        handler.close_connection = True

    return answer


def test_an_answer_of_unknown_length_is_taken_and_bounded(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [without_length(CONTENT)]
    get(mirrors[:1], target, UNKNOWN)
    assert target.read_bytes() == CONTENT
    target.unlink()
    mirrors[0].answers = [without_length(CONTENT)]
    assert "sends more than 1,000 bytes" in reasons_of(mirrors[:1], target, Expected(max_bytes=1_000))


def test_an_announced_length_above_the_bound_is_refused(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole()]
    assert "more than the 1,000 allowed" in reasons_of(mirrors[:1], target, Expected(max_bytes=1_000))


def test_a_truncated_answer_of_unknown_length_fails_the_size_check(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [without_length(CONTENT[:-1])]
    assert "instead of" in reasons_of(mirrors[:1], target)


def test_chunked_transfer_is_read_and_its_early_end_noticed(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [chunked(CONTENT[:HALF], complete=False), chunked(CONTENT, complete=True)]
    get(mirrors[:1], target, UNKNOWN)
    assert target.read_bytes() == CONTENT
    assert len(mirrors[0].requests) == 2


def test_what_verify_refuses_counts_against_the_mirror(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole(b"<html>not here any more</html>")]
    mirrors[1].answers = [whole()]
    refused = []

    def verify(path: Path) -> None:
        if path.read_bytes().startswith(b"<html>"):
            refused.append(path.name)
            raise BadCopyError("it is a web page")

    url = download([mirror.url for mirror in mirrors[:2]], target, UNKNOWN, verify)
    assert url == mirrors[1].url
    assert target.read_bytes() == CONTENT
    assert refused == ["corpus.txt.part"], "a file that is refused never gets the target's name"


def test_a_redirection_is_followed(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [lambda handler: handler.reply(302, b"", {"Location": mirrors[1].url, "Content-Length": "0"})]
    mirrors[1].answers = [whole()]
    assert get(mirrors[:1], target) == mirrors[0].url


def test_a_disk_that_cannot_be_written_is_not_blamed_on_the_mirror(mirrors: list[Mirror], target: Path) -> None:
    mirrors[0].answers = [whole()]
    target.with_name("corpus.txt.part").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        get(mirrors[:2], target)


def test_a_broken_origin_file_only_costs_the_resumption(mirrors: list[Mirror], target: Path) -> None:
    target.parent.mkdir()
    target.with_name("corpus.txt.part").write_bytes(CONTENT[:HALF])
    target.with_name("corpus.txt.origin").write_text("[3]")
    mirrors[0].answers = [ranges()]
    get(mirrors[:1], target)
    assert target.read_bytes() == CONTENT
    assert "Range" not in mirrors[0].requests[0]
