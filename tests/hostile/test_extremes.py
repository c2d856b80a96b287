"""The extremes of every number in every request: each call gets a value or a clear error, and the queue works afterwards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.servers import PinLaterServer, serve
from tests import structs as types
from tests.compiled import ttypes
from tests.hostile.callers import HostileCaller
from tests.hostile.test_loop_databases import mysql_store, redis_store

pytestmark = pytest.mark.crash

I64 = (-(2**63), -1, 0, 1, 2**31, 2**53 + 1, 253_402_300_800_000, 2**63 - 1)
I32 = (-(2**31), -1, 0, 1, 2**31 - 1)
BYTE = (-128, -1, 0, 127)
DOUBLE = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308, -1e308)


def sqlite_store(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--store", f"sqlite:{request.getfixturevalue('tmp_path')}/store.db")


@pytest.fixture(params=[sqlite_store, mysql_store, redis_store], ids=["sqlite", "mysql", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PinLaterServer]:
    with serve(*request.param(request), log=tmp_path / "log") as server:
        yield server


def job(**fields: Any) -> types.Job:
    return types.Job(b"body", **fields)


def claim(caller: HostileCaller) -> tuple[str, str]:
    """Stores and claims a job; its descriptor and token."""
    caller.call("enqueueJobs", request=types.EnqueueRequest("q", [job(attempts_allowed=5)]))
    found = caller.call("dequeueJobs", request=types.DequeueRequest("q", 1)).value.metadata
    descriptor, metadata = next(iter(found.items()))
    return descriptor, metadata.token


def calls(caller: HostileCaller) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field of each request with each of its extremes."""
    for field, values in {
        "priority": BYTE,
        "run_after_ms": I64,
        "attempts_allowed": I32,
        "unique_for_ms": I64,
        "claim_timeout_ms": I64,
        "expires_at_ms": I64,
    }.items():
        for number, value in enumerate(values):
            more = {"unique_key": f"{field}{number}", "unique_scope": 2} if field == "uniqueForMillis" else {}
            one = job(**{field: value}, **more)
            yield "enqueueJobs", {"request": types.EnqueueRequest("q", [one])}
            yield "dequeueJobs", {"request": types.DequeueRequest("q", 100)}
            yield "scanJobs", {"request": types.ScanRequest("q", 0, future=True)}
    for value in I32:
        yield "dequeueJobs", {"request": types.DequeueRequest("q", value)}
        yield "dequeueJobs", {"request": types.DequeueRequest("q", value, dry_run=True)}
        yield "scanJobs", {"request": types.ScanRequest("q", 0, limit=value)}
        yield "deleteJobs", {"request": types.DeleteRequest("q", 3, limit=value)}
        yield "retryFailedJobs", {"request": types.RetryRequest("q", limit=value)}
        yield "retryFailedJobs", {"request": types.RetryRequest("q", attempts=value)}
        if value <= 1:
            yield "dequeueJobs", {"request": types.DequeueRequest("q", 1, wait_ms=value)}
    for coverage in DOUBLE:
        yield "dequeueJobs", {"request": types.DequeueRequest("q", 1, coverage=coverage)}
    for value in BYTE:
        yield "getJobCount", {"request": types.CountRequest("q", 0, value)}
        yield "scanJobs", {"request": types.ScanRequest("q", 0, value)}
        yield "deleteJobs", {"request": types.DeleteRequest("q", 3, value)}
        yield "retryFailedJobs", {"request": types.RetryRequest("q", value)}
    for value in I64:
        yield (
            "scanJobs",
            {"request": types.ScanRequest("q", 0, paged=True, continuation=f"{value}.{2**63}")},
        )
        yield "scanJobs", {"request": types.ScanRequest("q", 3, paged=True, continuation=f"{value}.1.x")}
        info = types.Ack(claim(caller)[0], retry_delay_ms=value)
        yield "ackJobs", {"request": types.AckBatch("q", None, [info])}
        yield (
            "retryFailedJobs",
            {"request": types.RetryRequest("q", run_after_ms=value)},
        )
        descriptor, token = claim(caller)
        request = types.ReleaseRequest("q", [types.Claim(descriptor, token)], delay_ms=value)
        yield "releaseJobs", {"request": request}
        for move in (False, True):
            descriptor, token = claim(caller)
            one_checkpoint = types.Checkpoint(descriptor, b"new", move, run_after_ms=value, token=token)
            yield "checkpointJobsFenced", {"request": types.CheckpointBatch("q", [one_checkpoint])}
    for value, move in itertools.product(I32, (False, True)):
        descriptor, token = claim(caller)
        one_checkpoint = types.Checkpoint(descriptor, b"new", move, attempts_allowed=value, token=token)
        yield "checkpointJobsFenced", {"request": types.CheckpointBatch("q", [one_checkpoint])}
    for number in I64:
        for tail in (f"s1:p1:{number}", f"s1:p{number}:1", f"s{number}:p1:1"):
            yield "lookupJobs", {"request": types.LookupRequest([f"q:{tail}"])}
            yield "cancelJobs", {"queue": "q", "descriptors": [f"q:{tail}"]}


def settings() -> Iterator[types.QueueConfig]:
    for value in DOUBLE:
        yield types.QueueConfig(max_jobs_per_second=value)
    for field in ("claim_timeout_ms", "succeeded_ttl_ms", "failed_ttl_ms", "max_backlog", "default_expiry_ms"):
        for value in I64:
            yield types.QueueConfig(**{field: value})
    for value in I32:
        yield types.QueueConfig(default_attempts=value)


