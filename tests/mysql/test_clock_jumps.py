"""A database's clock jumps by an hour, either way, while servers use it: no claim ends for it, nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple
from urllib.parse import quote

import pytest

from pinlater.domain.job import Outcome
from pinlater.server.app import App
from pinlater.server.config.load import load
from pinlater.server.operations.values import AckBatch, AckItem, Caller, DequeueCommand, JobToEnqueue
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.handed_out import answer_of
from tests.mysql.conftest import KINDS
from tests.mysql.rig import QUEUE, Rig, rig_on
from tests.servers.clock import FakeClock
from tests.servers.database import DatabaseServer, ServerMissing
from tests.servers.farm import ServerFarm

CALLER = Caller("tests")
HOUR_S = 3_600
JUMPS = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])


class Jumping(NamedTuple):
    """A server with a clock of its own."""

    server: DatabaseServer
    clock: FakeClock


@pytest.fixture(scope="session")
def jumpers(server_farm: ServerFarm) -> dict[str, Jumping]:
    """One of a kind, begun when first needed."""
    return {}


@pytest.fixture
def jumping(
    kind: str, jumpers: dict[str, Jumping], server_farm: ServerFarm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jumping]:
    """Its clock right at first."""
    if kind not in jumpers:
        try:
            clock = FakeClock(tmp_path_factory.mktemp("clock") / "offset")
            server = server_farm.make(KINDS[kind])
        except ServerMissing as missing:
            if os.environ.get("CI"):
                pytest.fail(str(missing))
            pytest.skip(str(missing))
        server.environment |= clock.environment
        jumpers[kind] = Jumping(server.start(), clock)
    yield jumpers[kind]
    jumpers[kind].clock.jump(0)


@pytest.fixture
async def rig(jumping: Jumping) -> AsyncIterator[Rig]:
    async with rig_on(jumping.server) as rig:
        yield rig


Start = Callable[[], Awaitable[App]]


@pytest.fixture
async def start(rig: Rig) -> AsyncIterator[Start]:
    """Starts servers on the rig's database; they stop with the test."""
    server = rig.server
    store = f"mysql://{server.user}:{quote(server.password, safe='')}@{server.address}/{rig.database}"
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


async def swept(app: App) -> None:
    """All that has timed out by this server's time has gone back."""
    [shard] = app.shards
    assert list(await shard.raw.time_out_claims(app.clock.now_ms(), 100)) == []
    await shard.raw.advance_due(app.clock.now_ms(), 100)


@JUMPS
async def test_a_server_that_starts_after_a_jump_goes_by_the_time_of_those_that_are_there(
    start: Start, jumping: Jumping, jump_s: int
) -> None:
    """By the database's it would end all their claims, or they its own."""
    one = await start()
    await one.service.queues.create_queue(QUEUE)
    in_half_an_hour = one.clock.now_ms() + HOUR_S * 500
    await one.service.enqueuing.enqueue(
        CALLER, QUEUE, [JobToEnqueue(b"now"), JobToEnqueue(b"later", run_after_ms=in_half_an_hour)]
    )
    [first] = await claimed(one)

    jumping.clock.jump(jump_s)
    await one.shard_monitor.ping_all()  # as every few seconds
    other = await start()
    assert abs(other.clock.now_ms() - one.clock.now_ms()) < 30_000, (
        "they are an hour apart, or the machine is very slow"
    )

    await other.service.enqueuing.enqueue(CALLER, QUEUE, [JobToEnqueue(b"new")])
    [second] = await claimed(other)
    for app in (one, other):
        await swept(app)
        assert await claimed(app) == []
    for app, (descriptor, token) in ((other, first), (one, second)):
        [acked] = await app.service.holders.acknowledge(
            CALLER, AckBatch(QUEUE, [AckItem(descriptor, True, token=token)])
        )
        assert acked.outcome is Outcome.APPLIED


@JUMPS
async def test_running_servers_go_on_by_their_own_time_and_say_that_the_clock_jumped(
    start: Start, jumping: Jumping, jump_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await start(), await start()
    await one.service.queues.create_queue(QUEUE)
    await one.service.enqueuing.enqueue(CALLER, QUEUE, [JobToEnqueue(b"job")])
    [(descriptor, token)] = await claimed(one)
    jumping.clock.jump(jump_s)
    for app in (one, other):
        await app.shard_monitor.ping_all()
    for app in (one, other):
        await swept(app)
        assert await claimed(app) == []
        await app.periodic_work.look_at_members()
        assert app._servers() == 2
    assert abs(other.clock.now_ms() - one.clock.now_ms()) < 5_000
    [acked] = await other.service.holders.acknowledge(CALLER, AckBatch(QUEUE, [AckItem(descriptor, True, token=token)]))
    assert acked.outcome is Outcome.APPLIED
    warned = [record for record in caplog.records if "the database's clock jumped" in record.message]
    assert [round(record.__dict__["jump_ms"] / 1000 / 60) for record in warned] == [jump_s / 60, jump_s / 60]


@JUMPS
async def test_a_slot_taken_in_the_moment_after_a_jump_harms_nobody(rig: Rig, jumping: Jumping, jump_s: int) -> None:
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
    await rig.assert_consistent()


@JUMPS
async def test_a_server_that_was_killed_before_a_jump_is_not_taken_for_alive_after(
    rig: Rig, jumping: Jumping, jump_s: int
) -> None:
    """Set back by an hour, the clock would have its last sign of life in the future for an hour."""
    alive = await rig.open()
    await rig.open()  # and never heard of again
    jumping.clock.jump(jump_s)
    await alive.ping()
    assert isinstance(alive, MysqlShard)
    assert [member.slot for member in await alive.members()] == [0]
    assert (await rig.open()).slot == 1
    assert [member.slot for member in await alive.members()] == [0, 1]
