"""The server benchmark counts answers, and notices answers that belong to another text."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

import serve


async def _server(change_after: int) -> tuple[asyncio.Server, list[int]]:
    """Shouts; after so many requests it says something else, and at last it fails."""
    counted = [0]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                q = json.loads(await reader.readexactly(length))["q"]
                counted[0] += 1
                said = [text.upper() + "!" * (counted[0] > change_after) for text in ([q] if isinstance(q, str) else q)]
                body = json.dumps({"translatedText": said[0] if isinstance(q, str) else said}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except asyncio.IncompleteReadError:
            writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0), counted


@pytest.mark.parametrize("size", [None, 3])
def test_answers_are_counted_and_compared(size: int | None) -> None:
    async def run() -> Any:
        server, counted = await _server(change_after=50)
        port = server.sockets[0].getsockname()[1]
        known: dict[str, str] = {}
        one: Any = SimpleNamespace(
            port=port,
            is_known=lambda text, got: known.setdefault(text, got) == got,
            processor_seconds=lambda: float(counted[0]),
        )
        async with server:
            asked = await serve.ask(one, 4, 0.2, ["a", "b"], size)
        return asked, counted[0]

    asked, counted = asyncio.run(run())
    assert asked.requests == counted == len(asked.latencies) > 60
    assert asked.failed == 0
    assert asked.wrong == counted - 50
    figures = asked.as_json()
    assert figures["processor_ms_per_request"] == pytest.approx(1000.0)
    assert figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
    before = asked.requests
    asked.add(asked)
    assert asked.requests == len(asked.latencies) == 2 * before
    assert asked.as_json()["requests_per_second"] == pytest.approx(figures["requests_per_second"])
