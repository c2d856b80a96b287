"""What goes wrong while workers wait for jobs in long polls, which look at every shard."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from tests.faults.faults import HARMED, InjectedFault
from tests.faults.load import POLLED, QUEUES, shard_of
from tests.faults.recovery import DEADLINE_S
from tests.faults.stage import Stage

# Longer than a change's outcome is asked for, so that it stays unknown.
_REFUSED_S = 4.5
_POLLS = 3


async def a_claims_answer_is_lost_and_connections_are_refused(stage: Stage) -> None:
    """A shard has claimed a job for a poll, and the poll goes on on the other shards, which only drain. Then the shard is back, and the
    poll gets another job from it. That one is its own, whatever becomes of the claim before."""
    load, proxy = stage.load, stage.places[HARMED].proxy
    async with _only_the_harmed_takes_enqueues(stage):
        load.pause()
        await load.rest()
        try:
            async with load.polls(_POLLS):
                for _ in range(stage.times(10)):
                    trap = proxy.lose_answer(stage.store.claim, refuse=True)
                    putting = asyncio.ensure_future(load.put(POLLED))
                    async with asyncio.timeout(DEADLINE_S):
                        await trap.wait()
                    await load.quiet(_REFUSED_S)
                    proxy.heal()
                    await putting
                    for _ in range(_POLLS):
                        await load.put(POLLED)
                    # The end of the polls is told by counts, which leave out a shard that a server does not use.
                    await stage.until(lambda: stage.in_use(HARMED), f"shard {HARMED} is in use again")
        finally:
            proxy.heal()
            load.go_on()
    await stage.back(HARMED)


@contextlib.asynccontextmanager
async def _only_the_harmed_takes_enqueues(stage: Stage) -> AsyncIterator[None]:
    """The others are looked at by claims, and get no jobs."""
    for name in stage.others(HARMED):
        stage.places[name].entry = {"dequeueOnly": True}
    stage.write_map()
    in_a_row = itertools.count()

    async def known_to_all() -> bool:
        """Whether twenty enqueues in a row went to the harmed shard and to no other."""
        nonlocal in_a_row
        [descriptor] = await stage.load.put(QUEUES[0])
        if shard_of(descriptor) != HARMED:
            in_a_row = itertools.count()
        return next(in_a_row) >= 20

    try:
        await stage.until(known_to_all, f"only shard {HARMED} takes enqueues")
        yield
    finally:
        for name in stage.others(HARMED):
            stage.places[name].entry = {}
        stage.write_map()


async def a_database_restarts_under_long_polls(stage: Stage) -> None:
    """In order, again and again, as for upgrades; jobs come, are waited for and held meanwhile."""
    database = stage.places[HARMED].database
    async with stage.load.polls(2 * _POLLS, puts_per_s=5):
        for _ in range(stage.times(10)):
            await asyncio.to_thread(database.restart)
            await stage.back(HARMED)


DURING_POLLS = (
    InjectedFault(a_claims_answer_is_lost_and_connections_are_refused, harmed=None),
    InjectedFault(a_database_restarts_under_long_polls),
)
"""Of whatever store."""
