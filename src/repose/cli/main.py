"""The command line. Each command loads what it needs and calls one function; nothing is computed here.

Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 stopped early (run the same command again to resume or
restart). Results go to stdout, everything else to stderr.
"""

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from repose._version import __version__
from repose.cli import (
    architectures,
    backtranslate,
    bulk,
    cache,
    check,
    corpus_options,
    documents,
    export,
    fetch,
    grid,
    models,
    plot,
    positions,
    report,
    score_corpus,
    search,
    serve,
    train,
)
from repose.system.device import limit_threads
from repose.system.errors import user_message
from repose.system.signals import Interrupted, ended_by_signals
from repose.system.terminal import say

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, compare and explain small encoder-decoder Transformers for translation.",
)


def main() -> None:
    """Run the command line. Errors that a user can fix are printed as one sentence."""
    # Threads that spin while waiting become very slow as soon as anything else runs on the machine. Read when torch is
    # loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    limit_threads()
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # files are read as UTF-8, too; a terminal has its own encoding
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors="strict" if stream is sys.stdout else "backslashreplace")
    try:
        try:
            with ended_by_signals():  # for commands that do not handle signals themselves
                app()
        except SystemExit:  # typer always ends with SystemExit
            sys.stdout.flush()
            raise
    except Interrupted as signal:
        say(f"stopped ({signal.name}): give the same command again")
        sys.exit(3)
    except BrokenPipeError:  # a reader such as `head` has closed the pipe
        sys.exit(1)
    except Exception as error:
        if (message := user_message(error)) is None:
            raise
        say(f"repose: {message.sentence}")
        sys.exit(message.exit_code)
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # already reported; keeps the interpreter from reporting it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


PANELS = {  # in the order in which a newcomer needs the commands
    "Train and translate": (
        train.demo,
        check.check,
        train.train,
        models.translate,
        documents.translate_file,
        bulk.app,
        serve.serve,
        models.evaluate,
        models.score,
        backtranslate.backtranslate,
        score_corpus.score_corpus,
        export.export,
    ),
    "Compare": (grid.grid, search.search, report.report, plot.app),
    "Architectures of papers": (architectures.presets, architectures.describe, architectures.audit, positions.app),
    "Corpora and files": (fetch.fetch, train.prepare, train.init, cache.cache),
}
_WITH_FILES = (check.check, train.train, train.prepare, train.init)
for panel, verbs in PANELS.items():
    for verb in verbs:
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel, cls=corpus_options.WithFiles if verb in _WITH_FILES else None)(verb)
