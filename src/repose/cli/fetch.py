"""`repose fetch`: downloads published corpora."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from repose.system.errors import ConfigError
from repose.system.terminal import say


def fetch(
    name: Annotated[str | None, Argument(help="Corpus to fetch. Without it, all corpora are listed.")] = None,
    source: Annotated[Path | None, Option("--from", help="Use this archive or folder instead of downloading.")] = None,
) -> None:
    """Download a published corpus into the cache (REPOSE_HOME) and verify it."""
    from repose.data import corpora

    if name is None and source is not None:
        raise ConfigError(f"--from {source} needs the name of a corpus: repose fetch NAME --from {source}")
    if name is None:
        for known in corpora.names():
            info = corpora.describe(known)
            print(f"{known}\t{', '.join('-'.join(pair) for pair in info.pairs)}\t{info.licence}")
        return
    info = corpora.describe(name)
    if source is not None and corpora.is_there(info):
        say(f"{info.name} is there already, so {source} was not read")
    with _download_progress() as progress:
        folder = corpora.fetch_corpus(info, source=source, progress=progress)
    print(folder)


@contextmanager
def _download_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a live line per download on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True, emoji=False)) as progress:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield update
