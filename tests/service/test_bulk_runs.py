"""Bulk changes in the background: which jobs they change, how fast, and what ends or continues them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import pytest_asyncio

from pinlater.client.bulk import BulkRun
from pinlater.domain.bulk import (
    BULK_KEPT_MS,
    BULK_RUNNING_MAX,
    BULKS_OF_QUEUE_MAX,
    RESTORABLE_MS,
    BulkAction,
    BulkOrder,
    BulkState,
)
from pinlater.domain.caller_names import NamedCaller
from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import (
    InvalidArgument,
    PinLaterError,
    QueueNotFound,
    ShardConnectionFailed,
    TooManyWaiting,
)
from pinlater.domain.job import TASK_HEADER, JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.bulk.steps import PAGE_JOBS, STALE_MS
from pinlater.server.features.history.rollup import BULK_STEP_S
from pinlater.server.main.core import Core
from pinlater.server.operations.body_search import SearchUnavailable
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.values import ScannedPage
from pinlater.server.storage.commands import SaveSamples
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import StoredSample
from pinlater.wire.generated.structs import Ack, AckBatch, AuditRequest, LookupRequest, RunJobsRequest, ScanRequest
from tests.assembly import open_core
from tests.commands import replaced
from tests.service.conftest import CALLER, ServiceUnderTest
from tests.service.shown_runs import ShownRuns

RETRY = BulkOrder("q", BulkAction.RETRY, JobFilter(JobState.FAILED))
DELETE = BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.FAILED))


class Pauses:
    """Pauses of bulk runs that take no time, but the clock goes on. `then`: happens in each."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.then: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)

    async def __call__(self, seconds: float) -> None:
        self._clock.advance(seconds=seconds)
        await self.then()


def bulk_runs_on(
    world: ServiceUnderTest,
    pause: Callable[[float], Awaitable[None]],
    settings: JobSettings = JobSettings(),  # noqa: B008 - a value
    server: str = "a",
) -> ShownRuns:
    """Bulk runs with other pauses, which the service has from now on."""
    service = world.service
    runs = BulkRuns(service, settings, lambda: server, pause)
    service.put(runs)
    return ShownRuns(runs)


