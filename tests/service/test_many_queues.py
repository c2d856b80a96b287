"""Thousands of queues: a bound on their number, and calls whose cost does not grow with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pinlater.domain.errors import InvalidArgument, TooManyQueues
from pinlater.domain.queue import PriorityCounts, QueueConfig, QueueCounts
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import ConfigureQueue, CountJobs, DeleteQueues, ListQueues, create_queues
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.commands import instead, replaced
from tests.promises.running_server import RunningServer, start_server
from tests.quick_hash import quick_hash

PASSWORD = "open sesame"


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningServer]:
    running = await start_server(2, jobs=JobSettings(max_queues=20), admin_password_hash=quick_hash(PASSWORD))
    yield running
    await running.close()


@pytest.fixture
def lists(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards whose list of all queues was read."""
    read: list[str] = []
    for shard in running.core.shards:
        of_store = shard.unguarded.submit

        async def noted(name: str = shard.name, look=of_store) -> object:  # type: ignore[no-untyped-def]
            read.append(name)
            return await look(ListQueues())

        monkeypatch.setattr(shard.unguarded, "submit", instead(shard.unguarded, ListQueues, noted))
    return read


async def test_one_queue_too_many_is_refused_and_those_that_exist_are_not(running: RunningServer) -> None:
    for number in range(20):
        await running.core.service.queues.create_queue(f"q{number}")
    await running.core.service.queues.create_queue("q7")
    with pytest.raises(TooManyQueues, match=r"20 queues.*max_queues"):
        await running.core.service.queues.create_queue("q20")
    await running.core.service.queues.delete_queue("q3", PASSWORD)
    await running.core.service.queues.create_queue("q20")


async def test_queues_that_another_server_deleted_no_longer_count(running: RunningServer) -> None:
    """A refusal reads the store first."""
    for number in range(20):
        await running.core.service.queues.create_queue(f"q{number}")
    for shard in running.core.shards:
        await shard.unguarded.submit(DeleteQueues(["q3"]))
    await running.core.service.queues.create_queue("q20")
    assert len(await running.core.service.queues.queue_names()) == 20


async def test_making_and_deleting_a_queue_reads_no_list_of_all(running: RunningServer, lists: list[str]) -> None:
    await running.core.service.queues.create_queue("q")
    await running.core.service.queues.create_queue("q")
    assert (await running.core.service.queues.queue_config("q")).name == "q"
    await running.core.service.queues.delete_queue("q", PASSWORD)
    assert lists == []
    assert running.core.service.queue_cache.queues.get("q") is None


async def test_a_queue_that_was_there_keeps_its_settings_and_limits(running: RunningServer) -> None:
    """It was made and stopped through another server."""
    for shard in running.core.shards:
        await shard.unguarded.submit(create_queues(["q"], 0))
        await shard.unguarded.submit(ConfigureQueue("q", config=QueueConfig(default_attempts=7), paused=True))
    await running.core.service.queues.create_queue("q")
    assert (await running.core.service.queues.queue_config("q")).config.default_attempts == 7
    assert not running.core.dispatcher.limits.is_open("q")
    await running.core.service.queues.delete_queue("q", PASSWORD)
    assert running.core.dispatcher.limits.is_open("q")


async def test_a_look_at_more_queues_than_there_may_be_is_refused(running: RunningServer) -> None:
    await running.core.service.queues.create_queue("q")
    with pytest.raises(InvalidArgument, match="21 names") as error:
        await running.core.service.queues.queue_stats(["q"] * 21)
    assert error.value.detail == "TOO_MANY"
    assert len(await running.core.service.queues.queue_stats(["q"] * 20)) == 20


class Turns:
    """Counts how often another task gets its turn."""

    def __init__(self) -> None:
        self.taken = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.taken += 1
            await asyncio.sleep(0)

    async def stop(self) -> int:
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.taken


@pytest_asyncio.fixture
async def crowded() -> AsyncIterator[RunningServer]:
    """With 5,000 queues."""
    running = await start_server(admin_password_hash=quick_hash(PASSWORD))
    [shard] = running.core.shards
    await shard.unguarded.submit(create_queues([f"q{number}" for number in range(5_000)], 0))
    await running.core.service.queue_cache.refresh()
    for number in range(5_000):
        running.core.metrics.queue(f"q{number}").enqueue += 1
    yield running
    await running.close()


@pytest.mark.parametrize("work", ["stats", "refresh", "tick", "sample"])
async def test_work_on_thousands_of_queues_is_done_in_pieces(crowded: RunningServer, work: str) -> None:
    """However fast the machine is: others get their turn every few hundred or thousand queues."""
    sampler = RateSampler(crowded.core.shards, crowded.clock)
    turns = Turns()
    if work == "stats":
        assert len(await crowded.core.service.queues.queue_stats([])) == 5_000
    elif work == "refresh":
        await crowded.core.service.queue_cache.refresh()
    elif work == "tick":
        await crowded.core.metrics.tick_in_turns(0.0)
    else:
        await crowded.core.service.enqueuing.enqueue(EnqueueRequest("q1", [Job(b"x")]))
        [shard] = crowded.core.shards
        rows = [QueueCounts(f"q{number}", PriorityCounts(1, pending=1)) for number in range(5_000)]
        with replaced(shard.unguarded, CountJobs, lambda _: _answer(rows)):
            await sampler.sample()
        assert len(sampler.counts) == 5_000
    assert await turns.stop() >= (3 if work in {"refresh", "sample"} else 9)


async def _answer(rows: list[QueueCounts]) -> list[QueueCounts]:
    return rows
