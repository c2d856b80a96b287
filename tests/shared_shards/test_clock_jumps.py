"""The clock of a database server jumps by an hour, either way, while servers use it: no claim ends, nothing is lost or done twice.

Due times and deadlines are the servers' time, which does not jump with it. Only heartbeats of servers are in the database's time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.main.app import App
from pinlater.server.operations.values import Caller
from pinlater.server.storage.commands import AdvanceDue, ListMembers, TimeOutClaims
from pinlater.wire.generated.structs import Ack, AckBatch, DequeueRequest, EnqueueRequest, Job
from tests.databases.clock import FakeClock
from tests.databases.database import DatabaseServer
from tests.databases.fixtures import other_redis_program
from tests.databases.redis import RedisServer
from tests.databases.server_process import ServerMissing
from tests.databases.servers import DatabaseServers
from tests.handed_out import answer_of
from tests.mysql.conftest import KINDS
from tests.shared_shards.conftest import AnyDatabase, Start, proxied
from tests.shared_shards.proxied_database import QUEUE, until

CALLER = Caller("tests")
HOUR_S = 3_600
JUMPS = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])


class Jumping(NamedTuple):
    """A database server with its own clock."""

    server: DatabaseServer | RedisServer
    clock: FakeClock


@pytest.fixture(scope="session")
def jumpers(database_servers: DatabaseServers) -> dict[str, Jumping]:
    """One of each kind, started when a test first needs it."""
    return {}


@pytest.fixture
def jumping(
    kind: str, jumpers: dict[str, Jumping], database_servers: DatabaseServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jumping]:
    """Its clock is right at first."""
    if kind not in jumpers:
        try:
            clock = FakeClock(tmp_path_factory.mktemp("clock") / "offset")
            server = make(database_servers, kind)
        except ServerMissing as missing:
            if os.environ.get("CI"):
                pytest.fail(str(missing))
            pytest.skip(str(missing))
        server.environment |= clock.environment
        jumpers[kind] = Jumping(server.start(), clock)
    yield jumpers[kind]
    jumpers[kind].clock.jump(0)


def make(servers: DatabaseServers, kind: str) -> DatabaseServer | RedisServer:
    """A server of this kind, not started. Debian's Redis is linked with a library that excludes libfaketime."""
    if kind == "redis":
        return servers.make_redis(program=other_redis_program("redis6.2"), appendonly=False)
    return servers.make(KINDS[kind])


@pytest.fixture
async def database(jumping: Jumping) -> AsyncIterator[AnyDatabase]:
    async with proxied(jumping.server) as database:
        yield database


async def claimed(app: App) -> list[tuple[str, str]]:
    """Descriptor and token of each job that a dequeue gets."""
    found = await app.core.service.dequeuing.dequeue(CALLER, DequeueRequest(QUEUE, 10))
    return [(job.descriptor, job.token) for job in answer_of(QUEUE, found).jobs]


async def assert_nothing_overdue(app: App) -> None:
    """By this server's time, no claim has timed out. Counts the due jobs, too."""
    [shard] = app.core.shards
    assert list(await shard.unguarded.submit(TimeOutClaims(app.clock.now_ms(), 100))) == []
    await shard.unguarded.submit(AdvanceDue(app.clock.now_ms(), 100))


async def enqueue_now_and_later(app: App) -> None:
    """A job that is due now, and one that is due in half an hour."""
    await app.core.service.queues.create_queue(QUEUE)
    later_ms = app.clock.now_ms() + HOUR_S * 500
    await app.core.service.enqueuing.enqueue(EnqueueRequest(QUEUE, [Job(b"now"), Job(b"later", run_after_ms=later_ms)]))


async def test_its_clock_jumps_indeed(database: AnyDatabase, jumping: Jumping) -> None:
    before_s = await database.clock_s()
    jumping.clock.jump(HOUR_S)
    assert HOUR_S <= await database.clock_s() - before_s < HOUR_S + 600


async def has_told_its_time(database: AnyDatabase, app: App, jump_s: int) -> bool:
    """Whether a heartbeat by the new clock has told how far the server's time is from it. One that was under way at the jump has not, and
    one that took long compares nothing."""
    await app.core.shard_monitor.ping_all()
    [shard] = app.core.shards
    ahead_ms = await database.ahead_ms(shard.unguarded.slot)
    return ahead_ms is not None and abs(ahead_ms + jump_s * 1000) < 30_000


