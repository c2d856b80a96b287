"""The shard map by which jobs were placed, and since when it has been the same."""

from __future__ import annotations

import json

from pinlater.server.storage.relational.dialect import Dialect

_NAME = "shard_map"


async def note_map(dialect: Dialect, shard_map: str, now_ms: int) -> int:
    """Stores a new map. Returns since when the map has been this one."""
    rows = await dialect.select("current_meta", name=_NAME)
    kept, since_ms = json.loads(rows[0][0]) if rows else (None, now_ms)
    if kept == shard_map:
        return int(since_ms)
    dialect.insert("save_meta", [(_NAME, json.dumps([shard_map, now_ms]))])
    return now_ms
