"""The one clock: it never jumps, whatever is done to the machine's."""

from __future__ import annotations

import pytest

from pinlater.domain.clock import CATCH_UP_MS_MAX, ManualClock, SystemClock

HOUR_S = 3_600.0


class Machine:
    """A machine's two clocks."""

    def __init__(self) -> None:
        self.wall_s = 1_800_000_000.0
        self.monotonic_s = 12_345.0

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall_s, lambda: self.monotonic_s)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_jump_of_the_wall_clock_moves_nothing(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    started = clock.now_ms()
    machine.pass_time(5)
    machine.wall_s += jump_s
    machine.pass_time(5)

    assert clock.now_ms() - started == 10_000
    assert clock.drift_ms() == pytest.approx(jump_s * 1000, abs=1)


def test_it_starts_at_the_wall_time() -> None:
    machine = Machine()
    clock = machine.clock()

    assert clock.now_ms() == pytest.approx(machine.wall_s * 1000, abs=1)
    assert abs(clock.drift_ms()) <= 1


def test_a_new_start_takes_the_corrected_wall_time() -> None:
    """The weakness that the clock's own text admits: only a restart does."""
    machine = Machine()
    old = machine.clock()
    machine.wall_s += HOUR_S

    assert machine.clock().now_ms() - old.now_ms() == pytest.approx(HOUR_S * 1000, abs=1)


def test_time_never_goes_back() -> None:
    machine = Machine()
    clock = machine.clock()
    seen = []
    for step in range(1_000):
        machine.monotonic_s += 0.000_3
        machine.wall_s += (-1) ** step * 100
        seen.append(clock.now_ms())

    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("ahead_ms", "moves_ms"), [(-5, 0), (0, 0), (3, 3), (CATCH_UP_MS_MAX, CATCH_UP_MS_MAX), (CATCH_UP_MS_MAX + 1, 0)]
)
def test_a_clock_follows_one_that_is_a_little_ahead(ahead_ms: int, moves_ms: int) -> None:
    clock = Machine().clock()
    before_ms = clock.now_ms()
    clock.catch_up(before_ms + ahead_ms)
    assert abs(clock.now_ms() - before_ms - moves_ms) <= 1


def test_two_clocks_that_follow_each_other_do_not_run_away() -> None:
    machine = Machine()
    ahead = machine.clock()
    machine.wall_s -= 0.000_5
    behind = machine.clock()
    machine.wall_s += 0.000_5
    for step in range(2_000):
        asking, asked = (ahead, behind) if step % 2 else (behind, ahead)
        sent_ms = asking.now_ms()
        machine.pass_time(0.000_2)
        asked.catch_up(sent_ms)
        assert asked.now_ms() >= sent_ms
        machine.pass_time(0.000_03 * (step % 11))
    assert abs(ahead.drift_ms()) <= 1
    assert abs(behind.drift_ms()) <= 1


def test_the_real_clock_tells_milliseconds_since_the_epoch() -> None:
    clock = SystemClock()

    assert 1_735_689_600_000 < clock.now_ms() < 1 << 42
    assert clock.monotonic() <= clock.monotonic()


def test_a_manual_clock_moves_by_hand_only() -> None:
    clock = ManualClock(1_000)

    assert clock.advance(ms=5, seconds=1.5, hours=1) == 1_000 + 5 + 1_500 + 3_600_000
    assert clock.now_ms() == clock.now_ms()
    assert clock.monotonic() == clock.now_ms() / 1000
