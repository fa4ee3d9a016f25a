"""`repose serve`: run the models, the application and the HTTP server, from start to end.

On SIGTERM or SIGINT, the server takes no new work, answers the requests in progress, and ends. A second signal ends it
at once. On SIGHUP, the server loads the models again and switches to them when they are ready.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Generator
from tempfile import gettempdir

import uvicorn

from repose.data.language import known_languages
from repose.serving import documents
from repose.serving.app import Service, make_app
from repose.serving.catalogue import Catalogue, read_catalogue
from repose.serving.dispatcher import Dispatcher
from repose.serving.log import HttpEvents, Log, where
from repose.serving.messages import ModelToLoad
from repose.serving.metrics import Metrics
from repose.serving.middleware import Outermost
from repose.serving.protocol import guarded
from repose.serving.settings import ServeSettings
from repose.system.device import check_workers, device_name, usual_workers
from repose.system.errors import ConfigError, ReposeError, WriteError
from repose.system.files import writing
from repose.system.signals import handled_by
from repose.system.terminal import Say

LOADER = "repose.decoding.load:load"
_HTTP_LOGGERS = ("uvicorn.error", "python_multipart")
"""Loggers of libraries that report what is wrong with a request."""
_GRACE_SECONDS = 0.2
"""Time from announcing the end at /health/ready to refusing new connections."""
_KEEP_ALIVE_SECONDS = 65
"""Time for which idle connections are kept open: longer than proxies keep theirs."""


def serve(settings: ServeSettings, say: Say, log: Log, loader: str = LOADER) -> None:
    """Serve until a signal ends the server. `say` is called with the address once the server is ready.

    Raises ConfigError, CheckpointError or DataError for settings, models or files that cannot be used. Raises
    WriteError if the file of suggestions cannot be written, or if there is no room for temporary files.
    """
    catalogue = read_catalogue(settings.runs, settings.languages)
    if settings.suggestions is not None:
        with writing(settings.suggestions):
            settings.suggestions.open("a").close()
    with contextlib.closing(_listen(settings.host, settings.port)) as listener:
        server = Server(settings, catalogue, listener, say, log, loader)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(server.run())
    if documents.at_work():  # the interpreter would wait for the threads and ignore signals meanwhile
        os._exit(0)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # as on Windows
        return None
    return uvloop.new_event_loop


def _listen(host: str, port: int) -> socket.socket:
    listener = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # another server may have bound the address, too, and listen first
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError for an invalid host name
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}): choose another --port or --host") from error
    listener.setblocking(False)
    return listener


class _HttpServer(uvicorn.Server):
    """uvicorn's server, which leaves signals to `Server`."""

    def __init__(self, config: uvicorn.Config, app: Outermost) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, then close those that are open.

        In the other order, clients whose connection was closed would connect again, be accepted, and be dropped.
        """
        for server in self.servers:
            server.close()
        self._app.draining = True
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Server:
    """One run of the service, from start to end."""

    def __init__(
        self,
        settings: ServeSettings,
        catalogue: Catalogue,
        listener: socket.socket,
        say: Say,
        log: Log,
        loader: str,
    ) -> None:
        self._settings, self._listener, self._say, self._log, self._loader = settings, listener, say, log, loader
        self._metrics = Metrics()
        self._service = Service(settings, catalogue, self._dispatcher(catalogue), self._metrics, log)
        self._app: Outermost = make_app(self._service)
        self._http = _HttpServer(
            uvicorn.Config(
                self._app,
                http=guarded(settings.limits, self._app.refused),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # --trust-forwarded-for decides this
                backlog=settings.limits.max_connections,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
            ),
            self._app,
        )
        self._starting: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._wants_reload = False
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until the end. Raises ReposeError if the models cannot be loaded."""
        events, loggers = HttpEvents(self._log), [logging.getLogger(name) for name in _HTTP_LOGGERS]
        for logger in loggers:
            logger.addHandler(events)
        heeded = self._heed_signals()
        serving = asyncio.create_task(self._http.serve(sockets=[self._listener]))
        self._starting = starting = asyncio.create_task(self._start())
        try:
            await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_EXCEPTION)
            if starting.done() and not starting.cancelled():
                starting.result()
            await serving
        finally:
            self._http.should_exit = self._http.force_exit = True
            tasks = [task for task in (starting, self._reloading, self._ending, *self._retiring) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(serving, *tasks, return_exceptions=True)
            await self._service.dispatcher.close()
            self._service.downloads.close()
            for logger in loggers:
                logger.removeHandler(events)
            heeded.close()
            self._log("ended")

    def _heed_signals(self) -> contextlib.ExitStack:
        """Let signals end the service or reload the models. Close the returned stack at the end."""
        loop, heeded = asyncio.get_running_loop(), contextlib.ExitStack()
        ends = (signal.SIGTERM, signal.SIGINT)
        try:
            for number in ends:
                loop.add_signal_handler(number, self._end)
            loop.add_signal_handler(signal.SIGUSR1, self._end)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        except NotImplementedError:  # as on Windows, which lacks the last two signals

            def end(*_: object) -> None:
                loop.call_soon_threadsafe(self._end)

            heeded.enter_context(handled_by(end, ends))
        return heeded

    def _dispatcher(self, catalogue: Catalogue) -> Dispatcher:
        settings = self._settings
        device = device_name(settings.device)
        workers = usual_workers(device) if settings.workers is None else settings.workers
        check_workers(workers)
        how = {"device": device, "workers": 1, "precision": settings.precision, "engine": settings.engine}
        models = [ModelToLoad(self._loader, str(model.path.resolve()), how, model.stamp) for model in catalogue.models]
        return Dispatcher(models, workers, settings.batching, self._metrics, self._log, self._reload_changed)

    async def _start(self) -> None:
        await self._service.dispatcher.start()
        try:
            await asyncio.to_thread(known_languages)  # takes seconds the first time
        except OSError as error:
            room = f"cannot unpack the identifier of languages in {gettempdir()} ({error.strerror or error})"
            raise WriteError(f"{room}: make room there, or set TMPDIR to a folder that has some") from error
        while not self._http.started:
            await asyncio.sleep(0.01)
        self._service.ready = True
        host, port = self._listener.getsockname()[:2]
        self._log("ready", port=port, workers=len(self._service.dispatcher.pids))
        directions = self._service.catalogue.models_json()
        pairs = ", ".join(f"{d['source']} to {d['target']}" for d in directions)
        for model in self._service.catalogue.models:
            for warning in model.about["warnings"]:
                self._say(f"{model.about['name']}: {warning}")
            if model.about["finished"] is False:
                self._say(f"{model.about['name']}: its training was not over when it was read")
        prefix = f"{self._settings.url_prefix}/" if self._settings.url_prefix else ""
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}{prefix}"
        how = "in a browser and " if self._settings.page else ""
        self._say(f"translates {pairs} (Ctrl-C ends it), {how}over HTTP, at {address}")
        if self._wants_reload:
            self._reload()

    def _end(self) -> None:
        if self._ending is not None:  # the second signal ends it at once
            os._exit(1)
        self._log("draining")
        if self._starting is not None:
            self._starting.cancel()  # clients that wait for the models to load must try again
        self._ending = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        self._service.ready, self._service.ending = False, True
        await asyncio.sleep(_GRACE_SECONDS)
        self._http.should_exit = True

    def _reload(self) -> None:
        self._wants_reload = True
        if not self._service.ready and self._ending is None:
            return  # the first models are still loading: `_start` reloads afterwards
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload_while_wanted())

    def _reload_changed(self) -> None:
        """Reload because a worker has found changed files. It retries and calls this again until the reload is done."""
        if self._reloading is None or self._reloading.done():
            self._reload()

    async def _reload_while_wanted(self) -> None:
        while self._wants_reload:  # a signal during a reload may be about newer files
            self._wants_reload = False
            await self._exchange()

    async def _exchange(self) -> None:
        """Read the API keys and load the models again.

        The old models answer until the new ones are ready. If something cannot be read, the old models stay.
        """
        try:
            settings = self._settings
            self._service.access.read_keys()
            catalogue = await asyncio.to_thread(read_catalogue, settings.runs, settings.languages)
            dispatcher = self._dispatcher(catalogue)
            await dispatcher.start()
        except Exception as error:  # any error is logged
            self._metrics.reloads.labels("failed").inc()
            is_told = isinstance(error, ReposeError)
            self._log("reload_failed", reason=str(error) if is_told else f"{type(error).__name__} at {where(error)}")
            return
        before = self._service.exchange(catalogue, dispatcher)
        self._metrics.reloads.labels("done").inc()
        self._log("reloaded")
        retiring = asyncio.create_task(_retire(before))  # its files may take minutes; the next reload must not wait
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)


async def _retire(dispatcher: Dispatcher) -> None:
    """Close a dispatcher after it has answered its requests."""
    try:
        await dispatcher.drain()
    finally:
        await dispatcher.close()
