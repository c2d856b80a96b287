"""The trail, in the table `audit`: rows in the order of insertion, found by their names.

The numbers of rows bound how many there are without counting them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.reading import Reader
from pinlater.server.storage.relational.rows import text_of
from pinlater.server.storage.values import TRAIL_END, TrailEntry

# The most rows that an insert deletes for the bound: more than it inserts, so that a lower bound takes effect gradually.
_DELETED_MAX = 1_000


async def add(dialect: Dialect, records: Sequence[TrailEntry], records_max: int) -> None:
    dialect.insert("insert_trail", [(record.id, record.content) for record in records])
    found = await dialect.select("trail_beyond", records_max=records_max, limit=max(_DELETED_MAX, len(records)))
    dialect.delete("audit", [number for (number,) in found])


async def prune(dialect: Dialect, before: str, limit: int) -> int:
    found = await dialect.select("trail_before", before=before, limit=limit)
    dialect.delete("audit", sorted(number for (number,) in found))
    return len(found)


async def read(reader: Reader, since: str, before: str, limit: int) -> list[TrailEntry]:
    rows = await reader.select("list_trail", since=since, before=before or TRAIL_END, limit=limit)
    return [TrailEntry(text_of(name), bytes(content)) for name, content in rows]


async def any_before(reader: Reader, before: str) -> bool:
    """Returns whether there is anything to prune."""
    return bool(await reader.select("trail_before", before=before, limit=1))
