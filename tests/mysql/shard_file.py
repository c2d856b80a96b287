"""A shard file of the original's kind, for servers that tests run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.databases.database import DatabaseServer


class ShardFile:
    """A shard file whose replica sets are all on one server, each with databases of its own name."""

    def __init__(self, path: Path, server: DatabaseServer, *numbers: int) -> None:
        self.path = path
        self.server = server
        self.content: dict[str, Any] = {}
        self.write(**{f"pinlaterdb{number:03}": {} for number in numbers})

    def write(self, **entries: Mapping[str, Any]) -> None:
        """These entries from now on; what one doesn't say is the server's."""
        usual: dict[str, Any] = {
            "master": self.server.tcp,
            "slave": self.server.tcp,
            "user": self.server.user,
            "passwd": self.server.password,
        }
        self.content = {key: {**usual, **entry} for key, entry in entries.items()} | {"otherdb001": {"master": None}}
        self.path.write_text(json.dumps(self.content))
        self.path.chmod(0o600)