@JUMPS
async def test_a_server_that_starts_after_a_jump_uses_the_time_of_the_present_servers(
    start: Start, database: AnyDatabase, jumping: Jumping, jump_s: int
) -> None:
    """By the database's time it would end their claims, or they would end its claims."""
    one = await start()
    await enqueue_now_and_later(one)
    [first] = await claimed(one)

    jumping.clock.jump(jump_s)
    await until(partial(has_told_its_time, database, one, jump_s))
    other = await start()
    assert abs(other.clock.now_ms() - one.clock.now_ms()) < 30_000, (
        "they are an hour apart, or the machine is very slow"
    )

    await other.core.service.enqueuing.enqueue(EnqueueRequest(QUEUE, [Job(b"new")]))
    [second] = await claimed(other)
    for app in (one, other):
        await assert_nothing_overdue(app)
        assert await claimed(app) == []
    for app, (descriptor, token) in ((other, first), (one, second)):
        [acked] = await app.core.service.claimed_jobs.acknowledge(
            CALLER, AckBatch(QUEUE, [Ack(descriptor, token=token)])
        )
        assert acked.outcome is Outcome.APPLIED


async def _counts_both(app: App) -> bool:
    """A look that began before the last heartbeats may end after this one."""
    await app.cluster.look()
    return app.cluster.members.servers == 2


@JUMPS
async def test_running_servers_go_on_by_their_own_time_and_say_that_the_clock_jumped(
    start: Start, database: AnyDatabase, jumping: Jumping, jump_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    """From their next heartbeat on, each server counts the other again."""
    one, other = await start(), await start()
    await enqueue_now_and_later(one)
    [(descriptor, token)] = await claimed(one)
    jumping.clock.jump(jump_s)
    for app in (one, other):
        await until(partial(has_told_its_time, database, app, jump_s))
    for app in (one, other):
        await assert_nothing_overdue(app)
        assert await claimed(app) == []
        await until(partial(_counts_both, app))
    assert abs(other.clock.now_ms() - one.clock.now_ms()) < 5_000
    [acked] = await other.core.service.claimed_jobs.acknowledge(CALLER, AckBatch(QUEUE, [Ack(descriptor, token=token)]))
    assert acked.outcome is Outcome.APPLIED
    warned = [record for record in caplog.records if "clock jumped" in record.message]
    assert [round(record.__dict__["jump_ms"] / 1000 / 60) for record in warned] == [jump_s / 60, jump_s / 60]


@JUMPS
async def test_two_servers_that_get_one_slot_after_a_clock_jump_lose_no_job(
    database: AnyDatabase, jumping: Jumping, jump_s: int
) -> None:
    """No server has sent a heartbeat by the new clock yet, so the next server gets a slot that is in use."""
    one = await database.desk()
    held = await one.put_and_take(b"held")
    jumping.clock.jump(jump_s)
    successor = await database.desk()
    assert (one.shard.slot, successor.shard.slot) == (0, 0)
    await asyncio.gather(successor.put(b"successor's"), one.succeed(held.key, token=held.holder.token))
    assert one.shard.slot == 1
    await one.reopen()
    await one.put(b"one's")
    assert sorted(job.job.body for job in await successor.claim(10)) == [b"one's", b"successor's"]
    assert (await successor.look(held.key)).state == JobState.SUCCEEDED
    await database.assert_consistent()


@JUMPS
async def test_a_server_that_was_killed_before_a_jump_is_not_taken_for_alive_after(
    database: AnyDatabase, jumping: Jumping, jump_s: int
) -> None:
    """If the clock was set back by an hour, its last heartbeat is in the future for an hour."""
    alive = await database.open()
    await database.open()  # and never heard of again
    jumping.clock.jump(jump_s)
    await alive.ping()
    assert [member.slot for member in await alive.submit(ListMembers())] == [0]
    assert (await database.open()).slot == 1
    assert [member.slot for member in await alive.submit(ListMembers())] == [0, 1]
