"""Store, look up, list, count, cancel, run, retry and delete jobs over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.domain.clock import ManualClock
from pinlater.domain.durations import YEAR_MS
from tests.console.caller import Caller
from tests.console.conftest import COMPARED_MAX

JOBS = "/v1/queues/mail/jobs"


async def enqueue(caller: Caller, *bodies: str, **options: Any) -> list[str]:
    """The descriptors of new jobs."""
    jobs = [{"body": body, **options} for body in bodies]
    answer = await caller.ok("POST", f"{JOBS}/batch", {"jobs": jobs})
    return [job["descriptor"] for job in answer["jobs"]]


async def fail(caller: Caller, descriptor: str) -> None:
    """Claims the job and ends its last attempt."""
    await caller.ok("POST", f"{JOBS}/dequeue", {"limit": 100})
    await caller.ok("POST", f"{JOBS}/ack", {"jobs": [{"descriptor": descriptor, "succeeded": False, "final": True}]})


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain", "grüße".encode()),
        ("text/plain; charset=utf-8", b""),
        ("application/json", b'{"to": "a@example.org"}'),
        ("application/octet-stream", b"\xff\x00"),
    ],
)
async def test_the_body_of_a_request_is_the_body_of_the_job(caller: Caller, content_type: str, body: bytes) -> None:
    answer = await caller.send("POST", JOBS, body, content_type=content_type)
    descriptor = answer.json["descriptor"]
    assert answer.json == {"descriptor": descriptor, "existing": False}
    found = await caller.get(f"/v1/jobs/{descriptor}/body")
    assert (found.body, found.headers["content-type"]) == (body, "application/octet-stream")
    assert found.headers["content-disposition"] == "attachment"


async def test_a_body_may_come_in_pieces_and_without_a_type(caller: Caller) -> None:
    answer = await caller.send("POST", JOBS, b"one ", b"", b"two")
    assert (await caller.get(f"/v1/jobs/{answer.json['descriptor']}/body")).body == b"one two"


async def test_the_options_of_a_job_are_parameters(caller: Caller, clock: ManualClock) -> None:
    query = (
        "priority=2&delay_ms=5000&attempts_allowed=7&custom_status=new&unique_key=k&unique_scope=time&unique_for_ms=9000"
        "&claim_timeout_ms=60000&expires_in_ms=8000&header=a%3Db&header=c%3Dd%3De"
    )
    answer = await caller.send("POST", f"{JOBS}?{query}", b"x")
    job = await caller.ok("GET", f"/v1/jobs/{answer.json['descriptor']}")
    assert ":p2:" in job["descriptor"]
    assert job["run_after_ms"] == clock.now_ms() + 5000
    assert job["expires_at_ms"] == clock.now_ms() + 8000
    assert (job["attempts_allowed"], job["custom_status"], job["unique_key"]) == (7, "new", "k")
    assert job["headers"] == {"a": "b", "c": "d=e"}
    assert (job["state"], job["body"]) == ("pending", None)
    again = await caller.send("POST", f"{JOBS}?unique_key=k", b"y")
    assert again.json == {"descriptor": job["descriptor"], "existing": True}


async def test_durations_of_all_jobs_of_a_batch_count_from_one_time(client: AsyncClient, clock: ManualClock) -> None:
    caller = Caller(Console(client, count(clock.now_ms()).__next__, None).app)  # its clock moves at each look
    names = await enqueue(caller, *("x" * 20), delay_ms=5000, expires_in_ms=8000)
    jobs = (await caller.ok("POST", "/v1/jobs/lookup", {"descriptors": names}))["jobs"]
    [(run_after_ms, expires_at_ms)] = {(job["run_after_ms"], job["expires_at_ms"]) for job in jobs}
    assert expires_at_ms - run_after_ms == 3000


async def test_several_jobs_are_stored_with_bodies_of_all_kinds(caller: Caller) -> None:
    jobs = [
        {"body": "text"},
        {"body_json": {"a": [1, 2.5, None]}, "headers": {"h": "v"}, "priority": 3},
        {"body_base64": base64.b64encode(b"\xff").decode(), "run_after_ms": 1, "expires_at_ms": 10**15},
        {"body_json": None},
    ]
    stored = (await caller.ok("POST", f"{JOBS}/batch", {"jobs": jobs}))["jobs"]
    names = [job["descriptor"] for job in stored]
    found = (await caller.ok("POST", "/v1/jobs/lookup", {"descriptors": [*names, "mail:s1:p1:1"], "bodies": True}))[
        "jobs"
    ]
    assert [job["descriptor"] for job in found] == names
    assert [job["body"] for job in found][:1] == ["text"]
    assert json.loads(found[1]["body"]) == {"a": [1, 2.5, None]}
    assert (found[1]["headers"], found[2]["body"], found[2]["body_base64"]) == ({"h": "v"}, None, "/w==")
    assert found[3]["body"] == "null"


@pytest.mark.parametrize(
    ("field", "value_of", "says"),
    [
        ("run_after_ms", lambda now_ms: now_ms + YEAR_MS + 1, "a job waits for a year (366 days) at most"),
        ("run_after_ms", lambda now_ms: now_ms * 1000, "is it in microseconds?"),
        ("run_after_ms", lambda now_ms: now_ms // 1000 + 60, "seems to be in seconds"),
        ("expires_at_ms", lambda now_ms: now_ms // 1000 + 60, "seems to be in seconds"),
        ("delay_ms", lambda _: YEAR_MS + 1, "a job waits for a year (366 days) at most"),
    ],
)
async def test_a_time_too_far_ahead_or_in_another_unit_is_refused_with_what_is_wrong(
    caller: Caller, clock: ManualClock, field: str, value_of: Callable[[int], int], says: str
) -> None:
    jobs = [{"body": "x"}, {"body": "y", field: value_of(clock.now_ms())}]
    problem = await caller.refused("POST", f"{JOBS}/batch", {"jobs": jobs})
    assert (problem["status"], problem["reason"]) == (400, "INVALID_ARGUMENT")
    assert says in problem["detail"]
    assert await caller.ok("GET", f"{JOBS}/count") == {"jobs": 0, "incomplete": False}


async def test_a_repeat_with_an_idempotency_key_stores_nothing(caller: Caller) -> None:
    first = await caller.send("POST", JOBS, b"x", idempotency_key="order-1")
    second = await caller.send("POST", JOBS, b"x", idempotency_key="order-1")
    assert second.json == first.json
    assert await caller.ok("GET", f"{JOBS}/count") == {"jobs": 1, "incomplete": False}
    problem = (await caller.send("POST", JOBS, b"y", idempotency_key="order-1")).json
    assert (problem["status"], problem["reason"]) == (422, "REQUEST_KEY_CONFLICT")


@pytest.mark.parametrize(("span", "moment"), [("delay_ms", "run_after_ms"), ("expires_in_ms", "expires_at_ms")])
async def test_a_request_with_an_idempotency_key_says_moments(
    caller: Caller, clock: ManualClock, span: str, moment: str
) -> None:
    single = await caller.send("POST", f"{JOBS}?{span}=60000", b"x", idempotency_key="order-1")
    batch = json.dumps({"jobs": [{"body": "x", span: 60_000}]}).encode()
    several = await caller.send(
        "POST", f"{JOBS}/batch", batch, content_type="application/json", idempotency_key="order-1"
    )
    for answer, field in ((single, span), (several, f"jobs[0].{span}")):
        assert (answer.status, answer.json["field"]) == (400, field)
    url = f"{JOBS}?{moment}={clock.now_ms() + 60_000}"
    repeats = [await caller.send("POST", url, b"x", idempotency_key="k") for _ in range(2)]
    assert repeats[0].status < 400
    assert repeats[0].json == repeats[1].json


async def test_a_job_that_is_not_there_is_a_404(caller: Caller) -> None:
    for path in ("/v1/jobs/mail:s1:p1:1", "/v1/jobs/mail:s1:p1:1/body"):
        assert (await caller.refused("GET", path))["reason"] == "JOB_NOT_FOUND"
    assert (await caller.refused("GET", "/v1/jobs/nonsense"))["reason"] == "DESCRIPTOR_INVALID"


@pytest.mark.parametrize("chosen", ["", "&task=send"])
async def test_jobs_are_listed_in_pages(caller: Caller, chosen: str) -> None:
    tasks = ["send", "archive", "send", "send", "archive", "send", "send"]
    names = [(await enqueue(caller, "x", headers={"pinlater-task": task}))[0] for task in tasks]
    seen, query = [], f"limit=2&bodies=true{chosen}"
    while query:
        page = await caller.ok("GET", f"{JOBS}?{query}")
        assert (len(page["jobs"]) <= 2, page["incomplete"]) == (True, False)
        assert all(job["body"] == "x" for job in page["jobs"])
        seen += [job["descriptor"] for job in page["jobs"]]
        after = page["continuation"]
        query = after and f"limit=2&bodies=true{chosen}&continuation={after}"
    wanted = [name for name, task in zip(names, tasks, strict=True) if task == "send" or not chosen]
    assert seen == wanted[::-1]


async def test_a_request_compares_a_bounded_number_of_jobs_and_the_next_one_goes_on(caller: Caller) -> None:
    rare = await enqueue(caller, "a", headers={"pinlater-task": "rare"})
    await enqueue(caller, *"x" * COMPARED_MAX)
    rare += await enqueue(caller, "b", headers={"pinlater-task": "rare"})
    first = await caller.ok("GET", f"{JOBS}?task=rare")
    assert ([job["descriptor"] for job in first["jobs"]], first["incomplete"]) == (rare[1:], False)
    second = await caller.ok("GET", f"{JOBS}?task=rare&continuation={first['continuation']}")
    assert [job["descriptor"] for job in second["jobs"]] == rare[:1]
    assert (second["continuation"], second["incomplete"]) == (None, False)


async def test_jobs_are_counted_by_state_priority_time_and_body(caller: Caller) -> None:
    await enqueue(caller, "apple", "pear")
    await enqueue(caller, "plum", priority=2)
    await enqueue(caller, "fig", delay_ms=60_000)
    counts = {}
    for query in ("", "?priority=2", "?future=true", "?regex=^p", "?state=failed"):
        counts[query] = (await caller.ok("GET", f"{JOBS}/count{query}"))["jobs"]
    assert counts == {"": 3, "?priority=2": 1, "?future=true": 1, "?regex=^p": 2, "?state=failed": 0}


async def test_jobs_are_cancelled_and_retried_only_if_told_so(caller: Caller) -> None:
    waiting, failed = await enqueue(caller, "a", "b")
    await fail(caller, failed)
    await caller.ok("POST", f"{JOBS}/release", {"jobs": [{"descriptor": waiting, "token": "x"}]})
    results = await caller.ok("POST", f"{JOBS}/cancel", {"descriptors": [waiting, failed, "mail:s1:p1:1"]})
    assert [result["outcome"] for result in results["results"]] == ["applied", "already_final", "not_found"]
    done = await caller.ok("POST", f"{JOBS}/retry-failed")
    assert done == {"jobs": 1, "incomplete": False, "continuation": None}
    again = {"cancelled": True, "attempts": 3, "limit": 10, "priority": 1, "delay_ms": 1000}
    assert (await caller.ok("POST", f"{JOBS}/retry-failed", again))["jobs"] == 1
    job = await caller.ok("GET", f"/v1/jobs/{waiting}")
    assert (job["state"], job["attempts_remaining"]) == ("pending", 3)


async def test_named_jobs_run_now(caller: Caller, clock: ManualClock) -> None:
    [later] = await enqueue(caller, "a", delay_ms=60_000)
    results = await caller.ok("POST", f"{JOBS}/run-now", {"descriptors": [later]})
    assert [result["outcome"] for result in results["results"]] == ["applied"]
    assert (await caller.ok("GET", f"/v1/jobs/{later}"))["run_after_ms"] <= clock.now_ms()


async def test_named_jobs_get_another_priority(caller: Caller) -> None:
    first, second = await enqueue(caller, "a", "b")
    wanted = {"descriptors": [first, "mail:s1:p1:1"], "priority": 3}
    for _ in range(2):  # a repeat is safe
        moved, missing = (await caller.ok("POST", f"{JOBS}/change-priority", wanted))["results"]
        assert moved == {
            "descriptor": first,
            "outcome": "applied",
            "moved_to": first.replace(":p1:", ":p3:"),
            "holder": None,
            "held_since_ms": None,
        }
        assert (missing["outcome"], missing["moved_to"]) == ("not_found", None)
    assert (await caller.ok("GET", f"/v1/jobs/{moved['moved_to']}"))["state"] == "pending"
    await caller.ok("POST", f"{JOBS}/dequeue", {"limit": 1})
    [held] = (await caller.ok("POST", f"{JOBS}/change-priority", {"descriptors": [second], "priority": 2}))["results"]
    assert (held["outcome"], held["moved_to"]) == ("stale_claim", None)
    assert held["holder"]
    assert held["held_since_ms"]
    error = await caller.refused("POST", f"{JOBS}/change-priority", {"descriptors": [first], "priority": 9})
    assert error["code"] == "PRIORITY_NOT_SUPPORTED"


async def test_the_jobs_of_one_shard_are_listed(caller: Caller) -> None:
    [name] = await enqueue(caller, "a")
    for shard in ("1", "s1"):
        found = await caller.ok("GET", f"{JOBS}?shard={shard}")
        assert [job["descriptor"] for job in found["jobs"]] == [name]
    error = await caller.refused("GET", f"{JOBS}?shard=7")
    assert (error["status"], error["reason"]) == (400, "SHARD_NOT_FOUND")


async def test_jobs_are_deleted_by_state_and_by_name(caller: Caller) -> None:
    first, second, third = await enqueue(caller, "a", "b", "c")
    assert (await caller.ok("POST", f"{JOBS}/delete", {"descriptors": [first]}))["jobs"] == 1
    assert (await caller.ok("DELETE", f"{JOBS}?state=pending&regex=b&limit=5"))["jobs"] == 1
    found = await caller.ok("POST", "/v1/jobs/lookup", {"descriptors": [first, second, third]})
    assert [job["descriptor"] for job in found["jobs"]] == [third]


async def test_the_reasons_why_a_job_waits_come_with_their_figures(caller: Caller, clock: ManualClock) -> None:
    _, second = await enqueue(caller, "a", "b")
    await caller.ok("POST", "/v1/queues/mail/pause")
    clock.advance(seconds=7)
    answer = await caller.ok("GET", f"/v1/jobs/{second}/explain")
    assert (answer["descriptor"], answer["state"]) == (second, "pending")
    paused, worker, behind = answer["reasons"]
    by = "console for 127.0.0.1 (unverified)"  # a caller of the API says nothing of itself, so its address has to do
    assert (paused["code"], paused["figures"]["paused_by"]) == ("paused", by)
    assert paused["text"].startswith(f"The queue is paused by {by}, since 2026-")
    assert (worker["code"], worker["figures"]["servers"]) == ("no_worker", 1)
    assert (behind["code"], behind["figures"]["jobs_ahead"]) == ("behind", 1)


async def test_a_missing_job_can_not_be_explained(caller: Caller) -> None:
    answer = await caller.get("/v1/jobs/mail:s1:p1:7/explain")
    assert (answer.status, answer.json["reason"]) == (404, "JOB_NOT_FOUND")
