"""Write a report to files: HTML, Markdown to read, CSV for programs, LaTeX for papers, JSON with all numbers."""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len

from repose.report import figures
from repose.report.content import Cell, Column, Picture, Report, SentenceComparison, Table
from repose.report.run_set import ReportRun, RunSet
from repose.report.tables import NONE
from repose.system.files import write_file, writing
from repose.system.terminal import printable

Format = Literal["html", "md", "csv", "tex"]
FORMATS: tuple[Format, ...] = ("html", "md", "csv", "tex")
_FORMAT = 1
"""Version of the format of report.json."""

_TEXT = {"\\": "textbackslash", "^": "textasciicircum", "~": "textasciitilde", "<": "textless", ">": "textgreater"}
_TEXT |= {"|": "textbar", "…": "ldots", "†": "dag"}
_MATH = {"±": r"\pm", "×": r"\times", "÷": r"\div", "·": r"\cdot", "−": "-", "√": r"\surd", "→": r"\rightarrow"}
_MATH |= {"∞": r"\infty", "≤": r"\leq", "≥": r"\geq", "≈": r"\approx", "Δ": r"\Delta", "α": r"\alpha"}
_LATEX = {'"': "''", "–": "--", "—": "---", "’": "'", "“": "``", "”": "''"}
_LATEX |= {sign: f"\\{sign}" for sign in "{}$&#%_"}
_LATEX |= {sign: rf"\{name}{{}}" for sign, name in _TEXT.items()}
_LATEX |= {sign: f"${name}$" for sign, name in _MATH.items()}
_ACCENTS = frozenset("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327")
"""Accents that LaTeX's standard encoding can put on a letter."""
_SHORT, _NARROW, _BREAKS = 6, 6, 40
"""For LaTeX: letters of the longest unit shown in a column's head, columns of the widest table that needs no small
print, and letters of the longest cell in a column whose lines never break."""
_LINE, _SPACE, _LEAST, _PAGE = 82, 1.5, 0.3, 45
"""For LaTeX: letters in a line of small print, the space between two columns in letters, the least share of a line for
sentences, and lines of a table on a page."""
_LETTERS = frozenset("ßæœøåłÆŒØÅŁıĳ")


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
            contents[Path("tables") / f"{table.id}.tex"] = write_latex(table)
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
        "valid_accuracy_percent": figures.valid_accuracy(run),
        "seconds_per_epoch": figures.seconds_per_epoch(run),
        "seconds": figures.total_seconds(run),
        "parameters": figures.parameters(run),
        "training_flops_per_target_token": figures.flops_per_token(run),
        "train_pairs": figures.train_pairs(run),
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


# Markdown


def write_markdown(report: Report) -> str:
    """Return the whole report as Markdown; pictures are shown as tables of their numbers."""
    blocks = [f"# {_inline(report.title)}", _inline(report.verdict), _inline(report.subtitle)]
    blocks += map(_warning, report.warnings)
    blocks += [] if report.picture is None else _picture(report.picture, 2)
    for section in report.sections:
        blocks += [f"## {_inline(section.title)}", *map(_inline, section.paragraphs), *map(_warning, section.warnings)]
        for table in section.tables:
            blocks += [markdown_table(table) if table.title != section.title else "\n\n".join(_table_parts(table))]
        for picture in section.pictures:
            blocks += _picture(picture, 3)
        for comparison in section.comparisons:
            blocks += _comparison(comparison)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _picture(picture: Picture, level: int) -> list[str]:
    return [f"{'#' * level} {_inline(picture.title)}", *_table_parts(picture.numbers)]


def _warning(sentence: str) -> str:
    return f"> **Warning:** {_inline(sentence)}"


def _comparison(comparison: SentenceComparison) -> list[str]:
    one, other = comparison.systems
    languages = f"{comparison.src_lang} → {comparison.tgt_lang}"
    blocks = [f"### {_inline(one)} and {_inline(other)}, {_inline(languages)}", _inline(comparison.caption)]
    for sentence in comparison.sentences:
        lines = [("source", sentence.src), ("reference", sentence.reference)]
        scores = zip(comparison.systems, sentence.scores, sentence.hypotheses, strict=True)
        lines += [(f"{system} (chrF {score:.1f})", hypothesis) for system, score, hypothesis in scores]
        shown = "\n".join(f"- {_inline(label)}: {_inline(text) or '(empty)'}" for label, text in lines)
        blocks.append(f"Sentence {sentence.number}\n\n{shown}")
    return blocks


