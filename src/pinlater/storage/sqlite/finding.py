"""Keys as other shards ask for them, and the shard map that they were placed by. Reads on a reader's connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.storage.interface import TIMED_KEYS_COUNTED, Inserted, RequestRef, TimedKeys, UniqueHeld, UniqueRef
from pinlater.storage.request_keys import KeyedAnswer
from pinlater.storage.sqlite.queue_cache import Transaction
from pinlater.storage.sqlite.statements import sql

_FIND_QUEUE = sql("find_queue")
_SELECT_REQUEST_KEYS = sql("select_request_keys")
_FIND_UNIQUE_KEY = sql("find_unique_key")


def requests(
    connection: sqlite3.Connection, wanted: Sequence[RequestRef], now_ms: int
) -> list[Inserted | PinLaterError | None]:
    """What each was answered before, if it was."""
    ids = _queue_ids(connection, {ref.queue for ref in wanted})
    found: list[Inserted | PinLaterError | None] = []
    for ref in wanted:
        row = connection.execute(_SELECT_REQUEST_KEYS, (ids.get(ref.queue), ref.request_key)).fetchone()
        found.append(None if row is None else KeyedAnswer(*row[2:]).to(ref.request_key, ref.fingerprint, now_ms))
    return found


def unique(connection: sqlite3.Connection, wanted: Sequence[UniqueRef], now_ms: int) -> list[tuple[int, int] | None]:
    """Who has each key now."""
    ids = _queue_ids(connection, {ref.queue for ref in wanted})
    rows = [connection.execute(_FIND_UNIQUE_KEY, (ids.get(ref.queue), ref.key)).fetchone() for ref in wanted]
    return [None if row is None or (row[2] is not None and row[2] <= now_ms) else (row[0], row[1]) for row in rows]


def unique_queues(connection: sqlite3.Connection) -> list[UniqueHeld]:
    return sorted(UniqueHeld(*row) for row in connection.execute(sql("list_unique_queues")))


def timed_keys(connection: sqlite3.Connection, now_ms: int) -> TimedKeys:
    return TimedKeys(*connection.execute(sql("count_timed_keys"), (now_ms, TIMED_KEYS_COUNTED)).fetchone())


def note_map(transaction: Transaction, shard_map: str, now_ms: int) -> int:
    """Since when the map is this one."""
    row = transaction.execute(sql("load_shard_map")).fetchone()
    kept, since_ms = json.loads(row[0]) if row else (None, now_ms)
    if kept == shard_map:
        return int(since_ms)
    transaction.execute(sql("save_shard_map"), (json.dumps([shard_map, now_ms]),))
    return now_ms


def _queue_ids(connection: sqlite3.Connection, names: set[str]) -> dict[str, int]:
    found = {name: connection.execute(_FIND_QUEUE, (name,)).fetchone() for name in names}
    return {name: row[0] for name, row in found.items() if row is not None}