def checked(caller: HostileCaller, method: str, arguments: dict[str, Any]) -> Any:
    """Carries it out: its answer is a value or an error of its caller's."""
    reply = caller.call(method, **arguments)
    assert reply.application_error is None, (method, arguments, reply.application_error)
    assert reply.exception is None or reply.exception.detail not in {"INTERNAL", None}, (method, arguments, reply)
    return reply


@pytest.mark.timeout(300)
def test_no_number_in_a_request_is_too_much_for_the_store(server: PinLaterServer, tmp_path: Path) -> None:
    with HostileCaller(server) as caller:
        caller.call("createQueue", name="q")
        for method, arguments in calls(caller):
            checked(caller, method, arguments)
        for state in range(4):
            checked(caller, "scanJobs", {"request": types.ScanRequest("q", state, limit=100)})
        checked(caller, "getQueueStats", {"queues": []})
        claim(caller)
    assert b"Traceback" not in (tmp_path / "log").read_bytes()


@pytest.mark.timeout(300)
def test_a_queue_works_after_every_setting_that_was_taken(server: PinLaterServer, tmp_path: Path) -> None:
    with HostileCaller(server) as caller:
        caller.call("createQueue", name="q")
        for config in settings():
            checked(caller, "configureQueue", {"queue": "q", "config": config})
            checked(caller, "getQueueConfig", {"queue": "q"})
            checked(caller, "enqueueJobs", {"request": types.EnqueueRequest("q", [job(attempts_allowed=None)])})
            found = checked(caller, "dequeueJobs", {"request": types.DequeueRequest("q", 1)}).value
            if found is not None and found.jobs:
                done = [types.Ack(each) for each in found.jobs]
                checked(caller, "ackJobs", {"request": types.AckBatch("q", done)})
        checked(caller, "configureQueue", {"queue": "q", "config": types.QueueConfig()})
        claim(caller)
    assert b"Traceback" not in (tmp_path / "log").read_bytes()


ALIKE = (
    "key",
    "KEY",
    "key ",
    " key",
    "kéy",
    "ke\u0301y",
    "key\0",
    "key\u200b",
    "k\U0001f511y",
    "k\U0001f5ddy",
    "\uff4bey",
    "ke\u00ady",
)


def test_texts_that_a_database_may_take_for_the_same_are_not(server: PinLaterServer, tmp_path: Path) -> None:
    """Case, spaces at the end, accents, characters without width or beyond the basic plane."""
    with HostileCaller(server) as caller:
        for name in ("q", "Q"):
            assert checked(caller, "createQueue", {"name": name}).exception is None
        assert checked(caller, "getQueueNames", {}).value == {"q", "Q"}
        found = []
        for key in ALIKE:
            one = types.EnqueueRequest("q", [job(unique_key=key, unique_scope=1, custom_status=key)], key)
            found += checked(caller, "enqueueJobs", {"request": one}).value.descriptors
        assert len(set(found)) == len(ALIKE)
        assert checked(caller, "getJobCount", {"request": types.CountRequest("Q", 0)}).value == 0
        jobs = checked(caller, "lookupJobs", {"request": types.LookupRequest(found)}).value
        assert [jobs[each].unique_key for each in found] == list(ALIKE)
        assert [jobs[each].custom_status for each in found] == list(ALIKE)
        for other in ("Q" + found[0][1:], found[0].upper(), found[0] + " "):
            cancelled = caller.call("cancelJobs", queue="Q", descriptors=[other])
            assert cancelled.exception is not None or cancelled.value[0].outcome == ttypes.Outcome.NOT_FOUND
    assert b"Traceback" not in (tmp_path / "log").read_bytes()


@pytest.mark.parametrize("text", ["x" * 2**20, "\0" * 5_000, "\U0001f511" * 6_000], ids=["long", "nul", "wide"])
def test_no_text_in_a_request_is_too_much_for_the_store(server: PinLaterServer, tmp_path: Path, text: str) -> None:
    with HostileCaller(server) as caller:
        caller.call("createQueue", name="q")
        for number in (5_000, len(text)):
            part = text[:number]
            for fields in (
                {"custom_status": part},
                {"headers": {"a": part}},
                {"headers": {part: "a"}},
                {"unique_key": part},
            ):
                checked(caller, "enqueueJobs", {"request": types.EnqueueRequest("q", [job(**fields)])})
            checked(caller, "enqueueJobs", {"request": types.EnqueueRequest("q", [job()], part)})
            for fields in (
                {"append_status": part},
                {"error_type": part},
                {"error_text": part},
                {"token": part},
            ):
                info = types.Ack(claim(caller)[0], **fields)
                checked(caller, "ackJobs", {"request": types.AckBatch("q", None, [info])})
            for said in ({"prepend_status": part}, {"token": part}, {"new_body": part.encode()}):
                one = types.Checkpoint(claim(caller)[0], **said)
                checked(caller, "checkpointJobsFenced", {"request": types.CheckpointBatch("q", [one])})
            refs = [types.Claim(claim(caller)[0], part)]
            checked(caller, "heartbeatClaims", {"request": types.ClaimsRequest("q", refs)})
            checked(caller, "releaseJobs", {"request": types.ReleaseRequest("q", refs)})
        for state in range(4):
            checked(caller, "scanJobs", {"request": types.ScanRequest("q", state, limit=100)})
    assert b"Traceback" not in (tmp_path / "log").read_bytes()
