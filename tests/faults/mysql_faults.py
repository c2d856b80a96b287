"""What goes wrong with MySQL's shards only: other clients that hold row locks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

from tests.databases.database import DatabaseServer
from tests.faults.faults import HARMED, InjectedFault
from tests.faults.stage import Stage


async def other_clients_hold_row_locks(stage: Stage) -> None:
    """Other clients lock rows in any order and hold them, so that there are deadlocks and waits; some change so much that the database
    refuses us."""
    database, name = stage.places[HARMED].database, f"{stage.prefix}_{HARMED}"
    over = asyncio.Event()
    others = [
        asyncio.ensure_future(_lock_again_and_again(database, name, over, Random(f"{stage.dice.random()} {number}")))
        for number in range(4)
    ]
    await stage.lasts(20, without=HARMED)
    over.set()
    await asyncio.gather(*others)
    await stage.back(HARMED)


async def another_client_holds_waiting_jobs(stage: Stage) -> None:
    """As a server that is suspended in the middle of a claim, again and again. Claims take the jobs that it does not hold."""
    over = asyncio.Event()
    other = asyncio.ensure_future(_hold_waiting_jobs(stage.places[HARMED].database, f"{stage.prefix}_{HARMED}", over))
    await stage.lasts(20, without=HARMED)
    over.set()
    await other
    await stage.back(HARMED)


async def _hold_waiting_jobs(database: DatabaseServer, name: str, over: asyncio.Event) -> None:
    async with _other_client(database, name) as (connection, cursor):
        while not over.is_set():
            await cursor.execute("SELECT id FROM ready FOR UPDATE SKIP LOCKED")
            if await cursor.fetchall():
                await _wait(over, _HELD_S)
            await connection.rollback()
            await _wait(over, _FREE_S)


_HELD_S, _FREE_S = 1.0, 0.02
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

    async with _other_client(database, name) as (connection, cursor):
        while not over.is_set():
            try:
                for statement in dice.sample(_LOCKS, 3):
                    number = dice.randrange(10**12, 10**14)
                    await cursor.execute(
                        statement.format(many=dice.randint(1, 30), priority=dice.randint(1, 3), number=number)
                    )
                    await cursor.fetchall()
                    await _wait(over, dice.expovariate(20))
            except OperationalError as error:
                if error.args[0] not in (1205, 1213):
                    raise
            await connection.rollback()


async def _wait(over: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await over.wait()


@contextlib.asynccontextmanager
async def _other_client(database: DatabaseServer, name: str) -> AsyncIterator[tuple[Any, Any]]:
    async with database.connect(database=name, autocommit=False) as connection, connection.cursor() as cursor:
        await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        yield connection, cursor


ON_MYSQL = (
    InjectedFault(other_clients_hold_row_locks),
    InjectedFault(another_client_holds_waiting_jobs, claims_go_on=True),
)
