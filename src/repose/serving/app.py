"""Endpoints of the server: LibreTranslate's API as its clients use it, and also /explain, /models and the page.

Every error is answered with `{"error": sentence}`.
"""

import asyncio
import errno
import hmac
import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from repose.data.scripts import has_letters
from repose.documents.formats import FORMATS
from repose.serving import documents, explain, files, page, parameters
from repose.serving.access import Access, address_of
from repose.serving.catalogue import Catalogue, Direction
from repose.serving.dispatcher import ANSWERED_BY, Dispatcher
from repose.serving.languages import NOTHING, Detected, canonical, detect, name_of, shown
from repose.serving.log import Log
from repose.serving.metrics import CONTENT_TYPE, Metrics
from repose.serving.middleware import POST, Outermost, Route
from repose.serving.parameters import Parameters, check_sizes
from repose.serving.refusals import RequestError, closing, loading, too_late, too_long, too_slow
from repose.serving.settings import NO_LIMIT, ServeSettings
from repose.serving.spec import docs, spec
from repose.serving.texts import TranslatedText, translate_texts, warnings_of_unchanged

T = TypeVar("T")
FRONTEND_TIMEOUT = 500
"""Milliseconds after the last keystroke before the page translates."""
_ARCHIVES_AT_ONCE = 4  # documents of office programs, which take far more memory than their files' size
_SANDBOX = {"Content-Security-Policy": "sandbox; default-src 'none'"}
_SECONDS = re.compile(r"\d{1,5}(\.\d{1,3})?")
_AUTO = "auto"
_APPENDING = threading.Lock()


