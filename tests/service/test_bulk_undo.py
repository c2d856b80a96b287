"""The undo of bulk deletes: what comes back, what stands in its way, how much space copies take, and what happens at the worst moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from pinlater.client.bulk import BulkRun
from pinlater.domain.bulk import RESTORABLE_MS, BulkAction, BulkOrder, BulkState
from pinlater.domain.caller_names import NamedCaller
from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import InvalidArgument, OutcomeUnknown, QueueNotFound, ShardConnectionFailed, StoreFull
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.features.bulk.records import BulkRecords
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.bulk.steps import PAGE_JOBS, STALE_MS
from pinlater.server.features.history.rollup import BULK_STEP_S
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.storage.commands import Command, DeleteWithCopies, ListSamples, RestoreJobs, SaveSamples
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import (
    COPIES_KEPT_MS,
    COPIES_STEP_S,
    CopiesOf,
    DeletedWithCopies,
    JobKey,
    Restored,
    RestoreOrder,
    SampleRange,
    StoredSample,
)
from pinlater.wire.generated.structs import AuditRequest, LookupRequest
from tests.assembly import open_core
from tests.commands import replaced
from tests.service.conftest import ServiceUnderTest
from tests.service.shown_runs import ShownRuns
from tests.service.test_bulk_runs import (
    DELETE,
    RETRY,
    Pauses,
    Servers,
    bulk,
    bulk_runs_on,
    ended,
    failed,
    kill_servers,
    pauses,
    servers,
    states,
    tasks_of_runs,
    turns,
)

__all__ = ["bulk", "pauses", "servers"]  # fixtures


def undo(run: BulkRun, rate: float | None = None) -> BulkOrder:
    return BulkOrder("q", BulkAction.RESTORE, JobFilter(JobState.PENDING), jobs_per_second=rate, undoes=run.id)


async def deleted(bulk: ShownRuns, order: BulkOrder = DELETE) -> BulkRun:
    """A run that has deleted."""
    return await ended(bulk, await bulk.start(order, "ops"))


async def test_deleted_jobs_come_back_as_they_were(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    names = await failed(world, 3)
    before = await world.service.job_queries.lookup(LookupRequest(names, True))
    run = await deleted(bulk, DELETE._replace(filter=JobFilter(JobState.FAILED, error_text="boom")))
    assert await states(world, names) == []
    assert run.undo_until_ms == run.started_ms + RESTORABLE_MS

    undone = await ended(bulk, await bulk.start(undo(run), "boss"))

    assert (undone.state, undone.looked, undone.changed, undone.detail) == (BulkState.DONE, 3, 3, "")
    assert (undone.who, undone.order.undoes, undone.order.filter) == ("boss", run.id, run.order.filter)
    assert undone.undo_until_ms is None
    assert await world.service.job_queries.lookup(LookupRequest(names, True)) == before


async def test_many_jobs_come_back_at_the_rate_meant(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 10)
    run = await deleted(bulk, DELETE._replace(jobs_per_second=2.0))
    began_ms = world.clock.now_ms()

    undone = await ended(bulk, await bulk.start(undo(run, rate=1.0), "ops"))

    assert (undone.changed, world.clock.now_ms() - began_ms) == (10, 10_000)


async def test_a_dequeue_that_waits_gets_a_restored_job(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    [name] = await world.enqueue(b"x")
    run = await deleted(bulk, BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.PENDING)))
    waiting = asyncio.create_task(world.dequeue(1, wait_ms=60_000))
    await turns(lambda: world.dispatcher.waiting_by_source())

    await bulk.start(undo(run), "ops")

    async with asyncio.timeout(30):
        assert [job.descriptor for job in (await waiting).jobs] == [name]


async def test_what_is_undone_is_not_undone_again(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    run = await deleted(bulk)
    first = await ended(bulk, await bulk.start(undo(run), "ops"))
    with pytest.raises(InvalidArgument, match=f"undone already: run {first.id} brought its jobs back"):
        await bulk.start(undo(run), "ops")
    assert first.changed == 3
    assert len(await bulk.runs(["q"])) == 2


async def test_an_undo_can_be_stopped_and_begun_again(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 6)
    run = await deleted(bulk, DELETE._replace(jobs_per_second=1.0))
    first = await bulk.start(undo(run, rate=1.0), "ops")
    await bulk.stop("q", first.id)
    first = await ended(bulk, first)
    assert (first.state, first.changed < 6) == (BulkState.STOPPED, True)

    second = await ended(bulk, await bulk.start(undo(run), "ops"))

    assert first.changed + second.changed == 6


async def test_a_run_that_deletes_for_good_keeps_nothing(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    run = await deleted(bulk, DELETE._replace(for_good=True))
    assert (run.changed, run.undo_until_ms) == (3, None)
    [shard] = world.service.shards
    assert not await shard.store.submit(ListSamples([SampleRange(COPIES_STEP_S, 0, 2**63 - 1)]))
    with pytest.raises(InvalidArgument, match="for good"):
        await bulk.start(undo(run), "ops")


async def test_what_cannot_be_undone_is_refused_at_once(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    with pytest.raises(InvalidArgument, match="has no bulk run"):
        await bulk.start(DELETE._replace(action=BulkAction.RESTORE, undoes="0123456789abcdef"), "ops")
    with pytest.raises(InvalidArgument, match="names the run"):
        await bulk.start(DELETE._replace(undoes="0123456789abcdef"), "ops")
    with pytest.raises(InvalidArgument, match="names the run"):
        await bulk.start(DELETE._replace(action=BulkAction.RESTORE), "ops")
    with pytest.raises(InvalidArgument, match="for good"):
        await bulk.start(RETRY._replace(for_good=True), "ops")
    with pytest.raises(InvalidArgument, match="it is a retry"):
        await bulk.start(undo(await deleted(bulk, RETRY)), "ops")
    await failed(world, 2)
    run = await deleted(bulk)
    with pytest.raises(QueueNotFound):
        await bulk.start(undo(run)._replace(queue="none"), "ops")
    world.clock.advance(ms=RESTORABLE_MS + 1_000)
    with pytest.raises(InvalidArgument, match="more than a day ago"):
        await bulk.start(undo(run), "ops")


async def test_a_run_under_way_is_not_undone(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    never = asyncio.Event()
    with patch.object(world.service.job_queries, "scan_page", lambda _: never.wait()):
        run = await bulk.start(DELETE, "ops")
        with pytest.raises(InvalidArgument, match="under way"):
            await bulk.start(undo(run), "ops")
        await bulk.close()


async def test_a_run_is_undone_by_one_run_at_a_time(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 2)
    run = await deleted(bulk, DELETE._replace(jobs_per_second=1.0))
    first = await bulk.start(undo(run, rate=0.1), "ops")
    with pytest.raises(InvalidArgument, match=f"Run {first.id} undoes it already"):
        await bulk.start(undo(run), "ops")
    await ended(bulk, first)


async def test_jobs_of_a_queue_that_was_made_again_stay_away(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    run = await deleted(bulk)
    await world.service.queues.delete_queue("q", "open sesame")
    await world.service.queues.create_queue("q")

    undone = await ended(bulk, await bulk.start(undo(run), "ops"))

    assert (undone.state, undone.looked, undone.changed) == (BulkState.DONE, 3, 0)
    assert undone.detail == "3 jobs stayed away: the queue was deleted meanwhile"


async def test_a_key_that_is_taken_is_told(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await world.enqueue(b"x", unique_key="k")
    run = await deleted(bulk, BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.PENDING)))
    await world.enqueue(b"y", unique_key="k")

    undone = await ended(bulk, await bulk.start(undo(run), "ops"))

    assert (undone.looked, undone.changed) == (1, 0)
    assert undone.detail.startswith("1 job stayed away: another job has the unique key.")


async def test_both_ends_are_in_the_audit(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    await failed(world, 3)
    run = await deleted(bulk)
    undone = await ended(bulk, await bulk.start(undo(run), "boss", "vm-1", NamedCaller("boss")))
    page = await world.service.of(AuditTrail).read(AuditRequest("q"))
    entries = [entry for entry in page.entries if entry.operation == "bulkRun"]
    assert sorted((entry.who, entry.jobs) for entry in entries) == [("boss", 3), ("no token", 3)]
    [entry] = [entry for entry in entries if entry.who == "boss"]
    assert undone.id in entry.arguments
    assert run.id in entry.arguments


# --- space ------------------------------------------------------------------------------------------------------------------------


async def test_beyond_the_space_of_copies_nothing_is_deleted() -> None:
    clock = ManualClock()
    core = await open_core(MemoryShard(), clock=clock, jobs=JobSettings(max_undo_bytes=0))
    await core.service.queues.create_queue("q")
    small = ServiceUnderTest(clock, core.service, core.dispatcher, core.metrics, core.standstill)
    runs = ShownRuns(small.service.of(BulkRuns))
    names = await failed(small, 3)
    run = await deleted(runs)
    assert (run.state, run.changed) == (BulkState.FAILED, 0)
    assert "jobs.max_undo_bytes" in run.detail
    assert "Delete for good" in run.detail
    assert await states(small, names) == ["FAILED"] * 3
    assert (await deleted(runs, DELETE._replace(for_good=True))).changed == 3
    await runs.close()


async def test_an_undo_makes_space_for_other_copies(world: ServiceUnderTest, pauses: Pauses) -> None:
    bulk = bulk_runs_on(world, pauses, JobSettings(max_undo_bytes=10))
    await failed(world, 3)
    run = await deleted(bulk)
    world.clock.advance(seconds=11)
    refused = await deleted(bulk, BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.FAILED)))
    assert refused.state is BulkState.DONE, "no job was left to delete"
    await world.enqueue(b"x")
    waiting = BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.PENDING))
    assert (await deleted(bulk, waiting)).state is BulkState.FAILED
    await ended(bulk, await bulk.start(undo(run), "ops"))
    world.clock.advance(seconds=11)
    assert (await deleted(bulk, waiting)).changed == 1


async def test_copies_count_until_they_are_forgotten(world: ServiceUnderTest, pauses: Pauses) -> None:
    bulk = bulk_runs_on(world, pauses, JobSettings(max_undo_bytes=10))
    await failed(world, 3)
    await deleted(bulk)
    await failed(world, 3)
    world.clock.advance(seconds=11)
    assert (await deleted(bulk)).state is BulkState.FAILED
    world.clock.advance(ms=COPIES_KEPT_MS)
    assert (await deleted(bulk)).changed == 3


async def test_a_full_store_names_the_way_out(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    names = await failed(world, 3)

    async def full(*_: object) -> DeletedWithCopies:
        raise StoreFull.of("disk")

    [shard] = world.service.shards
    with replaced(shard.store, DeleteWithCopies, full):
        run = await deleted(bulk)
    assert run.state is BulkState.FAILED
    assert "disk" in run.detail
    assert "delete for good" in run.detail
    assert await states(world, names) == ["FAILED"] * 3


# --- the worst moment -------------------------------------------------------------------------------------------------------------


class Interrupted:
    """A shard whose calls of one kind are carried out, but their answers are lost as long as `lost` says so."""

    def __init__(self, shard: MemoryShard, kind: type[Command[Any]], lost: Callable[[], bool]) -> None:
        self._carry_out = shard.submit
        self._kind = kind
        self._lost = lost
        self.calls = 0

    async def __call__(self, *arguments: object) -> object:
        answer: object = await self._carry_out(self._kind(*arguments))
        self.calls += 1
        if self._lost():
            raise ShardConnectionFailed("the answer is lost")
        return answer


@pytest.mark.parametrize("kind", [DeleteWithCopies, RestoreJobs])
async def test_a_lost_answer_loses_and_doubles_no_job(servers: Servers, kind: type[Command[Any]]) -> None:
    runs = await servers.start("a", go=lambda: True)
    world = servers.world()
    names = await failed(world, 7)
    lost = iter([True, True, False])
    interrupted = Interrupted(servers.shard, kind, lambda: next(lost, False))
    with replaced(servers.shard, kind, interrupted):
        run = await deleted(runs, DELETE._replace(jobs_per_second=2.0))
        assert await states(world, names) == []
        await ended(runs, await runs.start(undo(run), "ops"))
    assert interrupted.calls > 2
    assert await states(world, names) == ["FAILED"] * 7
    [stats] = await world.service.queues.queue_stats(["q"])
    assert sum(counts.failed for counts in stats.counts) == 7


async def test_an_undo_goes_on_on_another_server(servers: Servers) -> None:
    one = await servers.start("a", go=lambda: True)
    world = servers.world()
    names = await failed(world, 6)
    run = await deleted(one, DELETE._replace(jobs_per_second=2.0))
    two = await servers.start("b", go=lambda: False)
    undone = await two.start(undo(run, rate=1.0), "ops")
    await turns(lambda: "b" in servers.paused)
    assert 0 < len(await states(world, names)) < 6
    await two.close()
    three = await servers.start("c", go=lambda: True)
    servers.clock.advance(ms=STALE_MS + 1)
    await three.look()
    found = await ended(three, undone)
    assert found.state is BulkState.DONE
    assert await states(world, names) == ["FAILED"] * 6


async def test_an_undo_is_handed_over_by_a_server_that_stops(servers: Servers) -> None:
    one = await servers.start("a", go=lambda: True)
    names = await failed(servers.world(), 20)
    run = await deleted(one, DELETE._replace(jobs_per_second=2.0))
    undone = await one.start(undo(run, rate=2.0), "ops")
    await servers.until_changed(undone, 4)
    await one.close()
    other = await servers.start("b", go=lambda: True)
    await other.look()
    found = await ended(other, undone)
    assert (found.state, found.changed, found.detail) == (BulkState.DONE, 20, "")
    assert await states(servers.world(), names) == ["FAILED"] * 20


async def test_the_copies_of_a_run_count_on_the_server_that_continues_it(servers: Servers) -> None:
    """What the first server told, and what the next one adds."""
    one = await servers.start("a", go=lambda: True)
    await failed(servers.world(), 20)
    run = await one.start(DELETE._replace(jobs_per_second=2.0), "ops")
    await servers.until_changed(run, 4)
    await one.close()
    records = BulkRecords(servers.cores[0].shards, servers.cores[0].metrics, servers.clock)
    [[told], _] = await records.all()
    other = await servers.start("b", go=lambda: True)
    await other.look()
    await ended(other, run)
    [[kept], _] = await records.all()
    assert 0 < told.progress.copy_bytes["1"] < kept.progress.copy_bytes["1"]
    assert kept.progress.term == 2


async def test_copies_that_a_crash_left_uncounted_can_be_restored(servers: Servers) -> None:
    """The page whose answer came too late is not in the number, but it has copies."""
    one = await servers.start("a", go=lambda: True)
    names = await failed(servers.world(), PAGE_JOBS)
    delete, last = servers.shard.submit, asyncio.Event()

    async def hangs(keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int) -> DeletedWithCopies:
        await delete(DeleteWithCopies(keys, state, of, now_ms))
        last.set()
        await asyncio.Event().wait()
        raise AssertionError

    with replaced(servers.shard, DeleteWithCopies, hangs):
        run = await one.start(DELETE, "ops")
        await last.wait()
        await kill_servers()
    other = await servers.start("b", go=lambda: True, max_undo_bytes=1)
    servers.clock.advance(ms=STALE_MS + 1)
    await other.look()
    run = await ended(other, run)
    assert (run.state, run.changed, "may be missing" in run.detail) == (BulkState.DONE, 0, True)
    assert run.undo_until_ms == run.started_ms + RESTORABLE_MS
    assert (await ended(other, await other.start(undo(run), "ops"))).changed == PAGE_JOBS
    assert await states(servers.world(), names) == ["FAILED"] * PAGE_JOBS
    servers.clock.advance(seconds=11)
    assert (await deleted(other)).changed == PAGE_JOBS
    await failed(servers.world(), 1)
    servers.clock.advance(seconds=11)
    assert (await deleted(other)).state is BulkState.FAILED, "an undo frees no more than was counted"


async def test_a_lost_answer_of_an_undo_is_told(servers: Servers) -> None:
    runs = await servers.start("a", go=lambda: True)
    names = await failed(servers.world(), 3)
    run = await deleted(runs)
    restore, lost = servers.shard.submit, iter([True])

    async def restored(order: RestoreOrder, now_ms: int) -> Restored:
        answer = await restore(RestoreJobs(order, now_ms))
        if next(lost, False):
            raise OutcomeUnknown("reset")
        return answer

    with replaced(servers.shard, RestoreJobs, restored):
        undone = await ended(runs, await runs.start(undo(run), "ops"))
    assert (undone.state, undone.changed, "may be missing" in undone.detail) == (BulkState.DONE, 0, True)
    assert await states(servers.world(), names) == ["FAILED"] * 3


async def test_an_undo_that_takes_longer_than_copies_are_kept_says_so(servers: Servers) -> None:
    one = await servers.start("a", go=lambda: True)
    await failed(servers.world(), 6)
    run = await deleted(one, DELETE._replace(jobs_per_second=2.0))
    undone = await one.start(undo(run, rate=2.0), "ops")
    await servers.until_changed(undone, 2)
    servers.clock.advance(ms=COPIES_KEPT_MS)
    assert "copies are kept for a day" in (await ended(one, undone)).detail


async def test_two_servers_that_undo_at_once_restore_each_job_once(servers: Servers) -> None:
    one, two = await servers.start("a", go=lambda: True), await servers.start("b", go=lambda: True)
    world = servers.world()
    names = await failed(world, 6)
    run = await deleted(one, DELETE._replace(jobs_per_second=2.0))
    answers: list[Restored] = []
    restore, asked, both = servers.shard.submit, iter(range(2)), asyncio.Event()

    async def noted(order: RestoreOrder, now_ms: int) -> Restored:
        if next(asked, 1) == 1:
            both.set()
        await both.wait()
        answers.append(await restore(RestoreJobs(order, now_ms)))
        return answers[-1]

    with replaced(servers.shard, RestoreJobs, noted):
        undone = await one.start(undo(run), "ops")
        servers.clock.advance(ms=STALE_MS + 1)
        await two.look()
        await ended(one, undone)
        await turns(lambda: not tasks_of_runs())
    assert len(answers) > 1
    assert sum(answer.restored for answer in answers) == 6
    assert await states(world, names) == ["FAILED"] * 6


async def test_a_server_that_stood_still_deletes_nothing_that_was_restored(servers: Servers) -> None:
    """It stood still right before it deleted a page; meanwhile another server ended the run, and a third undid it."""
    stands_still, thawed = asyncio.Event(), asyncio.Event()
    one = await servers.start("a", go=lambda: True)
    world = servers.world()
    names = await failed(world, 6)
    delete = servers.shard.submit

    async def frozen(keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int) -> DeletedWithCopies:
        if not stands_still.is_set():
            stands_still.set()
            await thawed.wait()
        return await delete(DeleteWithCopies(keys, state, of, now_ms))

    with replaced(servers.shard, DeleteWithCopies, frozen):
        run = await one.start(DELETE, "ops")
        await stands_still.wait()
        two = await servers.start("b", go=lambda: True)
        servers.clock.advance(ms=STALE_MS + 1)
        await two.look()
        run = await ended(two, run)
        assert (run.state, run.changed) == (BulkState.DONE, 6)
        undone = await ended(two, await two.start(undo(run), "ops"))
        assert undone.changed == 6
        thawed.set()
        await turns(lambda: not tasks_of_runs())
    assert await states(world, names) == ["FAILED"] * 6


async def test_a_run_of_an_older_server_has_no_copies(world: ServiceUnderTest, bulk: ShownRuns) -> None:
    """What it kept has no word of copies."""
    import msgspec

    [shard] = world.service.shards
    now_ms = world.clock.now_ms()
    order = [["q", "delete", 3, None, None, [[], {}, "", 0, None, None, "", False], 1, None], "ops"]
    progress = ["done", 3, 3, now_ms, now_ms, "", False, "-1", False, "a"]
    rows = {"": order, ".progress": progress}
    await shard.store.submit(
        SaveSamples(
            [
                StoredSample(BULK_STEP_S, now_ms, "q", f"ffffffffffffffff{kind}", msgspec.msgpack.encode(data))
                for kind, data in rows.items()
            ]
        )
    )
    [run] = await bulk.runs()
    assert (run.state, run.changed, run.undo_until_ms) == (BulkState.DONE, 3, None)
    assert (await ended(bulk, await bulk.start(undo(run), "ops"))).changed == 0
