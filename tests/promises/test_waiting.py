"""Long polls, riding acks, pauses and rate limits."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.storage.values import Claimed
from tests.promises.running_server import RunningServer
from tests.promises.test_queues import refused
from tests.promises.wire import IN_PROGRESS, Wire, ack_request, ttypes
from tests.quick_hash import quick_hash

Connect = Callable[..., Awaitable[Wire]]
Start = Callable[..., Awaitable[RunningServer]]
LONG_MS = 60_000


def _waits(running: RunningServer, number: int) -> bool:
    return running.core.dispatcher.waiting("q") == number


async def waiters(running: RunningServer, number: int, limit: int = 1) -> list[tuple[Wire, asyncio.Task[list[bytes]]]]:
    """This number of connections that wait, in order, on queue `q`."""
    made = []
    for count in range(1, number + 1):
        wire = await running.connect()
        made.append((wire, asyncio.create_task(wire.bodies("q", limit, waitMillis=LONG_MS))))
        await running.until(partial(_waits, running, count))
    return made


# --- long polls ---------------------------------------------------------------------------------------------------------
async def test_a_long_poll_is_answered_as_soon_as_a_job_is_there(here: Wire, running: RunningServer) -> None:
    [(_, waiting)] = await waiters(running, 1)
    await here.enqueue("q", b"x")
    assert await waiting == [b"x"]


async def test_a_long_poll_is_answered_as_soon_as_a_job_becomes_due(start: Start) -> None:
    """Timers run by the loop's own clock; the running's clock follows it here."""
    running = await start()
    wire = await running.connect()
    await wire.create("q")
    await wire.enqueue("q", b"x", runAfterTimestampMillis=running.clock.now_ms() + 50)
    [(_, waiting)] = await waiters(running, 1)
    running.clock.advance(ms=50)
    assert await waiting == [b"x"]


async def test_one_job_wakes_one_waiter_and_no_other(here: Wire, running: RunningServer) -> None:
    made = await waiters(running, 5)
    await here.enqueue("q", b"x")
    await asyncio.wait([task for _, task in made], return_when=asyncio.FIRST_COMPLETED)
    assert [task.done() for _, task in made] == [True, False, False, False, False]
    await running.until(lambda: running.core.dispatcher.waiting("q") == 4)
    await here.enqueue("q", *[b"y"] * 4)
    assert [await task for _, task in made] == [[b"x"], [b"y"], [b"y"], [b"y"], [b"y"]]


async def test_a_hundred_waiters_and_a_hundred_jobs_meet_each_once(here: Wire, running: RunningServer) -> None:
    made = await waiters(running, 100)
    bodies = [b"%d" % number for number in range(100)]
    await here.enqueue("q", *bodies[:30])
    for body in bodies[30:]:
        here.send("enqueueJobs", request=ttypes.PinLaterEnqueueRequest("q", [ttypes.PinLaterJob(body)]))
    got = [body for _, task in made for body in await task]
    assert sorted(got) == sorted(bodies)


async def test_a_wait_ends_empty_when_its_time_is_up(wire: Wire, queue: str) -> None:
    before = time.monotonic()
    assert await wire.bodies(queue, waitMillis=50) == []
    assert time.monotonic() - before >= 0.05


async def test_a_wait_is_cut_at_sixty_seconds(
    here: Wire, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def listen(wish: object) -> object:
        asked.append(wish.wait_ms)  # type: ignore[attr-defined]
        return []

    monkeypatch.setattr(running.core.dispatcher, "claim", listen)
    for wait in (2**31 - 1, 60_001, 59_999):
        await here.dequeue("q", waitMillis=wait)
    assert asked == [60_000, 60_000, 59_999]


async def test_a_retry_a_release_a_time_out_and_a_retry_of_failed_jobs_wake_a_waiter(
    here: Wire, running: RunningServer
) -> None:
    async def met_by(act: Callable[[str, str], Awaitable[object]]) -> None:
        [(descriptor, token)] = await here.claim("q")
        [(_, waiting)] = await waiters(running, 1)
        await act(descriptor, token)
        assert await waiting == [b"x"]
        await here.call("ackDequeuedJobs", request=ack_request("q", failed=[descriptor]))

    async def release(descriptor: str, token: str) -> None:
        await here.call("releaseJobs", request=ttypes.ReleaseRequest("q", [ttypes.ClaimRef(descriptor, token)]))

    async def time_out(descriptor: str, token: str) -> None:
        del descriptor, token
        running.clock.advance(ms=600_001)
        await running.core.sweeps.time_out_claims()

    async def retry_failed(descriptor: str, token: str) -> None:
        del token
        await here.ack("q", failed=[descriptor], finalFailure=True)
        await here.call("retryFailedJobs", request=ttypes.PinLaterRetryFailedJobsRequest("q", attemptsToAllow=9))

    await here.enqueue("q", b"x", numAttemptsAllowed=50)
    await met_by(lambda descriptor, token: here.ack("q", failed=[descriptor]))
    await met_by(release)
    await met_by(time_out)
    await met_by(lambda descriptor, token: here.checkpoint("q", descriptor, moveToPending=True))
    await met_by(retry_failed)


async def test_a_connection_closed_while_it_waits_costs_no_job(here: Wire, running: RunningServer) -> None:
    made = await waiters(running, 2)
    leaving, task = made[0]
    await leaving.close()
    await here.enqueue("q", b"x")
    assert await made[1][1] == [b"x"]
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await task


async def test_a_claim_whose_answer_cannot_be_written_is_released_unspent(
    here: Wire, running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the store has handed the job out and before its client hears of it."""
    await here.enqueue("q", b"x")
    claimed, go_on = asyncio.Event(), asyncio.Event()
    claims = running.shard("1").claim
    claim = claims.submit

    async def hold(request: ClaimRequest) -> Claimed:
        answer = await claim(request)
        claimed.set()
        await go_on.wait()
        return answer

    monkeypatch.setattr(claims, "submit", lambda request: asyncio.ensure_future(hold(request)))
    leaving = await running.connect()
    leaving.send("dequeueJobs", request=ttypes.PinLaterDequeueRequest("q", 1))
    await claimed.wait()
    resets = struct.pack("ii", 1, 0)
    leaving.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, resets)
    connections = running.server.connections
    leaving.writer.transport.abort()
    try:
        await running.until(lambda: running.server.connections < connections)
    finally:
        go_on.set()
    answer = await here.dequeue("q", waitMillis=LONG_MS)
    assert [each.attemptsRemaining for each in answer.jobMetadata.values()] == [2]
    assert running.core.metrics.queue("q").undelivered == 1


