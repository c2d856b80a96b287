"""When a supervisor restarts a process that has ended."""

from __future__ import annotations

import pytest

from pinlater.supervision.restarts import Next, next_start


@pytest.mark.parametrize("code", [0, 75])
def test_a_process_that_was_recycled_or_ended_in_order_restarts_at_once(code: int) -> None:
    assert next_start(code, 5.0, 3, True, 0.5, (0, 75)) == Next(0.0, 0)


def test_the_restart_delay_doubles_with_each_crash() -> None:
    delays, crashes = [], 0
    for _ in range(10):
        delay_s, crashes = next_start(-9, 0.1, crashes, True, 1.0)
        delays.append(delay_s)
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


def test_restart_delays_have_jitter_and_a_long_life_resets_them() -> None:
    assert next_start(1, 0.1, 6, True, 0.0) == Next(15.0, 7)
    assert next_start(1, 61.0, 6, True, 1.0) == Next(0.5, 1)


def test_a_process_that_ends_at_once_is_restarted_with_a_delay() -> None:
    assert next_start(75, 0.1, 0, True, 1.0, (0, 75)) == Next(0.5, 1)


def test_a_process_with_a_wrong_module_is_not_restarted_unless_it_ran_before() -> None:
    assert next_start(2, 1.0, 0, False, 1.0).delay_s is None
    assert next_start(2, 1.0, 0, True, 1.0) == Next(0.5, 1)
