"""Access control: API keys, limits on requests per minute, hour and day, and blocking of addresses that guess keys."""

import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from starlette.datastructures import Headers

from repose.serving.refusals import RequestError, flood, slow_down
from repose.serving.settings import NO_LIMIT, ServeSettings
from repose.system.errors import ConfigError, DataError

_WITH_PORT = re.compile(r"\[(.*)\](?::\d+)?|([^:]*):\d+")  # some gateways add a port to addresses
_SECONDS = {"minute": 60.0, "hour": 3_600.0, "day": 86_400.0}
_MOST_CLIENTS = 100_000
"""Maximum number of clients whose requests are counted. Beyond it, the oldest are forgotten."""


class Windows:
    """Counts of each client's events, in windows of a minute, an hour or a day that start with its first event."""

    def __init__(self, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = _SECONDS[unit], clock
        self._windows: dict[str, tuple[float, int]] = {}

    def add(self, client: str, number: int = 1) -> int:
        """Add events and return the number in the client's current window."""
        began, count = self._current(client)
        if client not in self._windows and len(self._windows) >= _MOST_CLIENTS:
            self._forget()
        self._windows.pop(client, None)
        self._windows[client] = (began, count + number)
        return count + number

    def count(self, client: str) -> int:
        return self._current(client)[1]

    def seconds_left(self, client: str) -> float:
        """Return the seconds until the client's current window ends."""
        return max(0.0, self._current(client)[0] + self._seconds - self._clock())

    def _current(self, client: str) -> tuple[float, int]:
        now = self._clock()
        began, count = self._windows.get(client, (now, 0))
        return (began, count) if now < began + self._seconds else (now, 0)

    def _forget(self) -> None:
        for client in list(self._windows)[: _MOST_CLIENTS // 10]:
            del self._windows[client]


class Access:
    """Decides for each request whether it may be answered."""

    def __init__(self, settings: ServeSettings) -> None:
        """Raises DataError if the file of keys cannot be read, ConfigError if keys are required but there are none."""
        self._settings = settings
        self.read_keys()
        self.wrong_keys = Windows("minute")
        limits = settings.limits
        by_unit = {"minute": limits.req_limit, "hour": limits.hourly_req_limit, "day": limits.daily_req_limit}
        self._requests = [(unit, limit, Windows(unit)) for unit, limit in by_unit.items() if limit != NO_LIMIT]

    def read_keys(self) -> None:
        """Read the keys from their file. Raises the errors of `Access`; the old keys stay then."""
        settings = self._settings
        keys = _read_keys(settings.api_keys) if settings.api_keys is not None else []
        if settings.key_required and not keys:
            raise ConfigError("keys are required, but there are none: give a file with a key per line as --api-keys")
        self._keys = keys

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def check(self, address: str, key: object, cost: int = 1) -> str:
        """Check a request's key, count the request, and return the id under which its client is counted.

        `key`: the API key that the client sent, if any; an empty one counts as none. Raises RequestError.
        """
        limits = self._settings.limits
        client = address
        if self._keys:
            if self.wrong_keys.count(address) >= limits.wrong_key_limit:
                raise flood(self.wrong_keys.seconds_left(address))
            if key is not None and key != "":
                digest = _digest(key if isinstance(key, str) else repr(key))
                # Compare with all keys, so that the time taken does not reveal which key is close.
                if not sum([hmac.compare_digest(digest, known) for known in self._keys]):
                    self.wrong_keys.add(address)
                    raise RequestError(403, "Invalid API key")
                client = digest.hex()
            elif self._settings.key_required:
                where = self._settings.key_url
                text = (
                    f"Visit {where} to get an API key"
                    if where
                    else "Please contact the server operator to get an API key"
                )
                raise RequestError(400, text)
        self.charge(client, cost)
        return client

    def charge(self, client: str, cost: int, *, counted: int = 0) -> None:
        """Count a request with this cost. `counted`: the part of the cost that was counted before.

        Raises RequestError if a limit would be exceeded. Nothing is counted then, so a cheaper request may still pass.
        """
        found = [
            (unit, limit, requests, max(0, min(cost, limit) - counted))  # a cost above the limit uses all of it
            for unit, limit, requests in self._requests
        ]
        for unit, limit, requests, more in found:
            if requests.count(client) + more > limit:
                raise slow_down(limit, unit, requests.seconds_left(client))
        for _, _, requests, more in found:
            requests.add(client, more)


def address_of(host: str | None, headers: Headers, *, trust_forwarded_for: bool) -> str:
    """Return a client's address; for IPv6 its /64 network, since a client has all 2^64 addresses of one."""
    # The proxy's entry is the last one, in a header line of its own or after what the client wrote.
    forwarded = ",".join(headers.getlist("x-forwarded-for")) if trust_forwarded_for else ""
    return _network(forwarded.rpartition(",")[2].strip(), host or "")


@lru_cache(4_096)
def _network(forwarded: str, host: str) -> str:
    with_port = _WITH_PORT.fullmatch(forwarded)
    try:
        address = ipaddress.ip_address((with_port[1] or with_port[2] if with_port else forwarded) or host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # the form of IPv4 addresses at a dual-stack listener
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _read_keys(path: Path) -> list[bytes]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(f"no API keys can be read from {path}: {reason}") from error
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:
            raise DataError(
                f"{path}, line {number}: a key has no white space: write one key per line, and nothing else"
            )
    if not (keys := [line for line in lines if line]):
        raise DataError(f"{path} holds no API key: write one per line")
    return [_digest(key) for key in keys]
