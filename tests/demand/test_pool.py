"""Pools of pods that follow the number, against the three ways in which others go wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from pinlater.server.features.demand import demand
from pinlater.server.features.demand.formula import QueueWork, slots_wanted
from tests.demand.pool import Burst, PoolPlan, run_pool

LONG_S = 600
# Servers then know how long jobs run.
SHORT_JOBS_BEFORE = [Burst(60 * minute, [0.01] * 20) for minute in range(4)]

UseFormula = Callable[[Callable[[QueueWork, float], int]], None]


@pytest.fixture
def use_formula(monkeypatch: pytest.MonkeyPatch) -> UseFormula:
    """Has servers take another formula."""
    return lambda formula: monkeypatch.setattr(demand, "slots_wanted", formula)


def waiting_jobs(load: QueueWork, _: float) -> int:
    """The number that many take: the length of the queue."""
    return load.runnable


def jobs_in_hand(load: QueueWork, drain_target_s: float) -> int:
    """What it would be to take each job in hand for a slot in use."""
    return max(load.in_hand, slots_wanted(load, drain_target_s))


def test_a_burst_of_short_jobs_starts_none_of_the_thousand_pods_that_its_length_asks_for() -> None:
    run = run_pool(PoolPlan(concurrency=10, bursts=[*SHORT_JOBS_BEFORE, Burst(240, [0.01] * 10_000)], lasts_s=300))
    assert (run.peak, run.done) == (1, 4 * 20 + 10_000)


def test_jobs_that_workers_claim_ahead_start_no_pods_which_would_claim_as_many_again(use_formula: UseFormula) -> None:
    peaks = []
    for formula in (slots_wanted, jobs_in_hand):
        use_formula(formula)
        bursts = [*SHORT_JOBS_BEFORE, Burst(240, [0.01] * 10_000)]
        peaks.append(run_pool(PoolPlan(concurrency=10, bursts=bursts, lasts_s=300)).peak)
    assert peaks == [1, 6]


def test_a_burst_of_jobs_of_a_minute_starts_as_many_pods_as_its_length_asks_for() -> None:
    run = run_pool(PoolPlan(concurrency=10, bursts=[Burst(0, [60.0] * 600)], lasts_s=500, grace_s=60))
    assert run.peak == 600 / 10
    assert (run.done, run.cut, len(run.pods)) == (600, 0, 1)


def test_a_queue_with_jobs_of_one_ordering_key_wants_one_slot() -> None:
    run = run_pool(PoolPlan(concurrency=1, bursts=[Burst(0, [5.0] * 100, "key")], lasts_s=480))
    assert ({slots for slots, _ in run.seen}, run.peak) == ({None, 1}, 1)


@pytest.mark.parametrize(("formula", "cuts"), [(slots_wanted, False), (waiting_jobs, True)])
def test_no_long_job_is_cut_where_the_length_of_the_queue_would_cut_most(
    use_formula: UseFormula, formula: Callable[[QueueWork, float], int], cuts: bool
) -> None:
    use_formula(formula)
    lasts_s = 400 if cuts else LONG_S + 400
    run = run_pool(PoolPlan(concurrency=1, bursts=[Burst(0, [LONG_S] * 20)], lasts_s=lasts_s, grace_s=60))
    assert (run.cut >= 18) == cuts, run.cut
    assert cuts or (run.cut, run.done, run.peak) == (0, 20, 20)


@pytest.mark.parametrize("seed", range(3))
def test_no_job_is_cut_that_ends_within_the_grace_however_the_load_changes(seed: int) -> None:
    random = Random(seed)
    length_s = random.uniform(1, 100)
    bursts = [
        Burst(30 * number, [random.uniform(0.5, 1.2) * length_s for _ in range(random.choice([0, 1, 10, 100]))])
        for number in range(10)
    ]
    plan = PoolPlan(random.choice([1, 4, 16]), bursts, 900, seed=seed, grace_s=120, window_s=random.choice([0, 300]))
    run = run_pool(plan)
    assert (run.done, run.cut) == (sum(len(burst.lengths_s) for burst in bursts), 0)
    assert len(run.pods) == 1


def test_a_backlog_is_worked_off_within_some_times_the_drain_target_though_the_rate_grows_tenfold() -> None:
    few = [Burst(second, [1.0] * 2) for second in range(180)]
    many = [Burst(second, [1.0] * 20) for second in range(180, 480)]
    run = run_pool(PoolPlan(concurrency=10, bursts=[*few, *many], lasts_s=480, grace_s=60))
    assert run.measure.samples[-1].backlog == 0
    assert run.peak <= math.ceil(20 / 10) + 1


def test_short_jobs_run_while_long_ones_hold_all_slots() -> None:
    """A worker that has claimed some ahead gives them back."""
    bursts = [*SHORT_JOBS_BEFORE, Burst(240, [LONG_S]), Burst(270, [0.01] * 50)]
    run = run_pool(PoolPlan(concurrency=1, bursts=bursts, lasts_s=330, grace_s=LONG_S))
    assert (run.peak, run.done) == (2, 4 * 20 + 50)


def test_while_the_counts_are_incomplete_the_pods_stay() -> None:
    """With a shard away, half of the jobs in hand would look like all of them."""
    plan = PoolPlan(
        concurrency=1, bursts=[Burst(0, [600.0] * 40)], lasts_s=1_000, window_s=30, fault="lose-shard@100s+400s"
    )
    run = run_pool(plan)
    away = [pods for slots, pods in run.seen[30:] if slots is None]
    assert len(away) > 70
    assert set(away) == {40}
    assert (run.done, run.cut, len(run.pods)) == (40, 0, 1)