def markdown_table(table: Table) -> str:
    """Return a table with its title, caption and notes as Markdown."""
    return "\n\n".join([f"### {_inline(table.title)}", *_table_parts(table)])


def _table_parts(table: Table) -> list[str]:
    parts = [_grid(table)] if table.rows else ["(no rows)"]
    parts += [_prose(table.caption)] if table.caption else []
    notes = [f"- {f'[{key}] ' * (key in table.marked)}{_inline(note)}" for note, key in table.keys.items()]
    return [*parts, "\n".join(notes)] if notes else parts


def _grid(table: Table) -> str:
    """Return a table's rows in columns of equal width, so that the Markdown source is readable as a table, too."""
    rows = [[_in_cell(f"{c.name} ({c.unit})" if c.unit else c.name) for c in table.columns]]
    rows += [[_markdown_cell(table, cell) for cell in row] for row in table.rows]
    widths = [max(3, *(cell_len(row[index]) for row in rows)) for index in range(len(table.columns))]
    lines = [_line(row, widths, table.columns) for row in rows]
    rule = [
        "-" * (width - 1) + ":" if c.numeric else "-" * width for width, c in zip(widths, table.columns, strict=True)
    ]
    return "\n".join([lines[0], f"| {' | '.join(rule)} |", *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    padded = [
        " " * (width - cell_len(cell)) + cell if column.numeric else cell + " " * (width - cell_len(cell))
        for cell, width, column in zip(cells, widths, columns, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _markdown_cell(table: Table, cell: Cell) -> str:
    text = _in_cell(cell.text)
    text = f"**{text}**" if cell.best else text
    return text + "".join(f" [{key}]" for key in table.keys_of(cell))


def _in_cell(text: str) -> str:
    return _inline(text).replace("|", "\\|")


def _inline(text: str) -> str:
    """Return text on one line, with Markdown's special characters escaped and control characters made visible."""
    one_line = printable(" ".join(text.split()))
    for character in ("\\", "`", "*", "_", "<", "[", "~"):
        one_line = one_line.replace(character, f"\\{character}")
    return re.sub(r"&(?=#?\w+;)", r"\\&", one_line)  # an HTML entity, which would be shown as its character


def _prose(text: str) -> str:
    """Return a sentence of our own as `_inline` does, except that `commands` between backticks stay as they are."""
    pieces = re.split("(`[^`]+`)", " ".join(text.split()))
    return "".join(
        piece if place % 2 else re.sub(r"\S+", lambda word: _inline(word[0]), piece)
        for place, piece in enumerate(pieces)
    )


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
    writer.writerow([*map(_no_formula, head), "notes"])
    for row in table.rows:
        line: list[str] = []
        for cell, spread in zip(row, spreads, strict=True):
            value = "" if cell.text == NONE else _exact(cell)
            line += [value, _number(cell.deviation), "" if cell.n is None else str(cell.n)] if spread else [value]
        writer.writerow([*line, " ".join(dict.fromkeys(note for cell in row for note in cell.notes))])
    return out.getvalue()


def _exact(cell: Cell) -> str:
    return _no_formula(cell.text) if cell.value is None else _number(cell.value)


def _no_formula(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _number(value: float | None) -> str:
    """Format a number with all of its digits; whole numbers without a decimal point."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


# LaTeX


def write_latex(table: Table) -> str:
    """Return the table as LaTeX, for \\input: table environments with booktabs, each with as many rows as fit on a
    page. Needs \\usepackage{booktabs} and nothing else."""
    parts = _latex_pages(table)
    texts = [_latex_part(table, rows, number, is_last=number == len(parts)) for number, rows in enumerate(parts, 1)]
    return "\n".join(["% needs \\usepackage{booktabs}", *texts]) + "\n"


def _latex_part(table: Table, rows: Sequence[Sequence[Cell]], number: int, *, is_last: bool) -> str:
    """Return one environment. The first has the label, the last has caption and notes."""
    short = [c.unit if len(c.unit) <= _SHORT else "" for c in table.columns]
    heads = [latex(f"{c.name} ({unit})" if unit else c.name) for c, unit in zip(table.columns, short, strict=True)]
    units = "; ".join(f"{c.name}: {c.unit}" for c in table.columns if len(c.unit) > _SHORT)
    wide, breaking = len(table.columns) > _NARROW, any(_breaking(table))
    size = "scriptsize" if wide else "footnotesize" if breaking else "small"
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \{size}" + r"\setlength{\tabcolsep}{3pt}" * (wide or breaking),
        rf"  \caption{{{latex(table.title)}{', continued' * (number > 1)}}}",
        *([rf"  \label{{tab:{table.id}}}"] if number == 1 else []),
        rf"  \begin{{tabular}}{{{_latex_columns(table)}}}",
        r"    \toprule",
        f"    {' & '.join(heads)} \\\\",
        r"    \midrule",
        *(f"    {' & '.join(_latex_cell(table, cell) for cell in row)} \\\\" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
    ]
    remarks = [latex(text) for text in (table.caption, units and f"Units: {units}.") if text]
    remarks += [
        (rf"\textsuperscript{{{latex(key)}}}~" if key in table.marked else "") + latex(text)
        for text, key in table.keys.items()
    ]
    lines += [rf"  \par\smallskip\footnotesize\raggedright {remark}" for remark in remarks if is_last]
    return "\n".join([*lines, r"\end{table}"])


def _breaking(table: Table) -> list[bool]:
    """Return which columns hold sentences, whose lines break."""
    return [width > _BREAKS and not c.numeric for width, c in zip(_widest(table), table.columns, strict=True)]


def _widest(table: Table) -> list[int]:
    """Return the number of letters in the widest cell of each column."""
    return [max((len(row[place].text) for row in table.rows), default=0) for place in range(len(table.columns))]


def _share(table: Table) -> float:
    """Return the share of the line for each column of sentences: an equal part of what the other columns leave."""
    breaking = _breaking(table)
    heads = (len(column.name) for column in table.columns)
    taken = sum(
        max(pair) for pair, breaks in zip(zip(_widest(table), heads, strict=True), breaking, strict=True) if not breaks
    )
    left = 1 - (taken + _SPACE * len(breaking)) / _LINE
    return max(left, _LEAST) / max(1, sum(breaking))


def _latex_pages(table: Table) -> list[Sequence[Sequence[Cell]]]:
    """Split the rows of a table into pages."""
    breaking, letters = _breaking(table), _share(table) * _LINE
    pages: list[list[Sequence[Cell]]] = [[]]
    used = 0
    for row in table.rows:
        broken = (cell.text for cell, breaks in zip(row, breaking, strict=True) if breaks)
        lines = max((math.ceil(len(text) / letters) for text in broken), default=1)
        if pages[-1] and used + lines > _PAGE:
            pages.append([])
            used = 0
        pages[-1].append(row)
        used += lines
    return list(pages)


def _latex_columns(table: Table) -> str:
    """Return LaTeX's column specification: numbers to the right, names to the left; columns of sentences share the rest
    of the line."""
    text = [rf"p{{{_share(table):.2f}\linewidth}}" if breaks else "l" for breaks in _breaking(table)]
    return "".join("r" if column.numeric else kind for column, kind in zip(table.columns, text, strict=True))


def _latex_cell(table: Table, cell: Cell) -> str:
    text = latex(cell.text)
    # \relax, because "[" after \\ would be read as an argument.
    text = rf"\textbf{{{text}}}" if cell.best else rf"\relax {text}" if text.startswith("[") else text
    return text + (rf"\textsuperscript{{{latex(','.join(table.keys_of(cell)))}}}" if cell.notes else "")


def latex(text: str) -> str:
    """Escape whatever LaTeX treats specially, and write characters that its standard fonts lack as code points."""
    return "".join(_LATEX.get(c) or _letter(c) for c in " ".join(unicodedata.normalize("NFC", text).split()))


def _letter(character: str) -> str:
    decomposed = unicodedata.normalize("NFD", character)
    known = decomposed[0].isascii() and decomposed[0].isprintable() and set(decomposed[1:]) <= _ACCENTS
    return character if known or character in _LETTERS else rf"\texttt{{U+{ord(character):04X}}}"
