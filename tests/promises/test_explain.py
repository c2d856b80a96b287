"""explainJob: what tells why a job waits. The reasons that clients make of it are in `tests/domain/test_waiting.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pinlater.client import AsyncClient, JobExplanation
from pinlater.server.features.explain import explain
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import SUCCEEDED, Wire


async def facts(wire: Wire, descriptor: str) -> Any:
    return await wire.call("explainJob", queueName="q", jobDescriptor=descriptor)


async def codes(running: RunningServer, descriptor: str) -> list[str]:
    """As the Python client tells the reasons."""
    return [reason.code for reason in (await explained(running, descriptor)).reasons()]


async def explained(running: RunningServer, descriptor: str) -> JobExplanation:
    async with AsyncClient(f"127.0.0.1:{running.server.port}", wait_for_servers=False) as client:
        return await client.explain_job("q", descriptor)


async def test_a_pause_is_told_with_its_time_and_its_caller(here: Wire, running: RunningServer) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    running.clock.advance(seconds=5)
    paused_at_ms = running.clock.now_ms()
    await here.call("pauseQueue", queueName="q")
    running.clock.advance(seconds=5)
    found = await facts(here, descriptor)
    assert (found.queue.paused, found.queue.pausedAtMillis, found.queue.pausedBy) == (True, paused_at_ms, "tests")
    assert (await codes(running, descriptor))[0] == "paused"
    await here.call("resumeQueue", queueName="q")
    found = await facts(here, descriptor)
    assert (found.queue.paused, found.queue.pausedAtMillis, found.queue.pausedBy) == (False, None, None)


async def test_the_jobs_before_it_are_counted_with_the_rate_of_claims(here: Wire, running: RunningServer) -> None:
    await running.core.rates.sample()
    await here.enqueue("q", *[b"x"] * 8)
    [urgent] = await here.enqueue("q", b"first", priority=1, runAfterTimestampMillis=1)
    [last] = await here.enqueue("q", b"last", priority=3)
    await here.claim("q", 2)
    running.clock.advance(seconds=4)
    await running.core.rates.sample()
    found = await facts(here, last)
    ahead = found.jobsAhead
    assert (ahead.jobs, ahead.atLeast, ahead.incomplete) == (7, False, False)
    assert (found.queue.claimedPerSecond, found.queue.inProgress) == (0.5, 2)
    [reason] = (await explained(running, last)).reasons()
    assert (reason.code, reason.figures["turn_in_ms"]) == ("behind", 14_000)
    assert await codes(running, urgent) == ["claimed"]


async def test_the_count_of_jobs_before_it_is_bounded(here: Wire, running: RunningServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(explain, "AHEAD_MAX", 3)
    descriptors = await here.enqueue("q", *[b"x"] * 5)
    ahead = [(await facts(here, descriptor)).jobsAhead for descriptor in descriptors]
    assert [(one.jobs, one.atLeast) for one in ahead] == [(0, False), (1, False), (2, False), (3, True), (3, True)]


async def test_a_job_behind_others_of_its_ordering_key_is_told_with_the_first_of_them(
    here: Wire, running: RunningServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(explain, "AHEAD_MAX", 2)
    key = [await here.enqueue("q", b"x", orderingKey="k") for _ in range(4)]
    await here.claim("q", 1)
    for [descriptor], jobs in zip(key[1:], (1, 2, 2), strict=True):
        found = await facts(here, descriptor)
        assert (found.behindJob, found.aheadInKey, found.jobsAhead) == (key[0][0], jobs, None)
    [reason] = (await explained(running, key[1][0])).reasons()
    assert (reason.code, reason.figures["first"], reason.figures["jobs_ahead"]) == ("behind_key", key[0][0], 1)
    assert f"It waits behind {key[0][0]}, the first job of its ordering key 'k': 1 job of the key comes" in reason.text
    await here.call("pauseQueue", queueName="q")
    assert await codes(running, key[1][0]) == ["paused", "behind_key"]
    assert await codes(running, key[0][0]) == ["claimed"]


async def test_a_job_behind_a_failed_one_that_stopped_its_key_is_told_how_it_goes_on(
    here: Wire, running: RunningServer
) -> None:
    await here.configure("q", afterFailure="stop")
    [first], [second] = [await here.enqueue("q", b"x", orderingKey="k", numAttemptsAllowed=1) for _ in range(2)]
    await here.claim("q", 1)
    await here.ack("q", failed=[first])
    [reason] = (await explained(running, second)).reasons()
    assert (reason.code, reason.figures["first"], reason.figures["jobs_ahead"]) == ("behind_key", first, 1)
    assert "If the first one has failed, it has stopped its key: retry it, delete it, or unblock the key" in reason.text
    await here.call("unblockKey", queueName="q", orderingKey="k")
    assert await codes(running, second) == ["next"]


async def test_the_due_time_is_told(here: Wire, running: RunningServer) -> None:
    [descriptor] = await here.enqueue("q", b"x", runAfterTimestampMillis=running.clock.now_ms() + 5_000)
    assert await codes(running, descriptor) == ["not_due", "no_worker"]
    running.clock.advance(seconds=5)
    assert await codes(running, descriptor) == ["no_worker"]


async def test_the_limit_in_force_is_told_with_its_next_slot(here: Wire, running: RunningServer) -> None:
    [first, second] = await here.enqueue("q", b"x", b"y")
    await here.configure("q", maxJobsPerSecond=0.5)
    assert await here.claim("q", 1)
    found = await facts(here, second)
    assert (found.queue.maxJobsPerSecond, found.queue.nextSlotMillis) == (0.5, 2_000)
    assert await codes(running, second) == ["rate_limit"]
    await here.configure("q", maxJobsPerSecond=0)
    assert (await facts(here, second)).queue.nextSlotMillis is None
    assert await codes(running, second) == ["stopped"]
    running.file_limits["q"] = 0.25
    await here.configure("q", maxJobsPerSecond=0.5)
    assert (await facts(here, second)).queue.maxJobsPerSecond == 0.25
    assert await codes(running, first) == ["claimed"]


async def test_requests_of_workers_are_told_while_they_wait_and_after(here: Wire, running: RunningServer) -> None:
    [descriptor] = await here.enqueue("q", b"x", runAfterTimestampMillis=running.clock.now_ms() + 3_600_000)
    assert (await facts(here, descriptor)).queue.lastDequeueAtMillis is None
    worker = await running.connect("w")
    polling = asyncio.ensure_future(worker.dequeue("q", 1, waitMillis=10_000))
    await running.until(lambda: running.core.dispatcher.waiting("q"))
    assert (await facts(here, descriptor)).queue.waitingDequeues == 1
    assert "no_worker" not in await codes(running, descriptor)
    asked_at_ms = running.clock.now_ms()
    running.core.dispatcher.wakeups.look_again()
    running.core.dispatcher.drain()
    await polling
    running.clock.advance(seconds=61)
    found = await facts(here, descriptor)
    assert (found.queue.waitingDequeues, found.queue.lastDequeueAtMillis) == (0, asked_at_ms)
    assert await codes(running, descriptor) == ["not_due", "no_worker"]


async def test_workers_that_ask_for_no_more_are_told_apart_from_none(here: Wire, running: RunningServer) -> None:
    [_, second] = await here.enqueue("q", b"x", b"y")
    await here.claim("q", 1)
    assert await codes(running, second) == ["next"]
    running.clock.advance(seconds=61)
    assert await codes(running, second) == ["workers_busy"]


async def test_who_has_claimed_a_job_and_until_when_is_told(here: Wire, running: RunningServer) -> None:
    [descriptor] = await here.enqueue("q", b"x", claimTimeoutMillis=25_000)
    await here.dequeue("q", source="w-7")
    [reason] = (await explained(running, descriptor)).reasons()
    assert reason.figures == {"holder": "w-7", "claim_deadline_at_ms": running.clock.now_ms() + 25_000}
    await here.ack("q", descriptor)
    found = await facts(here, descriptor)
    assert (found.job.jobState, found.job.body, found.jobsAhead) == (SUCCEEDED, None, None)
    assert await codes(running, descriptor) == ["succeeded"]


async def test_a_draining_shard_is_told(start: Callable[..., Awaitable[RunningServer]]) -> None:
    running = await start(2)
    wire = await running.connect()
    await wire.create("q")
    descriptors = await wire.enqueue("q", *[b"x"] * 2)
    name = descriptors[0].split(":")[1].removeprefix("s")
    running.core.shards.change_enqueues(running.shard(name), takes=False)
    assert (await codes(running, descriptors[0]))[-1] == "shard_drains"


async def test_a_missing_job_has_no_facts_and_a_missing_queue_is_refused(here: Wire, running: RunningServer) -> None:
    for descriptor in ("q:s1:p1:7", "q:s9:p1:7", "other:s1:p1:7"):
        found = await facts(here, descriptor)
        assert (found.job, found.shard.inReach, found.jobDescriptor) == (None, True, descriptor)
        assert await codes(running, descriptor) == []
    assert (await refused(here.call("explainJob", queueName="missing", jobDescriptor="missing:s1:p1:7"))).code == 413
    assert (await refused(here.call("explainJob", queueName="q", jobDescriptor="what"))).detail == "DESCRIPTOR_INVALID"
    assert "explain" in (await here.call("getServerInfo")).features
