"""uvicorn's HTTP protocol with bounds on what it reads before a request is known: bytes, lines, seconds, connections.

Its refusals are JSON, as all others are.
"""

import json
from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from repose.serving.settings import Limits
from repose.serving.waiting import GoneError, Waiting

_MOST_HEADERS = 128
_CROWDED = 0.75  # of all connections that there may be: from here on none is kept after its answer
_LAST_SECONDS = 0.25  # for a request that is on its way when the server ends


class _HeadersError(Exception):
    """Of one request."""


def guarded(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol with these limits."""
    return type("GuardedProtocol", (_GuardedProtocol,), {"limits": limits})


class _GuardedProtocol(HttpToolsProtocol):
    """Of one connection."""

    limits: Limits
    _head_bytes = 0
    _in_head = True
    _clock: TimerHandle | None = None
    waiting: Waiting | None = None
    """The request that is to end with the connection."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "Server is busy", (b"retry-after", b"1"))
        else:
            self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)
        if self.waiting is not None:
            self.waiting.end(GoneError())

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._start_clock()
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head and self.cycle is not None and self.cycle.response_complete:
            self._start_clock()  # the rest of a body that was answered before it was there: nobody else waits for it
        # What came with the last line of a head is a body, which has limits of its own.
        if self._in_head and self._head_bytes > self.limits.max_head and not self.transport.is_closing():
            self._refuse(431, "Invalid request: the head is too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _MOST_HEADERS:
            if not self.transport.is_closing():
                self._refuse(431, "Invalid request: too many headers")
            raise _HeadersError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_clock()
        self._in_head, self._head_bytes = False, 0
        self.scope["state"]["connection"] = self
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def on_response_complete(self) -> None:
        super().on_response_complete()
        crowded = len(self.connections) > _CROWDED * self.limits.max_connections
        if crowded and self.timeout_keep_alive_task is not None and not self._head_bytes:
            self.transport.close()  # nobody keeps a place by doing nothing

    def shutdown(self) -> None:
        """As the server ends: what has been sent already is read and answered before the connection is closed."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LAST_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and not self._head_bytes and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        if not self.transport.is_closing():
            self._refuse(400, "Invalid HTTP request")

    def _refuse(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        body = json.dumps({"error": text}).encode()
        lines = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *headers,
        ]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        self.transport.write(STATUS_LINE[status] + head + b"\r\n" + body)
        self.transport.close()

    def _start_clock(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self.limits.receive_seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_slow(self) -> None:
        self._clock = None
        if not self.transport.is_closing():
            if self._head_bytes:
                self._refuse(408, "Request took too long to arrive")
            else:
                self.transport.close()
