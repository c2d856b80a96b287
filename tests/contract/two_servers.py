"""What holds for two servers on one shard, whatever the store: order, expiry, and each job once. For the stores' own tests."""

from __future__ import annotations

import asyncio
from random import Random

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import CancelJobs, DeleteJobs, ExpireJobs, ListChangedQueues
from pinlater.server.storage.values import ClaimCall, ClaimOrder, JobKey
from tests.contract.desk import QUEUE, TIMEOUT_MS, Desk, DeskJob

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


async def keep_order(desks: tuple[Desk, Desk], seed: int) -> None:
    """Both store, claim and end jobs of a few ordering keys at once. No two jobs of a key are in hand together, those that one server has
    stored begin in its order, and at the end none waits."""
    random = Random(seed)
    stored: dict[tuple[str, int], list[int]] = {}  # by key and server, those that have not ended
    in_hand: dict[str, int] = {}
    cancelled: set[int] = set()
    key_of: dict[int, str] = {}

    async def store(server: int) -> None:
        for _ in range(_JOBS // 2):
            key = random.choice("abc")
            jobs = [desks[server].job(b"x", ordering_key=key) for _ in range(random.randint(1, 3))]
            key_of.update({job.id: key for job in jobs})
            stored.setdefault((key, server), []).extend([job.id for job in jobs])
            await desks[server].insert(*jobs)

    def begins(held: DeskJob) -> None:
        key = key_of[held.key.id]
        assert key not in in_hand, f"two jobs of {key} are in hand"
        in_hand[key] = held.key.id
        for server in (0, 1):
            waiting = stored.get((key, server), [])
            if held.key.id in waiting:
                before = waiting[: waiting.index(held.key.id)]
                assert not set(before) - cancelled, f"a job of {key} began before {before}"

    def ended(job_id: int) -> None:
        for waiting in stored.values():
            if job_id in waiting:
                waiting.remove(job_id)

    async def work(server: int) -> None:
        desk = desks[server]
        idle = 0
        while idle < 200:
            found = await desk.claim(random.randint(1, 3), owned=random.random() < 0.5)
            idle = 0 if found else idle + 1
            if not found:
                await desk.shared.submit(ListChangedQueues())
            for held in found:
                begins(held)
            for held in found:
                await asyncio.sleep(0)
                assert in_hand.pop(key_of[held.key.id]) == held.key.id
                what = random.choice(["succeed", "fail", "release", "delete", "cancel"])
                if what == "release":
                    await desk.release(held.ref)
                    continue
                ended(held.key.id)
                if what == "succeed":
                    await desk.succeed(held.key, token=held.ref.token)
                elif what == "fail":
                    await desk.fail(held.key, token=held.ref.token, final=True)
                elif what == "delete":
                    await desk.shard.submit(DeleteJobs([held.key]))
                else:
                    await desk.cancel(held.key)

    async def cancel(server: int) -> None:
        for _ in range(_JOBS // 4):
            await asyncio.sleep(0.005)
            waiting = [job_id for ids in stored.values() for job_id in ids if job_id not in in_hand.values()]
            if waiting:
                keys = [JobKey(QUEUE, 1, job_id) for job_id in random.sample(waiting, min(3, len(waiting)))]
                cancelled.update([key.id for key in keys])
                await desks[server].shard.submit(CancelJobs(keys, desks[server].now, JobState.PENDING))

    await asyncio.gather(*[each(server) for each in (store, work, cancel) for server in (0, 1)])
    for desk in desks:
        assert not await desk.claim(10, owned=False)
    [desk, _] = desks
    assert not await desk.scan(JobState.PENDING)
    assert not await desk.scan(JobState.PENDING, future=True)
    await desk.assert_counters_exact(priorities=[1])