def tasks_of_runs() -> list[asyncio.Task[object]]:
    """The tasks that carry out bulk runs, on all servers of the test."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("bulk run ")]


@pytest.fixture
def pauses(world: ServiceUnderTest) -> Pauses:
    return Pauses(world.clock)


@pytest.fixture
def bulk(world: ServiceUnderTest, pauses: Pauses) -> ShownRuns:
    return bulk_runs_on(world, pauses)


async def failed(world: ServiceUnderTest, number: int, task: str = "send", error: str = "boom") -> list[str]:
    """As many jobs that have failed."""
    names = await world.enqueue(*[b"x"] * number, headers={TASK_HEADER: task})
    await world.dequeue(number)
    acks = [Ack(name, final=True, error_type="OSError", error_text=error) for name in names]
    await world.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=acks))
    return names


async def ended(bulk: ShownRuns, run: BulkRun) -> BulkRun:
    """The run once it has ended."""
    async with asyncio.timeout(30):
        while True:
            [now] = [each for each in await bulk.runs() if each.id == run.id]
            if now.ended_ms is not None:
                return now
            await asyncio.sleep(0)


async def states(world: ServiceUnderTest, names: list[str]) -> list[str]:
    """The states of these jobs that exist."""
    return [JobState(job.state).name for job in (await world.service.job_queries.lookup(LookupRequest(names))).values()]


async def test_it_changes_the_jobs_that_fit_and_tells_how_many(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    wanted, others = await failed(world, 3, error="no disk"), await failed(world, 2)
    order = RETRY._replace(
        filter=JobFilter(JobState.FAILED, tasks=frozenset({"send"}), error_text="NO DISK"), attempts=2
    )
    run = await ended(bulk, await bulk.start(order, "ops"))
    assert (run.state, run.looked, run.changed, run.who, run.order) == (BulkState.DONE, 5, 3, "ops", order)
    assert await states(world, wanted) == ["PENDING"] * 3
    assert await states(world, others) == ["FAILED"] * 2


@pytest.mark.parametrize("rate", [None, 2.0])
async def test_a_run_ends_with_the_largest_number_of_changes_that_its_order_allows(
    world: ServiceUnderTest, bulk: ShownRuns, rate: float | None
) -> None:
    names = await failed(world, 5)
    run = await ended(bulk, await bulk.start(RETRY._replace(max_jobs=3, jobs_per_second=rate), "ops"))
    assert (run.state, run.changed, run.expected) == (BulkState.DONE, 3, 3)
    assert sorted(await states(world, names)) == ["FAILED"] * 2 + ["PENDING"] * 3


async def test_many_pages_are_looked_at(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    for number in (PAGE_JOBS, PAGE_JOBS + 1):
        await failed(world, number)
    run = await ended(bulk, await bulk.start(DELETE, "ops"))
    assert (run.state, run.looked, run.changed) == (BulkState.DONE, 2 * PAGE_JOBS + 1, 2 * PAGE_JOBS + 1)


@pytest.mark.parametrize("action", [BulkAction.DELETE, BulkAction.CANCEL])
async def test_waiting_jobs_are_meant_whether_they_are_due_or_not(
    world: ServiceUnderTest, bulk: ShownRuns, action: BulkAction
) -> None:
    names = await world.enqueue(b"due")
    names += await world.enqueue(b"later", run_after_ms=world.clock.now_ms() + 60_000)
    run = await ended(bulk, await bulk.start(BulkOrder("q", action, JobFilter(JobState.PENDING)), "ops"))
    assert run.changed == 2
    assert await states(world, names) == ([] if action is BulkAction.DELETE else ["FAILED"] * 2)


async def test_a_limited_run_looks_at_due_jobs_again_after_the_others_for_those_that_became_due_meanwhile(
    world: ServiceUnderTest, bulk: ShownRuns
) -> None:
    names = await world.enqueue(b"later", run_after_ms=world.clock.now_ms() + 1_000)
    scan = world.service.job_queries.scan_page

    async def scanned(command: object) -> object:
        page = await scan(command)  # type: ignore[arg-type]
        world.clock.advance(seconds=2)
        return page

    order = BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.PENDING), max_jobs=5)
    with patch.object(world.service.job_queries, "scan_page", scanned):
        run = await ended(bulk, await bulk.start(order, "ops"))
    assert (run.state, run.changed) == (BulkState.DONE, 1)
    assert await states(world, names) == []


async def test_a_body_chooses_jobs(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    names = await world.enqueue(b"apple", b"pear")
    order = BulkOrder("q", BulkAction.CANCEL, JobFilter(JobState.PENDING, regex="app.e"))
    assert (await ended(bulk, await bulk.start(order, "ops"))).changed == 1
    assert await states(world, names) == ["FAILED", "PENDING"]


async def test_the_rate_is_kept(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 10)
    began_ms = world.clock.now_ms()
    run = await ended(bulk, await bulk.start(DELETE._replace(jobs_per_second=2.0), "ops"))
    assert (run.changed, world.clock.now_ms() - began_ms) == (10, 5_000)


async def test_it_can_be_stopped(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 10)
    run = await bulk.start(DELETE._replace(jobs_per_second=1.0), "ops")
    assert (await bulk.stop("q", run.id)).state is BulkState.STOPPED
    run = await ended(bulk, run)
    assert (run.state, 1 <= run.changed <= 2) == (BulkState.STOPPED, True)
    assert (await bulk.stop("q", run.id)).changed == run.changed


async def test_a_job_that_becomes_due_in_between_is_changed(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    """So those that are not due come first."""
    names = await world.enqueue(b"soon", run_after_ms=world.clock.now_ms() + 1_000)
    scan = world.service.job_queries.scan_page

    async def scanned(command: ScanRequest) -> ScannedPage:
        page = await scan(command)
        world.clock.advance(seconds=2)
        return page

    with patch.object(world.service.job_queries, "scan_page", scanned):
        await ended(bulk, await bulk.start(BulkOrder("q", BulkAction.CANCEL, JobFilter(JobState.PENDING)), "ops"))
    assert await states(world, names) == ["FAILED"]


async def test_a_waiting_job_that_is_claimed_meanwhile_is_not_cancelled(
    world: ServiceUnderTest, bulk: ShownRuns
) -> None:
    names = await world.enqueue(b"x")
    scan = world.service.job_queries.scan_page

    async def scanned(command: ScanRequest) -> ScannedPage:
        page = await scan(command)
        if page.jobs:
            await world.dequeue(1)
        return page

    with patch.object(world.service.job_queries, "scan_page", scanned):
        run = await ended(bulk, await bulk.start(BulkOrder("q", BulkAction.CANCEL, JobFilter(JobState.PENDING)), "ops"))
    assert (run.looked, run.changed) == (1, 0)
    assert await states(world, names) == ["IN_PROGRESS"]


@pytest.mark.parametrize("order", [DELETE, RETRY], ids=["delete", "retry"])
async def test_a_job_whose_state_has_changed_meanwhile_stays(
    world: ServiceUnderTest, bulk: ShownRuns, order: BulkOrder
) -> None:
    [name] = await failed(world, 1)
    scan = world.service.job_queries.scan_page

    async def scanned(command: object) -> object:
        page = await scan(command)  # type: ignore[arg-type]
        await world.service.bulk.run_jobs(RunJobsRequest("q", [name]))
        return page

    with patch.object(world.service.job_queries, "scan_page", scanned):
        run = await ended(bulk, await bulk.start(order, "ops"))
    assert (run.looked, run.changed) == (1, 0)
    assert await states(world, [name]) == ["PENDING"]


async def test_it_is_stopped_in_a_long_pause(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    began_ms = world.clock.now_ms()
    run = await bulk.start(DELETE._replace(jobs_per_second=0.1), "ops")
    await bulk.stop("q", run.id)
    run = await ended(bulk, run)
    assert (run.state, run.changed, world.clock.now_ms() - began_ms < 5_000) == (BulkState.STOPPED, 1, True)


async def test_a_run_that_is_to_stop_changes_nothing_after_a_restart(servers: Servers) -> None:
    one = await servers.start("a", go=lambda: False)
    world = servers.world()
    await failed(world, 6)
    run = await one.start(DELETE._replace(jobs_per_second=1.0), "ops")
    await turns(lambda: servers.paused)
    await one.stop("q", run.id)
    await kill_servers()
    servers.clock.advance(ms=STALE_MS + 1)
    other = await servers.start("b", go=lambda: True)
    await other.look()
    found = await ended(other, run)
    [stats] = await servers.cores[0].service.queues.queue_stats(["q"])
    assert (found.state, sum(counts.failed for counts in stats.counts)) == (BulkState.STOPPED, 5)


async def test_jobs_of_a_queue_that_was_made_again_stay(
    world: ServiceUnderTest, bulk: ShownRuns, pauses: Pauses
) -> None:
    await failed(world, 3)
    names: list[str] = []

    async def make_again() -> None:
        if not names:
            await world.service.queues.delete_queue("q", "open sesame")
            await world.service.queues.create_queue("q")
            names.extend(await failed(world, 3))

    pauses.then = make_again
    run = await ended(bulk, await bulk.start(DELETE._replace(jobs_per_second=1.0), "ops"))
    assert (run.state, run.changed) == (BulkState.DONE, 1)
    assert await states(world, names) == ["FAILED"] * 3


@pytest.mark.parametrize("error", [TooManyWaiting("busy"), SearchUnavailable("busy")])
async def test_it_waits_where_servers_are_busy(world: ServiceUnderTest, bulk: ShownRuns, error: PinLaterError) -> None:
    await failed(world, 3)
    scan, failures = world.service.job_queries.scan_page, iter(range(3))

    async def scanned(command: object) -> object:
        if next(failures, None) is not None:
            raise error
        return await scan(command)  # type: ignore[arg-type]

    with patch.object(world.service.job_queries, "scan_page", scanned):
        run = await ended(bulk, await bulk.start(DELETE, "ops"))
    assert (run.state, run.changed) == (BulkState.DONE, 3)


async def test_its_end_is_in_the_audit(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    run = await ended(bulk, await bulk.start(DELETE, "shown", "worker-7", NamedCaller("ops", ["operate"])))
    page = await world.service.of(AuditTrail).read(AuditRequest("q"))
    [entry] = [entry for entry in page.entries if entry.operation == "bulkRun"]
    assert (entry.who, entry.source, list(entry.roles)) == ("ops", "worker-7", ["operate"])
    assert (entry.jobs, entry.outcome) == (3, "ok")
    assert run.id in entry.arguments


async def test_what_another_version_keeps_is_left_out(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    [shard] = world.service.shards
    now_ms = world.clock.now_ms()
    rows = [StoredSample(BULK_STEP_S, now_ms, "q", f"ffffffffffffffff{kind}", b"\xc1") for kind in ("", ".progress")]
    await shard.store.submit(SaveSamples(rows))
    run = await ended(bulk, await bulk.start(DELETE, "ops"))
    assert [each.id for each in await bulk.runs()] == [run.id]


async def test_the_kept_runs_of_a_queue_are_bounded(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    for _ in range(BULKS_OF_QUEUE_MAX):
        await ended(bulk, await bulk.start(DELETE, "ops"))
    with pytest.raises(InvalidArgument, match="began in the last 30 days"):
        await bulk.start(DELETE, "ops")
    await bulk.start(DELETE._replace(max_jobs=1), "ops")
    world.clock.advance(ms=BULK_KEPT_MS + 1)
    await bulk.start(DELETE, "ops")


async def test_limited_runs_of_a_day_are_bounded_and_count_apart_from_other_runs(
    world: ServiceUnderTest, bulk: ShownRuns
) -> None:
    limited = DELETE._replace(max_jobs=1)
    for _ in range(BULKS_OF_QUEUE_MAX):
        await ended(bulk, await bulk.start(limited, "cron"))
    with pytest.raises(InvalidArgument, match="began in the last day"):
        await bulk.start(limited, "cron")
    await bulk.start(DELETE, "ops")
    world.clock.advance(ms=RESTORABLE_MS)
    await bulk.start(limited, "cron")


async def test_it_waits_for_a_shard_that_is_away(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    delete, failures = world.service.bulk.delete_with_copies, iter(range(3))

    async def deleted(*arguments: object) -> None:
        if next(failures, None) is not None:
            raise ShardConnectionFailed("gone")
        await delete(*arguments)  # type: ignore[arg-type]

    with patch.object(world.service.bulk, "delete_with_copies", deleted):
        run = await ended(bulk, await bulk.start(DELETE, "ops"))
    assert (run.state, run.changed, run.detail) == (BulkState.DONE, 3, "")


async def test_it_fails_with_the_reason_if_its_queue_is_deleted(
    world: ServiceUnderTest, bulk: ShownRuns, pauses: Pauses
) -> None:
    await failed(world, 3)

    async def delete_queue() -> None:
        await world.service.queues.delete_queue("q", "open sesame")

    pauses.then = delete_queue
    run = await ended(bulk, await bulk.start(DELETE._replace(jobs_per_second=1.0), "ops"))
    assert (run.state, "q" in run.detail) == (BulkState.FAILED, True)


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (RETRY._replace(filter=JobFilter(JobState.PENDING)), "No PENDING job can be changed by retry"),
        (RETRY._replace(action=BulkAction.CANCEL), "No FAILED job can be changed by cancel"),
        (RETRY._replace(jobs_per_second=0.0), "jobsPerSecond"),
        (RETRY._replace(jobs_per_second=1e-300), "jobsPerSecond"),
        (RETRY._replace(jobs_per_second=float("nan")), "jobsPerSecond"),
        (RETRY._replace(attempts=0), "attemptsToAllow"),
        (RETRY._replace(expected=-1), "expectedJobs"),
        (RETRY._replace(max_jobs=0), "maxJobs"),
        (RETRY._replace(filter=JobFilter(JobState.FAILED, regex="(")), "regex"),
        (RETRY._replace(filter=JobFilter(JobState.FAILED, error_text="x" * 9_000)), "The filters take"),
    ],
)
async def test_what_cannot_be_carried_out_is_refused_at_once(bulk: ShownRuns, order: BulkOrder, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        await bulk.start(order, "ops")
    assert await bulk.runs() == []


async def test_unknown_queues_and_runs_are_refused(bulk: ShownRuns) -> None:
    with pytest.raises(QueueNotFound):
        await bulk.start(RETRY._replace(queue="none"), "ops")
    with pytest.raises(InvalidArgument, match="has no bulk run"):
        await bulk.stop("q", "0123456789abcdef")


async def test_the_runs_of_a_queue_are_told_until_neither_exists(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    assert await bulk.runs(["q"]) == []
    with pytest.raises(QueueNotFound):
        await bulk.list_runs(["q", "nope"])
    await ended(bulk, await bulk.start(DELETE, "ops"))
    await world.service.queues.delete_queue("q", "open sesame")
    assert len(await bulk.runs(["q"])) == 1


async def test_the_runs_under_way_are_bounded(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    never = asyncio.Event()
    with patch.object(world.service.job_queries, "scan_page", lambda _: never.wait()):
        for _ in range(BULK_RUNNING_MAX):
            await bulk.start(RETRY, "ops")
        with pytest.raises(InvalidArgument, match="under way already"):
            await bulk.start(RETRY, "ops")
        await bulk.close()


async def turns(condition: Callable[[], object]) -> None:
    """Lets the loop turn until the condition holds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def kill_servers() -> None:
    """The servers so far do nothing more with their runs, and tell nothing."""
    tasks = tasks_of_runs()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class Servers:
    """Servers on one shard, each with bulk runs whose pauses wait until `go`. `paused`: those that have come to a pause."""

    def __init__(self, clock: ManualClock, shard: MemoryShard) -> None:
        self.clock = clock
        self.shard = shard
        self.cores: list[Core] = []
        self.paused: set[str] = set()

    def world(self, place: int = 0) -> ServiceUnderTest:
        """One of the servers."""
        core = self.cores[place]
        return ServiceUnderTest(self.clock, core.service, core.dispatcher, core.metrics, core.standstill)

    async def start(self, name: str, *, go: Callable[[], bool], **settings: Any) -> ShownRuns:
        """Starts a server of that name. `settings`: of jobs."""
        core = await open_core(self.shard, clock=self.clock)
        await core.service.queues.create_queue("q")
        self.cores.append(core)

        async def pause(seconds: float) -> None:
            self.paused.add(name)
            while not go():
                await asyncio.sleep(0)
            self.clock.advance(seconds=seconds)
            await asyncio.sleep(0)

        return bulk_runs_on(self.world(-1), pause, JobSettings(**settings), name)

    async def stored(self, run: BulkRun) -> BulkRun:
        """The run as it is kept now."""
        [found] = [each for each in await ShownRuns(self.cores[0].service.of(BulkRuns)).runs() if each.id == run.id]
        return found

    async def ends_in_the_audit(self, run: BulkRun) -> int:
        """How often its end is there."""
        for core in self.cores:
            await core.service.of(AuditTrail).buffer.flush()
        page = await self.cores[0].service.of(AuditTrail).read(AuditRequest("q", operation="bulkRun"))
        return sum(run.id in entry.arguments for entry in page.entries)

    async def until_changed(self, run: BulkRun, number: int) -> None:
        """Waits until the run tells that it has changed that number of jobs."""
        async with asyncio.timeout(30):
            while (await self.stored(run)).changed < number:
                await asyncio.sleep(0)


