"""Write a report to files: HTML and Markdown to read, CSV for programs, LaTeX for papers, JSON with all numbers."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from repose.report import figures
from repose.report.content import Cell, Report, Table
from repose.report.latex import write_latex
from repose.report.markdown import write_markdown
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import NONE
from repose.system.files import write_file, writing
from repose.system.terminal import no_formula

Format = Literal["html", "md", "csv", "tex"]
FORMATS: tuple[Format, ...] = ("html", "md", "csv", "tex")
_FORMAT = 1
"""Version of the format of report.json."""


def all_tables(report: Report) -> list[Table]:
    """Return the tables of a report, including those behind its pictures."""
    first = [] if report.picture is None else [report.picture.numbers]
    return first + [
        table
        for section in report.sections
        for table in (*section.tables, *(picture.numbers for picture in section.pictures))
    ]


def write(report: Report, runs: RunSet, out: Path, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """Write report.html, report.md, tables/*.csv, tables/*.tex, and always report.json; return the paths written.

    The files of an earlier report in the folder are removed first; other files stay. Raises WriteError if the folder
    cannot be written.
    """
    contents: dict[Path, str] = {}
    if "html" in formats:
        from repose.report.page import write_page

        contents[Path("report.html")] = write_page(report)
    if "md" in formats:
        contents[Path("report.md")] = write_markdown(report)
    for table in all_tables(report):
        if "csv" in formats:
            contents[Path("tables") / f"{table.id}.csv"] = write_csv(table)
        if "tex" in formats:
            contents[Path("tables") / f"{table.id}.tex"] = write_latex(table, report.title)
    numbers = json.dumps(to_json(report, runs), indent=1, ensure_ascii=False, allow_nan=False)
    contents[Path("report.json")] = numbers + "\n"
    with writing(out):
        for former in _former(out):
            former.unlink(missing_ok=True)
    for name, text in contents.items():
        write_file(out / name, text.encode("utf-8", "backslashreplace"))  # file names may not be valid UTF-8
    return [out / name for name in contents]


def _former(out: Path) -> list[Path]:
    """Return the files of an earlier report in a folder, by its report.json; none if that is not a report's."""
    try:
        content = json.loads((out / "report.json").read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            return []
        tables = [name for name in content["tables"] if Path(name).name == name]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    pages = [out / f"report.{ending}" for ending in ("html", "md", "json")]
    return [*pages, *(out / "tables" / f"{name}.{ending}" for name in tables for ending in ("csv", "tex"))]


def to_json(report: Report, runs: RunSet) -> dict[str, Any]:
    """Return all numbers, for programs: of every run, with its id, and of every table. Numbers that JSON does not have,
    such as NaN, are null."""
    content = {
        "format": _FORMAT,
        "title": report.title,
        "subtitle": report.subtitle,
        "verdict": report.verdict,
        "warnings": list(report.warnings),
        "problems": list(runs.problems),
        "baseline": runs.baseline,
        "runs": [_run_json(run) for run in runs.runs],
        "tables": {table.id: _table_json(table) for table in all_tables(report)},
    }
    numbers: dict[str, Any] = json.loads(json.dumps(content), parse_constant=lambda _: None)
    return numbers


def _run_json(run: ReportRun) -> dict[str, Any]:
    names = ("name", "group", "corpus", "seed", "run_id", "status", "split", "task", "looks_ahead")
    measured = {
        "epochs": figures.epochs(run),
        "updates": run.records.updates,
        "train_loss": figures.train_loss(run),
        "valid_loss": figures.valid_loss(run),
        "perplexity": figures.perplexity(run),
        "valid_accuracy_percent": figures.times(100, figures.valid_accuracy(run)),
        "seconds_per_epoch": figures.seconds_per_epoch(run),
        "seconds": figures.total_seconds(run),
        "parameters": figures.parameters(run),
        "training_flops_per_target_token": figures.flops_per_token(run),
        "train_pairs": figures.num_pairs(run, "train"),
    }
    return {
        **{name: getattr(run, name) for name in names},
        "labels": dict(run.labels),
        "failed_checks": list(run.failed_checks),
        "versions": dict(run.config.versions),
        "figures": measured,
        "scores": run.scores,
    }


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "caption": table.caption,
        "columns": [{"name": column.name, "unit": column.unit} for column in table.columns],
        "rows": [[_cell_json(table, cell) for cell in row] for row in table.rows],
        "notes": {key: note for note, key in table.keys.items()},
    }


def _cell_json(table: Table, cell: Cell) -> dict[str, Any]:
    numbers = {"value": cell.value, "sd": cell.deviation, "n": cell.n}
    return {"text": cell.text, **numbers, "notes": table.keys_of(cell), "best": cell.best}


# CSV


def write_csv(table: Table) -> str:
    """Return the table as CSV for programs: full-precision values, each mean followed by its deviation and n, and in
    the last column the notes of the row's cells as sentences."""
    spreads = [any(row[index].n is not None for row in table.rows) for index in range(len(table.columns))]
    head: list[str] = []
    for column, spread in zip(table.columns, spreads, strict=True):
        name = f"{column.name} [{column.unit}]" if column.unit else column.name
        head += [name, f"{column.name}, sd", f"{column.name}, n"] if spread else [name]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*map(no_formula, head), "notes"])
    for row in table.rows:
        line: list[str] = []
        for cell, spread in zip(row, spreads, strict=True):
            value = "" if cell.text == NONE else _exact(cell)
            line += [value, _number(cell.deviation), "" if cell.n is None else str(cell.n)] if spread else [value]
        writer.writerow([*line, " ".join(dict.fromkeys(note for cell in row for note in cell.notes))])
    return out.getvalue()


def _exact(cell: Cell) -> str:
    return no_formula(cell.text) if cell.value is None else _number(cell.value)


def _number(value: float | None) -> str:
    """Format a number with all of its digits; whole numbers without a decimal point."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
