"""Which proxies may name users, in which header, and the client of a request that came through them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pinlater.domain.caller_address import named_address

USER_HEADER, CLIENT_HEADER = "X-Forwarded-User", "X-Forwarded-For"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}", re.ASCII)
# Headers that have a meaning of their own, and that clients or browsers send.
_OF_CLIENTS = frozenset(
    {"accept", "authorization", "content-length", "content-type", "cookie", "host", "origin", "referer", "user-agent"}
)


class TrustedProxies:
    """The networks of proxies. Raises ValueError for a text that names none."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [network_of(text) for text in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, host: str) -> bool:
        """Whether an address is of one of the networks."""
        try:
            address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def client_of(self, host: str, forwarded_for: Sequence[str]) -> str:
        """The address of the client of a request from `host`. `forwarded_for`: the addresses that proxies have added, the last one at the
        end. Each counts only if the one after it is of a trusted proxy: clients may send the header, too."""
        client = host
        for text in reversed(forwarded_for):
            address = named_address(text.strip()) if self.trusts(client) else ""
            if not address:
                break
            client = address
        return client


def network_of(text: str) -> IPv4Network | IPv6Network:
    """The network of an address or in CIDR notation. Raises ValueError for what is none, and for all addresses."""
    try:
        network = ip_network(text.strip())
    except ValueError as error:
        raise ValueError(f"{text[:100]!r} is no network such as 10.0.0.0/24: {error}") from None
    if not network.prefixlen:
        raise ValueError(f"{text[:100]!r} would let every address name users")
    return network


def checked_header(name: str) -> str:
    """The name of the header. Raises ValueError."""
    if not _HEADER.fullmatch(name) or name.lower() in _OF_CLIENTS:
        raise ValueError(f"{name[:100]!r} is no header in which a proxy names users, as {USER_HEADER} is")
    return name
