"""Several servers do whatever comes to the same shard at once: its tables agree at the end, and at any moment before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage.commands import AdvanceDue, DeleteJobs, ExpireJobs, TimeOutClaims
from pinlater.server.storage.values import InsertRequest, JobCheckpoint
from tests.contract.desk import Desk, DeskJob, unique
from tests.mysql.consistency import inconsistencies
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE

SERVERS = 3
TASKS = 2  # on each
STEPS = 40  # of each


class Hand:
    """Does random things. What one hand holds, another one may end: that is part of it."""

    def __init__(self, desk: Desk, held: list[DeskJob], dice: random.Random) -> None:
        self.desk = desk
        self.held = held
        self.dice = dice

    async def step(self) -> None:
        acts: list[Callable[[], Awaitable[object]]] = [
            *[self.insert] * 4,
            *[self.claim] * 4,
            *[self.finish] * 4,
            *(self.checkpoint, self.renew, self.release, self.cancel),
            *(self.purge, self.retry, self.delete, self.sweep),
        ]
        try:
            await self.dice.choice(acts)()
        except PinLaterError as error:  # a deadlock that lasted
            if not error.retryable:
                raise

    async def insert(self) -> None:
        dice = self.dice
        jobs = [
            self.desk.job(
                bytes(dice.randrange(20)),
                priority=dice.randint(1, 3),
                delay_ms=dice.choice([0, 0, 0, 50, 10**6]),
                attempts=dice.randint(1, 3),
                status=dice.choice(["", "", "so"]),
                unique=dice.choice([None, None, unique(f"key{dice.randrange(5)}", dice.choice(list(UniqueScope)), 20)]),
                expires_in_ms=dice.choice([None, None, None, 30]),
            )
            for _ in range(dice.randint(1, 5))
        ]
        key = dice.choice([None, f"request{dice.randrange(3)}"])
        await self.desk.request(InsertRequest(QUEUE, jobs, key, str(len(jobs)).encode()))

    async def claim(self) -> None:
        self.held += await self.desk.claim(self.dice.randint(1, 6), timeout_ms=self.dice.choice([1, 60_000]))

    async def finish(self) -> None:
        for held in [self.pick() for _ in range(self.dice.randint(1, 3))]:
            if held is not None and self.dice.random() < 0.6:
                await self.desk.succeed(held.key, token=held.holder.token, status=self.dice.choice(["", "", "done"]))
            elif held is not None:
                delay_ms = self.dice.choice([0, 10, 10**6])
                final = self.dice.random() < 0.2
                await self.desk.fail(held.key, token=held.holder.token, delay_ms=delay_ms, final=final)

    async def checkpoint(self) -> None:
        if held := self.pick():
            back = self.dice.random() < 0.3
            await self.desk.checkpoint(JobCheckpoint(held.key, "worker", held.holder.token, b"so far", back))

    async def renew(self) -> None:
        if held := self.pick():
            await self.desk.heartbeat(held.ref)
            self.held.append(held)

    async def release(self) -> None:
        if held := self.pick():
            await self.desk.release(held.ref, self.dice.choice([0, 10**6]))

    async def cancel(self) -> None:
        if held := self.pick():
            await self.desk.cancel(held.key)

    async def purge(self) -> None:
        await self.desk.purge(self.dice.choice(list(JobState)), priority=self.dice.randint(1, 3), limit=2)

    async def retry(self) -> None:
        await self.desk.retry_failed(priority=self.dice.randint(1, 3), limit=3)

    async def delete(self) -> None:
        if held := self.pick():
            await self.desk.shard.submit(DeleteJobs([held.key]))

    async def sweep(self) -> None:
        self.desk.clock.advance(ms=self.dice.choice([5, 40]))
        now, shard = self.desk.now, self.desk.shard
        await shard.submit(AdvanceDue(now, 100))
        await shard.submit(TimeOutClaims(now, 100))
        await shard.submit(ExpireJobs(now, 100))
        await self.desk.collect(succeeded_ms=100, failed_ms=100, limit=5)

    def pick(self) -> DeskJob | None:
        return self.held.pop(self.dice.randrange(len(self.held))) if self.held else None


async def test_tables_agree_whatever_several_servers_do(database: ProxiedMysql, request: pytest.FixtureRequest) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    desks = [await database.desk(direct=True) for _ in range(SERVERS)]
    held: list[DeskJob] = []
    over = asyncio.Event()
    looks: list[list[str]] = []

    async def look() -> None:
        while not over.is_set():
            looks.append(await inconsistencies(database.server, database.name, deleted=True))

    async def act(hand: Hand) -> None:
        for _ in range(STEPS):
            await hand.step()

    looking = asyncio.ensure_future(look())
    try:
        await asyncio.gather(
            *[act(Hand(desk, held, random.Random(dice.random()))) for desk in desks for _ in range(TASKS)]
        )
    finally:
        over.set()
        await looking
    assert [wrong for wrong in looks if wrong] == []
    await database.assert_consistent(deleted=True)
    done = await database.ask("SELECT SUM(enqueued_total), SUM(claimed_total) FROM counters")
    assert min(int(total) for total in done[0]) > SERVERS * TASKS
