"""Several processes' numbers as those of one server."""

from __future__ import annotations

from random import Random

from prometheus_client import parser

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.telemetry.histogram import Histogram
from pinlater.server.telemetry.joining import join, join_distributions, join_gauges, join_readings, only_queues
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.numbers import NOTHING, Numbers, look
from pinlater.server.telemetry.ostrich import sections
from pinlater.server.telemetry.processes import Processes, ProcessVitals
from pinlater.server.telemetry.prometheus import render


def numbers(metrics: Metrics, *counts: QueueCounts) -> Numbers:
    return look(metrics, counts, last_minute=False)()


def test_counters_of_queues_methods_and_events_add_up() -> None:
    one, other = Metrics(), Metrics()
    one.queue("emails").enqueue, other.queue("emails").enqueue, other.queue("mail").enqueue = 3, 4, 1
    one.method("dequeueJobs").requests, other.method("dequeueJobs").requests = 5, 6
    one.method("dequeueJobs").error("UNKNOWN")
    other.method("dequeueJobs").error("UNKNOWN")
    one.count("thrift_bad_frames", 2)
    other.count("thrift_bad_frames")
    shown = sections(join([numbers(one), numbers(other)]))["counters"]
    assert (shown["emails_enqueue"], shown["mail_enqueue"]) == (7, 1)
    assert shown["PinLaterService.dequeueJobs_requests"] == 11
    assert shown["PinLater.dequeueJobs.errors.UNKNOWN"] == 2
    assert shown["thrift_bad_frames"] == 3


def test_a_joined_percentile_equals_that_of_one_histogram_of_all_values() -> None:
    """The mean of the percentiles would be another number."""
    random = Random(1)
    parts, whole = [Histogram(1000) for _ in range(3)], Histogram(1000)
    for part, scale in zip(parts, (1, 10, 500), strict=True):
        for _ in range(1000 // scale + 5):
            value = random.expovariate(1 / scale)
            part.record(value)
            whole.record(value)
    joined = join_distributions([part.read() for part in parts])
    expected = whole.read()
    assert joined.buckets == expected.buckets
    assert (joined.count, joined.minimum, joined.maximum) == (expected.count, expected.minimum, expected.maximum)
    shares = (0.5, 0.9, 0.99, 0.999)
    assert joined.quantiles(shares) == expected.quantiles(shares)
    assert abs(joined.sum - expected.sum) < 1e-6


def test_an_empty_histogram_does_not_change_the_minimum() -> None:
    seen = Histogram()
    seen.record(500)
    joined = join_distributions([Histogram().read(), seen.read(), Histogram().read()])
    assert (joined.count, joined.minimum) == (1, 500)
    assert join_distributions([Histogram().read()]).count == 0


def test_gauges_join_as_their_maker_says() -> None:
    """What each has adds up; what all see in the store is taken once; health is the worst of any."""
    one, other = Metrics(), Metrics()
    for metrics, waiting, live, healthy in ((one, 2, 10, True), (other, 3, 11, False)):
        metrics.labelled_gauge("waiting-", lambda waiting=waiting: {"q": waiting}, label="queue")  # type: ignore[misc]
        metrics.labelled_gauge("live-", lambda live=live: {"1": live}, join="max", label="shard")  # type: ignore[misc]
        metrics.labelled_gauge("healthy-", lambda healthy=healthy: {"1": healthy}, join="min", label="shard")  # type: ignore[misc]
    other.gauge("only-there", lambda: 7)
    joined = {reading.gauge.name: reading.values for reading in join_gauges(one.read_gauges() + other.read_gauges())}
    assert joined == {"waiting-": {"q": 5}, "live-": {"1": 11}, "healthy-": {"1": 0}, "only-there": {"": 7}}


def test_a_gauge_of_truth_is_a_number() -> None:
    metrics = Metrics()
    metrics.labelled_gauge("healthy-", lambda: {"1": True, "2": False}, label="shard")
    assert sections(Numbers(gauges=metrics.read_gauges()))["gauges"] == {"healthy-1": 1, "healthy-2": 0}
    assert repr(metrics.read_gauges()[0].values["1"]) == "1"


def test_the_newest_counts_of_each_queue_are_shown_once() -> None:
    older = QueueCounts("emails", PriorityCounts(1, pending=5, enqueued_total=5))
    newer = QueueCounts(
        "emails", PriorityCounts(1, pending=3, succeeded=2, enqueued_total=5, claimed_total=2, succeeded_total=2)
    )
    elsewhere = QueueCounts("mail", PriorityCounts(2, pending=1, enqueued_total=1))
    for parts in ([[older, elsewhere], [newer]], [[newer], [elsewhere, older]]):
        assert join([Numbers(counts=rows) for rows in parts]).counts == [newer, elsewhere]


def test_labels_of_all_are_shown() -> None:
    assert join([Numbers(labels={"store": "mysql"}), Numbers()]).labels == {"store": "mysql"}


def test_unknown_queues_can_be_left_out() -> None:
    metrics = Metrics()
    metrics.queue("emails").enqueue = metrics.queue("gone").enqueue = 1
    assert set(only_queues(join_readings([metrics.read(), NOTHING]), {"emails"}).queues) == {"emails"}


def test_each_processs_own_numbers_have_its_label() -> None:
    """Read of this very process under two names; one without a process is left out."""
    garbage = [{"collected": 5, "uncollectable": 0, "collections": 2}]
    vitals = [
        ProcessVitals("0", None, garbage),
        ProcessVitals("supervisor", None, ()),
        ProcessVitals("1", 2**22 + 1, ()),
    ]
    body, _ = render(Numbers(), Processes(vitals))
    found = {
        (sample.name, sample.labels.get("process"))
        for family in parser.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert {("process_resident_memory_bytes", "0"), ("process_open_fds", "supervisor")} <= found
    assert ("process_cpu_seconds_total", "0") in found
    assert ("python_gc_collections_total", "0") in found
    assert not any(label == "1" for _, label in found)
