"""When a worker tries again, and how it counts and buffers."""

from __future__ import annotations

from typing import Any

from pinlater.client import ClaimedJob
from pinlater.domain.clock import ManualClock
from pinlater.worker import WorkerSettings
from pinlater.worker._leases.leases import Lease, Leases
from pinlater.worker._reports.report import ACKS_PER_REQUEST_MAX, AckBuffer
from pinlater.worker.context import attempt_number
from pinlater.worker.settings import backoff_ms


def job(**known: Any) -> ClaimedJob:
    return ClaimedJob("d", "q", b"", "t")._replace(**known)


def test_backoff_doubles_up_to_its_maximum_with_jitter() -> None:
    settings = WorkerSettings(backoff_first_ms=100, backoff_max_ms=1_000)
    assert [backoff_ms(settings, n, 1.0) for n in (1, 2, 3, 9, 10_000)] == [100, 200, 400, 1_000, 1_000]
    assert backoff_ms(settings, 1, 0.0) == 50


def test_attempts_are_counted_on_servers_that_do_not_count_them() -> None:
    assert attempt_number(job(attempt=3)) == 3
    assert attempt_number(job(attempts_allowed=5, attempts_remaining=4)) == 2


def test_heartbeats_come_at_each_third_of_a_claim() -> None:
    clock = ManualClock()
    leases = Leases(clock)
    number, _ = leases.add(Lease(job(), lambda result: None, lambda: None), 3_000)
    assert number is not None
    clock.advance(seconds=0.5)
    assert leases.take_due() == ([], 0.5)
    clock.advance(seconds=0.5)
    due, next_s = leases.take_due()
    assert ([found for found, _ in due], next_s) == ([number], 1.0)
    leases.drop([number])
    assert leases.take_due() == ([], None)


async def test_acks_are_taken_in_order_and_as_many_as_fit_a_request() -> None:
    buffer = AckBuffer[int]()
    for number in range(ACKS_PER_REQUEST_MAX + 2):
        buffer.add(number)
    await buffer.wait_for_flush(0)
    assert buffer.take() == list(range(ACKS_PER_REQUEST_MAX))
    assert len(buffer) == 2
    assert buffer.take() == [ACKS_PER_REQUEST_MAX, ACKS_PER_REQUEST_MAX + 1]
    assert buffer.take() == []
