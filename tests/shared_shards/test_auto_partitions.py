"""Two servers on two Redis shards: a queue that keeps its owner busy grows, which both servers and each view of the queue show."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient, Job
from pinlater.domain.clock import SystemClock
from pinlater.server.config.load import load
from pinlater.server.main.app import App
from tests.shared_shards.serving import place_of

_DEADLINE_S = 40.0
Pair = tuple[App, App]


@pytest.fixture
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    place = place_of("redis", tmp_path, request)
    given = {"store": place.store, "thrift.port": 0, "http.port": 0, "peer_port": 0, "host": "127.0.0.1"}
    settings = load(None, {}, {**given, "maintenance.sample_interval_ms": 200, **place.settings}).settings
    async with AsyncExitStack() as running:
        apps = App(settings), App(settings)
        for app in apps:
            await app.start()
            running.push_async_callback(app.stop, 1.0)
        await until(lambda: all(owned_by_both(app) for app in apps))
        yield apps


async def until(true: Callable[[], bool]) -> None:
    """Waits for it."""
    deadline_s = SystemClock().monotonic() + _DEADLINE_S
    while not true():
        assert SystemClock().monotonic() < deadline_s, "not in time"
        await asyncio.sleep(0.05)


def owned_by_both(app: App) -> bool:
    """Whether both servers own as much, and this one knows how busy the other is."""
    ownership = app.cluster.ownership
    assert ownership is not None
    owners = [owner for shard in app.core.shards for owner in ownership.owners(shard.name)]
    known = all(app.cluster.load_of(shard.name, f"q{number}") for shard in app.core.shards for number in range(40))
    return known and owners.count(ownership.address) * 2 == len(owners)


async def queue_of_two_owners(pair: Pair) -> tuple[str, App, App]:
    """A queue with the owner of its first shard, and with that of its second one."""
    one, other = pair
    for number in range(1_000):
        name = f"q{number}"
        owners = [
            app for shard in one.core.shards.partitions.order(name) for app in pair if app_owns(app, shard.name, name)
        ]
        if len(set(owners)) == 2:
            await one.core.service.queues.create_queue(name)
            await until(lambda: name in other.core.service.queue_cache.queues)  # noqa: B023
            return name, owners[0], owners[1]
    raise AssertionError("no such name")


def app_owns(app: App, shard: str, queue: str) -> bool:
    lanes = app.core.shards.get(shard)
    return lanes is not None and lanes.owns(queue)


def keep_busy(app: App, share: float) -> None:
    """Its event loop uses so much of a core from now on, as it says."""
    app.cluster._load.look = lambda: None  # type: ignore[method-assign]
    app.cluster._load.share = share


async def command(app: App, *words: str) -> tuple[Any, str]:
    """What the command prints as JSON, and what it says beside that."""
    out, err = await run(app, *words, "--json")
    return json.loads(out or "null"), err.decode()


async def words_of(app: App, *words: str) -> str:
    """What the command says beside its table."""
    _, err = await run(app, *words)
    return " ".join(err.decode().split())


async def run(app: App, *words: str) -> tuple[bytes, bytes]:
    server = ("--server", f"127.0.0.1:{app.thrift.port}")
    pipe = asyncio.subprocess.PIPE
    arguments = [sys.executable, "-m", "pinlater", *words, *server]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=pipe, stderr=pipe)
    return await process.communicate()


async def work(app: App, queue: str, until_true: Callable[[], bool]) -> None:
    """Stores jobs until then."""
    async with AsyncClient(f"127.0.0.1:{app.thrift.port}") as client:
        deadline_s = SystemClock().monotonic() + _DEADLINE_S
        while not until_true():
            assert SystemClock().monotonic() < deadline_s, "not in time"
            await client.enqueue(queue, [Job(b"x")] * 20)
            await asyncio.sleep(0.02)


async def test_a_queue_grows_to_the_shard_of_another_owner(pair: Pair) -> None:
    queue, first, second = await queue_of_two_owners(pair)
    keep_busy(second, 0.1)
    keep_busy(first, 0.95)
    await work(
        second, queue, lambda: all(app.core.service.queue_cache.queues[queue].auto_partitions == 2 for app in pair)
    )

    async with AsyncClient(f"127.0.0.1:{second.thrift.port}") as client:
        [stats] = await client.queue_stats(queue)
        assert stats.partition_number is not None
        assert stats.partition_number[:2] == (2, True)
        assert len(stats.partitions) == 2
        status = await client.cluster()
        assert status.partitions == {queue: stats.partition_number}
        [mark] = (await client.queue_history(queue, from_ms=(stats.partition_number.since_ms or 0) - 60_000)).marks
        assert (mark.text, mark.queue) == ("2 partitions instead of 1: busy", queue)

        shown, said = await command(second, "queue", "stats", queue)
        assert shown["queues"][0]["partition_number"] == stats.partition_number._asdict()
        for _ in range(20):  # so that each partition has some: their request keys lead to them
            [descriptor] = (await client.enqueue(queue, [Job(b"x")])).descriptors
        shown, _ = await command(second, "job", "explain", descriptor)
        assert shown["jobs"][0]["partition_number"] == stats.partition_number._asdict()
        assert re.fullmatch(r"The queue has 2 partitions \(automatic, for .+\)\.", shown["jobs"][0]["notes"][-1])
        shown, _ = await command(second, "cluster", "status")
        assert shown["partitions"] == {queue: stats.partition_number._asdict()}

        shown, _ = await command(second, "queue", "config", queue, "--partitions", "1")
        assert shown["partitions"] == 1
        [stats] = await client.queue_stats(queue)
        assert stats.partition_number is not None
        assert stats.partition_number[:2] == (1, False)
        [partition] = stats.partitions
        [(other, jobs)] = stats.strays.items()
        assert other != partition
        shown, _ = await command(second, "queue", "stats", queue)
        assert shown["queues"][0]["strays"] == {other: jobs}
        said = await words_of(second, "queue", "stats", queue)
        assert f"note: {queue} is stored on {partition}: 1 partition (set by an operator" in said
        assert f"; unfinished jobs elsewhere: {jobs:,} on shard {other}" in said
        _, said = await command(second, "queue", "config", queue, "--partitions", "3")
        assert "partitions must be at most 2, the number of shards that take enqueues, not 3" in said
        shown, _ = await command(second, "queue", "config", queue, "--partitions", "auto")
        assert shown["partitions"] is None
        [stats] = await client.queue_stats(queue)
        assert stats.partition_number is not None
        assert stats.partition_number[:2] == (2, True)


async def test_a_queue_does_not_grow_to_an_owner_that_is_busy_too(pair: Pair) -> None:
    queue, first, second = await queue_of_two_owners(pair)
    keep_busy(second, 0.6)
    keep_busy(first, 0.95)
    ends_s = SystemClock().monotonic() + 9
    await work(second, queue, lambda: SystemClock().monotonic() > ends_s)
    assert all(app.core.service.queue_cache.queues[queue].auto_partitions == 1 for app in pair)
