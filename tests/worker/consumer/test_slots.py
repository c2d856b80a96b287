"""How a worker's queues share its slots and claims, in simulated time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.worker._consumer.slots import LASTING_MS, QueueShare, Slots

Length = Callable[[], float]


class Simulation:
    """A worker whose queues have endless jobs of these `lengths`, and whose claims are answered after `answer_ms`."""

    def __init__(
        self,
        slots: int,
        lengths: Mapping[str, Length],
        weights: Mapping[str, int] | None = None,
        most: Mapping[str, int] | None = None,
        idle: Collection[str] = (),
        answer_ms: float = 2.0,
    ) -> None:
        self.now = 0.0
        self.slots = Slots(slots, 512, lambda: self.now / 1000)
        self.lengths = lengths
        self.jobs: Counter[str] = Counter()
        self.had_ms: dict[str, float] = dict.fromkeys(lengths, 0.0)
        self.claims = 0
        self.held_most = self.given_back = 0
        self._answer_ms = answer_ms
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        for queue in lengths:
            share = self.slots.add(queue, (weights or {}).get(queue, 1), (most or {}).get(queue))
            if queue in idle:
                self.slots.claim_ended(share, backlogged=False)
            else:
                self.slots.want_claim(share)

    def run(self, ms: float) -> None:
        until = self.now + ms
        self._begin_claims()
        while self._events and self._events[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.now = until

    def _after(self, ms: float, happen: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + ms, self._number, happen))

    def _begin_claims(self) -> None:
        for share, limit in self.slots.claims():
            self.claims += 1
            self._after(self._answer_ms, lambda share=share, limit=limit: self._answer(share, limit))  # type: ignore[misc]

    def _answer(self, share: QueueShare, limit: int) -> None:
        self.slots.claim_ended(share, backlogged=True)
        self.slots.add_waiting(share, limit)
        self._start()
        self.given_back += sum(self.slots.take_surplus().values())
        self.held_most = max(self.held_most, self.slots.running + self.slots.waiting)
        self.slots.want_claim(share)
        self._begin_claims()

    def _start(self) -> None:
        while (share := self.slots.next_start()) is not None:
            since, length = self.slots.start(share), self.lengths[share.queue]()
            self._after(length, lambda share=share, since=since, length=length: self._end(share, since, length))  # type: ignore[misc]

    def _end(self, share: QueueShare, since: float, length: float) -> None:
        self.slots.ran(share, length)
        self.slots.end(share, since)
        self.jobs[share.queue] += 1
        self.had_ms[share.queue] += length
        self._start()
        self._begin_claims()

    def shares(self, weights: Mapping[str, int] | None = None) -> list[float]:
        """Each queue's slot time for its weight, as a part of the mean."""
        each = [self.had_ms[queue] / (weights or {}).get(queue, 1) for queue in self.lengths]
        return [one / (sum(each) / len(each)) for one in each]


@pytest.mark.parametrize("length_ms", [1, 20, 100, 10_000])
@pytest.mark.parametrize(("queues", "slots", "heaviest"), [(2, 8, 3), (12, 4, 1), (12, 4, 5)])
def test_queues_have_slot_time_by_weight_within_a_tenth(
    queues: int, slots: int, length_ms: float, heaviest: int
) -> None:
    weights = {f"q{number}": 1 + (number % 2) * (heaviest - 1) for number in range(queues)}
    worker = Simulation(slots, dict.fromkeys(weights, lambda: length_ms), weights)
    worker.run(40 * length_ms * sum(weights.values()) / slots + 1_000)
    assert all(0.9 < share < 1.1 for share in worker.shares(weights))


def test_queues_with_short_and_long_jobs_have_equal_slot_time() -> None:
    drawn = random.Random(4)
    lengths: dict[str, Length] = {
        "millisecond": lambda: 1.0,
        "short": lambda: 30.0,
        "odd": lambda: drawn.choice([1.0, 1.0, 1.0, 400.0]),
        "second": lambda: 1_000.0,
        "long": lambda: 10_000.0,
    }
    worker = Simulation(4, lengths)
    worker.run(60_000)
    assert all(0.9 < share < 1.1 for share in worker.shares())


def test_a_queue_at_its_maximum_leaves_the_rest_to_the_others_and_saves_up_nothing() -> None:
    worker = Simulation(8, dict.fromkeys("abc", lambda: 100.0), {"a": 1_000}, {"a": 1})
    worker.run(60_000)
    assert [round(worker.had_ms[queue] / 60_000, 1) for queue in "abc"] == [1.0, 3.4, 3.4]


@pytest.mark.parametrize("queues", [1, 4, 40, 400])
def test_long_jobs_are_claimed_for_free_slots_only(queues: int) -> None:
    worker = Simulation(4, {f"q{number}": lambda: 2_000.0 for number in range(queues)})
    worker.run(20_000)
    assert (worker.held_most, worker.given_back) == (4, 0)


