"""Fairness: callers that send much, or slowly, or what takes long to decode, keep no other caller's requests out."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from bench.servers import PinLaterServer
from pinlater.wire.generated import structs as types
from tests import open_files
from tests.hostile.callers import HostileCaller, call, flood, in_flight, until
from tests.hostile.conftest import BUDGET_BYTES

pytestmark = pytest.mark.crash

MEBIBYTE = 2**20
ELSEWHERE = "127.0.0.2"
LARGE = call(
    "enqueueJobs",
    request=types.EnqueueRequest("q", [types.Job(body=b"x" * MEBIBYTE) for _ in range(15)]),
)


def hoarders(server: PinLaterServer, stack: ExitStack) -> list[HostileCaller]:
    """Connections that send most of a large request each, more than the server's budget together, and stop."""
    callers = [stack.enter_context(HostileCaller(server)) for _ in range(BUDGET_BYTES // len(LARGE) + 3)]
    for caller in callers:
        caller.queue(LARGE[: -MEBIBYTE // 2])
    flood(callers, lambda: None)
    return callers


def accepted(caller: HostileCaller) -> bool:
    """Whether a large request is carried out; else it is refused for want of memory."""
    caller.socket.sendall(LARGE)
    refusal = caller.receive().exception
    assert refusal is None or refusal.detail == "TOO_MANY_WAITING"
    return refusal is None


def test_half_sent_requests_of_one_address_keep_no_other_address_out(server: PinLaterServer) -> None:
    with ExitStack() as stack:
        hoarders(server, stack)
        with HostileCaller(server, ELSEWHERE) as honest:
            assert [accepted(honest) for _ in range(3)] == [True] * 3


def test_small_requests_behind_long_polls_of_one_address_keep_no_other_address_out(server: PinLaterServer) -> None:
    """Each request is too small to free anything by itself."""
    poll = call("dequeueJobs", request=types.DequeueRequest("q", 1, wait_ms=60_000))
    small = call("createQueue", name="x" * 300)
    with ExitStack() as stack:
        callers = [stack.enter_context(HostileCaller(server)) for _ in range(BUDGET_BYTES // (1_500 * len(small)) + 16)]
        for caller in callers:
            caller.queue(poll, small * 1_500)
        flood(callers, lambda: None)
        until(lambda: in_flight(server) > BUDGET_BYTES * 7 // 8)
        with HostileCaller(server, ELSEWHERE) as honest:
            until(lambda: accepted(honest))
            assert accepted(honest)


def test_many_requests_that_are_sent_by_less_than_64_kib_keep_no_other_address_out(server: PinLaterServer) -> None:
    open_files.need(1_500)
    with ExitStack() as stack:
        callers = [stack.enter_context(HostileCaller(server)) for _ in range(850)]
        for caller in callers:
            caller.socket.sendall(LARGE[:63_000])
        until(lambda: in_flight(server) > BUDGET_BYTES * 3 // 4)
        with HostileCaller(server, ELSEWHERE) as honest:
            assert [accepted(honest) for _ in range(3)] == [True] * 3
