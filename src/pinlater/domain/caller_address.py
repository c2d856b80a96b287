"""What stands for a caller where bounds and delays are shared out by address."""

from __future__ import annotations

import ipaddress

_NETWORK_BITS = 64  # of an IPv6 address: one caller has at least this network to itself


def address_of(peer: object) -> str:
    """What stands for a caller, from its socket's address: an IPv4 address, or the network of an IPv6 address."""
    if not isinstance(peer, tuple):
        return str(peer)
    text = str(peer[0])
    if ":" not in text:
        return text
    address = ipaddress.IPv6Address(text.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), _NETWORK_BITS), strict=False))