@pytest.mark.parametrize("queues", [1, 4, 40, 400])
def test_short_jobs_are_claimed_ahead_in_batches_for_all_queues_together(queues: int) -> None:
    worker = Simulation(4, {f"q{number}": lambda: 1.0 for number in range(queues)})
    worker.run(500)  # each queue's jobs are found to be short
    jobs, claims = sum(worker.jobs.values()), worker.claims
    worker.run(500)
    jobs, claims = sum(worker.jobs.values()) - jobs, worker.claims - claims
    assert worker.held_most <= 4 + 200
    assert not worker.given_back
    assert jobs > 1_950
    assert claims < jobs / 5


def polling(slots: Slots, *shares: QueueShare) -> dict[QueueShare, int]:
    """These queues seem to be empty and poll."""
    for share in shares:
        slots.claim_ended(share, backlogged=False)
        slots.want_claim(share)
    return dict(slots.claims())


def bring(slots: Slots, share: QueueShare, jobs: int) -> dict[QueueShare, int]:
    """A poll is answered. Returns what is given back."""
    slots.claim_ended(share, backlogged=False)
    slots.add_waiting(share, jobs)
    while (next_one := slots.next_start()) is not None:
        slots.start(next_one)
    return slots.take_surplus()


def test_what_long_polls_bring_beyond_the_free_slots_goes_back() -> None:
    slots = Slots(4, 512, ManualClock().monotonic)
    shares = [slots.add(queue, 1, None) for queue in "abcd"]
    limits = polling(slots, *shares)
    assert list(limits) == shares  # each has a poll, also a queue whose jobs found no free slot would have one
    given_back = [bring(slots, share, 3) for share in shares]
    assert slots.running == 4
    assert slots.waiting == 0
    assert [sum(each.values()) for each in given_back] == [0, 2, 3, 3]


def test_a_queue_whose_jobs_went_back_is_the_next_to_claim() -> None:
    clock = ManualClock()
    slots = Slots(1, 512, clock.monotonic)
    busy, other = slots.add("busy", 1, None), slots.add("other", 1, None)
    polling(slots, other)
    slots.claim_ended(busy, backlogged=True)
    slots.add_waiting(busy, 1)
    since = slots.start(busy)
    assert bring(slots, other, 1) == {other: 1}
    for share in (busy, other):
        slots.want_claim(share)
    clock.advance(seconds=5)
    assert slots.claims() == []
    clock.advance(seconds=5)
    slots.end(busy, since)
    assert slots.claims() == [(other, 1)]


def test_a_seemingly_empty_queue_polls_while_another_uses_all_slots() -> None:
    slots = Slots(4, 512, ManualClock().monotonic)
    busy, empty = slots.add("busy", 1, None), slots.add("empty", 1, None)
    slots.claim_ended(empty, backlogged=False)
    for share in (busy, empty):
        slots.want_claim(share)
    assert dict(slots.claims()) == {busy: 4, empty: 1}


def test_an_overdue_claim_leaves_its_slots_to_others() -> None:
    clock = ManualClock()
    slots = Slots(2, 512, clock.monotonic)
    first, second = slots.add("first", 1, None), slots.add("second", 1, None)
    slots.want_claim(first)
    assert slots.claims() == [(first, 2)]
    slots.want_claim(second)
    clock.advance(ms=500)
    assert slots.claims() == []
    clock.advance(ms=500)
    slots.claim_ended(first, backlogged=False)
    assert slots.claims() == [(second, 2)]


def test_short_jobs_that_wait_behind_jobs_that_last_go_back() -> None:
    slots = Slots(2, 512, ManualClock().monotonic)
    share = slots.add("q", 1, None)
    slots.ran(share, 1)
    assert bring(slots, share, 50) == {}
    slots.look()
    assert share.mean_ms == LASTING_MS
    assert slots.take_surplus() == {share: 48}


def test_a_process_that_stood_still_does_not_charge_the_queues_that_had_slots_then() -> None:
    clock = ManualClock()
    slots = Slots(2, 512, clock.monotonic)
    share, _ = slots.add("q", 1, None), slots.add("other", 1, None)
    slots.ran(share, 1)
    slots.add_waiting(share, 1)
    since = slots.start(share)
    clock.advance(ms=300)
    slots.end(share, since)
    assert share.used_ms == 2


def test_a_queue_without_jobs_saves_up_no_slot_time() -> None:
    worker = Simulation(4, dict.fromkeys("ab", lambda: 10.0), idle="b")
    share = worker.slots.share("b")
    worker.run(10_000)
    worker.slots.claim_ended(share, backlogged=True)
    worker.slots.want_claim(share)
    before = worker.jobs["a"]
    worker.run(5_000)
    assert worker.jobs["a"] - before == pytest.approx(worker.jobs["b"], rel=0.1)
