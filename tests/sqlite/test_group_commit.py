"""Calls share transactions; each gets its own result, after the commit, and a faulty one harms no other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pinlater.domain.errors import ShardConnectionFailed, StoreFull, TooManyWaiting
from pinlater.domain.job import HandedOutJob, JobState
from pinlater.domain.queue import NO_HOME, Home
from pinlater.server.storage.commands import InsertJobs, LookupJobs, MoveHome
from pinlater.server.storage.interface import BegunBatch
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.values import Acked, InsertRequest, JobKey, NewJob
from tests.sqlite.conftest import NOW, QUEUE, Bench, insert_by_a_bug

# However slow the machine is at this moment, no transaction is cut short.
UNCUT_MS = 60_000
IN_THREAD = SqliteSettings(inline_commit_us=0, transaction_ms_max=UNCUT_MS)
INLINE = SqliteSettings(inline_commit_us=10_000_000, transaction_ms_max=UNCUT_MS)


@pytest.fixture(params=[INLINE, IN_THREAD], ids=["inline", "thread"])
async def either(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """The same with commits on the loop and in the thread."""
    await bench.shard.close()
    await bench.open(request.param)
    return bench


async def test_calls_of_one_turn_share_one_commit(either: Bench) -> None:
    before = either.shard.commits
    await asyncio.gather(*(either.insert() for _ in range(50)))
    assert either.shard.commits == before + 1
    assert await either.pending() == 50


async def test_calls_that_arrive_during_a_commit_share_the_next(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(IN_THREAD)
    before, may_end = bench.shard.commits, threading.Event()
    bench.disk.committing.clear()
    first = asyncio.ensure_future(bench.insert())

    def waits(text: str) -> None:
        if text == "COMMIT":
            may_end.wait(30)

    bench.disk.fails = waits
    assert await asyncio.to_thread(bench.disk.committing.wait, 30)
    others = [asyncio.ensure_future(bench.insert()) for _ in range(20)]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, *others)
    assert bench.shard.commits == before + 2


async def test_an_ack_and_the_claim_that_it_wakes_are_stored_together_or_not_at_all(either: Bench) -> None:
    await either.shard.submit(MoveHome(QUEUE, NO_HOME, Home(either.shard.name, 1)))
    jobs = [job._replace(options=Options(ordering_key="k")) for job in either.jobs(2)]
    await either.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], NOW))
    [first] = await either.claim()
    claims: list[asyncio.Task[list[HandedOutJob]]] = []

    def waits(queue: str, due_ms: int) -> bool:
        claims.append(asyncio.create_task(either.claim()))
        return (queue, due_ms) == (QUEUE, NOW)

    either.shard.on_came_first(waits)
    either.disk.fails = lambda text: sqlite3.OperationalError("disk I/O error") if text == "COMMIT" else None
    ack = asyncio.ensure_future(either.succeed(JobKey(QUEUE, 1, first.id)))
    with pytest.raises(ShardConnectionFailed):
        await ack
    with pytest.raises(ShardConnectionFailed):
        await claims[0]
    either.disk.works()
    assert await either.claim() == []  # the first is in hand as before
    before = either.shard.commits
    await either.succeed(JobKey(QUEUE, 1, first.id))
    assert [job.id for job in await claims[1]] == [jobs[1].id]
    assert either.shard.commits == before + 1


class OrderedJobs:
    """Two jobs of one ordering key on a shard, of which the first is in progress. When its ack lets the next one go, `then` runs within
    that transaction, which stays open for a claim."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.jobs: list[NewJob] = []
        self.then: Callable[[], object] = lambda: None

    async def begin(self) -> OrderedJobs:
        """Stores both, claims the first one."""
        shard = self.bench.shard
        await shard.submit(MoveHome(QUEUE, NO_HOME, Home(shard.name, 1)))
        self.jobs = [job._replace(options=Options(ordering_key="k")) for job in self.bench.jobs(2)]
        await shard.submit(InsertJobs([InsertRequest(QUEUE, self.jobs)], NOW))
        assert [job.id for job in await self.bench.claim()] == [self.jobs[0].id]
        shard.on_came_first(self._wakes)
        self.bench.disk.committing.clear()
        return self

    def _wakes(self, _queue: str, _due_ms: int) -> bool:
        self.then()
        return True

    def ack(self) -> asyncio.Task[list[Acked]]:
        return asyncio.create_task(self.bench.succeed(JobKey(QUEUE, 1, self.jobs[0].id)))

    async def states(self) -> list[JobState]:
        """Those in the file, as readers see them."""
        found = await self.bench.shard.submit(LookupJobs([JobKey(QUEUE, 1, job.id) for job in self.jobs], bodies=False))
        return [JobState(job.state) for job in found if job is not None]


