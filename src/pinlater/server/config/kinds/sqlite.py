"""The store in an SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pinlater.server.config.paths import resolved

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import Shard
    from pinlater.server.storage.offline import Migrated


class _Tools:
    def migrate(self, path: Path) -> Migrated:
        from pinlater.server.storage.sqlite.offline import migrate_file

        return migrate_file(path)

    def backup(self, path: Path, target: Path) -> int:
        from pinlater.server.storage.sqlite.backup import backup

        return backup(path, target)


class _SqliteKind:
    name = "sqlite"
    form = "sqlite:PATH"
    warning = ""
    tools = _Tools()

    def locate(self, rest: str, base: Path | None) -> Path:
        if not rest:
            raise ValueError("names no file: write sqlite:PATH, for example sqlite:pinlater.db")
        if rest == ":memory:":
            raise ValueError("is not possible: a store in memory is called memory:")
        if rest.startswith("//") and not rest.startswith("///"):
            raise ValueError("names a host, but an SQLite store is a file: write sqlite:PATH")
        return resolved(rest, base)

    def make(self, path: Path | None, settings: Settings) -> Shard:
        from pinlater.server.storage.sqlite.shard import SqliteShard

        if path is None:
            raise ValueError(f"{settings.store} names no file")
        return SqliteShard(path, settings.sqlite)


SQLITE = _SqliteKind()
