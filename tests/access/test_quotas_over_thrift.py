"""Quotas over sockets: what is refused, what still passes, for which token connections count, and that nothing is lost by a refusal."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

from pinlater.client import AsyncClient, Client
from pinlater.client.errors import QuotaExceeded
from pinlater.domain.access import Role
from pinlater.domain.job import JobState
from pinlater.server.access.quotas import OwnQuota, Quota
from pinlater.server.features.all import METHODS
from pinlater.tls.settings import TlsSettings
from pinlater.wire.codec import encode_call
from pinlater.wire.generated import structs as types
from pinlater.wire.generated.structs import CountRequest
from tests.access.conftest import GuardedServer
from tests.access.quota_callers import LONG_POLL, QUEUE, TokenCaller, connect, jobs_of, until
from tests.access.test_roles_over_thrift import arguments
from tests.compiled import ttypes
from tests.tls.certificates import Authority

Start = Callable[..., Awaitable[GuardedServer]]
KIB = 1024
CONNECTIONS, OVER = "CONNECTION_QUOTA_EXCEEDED", "QUOTA_EXCEEDED"
LONG_ID = "x" * 150_000  # makes a request long in front of its token


def quota(connections: int | None = None, polls: int | None = None, bytes_in_flight: int | None = None) -> OwnQuota:
    return OwnQuota(connections, polls, bytes_in_flight)


async def poll(server: GuardedServer, token: str, name: str, **more: Any) -> TokenCaller:
    """A caller whose dequeue waits for a job."""
    before = server.use(name).polls
    caller = await connect(server, token)
    caller.send("dequeueJobs", request=LONG_POLL, **more)
    await until(lambda: server.use(name).polls == before + 1)
    return caller


async def stored(server: GuardedServer) -> int:
    """How many jobs wait in the queue."""
    waiting = CountRequest(QUEUE, JobState.PENDING, None, False, None)
    return (await server.core.service.job_queries.count_jobs(waiting)).jobs


# --- connections ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("encrypted", [False, True])
async def test_one_connection_too_many_of_a_token_is_refused_and_closed_and_no_other_caller_notices(
    start: Start, certificate_files: TlsSettings, authority: Authority, encrypted: bool
) -> None:
    guarded = await start(tls=certificate_files if encrypted else None)
    tls = ssl.create_default_context(cafile=str(authority.file)) if encrypted else None
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(connections=2))
    other = guarded.token(Role.PRODUCE)
    first, second = [await connect(guarded, billing, tls=tls) for _ in range(2)]
    for caller in (first, second):
        assert await caller.refusal("createQueue", name="q") == ""
    third = await connect(guarded, billing, tls=tls)
    error = (await third.call("enqueueJobs", request=jobs_of(b"body"))).exception
    assert (error.error_code, error.detail, error.retryable, error.retry_after_ms) == (500, CONNECTIONS, True, 1_000)
    assert "token billing" in error.message
    assert "max_connections" in error.message
    assert "quota of 2 connections" in error.message
    assert await third.closed() == b""
    assert await stored(guarded) == 0
    caller = await connect(guarded, other, tls=tls)
    assert await caller.refusal("createQueue", name="q") == ""
    assert await first.refusal("createQueue", name="q") == ""
    second.close()
    await until(lambda: guarded.use("billing").connections == 1)
    again = await connect(guarded, billing, tls=tls)
    assert await again.refusal("createQueue", name="q") == ""
    for one in (first, caller, again):
        one.close()
    await until(lambda: not any(use.connections or use.bytes_held for use in guarded.control.uses()))


async def test_a_client_that_connects_again_and_again_holds_no_connection_and_writes_one_line(
    guarded: GuardedServer, caplog: pytest.LogCaptureFixture
) -> None:
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(connections=1))
    first = await connect(guarded, billing)
    await first.refusal("createQueue", name="q")
    with caplog.at_level(logging.WARNING, "pinlater.server.thrift.quota_guard"):
        for _ in range(50):
            caller = await connect(guarded, billing)
            assert await caller.refusal("createQueue", name="q") == CONNECTIONS
            await caller.closed()
            caller.close()
        assert len(caplog.records) == 1
        guarded.clock.advance(seconds=61)
        caller = await connect(guarded, billing)
        await caller.refusal("createQueue", name="q")
        assert [vars(record)["refusals"] for record in caplog.records] == [1, 50]
    await until(lambda: guarded.server.connections == 1)
    assert guarded.counted("quota_refused_connections") == 51


async def test_a_connection_counts_for_the_token_of_its_latest_request(guarded: GuardedServer) -> None:
    tokens = {name: guarded.token(Role.PRODUCE, name=name, quota=quota(connections=1)) for name in ("a", "b")}
    shared = await connect(guarded, None)
    assert await shared.refusal("createQueue", name="q", token=tokens["a"]) == ""
    assert await shared.refusal("createQueue", name="q", token=tokens["b"]) == ""
    assert (guarded.use("a").connections, guarded.use("b").connections) == (0, 1)
    own = await connect(guarded, tokens["a"])
    assert await own.refusal("createQueue", name="q") == ""
    assert (guarded.use("a").connections, guarded.use("b").connections) == (1, 1)
    shared.close()
    own.close()
    await until(lambda: guarded.server.connections == 0)
    assert (guarded.use("a").connections, guarded.use("b").connections) == (0, 0)


async def test_a_token_without_space_can_use_a_connection_that_counts_for_another_one(guarded: GuardedServer) -> None:
    """As callers of a console do, which share its connections: it is open already."""
    tokens = {name: guarded.token(Role.PRODUCE, name=name, quota=quota(connections=1)) for name in ("a", "b")}
    own = await connect(guarded, tokens["a"])
    await own.refusal("createQueue", name="q")
    shared = await connect(guarded, tokens["b"])
    for token in ("b", "a", "b", "a"):
        assert await shared.refusal("createQueue", name="q", token=tokens[token]) == ""
    assert (guarded.use("a").connections, guarded.use("a").connections_beyond, guarded.use("b").connections) == (
        1,
        1,
        0,
    )


async def test_requests_of_another_token_behind_a_refused_one_are_carried_out(guarded: GuardedServer) -> None:
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(connections=1))
    other = guarded.token(Role.PRODUCE)
    first = await connect(guarded, billing)
    await first.refusal("createQueue", name="q")
    shared = await connect(guarded, None)
    contexts = [types.RequestContext("tests", auth_token=token) for token in (billing, other, billing)]
    shared.writer.write(
        b"".join(encode_call("createQueue", n, context=context, name="q") for n, context in enumerate(contexts))
    )
    errors = [(await shared.receive()).exception for _ in contexts]
    assert [error and error.detail for error in errors] == [CONNECTIONS, None, None]
    assert await shared.refusal("createQueue", name="q", token=other) == ""


@pytest.mark.parametrize("method", [name for name, served in METHODS.items() if served.is_report])
async def test_a_worker_reports_over_a_new_connection_although_its_token_has_no_space_for_one(
    guarded: GuardedServer, method: str
) -> None:
    """The claims of its jobs would time out otherwise, and the jobs run twice."""
    workers = guarded.token(Role.WORK, name="workers", quota=quota(connections=1))
    waiting = await poll(guarded, workers, "workers")
    reporting = await connect(guarded, workers)
    assert await reporting.refusal(method, **arguments(method, QUEUE)) not in (CONNECTIONS, OVER)
    assert guarded.use("workers").connections_beyond == 1
    assert await reporting.refusal("dequeueJobs", request=LONG_POLL) == CONNECTIONS
    assert await reporting.refusal(method, **arguments(method, QUEUE)) not in (CONNECTIONS, OVER)
    assert guarded.use("workers").connections_beyond == 1, "it stays open for reports"
    waiting.close()
    await until(lambda: guarded.use("workers").connections == 0)
    assert await reporting.refusal("createQueue", name="q") == ""
    assert (guarded.use("workers").connections, guarded.use("workers").connections_beyond) == (1, 0)


async def test_a_connection_counts_although_its_call_is_not_allowed(guarded: GuardedServer) -> None:
    """Connections with such calls would have no bound otherwise."""
    reader = guarded.token(Role.READ, name="reader", quota=quota(connections=1))
    callers = [await connect(guarded, reader) for _ in range(2)]
    assert [await caller.refusal("createQueue", name="q") for caller in callers] == ["ACCESS_DENIED", CONNECTIONS]


async def test_a_refused_administrative_call_is_in_the_audit_with_its_caller(guarded: GuardedServer) -> None:
    operator = guarded.token(Role.OPERATE, name="operator", quota=quota(connections=1))
    callers = [await connect(guarded, operator) for _ in range(2)]
    assert await callers[0].refusal("getServerInfo") == ""
    assert await callers[1].refusal("pauseQueue", queue=QUEUE) == CONNECTIONS
    [entry] = (await callers[0].call("getAudit", request=types.AuditRequest(operation="pauseQueue"))).value.entries
    assert (entry.who, CONNECTIONS in entry.detail) == ("operator", True)


async def test_callers_without_a_token_share_a_quota(start: Start) -> None:
    guarded = await start(Role.PRODUCE, without_token=Quota(connections=1))
    first, second = await connect(guarded, None), await connect(guarded, None)
    assert await first.refusal("createQueue", name="q") == ""
    error = (await second.call("createQueue", name="q")).exception
    assert (error.detail, "Callers without a token" in error.message) == (CONNECTIONS, True)
    assert error.error_code == ttypes.ErrorCode.UNKNOWN, "which clients of the original know"
    token = guarded.token(Role.PRODUCE)
    third = await connect(guarded, token)
    assert await third.refusal("createQueue", name="q") == ""


async def test_a_lower_quota_ends_nothing_and_counts_for_new_connections(guarded: GuardedServer) -> None:
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(connections=3))
    open_before = [await connect(guarded, billing) for _ in range(3)]
    for caller in open_before:
        assert await caller.refusal("createQueue", name="q") == ""
    guarded.limit("billing", quota(connections=1))
    for caller in open_before:
        assert await caller.refusal("createQueue", name="q") == ""
    refused = await connect(guarded, billing)
    assert await refused.refusal("createQueue", name="q") == CONNECTIONS
    open_before.pop().close()
    open_before.pop().close()
    await until(lambda: guarded.use("billing").connections == 1)
    refused = await connect(guarded, billing)
    assert await refused.refusal("createQueue", name="q") == CONNECTIONS
    guarded.limit("billing", quota())
    taken = await connect(guarded, billing)
    assert await taken.refusal("createQueue", name="q") == ""


async def test_a_first_quota_counts_the_connections_that_are_open_already_and_refuses_none_of_them(
    guarded: GuardedServer,
) -> None:
    billing = guarded.token(Role.PRODUCE, name="billing")
    callers = [await connect(guarded, billing) for _ in range(2)]
    for caller in callers:
        assert await caller.refusal("createQueue", name="q") == ""
    assert guarded.use("billing").connections == 0
    guarded.limit("billing", quota(connections=1))
    for caller in callers:
        assert await caller.refusal("createQueue", name="q") == ""
    assert guarded.use("billing").connections == 2
    new = await connect(guarded, billing)
    assert await new.refusal("createQueue", name="q") == CONNECTIONS


async def test_without_quotas_a_request_costs_nothing_for_them(guarded: GuardedServer) -> None:
    """Counted in calls of functions: none of a request, and a few of one that is counted."""
    producer = guarded.token(Role.PRODUCE, name="producer")
    caller = await connect(guarded, producer)
    await caller.refusal("createQueue", name="q")

    async def calls_of_ten_requests() -> int:
        found = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal found
            name = frame.f_code.co_filename
            found += event == "call" and name.endswith(("quota_guard.py", "connection_use.py", "quotas.py"))

        for seqid in range(10):
            caller.send("createQueue", seqid, name="q")
        sys.setprofile(count)
        try:
            for _ in range(10):
                assert (await caller.receive()).exception is None
        finally:
            sys.setprofile(None)
        return found

    assert await calls_of_ten_requests() == 0
    assert (guarded.use("producer").connections, guarded.use("producer").bytes_held) == (0, 0)
    guarded.limit("producer", quota(connections=5, polls=5, bytes_in_flight=KIB * KIB))
    await caller.refusal("createQueue", name="q")
    assert 0 < await calls_of_ten_requests() <= 10 * 10


# --- long polls -----------------------------------------------------------------------------------------------------------
async def test_one_long_poll_too_many_of_a_token_is_refused_and_claims_nothing(guarded: GuardedServer) -> None:
    workers = guarded.token(Role.WORK, Role.PRODUCE, name="workers", quota=quota(polls=1))
    waiting = await poll(guarded, workers, "workers")
    second = await connect(guarded, workers)
    error = (await second.call("dequeueJobs", request=LONG_POLL)).exception
    assert (error.error_code, error.detail, error.retryable, error.retry_after_ms) == (500, OVER, True, 1_000)
    assert "token workers" in error.message
    assert "quota of 1 waiting dequeue on" in error.message
    assert "max_polls" in error.message
    other = await poll(guarded, guarded.token(Role.WORK, name="other"), "other")
    assert await second.refusal("enqueueJobs", request=jobs_of(b"1", b"2", b"3")) == ""
    assert len((await waiting.receive()).value.jobs) == len((await other.receive()).value.jobs) == 1
    assert await stored(guarded) == 1, "the refused one got none"
    assert guarded.use("workers").polls == 0
    assert len((await second.call("dequeueJobs", request=LONG_POLL)).value.jobs) == 1


async def test_with_all_polls_taken_a_worker_claims_without_waiting_and_acks(guarded: GuardedServer) -> None:
    workers = guarded.token(Role.WORK, Role.PRODUCE, name="workers", quota=quota(polls=1))
    elsewhere = await connect(guarded, workers)
    elsewhere.send("dequeueJobs", request=types.DequeueRequest("mail_new", 1, wait_ms=60_000))
    await until(lambda: guarded.use("workers").polls == 1)
    worker = await connect(guarded, workers)
    await worker.call("enqueueJobs", request=jobs_of(b"body"))
    claimed = (await worker.call("dequeueJobs", request=types.DequeueRequest(QUEUE, 1))).value
    [(job, metadata)] = claimed.metadata.items()
    claims = types.ClaimsRequest(QUEUE, [types.Claim(job, metadata.token)])
    assert [one.outcome for one in (await worker.call("heartbeatClaims", request=claims)).value] == [0]
    acks = types.AckBatch(QUEUE, [types.Ack(job, token=metadata.token)])
    assert [one.outcome for one in (await worker.call("ackJobs", request=acks)).value] == [0]


async def test_acks_in_a_dequeue_beyond_the_quota_are_carried_out_and_it_does_not_wait(guarded: GuardedServer) -> None:
    """A client that sends its acks only so could never deliver them otherwise."""
    workers = guarded.token(Role.WORK, Role.PRODUCE, name="workers", quota=quota(polls=1))
    waiting = await connect(guarded, workers)
    waiting.send("dequeueJobs", request=types.DequeueRequest("mail_new", 1, wait_ms=60_000))
    await until(lambda: guarded.use("workers").polls == 1)
    worker = await connect(guarded, workers)
    await worker.call("enqueueJobs", request=jobs_of(b"1", b"2"))
    claimed = (await worker.call("dequeueJobs", request=types.DequeueRequest(QUEUE, 1))).value
    [(job, metadata)] = claimed.metadata.items()
    acks = types.AckBatch(QUEUE, [types.Ack(job, token=metadata.token)])
    request = types.DequeueRequest(QUEUE, 1, acks=acks, wait_ms=60_000)
    answer = (await worker.call("dequeueJobs", request=request)).value
    assert [one.outcome for one in answer.ack_outcomes] == [0]
    assert len(answer.jobs) == 1
    assert await worker.refusal("dequeueJobs", request=LONG_POLL) == OVER


@pytest.mark.parametrize("ends", ["closed", "answered"])
async def test_a_long_poll_counts_as_long_as_it_waits(guarded: GuardedServer, ends: str) -> None:
    workers = guarded.token(Role.WORK, name="workers", quota=quota(polls=1))
    waiting = await poll(guarded, workers, "workers")
    if ends == "closed":
        waiting.close()
    else:
        producer = await connect(guarded, guarded.token(Role.PRODUCE))
        await producer.call("enqueueJobs", request=jobs_of(b"body"))
        assert (await waiting.receive()).value.jobs
        producer.close()
    await until(lambda: guarded.use("workers").polls == 0)
    await poll(guarded, workers, "workers")


async def test_a_poll_that_began_while_there_was_no_quota_counts_for_its_token_when_there_are_quotas_again(
    guarded: GuardedServer,
) -> None:
    """Not for the token that used the connection when there were quotas before."""
    first = guarded.token(Role.WORK, name="a", quota=quota(polls=1))
    second = guarded.token(Role.WORK, name="b")
    shared = await connect(guarded, first)
    assert await shared.refusal("dequeueJobs", request=types.DequeueRequest(QUEUE, 1)) == ""
    guarded.limit("a", quota())
    assert not guarded.control.has_quotas
    shared.send("dequeueJobs", request=LONG_POLL, token=second)
    await until(lambda: guarded.server.answering.waiting == 1)
    guarded.limit("a", quota(polls=1))
    assert [(use.name, use.connections, use.polls) for use in guarded.control.uses()] == [
        ("", 0, 0),
        ("a", 0, 0),
        ("b", 1, 1),
    ]


# --- bytes ----------------------------------------------------------------------------------------------------------------
async def test_a_token_with_too_many_bytes_in_flight_is_refused_and_no_other_caller_notices(
    guarded: GuardedServer,
) -> None:
    billing = guarded.token(Role.PRODUCE, Role.WORK, name="billing", quota=quota(bytes_in_flight=200 * KIB))
    waiting = await poll(guarded, billing, "billing", request_id=LONG_ID)
    assert guarded.use("billing").bytes_held >= len(LONG_ID)
    second, other = await connect(guarded, billing), await connect(guarded, guarded.token(Role.PRODUCE))
    error = (await second.call("enqueueJobs", request=jobs_of(b"x" * 100_000))).exception
    assert (error.error_code, error.detail, error.retryable, error.retry_after_ms) == (500, OVER, True, 1_000)
    assert "token billing" in error.message
    assert "quota of 204,800 bytes" in error.message
    assert "max_bytes_in_flight" in error.message
    assert await stored(guarded) == 0
    assert await other.refusal("enqueueJobs", request=jobs_of(b"x" * 100_000, queue="mail_new")) == ""
    waiting.close()
    await until(lambda: guarded.use("billing").polls == 0)
    assert await second.refusal("enqueueJobs", request=jobs_of(b"x" * 100_000)) == ""
    second.close()
    other.close()
    await until(lambda: not any(use.bytes_held for use in guarded.control.uses()))


async def test_acks_pass_while_the_bytes_of_the_token_are_used_up_and_what_is_under_way_goes_on(
    guarded: GuardedServer,
) -> None:
    workers = guarded.token(Role.WORK, Role.PRODUCE, name="workers", quota=quota(bytes_in_flight=200 * KIB))
    worker = await connect(guarded, workers)
    await worker.call("enqueueJobs", request=jobs_of(b"body"))
    claimed = (await worker.call("dequeueJobs", request=types.DequeueRequest(QUEUE, 1))).value
    [(job, metadata)] = claimed.metadata.items()
    waiting = await poll(guarded, workers, "workers", request_id=LONG_ID)
    guarded.limit("workers", quota(bytes_in_flight=64 * KIB))
    assert await worker.refusal("enqueueJobs", request=jobs_of(b"body")) == OVER
    acks = types.AckBatch(QUEUE, [types.Ack(job, token=metadata.token)])
    assert [one.outcome for one in (await worker.call("ackJobs", request=acks)).value] == [0]
    producer = await connect(guarded, guarded.token(Role.PRODUCE))
    await producer.call("enqueueJobs", request=jobs_of(b"another"))
    assert list((await waiting.receive()).value.jobs.values()) == [b"another"]


@pytest.mark.parametrize("request_id", ["", LONG_ID])
async def test_a_request_that_is_longer_than_the_quota_is_not_worth_a_retry(
    guarded: GuardedServer, request_id: str
) -> None:
    """Whether its token is found in its beginning or not."""
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(bytes_in_flight=100 * KIB))
    caller = await connect(guarded, billing)
    error = (await caller.call("enqueueJobs", request=jobs_of(b"x" * 150_000), request_id=request_id)).exception
    assert (error.detail, error.retryable, error.retry_after_ms) == (OVER, False, None)
    assert "never fits" in error.message
    assert await caller.refusal("enqueueJobs", request=jobs_of(b"body")) == "", "its connection stays usable"
    assert await stored(guarded) == 1


@pytest.mark.parametrize("encrypted", [False, True])
async def test_long_requests_that_are_half_sent_hold_no_more_than_the_quota(
    start: Start, certificate_files: TlsSettings, authority: Authority, encrypted: bool
) -> None:
    guarded = await start(tls=certificate_files if encrypted else None)
    tls = ssl.create_default_context(cafile=str(authority.file)) if encrypted else None
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(bytes_in_flight=1_000 * KIB))
    context = types.RequestContext("tests", auth_token=billing)
    frame = encode_call("enqueueJobs", 7, context=context, request=jobs_of(b"x" * 900_000))
    callers = [await connect(guarded, billing, tls=tls) for _ in range(10)]
    for caller in callers:
        caller.writer.write(frame[:800_000])
    await until(lambda: guarded.counted("quota_refused_bytes") >= 9)
    assert guarded.use("billing").bytes_held <= 1_100 * KIB
    other = await connect(guarded, guarded.token(Role.PRODUCE), tls=tls)
    assert await other.refusal("enqueueJobs", request=jobs_of(b"x" * 900_000)) == ""
    for caller in callers:
        caller.writer.write(frame[800_000:])
    replies = [await caller.receive() for caller in callers]
    assert {reply.seqid for reply in replies} == {7}
    refused = [reply.exception.detail for reply in replies if reply.exception is not None]
    assert refused == [OVER] * 9
    assert await stored(guarded) == 2
    for caller in (*callers, other):
        caller.close()
    await until(lambda: not any(use.bytes_held for use in guarded.control.uses()))
    await until(lambda: not any(guarded.server.budget.by_kind().values()))


async def test_many_requests_in_one_write_are_carried_out_in_turn_within_a_small_quota(guarded: GuardedServer) -> None:
    """Those that wait on the same connection do not count against the one that is carried out."""
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(bytes_in_flight=64 * KIB))
    context = types.RequestContext("tests", auth_token=billing)
    caller = await connect(guarded, billing)
    caller.writer.write(
        b"".join(
            encode_call("enqueueJobs", seqid, context=context, request=jobs_of(b"x" * 2_000)) for seqid in range(200)
        )
    )
    replies = [await caller.receive() for _ in range(200)]
    assert [(reply.seqid, reply.exception) for reply in replies] == [(seqid, None) for seqid in range(200)]
    caller.close()
    await until(lambda: guarded.use("billing").bytes_held == 0)


async def test_answers_that_a_client_does_not_read_count_and_their_claims_are_not_lost(guarded: GuardedServer) -> None:
    workers = guarded.token(Role.WORK, Role.PRODUCE, name="workers", quota=quota(bytes_in_flight=1_000 * KIB))
    producer = await connect(guarded, guarded.token(Role.PRODUCE))
    for _ in range(14):
        assert await producer.refusal("enqueueJobs", request=jobs_of(b"x" * 1_000_000)) == ""
    slow = await connect(guarded, workers, limit=1)
    slow.send("dequeueJobs", request=types.DequeueRequest(QUEUE, 14))
    await until(lambda: guarded.use("workers").bytes_held > 1_000 * KIB)
    second = await connect(guarded, workers)
    assert await second.refusal("enqueueJobs", request=jobs_of(b"body", queue="mail_new")) == OVER
    slow.close()

    def freed() -> bool:
        guarded.server.sweep()
        return guarded.use("workers").bytes_held == 0

    await until(freed)
    assert await second.refusal("enqueueJobs", request=jobs_of(b"body", queue="mail_new")) == ""
    async with asyncio.timeout(30):
        while await stored(guarded) != 14:
            await asyncio.sleep(0.01)


# --- metrics and clients --------------------------------------------------------------------------------------------------
def gauges(guarded: GuardedServer) -> dict[str, dict[str, float]]:
    readings = guarded.server.metrics.read_gauges()
    return {reading.gauge.prometheus: dict(reading.values) for reading in readings if reading.gauge.label == "token"}


async def test_metrics_show_what_callers_use_by_token_and_nothing_without_quotas(guarded: GuardedServer) -> None:
    producer = guarded.token(Role.PRODUCE, name="producer")
    caller = await connect(guarded, producer)
    await caller.refusal("createQueue", name="q")
    assert set(map(str, gauges(guarded).values())) == {"{}"}
    workers = guarded.token(Role.WORK, name="workers", quota=quota(polls=1))
    await poll(guarded, workers, "workers")
    await caller.refusal("createQueue", name="q")
    assert await caller.refusal("dequeueJobs", request=LONG_POLL, token=workers) == OVER
    await caller.refusal("createQueue", name="q")
    assert await caller.refusal("createQueue", name="q", token="pinlater_guessed") == "TOKEN_INVALID"
    shown = gauges(guarded)
    assert shown["pinlater_token_connections"] == {"workers": 1, "producer": 1}
    assert shown["pinlater_token_long_polls"] == {"workers": 1, "producer": 0}
    assert shown["pinlater_token_quota_refusals"] == {"workers": 1, "producer": 0}
    assert shown["pinlater_token_bytes_in_flight"]["workers"] > 0
    assert guarded.counted("quota_refused_polls") == 1
    errors = guarded.server.metrics.read().methods["dequeueJobs"].errors
    assert errors == {OVER: 1}


async def test_a_client_makes_a_new_connection_after_one_was_refused(guarded: GuardedServer) -> None:
    """The server closes the refused one, perhaps only when the next call is on its way."""
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(connections=1))
    first = await connect(guarded, billing)
    await first.refusal("createQueue", name="q")
    async with AsyncClient(guarded.address, token=billing, retries=0, connections=1) as client:
        with pytest.raises(QuotaExceeded, match="token billing") as refused:
            await client.create_queue("q")
        assert (refused.value.retryable, refused.value.retry_after_ms) == (True, 1_000)
        first.close()
        await until(lambda: guarded.use("billing").connections == 0)
        await client.create_queue("q")


async def test_a_sync_client_makes_a_new_connection_after_one_was_refused(guarded: GuardedServer) -> None:
    billing = guarded.token(Role.PRODUCE, name="billing", quota=quota(connections=1))
    first = await connect(guarded, billing)
    await first.refusal("createQueue", name="q")
    with Client(guarded.address, token=billing, retries=0) as client:
        with pytest.raises(QuotaExceeded, match="token billing"):
            await asyncio.to_thread(client.create_queue, "q")
        first.close()
        await until(lambda: guarded.use("billing").connections == 0)
        await asyncio.to_thread(client.create_queue, "q")