@pytest_asyncio.fixture
async def servers() -> AsyncIterator[Servers]:
    servers = Servers(ManualClock(), MemoryShard())
    yield servers
    for core in servers.cores:
        await ShownRuns(core.service.of(BulkRuns)).close()


async def test_what_another_server_ended_is_not_begun_again(servers: Servers) -> None:
    """Its server stood still for longer than the lease."""
    frozen = True
    one = await servers.start("a", go=lambda: not frozen)
    await failed(servers.world(), 6)
    run = await one.start(DELETE._replace(jobs_per_second=2.0), "ops")
    await turns(lambda: servers.paused)
    other = await servers.start("b", go=lambda: True)
    servers.clock.advance(ms=STALE_MS + 1)
    await other.look()
    found = await ended(other, run)
    frozen = False
    await turns(lambda: not tasks_of_runs())
    assert await one.runs() == await other.runs() == [found]


@pytest.mark.parametrize("error", [None, InvalidArgument("no")], ids=["page", "refusal"])
async def test_the_end_that_another_server_told_stays(servers: Servers, error: PinLaterError | None) -> None:
    """The first server stood still while it read its last page, which has no jobs."""
    reading, thawed = asyncio.Event(), asyncio.Event()
    one = await servers.start("a", go=lambda: True)
    scan = servers.cores[0].service.job_queries.scan_page

    async def frozen(command: ScanRequest) -> ScannedPage:
        reading.set()
        await thawed.wait()
        if error is not None:
            raise error
        return await scan(command)

    with patch.object(servers.cores[0].service.job_queries, "scan_page", frozen):
        run = await one.start(DELETE, "ops")
        await reading.wait()
        other = await servers.start("b", go=lambda: True)
        servers.clock.advance(ms=STALE_MS + 1)
        await other.look()
        await other.stop("q", run.id)
        found = await ended(other, run)
        servers.clock.advance(seconds=5)
        thawed.set()
        await turns(lambda: not tasks_of_runs())
    assert await one.runs() == await other.runs() == [found]


