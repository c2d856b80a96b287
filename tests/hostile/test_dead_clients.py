"""Clients that die at the worst moment: what did not reach the kernel is given back, unspent, and what they had sent claims nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.servers import PinLaterServer
from pinlater.wire.generated import structs as types
from tests.hostile.callers import HostileCaller, call, flood, samples, until

pytestmark = pytest.mark.crash

LONG_POLL = types.DequeueRequest("q", 1, wait_ms=60_000)


def enqueue(server: PinLaterServer, number: int, body: bytes) -> None:
    with HostileCaller(server) as caller:
        for _ in range(number):
            request = types.EnqueueRequest("q", [types.Job(body=body)])
            assert caller.call("enqueueJobs", request=request).exception is None


def claimed_by_another(server: PinLaterServer, number: int) -> None:
    """Another worker gets this number of jobs before its deadline, with all their attempts."""
    found: set[str] = set()
    with HostileCaller(server) as worker:

        def complete() -> bool:
            request = types.DequeueRequest("q", 100, wait_ms=1_000)
            metadata = worker.call("dequeueJobs", request=request).value.metadata or {}
            assert all(one.attempts_remaining == one.attempts_allowed for one in metadata.values())
            found.update(metadata)
            return len(found) >= number

        until(complete)


def long_polls(server: PinLaterServer) -> float:
    return samples(server, "pinlater_long_polls")[""]


def test_jobs_of_a_client_that_resets_without_reading_come_back_at_once(server: PinLaterServer) -> None:
    """Not after their claims' ten minutes."""
    enqueue(server, 12, b"x" * (2**20 - 100))
    client = HostileCaller(server)
    client.send("dequeueJobs", request=types.DequeueRequest("q", 12))
    until(lambda: samples(server, "pinlater_memory_in_flight_bytes")["answers"] > 0)
    client.reset()
    claimed_by_another(server, 12)


@pytest.mark.parametrize("leave", [lambda client: client.socket.close(), HostileCaller.reset], ids=["close", "reset"])
def test_a_dead_client_with_many_calls_behind_a_long_poll_gets_no_job(
    server: PinLaterServer, leave: Callable[[HostileCaller], None]
) -> None:
    """The server reads no further while this number of calls waits, and the next job arrives at once."""
    client = HostileCaller(server)
    client.queue(*[call("dequeueJobs", request=LONG_POLL)] * 130)
    flood([client], lambda: None)
    until(lambda: long_polls(server) == 1)
    leave(client)
    enqueue(server, 1, b"the next job")
    claimed_by_another(server, 1)
    until(lambda: samples(server, "pinlater_connections")[""] == 0)
    assert long_polls(server) == 0


@pytest.mark.parametrize("leave", [lambda client: client.socket.close(), HostileCaller.reset], ids=["close", "reset"])
def test_the_end_of_a_client_is_seen_behind_more_than_the_kernel_holds(
    server: PinLaterServer, leave: Callable[[HostileCaller], None]
) -> None:
    """The end of the connection stands behind the bytes sent before, which stay unread while its first call waits."""
    client = HostileCaller(server)
    behind = types.EnqueueRequest("q", [types.Job(body=b"x" * 100_000)])
    client.queue(call("dequeueJobs", request=LONG_POLL), *[call("enqueueJobs", request=behind)] * 100)
    flood([client], lambda: None)
    until(lambda: long_polls(server) == 1)
    leave(client)
    until(lambda: samples(server, "pinlater_connections")[""] == 0)
    assert long_polls(server) == 0
    assert samples(server, "pinlater_memory_in_flight_bytes")["requests"] == 0
    enqueue(server, 1, b"the next job")
    claimed_by_another(server, 1)
