"""Counters, their bounds, and the last minute."""

from __future__ import annotations

import gc

from pinlater.server.telemetry.metrics import OVERFLOW, TICK_S, Metrics
from pinlater.server.telemetry.snapshots import Snapshot


def enqueued(metrics: Metrics, queue: str, *, last_minute: bool = False) -> int:
    return metrics.read(last_minute=last_minute).queues[queue].counts[0]


def test_a_queues_handle_is_always_the_same_until_it_is_forgotten() -> None:
    metrics = Metrics()
    handle = metrics.queue("emails")
    assert metrics.queue("emails") is handle
    metrics.forget_queue("emails")
    assert metrics.queue("emails") is not handle


def test_more_queues_than_the_bound_are_counted_together() -> None:
    metrics = Metrics(queues_max=3)
    for number in range(10):
        metrics.queue(f"q{number}").enqueue += 1
    assert len(metrics.read().queues) == 4
    assert enqueued(metrics, OVERFLOW) == 7


def test_a_forgotten_queue_frees_its_place_for_another() -> None:
    metrics = Metrics(queues_max=1)
    metrics.queue("a")
    assert metrics.queue("b").name == OVERFLOW
    metrics.forget_queue("a")
    metrics.forget_queue(OVERFLOW)
    assert metrics.queue("b").name == "b"


def test_other_names_are_bounded_too() -> None:
    metrics = Metrics(names_max=2)
    for number in range(5):
        metrics.count(f"c{number}")
        metrics.method(f"m{number}").requests += 1
    reading = metrics.read()
    assert reading.counters == {"c0": 1, "c1": 1, OVERFLOW: 3}
    assert {name: method.requests for name, method in reading.methods.items()} == {"m0": 1, "m1": 1, OVERFLOW: 3}


def test_a_gauge_is_read_on_request() -> None:
    metrics = Metrics()
    waiting = {"emails": 2}
    metrics.labelled_gauge("waiters-", lambda: waiting, label="queue")
    metrics.gauge("connections", lambda: 5)
    assert [dict(reading.values) for reading in metrics.read_gauges()] == [{"emails": 2}, {"": 5}]


def test_the_last_minute_forgets_what_is_older() -> None:
    metrics = Metrics()
    queue, method = metrics.queue("emails"), metrics.method("enqueueJobs")
    for tick in range(30):
        metrics.tick(tick * TICK_S)
        queue.enqueue += 1
        method.requests += 1
        method.error("QUEUE_NOT_FOUND")
        metrics.count("odd", 2)
        queue.dequeue_delay_ms.record(1000 if tick < 10 else 10)
    reading = metrics.read(last_minute=True)
    assert reading.queues["emails"].counts[0] == 12
    assert reading.methods["enqueueJobs"].requests == 12
    assert reading.methods["enqueueJobs"].errors == {"QUEUE_NOT_FOUND": 12}
    assert reading.counters["odd"] == 24
    delay = reading.queues["emails"].distributions[1]
    assert (delay.count, delay.maximum) == (12, 10)
    assert enqueued(metrics, "emails") == 30


def test_a_collector_that_asks_each_minute_counts_every_event_once() -> None:
    """The window moves by whole ticks, so that sums over minutes come out right."""
    metrics = Metrics()
    queue = metrics.queue("emails")
    seen, happened = 0, 0
    for tick in range(121):
        metrics.tick(tick * TICK_S)
        if tick and tick % 12 == 0:
            seen += enqueued(metrics, "emails", last_minute=True)
            assert seen == happened
        queue.enqueue += tick
        happened += tick


def test_before_a_minute_has_passed_the_last_minute_is_all_there_is() -> None:
    metrics = Metrics()
    metrics.queue("emails").enqueue = 4
    assert enqueued(metrics, "emails", last_minute=True) == 4
    metrics.tick(100.0)
    metrics.queue("emails").enqueue += 5
    metrics.tick(105.0)
    assert enqueued(metrics, "emails", last_minute=True) == 9


def test_a_queue_made_again_under_its_old_name_starts_from_nothing() -> None:
    metrics = Metrics()
    metrics.queue("emails").enqueue = 100
    metrics.tick(0.0)
    metrics.forget_queue("emails")
    metrics.queue("emails").enqueue = 3
    metrics.tick(65.0)
    assert enqueued(metrics, "emails", last_minute=True) == 3


def test_snapshots_share_what_did_not_change() -> None:
    metrics = Metrics()
    metrics.queue("idle").enqueue = 1
    metrics.queue("busy").enqueue = 1
    first = metrics.snapshot()
    metrics.tick(0.0)
    metrics.queue("busy").enqueue += 1
    metrics.tick(5.0)
    metrics.tick(60.0)
    newer, older = metrics.last_minute()
    assert older is not None
    assert newer.queues["idle"] is older.queues["idle"]
    assert newer.queues["busy"] is not older.queues["busy"]
    assert first.queues["busy"].counts == older.queues["busy"].counts


def test_the_snapshots_of_a_minute_are_kept_and_no_others() -> None:
    metrics = Metrics()
    metrics.queue("only here")
    for at_s in range(0, 1_000, 5):
        metrics.tick(float(at_s))
    newer, older = metrics.last_minute()
    assert older is not None
    assert newer.at_s - older.at_s == 60
    kept = [one for one in gc.get_objects() if isinstance(one, Snapshot) and "only here" in one.queues]
    assert len(kept) == 13
