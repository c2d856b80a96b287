"""Addresses of callers: the key of a caller for bounds and delays, and addresses that other programs name."""

from __future__ import annotations

import ipaddress

_NETWORK_BITS = 64  # bits of an IPv6 address: one caller has at least this network to itself
_CHARACTERS_MAX = 64


def address_of(peer: object) -> str:
    """Returns the key of a caller, from its socket's address: an IPv4 address, or the network of an IPv6 address."""
    if not isinstance(peer, tuple):
        return str(peer)
    text = str(peer[0])
    if ":" not in text:
        return text
    address = ipaddress.IPv6Address(text.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), _NETWORK_BITS), strict=False))


def with_port(peer: object) -> str:
    """A socket's address for people: `10.0.0.7:51514`, `[2001:db8::1]:51514`; '' if it has none, like that of a local process."""
    if not isinstance(peer, tuple):
        return str(peer or "")
    host, port = str(peer[0]), peer[1]
    if ":" not in host:
        return f"{host}:{port}"
    address = ipaddress.IPv6Address(host)
    return f"[{host}]:{port}" if address.ipv4_mapped is None else f"{address.ipv4_mapped}:{port}"


def named_address(text: str) -> str:
    """The IP address in a text, without the name of an interface; '' if it is not one."""
    try:
        address = ipaddress.ip_address(text[:_CHARACTERS_MAX].partition("%")[0])
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def shown_address(named: str, host: str) -> str:
    """Returns where a call came from: the address that the caller names, which nothing proves, and at the end always that of the
    connection.
    """
    address = named_address(named) if named else ""
    return f"{address} through {host}" if address else host
