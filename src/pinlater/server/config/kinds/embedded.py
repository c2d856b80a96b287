"""The stores inside the server's process: in an SQLite file, and in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pinlater.server.config.paths import resolved

if TYPE_CHECKING:
    from pinlater.server.config.settings import Settings
    from pinlater.server.storage.interface import Shard


class EmbeddedKind(NamedTuple):
    """What such a store declares about itself. The modules of a store are imported when a shard is made."""

    name: str
    """The prefix before the colon of a location; also the name of the table of its settings, if it has one."""
    form: str
    """The format of its location."""
    warning: str
    """What an operator should know before using it; empty if there is nothing."""
    in_file: bool
    """Whether its store is a file, which several processes can use, and which commands can migrate and back up."""
    locate: Callable[[str, Path | None], Path | None]
    """Returns the file that is named behind the colon of a location. Raises ValueError with a text for the operator."""
    make: Callable[[Path | None, Settings], Shard]
    """Returns the shard, not opened yet."""


def _locate_sqlite(rest: str, base: Path | None) -> Path:
    if not rest:
        raise ValueError("names no file: write sqlite:PATH, for example sqlite:pinlater.db")
    if rest == ":memory:":
        raise ValueError("is not possible: a store in memory is called memory:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise ValueError("names a host, but an SQLite store is a file: write sqlite:PATH")
    return resolved(rest, base)


def _make_sqlite(path: Path | None, settings: Settings) -> Shard:
    from pinlater.server.storage.sqlite.shard import SqliteShard

    if path is None:
        raise ValueError(f"{settings.store} names no file")
    return SqliteShard(path, settings.sqlite)


def _make_memory(path: Path | None, settings: Settings) -> Shard:
    from pinlater.server.storage.sqlite.memory import MemoryShard

    return MemoryShard()


SQLITE = EmbeddedKind("sqlite", "sqlite:PATH", "", True, _locate_sqlite, _make_sqlite)
MEMORY = EmbeddedKind(
    "memory",
    "memory:",
    "jobs are kept in memory and are gone when the server stops",
    False,
    lambda rest, base: None,
    _make_memory,
)
