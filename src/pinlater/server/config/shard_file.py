"""The shards that the settings name: those of a shard file, read again when it changes, or the one of a URL. Of any kind.

What is in such a file is known to its kind of store (`kinds`). Errors name the entry, and never a password.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pinlater.server.config.configured_shard import ConfiguredShard
from pinlater.server.config.files import FileBroken, WatchedFile, read_bytes, understood
from pinlater.server.config.kinds import SHARDED
from pinlater.server.config.kinds.kind import ShardEntries
from pinlater.server.config.settings import Settings


class ShardSource:
    """The shards that the settings name, and whether they have changed since. Raises `FileBroken` if they can't be told at the start."""

    def __init__(self, settings: Settings) -> None:
        self._kind, self._url = _entries(settings), settings.store.url
        path, password_file = settings.store.shard_file, self._kind.password_file
        self._shards = None if path is None else WatchedFile(path, self._kind.parse)
        self._password = None if password_file is None else WatchedFile(password_file, parse_password)
        self.places = self._found()

    @property
    def last_error(self) -> str | None:
        """What is wrong with the files as they are now; None when they are good."""
        errors = [file.last_error for file in (self._shards, self._password) if file is not None and file.last_error]
        return "; ".join(errors) or None

    def refresh(self) -> bool:
        """Looks at the files again; whether the shards are others now. Never raises; a broken file changes nothing."""
        for file in (self._shards, self._password):
            if file is not None:
                file.refresh()
        before, self.places = self.places, self._found()
        return before != self.places

    def _found(self) -> Sequence[ConfiguredShard]:
        entries = () if self._shards is None else self._shards.value
        return _places(self._kind, self._url, entries, None if self._password is None else self._password.value)


def find_shards(settings: Settings) -> Sequence[ConfiguredShard]:
    """The shards that the settings name now. Raises `FileBroken`."""
    kind = _entries(settings)
    path, password_file = settings.store.shard_file, kind.password_file
    entries = () if path is None else understood(path, kind.parse, read_bytes(path))
    password = None if password_file is None else read_password(password_file)
    return _places(kind, settings.store.url, entries, password)


def kind_of_file(path: Path) -> str:
    """The kind of store that a shard file is of; the first if that can't be told, and reading the file then says why."""
    kinds = iter(SHARDED.values())
    try:
        document = json.loads(read_bytes(path))
    except (FileBroken, ValueError, RecursionError):
        document = None
    first = next(kinds)
    return next((kind.name for kind in kinds if kind.holds(document)), first.name)


def read_password(path: Path) -> str:
    """The password in the file now. Raises `FileBroken`."""
    return understood(path, parse_password, read_bytes(path))


def parse_password(content: bytes) -> str:
    """The first line. Raises ValueError."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if not lines or not lines[0]:
        raise ValueError("its first line, where the password belongs, is empty")
    return lines[0]


def _entries(settings: Settings) -> ShardEntries:
    return SHARDED[settings.store.kind].entries(settings)


def _places(kind: ShardEntries, url: object, entries: Sequence[Any], password: str | None) -> Sequence[ConfiguredShard]:
    return list(kind.of_entries(entries, password)) if url is None else [kind.of_url(url, password)]
