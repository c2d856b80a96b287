"""Settings of the MySQL store, and where a shard is. `database_settings` describes those that the stores in databases share.

Imports no driver: the settings are read even if none is installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from pinlater.domain.invalid_settings import InvalidSettings

DATABASE_NAME = re.compile(r"[A-Za-z0-9_$-]{1,64}", re.ASCII)
"""What may be the name of a database: it needs no escape between backticks, and no server folds or refuses it."""

_PREFIX = re.compile(r"[A-Za-z0-9_$-]{1,40}", re.ASCII)
_DATABASES_MAX = 1_000


@dataclass(frozen=True, slots=True, repr=False)
class MysqlEndpoint:
    """Where a shard's database is, and the user to log in as. `tls` None: according to the settings.

    Never shown with its password; therefore it is not a tuple: printing a list of tuples prints every part.
    """

    host: str
    port: int
    user: str
    password: str = ""
    database: str = "pinlater_1"
    socket: str | None = None
    tls: bool | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.socket or f'{host}:{self.port}'}/{self.database}"

    def __repr__(self) -> str:
        return f"MysqlEndpoint({self})"


@dataclass(frozen=True, slots=True)
class MysqlSettings:
    """The settings of the MySQL and MariaDB store: who logs in, how shards and databases are named, connections and time limits for each
    shard.
    """

    user: str = "pinlater"
    """The user who logs in, where the URL or the shard file names none."""
    password: str | None = field(default=None, repr=False, metadata={"secret": True})
    """The password, where the URL or the shard file has none. Better in `PINLATER_MYSQL_PASSWORD` or in a file than in the settings."""
    password_file: Path | None = None
    host_prefix: str | None = None
    """What the shard file's keys begin with, before the number; other keys are ignored. Not set: any key that ends in a number counts."""
    databases_per_server: Annotated[int, Meta(le=_DATABASES_MAX)] = 1
    """Databases, each a shard, on each server of the shard file: `3`, `3d1`, `3d2` … on replica set 3."""
    database_prefix: str = "pinlater"
    """Shard `3d2` is the database `pinlater_3d2`: this, an underscore, and the shard's name."""
    reader_connections: Annotated[int, Meta(le=1_000)] = 4
    connect_timeout_ms: int = 3_000
    statement_timeout_ms: int = 5_000
    """How long the database may take to answer one packet; then the connection is cut."""
    lock_wait_ms: int = 3_000
    """How long a statement waits for another transaction's row lock, in whole seconds, rounded up."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 3
    """How often a transaction is tried again after a deadlock, a lock that didn't come, or a lost connection."""
    retry_pause_ms: int = 20
    waiting_reads_max: int = 1_000
    ready_bytes_max: Annotated[int, Meta(ge=0)] = 32 * 1024 * 1024
    """Most bytes of jobs that a server remembers to hand them out next, of all its shards together. 0: each claim searches."""
    lease_ms: Annotated[int, Meta(ge=5_000)] = 60_000
    tls: bool = False
    """Encrypt connections and check the server's certificate. A URL (`?tls=true`) or an entry of the shard file may say otherwise."""
    tls_ca: Path | None = None
    """Authorities, in PEM, that may have signed the database's certificate. Not set: the machine's own."""
    tls_cert: Path | None = None
    """Our certificate, in PEM, for databases that ask for one."""
    tls_key: Path | None = None
    tls_check_hostname: bool = True
    partition_hours: Annotated[int, Meta(le=24 * 31)] = 4
    """How many hours of jobs share a partition, which is dropped once they are gone."""
    priority_levels: int = 3

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.database_prefix):
            raise InvalidSettings(
                "database_prefix must be 1 to 40 letters, digits and the characters _ $ - (it begins each database's name)",
                "database_prefix",
            )
        if not self.user:
            raise InvalidSettings("user is empty", "user")
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidSettings("tls_key needs tls_cert too", "tls_key", "tls_cert")

    @property
    def lock_wait_s(self) -> int:
        """The longest wait for a lock, in the unit of the database."""
        return -(-self.lock_wait_ms // 1000)

    @property
    def idle_writer_s(self) -> int:
        """How long the database keeps an idle connection of a writer, in a transaction or not: shorter than the lease of the slot."""
        return max(1, self.lease_ms // 2_000)

    def database_of(self, shard: str) -> str:
        """The name of a shard's database."""
        return f"{self.database_prefix}_{shard}"
