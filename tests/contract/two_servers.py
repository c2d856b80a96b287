"""What holds for two servers on one shard, whatever the store: priority, expiry, and each job once. For the stores' own tests."""

from __future__ import annotations

import asyncio
from random import Random

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import ExpireJobs, ListChangedQueues
from pinlater.server.storage.values import ClaimCall, ClaimOrder
from tests.contract.desk import QUEUE, TIMEOUT_MS, Desk

_JOBS = 60


async def hand_out_by_priority(desks: tuple[Desk, Desk], seed: int) -> None:
    """Jobs that either has stored are handed out by both in the one order of the shard."""
    random = Random(seed)
    stored: dict[int, int] = {}
    for _ in range(_JOBS):
        desk = random.choice(desks)
        key = await desk.put(priority=random.randint(1, 3))
        stored[key.id] = key.priority
    order: list[int] = []
    misses = 0
    while len(order) < _JOBS:
        desk = random.choice(desks)
        held = await desk.claim(random.randint(1, 4))
        misses += not held
        if not held:  # it may not know yet of what the other has made ready
            await desk.shared.submit(ListChangedQueues())
            assert misses < 10_000
        order += [stored.pop(one.job.id) for one in held]
    assert order == sorted(order)
    assert not stored


async def expire_once(desks: tuple[Desk, Desk], seed: int) -> None:
    """Claims and sweeps of both at once hand out no job past its expiry, and end each that is past it once."""
    random = Random(seed)
    [one, other] = desks
    lasting: set[int] = set()
    expired: set[int] = set()
    for _ in range(_JOBS):
        expires_in_ms = random.choice([None, 500, 60_000])
        key = await random.choice(desks).put(expires_in_ms=expires_in_ms)
        (expired if expires_in_ms == 500 else lasting).add(key.id)
    for desk in desks:
        desk.clock.advance(ms=501)
        await desk.shared.submit(ListChangedQueues())
    handed_out: list[int] = []
    failed: list[int] = []

    async def claim(desk: Desk) -> None:
        calls = [ClaimCall(random.randint(1, 10), desk.holder()) for _ in range(2)]
        claimed = await desk.order(ClaimOrder(QUEUE, calls, TIMEOUT_MS))
        failed.append(claimed.expired)
        handed_out.extend(job.id for jobs in claimed.jobs for job in jobs)

    async def sweep(desk: Desk) -> None:
        failed.extend(row.failed for row in await desk.shard.submit(ExpireJobs(desk.now, 10)))

    for _ in range(40):
        await asyncio.gather(claim(one), sweep(other), claim(other), sweep(one))
    assert sorted(handed_out) == sorted(lasting)
    assert sum(failed) == len(expired), failed
    assert {row.key.id for row in await one.scan(JobState.FAILED)} == expired
    await one.assert_counters_exact(priorities=[1])
