"""A store in memory that can take no more: SQLite ends the transaction by itself then."""

from __future__ import annotations

from typing import cast

import pytest

from pinlater.domain.errors import StoreFull
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from tests.contract.desk import QUEUE, Desk


async def test_a_store_in_memory_that_is_full_says_so_and_counts_only_what_it_took() -> None:
    desk = Desk(MemoryShard)
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    kept = await desk.put()
    connection = cast("MemoryShard", desk.shard)._open.readers.quick(lambda connection: connection)
    [[pages]] = connection.execute("PRAGMA page_count").fetchall()
    connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    with pytest.raises(StoreFull):
        await desk.put(b"x" * 1_000_000)
    await desk.assert_counters_exact()
    connection.execute("PRAGMA max_page_count = 1000000")
    after = await desk.put(b"x" * 1_000_000)
    assert (await desk.counts()).pending == 2
    assert [job.key for job in (await desk.take(), await desk.take())] == [kept, after]
