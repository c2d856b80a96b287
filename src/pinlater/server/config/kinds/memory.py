"""The store in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import Shard


class _MemoryKind:
    name = "memory"
    form = "memory:"
    warning = "jobs are kept in memory and are gone when the server stops"
    tools = None

    def locate(self, rest: str, base: Path | None) -> None:
        """Takes no `rest`."""

    def make(self, path: Path | None, settings: Settings) -> Shard:
        from pinlater.server.storage.sqlite.memory import MemoryShard

        return MemoryShard()


MEMORY = _MemoryKind()