async def test_callers_who_left_while_they_waited_take_no_job_with_them(
    connect: Connect, wire: Wire, queue: str
) -> None:
    for number in range(20):
        leaving = [await connect() for _ in range(5)]
        for each in leaving:
            each.send("dequeueJobs", request=ttypes.PinLaterDequeueRequest(queue, 1, waitMillis=LONG_MS))
        for each in leaving:
            await each.close()
        body = b"%d" % number
        await wire.enqueue(queue, body)
        assert await wire.bodies(queue, waitMillis=20_000) == [body]


async def test_calls_on_one_connection_wait_behind_its_long_poll_and_stay_in_order(
    here: Wire, running: RunningServer
) -> None:
    waiting = await running.connect()
    waiting.send("dequeueJobs", request=ttypes.PinLaterDequeueRequest("q", 1, waitMillis=LONG_MS))
    waiting.send("getQueueNames")
    await running.until(lambda: running.core.dispatcher.waiting("q") == 1)
    await here.enqueue("q", b"x")
    assert (await waiting.result("dequeueJobs")).jobs
    assert await waiting.result("getQueueNames") == {"q"}


async def test_waits_have_a_bound_of_their_own(start: Start) -> None:
    running = await start(dispatch=DispatchSettings(max_waiting_dequeues=2))
    wire = await running.connect()
    await wire.create("q")
    made = await waiters(running, 2)
    error = await refused(wire.dequeue("q", waitMillis=LONG_MS))
    assert (error.detail, error.retryable) == ("TOO_MANY_WAITING", True)
    await wire.enqueue("q", b"x", b"y")
    assert [await task for _, task in made] == [[b"x"], [b"y"]]