async def test_another_server_continues_a_run_whose_server_has_died(servers: Servers) -> None:
    one = await servers.start("a", go=lambda: False)
    first = servers.cores[0].service
    await failed(servers.world(), 6)
    run = await one.start(DELETE._replace(jobs_per_second=2.0), "ops")
    await turns(lambda: servers.paused)
    await kill_servers()
    other = await servers.start("b", go=lambda: True)
    await other.look()
    assert (await other.runs())[0].state is BulkState.RUNNING
    assert not tasks_of_runs(), "its server may live"
    servers.clock.advance(ms=STALE_MS + 1)
    await other.look()
    found = await ended(other, run)
    assert (found.state, found.ended_ms is not None) == (BulkState.DONE, True)
    [stats] = await first.queues.queue_stats(["q"])
    assert sum(counts.failed for counts in stats.counts) == 0


class PauseGate:
    """A server's pauses, which a test closes and opens; each takes its time on the clock."""

    def __init__(self) -> None:
        self.is_open = True

    def __call__(self) -> bool:
        return self.is_open


async def test_a_server_that_stood_still_leaves_the_run_to_the_one_that_continued_it(servers: Servers) -> None:
    """Whatever their names: so what is told never goes back."""
    first, second = PauseGate(), PauseGate()
    one = await servers.start("a", go=first)
    first.is_open = False
    await failed(servers.world(), 60)
    run = await one.start(DELETE._replace(jobs_per_second=10.0), "ops")
    await turns(lambda: servers.paused)
    [task] = tasks_of_runs()
    other = await servers.start("b", go=second)
    servers.clock.advance(ms=STALE_MS + 1)
    await other.look()
    await servers.until_changed(run, 30)
    second.is_open = False
    before = await servers.stored(run)
    first.is_open = True
    await turns(task.done)
    now = await servers.stored(run)
    assert (now.changed, now.looked >= before.looked) == (before.changed, True)
    second.is_open = True
    found = await ended(other, run)
    assert (found.state, found.changed) == (BulkState.DONE, 50)
    assert "may be missing" in found.detail, "the first server had changed ten that it did not tell"


