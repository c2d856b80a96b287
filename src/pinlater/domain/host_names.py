"""Names of hosts, in the forms of `Host`, `Origin` and settings. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from pinlater.domain.caller_address import named_address

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::(\d{1,5}))?", re.ASCII)


class HostName(NamedTuple):
    """`name`: in lower case; an IPv6 address is without brackets. `port`: None if the text has none."""

    name: str
    port: int | None


def host_name(text: str) -> HostName | None:
    """The host that a text such as `jobs.example:8443` or `[::1]:9998` names, or None if it names none."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    v6, name, port = found.groups()
    address = named_address(v6) if v6 else ""
    if (v6 and not address) or (port and int(port) > 65_535):
        return None
    return HostName(address or name.lower(), int(port) if port else None)


def checked_name(text: str) -> str:
    """The name of a host in a setting, in the form of `HostName`. Raises ValueError."""
    found = host_name(f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text)
    if found is None or found.port is not None:
        raise ValueError(f"{text[:100]!r} is not a host name such as jobs.example; omit the scheme, port and path")
    return found.name


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches `host`, a name or an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
