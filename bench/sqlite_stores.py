"""SQLite files as the benchmark's stores."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from bench import bare
from bench.stores import BenchmarkStore
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.sqlite.shard import SqliteShard


class SqliteStore:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arguments: tuple[str, ...] = ("--store", f"sqlite:{path}")

    def shard(self) -> Shard:
        return SqliteShard(self.path)

    def remove(self) -> None:
        """Its files."""
        for suffix in ("", "-wal", "-shm", "-lock"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def copy_to(self, target: SqliteStore) -> None:
        """Copies a closed store, down to the disk: the kernel's later writing of it would slow down whatever is measured next."""
        target.remove()
        for suffix in ("", "-wal"):
            if Path(f"{self.path}{suffix}").exists():
                shutil.copyfile(f"{self.path}{suffix}", f"{target.path}{suffix}")
                with Path(f"{target.path}{suffix}").open("rb") as file:
                    os.fsync(file.fileno())


class SqliteStores:
    """Files in a folder. Filled ones are kept there for later runs of the benchmark, and each use works on a copy."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def facts(self) -> dict[str, str]:
        return {"store": self.kind, "database": f"SQLite {sqlite3.sqlite_version}"}

    def new(self) -> SqliteStore:
        self._number += 1
        return self._fresh(f"store-{self._number}")

    def prepared(self, name: str, fill: Callable[[BenchmarkStore], None]) -> SqliteStore:
        kept = SqliteStore(self._folder / f"{name}.db")
        if not kept.path.exists():
            unfinished = self._fresh(f"{name}.unfinished")  # a half-filled one never gets the name
            fill(unfinished)
            unfinished.copy_to(kept)
            unfinished.remove()
        copy = self._fresh(f"{name}-copy")
        kept.copy_to(copy)
        return copy

    def rest(self) -> None:
        """There is no server that could still be at work."""

    def cpu_seconds(self) -> float:
        return 0.0

    def bare(self, rows_per_commit: int, seconds: float) -> float:
        return bare.insert_rate(self._folder / "bare.db", rows_per_commit, seconds)

    def _fresh(self, name: str) -> SqliteStore:
        store = SqliteStore(self._folder / f"{name}.db")
        store.remove()
        return store
