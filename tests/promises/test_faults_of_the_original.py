"""Known faults of the original that ours must not have, where no other sentence of this folder says it."""

from __future__ import annotations

from tests.promises.test_queues import refused
from tests.promises.wire import (
    APPLIED,
    FAILED,
    Wire,
)


async def test_a_failed_ack_never_leaves_a_job_in_progress_for_ever(here: Wire) -> None:
    """Whatever its attempts: a checkpoint can't set them below one either."""
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=1)
    await here.claim("q")
    for attempts in (0, -1, -(2**31)):
        assert (
            await refused(here.checkpoint("q", descriptor, numOfAttemptsAllowed=attempts))
        ).detail == "INVALID_ARGUMENT"
    await here.ack("q", failed=[descriptor])
    info = await here.job(descriptor)
    assert (info.jobState, info.attemptsRemaining) == (FAILED, 0)


async def test_a_malformed_descriptor_in_a_lookup_is_told_as_what_it_is(here: Wire) -> None:
    """The original fails the whole lookup as UNKNOWN without a reason; ours names the fault, and an unknown job is no fault."""
    [descriptor] = await here.enqueue("q", b"x")
    error = await refused(here.lookup(descriptor, "nonsense"))
    assert error.detail == "DESCRIPTOR_INVALID"
    assert "nonsense" in error.message
    assert set(await here.lookup(descriptor, "q:s1:p1:1", "nowhere:s7:p3:9")) == {descriptor}


async def test_a_checkpoint_of_the_last_attempt_can_still_be_failed(here: Wire) -> None:
    [descriptor] = await here.enqueue("q", b"x", numAttemptsAllowed=1)
    [(_, token)] = await here.claim("q")
    await here.checkpoint("q", descriptor, claimToken=token)
    assert await here.ack("q", failed=[descriptor], claimToken=token) == [APPLIED]
    assert await here.state(descriptor) == FAILED
