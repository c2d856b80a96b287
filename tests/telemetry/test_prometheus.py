"""Prometheus' form, read back with the library's own parsers."""

from __future__ import annotations

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.samples import Sample

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.telemetry.catalogue import QUEUE_COUNTERS
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.numbers import Numbers
from pinlater.server.telemetry.prometheus import render


def samples(metrics: Metrics, counts: tuple[QueueCounts, ...] = ()) -> list[Sample]:
    body, content_type = render(Numbers(metrics.read(), metrics.read_gauges(), counts=counts))
    assert content_type.startswith("text/plain")
    return [sample for family in parser.text_string_to_metric_families(body.decode()) for sample in family.samples]


def value_of(found: list[Sample], metric: str, /, **labels: str) -> float:
    matching = [sample.value for sample in found if sample.name == metric and sample.labels == labels]
    assert len(matching) == 1, f"{metric} {labels}: {matching}"
    return matching[0]


def test_every_queue_counter_has_its_labelled_total() -> None:
    metrics = Metrics()
    for number, counter in enumerate(QUEUE_COUNTERS):
        setattr(metrics.queue("emails"), counter.attribute, number + 1)
    found = samples(metrics)
    for number, counter in enumerate(QUEUE_COUNTERS):
        assert value_of(found, f"{counter.prometheus}_total", queue="emails") == number + 1


def test_delays_are_cumulative_histograms_in_seconds() -> None:
    metrics = Metrics()
    metrics.queue("emails").dequeue_delay_ms.record_each([250] * 3)
    metrics.queue("emails").dequeue_delay_ms.record(7_000)
    found = samples(metrics)
    name = "pinlater_dequeue_delay_seconds"
    assert value_of(found, f"{name}_bucket", queue="emails", le="0.1") == 0
    assert value_of(found, f"{name}_bucket", queue="emails", le="0.25") == 3
    assert value_of(found, f"{name}_bucket", queue="emails", le="10.0") == 4
    assert value_of(found, f"{name}_bucket", queue="emails", le="+Inf") == 4
    assert value_of(found, f"{name}_count", queue="emails") == 4
    assert value_of(found, f"{name}_sum", queue="emails") == pytest.approx(7.75)


def test_methods_have_requests_errors_and_durations() -> None:
    metrics = Metrics()
    method = metrics.method("enqueueJobs")
    method.requests = 3
    method.error("QUEUE_NOT_FOUND")
    method.msec.record(0.4)
    found = samples(metrics)
    assert value_of(found, "pinlater_requests_total", method="enqueueJobs") == 3
    assert value_of(found, "pinlater_request_errors_total", method="enqueueJobs", code="QUEUE_NOT_FOUND") == 1
    assert value_of(found, "pinlater_request_duration_seconds_bucket", method="enqueueJobs", le="0.0005") == 1
    assert value_of(found, "pinlater_request_duration_seconds_sum", method="enqueueJobs") == pytest.approx(0.0004)


def test_stored_jobs_are_gauges_by_state_and_priority() -> None:
    counted = PriorityCounts(2, 5, 2, in_progress=1, succeeded=7, failed=3, oldest_due_at_ms=1500, behind_key=1)
    counts = QueueCounts("emails", counted)
    found = samples(Metrics(), (counts,))
    by_state = {
        sample.labels["state"]: sample.value
        for sample in found
        if sample.name == "pinlater_queue_jobs" and sample.labels["priority"] == "2"
    }
    assert by_state == {"due": 3, "future": 2, "in_progress": 1, "succeeded": 7, "failed": 3}
    assert value_of(found, "pinlater_queue_behind_key", queue="emails", priority="2") == 1
    assert value_of(found, "pinlater_queue_oldest_due_timestamp_seconds", queue="emails", priority="2") == 1.5


def test_gauges_show_under_their_own_or_a_fitting_name() -> None:
    metrics = Metrics()
    metrics.labelled_gauge(
        "dequeue-semaphore-waiters-", lambda: {"emails": 4}, prometheus="pinlater_waiting_dequeues", label="queue"
    )
    metrics.gauge("thrift-connections", lambda: 9)
    metrics.count("mysql-deadlock-enqueue")
    found = samples(metrics)
    assert value_of(found, "pinlater_waiting_dequeues", queue="emails") == 4
    assert value_of(found, "pinlater_thrift_connections") == 9
    assert value_of(found, "pinlater_events_total", name="mysql-deadlock-enqueue") == 1


def test_the_process_itself_is_shown_too() -> None:
    assert value_of(samples(Metrics()), "process_resident_memory_bytes") > 0


def test_hostile_names_do_not_break_the_page() -> None:
    metrics = Metrics()
    metrics.count('a"b\\c\nd')
    assert value_of(samples(metrics), "pinlater_events_total", name='a"b\\c\nd') == 1


def test_a_client_that_asks_for_open_metrics_gets_it() -> None:
    metrics = Metrics()
    metrics.queue("emails").enqueue = 2
    body, content_type = render(Numbers(metrics.read()), accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    parsed = openmetrics_parser.text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert families["pinlater_jobs_enqueued"].samples[0].value == 2


def test_two_pages_can_be_made_in_one_process() -> None:
    """Nothing is registered globally, so several servers live in one process."""
    for _ in range(2):
        assert samples(Metrics())
