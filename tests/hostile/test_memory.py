"""Memory: whatever callers send and don't read, what the server holds stays near its budget, is seen, and is free soon after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from bench.servers import PinLaterServer
from pinlater.wire.generated import structs as types
from tests import open_files
from tests.hostile.callers import HostileCaller, Memory, call, flood, in_flight, samples, until
from tests.hostile.conftest import BUDGET_BYTES

pytestmark = pytest.mark.crash

# Resident memory may grow by this multiple of the budget: copies, objects, what the allocator keeps.
GROWTH_MB_MAX = 3 * BUDGET_BYTES / 1e6
# The budget counts the bodies of a claim (64 MiB at most) once they are answers.
GROWTH_WITH_A_CLAIM_MB_MAX = GROWTH_MB_MAX + 64 * 2**20 / 1e6
HELD_BYTES_MAX = BUDGET_BYTES * 5 / 4
MEBIBYTE = 2**20
LONG_POLL = types.DequeueRequest("q", 1, wait_ms=60_000)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def jobs(number: int, body_bytes: int) -> types.EnqueueRequest:
    return types.EnqueueRequest("q", [types.Job(body=b"x" * body_bytes) for _ in range(number)])


def filled(server: PinLaterServer, number: int, body_bytes: int) -> None:
    """The queue has this number of further jobs."""
    with HostileCaller(server) as caller:
        for _ in range(number):
            assert caller.call("enqueueJobs", request=jobs(1, body_bytes)).exception is None


def goes_on(server: PinLaterServer) -> None:
    """The server answers others: health checks, and small requests."""
    assert server.get("/healthz") == "ok\n"
    with HostileCaller(server) as caller:
        assert caller.call("enqueueJobs", request=jobs(1, 100)).exception is None


def test_frames_behind_long_polls_take_bounded_memory_and_are_free_soon_after_their_callers_have_gone(
    server: PinLaterServer, stack: ExitStack
) -> None:
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(30)]
    large = call("enqueueJobs", request=jobs(15, MEBIBYTE))
    for caller in callers:
        caller.queue(call("dequeueJobs", request=LONG_POLL), large, large)
    flood(callers, memory.look)
    assert in_flight(server) <= HELD_BYTES_MAX
    server.get("/healthz")
    memory.look()
    assert memory.peak_mb < GROWTH_MB_MAX
    for caller in callers:
        caller.socket.close()
    until(lambda: in_flight(server) == 0)
    goes_on(server)


def test_frames_that_never_end_take_bounded_memory(server: PinLaterServer, stack: ExitStack) -> None:
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(30)]
    large = call("enqueueJobs", request=jobs(15, MEBIBYTE))
    for caller in callers:
        caller.queue(large[:-1])
    flood(callers, memory.look)
    held = samples(server, "pinlater_memory_in_flight_bytes")
    assert 0 < held["requests"] <= HELD_BYTES_MAX
    assert memory.peak_mb < GROWTH_MB_MAX
    goes_on(server)
    for caller in callers:
        caller.socket.close()
    until(lambda: in_flight(server) == 0)


def test_many_small_calls_behind_long_polls_take_bounded_memory(server: PinLaterServer, stack: ExitStack) -> None:
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(100)]
    small = call("getQueueNames") * 10_000
    for caller in callers:
        caller.queue(call("dequeueJobs", request=LONG_POLL), small)
    flood(callers, memory.look)
    assert in_flight(server) <= HELD_BYTES_MAX
    assert memory.peak_mb < GROWTH_MB_MAX
    for caller in callers:
        caller.socket.close()
    until(lambda: in_flight(server) == 0)
    goes_on(server)


def test_answers_that_are_not_read_take_bounded_memory_and_the_others_are_refused(
    server: PinLaterServer, stack: ExitStack
) -> None:
    filled(server, 12, MEBIBYTE - 100)
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(60)]
    peek = types.DequeueRequest("q", 1_000, dry_run=True)
    for caller in callers:
        caller.queue(call("dequeueJobs", request=peek))
    flood(callers, memory.look)
    until(lambda: memory.after("dequeueJobs", 60))
    assert samples(server, "pinlater_memory_in_flight_bytes")["answers"] > 0
    assert in_flight(server) <= HELD_BYTES_MAX
    assert memory.peak_mb < GROWTH_MB_MAX
    goes_on(server)
    replies = [caller.receive() for caller in callers]
    shown = [len(reply.value.jobs) for reply in replies if reply.exception is None]
    refused = {(reply.exception.detail, reply.exception.retryable) for reply in replies if reply.exception is not None}
    assert shown
    assert set(shown) == {12} | ({13} & set(shown))
    assert refused == {("TOO_MANY_WAITING", True)}
    until(lambda: in_flight(server) == 0)
    assert len(callers[-1].call("dequeueJobs", request=peek).value.jobs) >= 12


def test_dequeues_at_once_share_the_bytes_of_their_claim(server: PinLaterServer, stack: ExitStack) -> None:
    """They are joined into one claim, which the budget sees only once it is made."""
    filled(server, 400, MEBIBYTE - 100)
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(40)]
    for caller in callers:
        caller.queue(call("dequeueJobs", request=types.DequeueRequest("q", 10)))
    flood(callers, memory.look)
    until(lambda: memory.after("dequeueJobs", 40))
    assert memory.peak_mb < GROWTH_WITH_A_CLAIM_MB_MAX
    goes_on(server)
    for caller in callers:
        caller.reset()
    until(lambda: in_flight(server) == 0)


def test_dequeues_of_one_large_job_each_share_the_bytes_of_several_claims(
    server: PinLaterServer, stack: ExitStack
) -> None:
    """All of them look again at once when the queue's pause ends."""
    open_files.need(1_500)
    waiting = 500
    filled(server, waiting, MEBIBYTE - 100)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(waiting)]
    with HostileCaller(server) as operator:
        operator.call("pauseQueue", queue="q")
        for caller in callers:
            caller.send("dequeueJobs", request=LONG_POLL)
        until(lambda: samples(server, "pinlater_long_polls")[""] == waiting)
        memory = Memory(server)
        operator.call("resumeQueue", queue="q")
    until(lambda: samples(server, "pinlater_long_polls")[""] == 0)
    memory.look()
    assert memory.peak_mb < GROWTH_WITH_A_CLAIM_MB_MAX
    goes_on(server)


