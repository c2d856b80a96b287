"""After a change of machine behind one address, the database may lack changes that were answered. It must not answer from the past."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.contract.desk import Desk, DeskJob
from tests.databases.mariadb import MariaDb
from tests.databases.servers import DatabaseServers
from tests.mysql.proxied_mysql import COMMIT, LIMITS, ProxiedMysql, proxied

LEASE_S = 60


class Moved(NamedTuple):
    """A shard whose address leads to a replica now, which has the job and lacks its claim."""

    database: ProxiedMysql
    desk: Desk
    held: DeskJob
    replica: MariaDb
    clock: list[float]

    def lead_to(self, server: MariaDb) -> None:
        self.database.proxy.target = server.address
        self.database.proxy.cut()


@pytest.fixture
async def moved(start_mariadb: Callable[..., MariaDb], database_servers: DatabaseServers) -> AsyncIterator[Moved]:
    primary, clock = start_mariadb(innodb_flush_log_at_trx_commit=0), [0.0]
    async with proxied(primary) as database:
        settings = MysqlSettings(**LIMITS, lease_ms=LEASE_S * 1000)
        desk = Desk(lambda: MysqlShard(database.endpoint(), settings, monotonic=lambda: clock[0]))
        await desk.open()
        await desk.shard.submit(create_queues(["emails"], desk.now))
        await desk.put(b"the one")
        primary.stop()
        replica = database_servers.copy(primary).start()
        primary.start()
        [held] = await desk.claim()
        moved = Moved(database, desk, held, replica, clock)
        moved.lead_to(replica)
        yield moved
        await desk.shard.close()


async def test_a_database_without_the_newest_changes_is_not_asked(moved: Moved) -> None:
    """The ack of a live claim would be answered NOT_FOUND, and the job handed out a second time."""
    desk, held = moved.desk, moved.held
    calls = (
        lambda: desk.succeed(held.key, token=held.holder.token),
        desk.claim,
        desk.put,
        lambda: desk.look(held.key),
        desk.shard.ping,
        desk.counts,
    )
    for call in calls:
        with pytest.raises(ShardConnectionFailed, match="lacks changes") as failed:
            await call()
        assert failed.value.retryable
    moved.lead_to(moved.database.server)  # type: ignore[arg-type]
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await moved.database.assert_consistent()


async def test_an_outcome_is_not_judged_by_a_database_without_the_newest_changes(moved: Moved) -> None:
    """Its number is lower than that of the change before, so it does not tell whether the last one was carried out."""
    desk = moved.desk
    moved.lead_to(moved.database.server)  # type: ignore[arg-type]
    await desk.put(b"stored")
    trap = moved.database.proxy.lose_answer(COMMIT)
    moved.database.proxy.target = moved.replica.address
    with pytest.raises(OutcomeUnknown, match="lacks changes"):
        await desk.put(b"open")
    assert trap.sprung
    moved.lead_to(moved.database.server)  # type: ignore[arg-type]
    assert {one.job.body for one in await desk.claim(10)} == {b"stored", b"open"}


async def test_a_database_that_has_lost_changes_is_used_as_it_is_after_the_time_of_a_lease(moved: Moved) -> None:
    """Changes that no replica had are lost for good. The others are still needed."""
    desk = moved.desk
    with pytest.raises(ShardConnectionFailed, match="lacks changes"):
        await desk.put(b"refused")
    moved.clock[0] += LEASE_S
    [again] = await desk.claim()
    assert again.key == moved.held.key
    await desk.shard.ping()
    assert (await desk.succeed(again.key, token=again.holder.token)).outcome is Outcome.APPLIED


async def test_a_change_on_an_open_connection_is_refused_if_the_database_behind_it_is_an_older_one(
    database: ProxiedMysql, desk: Desk
) -> None:
    """A proxy that shares connections may lead the next transaction elsewhere. Each must find the number of the one before."""
    await desk.put(b"stored")
    await database.ask("UPDATE writers SET newest = newest - 1")
    with pytest.raises(ShardConnectionFailed, match="lacks changes"):
        await desk.put(b"refused")
    await database.ask("UPDATE writers SET newest = newest + 1")
    await desk.put(b"stored, too")
