"""The disk under Redis is full: a real one, of a few megabytes. Nothing that was answered is lost, and all goes on once there is space."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinlater.client import Ack, Client, Job
from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import ListQueues
from pinlater.testing.real_server import RealServer
from tests.contract.desk import Desk
from tests.databases.disk import NoSmallDisk, SmallDisk
from tests.databases.redis import RedisServer
from tests.databases.redis_users import WITH_USERS
from tests.databases.server_process import ServerMissing
from tests.databases.servers import DatabaseServers
from tests.redis.proxied_redis import ProxiedRedis, proxied
from tests.shared_shards.proxied_database import DEADLINE_S, until
from tests.shared_shards.shard_files import RedisShardFile

_DISK_MIB = 8


class OnSmallDisk(NamedTuple):
    """A Redis whose files lie on `disk`."""

    server: RedisServer
    disk: SmallDisk


@pytest.fixture
def start_small(database_servers: DatabaseServers) -> Iterator[Callable[..., OnSmallDisk]]:
    with ExitStack() as stack:

        def start(**options: Any) -> OnSmallDisk:
            try:
                server = database_servers.make_redis(**options)
                disk = SmallDisk(server.folder / "small", _DISK_MIB)
            except (NoSmallDisk, ServerMissing) as missing:
                pytest.skip(str(missing))
            stack.callback(disk.remove)
            stack.callback(server.kill)
            server.start(dir=str(disk.folder))
            return OnSmallDisk(server, disk)

        yield start


@pytest.fixture
async def small(start_small: Callable[..., OnSmallDisk]) -> OnSmallDisk:
    return start_small(appendfsync="everysec")


@pytest.fixture
async def database(small: OnSmallDisk) -> AsyncIterator[ProxiedRedis]:
    async with proxied(small.server) as database:
        yield database


async def refused(desk: Desk) -> ShardConnectionFailed:
    """The error of the first enqueue that is refused; what was answered before went into Redis' memory."""
    found: list[ShardConnectionFailed] = []

    async def no() -> bool:
        try:
            await desk.put(b"kept")
        except ShardConnectionFailed as error:
            found.append(error)
        return bool(found)

    await until(no)
    return found[0]


async def answers(desk: Desk) -> bool:
    """Whether changes are taken again."""
    try:
        await desk.shard.ping()
    except PinLaterError:
        return False
    return True


async def test_while_its_disk_is_full_redis_takes_no_changes_answers_looks_and_loses_nothing(
    database: ProxiedRedis, small: OnSmallDisk
) -> None:
    """With a log that is flushed now and then. What it had answered before it noticed is written as soon as there is space."""
    desk = await database.desk()
    held, other = await desk.put_and_take(b"held"), await desk.put_and_take(b"other")
    small.disk.fill()

    error = await refused(desk)
    assert "No space left on device" in error.message
    assert error.retryable
    assert not isinstance(error, OutcomeUnknown)
    waiting = (await desk.counts()).pending
    for change in (
        desk.take,
        lambda: desk.succeed(held.key),
        lambda: desk.fail(other.key, error=("E", "t")),
        desk.shard.ping,
    ):
        with pytest.raises(ShardConnectionFailed, match="No space left"):
            await change()
    assert (await desk.look(held.key)).state is JobState.IN_PROGRESS
    assert len(await desk.scan(JobState.PENDING)) == waiting
    assert len(await desk.shard.submit(ListQueues())) == 1

    small.disk.free()
    await until(lambda: answers(desk))
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    assert (await desk.fail(other.key, token=other.holder.token)).state is JobState.PENDING
    small.server.kill()
    small.server.start()
    await until(lambda: answers(desk))
    assert (await desk.counts()).pending == waiting + 1
    await database.assert_consistent()


async def test_with_every_answer_flushed_a_full_disk_ends_redis_and_nothing_is_lost(
    start_small: Callable[..., OnSmallDisk],
) -> None:
    """`appendfsync always`: Redis ends itself where it can't keep that. Started where there is space, it continues."""
    small = start_small(appendfsync="always")
    async with proxied(small.server) as database:
        desk = await database.desk()
        held = await desk.put_and_take(b"held")
        kept = [await desk.put(b"kept") for _ in range(5)]
        small.disk.fill()
        trouble: PinLaterError | None = None
        while trouble is None:  # the rest of the last block is still written
            try:
                kept.append(await desk.put(b"kept"))
            except PinLaterError as error:
                trouble = error
        assert isinstance(trouble, ShardConnectionFailed | OutcomeUnknown)

        async def ended() -> bool:
            return not small.server.running

        await until(ended)
        small.disk.free()
        small.server.start()
        await until(lambda: answers(desk))
        assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
        # The one whose enqueue failed may be there or not.
        assert [job.key for job in await desk.claim(1_000)][: len(kept)] == kept
        await database.assert_consistent()


async def test_where_snapshots_cannot_be_written_changes_are_refused(start_small: Callable[..., OnSmallDisk]) -> None:
    """`stop-writes-on-bgsave-error`, Redis' default: without a log, too, Redis acknowledges nothing that it doesn't keep."""
    small = start_small(appendonly=False, save="3600 1")
    async with proxied(small.server) as database:
        desk = await database.desk()
        await desk.put(b"kept")
        small.disk.fill()
        small.server.execute("BGSAVE")
        error = await refused(desk)
        assert "can't save" in error.message

        small.disk.free()
        small.server.execute("BGSAVE")
        await until(lambda: answers(desk))
        await desk.put(b"kept")
        await database.assert_consistent()


def test_enqueues_go_to_another_shard_if_the_disk_of_one_redis_is_full(
    start_small: Callable[..., OnSmallDisk], start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """No caller notices; the jobs on it are handed out when there is space."""
    small, other = start_small(**WITH_USERS, appendfsync="everysec"), start_redis(**WITH_USERS)
    file = RedisShardFile(tmp_path / "shards.json", other, "1", "2")
    file.write(s1={}, s2={"master": {"host": small.server.host, "port": small.server.port}})
    with RealServer(tmp_path, store=f"redis:{file.path}") as server, Client(server.address) as client:
        client.create_queue("emails")
        before = {b"%d" % number for number in range(20)}
        for body in before:
            client.enqueue("emails", [Job(body)])
        small.disk.fill()
        after = {b"after %d" % number for number in range(100)}
        for body in after:
            client.enqueue("emails", [Job(body)])

        small.disk.free()
        found: set[bytes] = set()
        deadline = time.monotonic() + DEADLINE_S
        while found != before | after:
            assert time.monotonic() < deadline
            jobs = client.dequeue("emails", limit=50, wait_ms=200).jobs
            if jobs:
                client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
            found |= {job.body for job in jobs}
