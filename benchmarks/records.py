"""Shared by all benchmarks: the command line, tables on stdout, and records as JSON."""

import argparse
import contextlib
import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option `--out`, which shows the description, a script's docstring, as it is written."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    return parser


def record(benchmark: str, **content: Any) -> dict[str, Any]:
    """Return the content of a record with the name of the benchmark, the date and the machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"benchmark": benchmark, "date": today, "machine": machine(), **content}


def machine() -> dict[str, Any]:
    """Return facts about the machine that affect the figures, without its names or paths."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "cores": cores,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "release": platform.release(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(path: Path | None, content: object) -> None:
    """Write JSON if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path | None) -> dict[str, Any]:
    """Return the JSON object of a file that collects several results; an empty one if there is no file yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return text in columns: the first aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    )
