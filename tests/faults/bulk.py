"""What happens to bulk changes in the background when the server that carries one out is killed or stands still."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence

from bench.servers import PinLaterServer
from pinlater.client import Ack, AsyncClient, BulkAction, BulkOrder, BulkRun, BulkState, Job, JobFilter, JobState
from pinlater.client.errors import PinLaterError
from pinlater.domain.job import TASK_HEADER
from tests.faults.faults import InjectedFault
from tests.faults.stage import ADMIN_PASSWORD, Stage

_WANTED, _OTHERS, _LATER = 4_000, 1_000, 200
_RATE = 150.0
_BATCH = 500
# Another server looks for runs at least once a minute, and continues one whose progress is older than half a minute.
_CONTINUED_S_MAX = 120.0
_DONE_S_MAX = 120.0


async def a_bulk_run_loses_its_server(stage: Stage) -> None:
    """Of two runs that delete failed jobs, one loses its server for good, and the other for longer than another server waits."""
    for queue, harm in {"bulk_killed": _kill, "bulk_suspended": _suspend}.items():
        victim, *_ = stage.dice.sample(stage.servers, len(stage.servers))
        [other, *_] = [server for server in stage.servers if server is not victim]
        async with AsyncClient(f"127.0.0.1:{other.port}", source="faults", timeout_ms=30_000) as client:
            await client.create_queue(queue)
            await _RunUnderFault(stage, victim, client, queue).goes_through(harm)
            await client.delete_queue(queue, ADMIN_PASSWORD)
        stage.load.spread()
    await stage.lasts(2)


async def _kill(stage: Stage, server: PinLaterServer, seen: _Seen) -> None:
    server.kill()
    await seen.is_continued()
    await asyncio.to_thread(server.start)


async def _suspend(stage: Stage, server: PinLaterServer, seen: _Seen) -> None:
    server.signal(signal.SIGSTOP)
    try:
        await seen.is_continued()
    finally:
        stage.resume(server)
    await stage.until(lambda: stage.answers(server), "the suspended server answers")


class _Seen:
    """What the servers tell of a run. Raises `AssertionError` if that goes back, or changes after the end."""

    def __init__(self, client: AsyncClient, run: BulkRun) -> None:
        self._client = client
        self.latest = run

    async def look(self) -> BulkRun:
        """Once more, if a server answers."""
        try:
            [now] = [run for run in await self._client.bulk_runs(self.latest.order.queue) if run.id == self.latest.id]
        except PinLaterError:
            return self.latest
        before, self.latest = self.latest, now
        assert now.looked >= before.looked, (before, now)
        assert now.changed >= before.changed, (before, now)
        assert before.ended_ms is None or now == before, (before, now)
        is_same_look = now.to_look_at == before.to_look_at
        assert not is_same_look or (now.percent or 0) >= (before.percent or 0), (before, now)
        assert now.left_ms is None or now.state is BulkState.RUNNING, now
        return now

    async def has_changed(self, jobs: int) -> None:
        """Waits until that number is told."""
        async with asyncio.timeout(_CONTINUED_S_MAX):
            while (await self.look()).changed < jobs:
                await asyncio.sleep(0.1)

    async def is_continued(self) -> None:
        """Waits until another server has changed more jobs than the lost one can have left untold."""
        await self.has_changed((await self.look()).changed + 4 * _BATCH)

    async def ends(self) -> BulkRun:
        """Waits for the end, and looks a while longer."""
        async with asyncio.timeout(_DONE_S_MAX):
            while (await self.look()).ended_ms is None:
                await asyncio.sleep(0.1)
        for _ in range(20):
            await self.look()
            await asyncio.sleep(0.1)
        return self.latest


class _RunUnderFault:
    """A run whose server suffers while it is under way, beside jobs that it must leave alone."""

    def __init__(self, stage: Stage, victim: PinLaterServer, client: AsyncClient, queue: str) -> None:
        """`client`: of another server than the victim."""
        self._queue = queue
        self._stage = stage
        self._victim = victim
        self._client = client

    async def goes_through(self, harm: Callable[[Stage, PinLaterServer, _Seen], Awaitable[None]]) -> None:
        """Asserts what was promised of the run."""
        wanted, others = await self._failed("wanted", _WANTED), await self._failed("other", _OTHERS)
        order = BulkOrder(self._queue, BulkAction.DELETE, JobFilter(JobState.FAILED, tasks=frozenset({"wanted"})))
        async with AsyncClient(f"127.0.0.1:{self._victim.port}", source="faults") as its_client:
            run = await its_client.start_bulk_run(order._replace(jobs_per_second=_RATE))
        later = await self._failed("wanted", _LATER)
        seen = _Seen(self._client, run)
        await seen.has_changed(1)
        await harm(self._stage, self._victim, seen)
        found = await seen.ends()
        assert found.state is BulkState.DONE, found
        assert await self._there(wanted) == 0, "jobs that fit were not deleted"
        assert await self._there(others) == _OTHERS, "jobs that do not fit were deleted"
        assert await self._there(later) == _LATER, "jobs from after the begin were deleted"
        assert found.changed == _WANTED or "may be missing" in found.detail, found
        assert found.changed <= _WANTED, found
        page = await self._client.audit(operation="bulkRun", queue=self._queue, limit=500)
        assert sum(f'"run": "{run.id}"' in entry.arguments for entry in page.entries) == 1, (
            "its end is not once in the audit"
        )
        await self._come_back(run, wanted)

    async def _come_back(self, run: BulkRun, deleted: Sequence[str]) -> None:
        """All that the run deleted, also what its lost server had deleted and not told."""
        async with AsyncClient(f"127.0.0.1:{self._victim.port}", source="faults") as its_client:
            undo = await its_client.undo_bulk_run(self._queue, run.id)
        found = await _Seen(self._client, undo).ends()
        assert found.state is BulkState.DONE, found
        assert await self._there(deleted) == len(deleted), "jobs did not come back"

    async def _failed(self, task: str, number: int) -> list[str]:
        """New jobs that have failed."""
        client, names = self._client, list[str]()
        while len(names) < number:
            size = min(_BATCH, number - len(names))
            names += (await client.enqueue(self._queue, [Job(b"x", headers={TASK_HEADER: task})] * size)).descriptors
        failed: set[str] = set()
        while len(failed) < number:
            jobs = (await client.dequeue(self._queue, _BATCH, wait_ms=1_000)).jobs
            acks = [Ack(job.descriptor, False, token=job.token, final=True) for job in jobs]
            await client.ack(self._queue, acks)
            failed |= {job.descriptor for job in jobs}
        return names

    async def _there(self, names: Sequence[str]) -> int:
        """How many of them exist."""
        return sum(
            [len(await self._client.lookup(names[start : start + _BATCH])) for start in range(0, len(names), _BATCH)]
        )


ON_BULK_RUNS = (InjectedFault(a_bulk_run_loses_its_server, harmed=None, slots_lost=True),)
"""Of whatever store."""
