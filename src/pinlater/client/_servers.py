"""Which servers to talk to: parsing their names, reading a server-set file, and choosing one. No sockets.

Weakness: health is what this client saw last; nothing is probed while nothing is asked.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from os import PathLike
from random import Random
from typing import NamedTuple, Protocol

from pinlater.client.errors import ServerUnreachable

_log = logging.getLogger("pinlater.client")

DEFAULT_PORT = 9010
DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"
SERVERS_VARIABLE = "PINLATER_SERVERS"
ENQUEUE_SERVERS_VARIABLE = "PINLATER_ENQUEUE_SERVERS"
_MISSPELT = "PINLATER_SERVER"
_FILE_PREFIX = "file:"
_FILE_LOOK_S = 1.0
_AWAY_FIRST_S, _AWAY_MAX_S = 0.5, 30.0
# After a round in which no server could be reached the next one is made no sooner, however many calls wait for it.
_ROUND_S = 0.05
# A connection is made anew after so long, so that load finds its way to servers that came, or came back.
_FIRST_CHOICE_S, _SECOND_CHOICE_S = 600.0, 30.0
_NAMED_MAX = 5
NONE_REACHED = "No server could be reached"


class ServerAddress(NamedTuple):
    """Where a server listens for Thrift."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def servers_by_default() -> str:
    """The value of PINLATER_SERVERS, or the default server. Warns of the variable in the singular, which is not read."""
    servers = os.environ.get(SERVERS_VARIABLE)
    if not servers and _MISSPELT in os.environ:
        _log.warning("%s is not read; set %s. Using %s", _MISSPELT, SERVERS_VARIABLE, DEFAULT_SERVER)
    return servers or DEFAULT_SERVER


def enqueue_servers_by_default(servers: object) -> str | None:
    """The value of PINLATER_ENQUEUE_SERVERS for a client of these servers, None: those of the environment. It belongs to the servers of the
    environment, so clients of other ones get none."""
    of_environment = os.environ.get(SERVERS_VARIABLE) or DEFAULT_SERVER
    return os.environ.get(ENQUEUE_SERVERS_VARIABLE) or None if servers in (None, of_environment) else None


def parse_address(text: str) -> ServerAddress:
    """`host`, `host:port`, `[v6]:port` or a bare IPv6 address; the port defaults to 9010. Raises ValueError."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"not a server address: {text!r}; write host:port")
    elif text.count(":") > 1:
        host, port = _ipv6(text), ""
    else:
        host, _, port = text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() else (DEFAULT_PORT if not port else 0)
    if not host or any(c.isspace() for c in host) or not 0 < number < 65_536:
        raise ValueError(f"not a server address: {text!r}; write host:port")
    return ServerAddress(host, number)


def _ipv6(text: str) -> str:
    from ipaddress import IPv6Address

    try:
        return str(IPv6Address(text))
    except ValueError:
        raise ValueError(f"not a server address: {text!r}; write host:port") from None


def parse_servers(servers: str | Sequence[str]) -> tuple[ServerAddress, ...]:
    """Addresses from a list, or from one string with commas or white space between them. Raises ValueError when there is none.

    Raises TypeError for what is neither.
    """
    if isinstance(servers, bytes) or not isinstance(servers, Iterable):
        raise TypeError(f"servers must be 'host:port', a list of such, or a path, not {type(servers).__name__}")
    names = servers.replace(",", " ").split() if isinstance(servers, str) else list(servers)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a server must be 'host:port', not {type(name).__name__}")
    addresses = tuple(dict.fromkeys(parse_address(name) for name in names))
    if not addresses:
        raise ValueError("no server given; write host:port")
    return addresses


def server_source(
    servers: str | PathLike[str] | Sequence[str], monotonic: Callable[[], float]
) -> FixedServers | ServerSetFile:
    """Addresses as `parse_servers` takes them, or a server-set file as a path or as `file:PATH`. Raises ValueError."""
    if isinstance(servers, PathLike):
        return ServerSetFile(servers, monotonic)
    if isinstance(servers, str) and servers.startswith(_FILE_PREFIX):
        return ServerSetFile(servers.removeprefix(_FILE_PREFIX), monotonic)
    return FixedServers(parse_servers(servers))


def check_servers(servers: str | PathLike[str] | Sequence[str]) -> None:
    """Raises TypeError or ValueError for what `server_source` can't take. Reads no file."""
    if not isinstance(servers, PathLike) and not (isinstance(servers, str) and servers.startswith(_FILE_PREFIX)):
        parse_servers(servers)


