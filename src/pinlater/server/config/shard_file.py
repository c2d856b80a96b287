"""The shards that the settings name: those of a shard file, which is reread when it changes, or the one of a URL. Of any kind.

Its kind of store knows the format of such a file (`kinds`). Errors name the entry, and never a password.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pinlater.server.config.files import FileBroken, WatchedFile, read_bytes
from pinlater.server.config.kinds import SHARDED
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard, ShardEntry


class ShardSource:
    """The shards that the settings name, and whether they have changed since. Raises `FileBroken` if they can't be read at the start."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._kind = settings, SHARDED[settings.store.kind]
        path, password_file = settings.store.shard_file, settings.database.password_file
        self._shards = None if path is None else WatchedFile(path, lambda content: self._kind.parse(content, settings))
        self._password = None if password_file is None else WatchedFile(password_file, parse_password)
        self.places = self._found()

    @property
    def last_error(self) -> str | None:
        """The problem with the present files, or None if they are valid."""
        errors = [file.last_error for file in (self._shards, self._password) if file is not None and file.last_error]
        return "; ".join(errors) or None

    def refresh(self) -> bool:
        """Reads the files again. Returns whether the shards have changed. Never raises; a broken file changes nothing."""
        for file in (self._shards, self._password):
            if file is not None:
                file.refresh()
        before, self.places = self.places, self._found()
        return before != self.places

    @property
    def entries(self) -> Sequence[ShardEntry]:
        """The content of the shard file, or the URL."""
        if self._shards is not None:
            return self._shards.value
        url = self._settings.store.url
        return () if url is None else [ShardEntry("", ("1",), url)]

    def _found(self) -> Sequence[ConfiguredShard]:
        from_file = None if self._password is None else self._password.value
        return self._kind.shards(self.entries, from_file, self._settings)


def find_shards(settings: Settings) -> Sequence[ConfiguredShard]:
    """The shards that the settings name now. Raises `FileBroken`."""
    return ShardSource(settings).places


def kind_of_file(path: Path) -> str:
    """Returns the kind of store of a shard file. If that can't be determined, it is the first kind, and reading the file then reports
    why."""
    first, *others = SHARDED.values()
    try:
        document = json.loads(read_bytes(path))
    except (FileBroken, ValueError, RecursionError):
        document = None
    found = [kind.name for kind in others if isinstance(document, dict) and kind.holds(document)]
    return found[0] if found else first.name


def parse_password(content: bytes) -> str:
    """Returns the first line. Raises ValueError."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    if not lines or not lines[0]:
        raise ValueError("its first line, where the password belongs, is empty")
    return lines[0]