IN_PROGRESS, PENDING, SUCCEEDED = JobState.IN_PROGRESS, JobState.PENDING, JobState.SUCCEEDED


@pytest.fixture
async def ordered(either: Bench) -> OrderedJobs:
    return await OrderedJobs(either).begin()


async def test_readers_see_nothing_of_an_ack_whose_transaction_waits_for_a_claim(ordered: OrderedJobs) -> None:
    seen: list[list[JobState]] = []
    began = asyncio.Event()
    ordered.then = began.set
    ack = ordered.ack()
    await began.wait()
    while ordered.bench.disk.connection.in_transaction and not ordered.bench.disk.committing.is_set():
        assert not ack.done()
        seen.append(await ordered.states())
        await asyncio.sleep(0)
    await ack
    assert seen
    assert all(states == [IN_PROGRESS, PENDING] for states in seen)
    assert await ordered.states() == [SUCCEEDED, PENDING]


async def test_a_store_that_closes_while_a_transaction_waits_for_a_claim_commits_it_first(ordered: OrderedJobs) -> None:
    began = asyncio.Event()
    ordered.then = began.set
    ack = ordered.ack()
    await began.wait()
    claim = asyncio.create_task(ordered.bench.claim())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await ordered.bench.shard.close()
        await ack
    assert [job.id for job in await claim] == [ordered.jobs[1].id]
    await ordered.bench.open()
    assert await ordered.states() == [SUCCEEDED, IN_PROGRESS]


async def test_a_claim_whose_caller_goes_while_a_transaction_waits_for_it_takes_nothing(ordered: OrderedJobs) -> None:
    def goes() -> None:
        claim = asyncio.create_task(ordered.bench.claim())
        asyncio.get_running_loop().call_soon(claim.cancel)

    ordered.then = goes
    await ordered.ack()
    assert await ordered.states() == [SUCCEEDED, PENDING]
    assert [job.id for job in await ordered.bench.claim()] == [ordered.jobs[1].id]


async def test_a_claim_that_fails_by_a_bug_leaves_the_ack_whose_transaction_it_joined(ordered: OrderedJobs) -> None:
    bugs: list[asyncio.Task[None]] = []
    ordered.then = lambda: bugs.append(asyncio.create_task(insert_by_a_bug(ordered.bench)))
    await ordered.ack()
    results = await asyncio.gather(*bugs, return_exceptions=True)
    assert results
    assert all(isinstance(result, ZeroDivisionError) for result in results)
    assert await ordered.states() == [SUCCEEDED, PENDING]
    assert len(await ordered.bench.claim()) == 1


async def test_a_long_enqueue_and_a_checkpoint_wait_for_the_transaction_that_waits_for_a_claim(
    ordered: OrderedJobs,
) -> None:
    long: list[asyncio.Task[list[JobKey]]] = []
    writer = ordered.bench.shard._open.writer

    def come() -> None:
        long.append(asyncio.create_task(ordered.bench.insert(10_000)))
        writer._checkpoint_wanted = True
        writer._schedule()

    ordered.then = lambda: asyncio.get_running_loop().call_soon(come)
    async with asyncio.timeout(30):
        await ordered.ack()
        assert len(await long[0]) == 10_000
        assert await ordered.bench.pending() == 10_001
    assert not writer._checkpoint_wanted


async def test_a_transaction_that_no_claim_can_join_does_not_wait_for_one(ordered: OrderedJobs) -> None:
    shard = ordered.bench.shard
    before, seen = shard.commits, list[int]()
    ordered.then = lambda: asyncio.get_running_loop().call_soon(lambda: seen.append(shard.commits))
    # The enqueue waits for the next transaction, and so do all calls after it.
    await asyncio.gather(ordered.ack(), ordered.bench.insert(10_000))
    assert seen == [before + 1]


async def test_a_full_disk_at_the_claim_refuses_the_ack_whose_transaction_it_joined(ordered: OrderedJobs) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    claims: list[asyncio.Task[list[HandedOutJob]]] = []

    def wakes() -> None:
        claims.append(asyncio.create_task(ordered.bench.claim()))
        ordered.bench.disk.fails = lambda text: full if text.startswith("INSERT INTO claims") else None

    ordered.then = wakes
    with pytest.raises(StoreFull):
        await ordered.ack()
    with pytest.raises(StoreFull):
        await claims[0]
    ordered.bench.disk.works()
    assert await ordered.states() == [IN_PROGRESS, PENDING]
    ordered.then = lambda: None
    await ordered.ack()
    assert await ordered.states() == [SUCCEEDED, PENDING]