async def test_progress_that_comes_late_leaves_the_end(servers: Servers) -> None:
    """The database gets it when another server has ended the run."""
    one = await servers.start("a", go=lambda: True)
    await failed(servers.world(), 6)
    late, save = asyncio.Event(), servers.shard.submit

    async def saved(samples: Sequence[StoredSample]) -> None:
        if any(sample.origin.endswith(".progress") and b"a" in sample.data for sample in samples):
            await late.wait()
        await save(SaveSamples(samples))

    run = await one.start(DELETE._replace(jobs_per_second=2.0), "ops")
    with replaced(servers.shard, SaveSamples, saved):
        await turns(lambda: servers.clock.now_ms() - run.started_ms >= 1_000)
        other = await servers.start("b", go=lambda: True)
        servers.clock.advance(ms=STALE_MS + 1)
        await other.look()
        found = await ended(other, run)
        late.set()
        await turns(lambda: not tasks_of_runs())
    servers.clock.advance(ms=STALE_MS + 1)
    await other.look()
    await one.look()
    assert not tasks_of_runs()
    assert await one.runs() == await other.runs() == [found]
    assert await servers.ends_in_the_audit(run) == 1


async def test_an_end_whose_answer_is_lost_is_in_the_audit_once(servers: Servers) -> None:
    one = await servers.start("a", go=lambda: True)
    await failed(servers.world(), 3)
    save, losses = servers.shard.submit, iter(range(2))

    async def lost(samples: Sequence[StoredSample]) -> None:
        await save(SaveSamples(samples))
        if samples[0].origin.endswith(".end") and next(losses, None) is not None:
            raise ShardConnectionFailed("gone")

    with replaced(servers.shard, SaveSamples, lost):
        found = await ended(one, run := await one.start(DELETE, "ops"))
        await turns(lambda: not tasks_of_runs())
    assert (await one.runs(), await servers.ends_in_the_audit(run)) == ([found], 1)


