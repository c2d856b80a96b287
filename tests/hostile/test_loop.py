"""Large requests keep no other waiting: no turn of the event loop takes more than 50 ms of CPU time for one of them.

Weakness: on SQLite, failed acks and cancels of the most descriptors that a call may name take longer; they are not among these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.servers import Server, pinlater_server
from pinlater.wire.generated import ttypes as types
from tests.hostile.callers import Caller, no_long_turn

pytestmark = pytest.mark.crash


def enqueue(jobs: int, body_bytes: int) -> types.PinLaterEnqueueRequest:
    return types.PinLaterEnqueueRequest("q", [types.PinLaterJob(body=b"x" * body_bytes) for _ in range(jobs)])


def filled(caller: Caller, times: int, jobs: int, body_bytes: int) -> list[str]:
    """Descriptors of new jobs."""
    answers = [caller.call("enqueueJobs", request=enqueue(jobs, body_bytes)) for _ in range(times)]
    return [descriptor for answer in answers for descriptor in answer.value.jobDescriptors]


def the_largest_enqueue(caller: Caller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(15, 2**20 - 100)).value


def an_enqueue_of_most_jobs(caller: Caller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(1_000, 1_000)).value


def a_dequeue_of_most_jobs(caller: Caller, _: list[str]) -> object:
    return caller.call("dequeueJobs", request=types.PinLaterDequeueRequest("q", 1_000)).value


def a_lookup_of_most_jobs(caller: Caller, descriptors: list[str]) -> object:
    return caller.call("lookupJobs", request=types.PinLaterLookupJobRequest(descriptors * 2, True)).value


def a_scan_of_most_jobs(caller: Caller, _: list[str]) -> object:
    request = types.PinLaterScanJobsRequest("q", 0, limit=10_000, includeBody=True)
    return caller.call("scanJobs", request=request).value


def a_frame_that_is_refused(caller: Caller, _: list[str]) -> object:
    return caller.call("createQueue", name="q" * (15 * 2**20)).exception


def failed_acks_of_a_thousand_jobs(caller: Caller, _: list[str]) -> object:
    claimed = caller.call("dequeueJobs", request=types.PinLaterDequeueRequest("q", 1_000)).value.jobMetadata
    acks = [types.PinLaterJobAckInfo(descriptor, claimToken=one.claimToken) for descriptor, one in claimed.items()]
    return caller.call("ackJobs", request=types.PinLaterJobAckRequest("q", jobsFailed=acks)).value


def a_frame_of_millions_of_empty_jobs(caller: Caller, _: list[str]) -> object:
    """One field again and again, as long a list as may be each time; each job is one byte."""
    empty_jobs = b"\x0f\0\2\x0c" + (100_000).to_bytes(4, "big") + bytes(100_000)
    context = b"\x0c\0\1\x0b\0\1\0\0\0\1x\0"
    body = context + b"\x0c\0\2\x0b\0\1\0\0\0\1q" + empty_jobs * 160 + b"\0\0"
    frame = b"\x80\1\0\1" + (11).to_bytes(4, "big") + b"enqueueJobs" + (1).to_bytes(4, "big") + body
    caller.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    return caller.receive().application_error


def an_enqueue_of_a_hundred_thousand_jobs(caller: Caller, _: list[str]) -> object:
    return caller.call("enqueueJobs", request=enqueue(100_000, 10)).exception


LARGE = [
    the_largest_enqueue,
    an_enqueue_of_most_jobs,
    a_dequeue_of_most_jobs,
    a_lookup_of_most_jobs,
    a_scan_of_most_jobs,
    failed_acks_of_a_thousand_jobs,
    a_frame_that_is_refused,
    a_frame_of_millions_of_empty_jobs,
    an_enqueue_of_a_hundred_thousand_jobs,
]


@pytest.mark.parametrize("request_of", LARGE, ids=lambda each: each.__name__)
def test_a_request_at_its_bounds_blocks_the_loop_for_no_longer_than_50_ms(
    server: Server, request_of: Callable[[Caller, list[str]], object]
) -> None:
    with Caller(server) as caller:
        descriptors = filled(caller, 2, 1_000, 1_000)
        with no_long_turn(server):
            assert request_of(caller, descriptors)


def test_a_request_that_blocks_the_loop_for_longer_is_seen(tmp_path: Path) -> None:
    """Else the tests above could not fail."""
    options = ("--set", "telemetry.loop_lag_interval_ms=5")
    blocking = ("tests.hostile.blocking_server",)
    with (
        pinlater_server(tmp_path / "store.db", *options, log=tmp_path / "log", module=blocking) as server,
        Caller(server) as caller,
    ):
        with no_long_turn(server):
            assert caller.call("getQueueNames").exception is None
        with pytest.raises(AssertionError, match="took more than 50 ms"), no_long_turn(server):
            assert caller.call("getServerInfo").exception is None
