"""When a shard is in use and when it isn't: the decisions alone, by a clock that the test turns."""

from __future__ import annotations

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import (
    Draining,
    OutcomeUnknown,
    PinLaterError,
    QueueFull,
    QueueNotFound,
    ShardConnectionFailed,
    ShardRefused,
    StoreFull,
)
from pinlater.server.sharding.health import ShardHealth, speaks_of_shard
from pinlater.server.sharding.settings import ShardingSettings

SETTINGS = ShardingSettings()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> ShardHealth:
    return ShardHealth(SETTINGS, clock.monotonic)


def fail(health: ShardHealth, times: int = 1) -> None:
    for _ in range(times):
        health.failed("gone")


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ShardConnectionFailed("x"), True),
        (OutcomeUnknown("x"), True),
        (ShardRefused("x"), False),
        (StoreFull.of("x"), False),
        (QueueFull.of("q", 1, 1, 1), False),
        (QueueNotFound.of("q"), False),
        (Draining(), False),
        (None, False),
    ],
)
def test_only_what_speaks_of_the_shard_counts(error: PinLaterError | None, counts: bool) -> None:
    assert speaks_of_shard(error) is counts


def test_a_single_failure_has_the_shard_probed_and_no_more(health: ShardHealth) -> None:
    assert not health.probe_due()
    fail(health)
    assert health.healthy
    assert health.probe_due()
    assert not health.probe_due()  # once
    health.probe_succeeded()
    assert health.healthy


def test_a_failed_probe_puts_it_out_of_use(health: ShardHealth) -> None:
    fail(health)
    health.probe_failed("refused")
    assert not health.healthy
    assert health.reason == "refused"


def test_failures_among_the_newest_calls_put_it_out_of_use_though_probes_succeed(health: ShardHealth) -> None:
    """A shard may answer pings and nothing else."""
    for _ in range(SETTINGS.failures_to_open - 1):
        fail(health)
        health.succeeded()
        health.probe_succeeded()
    assert health.healthy
    fail(health)
    assert not health.healthy


def test_two_time_outs_are_enough(health: ShardHealth) -> None:
    health.failed("slow", timed_out=True)
    assert health.healthy
    health.failed("slow", timed_out=True)
    assert not health.healthy


def test_old_failures_are_forgotten(health: ShardHealth, clock: ManualClock) -> None:
    """By time, and by calls that succeeded since."""
    fail(health, SETTINGS.failures_to_open - 1)
    clock.advance(ms=SETTINGS.window_ms + 1)
    fail(health, SETTINGS.failures_to_open - 1)
    for _ in range(SETTINGS.window_calls):
        health.succeeded()
    fail(health, SETTINGS.failures_to_open - 1)
    assert health.healthy


def test_it_is_probed_again_with_longer_and_longer_pauses(health: ShardHealth, clock: ManualClock) -> None:
    health.probe_failed("gone")
    pauses = []
    for _ in range(6):
        start = clock.now_ms()
        while not health.probe_due():
            clock.advance(ms=10)
        pauses.append(clock.now_ms() - start)
        health.probe_failed("still gone")
    assert pauses == pytest.approx([1_000, 2_000, 4_000, 5_000, 5_000, 5_000], abs=10)
    assert health.reason == "still gone"


def test_servers_do_not_probe_as_one(clock: ManualClock) -> None:
    """Jitter of a quarter to either side."""
    due = []
    for spread in (0.0, 0.5, 0.999):
        health = ShardHealth(SETTINGS, clock.monotonic, lambda spread=spread: spread)  # type: ignore[misc]
        health.probe_failed("gone")
        start = clock.now_ms()
        while not health.probe_due():
            clock.advance(ms=5)
        due.append(clock.now_ms() - start)
    assert due == pytest.approx([750, 1_000, 1_250], abs=6)


def test_one_good_probe_brings_it_back(health: ShardHealth) -> None:
    health.probe_failed("gone")
    health.probe_succeeded()
    assert health.healthy
    fail(health)
    assert not health.healthy  # but on probation


def test_a_success_ends_probation(health: ShardHealth) -> None:
    health.probe_failed("gone")
    health.probe_succeeded()
    health.succeeded()
    fail(health)
    assert health.healthy


def test_a_shard_that_fails_again_and_again_is_tried_less_and_less_often(
    health: ShardHealth, clock: ManualClock
) -> None:
    """It answers pings and nothing else: each return costs its callers something."""
    health.probe_failed("gone")
    pauses = []
    for _ in range(4):
        start = clock.now_ms()
        while not health.probe_due():
            clock.advance(ms=10)
        pauses.append(clock.now_ms() - start)
        health.probe_succeeded()
        fail(health)
        assert not health.healthy
    assert pauses == pytest.approx([1_000, 2_000, 4_000, 5_000], abs=10)
    while not health.probe_due():
        clock.advance(ms=10)
    health.probe_succeeded()
    health.succeeded()
    health.probe_failed("gone")
    start = clock.now_ms()
    while not health.probe_due():
        clock.advance(ms=10)
    assert clock.now_ms() - start == pytest.approx(1_000, abs=10)
