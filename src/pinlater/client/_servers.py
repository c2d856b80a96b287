"""Which servers to talk to: parsing their names, and choosing one. No sockets.

Weakness for now: health is what the last attempt to connect said; there is no probing and no slow start.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

DEFAULT_PORT = 9010
DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"
SERVERS_VARIABLE = "PINLATER_SERVERS"


class Address(NamedTuple):
    """Where a server listens for Thrift."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
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
    return Address(host, number)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise ValueError(f"not a server address: {text!r}; write host:port") from None


def parse_servers(servers: str | Sequence[str]) -> tuple[Address, ...]:
    """Addresses from a list, or from one string with commas or white space between them. Raises ValueError when there is none."""
    names = servers.replace(",", " ").split() if isinstance(servers, str) else list(servers)
    addresses = tuple(dict.fromkeys(parse_address(name) for name in names))
    if not addresses:
        raise ValueError("no server given; write host:port")
    return addresses


class ServerChoice:
    """The order in which servers are tried: the one that worked last comes first, one that failed goes to the end."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._order = list(addresses)

    def candidates(self) -> tuple[Address, ...]:
        """All servers, the best first."""
        return tuple(self._order)

    def failed(self, address: Address) -> None:
        """`address` could not be reached, or broke off."""
        if len(self._order) > 1 and address in self._order:
            self._order.remove(address)
            self._order.append(address)
