"""Fairness: callers that send much, or slowly, or what takes long to decode, keep no other caller's requests out."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from bench.servers import Server
from pinlater.wire.generated import ttypes as types
from tests.hostile.callers import Caller, call, flood
from tests.hostile.conftest import BUDGET_BYTES

pytestmark = pytest.mark.crash

MEBIBYTE = 2**20
ELSEWHERE = "127.0.0.2"
LARGE = call(
    "enqueueJobs",
    request=types.PinLaterEnqueueRequest("q", [types.PinLaterJob(body=b"x" * MEBIBYTE) for _ in range(15)]),
)


def hoarders(server: Server, stack: ExitStack) -> list[Caller]:
    """Connections that send most of a large request each, more than the server's budget together, and stop."""
    callers = [stack.enter_context(Caller(server)) for _ in range(BUDGET_BYTES // len(LARGE) + 3)]
    for caller in callers:
        caller.queue(LARGE[: -MEBIBYTE // 2])
    flood(callers, lambda: None)
    return callers


def accepted(caller: Caller) -> bool:
    """Whether a large request is carried out; else it is refused for want of memory."""
    caller.socket.sendall(LARGE)
    refusal = caller.receive().exception
    assert refusal is None or refusal.detail == "TOO_MANY_WAITING"
    return refusal is None


def test_half_sent_requests_of_one_address_keep_no_other_address_out(server: Server) -> None:
    with ExitStack() as stack:
        hoarders(server, stack)
        with Caller(server, ELSEWHERE) as honest:
            assert [accepted(honest) for _ in range(3)] == [True] * 3
