"""Refuses requests that a web page made through a name of its own that points at this machine (DNS rebinding)."""

from __future__ import annotations

from pinlater.domain.host_names import host_name, is_loopback
from pinlater.server.http.settings import HttpSettings


def permits(settings: HttpSettings, host_header: str | None) -> bool:
    """Whether a request with this header is answered.

    Only loopback listeners refuse some: a server on a network has host names that it does not know, and needs access control anyway.
    A request without a Host header (HTTP/1.0) comes from no browser.
    """
    if host_header is None or not is_loopback(settings.host):
        return True
    named = host_name(host_header.strip())
    allowed = {name.lower() for name in (settings.host, *settings.allowed_hosts)}
    return named is not None and (named.name in allowed or is_loopback(named.name))
