"""Bodies go with their partition: when it is over, what outlives it, and that no call has to wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import CollectGarbage, CountOrdered, create_queues
from pinlater.server.storage.mysql.connection import MysqlConnection, connect
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.mysql.statements import sql
from pinlater.server.storage.values import TimeToLive
from tests.contract.desk import ALL, HOUR_MS, QUEUE, Desk
from tests.databases.database import DatabaseServer

DATABASE = "partitions"


class PartitionedTables:
    """What a test sees of the tables themselves, and of their files."""

    def __init__(self, server: DatabaseServer, database: str) -> None:
        self._server = server
        self.database = database

    async def count(self, table: str) -> int:
        [[count]] = await self._server.execute(f"SELECT count(*) FROM {self.database}.{table}")
        return int(count)

    async def locks_waited_for(self) -> int:
        """How many transactions wait for a lock. The database looks again only where the last question was a tenth of a second ago."""
        [[count]] = await self._server.execute(
            "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        )
        return int(count)

    async def partitions(self) -> list[str]:
        found = await self._server.execute(
            "SELECT partition_name FROM information_schema.partitions "
            "WHERE table_schema = %s AND table_name = 'jobs' ORDER BY partition_ordinal_position",
            self.database,
        )
        return [name for (name,) in found]

    def files(self, partition: str) -> list[Path]:
        return list((self._server.data / self.database).glob(f"jobs#[Pp]#{partition}.ibd"))


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(kind)
    return found


@pytest.fixture
async def rows(server: DatabaseServer) -> AsyncIterator[PartitionedTables]:
    yield PartitionedTables(server, DATABASE)
    await server.drop_databases(DATABASE)


@pytest.fixture
async def desk(server: DatabaseServer, rows: PartitionedTables) -> AsyncIterator[Desk]:
    endpoint = MysqlEndpoint(server.host, server.port, server.user, server.password, rows.database)
    desk = Desk(lambda: MysqlShard(endpoint, MysqlSettings(partition_hours=1)))
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    yield desk
    await desk.shard.close()


def shard_of(desk: Desk) -> MysqlShard:
    assert isinstance(desk.shard, MysqlShard)
    return desk.shard


async def copy(desk: Desk, ids: list[int]) -> None:
    """As a server does it before it drops a partition."""
    connection = await connect(shard_of(desk).endpoint, MysqlSettings(), autocommit=True)
    try:
        await connection.run([sql("keep_jobs")(ids=ids)])
    finally:
        await connection.quit()


async def collect_all(desk: Desk) -> None:
    """As the server does: until nothing is left, and then again, which looks after the partitions."""
    ttl = TimeToLive(QUEUE, HOUR_MS, HOUR_MS)
    while await desk.shard.submit(CollectGarbage([ttl], desk.now, ALL)):
        pass


async def test_a_partition_goes_when_its_jobs_are_gone(desk: Desk, rows: PartitionedTables) -> None:
    """Their rows were not deleted one by one before. Its file is gone, so the disk is free for others."""
    for state in (JobState.SUCCEEDED, JobState.FAILED):
        key = await desk.put_in(state)
    before = await rows.partitions()
    assert len(rows.files(before[0])) == 1
    desk.clock.advance(hours=1, ms=2)

    await desk.collect()
    assert await desk.find(key) is None
    assert await rows.count("jobs") == 2, "the rows wait for their partition"
    desk.clock.advance(hours=1)
    await collect_all(desk)

    assert await rows.count("jobs") == 0
    after = await rows.partitions()
    assert before[0] not in after
    assert rows.files(before[0]) == []
    assert after[-1] == "later"


async def test_jobs_that_outlive_their_partition_are_kept_whole(desk: Desk, rows: PartitionedTables) -> None:
    """A waiting job, a claimed one and one with a history are the same after the drop, and can still be claimed and ended."""
    waiting = await desk.put(b"far off", delay_ms=100 * HOUR_MS, headers={"a": "b"})
    plain = await desk.put(b"plain", delay_ms=50 * HOUR_MS)
    tried = await desk.put(b"tried", attempts=5)
    held = await desk.take(timeout_ms=400 * HOUR_MS)
    assert held.key == tried
    await desk.fail(tried, delay_ms=60 * HOUR_MS, error=("Oops", "once"))
    finished = await desk.put_in(JobState.SUCCEEDED)
    looked = [await desk.look(key) for key in (waiting, plain, tried)]
    desk.clock.advance(hours=5)

    await collect_all(desk)

    assert await rows.count("jobs") == 0
    assert await rows.count("kept_jobs") == 3
    assert await desk.find(finished) is None
    assert [await desk.look(key) for key in (waiting, plain, tried)] == looked
    await desk.assert_counters_exact()
    desk.clock.advance(hours=200)
    claimed = await desk.claim(10)
    assert [held.job.body for held in claimed] == [b"plain", b"tried", b"far off"]
    assert claimed[2].job.headers == {"a": "b"}
    for each in claimed:
        await desk.succeed(each.key)
    desk.clock.advance(hours=2)
    await collect_all(desk)
    assert await rows.count("kept_jobs") == 0


async def test_jobs_with_ordering_keys_that_outlive_their_partition_still_keep_others_waiting(
    desk: Desk, rows: PartitionedTables
) -> None:
    await desk.put(ordering_key="a", delay_ms=100 * HOUR_MS)
    desk.clock.advance(hours=5)
    await collect_all(desk)
    assert (await rows.count("jobs"), await rows.count("kept_jobs")) == (0, 1)
    assert await desk.shard.submit(CountOrdered(QUEUE, 10)) == 1


async def test_a_change_of_partitions_needs_no_end_of_the_connection_of_the_one_before(
    desk: Desk, rows: PartitionedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends it, and frees its lock, some time after the server has left it."""
    await desk.put_in(JobState.SUCCEEDED)
    await desk.collect()
    before = await rows.partitions()
    left: list[MysqlConnection] = []
    quit_now = MysqlConnection.quit

    async def leave(connection: MysqlConnection) -> None:
        left.append(connection)

    monkeypatch.setattr(MysqlConnection, "quit", leave)
    try:
        assert await shard_of(desk).keep_partitions(desk.now) == []
        desk.clock.advance(hours=5)
        assert before[0] in await shard_of(desk).keep_partitions(desk.now)
    finally:
        for connection in left:
            await quit_now(connection)


