"""Read how many cores and how much memory a container or batch system grants, from the process's control groups.

In a container with two of 64 cores, the operating system still reports 64. See
https://docs.kernel.org/admin-guide/cgroup-v2.html and https://docs.kernel.org/admin-guide/cgroup-v1/index.html.
"""

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_NO_LIMIT = 1 << 60
"""Bytes; version 1 states a larger number if there is no limit."""


def granted_cores(root: Path = _ROOT) -> int | None:
    """Return how many cores' worth of CPU time this process may use, rounded up; None if there is no limit.

    `root` is the folder that contains `proc` and `sys`.
    """
    quotas = [_quota(group) for group in _groups(root, "cpu")]
    return min((max(1, math.ceil(quota)) for quota in quotas if quota is not None), default=None)


def granted_bytes(root: Path = _ROOT) -> int | None:
    """Return the memory in bytes that this process may use; None if there is no limit.

    `root`: as for `granted_cores`.
    """
    limits = [
        _number(group / name)
        for group in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")  # version 2, version 1
    ]
    return min((limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT), default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of all groups around them, since each may set a limit.

    In a container, the innermost group's folder is often the root of what is visible; the others are then missing.
    """
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:  # version 2
            tops = ["", "unified"]
        elif controller in controllers.split(","):
            tops = [controllers, controller]
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for top in dict.fromkeys(tops):
            for group in (inner, *inner.parents):
                yield root / "sys" / "fs" / "cgroup" / top / group


def _quota(group: Path) -> float | None:
    """Return one group's limit in cores' worth of CPU time; None if it has no limit."""
    total, _, period = _text(group / "cpu.max").partition(" ")  # version 2: "max 100000" or "150000 100000"
    if not period:
        total, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")  # version 1: -1 or 150000
    try:
        return int(total) / int(period) if int(total) > 0 and int(period) > 0 else None
    except ValueError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:  # "max", or no such file
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
