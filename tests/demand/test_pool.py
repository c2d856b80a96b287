"""Pools of pods that follow the number, against the three ways in which others go wrong."""

from __future__ import annotations

import math
from random import Random

import pytest

from pinlater.server.features.demand.formula import QueueWork
from tests.demand.pool import POLL_S, TARGET_S, Pool, wanted

HOUR_S = 3_600


def waiting_jobs(load: QueueWork) -> int:
    """The number that many take: the length of the queue."""
    return load.runnable


def jobs_in_hand(load: QueueWork) -> int:
    """What it would be to take each job in hand for a slot in use."""
    return max(load.in_hand, wanted(load))


def test_a_burst_of_short_jobs_starts_at_most_a_tenth_of_the_pods_that_its_length_asks_for() -> None:
    pool = Pool(concurrency=10, random=Random(1), known_run_s=0.01)
    pool.enqueue([0.01] * 10_000)
    pool.run(2 * POLL_S)
    assert pool.peak <= 10_000 / 10 / 10
    assert pool.done == 10_000


def test_jobs_that_workers_claim_ahead_start_no_pods_which_would_claim_as_many_again() -> None:
    peaks = []
    for number in (wanted, jobs_in_hand):
        pool = Pool(concurrency=10, random=Random(1), number=number, known_run_s=0.005)
        for _ in range(5 * 60):
            pool.enqueue([0.005] * 4_000)
            pool.run(1)
        peaks.append(pool.peak)
    assert peaks[0] * 10 < peaks[1]


def test_a_burst_of_jobs_of_a_minute_starts_as_many_pods_as_its_length_asks_for() -> None:
    pool = Pool(concurrency=10, random=Random(1), known_run_s=60.0, grace_s=60)
    pool.enqueue([60.0] * 600)
    pool.run(1)
    assert pool.peak == 600 / 10
    pool.run(20 * 60)
    assert (pool.done, pool.cut, len(pool.pods)) == (600, 0, 1)


def test_a_queue_with_jobs_of_one_ordering_key_wants_one_slot() -> None:
    pool = Pool(concurrency=1, random=Random(1), one_key=True)
    pool.enqueue([5.0] * 1_000)
    seen = set[int | None]()
    for _ in range(60):
        pool.run(POLL_S)
        seen.add(wanted(pool.load()))
    assert (seen, pool.peak) == ({1}, 1)


def test_no_job_of_an_hour_is_cut_where_the_length_of_the_queue_would_cut_most() -> None:
    cut = []
    for number in (wanted, waiting_jobs):
        pool = Pool(concurrency=1, random=Random(1), number=number, grace_s=600)
        pool.enqueue([HOUR_S] * 40)
        pool.run(HOUR_S + 600)
        cut.append(pool.cut)
        assert pool.peak == 40
    assert cut[0] == 0
    assert cut[1] >= 39  # and again those that had to start anew


@pytest.mark.parametrize("seed", range(10))
def test_no_job_is_cut_that_ends_within_the_grace_however_the_load_changes(seed: int) -> None:
    random = Random(seed)
    pool = Pool(concurrency=random.choice([1, 4, 16]), random=random, grace_s=120, window_s=random.choice([0, 300]))
    length_s, enqueued = random.uniform(1, 100), 0
    for _ in range(60):
        jobs = random.choice([0, 1, 10, 200])
        pool.enqueue([random.uniform(0.5, 1.2) * length_s for _ in range(jobs)])
        pool.run(POLL_S)
        enqueued += jobs
    pool.run(HOUR_S)
    assert (pool.done, pool.cut) == (enqueued, 0)
    assert len(pool.pods) == 1


def test_a_backlog_is_worked_off_within_some_times_the_drain_target_though_the_rate_grows_tenfold() -> None:
    pool = Pool(concurrency=10, random=Random(1), known_run_s=1.0, grace_s=60)
    for rate in (2, 20):
        for _ in range(600):
            pool.enqueue([1.0] * rate)
            pool.run(1)
    assert len(pool.jobs) <= 3 * TARGET_S
    assert pool.peak <= 2 * math.ceil(20 / 10) + 1


def test_short_jobs_run_while_long_ones_hold_all_slots() -> None:
    pool = Pool(concurrency=1, random=Random(1), known_run_s=0.01, grace_s=HOUR_S)
    pool.enqueue([HOUR_S])
    pool.run(60)
    pool.enqueue([0.01] * 50)
    pool.run(2 * POLL_S)
    assert (pool.done, pool.peak) == (50, 2)


def test_while_the_counts_are_incomplete_the_pods_stay() -> None:
    """With a shard away, half of the jobs in hand would look like all of them."""
    away = False
    pool = Pool(concurrency=1, random=Random(1), number=lambda load: None if away else wanted(load), grace_s=30)
    pool.enqueue([600.0] * 40)
    pool.run(60)
    away = True
    pool.run(450)
    assert (len(pool.pods), pool.cut) == (40, 0)
    away = False
    pool.run(600)
    assert (pool.done, pool.cut, len(pool.pods)) == (40, 0, 1)
