"""When a worker tries again, and how it counts attempts."""

from __future__ import annotations

from typing import Any

from pinlater.client import ClaimedJob
from pinlater.worker import WorkerSettings
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
