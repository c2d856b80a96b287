"""Settings of the HTTP server. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where to listen and what to bound. `port` 0 takes any free one.

    `allowed_hosts` are names, besides loopback's, that a request to a loopback listener may carry in its Host header.
    """

    host: str = "127.0.0.1"
    """Address that HTTP listens on."""
    port: int = 9999
    """Port of statistics, health and metrics; 0 takes any free one."""
    max_connections: int = 256
    """Most open connections."""
    max_header_bytes: int = 16 * 1024
    """Longest request line and headers."""
    max_body_bytes: int = 64 * 1024
    """Longest request body."""
    header_timeout_s: Annotated[float, Meta(ge=0.1)] = 10.0
    """How long a request's headers may take to arrive."""
    idle_timeout_s: Annotated[float, Meta(ge=0.1)] = 75.0
    """How long a connection is kept open between requests."""
    handler_timeout_s: Annotated[float, Meta(ge=0.1)] = 30.0
    """How long an answer may take to make."""
    write_timeout_s: Annotated[float, Meta(ge=0.1)] = 30.0
    """How long a client may take to read its answer."""
    stop_timeout_s: float = 5.0
    """How long requests under way may take to end when the server stops."""
    allowed_hosts: tuple[str, ...] = ()
    """Names, besides loopback's, that a request to a loopback listener may carry in its Host header."""
