"""The kinds of stores. A store is known to the rest of the service by its module here, its line here, and its table in `settings.py`."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.server.config.kinds.embedded import MEMORY, SQLITE, EmbeddedKind
from pinlater.server.config.kinds.kind import ShardedKind
from pinlater.server.config.kinds.mysql import MYSQL
from pinlater.server.config.kinds.redis import REDIS

EMBEDDED: Mapping[str, EmbeddedKind] = {kind.name: kind for kind in (SQLITE, MEMORY)}
"""Stores inside the server's process: one shard, one server."""

SHARDED: Mapping[str, ShardedKind] = {kind.name: kind for kind in (MYSQL, REDIS)}
"""Stores that have any number of shards, and any number of servers on each."""
