"""Error responses: a status, a sentence, and headers such as Retry-After."""

from collections.abc import Mapping


class RequestError(Exception):
    """Ends a request with the response `{"error": text}`."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, dict(headers or {})


def missing(name: str) -> RequestError:
    """Return the error for a missing or empty parameter."""
    return RequestError(400, f"Invalid request: missing {name} parameter")


def not_found() -> RequestError:
    return RequestError(404, "Not Found")


def too_long(size: int, limit: int) -> RequestError:
    """Return the error for a request with more characters, or more texts, than the limit."""
    return RequestError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")


def body_too_large(limit: int) -> RequestError:
    return RequestError(413, f"Invalid request: the body is larger than {limit} bytes")


def busy(seconds: int) -> RequestError:
    return RequestError(503, "Server is busy", {"Retry-After": str(max(1, seconds))})


def loading() -> RequestError:
    return RequestError(503, "Server is still loading its models", {"Retry-After": "1"})


def closing() -> RequestError:
    return RequestError(503, "Server is closing", {"Retry-After": "1"})


def slow_down(limit: int, unit: str, seconds: float) -> RequestError:
    return RequestError(429, f"Slowdown: {limit} per 1 {unit}", {"Retry-After": str(max(1, int(seconds + 0.999)))})


def flood(seconds: float) -> RequestError:
    return RequestError(403, "Too many request limits violations", {"Retry-After": str(max(1, int(seconds + 0.999)))})


def too_slow() -> RequestError:
    return RequestError(408, "Request took too long to arrive", {"Connection": "close"})


def too_late(seconds: float) -> RequestError:
    return RequestError(504, f"Request was not answered within {seconds:g} seconds")
