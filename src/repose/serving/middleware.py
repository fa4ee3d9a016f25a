"""What every request meets first: an id, its endpoint, headers, a log line, counts, an answer whatever happens."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from repose.serving.dispatcher import TranslationError
from repose.serving.log import Log, where
from repose.serving.metrics import Metrics
from repose.serving.refusals import RequestError, closing, not_found
from repose.serving.settings import ServeSettings

_CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, X-Request-ID, X-Request-Timeout"),
    (b"access-control-expose-headers", b"Authorization, Retry-After, X-Request-ID"),
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-credentials", b"true"),
    (b"access-control-max-age", b"1728000"),
]
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_WITHOUT_CORS = ("/spec", "/docs")
_GONE = 499
_UNKNOWN = "other"
_WATCHED = ("/health", "/health/live", "/health/ready", "/metrics")
"""Endpoints that are polled every few seconds. Only their failures are logged."""


GET, POST = ("GET", "HEAD"), ("POST",)


class Route(NamedTuple):
    """What answers the requests of an endpoint."""

    handler: Callable[[Request], Awaitable[Response]]
    methods: tuple[str, ...] = GET
    has_name: bool = False
    """Whether a name follows the endpoint in the path, after a slash: the path parameter `name` of the request."""


class Bodies:
    """Counts the bytes of request bodies that are in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def take(self, state: dict[str, Any], size: int) -> bool:
        """Reserve memory for `size` more bytes of a request's body. Return whether there was room."""
        if self.taken + size > self._limit:
            return False
        self.taken += size
        state["body_bytes"] = state.get("body_bytes", 0) + size
        return True

    def give_back(self, state: dict[str, Any]) -> None:
        """Release all memory that a request has reserved."""
        self.taken -= state.pop("body_bytes", 0)


class Outermost:
    """The application: all that is done for every request, around the endpoint that answers it."""

    def __init__(self, routes: Mapping[str, Route], metrics: Metrics, log: Log, settings: ServeSettings) -> None:
        """`routes`: by endpoint, which is the beginning of its path, or all of it."""
        self._routes, self._metrics, self._log = routes, metrics, log
        self._prefix = settings.url_prefix
        self.bodies = Bodies(settings.limits.max_bodies)
        self.draining = False
        """Whether to close each connection after its next answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: dict[str, Any] = scope.setdefault("state", {})
        identity = _identity(scope)
        state["bodies"], state["facts"] = self.bodies, {}
        path = self._below_prefix(scope["path"])
        scope["root_path"] = self._prefix
        endpoint = _endpoint(path or "", self._routes)
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), *self._headers(endpoint, identity)]}
            await send(message)

        self._metrics.in_flight.inc()
        try:
            response = await self._response(path, endpoint, scope, receive)
            await response(scope, receive, answer)
        except asyncio.CancelledError:
            if status or not self.draining:
                raise
            await self._refusal(closing(), identity)(scope, receive, answer)
        except Exception as error:
            refusal = self._refusal(error, identity)
            if not status:
                await refusal(scope, receive, answer)
        finally:
            self._metrics.in_flight.dec()
            self.bodies.give_back(state)
            seconds = time.perf_counter() - began
            self._metrics.requests.labels(endpoint, str(status)).inc()
            self._metrics.seconds.labels(endpoint).observe(seconds)
            about = {"method": scope["method"], "endpoint": endpoint, "status": status}
            if not (endpoint in _WATCHED and status == 200):
                self._log("request", id=identity.decode(), **about, ms=round(1000 * seconds, 1), **state["facts"])

    def refused(self, status: int, text: str) -> None:
        """Count and log a refusal by the HTTP protocol, of which the application hears nothing."""
        self._metrics.requests.labels(_UNKNOWN, str(status)).inc()
        self._log("refused", status=status, text=text)

    def _below_prefix(self, path: str) -> str | None:
        """Return the path without the prefix, as in the routes; None if the path is not below the prefix.

        /health is also answered without the prefix, since health checks run on the server's own machine.
        """
        if not self._prefix or (path.startswith("/health") and _endpoint(path, self._routes) != _UNKNOWN):
            return path
        below = path.removeprefix(self._prefix)
        return below if len(below) < len(path) and below.startswith("/") else None

    async def _response(self, path: str | None, endpoint: str, scope: Scope, receive: Receive) -> Response:
        """Return the response of the endpoint. `path`: the path without the prefix, or None. Raises its errors."""
        if scope["method"] == "OPTIONS":
            return Response(media_type="application/json")
        if path is None and scope["path"] == self._prefix:
            query = "?" * bool(scope["query_string"]) + scope["query_string"].decode("latin-1")
            return Response("{}", 308, {"Location": f"{self._prefix}/{query}"}, "application/json")
        if path is None or (route := self._routes.get(endpoint)) is None:
            raise not_found()
        name = path.removeprefix(endpoint)
        if route.has_name:
            scope["path_params"] = {"name": name.removeprefix("/")}
        elif name:
            raise not_found()
        if scope["method"] not in route.methods:
            raise RequestError(405, "Method Not Allowed", {"Allow": ", ".join(route.methods)})
        return await route.handler(Request(scope, receive))

    def _refusal(self, error: Exception, identity: bytes) -> Response:
        """Return the response to an error, and log it if it is unexpected."""
        match error:
            case RequestError():
                return JSONResponse({"error": error.text}, error.status, error.headers)
            case HTTPException():  # Starlette's, about a file of the page
                return JSONResponse({"error": error.detail}, error.status_code, error.headers)
            case ClientDisconnect():
                return Response(status_code=_GONE)
            case TranslationError():
                return JSONResponse({"error": "The text could not be translated"}, 500)
        self._log("error", id=identity.decode(), kind=type(error).__name__, where=where(error))
        return JSONResponse({"error": "Internal error"}, 500)

    def _headers(self, endpoint: str, identity: bytes) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", identity), (b"x-content-type-options", b"nosniff")]
        if endpoint not in _WITHOUT_CORS:
            headers += _CORS
        if self.draining:
            headers.append((b"connection", b"close"))
        return headers


def _identity(scope: Scope) -> bytes:
    """Return the request's id: the client's, so that its log can be matched with ours, or else a new one."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8).encode()


def _endpoint(path: str, known: Container[str]) -> str:
    first = "/" + path[1:].partition("/")[0]
    return path if path in known else first if first in known else _UNKNOWN
