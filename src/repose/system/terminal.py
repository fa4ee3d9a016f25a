"""Terminal output: sentences on stderr, tables on stdout, and no character that would move the cursor.

File names, settings and error messages may contain arbitrary text. Only this module makes it safe to print.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line and paragraph separators, marks that change the writing direction, and surrogates from file
names that are not UTF-8."""


_LEAST = 20
"""Fewest terminal columns in which folded text is readable."""


def printable(text: str) -> str:
    r"""Return the text on one line, with control characters escaped: ESC as \x1b, a line break as \n."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shortened(text: str, width: int) -> str:
    """Return the text, made printable, in at most `width` columns of a terminal; an ellipsis shows where it is cut."""
    from rich.cells import cell_len, set_cell_size

    shown = printable(text)
    return shown if cell_len(shown) <= width else f"{set_cell_size(shown, width - 1)}…"


def quoted(argument: object) -> str:
    """Quote an argument of a command shown to the user, as the system's shell needs it."""
    if os.name == "nt":  # cmd has no single quotes, and Windows paths contain backslashes
        import subprocess

        return subprocess.list2cmdline([str(argument)])
    return shlex.quote(str(argument))


def no_formula(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def duration(seconds: float) -> str:
    """Format a time in a short form."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def counted(number: float, noun: str) -> str:
    """Format a number with its noun: "1 pair", "2,000 pairs" and "1.5 hours"."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def reasons(counts: Mapping[str, int]) -> str:
    """List reasons with their counts: "too long: 1,200, blank line: 3"."""
    return ", ".join(f"{reason}: {number:,}" for reason, number in counts.items())


Say = Callable[[str], None]
"""A function that takes sentences for users: `say`, or a substitute."""


def say(sentence: str) -> None:
    """Print a line on stderr at once.

    If it cannot be written, as on a full disk, it is dropped, and the work goes on.
    """
    if sys.stderr is None:  # closed from the start; `print` would use stdout
        return
    with contextlib.suppress(OSError):
        print(printable(sentence), file=sys.stderr, flush=True)


def make_table(
    columns: Sequence[str],
    rows: "Iterable[Sequence[str | Text] | None]",
    *,
    right: Sequence[int] = (),
    title: str | None = None,
    lines: bool = False,
) -> "Table":
    """Return a table with these columns; a row that is None draws a line.

    Columns numbered in `right` are numbers, aligned to the right. `lines` draws a line between any two rows. Text that
    is too long for its column is folded.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(show_lines=lines, title=None if title is None else Text(printable(title)), title_justify="left")
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if number in right else "left"
        made.add_column(Text(printable(column)), justify=justify, overflow="fold")
    for row in rows:
        if row is None:
            made.add_section()
        else:
            made.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


@dataclass(frozen=True)
class Fitted:
    """A table at most as wide as the terminal. Names in its first column stay whole if half of the width is enough.

    If its numbers do not fit next to each other, it becomes several tables, each with the columns before the first
    number.
    """

    table: "Table"

    def __rich_console__(self, _: "Console", options: "ConsoleOptions") -> "Iterator[Table]":
        yield from _fitted(self.table, options.max_width)


def _fitted(table: "Table", width: int) -> "list[Table]":
    columns = table.columns
    whole = [max(map(_width, (column.header, *column.cells))) for column in columns]
    if _with_borders(whole) <= width:
        return [table]
    numbers = [place for place, column in enumerate(columns) if column.justify == "right"]
    if not numbers:
        return [_part(table, range(len(columns)), {0: whole[0]} if whole[0] <= width // 2 else {})]
    names = list(range(max(1, numbers[0])))
    most = max(_LEAST, width // 2 // len(names))
    least = [min(wide, most if place in names else _LEAST) for place, wide in enumerate(whole)]
    for place in numbers:
        words = max(map(len, str(columns[place].header).split()), default=0)
        least[place] = max([words, *map(_width, columns[place].cells)])
    parts = [list(names)]
    for place in range(len(names), len(columns)):
        if _with_borders([least[other] for other in (*parts[-1], place)]) > width and len(parts[-1]) > len(names):
            parts.append(list(names))
        parts[-1].append(place)
    return [_part(table, p, _widened(p, least, whole, width), first=p is parts[0]) for p in parts]


def _widened(part: Sequence[int], least: Sequence[int], whole: Sequence[int], width: int) -> dict[int, int]:
    """Widen a part's columns, from the first on, up to the width of their content while there is room."""
    widths = {place: least[place] for place in part}
    for place in part:
        room = width - _with_borders(list(widths.values()))
        widths[place] += max(0, min(room, whole[place] - least[place]))
    return widths


def _part(table: "Table", places: Sequence[int], widths: Mapping[int, int], *, first: bool = True) -> "Table":
    """Return some of a table's columns, with these widths; only the `first` part has the title."""
    from rich.table import Table

    made = Table(show_lines=table.show_lines, title=table.title if first else None, title_justify="left")
    for place in places:
        column = table.columns[place]
        made.add_column(column.header, justify=column.justify, overflow="fold", width=widths.get(place))
    for row, *cells in zip(table.rows, *(table.columns[place].cells for place in places), strict=True):
        made.add_row(*cells, end_section=row.end_section)
    return made


def _width(text: object) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, str(text).split("\n")))


def _with_borders(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1


def show(*parts: "Table | str", width: int = 160) -> None:
    """Print tables and lines on stdout.

    A file or pipe has no width: there, tables have `width` columns, so that little is folded, and lines stay whole.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = width
    for part in parts:
        if isinstance(part, str):
            console.print(printable(part), soft_wrap=not console.is_terminal)
        else:
            console.print(Fitted(part))
