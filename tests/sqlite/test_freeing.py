"""What a deleted queue leaves behind goes piece by piece, and the sweep says so."""

from __future__ import annotations

from tests.sqlite.conftest import NOW, QUEUE, Bench


async def test_rows_of_a_deleted_queue_are_counted_as_they_go(bench: Bench) -> None:
    """A full piece tells the sweep to come back soon; else a queue of a million jobs would take hours."""
    await bench.insert(3)
    await bench.insert(4)
    await bench.claim(2)
    await bench.shard.delete_queues([QUEUE])

    freed = [sum(one.freed for one in await bench.shard.collect_garbage([], NOW, 4)) for _ in range(3)]

    assert freed == [4, 3, 0]
    assert await bench.shard.collect_garbage([], NOW, 4) == []
