"""Shard files of the original's kinds, for servers that tests run."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.databases.database import DatabaseServer
from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD, USER

Entry = Mapping[str, Any]


class WrittenShardFile(ABC):
    """A file whose shards are all on one database server."""

    def __init__(self, path: Path, usual: Entry, *keys: str) -> None:
        self.path = path
        self._usual = usual
        self.write(**{key: {} for key in keys})

    def write(self, **entries: Entry) -> None:
        """These entries from now on. An entry replaces fields of the server's address and login."""
        content = self._content({key: {**self._usual, **entry} for key, entry in entries.items()})
        self.path.write_text(json.dumps(content))
        self.path.chmod(0o600)

    @abstractmethod
    def _content(self, entries: Mapping[str, Entry]) -> Entry: ...


class MysqlShardFile(WrittenShardFile):
    """Replica sets, each with databases of its own name; another program's is among them."""

    def __init__(self, path: Path, server: DatabaseServer, *numbers: int) -> None:
        usual = {"master": server.tcp, "slave": server.tcp, "user": server.user, "passwd": server.password}
        super().__init__(path, usual, *(f"pinlaterdb{number:03}" for number in numbers))

    def _content(self, entries: Mapping[str, Entry]) -> Entry:
        return {**entries, "otherdb001": {"master": None}}


class RedisShardFile(WrittenShardFile):
    """Shards with names of their own in the keys; the entry `s1` is the shard `1`."""

    def __init__(self, path: Path, server: RedisServer, *names: str) -> None:
        here = {"host": server.host, "port": server.port}
        usual = {"master": here, "slave": here, "user": USER, "passwd": PASSWORD}
        super().__init__(path, usual, *(f"s{name}" for name in names))

    def _content(self, entries: Mapping[str, Entry]) -> Entry:
        return {"shards": [{"name": key[1:], "shardConfig": entry} for key, entry in entries.items()]}
