"""The arithmetic of a queue's dequeue limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.rate_limit import TokenBucket, lower_limit

RATES = st.one_of(st.floats(0.01, 10_000), st.sampled_from([0.1, 1.0, 100.0]))
STEPS = st.lists(st.tuples(st.floats(0, 20), st.integers(1, 1000)), max_size=60)


def test_a_full_bucket_holds_one_seconds_worth() -> None:
    bucket = TokenBucket(100, now=0)
    for _ in range(100):
        assert bucket.available(0)
        bucket.charge(1, 0)
    assert not bucket.available(0)


def test_a_bucket_with_a_burst_holds_that_and_never_less_than_a_job() -> None:
    for rate, burst, held in ((10.0, 3.0, 3), (10.0, 30.0, 30), (0.1, 5.0, 5), (10.0, 0.5, 1)):
        bucket = TokenBucket(rate, 0, burst)
        assert bucket.whole(1_000) == held
        bucket.charge(held, 1_000)
        wait_ms = bucket.retry_after_ms(1_000)
        assert wait_ms is not None
        assert bucket.whole(1_000 + wait_ms / 1000) >= 1


def test_a_fraction_lets_one_job_through_at_once_and_the_next_after_its_time() -> None:
    bucket = TokenBucket(0.1, now=0)
    assert bucket.available(0)
    bucket.charge(1, 0)
    assert bucket.retry_after_ms(0) == 10_000
    assert not bucket.available(9.9)
    assert bucket.available(10)


def test_one_request_may_overdraw_and_the_next_pays() -> None:
    bucket = TokenBucket(10, now=0)
    bucket.charge(50, 0)
    assert bucket.retry_after_ms(0) == 4_100
    assert not bucket.available(4)
    assert bucket.available(4.1)


def test_a_rate_of_0_never_hands_out_and_time_does_not_help() -> None:
    bucket = TokenBucket(0, now=0)
    assert not bucket.available(1e9)
    assert bucket.retry_after_ms(1e9) is None


def test_tokens_of_released_jobs_return_to_the_bucket_but_never_beyond_the_burst() -> None:
    bucket = TokenBucket(5, now=0)
    bucket.charge(5, 0)
    bucket.charge(-3, 0)
    assert bucket.available(0)
    bucket.charge(-1000, 0)
    bucket.charge(5, 0)
    assert not bucket.available(0)


def test_a_new_rate_counts_from_its_own_moment() -> None:
    bucket = TokenBucket(1, now=0)
    bucket.charge(1, 0)
    bucket.set_rate(100, 0.5)
    assert bucket.retry_after_ms(0.5) == 45  # until 5 tokens are there
    assert bucket.rate == 100


def test_a_lower_rate_makes_no_old_debt_take_longer() -> None:
    bucket = TokenBucket(1000, now=0)
    bucket.charge(2000, 0)
    bucket.set_rate(0.1, 0)
    assert bucket.available(11)


def test_from_0_to_a_rate_and_back() -> None:
    bucket = TokenBucket(10, now=0)
    bucket.set_rate(0, 0)
    assert not bucket.available(100)
    bucket.set_rate(10, 100)
    assert bucket.available(100)


def test_a_clock_that_steps_back_gives_nothing_twice() -> None:
    bucket = TokenBucket(1, now=10)
    bucket.charge(1, 10)
    assert not bucket.available(5)
    assert not bucket.available(10.5)
    assert bucket.available(11)


@pytest.mark.parametrize("rate", [-1, math.inf, math.nan])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(rate, now=0)


@given(RATES, STEPS)
def test_over_any_window_no_more_is_handed_out_than_rate_burst_and_one_overdraft(
    rate: float, steps: list[tuple[float, int]]
) -> None:
    """Every request is answered as soon as it may be, with all the jobs that it asks for."""
    bucket = TokenBucket(rate, now=0)
    now, handed = 0.0, [(0.0, 0)]
    for wait, jobs in steps:
        now += wait
        if bucket.available(now):
            bucket.charge(jobs, now)
            handed.append((now, jobs))
    for first in range(len(handed)):
        for last in range(first, len(handed)):
            window = handed[first : last + 1]
            total = sum(jobs for _, jobs in window)
            overdraft = max(jobs for _, jobs in window)
            assert total <= rate * (window[-1][0] - window[0][0]) + bucket.burst + overdraft + 0.01


@given(RATES, st.integers(1, 10_000), st.floats(0, 1e6))
def test_a_caller_that_waits_for_the_retry_after_time_is_served(rate: float, jobs: int, now: float) -> None:
    bucket = TokenBucket(rate, now=now)
    bucket.charge(jobs, now)
    wait_ms = bucket.retry_after_ms(now)
    assert wait_ms is not None
    assert wait_ms == 24 * 3_600_000 or bucket.available(now + wait_ms / 1000)


@given(RATES, st.integers(20, 200))
def test_a_queue_that_is_never_empty_gets_its_whole_rate(rate: float, requests: int) -> None:
    bucket = TokenBucket(rate, now=0)
    now = 0.0
    for _ in range(requests):
        now += (bucket.retry_after_ms(now) or 0) / 1000
        bucket.charge(1, now)
    assert now <= (requests - 1) / rate + requests * 0.001 + 0.01


def test_the_lower_of_the_two_limits_holds() -> None:
    assert lower_limit(None, None) is None
    assert lower_limit(10, None) == 10
    assert lower_limit(10, 4) == 4
    assert lower_limit(0, 4) == 0


def test_without_an_overdraft_a_request_gets_whole_tokens() -> None:
    bucket = TokenBucket(10, now=0)
    assert bucket.whole(0) == 10
    assert bucket.whole(0, 4) == 6
    bucket.charge(10, 0)
    assert bucket.whole(0.19) == 1
    bucket.charge(20, 0.19)
    assert bucket.whole(0.2) <= 0
    assert TokenBucket(0, now=0).whole(10) == 0


def test_under_a_high_limit_a_refused_request_waits_for_several_tokens() -> None:
    bucket = TokenBucket(1_000, now=0)
    bucket.charge(1_000, 0)
    assert bucket.retry_after_ms(0) == 50
