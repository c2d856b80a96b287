"""The history of queues. Reads go to a reader, since a range may have tens of thousands of rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from pinlater.server.storage.sample_order import in_order
from pinlater.server.storage.sqlite.statements import sql, union
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.values import SampleRange, StoredSample

_BEGIN = (-(2**63), "", "")


def save(transaction: Transaction, samples: Sequence[StoredSample]) -> None:
    """Each in the place of one with the same key."""
    transaction.executemany(sql("save_sample"), samples)


def find(connection: sqlite3.Connection, ranges: Sequence[SampleRange]) -> list[StoredSample]:
    """The samples of these ranges, in order."""
    names: list[str] = []
    values: list[object] = []
    for wanted in ranges:
        values += (wanted.step_s, wanted.from_ms, wanted.until_ms, *(wanted.after or _BEGIN), wanted.limit)
        if wanted.queues is None:
            names.append("list_samples")
        else:
            names.append("list_samples_of")
            values.append(json.dumps(list(wanted.queues)))
    rows = connection.execute(union(tuple(names)), values)
    return in_order(ranges, map(StoredSample._make, rows))


def trim(transaction: Transaction, step_s: int, before_ms: int, limit: int) -> int:
    """Deletes the oldest; how many."""
    return transaction.execute(sql("delete_samples"), (step_s, before_ms, limit)).rowcount
