"""The web page at /: static files of this folder, which need nothing from elsewhere."""

from importlib.resources import files
from pathlib import Path, PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from repose.serving.refusals import not_found

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_FILES = StaticFiles(directory=Path(str(files(__name__))))
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


async def file(request: Request) -> Response:
    """Answer with a file of the folder, index.html by default. Raises RequestError, also for the Python files."""
    name = request.path_params.get("name", "index.html")
    if (kind := _TYPES.get(PurePosixPath(name).suffix)) is None:
        raise not_found()
    response = await _FILES.get_response(name, request.scope)
    response.headers.update({**HEADERS, "Content-Type": f"{kind}; charset=utf-8"})
    return response
