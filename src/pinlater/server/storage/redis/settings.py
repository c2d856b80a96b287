"""Settings of the Redis store, and where a shard is, as `storage.mysql.settings` for MySQL."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pinlater.domain.invalid_settings import InvalidSettings

_PREFIX = re.compile(r"[A-Za-z0-9_.:$-]{0,40}", re.ASCII)
_SHARD = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, repr=False)
class RedisEndpoint:
    """Where a shard's Redis is, and the user to log in as. `tls` None: according to the settings.

    With `sentinels` (host and port of each) `host` and `port` aren't used: they are asked for the address of the master called `master`,
    at each new connection. Never shown with its password, like MySQL's endpoint.
    """

    host: str = "127.0.0.1"
    port: int = 6379
    user: str = ""
    password: str = ""
    db: int = 0
    socket: str | None = None
    tls: bool | None = None
    sentinels: tuple[tuple[str, int], ...] = ()
    master: str = ""

    def __post_init__(self) -> None:
        if self.sentinels and not self.master:
            raise ValueError("sentinels need the name of the master too")

    def __str__(self) -> str:
        if self.sentinels:
            return f"{self.master}@{','.join(f'{host}:{port}' for host, port in self.sentinels)}/{self.db}"
        return f"{self.socket or f'{self.host}:{self.port}'}/{self.db}"

    def __repr__(self) -> str:
        return f"RedisEndpoint({self})"


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The settings of the Redis and Valkey store: who logs in, how keys are named, connections, limits of time and memory for each
    shard.
    """

    user: str = ""
    """The user who logs in, where the URL or the shard file names none. Empty: Redis' default user."""
    password: str | None = field(default=None, repr=False, metadata={"secret": True})
    """The password, where the URL or the shard file has none. Better in `PINLATER_REDIS_PASSWORD` or in a file than in the settings."""
    password_file: Path | None = None
    sentinels: tuple[str, ...] = ()
    """Sentinels, each `HOST:PORT`, to ask where the master is, for a URL or an entry that names a master and no Sentinels."""
    sentinel_user: str = ""
    """The user who logs in to Sentinels."""
    sentinel_password: str | None = field(default=None, repr=False, metadata={"secret": True})
    """The Sentinels' password, where they ask for one."""
    key_prefix: str = "pinlater"
    """Shard `1` has the keys `pinlater{1}:…`: this, and the shard's name in braces."""
    reader_connections: Annotated[int, Meta(le=1_000)] = 2
    connect_timeout_ms: int = 3_000
    command_timeout_ms: int = 5_000
    """How long Redis may take to answer; then the connection is cut."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 3
    """How often a change is tried again after a lost connection, or where another server changed a job in the meantime."""
    retry_pause_ms: int = 20
    waiting_reads_max: int = 1_000
    lease_ms: Annotated[int, Meta(ge=5_000)] = 60_000
    memory_used_max_percent: Annotated[int, Meta(ge=1, le=100)] = 95
    """Enqueues are refused once Redis uses this much of its `maxmemory`; claims and acks go on."""
    finished_bytes_max: int | None = None
    """Most bytes that finished jobs of a shard may take: beyond it the oldest go before their time. Not set: time alone decides."""
    tls: bool = False
    """Encrypt connections and check the server's certificate. A URL (`rediss://`) or an entry of the shard file may say otherwise."""
    tls_ca: Path | None = None
    """Authorities, in PEM, that may have signed the server's certificate. Not set: the machine's own."""
    tls_cert: Path | None = None
    """Our certificate, in PEM, for servers that ask for one."""
    tls_key: Path | None = None
    tls_check_hostname: bool = True
    priority_levels: int = 3

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.key_prefix):
            raise InvalidSettings(
                "key_prefix must be at most 40 letters, digits and the characters _ . : $ - (it begins each key)",
                "key_prefix",
            )
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidSettings("tls_key needs tls_cert too", "tls_key", "tls_cert")

    def tag_of(self, shard: str) -> str:
        """Returns the prefix of all keys of a shard, with its hash tag."""
        if not _SHARD.fullmatch(shard):
            raise ValueError(f"not a shard's name: {shard!r}")
        return f"{self.key_prefix}{{{shard}}}"
