"""When a queue gets more partitions, and when fewer: the decision alone, on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, log2

import pytest

from pinlater.server.features.partitions.growth import (
    APART_MS,
    CHANGES_MAX,
    ChangeReason,
    Growth,
    NumberChange,
    PartitionLoad,
    WatchedQueue,
)

SAMPLE_S = 5
MINUTE_S = 60
HOUR_S = 3_600
FULL = PartitionLoad(0.95, 0.4, 0.9, 0.9)
IDLE = PartitionLoad(0.0, 0.0)


class Observed:
    """A queue whose changes are made as decided. `loads(number)`: of the shards in its order, if it has this number of partitions."""

    def __init__(
        self,
        loads: Callable[[int], Sequence[PartitionLoad | None]],
        rate: Callable[[int], float] = lambda number: 100.0 * number,
        queue: str = "q",
    ) -> None:
        self.queue = queue
        self.partitions = 1
        self.loads = loads
        self.rate = rate
        self.changed_ms = 0

    def sample(self) -> WatchedQueue:
        number = self.partitions
        return WatchedQueue(self.queue, number, self.loads(number), self.rate(number), self.changed_ms)


class Decider:
    """One server that decides for some queues, every five seconds."""

    def __init__(self, *queues: Observed) -> None:
        self.queues = queues
        self.growth = Growth()
        self.now_ms = 1_000_000
        self.steps: list[tuple[int, NumberChange]] = []

    def run(self, seconds: int) -> list[NumberChange]:
        """The steps of that time."""
        before = len(self.steps)
        for _ in range(0, seconds, SAMPLE_S):
            self.now_ms += SAMPLE_S * 1000
            changed = [queue.changed_ms for queue in self.queues]
            step = self.growth.decide([queue.sample() for queue in self.queues], changed, self.now_ms)
            if step is not None:
                self.make(step)
        return [step for _, step in self.steps[before:]]

    def make(self, step: NumberChange) -> None:
        [queue] = [queue for queue in self.queues if queue.queue == step.queue]
        queue.partitions, queue.changed_ms = step.after, self.now_ms
        self.growth.made(step, self.now_ms)
        self.steps.append((self.now_ms, step))


def numbers(steps: list[NumberChange]) -> list[tuple[int, int]]:
    return [(step.before, step.after) for step in steps]


def saturating(shards: int) -> Callable[[int], Sequence[PartitionLoad | None]]:
    """A queue that keeps as many partitions busy as it has."""
    return lambda number: [FULL] * number + [IDLE] * (shards - number)


# --- growth ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [2, 3, 4, 5, 8, 16])
def test_a_saturating_queue_doubles_until_it_is_on_all_shards(shards: int) -> None:
    decider = Decider(Observed(saturating(shards)))
    steps = decider.run(HOUR_S)
    assert len(steps) == ceil(log2(shards))
    assert steps[-1].after == shards
    assert all(step.after <= 2 * step.before and step.reason is ChangeReason.BUSY for step in steps)
    times = [at_ms for at_ms, _ in decider.steps]
    assert all(later - earlier >= APART_MS for earlier, later in pairwise(times))


def test_a_queue_must_be_busy_for_five_seconds_in_a_row() -> None:
    busy = False

    def loads(_: int) -> Sequence[PartitionLoad | None]:
        return [FULL if busy else IDLE, IDLE]

    decider = Decider(Observed(loads))
    for number in range(40):
        busy = number % 2 == 0
        assert decider.run(SAMPLE_S) == []
    busy = True
    assert decider.run(SAMPLE_S) == []
    assert numbers(decider.run(SAMPLE_S)) == [(1, 2)]


@pytest.mark.parametrize(
    ("first", "second", "grows"),
    [
        (PartitionLoad(0.8, 0.1, 0.25, 0.0), PartitionLoad(0.49, 0.49), True),
        (PartitionLoad(0.1, 0.8, 0.0, 0.25), PartitionLoad(0.0, 0.0), True),
        (PartitionLoad(0.79, 0.79, 1.0, 1.0), PartitionLoad(0.0, 0.0), False),
        (PartitionLoad(1.0, 1.0, 0.24, 0.24), PartitionLoad(0.0, 0.0), False),
        (PartitionLoad(1.0, 0.1, 0.1, 1.0), PartitionLoad(0.0, 0.0), False),
        (PartitionLoad(1.0, 1.0, 1.0, 1.0), PartitionLoad(0.5, 0.0), False),
        (PartitionLoad(1.0, 1.0, 1.0, 1.0), PartitionLoad(0.0, 0.5), False),
        (PartitionLoad(1.0, 1.0, 1.0, 1.0), None, False),
        (None, PartitionLoad(0.0, 0.0), False),
    ],
)
def test_the_owner_must_be_busy_with_the_queue_and_the_next_one_must_not_be(
    first: PartitionLoad | None, second: PartitionLoad | None, grows: bool
) -> None:
    assert bool(Decider(Observed(lambda _: [first, second])).run(MINUTE_S // 2)) is grows


def test_every_partition_must_be_busy() -> None:
    queue = Observed(lambda _: [FULL, PartitionLoad(0.7, 0.7, 1.0, 1.0), IDLE, IDLE])
    queue.partitions = 2
    assert Decider(queue).run(HOUR_S) == []


def test_a_queue_on_all_shards_does_not_grow() -> None:
    queue = Observed(lambda _: [FULL, FULL])
    queue.partitions = 2
    assert Decider(queue).run(HOUR_S) == []


def test_a_step_that_helped_stays_although_fewer_jobs_come_before_half_a_minute_is_over() -> None:
    """Else a load that pauses and comes back would find the step banned for an hour."""
    more_come = True
    decider = Decider(Observed(saturating(4), rate=lambda number: 100.0 * number if more_come else 50.0))
    while not decider.steps:
        decider.run(SAMPLE_S)
    assert decider.run(SAMPLE_S) == []
    more_come = False
    assert [step.reason for step in decider.run(HOUR_S)] == [ChangeReason.BUSY, ChangeReason.NOT_FASTER]
    assert decider.queues[0].partitions == 2


def test_a_step_that_does_not_help_is_taken_back_after_half_a_minute_and_not_tried_again_for_an_hour() -> None:
    """As with shards on one machine: each is busy, and nothing goes faster."""
    decider = Decider(Observed(saturating(4), rate=lambda number: 100.0 if number == 1 else 124.0))
    steps = decider.run(HOUR_S)
    assert numbers(steps) == [(1, 2), (2, 1)]
    assert steps[1].reason is ChangeReason.NOT_FASTER
    (grown_ms, _), (back_ms, _) = decider.steps
    assert 30_000 <= back_ms - grown_ms <= 35_000
    decider.run(MINUTE_S)
    again_ms, again = decider.steps[2]
    assert (again.before, again.after) == (1, 2)
    assert HOUR_S * 1000 <= again_ms - back_ms <= HOUR_S * 1000 + 10_000


def test_only_the_step_that_did_not_help_is_taken_back() -> None:
    decider = Decider(Observed(saturating(4), rate=lambda number: 100.0 * min(number, 2)))
    assert numbers(decider.run(HOUR_S)) == [(1, 2), (2, 4), (4, 2)]


def test_a_number_that_changed_otherwise_meanwhile_is_left_alone() -> None:
    """Another server may have decided before it lost the first partition to this one."""
    queue = Observed(saturating(4), rate=lambda _: 100.0)
    decider = Decider(queue)
    assert numbers(decider.run(2 * SAMPLE_S)) == [(1, 2)]
    queue.partitions, queue.changed_ms = 4, decider.now_ms
    assert decider.run(2 * MINUTE_S) == []


def test_a_step_that_could_not_be_made_is_decided_again() -> None:
    decider = Decider(Observed(saturating(2)))
    decided: list[NumberChange] = []
    decider.make = decided.append  # type: ignore[method-assign, assignment]
    decider.run(MINUTE_S)
    assert len(decided) > 2


# --- shrinking -------------------------------------------------------------------------------------------------------------------


def quiet(load: float) -> Callable[[int], Sequence[PartitionLoad | None]]:
    """Work of one queue, in shares of one partition, divided among its partitions."""
    return lambda number: [PartitionLoad(load / number, load / number, 1.0, 1.0)] * number + [IDLE] * (4 - number)


def test_a_queue_shrinks_after_ten_minutes_in_which_half_of_its_partitions_would_have_done() -> None:
    queue = Observed(quiet(0.39))
    queue.partitions = 4
    decider = Decider(queue)
    assert decider.run(10 * MINUTE_S) == []
    assert numbers(decider.run(MINUTE_S)) == [(4, 2)]
    assert decider.run(9 * MINUTE_S) == []
    assert numbers(decider.run(2 * MINUTE_S)) == [(2, 1)]
    assert decider.run(HOUR_S) == []


def test_a_moment_that_needs_all_partitions_begins_the_ten_minutes_anew() -> None:
    load = 0.0

    def loads(number: int) -> Sequence[PartitionLoad | None]:
        return quiet(load)(number)

    queue = Observed(loads)
    queue.partitions = 4
    decider = Decider(queue)
    for _ in range(5):
        load = 0.0
        assert decider.run(9 * MINUTE_S) == []
        load = 0.81
        assert decider.run(SAMPLE_S) == []


def test_a_queue_does_not_shrink_while_it_is_not_known_how_busy_an_owner_is() -> None:
    queue = Observed(lambda _: [IDLE, None])
    queue.partitions = 2
    assert Decider(queue).run(HOUR_S) == []


def test_the_work_of_other_queues_is_not_moved_when_a_queue_shrinks() -> None:
    """Only what the queue itself does on the partitions that it gives up."""
    queue = Observed(lambda _: [PartitionLoad(0.2, 0.2, 1.0, 1.0), PartitionLoad(0.9, 0.9, 0.1, 0.1)])
    queue.partitions = 2
    assert numbers(Decider(queue).run(11 * MINUTE_S)) == [(2, 1)]


# --- how often -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_a_queue_at_a_steady_load_of_60_percent_changes_nothing_in_half_an_hour(partitions: int) -> None:
    load = PartitionLoad(0.6, 0.6, 1.0, 1.0)
    queue = Observed(lambda number: [load] * number + [IDLE] * (4 - number))
    queue.partitions = partitions
    assert Decider(queue).run(30 * MINUTE_S) == []


def test_many_queues_together_change_at_most_ten_times_a_minute() -> None:
    decider = Decider(*(Observed(saturating(8), queue=f"q{number}") for number in range(40)))
    decider.run(10 * MINUTE_S)
    times = [at_ms for at_ms, _ in decider.steps]
    assert len(times) == 100
    assert all(later - earlier >= APART_MS for earlier, later in zip(times, times[CHANGES_MAX:], strict=False))
    for queue in decider.queues:
        own = [at_ms for at_ms, step in decider.steps if step.queue == queue.queue]
        assert all(later - earlier >= APART_MS for earlier, later in pairwise(own))


def test_changes_of_other_servers_count() -> None:
    growth, now_ms = Growth(), 1_000_000
    sample = Observed(saturating(2)).sample()
    for _ in range(3):
        now_ms += 5_000
        assert growth.decide([sample], [now_ms] * CHANGES_MAX, now_ms) is None
    assert growth.decide([sample], [now_ms] * (CHANGES_MAX - 1), now_ms) is not None
