"""getWorkers: who asks for jobs, what a process says of itself, and what became of its claims."""

from __future__ import annotations

from typing import Any

from tests.promises.running_server import RunningServer
from tests.promises.wire import Wire, ttypes

INFO = ttypes.WorkerInfo("go", "0.3", "host-7", 17, 16, 3, 1_767_225_600_000)


async def workers(wire: Wire) -> dict[tuple[str, int | None], Any]:
    """By source and process."""
    [answer] = await wire.call("getWorkers", everywhere=True)
    return {(each.source, each.process): each for each in answer.workers}


async def test_a_client_that_says_nothing_is_told_by_its_source(here: Wire, running: RunningServer) -> None:
    await here.enqueue("q", b"x", b"y")
    await here.claim("q", 1, source="old")
    running.clock.advance(seconds=3)
    [(name, status)] = (await workers(here)).items()
    assert name == ("old", None)
    assert (status.heardMillisAgo, status.info, status.claimMillis) == (3_000, None, 600_000)
    [queue] = status.queues
    assert (queue.queueName, queue.askedMillisAgo, queue.handedOut) == ("q", 3_000, 1)


async def test_what_a_process_says_of_itself_is_told_and_two_with_one_source_are_told_apart(
    here: Wire, running: RunningServer
) -> None:
    await here.enqueue("q", b"x", b"y", b"z")
    await here.claim("q", 2, source="w", process=7, worker=INFO)
    await here.claim("q", 1, source="w", process=8)
    running.clock.advance(seconds=3)
    found = await workers(here)
    assert found.keys() == {("w", 7), ("w", 8)}
    assert (found["w", 7].info, found["w", 7].saidMillisAgo) == (INFO, 3_000)
    assert (found["w", 8].info, found["w", 8].saidMillisAgo) == (None, None)
    assert [found["w", process].queues[0].handedOut for process in (7, 8)] == [2, 1]


async def test_a_heartbeat_is_heard_and_says_of_which_process_it_is(here: Wire, running: RunningServer) -> None:
    await here.enqueue("q", b"x")
    [(descriptor, token)] = await here.claim("q", source="w", process=7)
    running.clock.advance(seconds=3)
    claims = [ttypes.ClaimRef(descriptor, token)]
    await here.call("heartbeatClaims", source="w", request=ttypes.ClaimsRequest("q", claims, None, 7, INFO))
    [status] = (await workers(here)).values()
    assert (status.heardMillisAgo, status.info, status.saidMillisAgo) == (0, INFO, 0)


async def test_lost_claims_and_late_answers_are_told_by_the_source_of_the_claim(
    here: Wire, running: RunningServer
) -> None:
    """A worker stands still for longer than its claims last, and then sends what it has."""
    await here.enqueue("q", b"x", b"y", claimTimeoutMillis=10_000)
    held = await here.claim("q", 2, source="w", process=7)
    running.clock.advance(seconds=11)
    await running.core.sweeps.time_out_claims()
    found = await workers(here)
    assert found["w", None].heardMillisAgo is None
    [queue] = found["w", None].queues
    assert (queue.timedOut, queue.timedOutLately, queue.timedOutTimes, queue.late) == (2, 2, 1, 0)
    lost = {(each.queueName, each.jobDescriptor, each.endedMillisAgo) for each in found["w", None].lost}
    assert lost == {("q", descriptor, 0) for descriptor, _ in held}
    for descriptor, token in held:
        request = ttypes.PinLaterJobAckRequest("q", [ttypes.PinLaterJobAckInfo(descriptor, claimToken=token)])
        await here.call("ackJobs", source="w", request=request)
    [queue] = (await workers(here))["w", None].queues
    assert (queue.timedOut, queue.late, queue.lateLately) == (2, 2, 2)


async def test_a_worker_that_is_not_heard_for_a_quarter_of_an_hour_is_told_no_more(
    here: Wire, running: RunningServer
) -> None:
    await here.dequeue("q", source="w", process=7, worker=INFO)
    running.clock.advance(seconds=15 * 60 + 1)
    assert await workers(here) == {}
