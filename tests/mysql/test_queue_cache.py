"""Where claims begin to look: never behind what they may trust, and not at the very first place again and again where that is dear."""

from __future__ import annotations

from pinlater.domain.clock import ManualClock
from pinlater.domain.queue import Queue
from pinlater.server.storage.mysql.queue_cache import MysqlQueueCache, QueueEntry
from pinlater.server.storage.mysql.ready_jobs import ReadyBytes

WHEN_MS = 1_000_000


def cache_with_a_floor(clock: ManualClock) -> tuple[MysqlQueueCache, QueueEntry]:
    """Of a queue whose last claim took a job of `WHEN_MS`."""
    queue_cache = MysqlQueueCache("1", clock.monotonic, 1, ReadyBytes(0))
    queue_cache.replace(queue_cache.begin_look(), [(1, Queue("emails"))])
    queue = queue_cache.by_id[1]
    clock.advance(ms=2_000)
    assert queue_cache.floors(queue) == {}
    queue.took(0.001)
    queue.floors[1] = WHEN_MS
    return queue_cache, queue


def test_a_claim_begins_where_the_last_one_ended_for_a_second_and_then_at_the_start() -> None:
    clock = ManualClock()
    queue_cache, queue = cache_with_a_floor(clock)
    clock.advance(ms=900)
    assert queue_cache.floors(queue) == {1: WHEN_MS}
    clock.advance(ms=100)
    assert queue_cache.floors(queue) == {}


def test_where_the_look_from_the_start_is_dear_it_is_rare_and_others_look_a_little_back() -> None:
    """A long read of another client keeps the database from purging what was claimed: millions of rows to scan."""
    clock = ManualClock()
    queue_cache, queue = cache_with_a_floor(clock)
    clock.advance(ms=1_000)
    assert queue_cache.floors(queue) == {}
    queue.took(0.5)
    queue.floors[1] = WHEN_MS
    for second in range(1, 10):
        clock.advance(ms=1_000)
        assert queue_cache.floors(queue) == {1: WHEN_MS - second * 10_000}
        queue.took(0.01)
    clock.advance(ms=1_000)
    assert queue_cache.floors(queue) == {}
    queue.took(0.001)
    clock.advance(ms=1_000)
    assert queue_cache.floors(queue) == {}


def test_a_job_that_is_put_before_is_looked_for() -> None:
    clock = ManualClock()
    queue_cache, queue = cache_with_a_floor(clock)
    queue_cache.waits_from(1, 1, 5)
    assert queue_cache.floors(queue) == {1: 5}
    queue.floors[1] = WHEN_MS  # taken by a claim
    queue_cache.forget_floors()
    assert queue_cache.floors(queue) == {1: 5}


def test_after_a_look_from_the_start_that_failed_claims_go_on_where_they_were() -> None:
    """It may have been too long for a statement: then it would fail again and again, and nothing would ever be claimed."""
    clock = ManualClock()
    queue_cache, queue = cache_with_a_floor(clock)
    for seconds in (1, 2, 4):
        clock.advance(ms=seconds * 1_000)
        assert queue_cache.floors(queue) == {}
        queue_cache.forget_floors()
        found = queue_cache.floors(queue)
        assert WHEN_MS - seconds * 10_000 - 20_000 <= found[1] < WHEN_MS
        queue.floors[1] = WHEN_MS
    for _ in range(10):
        clock.advance(ms=60_000)
        assert queue_cache.floors(queue) == {}
        queue_cache.forget_floors()
        assert queue_cache.floors(queue) != {}


def test_however_dear_it_is_claims_look_from_the_start_once_a_minute() -> None:
    clock = ManualClock()
    queue_cache, queue = cache_with_a_floor(clock)
    clock.advance(ms=1_000)
    queue_cache.floors(queue)
    queue.took(100)
    queue.floors[1] = WHEN_MS
    clock.advance(ms=59_000)
    assert queue_cache.floors(queue) != {}
    clock.advance(ms=1_000)
    assert queue_cache.floors(queue) == {}
