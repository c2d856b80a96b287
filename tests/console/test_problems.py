"""Every refusal is a problem that says what is wrong, where, and whether a repeat helps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from pinlater.client import AsyncClient, errors
from pinlater.client.errors import error_for
from pinlater.console import reading
from pinlater.console.app import Console
from pinlater.console.problems import problem_of, response_of
from pinlater.console.reading import BODY_BYTES_MAX, ITEMS_MAX
from pinlater.domain.errors import ErrorCode
from tests.console.caller import Caller
from tests.databases.ports import free_port

JOBS = "/v1/queues/mail/jobs"


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "detail"),
    [
        ("GET", f"{JOBS}?limit=many", None, "limit", "Expected `int`, got `str`"),
        ("POST", f"{JOBS}?delay_ms=5s", None, "delay_ms", "got `str`; it is in milliseconds, such as 5000"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"body": "a", "delay_ms": "5s"}]}, "jobs[0].delay_ms", "such as 5000"),
        ("GET", f"{JOBS}?limit=0", None, "limit", ">= 1"),
        ("GET", f"{JOBS}?state=lost", None, "state", "value 'lost'; possible: failed, in_progress, pending"),
        ("GET", f"{JOBS}?limt=1", None, "limt", "There is no parameter `limt`; did you mean `limit`?"),
        ("POST", f"{JOBS}?attempts=3", None, "attempts", "no parameter `attempts`; did you mean `attempts_allowed`?"),
        ("POST", f"{JOBS}?max_retries=3", None, "max_retries", "did you mean `attempts_allowed`?"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"body": "a", "delay": 1}]}, "jobs[0].delay", "did you mean `delay_ms`?"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"runAfterMs": 1}]}, "jobs[0].runAfterMs", "did you mean `run_after_ms`?"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"expires": 1}]}, "jobs[0].expires", "`expires_at_ms` or `expires_in_ms`?"),
        ("POST", f"{JOBS}/dequeue", {"acks": [{"ok": True}]}, "acks[0].ok", "There is no field `ok`"),
        ("POST", f"{JOBS}/ack", {"jobs": [{"id": "x"}]}, "jobs[0].id", "did you mean `descriptor`?"),
        ("PATCH", "/v1/queues/mail/settings", {"rate": 1}, "rate", "did you mean `max_jobs_per_second`?"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"key": 1}]}, "jobs[0].key", "mean `unique_key` or `ordering_key`?"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"run-after-ms": 1}]}, "jobs[0].run-after-ms", "mean `run_after_ms`?"),
        ("POST", f"{JOBS}?priorty=1", None, "priorty", "did you mean `priority`?"),
        ("GET", f"{JOBS}?limit=1&limit=2", None, "limit", "given twice"),
        ("GET", f"{JOBS}?priority=null", None, "priority", "'null' is not a value"),
        ("DELETE", JOBS, None, "state", "The parameter `state` is missing"),
        ("GET", "/v1/history?from_ms=1", None, "queue", "The parameter `queue` is missing"),
        ("POST", f"{JOBS}?priority=200", None, "priority", "<= 127"),
        ("POST", f"{JOBS}?header=a", None, "header", "NAME=VALUE"),
        ("POST", f"{JOBS}?run_after_ms=1&delay_ms=1", None, "delay_ms", "exclude each other"),
        ("POST", f"{JOBS}?expires_at_ms=1&expires_in_ms=1", None, "expires_in_ms", "exclude each other"),
        ("POST", f"{JOBS}?unique_for_ms=1", None, "unique_for_ms", "needs unique_key"),
        ("POST", f"{JOBS}?unique_key=a&unique_scope=time", None, "unique_for_ms", "must be given together"),
        ("POST", f"{JOBS}/batch", {"jobs": []}, "jobs", "length >= 1"),
        (
            "POST",
            f"{JOBS}/batch",
            {"jobs": [{"body": "a"}, {"boddy": "b"}]},
            "jobs[1].boddy",
            "There is no field `boddy`",
        ),
        ("POST", f"{JOBS}/batch", {"jobs": [{"body": 1}]}, "jobs[0].body", "Expected `str`, got `int`"),
        ("POST", f"{JOBS}/batch", {"jobs": [{}]}, "jobs[0].body", "a job needs"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"body": "", "body_json": 1}]}, "jobs[0].body_json", "exclude each other"),
        ("POST", f"{JOBS}/batch", {"jobs": [{"body_base64": "?"}]}, "jobs[0].body_base64", "not base64"),
        (
            "POST",
            f"{JOBS}/batch",
            {"jobs": [{"body": "", "delay_ms": 1, "run_after_ms": 1}]},
            "jobs[0].delay_ms",
            "exclude",
        ),
        ("POST", f"{JOBS}/dequeue", {"wait_ms": 60_001}, "wait_ms", "<= 60000"),
        ("POST", f"{JOBS}/dequeue", [1], "body", "Expected `object`, got `array`"),
        ("POST", f"{JOBS}/pause", {"now": 1}, None, None),
        ("POST", "/v1/queues/mail/pause", {"now": True}, "now", "There is no field `now`"),
        ("PATCH", "/v1/queues/mail/settings", {"max_jobs_per_second": -1}, "max_jobs_per_second", ">= 0"),
        ("PATCH", "/v1/queues/mail/settings", {"retry_place": "end"}, "retry_place", "possible: in_place, to_back"),
        ("POST", f"{JOBS}?ordering_key=%ff", None, "ordering_key", "not UTF-8"),
        ("POST", f"{JOBS}?unique_key=a%fe", None, "unique_key", "not UTF-8"),
        ("GET", f"{JOBS}?%ff=1", None, "query", "not UTF-8"),
    ],
)
async def test_a_mistake_names_its_field(
    caller: Caller, method: str, path: str, body: Any, field: str | None, detail: str | None
) -> None:
    problem = await caller.refused(method, path, body)
    if field is None or detail is None:
        assert problem["reason"] == "NOT_FOUND"
        return
    assert (problem["status"], problem["reason"], problem["retryable"]) == (400, "INVALID_ARGUMENT", False)
    assert problem["field"] == field
    assert detail in problem["detail"]


@pytest.mark.parametrize("inner", ["x", "[", "a.", " - at `$."])
async def test_a_long_name_of_a_field_costs_little_and_is_cut_in_the_answer(caller: Caller, inner: str) -> None:
    """Also one that looks like the place of an error, which is searched for the fields there."""
    name = "colour` - at `$." + inner * (20_000 // len(inner))
    for method, path, body in (
        ("GET", f"{JOBS}?{quote(name)}=1", None),
        ("POST", "/v1/queues", {name: 1}),
        ("POST", f"{JOBS}/batch", {"jobs": [{"body": "a", name: 1}]}),
    ):
        problem = await caller.refused(method, path, body)
        assert (problem["status"], problem["reason"]) == (400, "INVALID_ARGUMENT")
        assert len(problem["field"]) + len(problem["detail"]) < 1_000


async def test_the_place_of_a_long_name_is_told(caller: Caller) -> None:
    problem = await caller.refused("POST", f"{JOBS}/batch", {"jobs": [{"body": "a"}, {"x" * 1_000_000: 1}]})
    assert problem["field"].startswith("jobs[1].xxx")
    assert problem["detail"].startswith("There is no field `xxx")


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"limit": 1} x', b"[" * 100_000])
async def test_what_is_no_json_is_refused(caller: Caller, body: bytes) -> None:
    for path in (f"{JOBS}/dequeue", JOBS):
        answer = await caller.send("POST", path, body, content_type="application/json")
        assert (answer.status, answer.json["field"]) == (400, "body")


async def test_text_is_utf_8(caller: Caller) -> None:
    answer = await caller.send("POST", JOBS, b"\xff", content_type="text/plain")
    assert (answer.status, answer.json["field"]) == (400, "body")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (JOBS, "application/x-www-form-urlencoded"),
        (JOBS, "text/plain; charset=latin-1"),
        (f"{JOBS}/dequeue", "text/plain"),
        (f"{JOBS}/dequeue", "application/json; charset=utf-16"),
    ],
)
async def test_another_content_type_is_refused_with_those_that_are_possible(
    caller: Caller, path: str, kind: str
) -> None:
    answer = await caller.send("POST", path, b"{}", content_type=kind)
    assert (answer.status, answer.json["field"]) == (415, "Content-Type")
    assert "application/json" in answer.json["detail"]


async def test_an_unknown_path_and_a_wrong_method_are_problems(caller: Caller) -> None:
    for path in ("/other", "/v2", "/v1/queues/"):
        refused = await caller.refused("GET", path)
        assert (refused["status"], "/v1/openapi.json" in refused["detail"]) == (404, True)
    answer = await caller.send("PUT", JOBS)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST", "DELETE"}
    assert answer.json["detail"].startswith("This path takes DELETE, GET, HEAD, POST only; /v1/openapi.json")


async def test_a_body_beyond_the_bound_is_refused_before_it_is_read(caller: Caller) -> None:
    announced = await caller.send("POST", JOBS, b"", content_length=str(BODY_BYTES_MAX + 1))
    piece = bytes(1024 * 1024)
    came = await caller.send("POST", JOBS, *[piece] * 16, b"x")
    for answer in (announced, came):
        assert (answer.status, answer.json["reason"], answer.json["field"]) == (413, "BODY_TOO_LARGE", "body")


async def test_a_job_beyond_the_bound_of_the_server_is_refused(caller: Caller) -> None:
    answer = await caller.send("POST", JOBS, bytes(100_001))
    assert (answer.status, answer.json["reason"], answer.json["code"]) == (413, "BODY_TOO_LARGE", "UNKNOWN")


async def test_a_list_with_too_many_items_is_refused_before_they_are_made(caller: Caller) -> None:
    many = b'{"jobs": [' + b"{}," * ITEMS_MAX + b"{}]"
    answer = await caller.send("POST", f"{JOBS}/ack", many + b', "jobs": []}')
    assert (answer.status, answer.json["field"], answer.json["detail"]) == (
        400,
        "jobs",
        "Expected `array` of length >= 1",
    )
    answer = await caller.send("POST", f"{JOBS}/ack", many + b"}")
    assert (answer.status, answer.json["reason"], answer.json["field"]) == (413, "TOO_MANY", "jobs")


async def test_many_braces_in_the_body_of_a_job_are_no_items(caller: Caller) -> None:
    data = b'{"jobs": [{"body": "' + b"{" * ITEMS_MAX + b'"}]}'
    assert (await caller.send("POST", f"{JOBS}/batch", data)).status == 201


async def test_bodies_together_are_bounded(console: Console, caller: Caller) -> None:
    console.budget.free_bytes = -1
    answer = await caller.send("POST", JOBS, bytes(20_000))
    assert (answer.status, answer.json["reason"], answer.headers["retry-after"]) == (503, "TOO_MANY_WAITING", "1")
    assert console.budget.free_bytes == -1


async def test_a_body_that_does_not_come_is_given_up(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BODY_READ_S", 0.01)
    answer = await caller.interrupted("POST", JOBS, b"x", stalls=True)
    assert (answer.status, answer.json["reason"]) == (408, "REQUEST_TIMEOUT")


async def test_a_caller_that_disconnects_in_its_body_gets_nothing(caller: Caller) -> None:
    gone = asyncio.Event()
    gone.set()
    assert (await caller.interrupted("POST", JOBS, b"x", gone=gone, stalls=True)).status == 499
    assert (await caller.ok("GET", f"{JOBS}/count"))["jobs"] == 0


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/queues/other/jobs/count", 404, "QUEUE_NOT_FOUND"),
        ("/v1/queues/other/stats", 404, "QUEUE_NOT_FOUND"),
        ("/v1/search?text=x&queue=other", 404, "QUEUE_NOT_FOUND"),
        (f"{JOBS}?continuation=nonsense", 400, "CONTINUATION_INVALID"),
        (f"{JOBS}/count?priority=9", 400, "PRIORITY_NOT_SUPPORTED"),
        (f"{JOBS}/count?regex=(", 400, "UNKNOWN"),
    ],
)
async def test_what_the_server_refuses_keeps_its_code(caller: Caller, path: str, status: int, code: str) -> None:
    problem = await caller.refused("GET", path)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:pinlater:error:{problem['reason']}"


async def test_names_of_queues_are_checked(caller: Caller) -> None:
    for name in ("", "a-b", "ü", "x" * 65):
        problem = await caller.refused("POST", "/v1/queues", {"name": name})
        assert (problem["status"], problem["code"][:10]) == (400, "QUEUE_NAME")


@pytest.mark.parametrize(
    ("code", "detail", "retryable", "status"),
    [
        (ErrorCode.ENQUEUE_REJECTED, "QUEUE_FULL", True, 429),
        (ErrorCode.ENQUEUE_REJECTED, "STORE_FULL", True, 507),
        (ErrorCode.ENQUEUE_REJECTED, "ENQUEUE_REJECTED", True, 503),
        (ErrorCode.UNKNOWN, "TOO_MANY_QUEUES", False, 409),
        (ErrorCode.UNKNOWN, "TOO_MANY_WAITING", True, 503),
        (ErrorCode.UNKNOWN, "DRAINING", True, 503),
        (ErrorCode.UNKNOWN, "INTERNAL", False, 500),
        (ErrorCode.UNKNOWN, "REGEX_TOO_COSTLY", False, 400),
        (ErrorCode.NO_HEALTHY_SHARDS, "NO_HEALTHY_SHARDS", True, 503),
        (ErrorCode.SHARD_CONNECTION_FAILED, "SHARD_UNREACHABLE", True, 503),
        (ErrorCode.SHARD_CONNECTION_FAILED, "OUTCOME_UNKNOWN", True, 504),
    ],
)
def test_each_error_of_a_server_has_its_status(code: ErrorCode, detail: str, retryable: bool, status: int) -> None:
    problem = problem_of(error_for(code, "text", detail, retryable, 1500))
    assert (problem.status, problem.code, problem.reason) == (status, code.name, detail)
    assert response_of(problem).headers.get("retry-after") == ("2" if retryable else None)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (errors.DeadlineExceeded("late"), 504, "DEADLINE_EXCEEDED"),
        (errors.ConnectionLost("lost"), 504, "CONNECTION_LOST"),
        (errors.UnknownMethod("old", detail="UNKNOWN_METHOD"), 501, "UNKNOWN_METHOD"),
    ],
)
def test_a_call_without_an_answer_has_a_reason(error: errors.PinLaterError, status: int, reason: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.reason, problem.code) == (status, reason, "")


@pytest_asyncio.fixture
async def alone() -> AsyncIterator[Caller]:
    """A caller of a console without a server."""
    async with AsyncClient(f"127.0.0.1:{free_port()}", retries=0, wait_for_servers=False) as client:
        yield Caller(Console(client, lambda: 0, None).app)


async def test_a_console_without_servers_says_so(alone: Caller) -> None:
    problem = await alone.refused("GET", "/v1/queues")
    assert (problem["status"], problem["reason"], problem["retryable"]) == (503, "SERVER_UNREACHABLE", True)


async def test_a_defect_of_the_console_is_a_500_without_its_text(
    caller: Caller, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> list[str]:
        raise RuntimeError("secret")

    monkeypatch.setattr(client, "queue_names", broken)
    with pytest.raises(RuntimeError):  # for uvicorn's log
        await caller.get("/v1/queues")
    [answer] = caller.unchecked
    assert (answer.status, answer.json["reason"]) == (500, "INTERNAL_SERVER_ERROR")
    assert b"secret" not in answer.body
