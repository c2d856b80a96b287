"""What the console holds for all callers together is bounded: answers, lists under way, long polls."""

from __future__ import annotations

import asyncio

from pinlater.console.app import Console
from pinlater.console.poll_limit import PollLimit
from tests.console.caller import Caller
from tests.console.test_jobs import JOBS, enqueue


async def test_a_list_for_which_no_memory_is_free_is_refused_before_a_server_is_called(
    console: Console, caller: Caller
) -> None:
    [descriptor] = await enqueue(caller, "one")
    console.budget.free_bytes = 100_000
    assert len((await caller.ok("GET", f"{JOBS}?limit=10"))["jobs"]) == 1
    for query in ("limit=100", "limit=1&bodies=true"):
        problem = await caller.refused("GET", f"{JOBS}?{query}")
        assert (problem["status"], problem["reason"], problem["retryable"]) == (503, "TOO_MANY_WAITING", True)
    await caller.refused("POST", "/v1/jobs/lookup", {"descriptors": [descriptor], "bodies": True})
    await caller.ok("POST", "/v1/jobs/lookup", {"descriptors": [descriptor]})
    assert console.budget.free_bytes == 100_000


async def test_an_answer_for_which_no_memory_is_free_is_refused(console: Console, caller: Caller) -> None:
    before = console.budget.free_bytes = -console.budget.limit_bytes // 4
    problem = await caller.refused("GET", "/v1/queues")
    assert (problem["status"], problem["reason"]) == (503, "TOO_MANY_WAITING")
    assert console.budget.free_bytes == before


async def test_a_change_is_answered_in_any_case(console: Console, caller: Caller) -> None:
    """An error would say that nothing has changed."""
    console.budget.free_bytes = 50 - console.budget.limit_bytes // 4  # for the request, and not for the answer
    assert len(await enqueue(caller, "one")) == 1


async def test_claimed_jobs_for_whose_answer_no_memory_is_free_are_released(console: Console, caller: Caller) -> None:
    await enqueue(caller, "one")
    before = console.budget.free_bytes = -console.budget.limit_bytes // 4
    problem = await caller.refused("POST", f"{JOBS}/dequeue")
    assert problem["reason"] == "TOO_MANY_WAITING"
    console.budget.free_bytes = console.budget.limit_bytes
    assert (await caller.ok("GET", f"{JOBS}/count"))["jobs"] == 1
    [job] = (await caller.ok("POST", f"{JOBS}/dequeue"))["jobs"]
    assert job["attempt"] == 1
    assert before < 0


async def test_long_polls_are_bounded_and_other_dequeues_are_not(console: Console, caller: Caller) -> None:
    console.poll_limit = PollLimit(waiting_max=1)
    gone = asyncio.Event()
    waiting = asyncio.create_task(caller.interrupted("POST", f"{JOBS}/dequeue", b'{"wait_ms": 60000}', gone=gone))
    while not console.poll_limit.waiting:
        await asyncio.sleep(0)
    problem = await caller.refused("POST", f"{JOBS}/dequeue", {"wait_ms": 1})
    assert (problem["status"], problem["reason"], problem["retryable"]) == (503, "TOO_MANY_WAITING", True)
    await caller.ok("POST", f"{JOBS}/dequeue", {})
    gone.set()
    assert (await waiting).status == 499
    assert console.poll_limit.waiting == 0
    await enqueue(caller, "one")
    await caller.ok("POST", f"{JOBS}/dequeue", {"wait_ms": 1})
