"""Workers over HTTP: dequeue, ack, heartbeat, checkpoint, release."""

from __future__ import annotations

import asyncio
from typing import Any

from pinlater.console.app import Console
from pinlater.domain.clock import ManualClock
from tests.console.caller import Caller

JOBS = "/v1/queues/mail/jobs"


async def claim(caller: Caller, *bodies: str) -> list[dict[str, Any]]:
    """New jobs, claimed."""
    await caller.ok("POST", f"{JOBS}/batch", {"jobs": [{"body": body} for body in bodies]})
    answer = await caller.ok("POST", f"{JOBS}/dequeue", {"limit": len(bodies)})
    return list(answer["jobs"])


def named(job: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The claim of a job."""
    return {"descriptor": job["descriptor"], "token": job["token"], **more}


def outcomes(answer: Any) -> list[str]:
    return [result["outcome"] for result in answer["results"]]


async def test_a_claimed_job_has_all_that_a_worker_needs(caller: Caller, clock: ManualClock) -> None:
    [job] = await claim(caller, "hello")
    assert (job["body"], job["attempt"], job["attempts_remaining"]) == ("hello", 1, 2)
    assert job["claim_deadline_at_ms"] > clock.now_ms()
    assert outcomes(await caller.ok("POST", f"{JOBS}/ack", {"jobs": [named(job)]})) == ["applied"]
    assert (await caller.ok("GET", f"/v1/jobs/{job['descriptor']}"))["state"] == "succeeded"


async def test_a_failed_attempt_leaves_its_error(caller: Caller) -> None:
    [job] = await claim(caller, "hello")
    ack = named(
        job, succeeded=False, retry_delay_ms=1000, error_type="ValueError", error_text="no", append_status="tried"
    )
    assert outcomes(await caller.ok("POST", f"{JOBS}/ack", {"jobs": [ack]})) == ["applied"]
    found = await caller.ok("GET", f"/v1/jobs/{job['descriptor']}")
    assert (found["state"], found["error_type"], found["error_text"]) == ("pending", "ValueError", "no")
    assert found["custom_status"] == "tried"
    [attempt] = found["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "failed")


async def test_acks_may_come_with_a_dequeue(caller: Caller) -> None:
    first, second = await claim(caller, "a", "b")
    answer = await caller.ok("POST", f"{JOBS}/dequeue", {"acks": [named(first), named(second, succeeded=False)]})
    assert outcomes(answer) == ["applied", "applied"]
    assert [job["descriptor"] for job in answer["jobs"]] == [second["descriptor"]]


async def test_a_dry_run_claims_nothing(caller: Caller) -> None:
    await caller.ok("POST", f"{JOBS}/batch", {"jobs": [{"body": "a"}]})
    for _ in range(2):
        [job] = (await caller.ok("POST", f"{JOBS}/dequeue", {"dry_run": True, "coverage": 0.5}))["jobs"]
        assert job["body"] == "a"


async def test_a_heartbeat_renews_and_a_stale_claim_says_so(caller: Caller, clock: ManualClock) -> None:
    [job] = await claim(caller, "a")
    clock.advance(ms=1_000)
    answer = await caller.ok("POST", f"{JOBS}/heartbeat", {"jobs": [named(job), {**named(job), "token": "other"}]})
    assert outcomes(answer) == ["applied", "stale_claim"]
    assert answer["results"][0]["claim_deadline_at_ms"] == job["claim_deadline_at_ms"] + 1_000
    assert answer["results"][1]["holder"].endswith(":console:1")


async def test_a_checkpoint_changes_the_body(caller: Caller) -> None:
    [job] = await claim(caller, "a")
    saved = named(job, body_json={"row": 7}, prepend_status="[progress] 7 %\n")
    assert outcomes(await caller.ok("POST", f"{JOBS}/checkpoint", {"jobs": [saved]})) == ["applied"]
    found = await caller.ok("GET", f"/v1/jobs/{job['descriptor']}?bodies=true")
    assert (found["body"], found["progress"]) == ('{"row": 7}', "7 %")


async def test_a_released_job_keeps_its_attempts(caller: Caller) -> None:
    [job] = await claim(caller, "a")
    assert outcomes(await caller.ok("POST", f"{JOBS}/release", {"jobs": [named(job)], "delay_ms": 0})) == ["applied"]
    [again] = (await caller.ok("POST", f"{JOBS}/dequeue"))["jobs"]
    assert (again["descriptor"], again["attempts_remaining"]) == (job["descriptor"], 2)


async def waiting(caller: Caller) -> list[Any]:
    """The long polls that wait on the server."""
    return list((await caller.ok("GET", "/v1/waiting-dequeues"))["waiting"])


async def until_one_waits(caller: Caller) -> None:
    """Returns once a dequeue waits on the server."""
    async with asyncio.timeout(10):
        while not await waiting(caller):
            await asyncio.sleep(0.01)


async def test_a_long_poll_gets_a_job_that_comes_later(caller: Caller) -> None:
    polling = asyncio.create_task(caller.ok("POST", f"{JOBS}/dequeue", {"wait_ms": 20_000}))
    await until_one_waits(caller)
    await caller.send("POST", JOBS, b"late")
    [job] = (await polling)["jobs"]
    assert job["body"] == "late"


async def test_the_long_poll_of_a_caller_that_disconnects_ends(caller: Caller) -> None:
    gone = asyncio.Event()
    body = b'{"wait_ms": 20000}'
    polling = asyncio.create_task(caller.interrupted("POST", f"{JOBS}/dequeue", body, gone=gone))
    await until_one_waits(caller)
    gone.set()
    assert (await polling).status == 499
    async with asyncio.timeout(10):
        while await waiting(caller):
            await asyncio.sleep(0.01)


async def test_jobs_that_come_as_the_caller_disconnects_are_released(caller: Caller) -> None:
    await caller.send("POST", JOBS, b"x")
    gone = asyncio.Event()
    gone.set()
    assert (await caller.interrupted("POST", f"{JOBS}/dequeue", b"{}", gone=gone)).status == 499
    async with asyncio.timeout(10):
        while not (await caller.ok("POST", f"{JOBS}/dequeue"))["jobs"]:
            await asyncio.sleep(0.01)


async def test_a_console_that_stops_answers_long_polls_without_jobs(caller: Caller, console: Console) -> None:
    polling = asyncio.create_task(caller.ok("POST", f"{JOBS}/dequeue", {"wait_ms": 20_000}))
    await until_one_waits(caller)
    console.stop()
    assert await polling == {"jobs": [], "results": []}