async def test_an_end_that_can_be_told_only_when_another_server_has_ended_the_run_is_not_told(servers: Servers) -> None:
    """The first server has lost its way to the shard, just before the end."""
    gate = PauseGate()
    one = await servers.start("a", go=gate)
    await failed(servers.world(), 3)
    save, cut = servers.shard.submit, True

    async def saved(samples: Sequence[StoredSample]) -> None:
        if cut and samples[0].origin.endswith(".end"):
            raise ShardConnectionFailed("gone")
        await save(SaveSamples(samples))

    with replaced(servers.shard, SaveSamples, saved):
        gate.is_open = False
        run = await one.start(DELETE, "ops")
        await turns(lambda: servers.paused)
        cut = False
        other = await servers.start("b", go=lambda: True)
        servers.clock.advance(ms=STALE_MS + 1)
        await other.look()
        found = await ended(other, run)
        gate.is_open = True
        await turns(lambda: not tasks_of_runs())
    assert (await one.runs(), await servers.ends_in_the_audit(run)) == ([found], 1)


async def test_a_server_that_stops_hands_its_runs_over_with_the_right_numbers(servers: Servers) -> None:
    """The next server need not wait until the progress is old."""
    one = await servers.start("a", go=lambda: True)
    await failed(servers.world(), 60)
    run = await one.start(DELETE._replace(jobs_per_second=10.0), "ops")
    await servers.until_changed(run, 20)
    await one.close()
    assert not tasks_of_runs()
    other = await servers.start("b", go=lambda: True)
    await other.look()
    found = await ended(other, run)
    assert (found.state, found.changed, found.detail) == (BulkState.DONE, 60, "")


async def test_a_crash_leaves_at_most_a_page_uncounted_and_the_run_says_so(servers: Servers) -> None:
    """However fast the run is: here no time passes between its changes."""
    one = await servers.start("a", go=lambda: True)
    pages = 4
    for _ in range(pages):
        await failed(servers.world(), PAGE_JOBS)
    delete, calls, last = servers.cores[0].service.bulk.delete_jobs_by_descriptor, iter(range(pages)), asyncio.Event()

    async def deleted(*arguments: object) -> int:
        done = await delete(*arguments)  # type: ignore[arg-type]
        if next(calls) == pages - 1:
            last.set()
            await asyncio.Event().wait()
        return done

    with patch.object(servers.cores[0].service.bulk, "delete_jobs_by_descriptor", deleted):
        run = await one.start(DELETE._replace(for_good=True), "ops")
        await last.wait()
        await kill_servers()
    other = await servers.start("b", go=lambda: True)
    servers.clock.advance(ms=STALE_MS + 1)
    await other.look()
    found = await ended(other, run)
    assert (found.state, found.changed) == (BulkState.DONE, (pages - 1) * PAGE_JOBS)
    assert "may be missing" in found.detail