@pytest.mark.parametrize("file", ["jobs.db", "jobs.db-wal"])
async def test_an_ack_is_refused_if_the_file_goes_while_its_transaction_waits_for_a_claim(
    ordered: OrderedJobs, file: str
) -> None:
    path = ordered.bench.path.with_name(file)
    away = path.with_suffix(".away")
    ordered.then = lambda: path.rename(away)
    with pytest.raises(ShardConnectionFailed, match="Nothing is stored until it is back"):
        await ordered.ack()
    ordered.then = lambda: None
    away.rename(path)
    assert await ordered.states() == [IN_PROGRESS, PENDING]
    await ordered.ack()
    assert await ordered.states() == [SUCCEEDED, PENDING]


class BrokenBatch:
    """A batch that raises when it is asked for its command, as a bug does. `refused`: the errors it got."""

    def __init__(self) -> None:
        self.refused: list[BaseException] = []

    def begin(self) -> BegunBatch | None:
        raise ZeroDivisionError("a bug")

    def done(self, answer: object) -> bool:
        raise AssertionError(answer)

    def failed(self, error: BaseException) -> bool:
        self.refused.append(error)
        return False


async def test_a_batch_that_raises_when_it_begins_fails_alone(ordered: OrderedJobs) -> None:
    batches = [BrokenBatch(), BrokenBatch()]
    ordered.then = lambda: asyncio.get_running_loop().call_soon(ordered.bench.shard.join, batches[0])
    async with asyncio.timeout(30):
        await ordered.ack()
        ordered.bench.shard.join(batches[1])
        await ordered.bench.insert()
    assert [type(error) for batch in batches for error in batch.refused] == [ZeroDivisionError] * 2
    assert await ordered.states() == [SUCCEEDED, PENDING]


async def test_a_call_that_changes_nothing_commits_nothing(either: Bench) -> None:
    before = either.shard.commits
    assert await either.claim() == []
    assert (await either.succeed(JobKey(QUEUE, 1, 99)))[0].state is None
    assert either.shard.commits == before


async def test_an_inserted_job_can_be_read_at_once(either: Bench) -> None:
    for _ in range(20):
        [key] = await either.insert()
        [job] = await either.shard.submit(LookupJobs([key], bodies=True))
        assert job is not None
        assert job.body == b"hello"


async def test_a_faulty_call_fails_alone(either: Bench) -> None:
    """The others of its transaction are run again, and their results are as if it had never been there."""
    results = await asyncio.gather(either.insert(3), insert_by_a_bug(either), either.insert(4), return_exceptions=True)
    assert isinstance(results[1], ZeroDivisionError)
    assert await either.pending() == 7
    assert len(await either.claim(100)) == 7


async def test_too_many_waiting_calls_are_refused(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(SqliteSettings(waiting_calls_max=10))
    results = await asyncio.gather(*(bench.insert() for _ in range(15)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, TooManyWaiting)]
    assert len(refused) == 5
    assert await bench.pending() == 10


async def test_a_call_whose_caller_has_gone_is_not_carried_out(bench: Bench) -> None:
    call = asyncio.ensure_future(bench.insert())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await bench.insert()
    assert await bench.pending() == 1


async def test_a_long_transaction_ends_and_the_next_one_does_the_rest(tmp_path: Path) -> None:
    ticks = iter(range(1_000_000))
    bench = Bench(tmp_path / "jobs.db")
    await bench.open()
    await bench.shard.close()
    settings = SqliteSettings(inline_commit_us=10_000_000, transaction_ms_max=5_000)
    bench.shard = type(bench.shard)(bench.path, settings, monotonic=lambda: float(next(ticks)))
    await bench.shard.open(NOW)
    before = bench.shard.commits
    await asyncio.gather(*(bench.insert() for _ in range(30)))
    assert bench.shard.commits - before > 3
    assert await bench.pending() == 30
    await bench.shard.close()


async def test_closing_finishes_what_waits(either: Bench) -> None:
    inserts = [asyncio.ensure_future(either.insert()) for _ in range(5)]
    await asyncio.sleep(0)
    await either.shard.close()
    assert all(len(keys) == 1 for keys in await asyncio.gather(*inserts))
    await either.open()
    assert await either.pending() == 5
