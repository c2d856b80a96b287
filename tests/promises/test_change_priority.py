"""changePriority: named jobs get another priority, and with it another descriptor."""

from __future__ import annotations

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.durations import YEAR_MS
from tests.promises.test_queues import refused
from tests.promises.wire import ALREADY_FINAL, APPLIED, FAILED, NOT_FOUND, PENDING, STALE_CLAIM, Wire, ttypes

FAR_MS = ManualClock().now_ms() + YEAR_MS


async def change(wire: Wire, priority: int, *descriptors: str) -> list[tuple[int, str | None]]:
    """The outcomes, and the new descriptors."""
    request = ttypes.ChangePriorityRequest("q", list(descriptors), priority)
    return [(each.outcome, each.movedTo) for each in await wire.call("changePriority", request=request)]


async def test_a_job_has_its_new_descriptor_and_the_old_one_names_nothing(here: Wire) -> None:
    [later] = await here.enqueue("q", b"l", runAfterTimestampMillis=FAR_MS)
    [failed] = await here.enqueue("q", b"f")
    await here.claim("q", 1)
    request = ttypes.PinLaterJobAckRequest("q", None, [ttypes.PinLaterJobAckInfo(failed, finalFailure=True)])
    await here.call("ackJobs", request=request)
    moved = [name.replace(":p1:", ":p3:") for name in (later, failed)]
    assert await change(here, 3, later, failed) == [(APPLIED, name) for name in moved]
    found = await here.call("lookupJobs", request=ttypes.PinLaterLookupJobRequest([later, failed, *moved]))
    assert {name: info.jobState for name, info in found.items()} == {moved[0]: PENDING, moved[1]: FAILED}
    assert found[moved[0]].runAfterTimestampMillis == FAR_MS


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


async def test_a_job_in_hand_a_finished_and_a_missing_one_stay_and_are_told(here: Wire) -> None:
    held, done = await here.enqueue("q", b"h", b"d")
    await here.claim("q", 2)
    await here.ack("q", done)
    request = ttypes.ChangePriorityRequest("q", [held, done, "q:s1:p1:1"], 2)
    answers = await here.call("changePriority", request=request)
    assert [(each.outcome, each.movedTo) for each in answers] == [
        (STALE_CLAIM, None),
        (ALREADY_FINAL, None),
        (NOT_FOUND, None),
    ]
    assert answers[0].holder
    assert answers[0].heldSinceMillis
    await here.ack("q", held)


@pytest.mark.parametrize("priority", [0, 4, -1, 127])
async def test_a_priority_that_there_is_not_is_refused(here: Wire, priority: int) -> None:
    [name] = await here.enqueue("q", b"x")
    error = await refused(here.call("changePriority", request=ttypes.ChangePriorityRequest("q", [name], priority)))
    assert (error.code, error.detail) == (416, "PRIORITY_NOT_SUPPORTED")
    assert (await here.job(name)).jobState == PENDING
