"""The database is killed, stands still, or has no disk left: what was acknowledged is there, and work goes on by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import OutcomeUnknown, PinLaterError, StoreFull
from pinlater.domain.job import HandedOutJob, Holder, Outcome
from pinlater.server.sharding.shards import ClaimRequest, ShardLanes
from pinlater.server.storage.commands import CountJobs, ListFailures, LookupJobs, TimeOutClaims, create_queues
from pinlater.server.storage.values import ClaimCall, InsertRequest, JobAck, JobKey, NewJob
from pinlater.simulation.history import HistoryRecorder, check
from tests.databases.database import DatabaseServer
from tests.databases.disk import SmallDisk
from tests.mysql.proxied_mysql import ProxiedMysql, proxied
from tests.shared_shards.proxied_database import QUEUE, gathered, until

TIMEOUT_MS = 2_000


class LaneClients:
    """Clients of a shard's lanes, who write down what they saw. A body is the name of its job for ever."""

    def __init__(self, lanes: ShardLanes, clock: SystemClock) -> None:
        self.lanes = lanes
        self.clock = clock
        self.recorder = HistoryRecorder()
        self.over = asyncio.Event()
        self.draining = asyncio.Event()
        self.errors = Counter[str]()
        self.done = Counter[str]()
        self.never: set[bytes] = set()  # refused for sure
        self._numbers = count()
        self._ends = count()

    async def enqueue(self) -> None:
        while not self.draining.is_set():
            bodies = [b"%d" % next(self._numbers) for _ in range(3)]
            ids = self.lanes.ids.make(len(bodies))
            jobs = [NewJob(job_id, body, 1, self.clock.now_ms(), 100) for job_id, body in zip(ids, bodies, strict=True)]
            call = self.recorder.call("enqueue", bodies=[body.decode() for body in bodies])
            try:
                inserted = await self.lanes.insert.submit(InsertRequest(QUEUE, jobs))
            except PinLaterError as error:
                self.errors[type(error).__name__] += 1
                if not isinstance(error, OutcomeUnknown):
                    self.never.update(bodies)
                await asyncio.sleep(0.01)  # as clients wait before they try again
            else:
                self.recorder.answer(call, descriptors=[str(job_id) for job_id in inserted.ids])
                self.done["enqueue"] += 1

    async def work(self, name: str) -> None:
        for number in count():
            if self.over.is_set():
                return
            holder = Holder(name, name, f"{name}-{number}")
            call = self.recorder.call("claim", worker=name, timeout_ms=TIMEOUT_MS)
            try:
                request = ClaimRequest(QUEUE, ClaimCall(4, holder), TIMEOUT_MS)
                jobs = list((await self.lanes.claim.submit(request)).jobs[0])
            except PinLaterError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.01)
                continue
            self.recorder.answer(call, jobs=[(str(job.id), holder.token, job.body.decode()) for job in jobs])
            await self._end(jobs, holder)
            if not jobs:
                await asyncio.sleep(0.005)

    async def _end(self, jobs: list[HandedOutJob], holder: Holder) -> None:
        keys = [JobKey(QUEUE, job.priority, job.id) for job in jobs]
        if not keys:
            return
        succeeded = [next(self._ends) % 4 != 0 for _ in keys]
        call = self.recorder.call(
            "ack", acks=[(str(key.id), holder.token, good) for key, good in zip(keys, succeeded, strict=True)]
        )
        acks = [JobAck(key, good, holder.token, error_type="E") for key, good in zip(keys, succeeded, strict=True)]
        try:
            acked = await self.lanes.finish.submit(acks)
        except PinLaterError as error:
            self.errors[type(error).__name__] += 1
        else:
            self.recorder.answer(call, outcomes=[int(one.outcome) for one in acked])
            self.done["ack"] += 1

    async def sweep(self) -> None:
        """What maintenance does: without it a claim whose answer was lost would never end."""
        while not self.over.is_set():
            await gathered([self.lanes.unguarded.submit(TimeOutClaims(self.clock.now_ms(), 1_000))])
            await asyncio.sleep(0.1)

    async def reaches(self, word: str, more: int) -> None:
        goal = self.done[word] + more

        async def there() -> bool:
            return self.done[word] >= goal

        await until(there)


