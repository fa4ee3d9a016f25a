"""What the terminal shows: sentences on stderr, tables on stdout, and no character that would move the cursor.

File names, settings and reasons of errors are other people's text. Here, and nowhere else, it is made fit to be seen.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line and paragraph separators, what turns the direction of writing, and bytes of file names that
are not UTF-8."""


def printable(text: str) -> str:
    r"""Text on one line, its control characters written out: ESC as \x1b, a line break as \n."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def duration(seconds: float) -> str:
    """A time in words, short."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def counted(number: float, noun: str) -> str:
    """So many of these, "1 pair", "2,000 pairs" and "1.5 hours"."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def say(sentence: str) -> None:
    """A line on stderr, at once."""
    print(printable(sentence), file=sys.stderr, flush=True)


def make_table(
    columns: Sequence[str],
    rows: "Iterable[Sequence[str | Text] | None]",
    *,
    right: Sequence[int] = (),
    title: str | None = None,
    lines: bool = False,
) -> "Table":
    """A table with these columns; a row that is None draws a line. Columns numbered in `right` are numbers.

    `lines` draws one between any two rows.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(show_lines=lines, title=None if title is None else Text(printable(title)), title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(Text(printable(column)), justify="right" if number in right else "left")
    for row in rows:
        if row is None:
            made.add_section()
        else:
            made.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


def show(*parts: "Table | str", width: int = 160) -> None:
    """Tables and lines on stdout. A file or pipe has no width: of `width` columns, so that nothing is folded."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = width
    for part in parts:
        console.print(printable(part) if isinstance(part, str) else part)
