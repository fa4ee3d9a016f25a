"""The web page at /: static files of this folder, which need nothing from elsewhere."""

from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_FOLDER = Path(str(files(__name__)))
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class _Files(StaticFiles):
    """Static files with the page's headers, except for the Python files."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path.endswith((".py", ".pyc")) or "__pycache__" in path:
            path = "nothing"
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        if (kind := _TYPES.get(Path(path).suffix)) is not None:
            response.headers["Content-Type"] = f"{kind}; charset=utf-8"
        return response


def routes() -> list[Route | Mount]:
    """Return the routes: index.html at /, and all files of the folder under /page/."""

    async def index(_: Request) -> Response:
        return FileResponse(_FOLDER / "index.html", media_type="text/html", headers=HEADERS)

    return [Route("/", index), Mount("/page", _Files(directory=_FOLDER))]
