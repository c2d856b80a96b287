"""Thousands of queues: /metrics shows the busiest by name, and nothing is left out of the sums."""

from __future__ import annotations

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.telemetry.busiest import only_busiest
from pinlater.server.telemetry.metrics import OVERFLOW, Metrics
from pinlater.server.telemetry.numbers import Numbers, look
from pinlater.server.telemetry.prometheus import render

QUEUES = 1_000


def _many() -> tuple[Metrics, list[QueueCounts]]:
    """Queue n has stored and handed out n jobs; the last ten did so through another server."""
    metrics, counts = Metrics(), []
    for n in range(QUEUES):
        here = n < QUEUES - 10
        queue = metrics.queue(f"q{n}")
        queue.enqueue = n if here else 0
        queue.dequeue_delay_ms.record(n)
        counts += [
            QueueCounts(f"q{n}", PriorityCounts(priority, pending=2, enqueued_total=n, oldest_due_at_ms=n + 1))
            for priority in (1, 2)
        ]
    metrics.labelled_gauge("waiters-", lambda: {"q1": 3, "q2": 4, "q999": 5}, label="queue")
    metrics.labelled_gauge("shards-", lambda: {"q1": 3}, label="shard")
    return metrics, counts


def _page(numbers: Numbers) -> str:
    return render(numbers)[0].decode()


def test_few_queues_are_all_shown() -> None:
    metrics, counts = _many()
    numbers = look(metrics, counts, last_minute=False)()
    assert only_busiest(numbers, QUEUES) is numbers


def test_the_busiest_keep_their_names_and_the_others_are_added_up() -> None:
    metrics, counts = _many()
    numbers = look(metrics, counts, last_minute=False)()
    shown = only_busiest(numbers, 20)
    names = {f"q{n}" for n in range(QUEUES - 20, QUEUES)}
    assert shown.reading.queues.keys() == names | {OVERFLOW}
    assert {row.queue for row in shown.counts} == names | {OVERFLOW}
    assert shown.reading.queues["q985"] == numbers.reading.queues["q985"]


def test_sums_over_all_queues_stay_what_they_are() -> None:
    metrics, counts = _many()
    numbers = look(metrics, counts, last_minute=False)()
    shown = only_busiest(numbers, 20)

    def sums(of: Numbers) -> tuple[object, ...]:
        readings = of.reading.queues.values()
        return (
            [sum(column) for column in zip(*(reading.counts for reading in readings), strict=True)],
            sum(spread.count for reading in readings for spread in reading.distributions),
            sum(row.counts.pending for row in of.counts),
            min(row.counts.oldest_due_at_ms or 0 for row in of.counts),
        )

    assert sums(shown) == sums(numbers)
    waiters, shards = shown.gauges[-2:]
    assert waiters.values == {OVERFLOW: 7, "q999": 5}
    assert shards.values == {"q1": 3}, "a shard is no queue"


def test_the_page_does_not_grow_with_the_queues() -> None:
    metrics, counts = _many()
    numbers = look(metrics, counts, last_minute=False)()
    assert len(_page(only_busiest(numbers, 20))) < len(_page(numbers)) / 20


async def test_a_snapshot_in_turns_is_a_snapshot() -> None:
    metrics, _ = _many()
    assert await metrics.snapshot_in_turns(5.0) == metrics.snapshot(5.0)
    await metrics.tick_in_turns(0.0)
    metrics.queue("q1").enqueue += 1
    again = await metrics.snapshot_in_turns()
    assert again == metrics.snapshot()
    await metrics.tick_in_turns(5.0)
    assert metrics.last_minute()[0].queues["q2"] is again.queues["q2"]
