"""A container's limits, read from control groups in the forms that systems write."""

import os
from pathlib import Path

import pytest

from repose.system import device
from repose.system.device import limit_threads
from repose.system.limits import granted_bytes, granted_cores

NO_LIMIT = "9223372036854771712\n"  # of version 1


def machine(root: Path, own: str, **files: str) -> Path:
    """Writes /proc/self/cgroup and the files of groups; in their names, `__` stands for a slash and `_I_` for a dot."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(own)
    for name, text in files.items():
        path = root / "sys" / "fs" / "cgroup" / name.replace("__", "/").replace("_I_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("own", "files", "cores", "memory"),
    [
        # Version 2: a container sees its own group as the root.
        ("0::/\n", {"cpu_I_max": "200000 100000\n", "memory_I_max": "1073741824\n"}, 2, 2**30),
        ("0::/\n", {"cpu_I_max": "max 100000\n", "memory_I_max": "max\n"}, None, None),
        ("0::/\n", {"cpu_I_max": "150000 100000\n"}, 2, None),  # a part of a core is a core
        ("0::/\n", {"cpu_I_max": "10000 100000\n"}, 1, None),
        # A service of systemd: the limits of the groups around it hold as well.
        ("0::/a/b\n", {"a__b__cpu_I_max": "400000 100000\n", "a__cpu_I_max": "300000 100000\n"}, 3, None),
        ("0::/a/b\n", {"a__b__memory_I_max": "max\n", "a__memory_I_max": "4096\n"}, None, 4096),
        # A container that sees the whole path of its group, but only its own folder.
        ("0::/docker/12ab\n", {"cpu_I_max": "100000 50000\n", "memory_I_max": "8192\n"}, 2, 8192),
        # Version 1, alone and beside version 2, and where two controllers share a folder.
        (
            "4:memory:/x\n1:cpu:/x\n0::/\n",
            {
                "cpu__x__cpu_I_cfs_quota_us": "300000\n",
                "cpu__x__cpu_I_cfs_period_us": "100000\n",
                "memory__x__memory_I_limit_in_bytes": "2048\n",
            },
            3,
            2048,
        ),
        ("1:cpu:/\n", {"cpu__cpu_I_cfs_quota_us": "-1\n", "cpu__cpu_I_cfs_period_us": "100000\n"}, None, None),
        (
            "1:cpu,cpuacct:/\n",
            {"cpu,cpuacct__cpu_I_cfs_quota_us": "50000\n", "cpu,cpuacct__cpu_I_cfs_period_us": "100000\n"},
            1,
            None,
        ),
        ("0::/\n", {"unified__cpu_I_max": "200000 100000\n"}, 2, None),
        # Nothing to be read, or nothing that can be understood.
        ("", {}, None, None),
        ("0::/\n", {"cpu_I_max": "some words\n", "memory_I_max": "-5\n"}, None, None),
        ("0::/\n", {"cpu_I_max": "0 100000\n", "memory_I_max": "\n"}, None, None),
        ("9:name=systemd:/a:b\n", {"cpu_I_max": "100000 100000\n"}, None, None),
        ("4:memory:/\n", {"memory__memory_I_limit_in_bytes": NO_LIMIT}, None, None),
    ],
)
def test_limits_of_control_groups(
    own: str, files: dict[str, str], cores: int | None, memory: int | None, tmp_path: Path
) -> None:
    root = machine(tmp_path, own, **files)
    assert (granted_cores(root), granted_bytes(root)) == (cores, memory)


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert (granted_cores(tmp_path), granted_bytes(tmp_path)) == (None, None)


def test_a_process_counts_what_its_container_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    for granted, cores in ((None, 64), (2, 2), (100, 64)):
        monkeypatch.setattr(device, "granted_cores", lambda granted=granted: granted)
        assert device.available_cores() == cores
    monkeypatch.setattr(device, "granted_bytes", lambda: 12345)
    assert device.memory_bytes() == 12345


def test_libraries_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr(device, "granted_cores", lambda: None)
    limit_threads()
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(device, "granted_cores", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5}, raising=False)
    limit_threads()
    assert (os.environ["OMP_NUM_THREADS"], os.environ["RAYON_NUM_THREADS"]) == ("3", "2"), "of 8, it may run on two"
