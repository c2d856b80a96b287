"""The shard map that jobs were placed by, and since when it is so."""

from __future__ import annotations

import json

from pinlater.storage.mysql.statements import sql
from pinlater.storage.mysql.transaction import Transaction


async def note_map(transaction: Transaction, shard_map: str, now_ms: int) -> int:
    """Since when the map is this one."""
    [found] = await transaction.select(sql("lock_meta")(name="shard_map"))
    kept, since_ms = json.loads(found.rows[0][0]) if found.rows else (None, now_ms)
    if kept == shard_map:
        return int(since_ms)
    transaction.change(sql("save_meta")(name="shard_map", value=json.dumps([shard_map, now_ms])))
    return now_ms
