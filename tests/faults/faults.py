"""What goes wrong. Each is one function that harms, lets it last, mends, and returns once the harmed shard is in use again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, NamedTuple

from tests.faults.stage import Stage
from tests.servers.database import DatabaseServer
from tests.servers.proxy import Trap

HARMED = "2"
_TRAP_PATIENCE_S = 30.0


class Fault(NamedTuple):
    """`harmed`: the shard that it harms; then the others' latency is compared. `errors`: whether a caller may see any."""

    act: Callable[[Stage], Awaitable[None]]
    harmed: str | None = HARMED
    errors: bool = True

    @property
    def name(self) -> str:
        return self.act.__name__


# --- databases ------------------------------------------------------------------------------------------------------------------


async def a_database_is_killed(stage: Stage) -> None:
    """kill -9, and its return on the same address."""
    database = stage.places[HARMED].database
    await stage.store.kill(database)
    await stage.lasts(20, without=HARMED)
    await asyncio.to_thread(database.start)
    await stage.back(HARMED)


async def a_database_stands_still(stage: Stage) -> None:
    """SIGSTOP: connections stay and say nothing."""
    database = stage.places[HARMED].database
    database.suspend()
    try:
        await stage.lasts(30, without=HARMED)
    finally:
        database.resume()
    await stage.back(HARMED)


async def a_shard_moves_to_another_host(stage: Stage) -> None:
    """A failover: the primary dies, its replica has all of it; the primary returns as a replica that refuses writes; the file changes."""
    place = stage.places[HARMED]
    old = place.database
    await stage.store.kill(old)
    new = stage.store.copy(stage.farm, old)
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
            if attempt == 2 or "live jobs" not in str(refused):
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
    async with asyncio.timeout(_TRAP_PATIENCE_S):
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


# --- a second client of the database ---------------------------------------------------------------------------------------------


async def somebody_holds_row_locks(stage: Stage) -> None:
    """Strangers lock rows in any order and hold them, so that there are deadlocks and waits; some change so much that we are sent away."""
    database, name = stage.places[HARMED].database, stage.database_of(HARMED)
    over = asyncio.Event()
    strangers = [
        asyncio.ensure_future(_lock_again_and_again(database, name, over, Random(f"{stage.dice.random()} {number}")))
        for number in range(4)
    ]
    await stage.lasts(20, without=HARMED)
    over.set()
    await asyncio.gather(*strangers)
    await stage.back(HARMED)


_LOCKS = (
    "SELECT * FROM ready ORDER BY id DESC LIMIT {many} FOR UPDATE",
    "SELECT * FROM claims ORDER BY id DESC LIMIT {many} FOR UPDATE",
    "SELECT * FROM claims ORDER BY id LIMIT {many} FOR UPDATE",
    "SELECT * FROM done ORDER BY id DESC LIMIT {many} FOR UPDATE",
    "SELECT * FROM counters WHERE priority = {priority} FOR UPDATE",
    "SELECT * FROM counters ORDER BY writer DESC FOR UPDATE",
    "SELECT * FROM writers ORDER BY writer DESC LIMIT 3 FOR UPDATE",
    "UPDATE queues SET config = CONCAT(config, ' ')",
    "INSERT INTO expiries SELECT {number} + ROW_NUMBER() OVER (), 1 FROM information_schema.columns LIMIT 300",
)


async def _lock_again_and_again(database: DatabaseServer, name: str, over: asyncio.Event, dice: Random) -> None:
    from asyncmy.errors import OperationalError

    async with _stranger(database, name) as (connection, cursor):
        while not over.is_set():
            try:
                for statement in dice.sample(_LOCKS, 3):
                    number = dice.randrange(10**12, 10**14)
                    await cursor.execute(
                        statement.format(many=dice.randint(1, 30), priority=dice.randint(1, 3), number=number)
                    )
                    await cursor.fetchall()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(dice.expovariate(20)):
                            await over.wait()
            except OperationalError as error:
                if error.args[0] not in (1205, 1213):
                    raise
            await connection.rollback()


@contextlib.asynccontextmanager
async def _stranger(database: DatabaseServer, name: str) -> AsyncIterator[tuple[Any, Any]]:
    async with database.connect(database=name, autocommit=False) as connection, connection.cursor() as cursor:
        await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        yield connection, cursor


# --- servers of ours -----------------------------------------------------------------------------------------------------------


async def a_server_is_killed(stage: Stage) -> None:
    """Two servers on the same shards, then three; one of them is killed -9 and comes back; one is stopped in order."""
    third = await stage.add_server()
    stage.load.spread()
    await stage.lasts(5)
    victim = stage.dice.choice(stage.servers)
    victim.kill()
    await stage.lasts(15)
    await asyncio.to_thread(victim.start)
    stage.load.spread()
    await stage.lasts(10)
    assert await stage.take_out(third) == 0, "a stop ended badly"
    await stage.lasts(5)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(a_database_is_killed),
        Fault(a_database_stands_still),
        Fault(answers_of_commits_are_lost, harmed=None),
        Fault(a_network_is_slow),
        Fault(a_network_is_half_open),
        Fault(somebody_holds_row_locks),
        Fault(a_shard_moves_to_another_host),
        Fault(a_shard_is_drained_and_removed, errors=False),
        Fault(a_server_is_killed, harmed=None),
    )
}
