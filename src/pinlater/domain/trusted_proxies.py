"""Which proxies are trusted, in which header they name users, and the client of a request that came through them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from pinlater.domain.caller_address import named_address

USER_HEADER, CLIENT_HEADER = "X-Forwarded-User", "X-Forwarded-For"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}", re.ASCII)
# Headers that have a meaning of their own, and that clients or browsers send.
_OF_CLIENTS = frozenset(
    {"accept", "authorization", "content-length", "content-type", "cookie", "host", "origin", "referer", "user-agent"}
)
_UNKNOWN = re.compile(r"(?:unknown|_[A-Za-z0-9._-]+)(?::[0-9A-Za-z._-]+)?", re.ASCII | re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([^\[\]]+)\](?::\w+)?|([0-9.]+):\w+", re.ASCII)


class ClientRoute(NamedTuple):
    """`client`: the address of the client, as far as trusted proxies know it. `proxies`: how many of them have added to the header."""

    client: str
    proxies: int


class TrustedProxies:
    """The networks of proxies. Raises ValueError for a string that names none."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [network_of(text) for text in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, host: str) -> bool:
        """Returns whether an address is of one of the networks."""
        try:
            address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def route_of(self, host: str, nodes: Sequence[str]) -> ClientRoute:
        """The route of a request from `host`. `nodes`: the addresses that proxies have added, the last one at the end. Each counts only if
        the next one is that of a trusted proxy: clients may send the header, too. Raises ValueError if one that counts is not an
        address."""
        client, proxies = host, 0
        for text in reversed(nodes):
            if not self.trusts(client):
                break
            proxies += 1
            address = node_address(text)
            if not address:
                break
            client = address
        return ClientRoute(client, proxies)


def node_address(text: str) -> str:
    """The address in a proxy's text for its client, which may have a port: `203.0.113.9:4711`, `[2001:db8::7]`. '' if the proxy does not
    know or report it. Raises ValueError."""
    if not text or _UNKNOWN.fullmatch(text):
        return ""
    found = _WITH_PORT.fullmatch(text)
    address = named_address((found[1] or found[2]) if found else text)
    if not address:
        raise ValueError(f"{text[:100]!r} is not an address")
    return address


def network_of(text: str) -> IPv4Network | IPv6Network:
    """Returns the network of an address or of a range in CIDR notation. Raises ValueError for an invalid one, and for all addresses."""
    try:
        network = ip_network(text.strip())
    except ValueError as error:
        raise ValueError(f"{text[:100]!r} is not a network such as 10.0.0.0/24: {error}") from None
    if not network.prefixlen:
        raise ValueError(f"{text[:100]!r} would trust every address")
    return network


def checked_header(name: str) -> str:
    """The name of the header. Raises ValueError."""
    if not _HEADER.fullmatch(name) or name.lower() in _OF_CLIENTS:
        raise ValueError(f"{name[:100]!r} is not a header in which a proxy can name users, such as {USER_HEADER}")
    return name
