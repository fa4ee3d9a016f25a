"""`repose report`: compares runs on a page, in tables and as numbers."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from repose.system.errors import CheckpointError, ConfigError, MissingExtraError, unknown
from repose.system.terminal import counted, make_table, say, show

if TYPE_CHECKING:
    from repose.report.content import Picture, Table
    from repose.report.run_set import RunSet
    from repose.report.write import Format


def report(
    paths: Annotated[list[Path], Argument(help="Run directories, grid folders, or folders that contain them.")],
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="Folder for the report (default: PATH/report, or ./report for several paths)."),
    ] = None,
    title: Annotated[str | None, Option(help="Title of the report (default: the name of the grid or folder).")] = None,
    baseline: Annotated[
        str | None, Option(help="System that the others are tested against (default: the grid's).")
    ] = None,
    formats: Annotated[
        str,
        Option(
            "--format", "-f", help="Formats, separated by commas: html, md, csv, tex. report.json is always written."
        ),
    ] = "html,md,csv,tex",
    audit: Annotated[
        bool, Option("--audit", help="Also audit a model of each system (default: rely on its architecture).")
    ] = False,
) -> None:
    """Compare runs: scores over seeds, significance, cost, learning curves, and the papers' published numbers."""
    from repose.report.build import audited, build
    from repose.report.collect import read_runs
    from repose.report.write import all_tables, write

    wanted, paths = _formats(formats), [_run_of(path) for path in paths]
    if sys.stderr.isatty():  # somebody is waiting, and a large folder takes a while
        say(f"looking for runs in {', '.join(map(str, paths))}")
    runs = read_runs(paths, title=title, baseline=baseline)
    if audit:
        runs = audited(runs, _failed_checks)
    made = build(runs, pictures=_pictures(runs) if "html" in wanted else ())
    out = out or (paths[0] / "report" if len(paths) == 1 else Path("report"))
    files = write(made, runs, out, wanted)
    for table in all_tables(made):
        if table.id.startswith("scores"):
            _show(table)
    for sentence in (*made.warnings, *runs.problems):
        say(sentence)
    pages = [str(file) for file in files if file.parent == out]
    rest = f" and {counted(len(files) - len(pages), 'file')} in {out / 'tables'}" if len(files) > len(pages) else ""
    say(f"wrote {', '.join(pages)}{rest}")


def _run_of(path: Path) -> Path:
    """Return the run that a model directory belongs to. Return other folders unchanged.

    Raises CheckpointError for a model directory without a run.
    """
    from repose.model.presets import PRESETS
    from repose.saved_model.directory import WEIGHTS, locate
    from repose.saved_run.folder import RunFolder, run_of

    if str(path) in PRESETS and not path.exists():
        locate(path)  # raises an error that says what a preset is
    if not (path / WEIGHTS).exists() or RunFolder(path).metrics_file.exists():
        return path
    if (run := run_of(path.absolute())) is None:
        raise CheckpointError(f"{path} is a model directory, without records of its training: name the run's directory")
    return run.path


def _formats(text: str) -> "list[Format]":
    from repose.report.write import FORMATS

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in FORMATS:
            raise ConfigError(unknown("format", name, FORMATS))
    found = [name for name in FORMATS if name in names]
    if not found:
        raise ConfigError(f"--format names no format: give some of {', '.join(FORMATS)}")
    if "html" in found and find_spec("jinja2") is None:
        raise MissingExtraError(
            "a report as a page needs jinja2: pip install 'repose-nmt[report]', or ask for --format md,csv,tex"
        )
    return found


def _pictures(runs: "RunSet") -> "tuple[Picture, ...]":
    """Return the page's pictures. Without matplotlib, say so and return none."""
    if find_spec("matplotlib") is None:
        say("the page has no pictures, since matplotlib is missing: pip install 'repose-nmt[plot]'")
        return ()
    from repose.report.pictures import pictures

    return pictures(runs)


def _failed_checks(folder: Path) -> tuple[str, ...]:
    """Return the names of the audit's checks that the model of a run directory fails."""
    from repose.decoding.load import load
    from repose.model.audit import audit

    with load(folder, engine="torch") as translator:
        return tuple(check.name for check in audit(translator.model).checks if not check.passed)


def _show(table: "Table") -> None:
    marked = [
        [c.text + " *" * c.best + "".join(f" [{key}]" for key in table.keys_of(c)) for c in row] for row in table.rows
    ]
    right = [number for number, column in enumerate(table.columns) if column.numeric]
    shown = make_table([column.name for column in table.columns], marked, right=right, title=table.title)
    notes = ["* the best mean, of those that may be compared"] * any(c.best for row in table.rows for c in row)
    notes += [f"[{key}] {note}" if key in table.marked else note for note, key in table.keys.items()]
    show(shown, *notes, width=200)
