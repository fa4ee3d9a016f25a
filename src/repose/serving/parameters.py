"""Read the parameters of a request from JSON, a form (URL-encoded or multipart), or the query string."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from repose.serving.refusals import RequestError, body_too_large, busy, missing, too_long
from repose.serving.settings import NO_LIMIT, Limits

_MOST_FIELDS = 64
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SURROGATE = re.compile("[\ud800-\udfff]")
_INVALID_JSON = "Invalid JSON format"
_UNREADABLE_FORM = "Invalid request: the multipart form cannot be read"


class Upload(NamedTuple):
    """A file uploaded in a form."""

    name: str
    content: bytes


class Parameters:
    """Parameters of a request by name. Of repeated ones the first counts; the query string comes before the body."""

    def __init__(self, values: Mapping[str, Any], *, is_json: bool) -> None:
        self._values, self._is_json = values, is_json

    def get(self, name: str) -> Any:
        """Return the value as it came, with lone surrogates in a string replaced; None if it is missing."""
        value = self._values.get(name)
        return clean(value) if isinstance(value, str) else value

    def text(self, name: str) -> str:
        """Return a string. Raises RequestError if it is missing, empty or not a string."""
        value = self.get(name)
        if value is None or value in ("", []):
            raise missing(name)
        if not isinstance(value, str):
            raise RequestError(400, f"Invalid request: {name} parameter is not a string")
        return value

    def texts(self, name: str) -> str | list[str]:
        """Return a text, or from JSON a list of texts. Line ends of a form's text become line feeds.

        Raises RequestError if the parameter is missing, empty or of another type.
        """
        value = self.get(name)
        if isinstance(value, list) and value:
            if not all(isinstance(text, str) for text in value):
                raise RequestError(400, f"Invalid request: {name} parameter is not a list of strings")
            return [clean(text) for text in value]
        text = self.text(name)
        return text if self._is_json else "\n".join(text.splitlines())

    def number(self, name: str, most: int) -> int:
        """Return a number of at most `most`; 0 if it is missing or negative. Raises RequestError for anything else."""
        value = self.get(name)
        if value is None or value == "":
            return 0
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError
            number = max(0, int(value))
        except (ValueError, OverflowError) as error:
            raise RequestError(400, f"Invalid request: {name} parameter is not a number") from error
        if number > most:
            raise RequestError(400, f"Invalid request: {name} parameter must be <= {most}")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a flag, written as true or false, 1 or 0, yes or no. Raises RequestError for anything else."""
        value = self.get(name)
        if value is None or value == "":
            return default
        if (said := str(value).lower()) not in _FLAGS:
            raise RequestError(400, f"Invalid request: {name} parameter is not true or false")
        return _FLAGS[said]

    def upload(self, name: str) -> Upload:
        """Return a file of a multipart form. Raises RequestError if there is none."""
        value = self._values.get(name)
        if not isinstance(value, Upload):
            raise missing(name)
        return value


def check_sizes(texts: str | list[str], limits: Limits) -> None:
    """Raise RequestError if there are too many texts, or if one is too long."""
    if isinstance(texts, list) and limits.batch_limit != NO_LIMIT and len(texts) > limits.batch_limit:
        raise too_long(len(texts), limits.batch_limit)
    longest = max(map(len, [texts] if isinstance(texts, str) else texts))
    if limits.char_limit != NO_LIMIT and longest > limits.char_limit:
        raise too_long(longest, limits.char_limit)


def clean(text: str) -> str:
    """Replace lone surrogates, which JSON can contain but no encoding can represent."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


async def read(request: Request, limits: Limits, take: Callable[[int], bool]) -> Parameters:
    """Read the parameters of a request. `take`: reserves memory for a number of bytes; returns whether there was room.

    Raises RequestError if the request is malformed or too large, ClientDisconnect if the client leaves.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    is_multipart = kind == "multipart/form-data"
    most = limits.max_json if is_json else limits.max_body if is_multipart else limits.max_form
    body = await _read_body(request, most, take)
    if is_json:
        return Parameters(_from_json(body), is_json=True)
    values: dict[str, Any] = {}
    pairs = _from_query(request.scope["query_string"])
    if is_multipart:
        pairs += await _from_multipart(request, body, limits)
    else:
        pairs += _from_query(body)
    for name, value in pairs:
        values.setdefault(name, value)
    return Parameters(values, is_json=False)


async def _read_body(request: Request, limit: int, take: Callable[[int], bool]) -> bytes:
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise RequestError(415, f"Invalid request: the body is compressed ({coding!a:.20}): send it as it is")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise body_too_large(limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise body_too_large(limit)
        if not take(len(chunk)):
            raise busy(1)
        chunks.append(chunk)
    return b"".join(chunks)


def _from_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, _INVALID_JSON) from error
    if not isinstance(found, dict):
        raise RequestError(400, _INVALID_JSON)
    return found


def _from_query(data: bytes) -> list[tuple[str, Any]]:
    try:
        return parse_qsl(
            data.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS
        )
    except ValueError as error:
        raise RequestError(400, f"Invalid request: more than {_MOST_FIELDS} parameters") from error


async def _from_multipart(request: Request, body: bytes, limits: Limits) -> list[tuple[str, Any]]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    # Starlette would decode with any Python codec that the client names as `charset`; some take quadratic time.
    boundary = parse_options_header(request.headers["content-type"])[1].get(b"boundary", b"").decode("latin-1")
    if not boundary:
        raise RequestError(400, _UNREADABLE_FORM)
    quoted = boundary.replace("\\", "\\\\").replace('"', '\\"')
    headers = Headers({"content-type": f'multipart/form-data; boundary="{quoted}"'})
    parser = MultiPartParser(headers, stream(), max_files=1, max_fields=_MOST_FIELDS, max_part_size=limits.max_body)
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RequestError(400, _UNREADABLE_FORM) from error
    except OSError as error:  # large parts are buffered in a file
        raise RequestError(507, f"The form cannot be kept: {error.strerror or error}") from error
    found: list[tuple[str, Any]] = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            found.append((name, Upload(value.filename or "", await value.read())))
            await value.close()
        else:
            found.append((name, value))
    return found