async def test_a_server_whose_clock_is_wrong_changes_no_partition_when_it_starts(
    desk: Desk, rows: PartitionedTables
) -> None:
    """Other servers may store jobs in it at that moment. The server has not asked yet for the time by which the others go."""
    await desk.put_in(JobState.SUCCEEDED)
    await desk.collect()
    before = await rows.partitions()
    other = MysqlShard(shard_of(desk).endpoint, MysqlSettings(partition_hours=1))
    await other.open(desk.now + 5 * HOUR_MS)
    try:
        assert await rows.partitions() == before
        await other.submit(CollectGarbage([], desk.now, ALL))
        assert await rows.partitions() == before
        await other.submit(CollectGarbage([], desk.now + 5 * HOUR_MS, ALL))
        assert before[0] not in await rows.partitions()
    finally:
        await other.close()


async def test_partitions_of_a_new_database_do_not_begin_at_a_clock_that_is_ahead(
    server: DatabaseServer, rows: PartitionedTables
) -> None:
    """All jobs until then would be in the first one, and their bodies would stay until it is over."""
    endpoint = MysqlEndpoint(server.host, server.port, server.user, server.password, rows.database)
    [[now_s]] = await server.execute("SELECT UNIX_TIMESTAMP()")
    now_ms = int(now_s) * 1000
    shard = MysqlShard(endpoint, MysqlSettings(partition_hours=1))
    await shard.open(now_ms + 10_000 * HOUR_MS)
    try:
        await shard.keep_partitions(now_ms)
        first, *_ = await rows.partitions()
        assert int(first.removeprefix("until_")) <= now_ms + 2 * HOUR_MS
    finally:
        await shard.close()


async def _work(desk: Desk) -> int:
    done = 0
    for _ in range(20):
        await desk.put()
        done += len(await desk.claim(1))
    return done


async def test_partitions_are_made_ahead(desk: Desk, rows: PartitionedTables) -> None:
    """A job made in the hours to come has a partition of its time, and the last one stays empty."""
    for _ in range(5):
        await desk.put()
        desk.clock.advance(hours=2)
        await shard_of(desk).keep_partitions(desk.now)

    assert await rows.count("jobs PARTITION (later)") == 0
    assert len(await rows.partitions()) > 3


async def test_partitions_are_looked_after_in_idleness_and_under_constant_garbage(
    desk: Desk, rows: PartitionedTables
) -> None:
    """An idle server makes them ahead and gives disk back, and so does one whose every sweep finds something."""
    await desk.put_in(JobState.SUCCEEDED)
    first = (await rows.partitions())[0]
    desk.clock.advance(hours=2)
    await collect_all(desk)
    for _ in range(4):  # nothing happens any more
        desk.clock.advance(hours=2)
        assert await desk.collect() == (0, 0)
    assert first not in await rows.partitions()

    for _ in range(4):  # each sweep finds a job
        await desk.put_in(JobState.SUCCEEDED)
        desk.clock.advance(hours=2)
        assert await desk.collect() == (1, 0)
    assert await rows.count("jobs PARTITION (later)") == 0
    assert await rows.count("jobs") <= 2