@pytest.mark.parametrize("more", [{"waitMillis": -1}, {"coverage": float("nan")}])
async def test_a_wait_below_nothing_and_a_coverage_that_is_no_number_are_refused(
    here: Wire, more: dict[str, Any]
) -> None:
    assert (await refused(here.dequeue("q", **more))).detail == "INVALID_ARGUMENT"


async def test_a_long_poll_of_a_queue_that_is_deleted_says_so(start: Start) -> None:
    running = await start(admin_password_hash=quick_hash("open sesame"))
    wire = await running.connect()
    await wire.create("q")
    [(_, waiting)] = await waiters(running, 1)
    await wire.call("deleteQueue", name="q", password="open sesame")
    assert (await refused(waiting)).code == 413


async def test_draining_answers_waits_empty_at_once(here: Wire, running: RunningServer) -> None:
    made = await waiters(running, 3)
    running.core.dispatcher.drain()
    assert [await task for _, task in made] == [[], [], []]


# --- pauses and limits --------------------------------------------------------------------------------------------------
async def test_a_paused_queue_refuses_dequeues_and_goes_on_with_the_rest(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x")
    await here.claim("q")
    await here.call("pauseQueue", queueName="q")
    await here.enqueue("q", b"y")
    error = await refused(here.dequeue("q"))
    assert (error.code, error.detail, error.retryable) == (429, "QUEUE_PAUSED", True)
    assert await here.ack("q", descriptor) == [0]
    assert (await here.call("getQueueConfig", queueName="q")).paused
    await here.call("resumeQueue", queueName="q")
    assert await here.bodies("q") == [b"y"]


async def test_a_paused_queue_lets_long_polls_wait_until_it_is_resumed(here: Wire, running: RunningServer) -> None:
    await here.enqueue("q", b"x")
    await here.call("pauseQueue", queueName="q")
    [(_, waiting)] = await waiters(running, 1)
    await here.enqueue("q", b"y")
    await here.call("resumeQueue", queueName="q")
    assert await waiting == [b"x"]


async def test_a_limited_queue_lets_long_polls_wait_until_the_limit_allows(here: Wire, running: RunningServer) -> None:
    await here.configure("q", maxJobsPerSecond=20.0)
    await here.enqueue("q", *[b"x"] * 31)
    assert len(await here.bodies("q", 30)) == 30
    assert (await refused(here.dequeue("q"))).code == 429
    [(_, waiting)] = await waiters(running, 1)
    running.clock.advance(seconds=1)
    assert await waiting == [b"x"]


async def test_a_limit_is_charged_by_jobs_and_one_request_may_overdraw_so_the_next_pays(
    here: Wire, running: RunningServer
) -> None:
    await here.configure("q", maxJobsPerSecond=10.0)
    await here.enqueue("q", *[b"x"] * 100)
    assert len(await here.bodies("q", 50)) == 50
    error = await refused(here.dequeue("q"))
    assert error.retry_after_ms == pytest.approx(4_100, abs=1)
    running.clock.advance(ms=error.retry_after_ms - 2)
    await refused(here.dequeue("q"))
    running.clock.advance(ms=2)
    assert len(await here.bodies("q", 1)) == 1


@pytest.mark.parametrize(("burst", "at_once"), [(None, 20), (3, 3), (50, 50)])
async def test_a_limit_saves_up_a_seconds_worth_while_its_queue_is_quiet_or_its_burst(
    here: Wire, running: RunningServer, burst: int | None, at_once: int
) -> None:
    await here.configure("q", maxJobsPerSecond=20.0, burst=burst)
    await here.enqueue("q", *[b"x"] * 100)
    running.clock.advance(seconds=60)
    assert len(await here.bodies("q", 100, waitMillis=1)) == at_once
    running.clock.advance(ms=50)
    assert len(await here.bodies("q", 100, waitMillis=1)) == 1


async def test_servers_share_the_burst_of_a_queue_and_each_saves_up_a_job_at_least(start: Start) -> None:
    shares = {"q": 1}
    running = await start(servers=shares.__getitem__)
    here = await running.connect()
    await here.create("q")
    await here.configure("q", maxJobsPerSecond=20.0, burst=5)
    await here.enqueue("q", *[b"x"] * 100)
    for servers, at_once in ((2, 2), (50, 1), (1, 5)):
        shares["q"] = servers
        running.core.dispatcher.limits.share_again()
        running.clock.advance(seconds=60)
        assert len(await here.bodies("q", 100, waitMillis=1)) == at_once


async def test_a_burst_of_no_job_is_refused(here: Wire) -> None:
    error = await refused(here.configure("q", maxJobsPerSecond=20.0, burst=0))
    assert error.detail == "INVALID_ARGUMENT"
    assert "burst must be from 1" in error.message


async def test_empty_dequeues_cost_nothing_of_the_limit(here: Wire) -> None:
    await here.configure("q", maxJobsPerSecond=1.0)
    for _ in range(20):
        assert await here.bodies("q") == []
    await here.enqueue("q", b"x")
    assert await here.bodies("q") == [b"x"]


@pytest.mark.parametrize(
    ("in_file", "in_store", "stopped"),
    [(0.0, None, True), (None, 0.0, True), (5.0, 0.0, True), (0.0, 5.0, True), (5.0, 5.0, False)],
)
async def test_the_lower_of_the_limits_in_file_and_store_holds_and_zero_stops(
    here: Wire, running: RunningServer, in_file: float | None, in_store: float | None, stopped: bool
) -> None:
    await here.enqueue("q", b"x")
    if in_store is not None:
        await here.configure("q", maxJobsPerSecond=in_store)
    if in_file is not None:
        running.file_limits["q"] = in_file
        running.core.limits_changed()
    if stopped:
        error = await refused(here.dequeue("q"))
        assert (error.code, error.retry_after_ms) == (429, None)
    else:
        assert await here.bodies("q") == [b"x"]


# --- riding acks --------------------------------------------------------------------------------------------------------
async def test_a_riding_ack_is_carried_out_before_the_claim_and_its_outcomes_come_along(here: Wire) -> None:
    first, second = await here.enqueue("q", b"a", b"b")
    await here.claim("q", 2)
    answer = await here.dequeue("q", jobAckRequest=ack_request("q", first, failed=[second]))
    assert [each.outcome for each in answer.ackOutcomes] == [0, 0]
    assert answer.jobOrder == [second]  # what just failed is handed out again


@pytest.mark.parametrize("how", ["paused", "limited", "dry run", "limit 0"])
async def test_riding_acks_are_carried_out_even_where_nothing_is_claimed(here: Wire, how: str) -> None:
    """The original lost those that rode on a rate-limited dequeue."""
    [descriptor] = await here.enqueue("q", b"a")
    await here.claim("q")
    request = ack_request("q", descriptor)
    if how == "paused":
        await here.call("pauseQueue", queueName="q")
    if how == "limited":
        await here.configure("q", maxJobsPerSecond=0.0)
    if how in ("paused", "limited"):
        assert (await refused(here.dequeue("q", jobAckRequest=request))).code == 429
    elif how == "dry run":
        await here.dequeue("q", dryRun=True, jobAckRequest=request)
    else:
        await here.dequeue("q", 0, jobAckRequest=request)
    assert await here.state(descriptor) == 2


async def test_riding_acks_may_name_another_queue(here: Wire) -> None:
    await here.create("other")
    [descriptor] = await here.enqueue("other", b"a")
    await here.claim("other")
    await here.dequeue("q", jobAckRequest=ack_request("other", descriptor))
    assert await here.state(descriptor) == 2


async def test_a_malformed_riding_ack_refuses_the_call_and_nothing_happens(here: Wire) -> None:
    first, _ = await here.enqueue("q", b"a", b"b")
    await here.claim("q", 1)
    error = await refused(here.dequeue("q", jobAckRequest=ack_request("q", first, "nonsense")))
    assert error.detail == "DESCRIPTOR_INVALID"
    assert (await here.state(first), await here.count("q")) == (IN_PROGRESS, 1)
