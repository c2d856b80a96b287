"""Large requests keep no other waiting: no turn of the event loop takes more than 50 ms of CPU time for one of them.

Weakness: on SQLite, failed acks and cancels of the most descriptors that a call may name take longer; they are not among these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.server.thrift.large_frames import SMALL_BYTES
from pinlater.wire.generated import structs as types
from tests.compiled import ttypes
from tests.hostile.callers import HostileCaller, call, no_long_turn, up_to_thrice

pytestmark = pytest.mark.crash


JOBS_MAX, DESCRIPTORS_MAX = 10_000, 50_000  # the defaults of max_jobs_per_request and max_descriptors_per_request


def enqueue(jobs: int, body_bytes: int, **options: Any) -> types.EnqueueRequest:
    """`options` of the jobs; a function is called with the job's number."""

    def job(number: int) -> types.Job:
        said = {name: value(number) if callable(value) else value for name, value in options.items()}
        return types.Job(body=b"x" * body_bytes, **said)

    return types.EnqueueRequest("q", [job(number) for number in range(jobs)])


def filled(caller: HostileCaller, times: int, jobs: int, body_bytes: int) -> list[str]:
    """Descriptors of new jobs."""
    answers = [caller.call("enqueueJobs", request=enqueue(jobs, body_bytes)) for _ in range(times)]
    return [descriptor for answer in answers for descriptor in answer.value.descriptors]


def the_largest_enqueue(caller: HostileCaller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(15, 2**20 - 100)).value


def an_enqueue_of_most_jobs(caller: HostileCaller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(JOBS_MAX, 10)).value


def an_enqueue_of_most_jobs_and_bytes(caller: HostileCaller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(JOBS_MAX, 1_500)).value


def an_enqueue_of_most_jobs_with_all_options(caller: HostileCaller, _: list[str]) -> object:
    request = enqueue(
        JOBS_MAX,
        100,
        headers=lambda number: {"number": str(number)},
        unique_key=lambda number: f"key {number}",
        unique_scope=1,
        custom_status="new",
        claim_timeout_ms=60_000,
        expires_at_ms=2**50,
    )
    request.request_key = "all of it"
    return caller.call("enqueueJobs", request=request).value


def a_dequeue_of_most_jobs(caller: HostileCaller, _: list[str]) -> object:
    return caller.call("dequeueJobs", request=types.DequeueRequest("q", 1_000)).value


def a_lookup_of_most_jobs(caller: HostileCaller, descriptors: list[str]) -> object:
    return caller.call("lookupJobs", request=types.LookupRequest(descriptors, True)).value


def a_scan_of_most_jobs(caller: HostileCaller, _: list[str]) -> object:
    request = types.ScanRequest("q", 0, limit=10_000, bodies=True)
    return caller.call("scanJobs", request=request).value


def a_frame_that_is_refused(caller: HostileCaller, _: list[str]) -> object:
    return caller.call("createQueue", name="q" * (15 * 2**20)).exception


def failed_acks_of_a_thousand_jobs(caller: HostileCaller, _: list[str]) -> object:
    claimed = caller.call("dequeueJobs", request=types.DequeueRequest("q", 1_000)).value.metadata
    acks = [types.Ack(descriptor, token=one.token) for descriptor, one in claimed.items()]
    return caller.call("ackJobs", request=types.AckBatch("q", failed=acks)).value


def a_frame_of_millions_of_empty_jobs(caller: HostileCaller, _: list[str]) -> object:
    """One field again and again, as long a list as may be each time; each job is one byte."""
    empty_jobs = b"\x0f\0\2\x0c" + (100_000).to_bytes(4, "big") + bytes(100_000)
    context = b"\x0c\0\1\x0b\0\1\0\0\0\1x\0"
    body = context + b"\x0c\0\2\x0b\0\1\0\0\0\1q" + empty_jobs * 160 + b"\0\0"
    frame = b"\x80\1\0\1" + (11).to_bytes(4, "big") + b"enqueueJobs" + (1).to_bytes(4, "big") + body
    caller.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    return caller.receive().application_error


def an_enqueue_of_a_hundred_thousand_jobs(caller: HostileCaller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(100_000, 10)).exception


LARGE = [
    the_largest_enqueue,
    an_enqueue_of_most_jobs,
    an_enqueue_of_most_jobs_and_bytes,
    an_enqueue_of_most_jobs_with_all_options,
    a_dequeue_of_most_jobs,
    a_lookup_of_most_jobs,
    a_scan_of_most_jobs,
    failed_acks_of_a_thousand_jobs,
    a_frame_that_is_refused,
    a_frame_of_millions_of_empty_jobs,
    an_enqueue_of_a_hundred_thousand_jobs,
]


@pytest.mark.parametrize("request_of", LARGE, ids=lambda each: each.__name__)
@up_to_thrice
def test_a_request_at_its_bounds_blocks_the_loop_for_no_longer_than_50_ms(
    server: PinLaterServer, request_of: Callable[[HostileCaller, list[str]], object]
) -> None:
    with HostileCaller(server) as caller:
        descriptors = filled(caller, 2, 1_000, 1_000)
        with no_long_turn(server):
            assert request_of(caller, descriptors)


