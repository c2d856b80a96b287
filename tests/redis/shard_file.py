"""A file of Redis shards of the original's kind, for servers that tests run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD, USER


class ShardFile:
    """A shard file whose shards are all in one Redis, told apart by the names in their keys."""

    def __init__(self, path: Path, server: RedisServer, *names: str) -> None:
        self.path = path
        self.server = server
        self.content: dict[str, Any] = {}
        self.write(**{f"s{name}": {} for name in names})

    def write(self, **entries: Mapping[str, Any]) -> None:
        """The shards `s1=…` means `1`, from now on; what one doesn't say is the server's."""
        here = {"host": self.server.host, "port": self.server.port}
        usual: dict[str, Any] = {
            "master": here,
            "slave": here,
            "user": USER,
            "passwd": PASSWORD,
        }
        shards = [{"name": name[1:], "shardConfig": {**usual, **entry}} for name, entry in entries.items()]
        self.content = {"shards": shards}
        self.path.write_text(json.dumps(self.content))
        self.path.chmod(0o600)
