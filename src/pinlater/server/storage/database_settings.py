"""The settings that every store in databases has, with their descriptions for the reference page."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pinlater.server.storage.tls import TlsFiles


class DatabaseSettings(TlsFiles, Protocol):
    """The settings of one kind of database."""

    @property
    def password_file(self) -> Path | None:
        """A file that holds that password in its first line, looked at again every 10 s."""

    @property
    def connect_timeout_ms(self) -> int:
        """How long making a connection may take. Also how long a server asks for the outcome of a change whose answer was lost."""

    @property
    def reader_connections(self) -> int:
        """Most connections for reading to one shard; for writing there are four."""

    @property
    def retry_pause_ms(self) -> int:
        """The longest pause before the first of these; each doubles it, up to 16 times."""

    @property
    def waiting_reads_max(self) -> int:
        """Most reads of one shard that wait for a connection."""

    @property
    def lease_ms(self) -> int:
        """How long after its last heartbeat a server's slot in a shard may be taken by another server."""
