"""What the layout and the connections are for: bodies lie still, finished jobs are out of the way, and load opens no more connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from asyncmy import errors as driver

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import TimeOutClaims
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.contract.desk import ALL, TIMEOUT_MS, Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import gathered

WRITERS = 4
READERS = 3
# What the two kinds call the same thing.
ISOLATION = {"mariadb": b"@@tx_isolation", "mysql8": b"@@transaction_isolation"}
READ_LIMIT = {"mariadb": b"@@max_statement_time * 1000", "mysql8": b"@@max_execution_time"}


@asynccontextmanager
async def bodies_frozen(database: ProxiedMysql) -> AsyncIterator[None]:
    """Each change or deletion of a row of `jobs` meanwhile fails."""
    for change in ("UPDATE", "DELETE"):
        await database.ask(
            f"CREATE TRIGGER no_{change} BEFORE {change} ON jobs FOR EACH ROW "
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a body was touched'"
        )
    try:
        yield
    finally:
        for change in ("UPDATE", "DELETE"):
            await database.ask(f"DROP TRIGGER no_{change}")


async def test_nothing_that_happens_to_a_job_rewrites_its_body(database: ProxiedMysql) -> None:
    """Claims, heartbeats, releases, failures, time-outs, ends and garbage change narrow rows only."""
    desk = await database.desk(direct=True)
    async with bodies_frozen(database):
        key = await desk.put(b"x" * 100_000, attempts=5)
        held = await desk.take()
        await desk.heartbeat(held.ref)
        await desk.release(held.ref)
        await desk.fail((await desk.take()).key, error=("E", "text"))
        await desk.take()
        desk.clock.advance(ms=TIMEOUT_MS + 1)
        assert len(await desk.shard.submit(TimeOutClaims(desk.now, ALL))) == 1
        await desk.cancel(key)
        assert await desk.retry_failed() == 1
        await desk.succeed((await desk.take()).key)
        with pytest.raises(driver.MySQLError, match="a body was touched"):  # so the triggers do what they are for
            await database.ask("UPDATE jobs SET priority = 2")
        assert (await desk.look(key)).state is JobState.SUCCEEDED
        desk.clock.advance(hours=1, ms=1)
        assert await desk.collect() == (1, 0)
    await database.assert_consistent(deleted=True)


async def test_finished_jobs_are_out_of_the_way(database: ProxiedMysql) -> None:
    """No row of theirs is left in the tables that claims and acks read."""
    desk = await database.desk(direct=True)
    for state in (JobState.SUCCEEDED, JobState.FAILED):
        await desk.put_in(state)
    for table in ("ready", "claims", "expiries"):
        assert await database.ask(f"SELECT COUNT(*) FROM {table}") == [(0,)]
    assert await database.ask("SELECT COUNT(*) FROM done") == [(2,)]


async def test_load_opens_no_more_connections(killable: ProxiedMysql) -> None:
    """However many callers there are at once, by the database's own maximum."""
    desk = await killable.desk(direct=True, reader_connections=READERS)
    assert isinstance(desk.shard, MysqlShard)
    keys = [await desk.put() for _ in range(20)]
    await killable.ask("FLUSH STATUS")  # counts from now on
    for _ in range(3):
        calls = [one_of_each(desk, number) for number in range(20)]
        looks = [desk.look(key) for key in keys for _ in range(10)]
        answers = await gathered([*calls, *looks])
        assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    ours = desk.shard.figures()["connections"]
    assert WRITERS < ours <= WRITERS + READERS
    [(_, most)] = await killable.ask("SHOW GLOBAL STATUS LIKE 'Max_used_connections'")
    assert int(most) <= ours + 1  # and the one that asks


async def one_of_each(desk: Desk, number: int) -> None:
    """Something for every writer."""
    await desk.put(b"%d" % number)
    for held in await desk.claim(1):
        await desk.heartbeat(held.ref)
        await desk.fail(held.key, token=held.holder.token)


async def test_a_database_that_was_another_shard_is_said(
    database: ProxiedMysql, caplog: pytest.LogCaptureFixture
) -> None:
    """A URL that names one of the shard file's databases makes it shard 1, whose descriptors no other server understands."""
    await database.open(direct=True)
    await database.open(direct=True)
    said = [record.message for record in caplog.records if "was shard" in record.message]
    assert said == []
    other = MysqlShard(database.endpoint(direct=True), name="2")
    await other.open(0)
    await other.close()
    said = [record.message for record in caplog.records if "was shard" in record.message]
    assert [message.split(" was ")[1] for message in said] == [
        "shard 1 before: the descriptors that it gave out then name nothing here"
    ]