def test_jobs_that_are_handed_out_and_not_read_take_bounded_memory_and_come_back(
    server: PinLaterServer, stack: ExitStack
) -> None:
    """Dequeues are not estimated beforehand: beyond the budget those that have waited longest are cut, and lose nothing."""
    filled(server, 240, MEBIBYTE - 100)
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(20)]
    for number, caller in enumerate(callers, start=1):
        caller.send("dequeueJobs", request=types.DequeueRequest("q", 12))
        until(partial(memory.after, "dequeueJobs", number))
    assert in_flight(server) <= HELD_BYTES_MAX
    assert memory.peak_mb < GROWTH_MB_MAX
    for caller in callers:
        caller.reset()
    came_back: set[str] = set()
    with HostileCaller(server) as worker:
        request = types.DequeueRequest("q", 12, wait_ms=1_000)

        def claimed() -> bool:
            answer = worker.call("dequeueJobs", request=request).value
            metadata = answer.metadata or {}
            assert all(one.attempts_remaining == one.attempts_allowed for one in metadata.values())
            came_back.update(metadata)
            return len(came_back) == 240

        until(claimed)


def test_scans_take_bounded_memory_and_the_others_are_refused(server: PinLaterServer, stack: ExitStack) -> None:
    filled(server, 14, MEBIBYTE - 100)
    memory = Memory(server)
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(60)]
    scan = types.ScanRequest("q", 0, limit=10_000, bodies=True)
    for caller in callers:
        caller.queue(call("scanJobs", request=scan))
    flood(callers, memory.look)
    until(lambda: memory.after("scanJobs", 60))
    assert memory.peak_mb < GROWTH_MB_MAX
    replies = [caller.receive() for caller in callers]
    assert any(reply.exception is None for reply in replies)
    refused = {reply.exception.detail for reply in replies if reply.exception is not None}
    assert refused == {"TOO_MANY_WAITING"}
    until(lambda: in_flight(server) == 0)
    assert callers[0].call("scanJobs", request=scan).exception is None
