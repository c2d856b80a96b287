"""What goes wrong, whatever the store. Each is one function that harms, lets it last, repairs, and returns once the harmed shard is in
use again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.databases.proxy import Trap
from tests.faults.stage import Stage

HARMED = "2"
_TRAP_DEADLINE_S = 30.0


class InjectedFault(NamedTuple):
    """`harmed`: the shard that it harms; then the others' latency is compared. `errors`: whether a caller may see any.

    `slots_lost`: whether a server that lives may lose its place in a shard. `loses_jobs`: whether jobs may be in an index and not there.
    `claims_go_on`: whether the harmed shard still hands out most jobs soon; then its own pickups are compared, too.
    """

    act: Callable[[Stage], Awaitable[None]]
    harmed: str | None = HARMED
    errors: bool = True
    slots_lost: bool = False
    loses_jobs: bool = False
    claims_go_on: bool = False

    @property
    def name(self) -> str:
        return self.act.__name__


# --- databases ------------------------------------------------------------------------------------------------------------------


async def a_database_is_killed(stage: Stage) -> None:
    """kill -9, and its return on the same address."""
    database = stage.places[HARMED].database
    await stage.store.kill(database)
    await stage.recovers(without=HARMED)
    await stage.lasts(20, without=HARMED)
    await asyncio.to_thread(database.start)
    await stage.back(HARMED)


async def a_database_stands_still(stage: Stage) -> None:
    """SIGSTOP: connections stay and say nothing."""
    database = stage.places[HARMED].database
    database.suspend()
    try:
        await stage.recovers(without=HARMED)
        await stage.lasts(30, without=HARMED)
    finally:
        database.resume()
    await stage.back(HARMED)


async def a_shard_moves_to_another_host(stage: Stage) -> None:
    """A failover: the primary dies, its replica has all of it; the primary returns as a replica that refuses writes; the file changes."""
    place = stage.places[HARMED]
    old = place.database
    await stage.store.kill(old)
    await stage.lasts(3, without=HARMED)
    with stage.load.latencies.aside():  # on a machine of its own the other host would have been up all the time
        new = stage.store.copy(stage.database_servers, old)
        await asyncio.to_thread(new.start)
        await asyncio.to_thread(stage.store.start_as_replica, old, new)
    await stage.lasts(10, without=HARMED)
    place.database, place.proxy = new, await stage.proxy_of(new)
    stage.write_map()
    await stage.back(HARMED)
    await asyncio.to_thread(old.kill)


async def a_shard_is_drained_and_removed(stage: Stage) -> None:
    """By the commands, under load. What it kept is put back at the end, so that it can be judged."""
    place = stage.places[HARMED]
    file = "--shards", str(stage.shard_file), "--config", str(stage.settings)
    said = await stage.command("shards", "drain", HARMED, *file)
    assert f"{HARMED} is empty" in said, said
    place.entry = {"dequeueOnly": True}
    for attempt in range(3):  # one that a late enqueue refills stays, and is asked again
        try:
            await stage.command("shards", "remove", HARMED, *file)
        except AssertionError as refused:
            if attempt == 2 or "live job" not in str(refused):
                raise
        else:
            break

    async def gone() -> bool:
        return not await stage.known(HARMED)

    await stage.until(gone, f"shard {HARMED} is in no server's map")
    before = stage.load.enqueued[HARMED]
    await stage.lasts(10, without=HARMED)
    assert stage.load.enqueued[HARMED] == before, "a shard that was removed took jobs"
    place.entry = {}
    stage.write_map()
    await stage.back(HARMED)


# --- networks -------------------------------------------------------------------------------------------------------------------


async def answers_of_commits_are_lost(stage: Stage) -> None:
    """Connections are cut, or go silent, between a change's COMMIT (or script) and its answer, or just before it; on every shard."""
    for _ in range(stage.times(10)):
        for place in stage.places.values():
            set_trap = stage.dice.choice((place.proxy.lose_answer, place.proxy.lose_answer, place.proxy.lose_request))
            await _sprung(set_trap(stage.store.change(stage.dice), hang=stage.dice.random() < 0.2))
    for place in stage.places.values():
        place.proxy.heal()
    for shard in stage.places:
        await stage.back(shard)


async def _sprung(trap: Trap) -> None:
    async with asyncio.timeout(_TRAP_DEADLINE_S):
        await trap.wait()


async def a_network_is_slow(stage: Stage) -> None:
    """200 ms each way."""
    proxy = stage.places[HARMED].proxy
    proxy.slow(0.2)
    await stage.lasts(20, without=HARMED)
    proxy.heal()
    await stage.back(HARMED)


async def a_network_is_half_open(stage: Stage) -> None:
    """Answers never arrive; then requests don't; then nothing does, and all of it after a while."""
    proxy = stage.places[HARMED].proxy
    harms: list[Callable[[], None]] = [
        lambda: proxy.swallow(to_server=False),
        lambda: proxy.swallow(to_client=False),
        proxy.hold,
    ]
    for harm in harms:
        harm()
        await stage.lasts(12, without=HARMED)
        proxy.heal()
        await stage.back(HARMED)


ANYWHERE = (
    InjectedFault(a_database_is_killed),
    InjectedFault(a_database_stands_still),
    InjectedFault(answers_of_commits_are_lost, harmed=None),
    InjectedFault(a_network_is_slow),
    InjectedFault(a_network_is_half_open),
    InjectedFault(a_shard_moves_to_another_host),
    InjectedFault(a_shard_is_drained_and_removed, errors=False),
)
"""Of whatever store."""
