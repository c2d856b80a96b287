"""The original's form of the statistics, line by line, with every name of the contract."""

from __future__ import annotations

import json

from pinlater.server.telemetry import ostrich
from pinlater.server.telemetry.catalogue import QUEUE_COUNTERS
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.numbers import look


def busy_metrics() -> Metrics:
    metrics = Metrics()
    queue = metrics.queue("emails")
    queue.enqueue = 7
    queue.first_dequeue_delay_ms.record(20)
    queue.dequeue_delay_ms.record_each([100] * 3)
    queue.job_body_size.record(64)
    method = metrics.method("enqueueJobs")
    method.requests = 2
    method.msec.record(3.2)
    method.error("QUEUE_NOT_FOUND")
    metrics.count("enqueue-failures-retry", 2)
    metrics.labelled_gauge("dequeue-semaphore-waiters-", lambda: {"emails": 4}, label="queue")
    metrics.labels["store"] = "sqlite"
    return metrics


def page(metrics: Metrics) -> ostrich.Sections:
    return ostrich.sections(look(metrics, (), last_minute=False)())


def test_the_text_has_the_originals_sections_and_lines() -> None:
    counters = {f"emails_{counter.attribute}": 0 for counter in QUEUE_COUNTERS}
    counters |= {"emails_enqueue": 7, "enqueue-failures-retry": 2}
    counters |= {"PinLater.enqueueJobs.errors.QUEUE_NOT_FOUND": 1, "PinLaterService.enqueueJobs_requests": 2}
    expected = ["counters:", *(f"  {name}: {counters[name]}" for name in sorted(counters))]
    expected += ["gauges:", "  dequeue-semaphore-waiters-emails: 4", "labels:", "  store: sqlite", "metrics:"]
    expected += [
        f"  {name}: (average={value}, count={count}, maximum={value}, minimum={value}, p50={value}, p90={value}, "
        f"p95={value}, p99={value}, p999={value}, p9999={value}, sum={value * count})"
        for name, value, count in (
            ("PinLaterService.enqueueJobs_msec", 3, 1),
            ("emails_dequeue_delay_ms", 100, 3),
            ("emails_first_dequeue_delay_ms", 20, 1),
            ("job_body_size_emails", 64, 1),
        )
    ]
    assert ostrich.text(page(busy_metrics())).splitlines() == expected


def test_the_json_says_the_same_as_the_text() -> None:
    content = page(busy_metrics())
    assert json.loads(ostrich.as_json(content)) == content
    assert list(content) == ["counters", "gauges", "labels", "metrics"]


def test_histograms_that_saw_nothing_are_left_out() -> None:
    metrics = Metrics()
    metrics.queue("idle")
    assert page(metrics)["metrics"] == {}
