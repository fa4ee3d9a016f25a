"""A report's tables as LaTeX."""

import math
import unicodedata
from collections.abc import Sequence

from repose.report.content import Cell, Table, slug

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
_SHORT = 6  # letters of the longest unit shown in a column's head
_NARROW = 6  # columns of the widest table that needs no small print
_BREAKS = 40  # letters of the longest cell in a column whose lines never break
_LINE = 82  # letters in a line of small print
_SPACE = 1.5  # letters between two columns
_LEAST = 0.3  # least share of a line for sentences
_PAGE = 45  # lines of a table on a page
_LETTERS = frozenset("ßæœøåłÆŒØÅŁıĳ")


def write_latex(table: Table, report: str) -> str:
    """Return the table as LaTeX, for \\input: table environments with booktabs, each with as many rows as fit on a
    page. Needs \\usepackage{booktabs} and nothing else. `report`: the title of the report, which begins the label, so
    that one paper can have tables of several reports."""
    parts, label = _latex_pages(table), "-".join(filter(None, (slug(report), table.id)))
    texts = [
        _latex_part(table, rows, number, label, is_last=number == len(parts)) for number, rows in enumerate(parts, 1)
    ]
    return "\n".join(["% needs \\usepackage{booktabs}", *texts]) + "\n"


def _latex_part(table: Table, rows: Sequence[Sequence[Cell]], number: int, label: str, *, is_last: bool) -> str:
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
        *([rf"  \label{{tab:{label}}}"] if number == 1 else []),
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
    columns = zip(table.columns, _widest(table), breaking, strict=True)
    taken = sum(max(width, len(column.name)) for column, width, breaks in columns if not breaks)
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