def same_servers(some: str, others: str) -> bool:
    """Whether two texts name the same servers, or the same server-set file. Reads no file."""
    try:
        return some == others or set(parse_servers(some)) == set(parse_servers(others))
    except ValueError:
        return False


class ServerSource(Protocol):
    """Where the list of servers comes from."""

    def addresses(self) -> tuple[ServerAddress, ...]:
        """The servers as of now, never empty."""
        ...

    def is_spare(self, address: ServerAddress) -> bool:
        """Whether this server is used only while all others are avoided."""
        return False


class FixedServers(ServerSource):
    """A list that stays."""

    def __init__(self, listed: tuple[ServerAddress, ...]) -> None:
        self.listed = listed

    def addresses(self) -> tuple[ServerAddress, ...]:
        return self.listed


class EnqueueServers(ServerSource):
    """The servers for enqueues, and those for all other calls as spares."""

    def __init__(self, first: ServerSource, spares: ServerSource) -> None:
        self._first = first
        self._spares = spares
        self._parts = first.addresses(), spares.addresses()
        self._listed = self._joined()

    def addresses(self) -> tuple[ServerAddress, ...]:
        parts = self._first.addresses(), self._spares.addresses()
        if parts != self._parts:
            self._parts = parts
            self._listed = self._joined()
        return self._listed

    def _joined(self) -> tuple[ServerAddress, ...]:
        return tuple(dict.fromkeys(chain(*self._parts)))

    def is_spare(self, address: ServerAddress) -> bool:
        return address not in self._first.addresses()