class Service:
    """The endpoints, with the models, their dispatcher and access control."""

    def __init__(
        self, settings: ServeSettings, catalogue: Catalogue, dispatcher: Dispatcher, metrics: Metrics, log: Log
    ) -> None:
        """Raises the errors of `Access`."""
        self.settings, self.metrics, self.log = settings, metrics, log
        self.catalogue, self.dispatcher = catalogue, dispatcher
        self.access = Access(settings)
        self.downloads = files.Downloads(settings.limits)
        self._archives = asyncio.Semaphore(_ARCHIVES_AT_ONCE)
        self.ready = False
        """True once everything that requests need is loaded, until the server starts to end."""
        self.ending = False
        metrics.set_models(catalogue.models_json(), settings.precision or "fp32")

    def exchange(self, catalogue: Catalogue, dispatcher: Dispatcher) -> Dispatcher:
        """Switch to other models and return the previous dispatcher, which may still be translating."""
        before, self.catalogue, self.dispatcher = self.dispatcher, catalogue, dispatcher
        self.metrics.set_models(catalogue.models_json(), self.settings.precision or "fp32")
        return before

    # Reading a request

    async def read(self, request: Request, *, cost: Callable[[Parameters], int] = lambda _: 1) -> Parameters:
        """Return the parameters of a request. `cost`: computes how many requests it counts as.

        Raises RequestError if the request cannot be read or the client has no access.
        """
        state = request.scope["state"]
        host, _ = request.scope["client"] or (None, 0)
        trust = self.settings.trust_forwarded_for
        address = address_of(host, request.headers, trust_forwarded_for=trust)
        try:
            found = await self._parameters(request)
            state["counted"] = cost(found)
        except RequestError:
            self.access.charge(address, 1)  # to the address: if there is a key, it could not be read
            raise
        state["client"] = self.access.check(address, found.get("api_key"), state["counted"])
        return found

    async def _parameters(self, request: Request) -> Parameters:
        limits, state = self.settings.limits, request.scope["state"]
        try:
            async with asyncio.timeout(limits.receive_seconds):
                return await parameters.read(request, limits, partial(state["bodies"].take, state))
        except TimeoutError as error:
            raise too_slow() from error

    def detected(self, source: str, texts: Sequence[str]) -> Detected | None:
        """Detect the language of texts together if `source` is auto; return None otherwise.

        Raises RequestError if no language is detected.
        """
        if source.lower() != _AUTO:
            return None
        if found := self.detect("\n".join(texts)):
            return found[0]
        if any(map(has_letters, texts)):
            raise RequestError(400, "The language of the text could not be detected: name it as source")
        return NOTHING

    def direction(self, source: str, target: str, detected: Detected | None, kind: object = None) -> Direction | None:
        """Return the requested direction; None if there is nothing to translate. `kind`: the requested format.

        Raises RequestError if the direction or the format is not supported.
        """
        start = canonical(source) if detected is None else detected.language
        for code, name in ((start if detected is None else None, source), (canonical(target), target)):
            if code is not None and code not in self.catalogue.languages:
                raise RequestError(400, f"{name} is not supported")
        if kind not in (None, "", "text", "html"):
            raise RequestError(400, f"{kind} format is not supported")
        return None if detected is NOTHING else self.catalogue.direction(start, canonical(target))

    def detect(self, text: str) -> list[Detected]:
        """Return the source languages that a text may be in, the most probable first."""
        return detect(text, self.catalogue.sources)

    async def answer(self, request: Request, work: Awaitable[T], seconds: float) -> T:
        """Return the result of `work`, which is cancelled if the client leaves or the time is over.

        `seconds`: the time limit, which the header X-Request-Timeout can lower. Raises ClientDisconnect if the client
        leaves, RequestError if the time is over. Until a worker has loaded the models, requests wait as in a queue.
        """
        asked = request.headers.get("x-request-timeout")
        if asked is not None and _SECONDS.fullmatch(asked):
            seconds = min(seconds, float(asked))
        ANSWERED_BY.set(time.monotonic() + seconds)  # for this request only: each has its own context
        connection = request.scope["state"].get("connection")  # None in tests without a network
        try:
            async with asyncio.timeout(seconds) as timeout:
                with self.dispatcher.in_use(), connection.ends(timeout) if connection else nullcontext():
                    return await work
        except TimeoutError as error:
            if connection is not None and connection.transport.is_closing():
                raise ClientDisconnect from error
            raise (too_late(seconds) if self.dispatcher.ready else loading()) from error

    # Endpoints

    async def translate(self, request: Request) -> Response:
        limits = self.settings.limits
        found = await self.read(request, cost=_number_of_texts)
        texts = found.texts("q")
        source, target = found.text("source"), found.text("target")
        alternatives = found.number("alternatives", limits.most_alternatives)
        check_sizes(texts, limits)
        several = [texts] if isinstance(texts, str) else texts
        is_html = found.get("format") == "html"

        async def work() -> tuple[Detected | None, Direction | None, list[TranslatedText]]:
            pages = await documents.read_html(several) if is_html else []
            letters = [text for _, text in pages] if is_html else several
            detected = self.detected(source, letters)
            direction = self.direction(source, target, detected, found.get("format"))
            if direction is None:
                warnings = (tuple(warnings_of_unchanged(text, target)) for text in letters)
                unchanged = zip(several, warnings, strict=True)
                return detected, None, [TranslatedText(text, warnings=about) for text, about in unchanged]
            beam_size = self.settings.beam_size
            with self.dispatcher.in_use():  # another dispatcher if the models have been replaced
                if is_html:
                    read = [page for page, _ in pages]
                    made = await documents.translate_html(self.dispatcher, direction, read, beam_size)
                else:
                    made = await translate_texts(
                        self.dispatcher, direction, several, beam_size=beam_size, alternatives=alternatives
                    )
            return detected, direction, made

        facts = request.scope["state"]["facts"]
        facts |= {"texts": len(several), "characters": sum(map(len, several))}
        detected, direction, translated = await self.answer(request, work(), limits.timeout)
        facts["source"] = shown(direction.source) if direction else None
        facts["target"] = shown(direction.target) if direction else None
        return JSONResponse(_answer(translated, isinstance(texts, list), detected, alternatives))

    async def detect_language(self, request: Request) -> Response:
        found = await self.read(request, cost=_number_of_texts)
        texts = found.texts("q")
        check_sizes(texts, self.settings.limits)
        text = texts if isinstance(texts, str) else "\n".join(texts)
        return JSONResponse([detected.to_json() for detected in self.detect(text) or [NOTHING]])

    async def languages(self, _: Request) -> Response:
        return JSONResponse(self.catalogue.to_json())

    async def models(self, _: Request) -> Response:
        return JSONResponse(self.catalogue.models_json())

    async def frontend_settings(self, _: Request) -> Response:
        first, settings = self.catalogue.first, self.settings
        return JSONResponse(
            {
                "explainLimit": settings.limits.explain_limit,
                "charLimit": settings.limits.char_limit,
                "alternativesLimit": settings.limits.most_alternatives,
                "frontendTimeout": FRONTEND_TIMEOUT,
                "apiKeys": self.access.has_keys,
                "keyRequired": settings.key_required,
                "suggestions": settings.suggestions is not None,
                "filesTranslation": settings.files,
                "supportedFilesFormat": list(FORMATS) if settings.files else [],
                "language": {
                    "source": {"code": shown(first.source), "name": name_of(first.source)},
                    "target": {"code": shown(first.target), "name": name_of(first.target)},
                },
            }
        )

    async def suggest(self, request: Request) -> Response:
        found = await self.read(request)
        if self.settings.suggestions is None:
            raise RequestError(403, "Suggestions are disabled on this server.")
        entry = {name: found.text(name) for name in ("q", "s", "source", "target")}
        check_sizes([entry["q"], entry["s"]], self.settings.limits)
        self.direction(entry["source"], entry["target"], None)
        try:
            await asyncio.to_thread(_append, self.settings.suggestions, entry)
        except OSError as error:
            raise RequestError(507, f"The suggestion cannot be kept: {error.strerror or error}") from error
        return JSONResponse({"success": True})

    async def translate_file(self, request: Request) -> Response:
        if not self.settings.files:
            raise RequestError(403, "Files translation are disabled on this server.")
        found = await self.read(request, cost=lambda found: self._cost(len(found.upload("file").content)))
        upload = found.upload("file")
        source, target = found.text("source"), found.text("target")
        suffix = files.suffix_of(upload.name, FORMATS)
        content, state = upload.content, request.scope["state"]

        async def work() -> tuple[str, bytes, list[str]]:
            async with self._archives if FORMATS[suffix].archive else nullcontext():
                document = await documents.read(content, suffix)
                media_type = documents.media_type(suffix, document)
                if FORMATS[suffix].archive:  # the size of the packed file was counted
                    size = sum(len(segment.text) for segment in document.segments)
                    self.access.charge(state["client"], self._cost(size), counted=state["counted"])
                letters = documents.letters_of(document)
                direction = self.direction(source, target, self.detected(source, [letters]))
                if direction is None:
                    return media_type, content, warnings_of_unchanged(letters, target)
                with self.dispatcher.in_use():  # another dispatcher if the models have been replaced
                    return media_type, *await documents.translate_file(
                        self.dispatcher, direction, document, self.settings.beam_size
                    )

        state["facts"] |= {"bytes": len(content), "format": suffix}
        self._check_open()
        media_type, translated, warnings = await self.answer(request, work(), self.settings.limits.file_timeout)
        self._check_open()
        name = self.downloads.put(suffix, translated, media_type)
        answer = {"translatedFileUrl": f"{self._base_url(request)}download_file/{name}"}
        return JSONResponse(answer | ({"warnings": warnings} if warnings else {}))

    def _check_open(self) -> None:
        """Raise RequestError if the server is ending: it would delete the translated file."""
        if self.ending:
            raise closing()

    def _base_url(self, request: Request) -> str:
        """Return the server's URL as the client knows it, with a slash at the end."""
        scheme = request.headers.get("x-forwarded-proto", "") if self.settings.trust_forwarded_for else ""
        url = request.base_url
        return str(url.replace(scheme=scheme) if scheme in ("http", "https") else url)

    def _cost(self, size: int) -> int:
        """Return how many requests a file with this many bytes or letters counts as."""
        limit = self.settings.limits.char_limit
        return 1 if limit == NO_LIMIT else max(1, -(-size // limit))

    async def download_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        content, media_type = self.downloads.get(name)
        disposition = f'attachment; filename="translated{Path(name).suffix}"'
        headers = {**_SANDBOX, "Content-Disposition": disposition, "Content-Type": media_type}
        return Response(content, headers=headers)  # `media_type` would add UTF-8 to a text type

    async def explain(self, request: Request) -> Response:
        found = await self.read(request)
        text, source, target = found.text("q"), found.text("source"), found.text("target")
        limits = self.settings.limits
        alternatives = found.number("alternatives", limits.most_alternatives)
        heads = found.flag("heads", default=True)
        check_sizes(text, limits)
        if len(text) > limits.explain_limit:
            raise too_long(len(text), limits.explain_limit)
        detected = self.detected(source, [text])
        direction = self.direction(source, target, detected)
        about = {} if detected is None else {"detectedLanguage": detected.to_json()}
        if direction is None:
            nothing = {"sentences": [], "alternatives": [], "warnings": warnings_of_unchanged(text, target)}
            return JSONResponse({"translatedText": text, **nothing, "model": None, **about})
        beam_size = self.settings.beam_size
        work = explain.explain(
            self.dispatcher, direction, text, beam_size=beam_size, alternatives=alternatives, heads=heads
        )
        answer = await self.answer(request, work, limits.timeout)
        return JSONResponse({**answer, "model": direction.model.about, **about})

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def health_ready(self, _: Request) -> Response:
        ready = self.ready and self.dispatcher.ready
        return JSONResponse({"status": "ok" if ready else "not ready"}, 200 if ready else 503)

    async def expose_metrics(self, request: Request) -> Response:
        token = self.settings.metrics_token
        if token is not None:
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                raise RequestError(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})
        return Response(self.metrics.exposed(), headers={"Content-Type": CONTENT_TYPE})

    async def spec(self, _: Request) -> Response:
        return JSONResponse(spec(self.settings))

    async def docs(self, _: Request) -> Response:
        return Response(docs(self.settings), media_type="text/html", headers=page.HEADERS)


def make_app(service: Service) -> Outermost:
    """Build the application: the middleware around the endpoints."""
    settings = service.settings
    routes = {
        "/translate": Route(service.translate, POST),
        "/detect": Route(service.detect_language, POST),
        "/languages": Route(service.languages),
        "/frontend/settings": Route(service.frontend_settings),
        "/suggest": Route(service.suggest, POST),
        "/translate_file": Route(service.translate_file, POST),
        "/download_file": Route(service.download_file, has_name=True),
        "/explain": Route(service.explain, POST),
        "/models": Route(service.models),
        "/health": Route(service.health),
        "/health/live": Route(service.health),
        "/health/ready": Route(service.health_ready),
        "/spec": Route(service.spec),
        "/docs": Route(service.docs),
    }
    if settings.metrics:
        routes["/metrics"] = Route(service.expose_metrics)
    if settings.page:
        routes |= {"/": Route(page.file), "/page": Route(page.file, has_name=True)}
    return Outermost(routes, service.metrics, service.log, settings)


def _number_of_texts(found: Parameters) -> int:
    texts = found.get("q")
    return max(1, len(texts)) if isinstance(texts, list) else 1


def _answer(
    translated: list[TranslatedText], is_list: bool, detected: Detected | None, alternatives: int
) -> dict[str, object]:
    """Return the answer of /translate as LibreTranslate's clients read it, and with `warnings` if there are any."""

    def one_or_all(values: list[Any]) -> Any:
        return values if is_list else values[0]

    answer: dict[str, object] = {"translatedText": one_or_all([one.text for one in translated])}
    if detected is not None:
        answer["detectedLanguage"] = one_or_all([detected.to_json()] * len(translated))
    if alternatives:
        answer["alternatives"] = one_or_all([list(one.alternatives) for one in translated])
    if any(one.warnings for one in translated):
        answer["warnings"] = one_or_all([list(one.warnings) for one in translated])
    return answer


def _append(path: Path, entry: dict[str, str]) -> None:
    """Append a JSON line to a file, or leave the file unchanged and raise OSError."""
    line = (json.dumps(entry, ensure_ascii=False) + "\n").encode()
    with _APPENDING, path.open("ab", buffering=0) as file:
        size, why = file.seek(0, os.SEEK_END), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            if file.write(line) == len(line):
                return
        except OSError as error:
            why = error
        with suppress(OSError):  # `why` tells more
            file.truncate(size)
        raise why
