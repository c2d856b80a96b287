"""What only this store remembers: claims of unknown outcome, and looks at the queues that overtake each other.

What all stores with several servers must do is in `tests/contract/test_several_servers.py`.
"""

from __future__ import annotations

from pinlater.domain.job import JobState
from pinlater.domain.queue import Queue
from pinlater.server.storage.commands import DeleteQueues, ListChangedQueues, TimeOutClaims, create_queues
from pinlater.server.storage.mysql.queue_cache import MysqlQueueCache
from pinlater.server.storage.mysql.ready_jobs import ReadyBytes
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE


async def test_claims_whose_outcome_was_unknown_are_released_in_a_queue_that_was_made_again(
    database: ProxiedMysql,
) -> None:
    """The server that releases them remembers the queue from before."""
    desk, other = await database.desk(), await database.desk()
    assert await other.claim() == []
    await desk.shard.submit(DeleteQueues([QUEUE]))
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    held = await desk.put_and_take()
    assert isinstance(other.shard, MysqlShard)
    other.shard._unknown_claims.add(held.holder.token)
    await other.shard.submit(TimeOutClaims(desk.now, 100))
    assert (await desk.look(held.key)).state is JobState.PENDING
    assert QUEUE in await other.shared.submit(ListChangedQueues())
    await database.assert_consistent()


def test_an_older_look_at_the_queues_changes_nothing_after_a_newer_one() -> None:
    """It would take a queue away that was made meanwhile."""
    queue_cache = MysqlQueueCache("1", lambda: 0.0, 3, ReadyBytes(0))
    older, newer = queue_cache.begin_look(), queue_cache.begin_look()
    queue_cache.replace(newer, [(1, Queue("made"))])
    queue_cache.replace(older, [])
    assert list(queue_cache.queues) == ["made"]
