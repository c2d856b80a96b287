"""What a simulation leaves in the process of the tests."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

from pinlater.simulation.isolation import collected_at_the_end


async def never_begun() -> None:
    """As a coroutine of a killed process."""


def test_a_coroutine_that_is_still_held_after_a_simulation_is_closed() -> None:
    """Else a later test fails, in which it is collected."""
    older = never_begun()
    held: list[Coroutine[Any, Any, None]] = []
    with collected_at_the_end():
        held.append(never_begun())
    assert inspect.getcoroutinestate(held[0]) == inspect.CORO_CLOSED
    assert inspect.getcoroutinestate(older) == inspect.CORO_CREATED
    older.close()
