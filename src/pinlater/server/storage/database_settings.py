"""The settings that every store in databases has."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pinlater.server.storage.tls import TlsFiles


class DatabaseSettings(TlsFiles, Protocol):
    """Of one kind of database."""

    @property
    def password_file(self) -> Path | None:
        """The file whose first line is the password."""

    @property
    def connect_timeout_ms(self) -> int:
        """The longest time that a connection may take to open."""

    @property
    def lease_ms(self) -> int:
        """For how long a server keeps its slot without a sign of life."""