@pytest.mark.crash
async def test_nothing_acknowledged_is_lost_when_the_database_is_killed_under_load(killable: ProxiedMysql) -> None:
    """Nor handed out twice, and each failed attempt is in a group once. The shard is never opened again: it recovers by itself."""
    clock = SystemClock()
    shard = await killable.open(direct=True)
    await shard.submit(create_queues([QUEUE], clock.now_ms()))
    load = LaneClients(ShardLanes(shard, clock), clock)
    tasks = [asyncio.ensure_future(task) for task in (load.sweep(), *[load.enqueue() for _ in range(3)])]
    tasks += [asyncio.ensure_future(load.work(f"w{number}")) for number in range(3)]
    await load.reaches("ack", 10)
    killable.server.kill()

    async def refused() -> bool:
        return bool(load.errors)

    await until(refused)
    await asyncio.to_thread(killable.server.start)
    await load.reaches("enqueue", 10)
    await load.reaches("ack", 10)
    load.draining.set()

    async def drained() -> bool:
        return all(not (row.counts.pending or row.counts.in_progress) for row in await shard.submit(CountJobs()))

    await until(drained)
    load.over.set()
    await asyncio.gather(*tasks)
    history = load.recorder.history()
    seen = sorted(history.seen())
    jobs = await shard.submit(LookupJobs([JobKey(QUEUE, 1, int(descriptor)) for descriptor in seen], bodies=True))
    final = {descriptor: int(job.state) for descriptor, job in zip(seen, jobs, strict=True) if job is not None}
    assert check(history, final) == []
    assert not {job.body for job in jobs if job is not None} & load.never
    spent = sum(job.attempts_allowed - job.attempts_remaining for job in jobs if job is not None)
    assert spent == sum(group.failures for group in await shard.submit(ListFailures([QUEUE], 0))) > 0
    await killable.assert_consistent()


@pytest.mark.crash
async def test_calls_to_a_database_that_stands_still_fail_in_time_and_it_goes_on_as_if_nothing_had_been(
    killable: ProxiedMysql,
) -> None:
    desk = await killable.desk(direct=True, statement_timeout_ms=700, connect_timeout_ms=500)
    held = await desk.put_and_take()
    job = desk.job(b"new")
    killable.server.suspend()
    calls = [
        desk.insert(job),
        desk.claim(owned=False),
        desk.heartbeat(held.ref),
        desk.shard.ping(),
        *[desk.look(held.key) for _ in range(12)],  # more than there are connections
    ]
    try:
        answers = await asyncio.wait_for(gathered(calls), 30)
    finally:
        killable.server.resume()
    assert [answer for answer in answers if not isinstance(answer, PinLaterError)] == []
    assert isinstance(answers[0], OutcomeUnknown)
    assert all(answer.retryable for answer in answers)
    assert (await desk.insert(job)).ids == [job.id]
    assert [one.job.body for one in await desk.claim(10, owned=False)] == [b"new"]
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await killable.assert_consistent()


@pytest.mark.crash
async def test_a_full_disk_refuses_and_loses_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    """StoreFull, and as soon as there is space again all continues without a restart."""
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{kind}")
    options = (
        {"skip_log_bin": True} if kind == "mysql8" else {}
    )  # a binary log on a full disk is waited for, a minute at a time
    server = start(disk_mib=400, **options)
    async with proxied(server) as database:
        await fill_and_free(database, server.disk)


async def fill_and_free(database: ProxiedMysql, disk: SmallDisk) -> None:
    """MySQL 8.0.15 may crash on a full disk when it splits a page of `jobs`. It is started again then, and nothing may be lost either."""
    desk = await database.desk(direct=True)
    body = b"x" * 7_000  # at hundreds of kilobytes MariaDB 10.11 ends itself
    stored = [await desk.put(body) for _ in range(20)]
    disk.fill(leave_bytes=2_000_000)
    refusals: list[PinLaterError] = []

    async def stores() -> bool:
        [answer] = await gathered([desk.put(body)])
        if isinstance(answer, JobKey):
            stored.append(answer)
        else:
            refusals.append(answer)
        return isinstance(answer, JobKey)

    while await stores():
        pass
    crashed = not database.server.running
    if crashed:
        assert database.server.kind == "mysql8"
    else:
        assert isinstance(refusals[0], StoreFull), refusals
        assert "is full" in refusals[0].message
    assert refusals[0].retryable
    disk.free()
    if crashed:
        database.server.restart()
    await until(stores)
    held = [one.key for one in await desk.claim(10_000)]
    assert [key for key in held if key in stored] == stored
    assert len(held) - len(stored) <= sum(isinstance(refusal, OutcomeUnknown) for refusal in refusals)
    await database.assert_consistent()
