"""Who may write into a cell's folder, where the operating system's lock does not reach.

A run directory is guarded by an advisory lock, which a machine that is cut off from the others, or a file system
without locks, does not keep. So whoever runs a cell on another machine holds a claim, `state/claim.json`, meanwhile:

- it reads the claim every `POLL` seconds, and kills its training when it finds another's there or could not read it for
  `lease` seconds;
- whoever takes the claim over writes its own and then waits for `lease` + `MARGIN` seconds: by then the one before has
  seen it, or has ended because it saw nothing.

This needs a file system on which a file that is opened shows what was written last (local ones, NFS, Lustre, CephFS),
and no clock that is set alike. It cannot stop a machine that sleeps as a whole between a look and a write.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from repose.system.errors import BusyError

LEASE = 30.0
"""Seconds without a look at the claim after which its holder ends."""
POLL = 1.0
"""Seconds between looks."""
MARGIN = 5.0
"""Seconds in which a training ends after the process that started it."""


@dataclass(frozen=True)
class Claim:
    """The right to write into `folder`."""

    folder: Path
    token: str
    """Unlike any other's."""
    lease: float
    host: str
    attempt: int
    """How often the folder was claimed without being released in between, this time included."""

    def is_held(self) -> bool:
        """Whether it is still ours. Raises OSError where that cannot be read."""
        found = _read(_path(self.folder))
        return found is not None and found.token == self.token

    def release(self) -> None:
        """Give it up, if it is still ours."""
        if self.is_held():
            _path(self.folder).unlink(missing_ok=True)


def take(folder: Path, *, lease: float = LEASE, wait: Callable[[float], None] = time.sleep) -> Claim:
    """Claim a folder, which is made where it is missing; where another claim stands, wait until its holder has ended.

    Raises BusyError when a third one takes it meanwhile, and OSError where the folder cannot be written.
    """
    path = _path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    claim = Claim(folder, secrets.token_hex(8), lease, socket.gethostname(), 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_text(claim))
        return claim
    except FileExistsError:
        before = _read(path)
    claim = Claim(folder, claim.token, lease, claim.host, 1 if before is None else before.attempt + 1)
    unfinished = path.with_name(f"{path.name}.{claim.token}")
    unfinished.write_text(_text(claim), encoding="utf-8")
    unfinished.replace(path)
    end = time.monotonic() + (lease if before is None else before.lease) + MARGIN
    while (left := end - time.monotonic()) > 0:
        wait(min(POLL, left))
        if not claim.is_held():
            raise BusyError(f"{folder} is being trained in by another process: wait for it, or stop it")
    return claim


def _path(folder: Path) -> Path:
    return folder / "state" / "claim.json"


def _text(claim: Claim) -> str:
    content = asdict(claim) | {"process": os.getpid()}
    del content["folder"]
    return json.dumps(content) + "\n"


def _read(path: Path) -> Claim | None:
    """The claim there; None where there is none or half of one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Claim(path.parents[1], found["token"], float(found["lease"]), found["host"], int(found["attempt"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None
