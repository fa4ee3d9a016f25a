"""Describe the API: as OpenAPI 3 at /spec, and as a readable page at /docs."""

import html
from typing import Any

from repose._version import __version__
from repose.serving.settings import ServeSettings


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_array(one: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one value or an array of them: of a text, or of a list of texts."""
    return {"oneOf": [one, _array(one)]}


_TEXT = {"type": "string"}
_ERROR = {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]}
_LANGUAGE = {
    "source": (_TEXT, "Code of the source language, or auto"),
    "target": (_TEXT, "Code of the target language"),
}
_KEY = {"api_key": (_TEXT, "API key, if the server asks for one")}
_Q = {
    "q": (
        _or_array(_TEXT),
        "A text, or (in JSON) a list of texts",
    )
}
_DETECTED = {
    "type": "object",
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": _TEXT},
}


_REFUSALS = {
    "408": "The request took too long to arrive",
    "431": "The head of the request is too large",
    "500": "The text could not be translated, or the server has a fault",
    "503": "The server is busy, still loading its models, or closing: see Retry-After",
}
_REFUSALS_OF_POSTS = {
    "400": "A parameter is missing or cannot be used",
    "403": "Not allowed",
    "413": "The request is too large",
    "415": "The body is compressed",
    "429": "Too many requests: see Retry-After",
    "504": "The request was not answered in time",
    "507": "The disk is full",
}


def spec(settings: ServeSettings) -> dict[str, Any]:
    """Return an OpenAPI 3 document of the endpoints that this server has."""
    paths = {**_posts(), **_gets()}
    download = paths["/download_file/{name}"]["get"]
    download["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": _TEXT}]
    download["responses"]["404"] = _refusal("There is no such file, or no longer")
    if settings.suggestions is None:
        del paths["/suggest"]
    if not settings.files:
        del paths["/translate_file"], paths["/download_file/{name}"]
    schemes = {}
    if settings.metrics:
        paths["/metrics"] = _get("Counters in Prometheus' format", _TEXT, kind="text/plain")
        if settings.metrics_token is not None:
            schemes["metrics_token"] = {"type": "http", "scheme": "bearer"}
            paths["/metrics"]["get"]["security"] = [{"metrics_token": []}]
            paths["/metrics"]["get"]["responses"]["401"] = _refusal("The token is missing or wrong")
    about = "Compatible with LibreTranslate's API. Parameters are JSON, a form, or the query string of a POST."
    return {
        "openapi": "3.0.3",
        "info": {"title": "repose", "version": __version__, "description": about},
        "servers": [{"url": settings.url_prefix or "/"}],
        "paths": paths,
        "components": {"securitySchemes": schemes},
    }


def _posts() -> dict[str, Any]:
    detected, several = _or_array(_DETECTED), _array(_or_array(_TEXT))
    translated = {"translatedText": _or_array(_TEXT), "detectedLanguage": detected, "alternatives": several}
    return {
        "/translate": _post(
            "Translate text",
            {
                **_Q,
                **_LANGUAGE,
                "format": ({"type": "string", "enum": ["text", "html"], "default": "text"}, "Format of the text"),
                "alternatives": ({"type": "integer", "default": 0}, "Number of further translations, for plain text"),
                **_KEY,
            },
            _object({**translated, "warnings": several}),
            required=["q", "source", "target"],
        ),
        "/detect": _post("Detect the language of a text", {**_Q, **_KEY}, _array(_DETECTED), required=["q"]),
        "/suggest": _post(
            "Suggest a better translation",
            {"q": (_TEXT, "The text"), "s": (_TEXT, "Its translation"), **_LANGUAGE, **_KEY},
            _object({"success": {"type": "boolean"}}),
            required=["q", "s", "source", "target"],
        ),
        "/translate_file": _post(
            "Translate a file",
            {"file": ({"type": "string", "format": "binary"}, "The file"), **_LANGUAGE, **_KEY},
            _object({"translatedFileUrl": _TEXT, "warnings": _array(_TEXT)}),
            required=["file", "source", "target"],
            kinds=("multipart/form-data",),
        ),
        "/explain": _post(
            "Translate a text, with tokens, their probabilities and attention",
            {
                "q": (_TEXT, "The text"),
                **_LANGUAGE,
                "alternatives": ({"type": "integer", "default": 0}, "Number of further translations"),
                "heads": ({"type": "boolean", "default": True}, "Whether to include the attention of every head"),
                **_KEY,
            },
            _object(
                {
                    "translatedText": _TEXT,
                    "detectedLanguage": _DETECTED,
                    "sentences": _array({"type": "object"}),
                    "alternatives": _array(_object({"text": _TEXT, "score": {"type": "number"}})),
                    "warnings": _array(_TEXT),
                    "model": {"type": "object"},
                }
            ),
            required=["q", "source", "target"],
        ),
    }


def _gets() -> dict[str, Any]:
    return {
        "/languages": _get(
            "Languages that the server translates",
            _array(_object({"code": _TEXT, "name": _TEXT, "targets": _array(_TEXT)})),
        ),
        "/frontend/settings": _get("Settings for a web page", {"type": "object"}),
        "/download_file/{name}": _get("Fetch a translated file", {"type": "string", "format": "binary"}, kind="*/*"),
        "/models": _get("The models, and their scores", _array({"type": "object"})),
        "/health": _health("Whether the server is up"),
        "/health/live": _health("Whether the server is up"),
        "/health/ready": _health("Whether the server is ready for requests", "503"),
        "/spec": _get("This document", {"type": "object"}),
    }


def docs(settings: ServeSettings) -> str:
    """Return the API as an HTML page without scripts."""
    rows = []
    for path, methods in spec(settings)["paths"].items():
        for method, about in methods.items():
            fields = about.get("x-parameters", {})
            listed = "".join(
                f"<dt><code>{html.escape(name)}</code></dt><dd>{html.escape(text)}</dd>"
                for name, text in fields.items()
            )
            title = f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>"
            rows.append(f"{title}<p>{html.escape(about['summary'])}.</p><dl>{listed}</dl>")
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f'{head}<title>API</title><h1>API</h1><p><a href="spec">OpenAPI</a></p>{"".join(rows)}</html>'


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _get(summary: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _responses(schema, _REFUSALS, kind)}}


def _health(summary: str, *others: str) -> dict[str, Any]:
    content = {"application/json": {"schema": _object({"status": _TEXT})}}
    return {
        "get": {
            "summary": summary,
            "responses": {code: {"description": "How it is", "content": content} for code in ("200", *others)},
        }
    }


def _post(
    summary: str,
    fields: dict[str, tuple[dict[str, Any], str]],
    schema: dict[str, Any],
    *,
    required: list[str],
    kinds: tuple[str, ...] = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data"),
) -> dict[str, Any]:
    body = {
        "type": "object",
        "properties": {name: {**field, "description": text} for name, (field, text) in fields.items()},
        "required": required,
    }
    content = {kind: {"schema": body} for kind in kinds}
    return {
        "post": {
            "summary": summary,
            "x-parameters": {name: text for name, (_, text) in fields.items()},
            "requestBody": {"content": content},
            "responses": _responses(schema, {**_REFUSALS, **_REFUSALS_OF_POSTS}),
        }
    }


def _responses(schema: dict[str, Any], refusals: dict[str, str], kind: str = "application/json") -> dict[str, Any]:
    done = {"description": "Done", "content": {kind: {"schema": schema}}}
    return {"200": done, **{code: _refusal(text) for code, text in sorted(refusals.items())}}


def _refusal(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _ERROR}}}
