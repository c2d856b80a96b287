"""What a shard remembers of deleted queues, and a shard of the schema before."""

from __future__ import annotations

from pinlater.domain.queue import Life, Queue, QueueConfig, Versions
from pinlater.server.storage.commands import ConfigureQueue, DeleteQueues, ListQueues, MergeQueues
from pinlater.server.storage.values import DELETION_KEPT_MS
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE

LATE_MS = 1_767_225_600_000


async def test_a_shard_of_the_schema_before_opens_with_its_queues_and_remembers_deletions_from_then_on(
    database: ProxiedMysql, desk: Desk
) -> None:
    await desk.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(max_backlog=7), paused=True))
    key = await desk.put()
    await desk.shard.close()
    await database.ask("DROP TABLE deleted_queues")
    await database.ask("UPDATE meta SET value = '3' WHERE name = 'schema'")
    await desk.reopen()
    assert await desk.shard.submit(ListQueues()) == [Queue(QUEUE, QueueConfig(max_backlog=7), True, Versions(), Life())]
    assert (await desk.look(key)).body
    await desk.shard.submit(DeleteQueues([QUEUE], LATE_MS))
    [answer] = await desk.shard.submit(MergeQueues([Queue(QUEUE)], desk.now))
    assert answer.life.over
    assert await desk.shard.submit(ListQueues()) == []


async def test_old_deletions_leave_no_rows(database: ProxiedMysql, desk: Desk) -> None:
    await desk.shard.submit(DeleteQueues(["a", "b"], LATE_MS))
    await desk.shard.submit(DeleteQueues(["c"], LATE_MS + 1, LATE_MS + DELETION_KEPT_MS + 1))
    assert await database.ask("SELECT deleted_at_ms FROM deleted_queues") == [(LATE_MS + 1,)]