class ServerSetFile(ServerSource):
    """A file with one `host:port` in each line (empty lines and `#` comments aside), looked at again at most once a second.

    One that can't be read or names no server keeps the last good list, and says so once. Raises ValueError if there is no good one yet.
    """

    def __init__(self, path: str | PathLike[str], monotonic: Callable[[], float]) -> None:
        from pathlib import Path

        self._path = Path(path)
        self._monotonic = monotonic
        self._next_look = monotonic() + _FILE_LOOK_S
        self._seen: tuple[int, int, int] | None = None
        self._complained = False
        self._listed = self._read()

    def addresses(self) -> tuple[ServerAddress, ...]:
        now = self._monotonic()
        if now >= self._next_look:
            self._next_look = now + _FILE_LOOK_S
            self._look()
        return self._listed

    def _look(self) -> None:
        try:
            if self._mark() != self._seen:
                self._listed = self._read()
                self._complained = False
                _log.info("server set %s names %d servers", self._path, len(self._listed))
        except ValueError as error:
            if not self._complained:
                self._complained = True
                _log.warning("%s; keeping the last good list", error)

    def _mark(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError as error:
            raise self._broken(f"can't be read: {error.strerror or error}") from error
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> tuple[ServerAddress, ...]:
        self._seen = self._mark()
        try:
            text = self._path.read_text("utf-8")
        except OSError as error:
            raise self._broken(f"can't be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise self._broken(f"can't be read: {error}") from error
        try:
            return parse_servers(
                [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
            )
        except ValueError as error:
            raise self._broken(str(error)) from None

    def _broken(self, why: str) -> ValueError:
        return ValueError(f"server set {self._path}: {why}")


def tried(addresses: Sequence[ServerAddress]) -> str:
    """The servers that were tried, the first few by name."""
    named = ", ".join(map(str, addresses[:_NAMED_MAX]))
    return f"tried {named}{', ...' if len(addresses) > _NAMED_MAX else ''}"


class ServerChoice:
    """The order in which servers are tried: those thought well first, in an order of this client's own, then the others.

    A server that failed is avoided for a time, which doubles with each further failure after its end, up to half a minute. A failure
    within that time adds nothing, so it grows with the length of an outage and not with the number of calls. If all servers are
    avoided they are tried all the same. May be asked and told from any thread.
    """

    def __init__(self, source: ServerSource, monotonic: Callable[[], float], random: Random) -> None:
        self._source = source
        self._monotonic = monotonic
        self._random = random
        self._lock = threading.RLock()  # a signal's handler may make calls of its own
        self._listed: tuple[ServerAddress, ...] = ()
        self._order: list[ServerAddress] = []
        self.failures: dict[ServerAddress, int] = {}  # of servers that have not answered since
        self._away_until: dict[ServerAddress, float] = {}
        self._round: tuple[float, str] | None = None

    def candidates(self, start: int = 0) -> tuple[ServerAddress, ...]:
        """All servers, the best first; `start` turns the order, so that a client's connections spread over the servers."""
        with self._lock:
            order = self._present()
            now = self._monotonic()
            away = {address: until for address, until in self._away_until.items() if until > now}
        start %= len(order)
        order = [*order[start:], *order[:start]]
        return tuple(sorted(order, key=lambda address: (away.get(address, 0.0), self._source.is_spare(address))))

    def stay_s(self, address: ServerAddress, start: int) -> float:
        """How long a connection to `address`, of those `candidates(start)`, may be kept."""
        is_first = address == self.candidates(start)[0] and not self._source.is_spare(address)
        return _FIRST_CHOICE_S if is_first else _SECOND_CHOICE_S

    def is_listed(self, address: ServerAddress) -> bool:
        """Whether this server still is one of those to use."""
        with self._lock:
            if self._source.addresses() is not self._listed:
                self._present()
            return address in self._listed

    def failed(self, address: ServerAddress) -> None:
        """`address` could not be reached, broke off, did not answer, or is going down."""
        with self._lock:
            now = self._monotonic()
            if address not in self._listed or self._away_until.get(address, now) > now:
                return
            failures = self.failures[address] = self.failures.get(address, 0) + 1
            away_s = min(_AWAY_MAX_S, _AWAY_FIRST_S * 2 ** min(failures - 1, 10))
            self._away_until[address] = now + away_s

    def is_away(self, address: ServerAddress) -> bool:
        """Whether it has failed and is avoided for now."""
        until = self._away_until.get(address)
        return until is not None and until > self._monotonic()

    def none_reached(self, last: ServerUnreachable) -> ServerUnreachable:
        """A round over all servers has ended. `last`: the error of the server that was tried last. Returns that of the round."""
        with self._lock:
            one = len(self._present()) == 1
            text = last.message if one else f"{NONE_REACHED}; {tried(self._listed)}; last: {last.message}"
            self._round = (self._monotonic() + _ROUND_S, text)
        return last if one else ServerUnreachable(text)

    def check_round(self) -> None:
        """Raises ServerUnreachable if the next round over all servers is not due yet."""
        with self._lock:
            if self._round is not None and self._monotonic() < self._round[0]:
                raise ServerUnreachable(self._round[1])

    def worked(self, address: ServerAddress) -> None:
        """`address` answered."""
        if address in self.failures:
            with self._lock:
                self.failures.pop(address, None)
                self._away_until.pop(address, None)

    def _present(self) -> list[ServerAddress]:
        listed = self._source.addresses()
        if listed is not self._listed:
            self._listed = listed
            self._order = self._random.sample(listed, len(listed))
            self.failures = {address: count for address, count in self.failures.items() if address in listed}
            self._away_until = {address: until for address, until in self._away_until.items() if address in listed}
        return self._order
