"""changePriority: named jobs get another priority, and with it another descriptor."""

from __future__ import annotations

from tests.promises.wire import APPLIED, Wire, ttypes


async def change(wire: Wire, priority: int, *descriptors: str) -> list[tuple[int, str | None]]:
    """The outcomes, and the new descriptors."""
    request = ttypes.ChangePriorityRequest("q", list(descriptors), priority)
    return [(each.outcome, each.movedTo) for each in await wire.call("changePriority", request=request)]


async def test_a_repeat_answers_the_same_also_after_the_job_has_gone_on(here: Wire) -> None:
    """So a caller whose answer was lost sends the call again."""
    [name] = await here.enqueue("q", b"x")
    moved = name.replace(":p1:", ":p2:")
    done = [(APPLIED, moved), (APPLIED, moved)]
    assert await change(here, 2, name, name) == done
    assert await change(here, 2, name, moved) == done
    await here.claim("q", 1)
    assert await change(here, 2, name, moved) == done
    await here.ack("q", moved)
    assert await change(here, 2, name, moved) == done
