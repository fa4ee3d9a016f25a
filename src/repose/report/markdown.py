"""A report as Markdown."""

import re
from collections.abc import Sequence

from rich.cells import cell_len

from repose.report.content import Cell, Column, Picture, Report, SentenceComparison, Table
from repose.system.terminal import printable


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
    blocks = [f"### {_inline(comparison.title)}", _inline(comparison.caption)]
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
