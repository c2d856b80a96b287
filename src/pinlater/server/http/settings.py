"""Settings of the HTTP server. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.domain.invalid_settings import InvalidSettings


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where to listen and what to bound. `port` 0 takes any free one.

    `allowed_hosts` are names, besides loopback's, that a request to a loopback listener may carry in its Host header.
    """

    host: str = "127.0.0.1"
    port: int = 9999
    max_connections: int = 256
    max_header_bytes: int = 16 * 1024
    max_body_bytes: int = 64 * 1024
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 75.0
    handler_timeout_s: float = 30.0
    write_timeout_s: float = 30.0
    stop_timeout_s: float = 5.0
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidSettings(f"http port {self.port} is not in 0..65535", "port")
        for name in ("max_connections", "max_header_bytes", "header_timeout_s", "idle_timeout_s", "write_timeout_s"):
            if getattr(self, name) <= 0:
                raise InvalidSettings(f"{name} must be above 0", name)
