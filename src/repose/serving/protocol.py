"""uvicorn's HTTP protocol, with limits before the application sees a request: bytes, headers, seconds, connections.

Its refusals are JSON, like all others.
"""

import contextlib
import json
from asyncio import Timeout, TimerHandle, Transport
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from repose.serving.settings import Limits

_MOST_HEADERS = 128
_CROWDED = 0.75  # share of the allowed connections; above it none is kept open after its answer
_MOST_WAITING = 16
"""Requests that a client may send before an earlier one is answered. The connection closes after the last of them."""
_LEAST_READ = 64 << 10  # bytes of answers that a client has to read in `send_seconds`
_LAST_SECONDS = 0.25  # time for a request that is on its way when the server ends


class _StopError(Exception):
    """Stops reading from a connection."""


class _Flow(FlowControl):
    """Flow control that pauses reading while requests wait for an earlier one."""

    def __init__(self, transport: Transport, pipeline: deque[Any]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


def guarded(limits: Limits, refused: Callable[[int, str], None] = lambda *_: None) -> type[HttpToolsProtocol]:
    """Return the protocol class with these limits.

    `refused` is called with the status and the sentence of each refusal: the application never sees these requests.
    """
    return type("GuardedProtocol", (_GuardedProtocol,), {"limits": limits, "refused": staticmethod(refused)})


class _GuardedProtocol(HttpToolsProtocol):
    """The protocol of one connection."""

    limits: Limits
    refused: Callable[[int, str], None]
    _head_bytes = 0
    _in_head = True
    _is_full = False
    _clock: TimerHandle | None = None
    _reader_clock: TimerHandle | None = None
    _unread = 0
    _waiting: Timeout | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "Server is busy", (b"retry-after", b"1"))
        else:
            self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._stop_reader_clock()
        super().connection_lost(exc)
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(0.0)

    @contextlib.contextmanager
    def ends(self, timeout: Timeout) -> Iterator[None]:
        """Within the block, let `timeout` expire when this connection ends."""
        self._waiting = timeout
        if self.transport.is_closing():
            timeout.reschedule(0.0)
        try:
            yield
        finally:
            self._waiting = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._is_full:
            return
        if self._in_head:
            self._start_clock()
            self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        if not self._in_head and self.cycle is not None and self.cycle.response_complete:
            self._start_clock()  # limit the time for the rest of a body that was answered before it arrived
        # Bytes after the last line of a head belong to the body, which has its own limits.
        if self._in_head and self._head_bytes > self.limits.max_head and not self.transport.is_closing():
            self._refuse(431, "Invalid request: the head is too large")

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # Ignore a request to switch to another protocol, such as HTTP/2, and answer it with HTTP/1.1.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                if not self._is_full and not self.transport.is_closing():
                    self._refuse(400, "Invalid HTTP request")
                return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _MOST_HEADERS:
            if not self.transport.is_closing():
                self._refuse(431, "Invalid request: too many headers")
            raise _StopError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _StopError
            return
        self._stop_clock()
        self._in_head, self._head_bytes = False, 0
        if len(self.pipeline) >= _MOST_WAITING:
            self._is_full, self.cycle.keep_alive = True, False
            raise _StopError
        self.scope["state"]["connection"] = self
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._in_head, self._head_bytes = True, 0
            self.flow.resume_reading()  # while paused by a large last part, it would not see the client leave

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_reader_clock()
        else:
            self.flow.resume_reading()
        crowded = len(self.connections) > _CROWDED * self.limits.max_connections
        if crowded and self.timeout_keep_alive_task is not None and not self._head_bytes:
            self._close()  # idle connections must not keep others out

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_reader_clock()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reader_clock()
        if self.transport.is_closing():
            self._start_reader_clock()

    def shutdown(self) -> None:
        """Close the connection as the server ends. Requests that were already sent are read and answered first."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LAST_SECONDS, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and not self._head_bytes and not self.transport.is_closing():
            self._close()

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
        self._close()
        self.refused(status, text)

    def _close(self) -> None:
        """Close the connection once the client has read everything that was written."""
        self.transport.close()
        self._start_reader_clock()

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
                self._close()

    def _start_reader_clock(self) -> None:
        if self._reader_clock is None:
            self._unread = self.transport.get_write_buffer_size()
            self._reader_clock = self.loop.call_later(self.limits.send_seconds, self._look_at_reader)

    def _stop_reader_clock(self) -> None:
        if self._reader_clock is not None:
            self._reader_clock.cancel()
            self._reader_clock = None

    def _look_at_reader(self) -> None:
        self._reader_clock = None
        before, now = self._unread, self.transport.get_write_buffer_size()
        if now > max(0, before - _LEAST_READ):
            self.transport.abort()
        elif now:
            self._start_reader_clock()
