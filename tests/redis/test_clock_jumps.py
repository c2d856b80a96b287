"""Redis' clock jumps by an hour, either way, while servers use it: no claim ends for it, nothing is lost or done twice. Due times and
deadlines are the servers' time, which doesn't jump with it; only signs of life are Redis'."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from pinlater.domain.job import Outcome
from pinlater.server.app import App
from pinlater.server.config.load import load
from pinlater.server.operations.values import AckBatch, AckItem, Caller, DequeueCommand, JobToEnqueue
from tests.handed_out import answer_of
from tests.redis.rig import QUEUE, Rig, rig_on
from tests.servers.clock import FakeClock
from tests.servers.database import ServerMissing
from tests.servers.farm import ServerFarm
from tests.servers.fixtures import other_redis_program
from tests.servers.redis import RedisServer

CALLER = Caller("tests")
HOUR_S = 3_600
JUMPS = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])


class Jumping(NamedTuple):
    """A Redis with a clock of its own."""

    server: RedisServer
    clock: FakeClock


@pytest.fixture(scope="module")
def jumper(server_farm: ServerFarm, tmp_path_factory: pytest.TempPathFactory) -> Jumping:
    try:
        clock = FakeClock(tmp_path_factory.mktemp("clock") / "offset")
        # Debian's is linked with a library for memory that libfaketime can't be loaded beside.
        server = server_farm.make_redis(program=other_redis_program("redis6.2"), appendonly=False)
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    server.environment |= clock.environment
    return Jumping(server.start(), clock)


@pytest.fixture
def jumping(jumper: Jumping) -> Iterator[Jumping]:
    """Its clock right at first."""
    yield jumper
    jumper.clock.jump(0)


@pytest.fixture
async def rig(jumping: Jumping) -> AsyncIterator[Rig]:
    async with rig_on(jumping.server) as rig:
        yield rig


Start = Callable[[], Awaitable[App]]


@pytest.fixture
async def start(rig: Rig) -> AsyncIterator[Start]:
    """Starts servers on the rig's Redis; they stop with the test."""
    store = f"redis://{rig.server.address}/0"
    async with AsyncExitStack() as running:

        async def one() -> App:
            app = App(load(None, {}, {"store": store, "thrift.port": 0, "http.port": 0}).settings)
            await app.start()
            running.push_async_callback(app.stop, 1.0)
            return app

        yield one


async def claimed(app: App) -> list[tuple[str, str]]:
    """Jobs that a dequeue gets here: descriptor and token."""
    found = await app.service.dequeuing.dequeue(CALLER, DequeueCommand(QUEUE, 10))
    return [(job.descriptor, job.token) for job in answer_of(QUEUE, found).jobs]


async def assert_nothing_overdue(app: App) -> None:
    [shard] = app.shards
    assert list(await shard.raw.time_out_claims(app.clock.now_ms(), 100)) == []


async def test_its_clock_jumps_indeed(jumping: Jumping) -> None:
    """Else the other tests would show nothing."""
    before = int(jumping.server.execute("TIME")[0])
    jumping.clock.jump(HOUR_S)
    assert HOUR_S <= int(jumping.server.execute("TIME")[0]) - before < HOUR_S + 600


@JUMPS
async def test_running_servers_go_on_and_their_claims_hold_while_redis_clock_jumps(
    start: Start, jumping: Jumping, jump_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    """And both are known to each other still, from their next sign of life on."""
    one, other = await start(), await start()
    await one.service.queues.create_queue(QUEUE)
    in_half_an_hour = one.clock.now_ms() + HOUR_S * 500
    jobs = [JobToEnqueue(b"now"), JobToEnqueue(b"later", run_after_ms=in_half_an_hour)]
    await one.service.enqueuing.enqueue(CALLER, QUEUE, jobs)
    [(descriptor, token)] = await claimed(one)
    for app in (one, other):
        await app.shard_monitor.ping_all()
    jumping.clock.jump(jump_s)
    for app in (one, other):
        await app.shard_monitor.ping_all()
    for app in (one, other):
        await assert_nothing_overdue(app)
        assert await claimed(app) == []
        await app.periodic_work.look_at_members()
        assert app._servers() == 2
    assert abs(other.clock.now_ms() - one.clock.now_ms()) < 5_000
    [acked] = await other.service.holders.acknowledge(CALLER, AckBatch(QUEUE, [AckItem(descriptor, True, token=token)]))
    assert acked.outcome is Outcome.APPLIED
    assert any("clock jumped" in record.message for record in caplog.records)


@JUMPS
async def test_a_server_that_starts_after_redis_clock_jumped_goes_by_the_time_of_those_that_are_there(
    start: Start, jumping: Jumping, jump_s: int
) -> None:
    """By Redis' it would end all their claims, or they its own."""
    one = await start()
    await one.service.queues.create_queue(QUEUE)
    await one.service.enqueuing.enqueue(CALLER, QUEUE, [JobToEnqueue(b"now")])
    [first] = await claimed(one)

    jumping.clock.jump(jump_s)
    await one.shard_monitor.ping_all()  # as every few seconds
    other = await start()
    assert abs(other.clock.now_ms() - one.clock.now_ms()) < 30_000

    await other.service.enqueuing.enqueue(CALLER, QUEUE, [JobToEnqueue(b"new")])
    [second] = await claimed(other)
    for app in (one, other):
        await assert_nothing_overdue(app)
        assert await claimed(app) == []
    for app, (descriptor, token) in ((other, first), (one, second)):
        [acked] = await app.service.holders.acknowledge(
            CALLER, AckBatch(QUEUE, [AckItem(descriptor, True, token=token)])
        )
        assert acked.outcome is Outcome.APPLIED


@JUMPS
async def test_a_slot_taken_in_the_moment_after_redis_clock_jumped_harms_nobody(
    rig: Rig, jumping: Jumping, jump_s: int
) -> None:
    """Nobody has given a sign of life by the new clock yet, so the next server gets a slot that is in use."""
    one = await rig.desk()
    held = await one.put_and_take(b"held")
    jumping.clock.jump(jump_s)
    heir = await rig.desk()
    assert (one.shard.slot, heir.shard.slot) == (0, 0)
    await asyncio.gather(heir.put(b"heir's"), one.succeed(held.key, token=held.holder.token))
    assert one.shard.slot == 1
    await one.reopen()
    await one.put(b"one's")
    assert sorted(job.job.body for job in await heir.claim(10)) == [b"heir's", b"one's"]
    assert (await heir.look(held.key)).state.name == "SUCCEEDED"
    rig.assert_consistent()