def claimed(caller: HostileCaller, jobs: int) -> list[types.Claim]:
    """New jobs that are in the caller's hands."""
    for _ in range(0, jobs, JOBS_MAX):
        caller.call("enqueueJobs", request=enqueue(JOBS_MAX, 10))
    claims: list[types.Claim] = []
    while len(claims) < jobs:
        given = caller.call("dequeueJobs", request=types.DequeueRequest("q", 1_000)).value
        claims += [types.Claim(each, given.metadata[each].token) for each in given.order]
    return claims


def acks(claims: list[types.Claim], *, succeeded: bool, per_item_errors: bool) -> types.AckBatch:
    infos = [types.Ack(each.descriptor, token=each.token) for each in claims]
    return types.AckBatch("q", infos if succeeded else [], [] if succeeded else infos, per_item_errors)


@pytest.mark.timeout(300)
@up_to_thrice
def test_requests_that_name_most_jobs_block_the_loop_for_no_longer_than_50_ms(server: PinLaterServer) -> None:
    """Every operation on jobs by name, each of fifty thousand of them, all of which it applies to."""
    with HostileCaller(server) as caller:

        def ask(method: str, **arguments: Any) -> Any:
            with no_long_turn(server, method):
                reply = caller.call(method, **arguments)
            assert reply.exception is None, (method, reply.exception)
            assert reply.application_error is None, (method, reply.application_error)
            return reply.value

        def all_applied(outcomes: list[types.AckResult], claims: list[types.Claim]) -> bool:
            return [(each.descriptor, each.outcome) for each in outcomes] == [
                (each.descriptor, ttypes.Outcome.APPLIED) for each in claims
            ]

        claims = claimed(caller, DESCRIPTORS_MAX)
        descriptors = [each.descriptor for each in claims]
        assert all_applied(ask("heartbeatClaims", request=types.ClaimsRequest("q", claims)), claims)
        checkpoints = [types.Checkpoint(each.descriptor, new_body=b"new") for each in claims]
        for checkpoint, claim in zip(checkpoints, claims, strict=True):
            checkpoint.token = claim.token
        request = types.CheckpointBatch("q", checkpoints)
        assert all_applied(ask("checkpointJobsFenced", request=request), claims)
        found = ask("lookupJobs", request=types.LookupRequest(descriptors, True))
        assert list(found) == descriptors
        assert {job.body for job in found.values()} == {b"new"}
        failed = acks(claims, succeeded=False, per_item_errors=False)
        assert all_applied(ask("ackJobs", request=failed), claims)
        claims = claimed(caller, DESCRIPTORS_MAX)
        riding = acks(claims, succeeded=True, per_item_errors=True)
        given = ask("dequeueJobs", request=types.DequeueRequest("q", 1_000, acks=riding))
        assert all_applied(given.ack_outcomes, claims)
        assert len(given.order) == 1_000
        claims = claimed(caller, DESCRIPTORS_MAX)
        descriptors = [each.descriptor for each in claims]
        assert all_applied(ask("releaseJobs", request=types.ReleaseRequest("q", claims)), claims)
        assert all_applied(ask("cancelJobs", queue="q", descriptors=descriptors), claims)
        assert ask("deleteJobsByDescriptor", queue="q", descriptors=descriptors) == DESCRIPTORS_MAX
        claims = claimed(caller, DESCRIPTORS_MAX)
        ask("ackDequeuedJobs", request=acks(claims, succeeded=True, per_item_errors=False))


def test_a_request_that_blocks_the_loop_for_longer_is_seen(tmp_path: Path) -> None:
    options = ("--set", "telemetry.loop_lag_interval_ms=5")
    blocking = ("tests.hostile.blocking_server",)
    with (
        pinlater_server(tmp_path / "store.db", *options, log=tmp_path / "log", module=blocking) as server,
        HostileCaller(server) as caller,
    ):
        with no_long_turn(server):
            assert caller.call("getQueueNames").exception is None
        with pytest.raises(AssertionError, match="took more than"), no_long_turn(server):
            assert caller.call("getServerInfo").exception is None


@up_to_thrice
def test_frames_that_are_just_small_enough_for_the_event_loop_take_turns_with_everything_else(
    server: PinLaterServer,
) -> None:
    """Each takes long to decode, to find that the last of its texts is no UTF-8. Seven come while a long poll lasts."""
    item = types.Ack("\ufffd")
    one, two = (len(call("ackJobs", request=types.AckBatch("q", [item] * number))) for number in (1, 2))
    items = [item] * (1 + (SMALL_BYTES - one) // (two - one))
    head, last, tail = call("ackJobs", request=types.AckBatch("q", items)).rpartition("\ufffd".encode())
    frame = head + b"\xff" * len(last) + tail
    poll = call("dequeueJobs", request=types.DequeueRequest("q", 1, wait_ms=500))
    with HostileCaller(server) as caller, no_long_turn(server):
        caller.socket.sendall(poll + frame * 7)
        for _ in range(8):
            caller.receive()
