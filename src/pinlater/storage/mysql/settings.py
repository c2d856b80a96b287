"""Settings of the MySQL store, and where a shard is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Endpoint(NamedTuple):
    """Where a shard's database is, and as whom to go there. Never shown with its password."""

    host: str
    port: int
    user: str
    password: str = ""
    database: str = "pinlater_1"
    socket: str | None = None

    def __str__(self) -> str:
        return f"{self.socket or f'{self.host}:{self.port}'}/{self.database}"

    def __repr__(self) -> str:
        return f"Endpoint({self})"


@dataclass(frozen=True, slots=True)
class MysqlSettings:
    """One shard's connections and limits. Times in milliseconds.

    `statement_timeout_ms` bounds each round trip, `lock_wait_s` how long a statement waits for somebody's row lock. `lease_ms`: how
    long after its last sign of life a server's slot may be taken by another.
    """

    reader_connections: int = 4
    connect_timeout_ms: int = 3_000
    statement_timeout_ms: int = 5_000
    lock_wait_s: int = 3
    retries: int = 3
    retry_pause_ms: int = 20
    waiting_reads_max: int = 1_000
    lease_ms: int = 60_000
    priority_levels: int = 3
    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_check_hostname: bool = True

    def __post_init__(self) -> None:
        for name in ("reader_connections", "connect_timeout_ms", "statement_timeout_ms", "lock_wait_s", "lease_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive")
