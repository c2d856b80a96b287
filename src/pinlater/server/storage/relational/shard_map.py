"""The shard map that jobs were placed by, and since when it has been the same."""

from __future__ import annotations

import json

from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.values import MapNote

_NAME, _SETTLED_NAME = "shard_map", "shard_map_settled"


async def note_map(dialect: Dialect, shard_map: str, now_ms: int, settled: str) -> MapNote:
    """Stores a new map, and what is settled."""
    kept, since_ms = await _load(dialect, _NAME) or (None, now_ms)
    if kept != shard_map:
        since_ms = now_ms
        dialect.insert("save_meta", [(_NAME, json.dumps([shard_map, now_ms]))])
    if settled:
        dialect.insert("save_meta", [(_SETTLED_NAME, json.dumps([settled, since_ms]))])
        return MapNote(since_ms, settled)
    kept_settled, of_ms = await _load(dialect, _SETTLED_NAME) or ("", since_ms)
    return MapNote(since_ms, kept_settled if of_ms == since_ms else "")


async def _load(dialect: Dialect, name: str) -> tuple[str, int] | None:
    """A text, and the time that is kept with it."""
    rows = await dialect.select("current_meta", name=name)
    if not rows:
        return None
    text, time_ms = json.loads(rows[0][0])
    return text, int(time_ms)
