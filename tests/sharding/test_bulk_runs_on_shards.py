"""Bulk changes in the background while shards are unreachable or fail."""

from __future__ import annotations

import pytest

from pinlater.client.bulk import BulkRun
from pinlater.domain.bulk import BulkAction, BulkOrder, BulkState
from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.storage.commands import DeleteJobs, DeleteWithCopies, ListSamples
from pinlater.wire.generated.structs import Ack, AckBatch
from tests.service.shown_runs import ShownRuns
from tests.sharding.sharded_server import CALLER, ShardedServer, on_shards, run_on_shards, shard_of

DELETE = BulkOrder("q", BulkAction.DELETE, JobFilter(JobState.FAILED))
RETRY = BulkOrder("q", BulkAction.RETRY, JobFilter(JobState.FAILED))
of_both_deletes = pytest.mark.parametrize(
    ("order", "method"),
    [(DELETE, DeleteWithCopies), (DELETE._replace(for_good=True), DeleteJobs)],
    ids=["with copies", "for good"],
)


async def failed_on(server: ShardedServer, *shards: str) -> None:
    """A failed job on each of these shards."""
    names = [await server.put(shard) for shard in shards]
    await fail(server, names)


async def fail(server: ShardedServer, names: list[str] | None = None) -> int:
    """Fails the jobs that wait, once and for all; how many."""
    claimed = [job.descriptor for job in (await server.dequeue()).jobs]
    assert names is None or sorted(names) == sorted(claimed)
    acks = [Ack(name, final=True) for name in claimed]
    if acks:
        await server.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", failed=acks))
    return len(acks)


async def now(server: ShardedServer, run: BulkRun) -> BulkRun:
    [found] = [each for each in await ShownRuns(server.service.of(BulkRuns)).runs() if each.id == run.id]
    return found


async def left(server: ShardedServer) -> int:
    """Failed jobs on all shards."""
    [stats] = await server.service.queues.queue_stats(["q"])
    return sum(counts.failed for counts in stats.counts)


@on_shards()
async def test_a_run_waits_for_a_shard_that_is_unreachable_and_then_changes_its_jobs(server: ShardedServer) -> None:
    await failed_on(server, "1", "2", "2", "3")
    server.store("2").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    run = await ShownRuns(server.service.of(BulkRuns)).start(DELETE, "ops")
    await server.pass_time(60_000)
    waiting = await now(server, run)
    assert (waiting.state, waiting.changed) == (BulkState.RUNNING, 2)
    assert waiting.detail == "waits: Shard 2 is unreachable"
    server.store("2").dead = None
    await server.pass_time(60_000)
    found = await now(server, run)
    assert (found.state, found.changed, found.detail) == (BulkState.DONE, 4, "")
    assert await left(server) == 0


@on_shards()
async def test_a_run_that_lacks_a_shard_tells_no_share_and_no_end_until_it_can_count_all(server: ShardedServer) -> None:
    await failed_on(server, "1", "2", "2", "3")
    server.store("2").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    run = await ShownRuns(server.service.of(BulkRuns)).start(DELETE, "ops")
    await server.pass_time(60_000)
    waiting = await now(server, run)
    assert (waiting.to_look_at, waiting.expected, waiting.percent, waiting.left_ms) == (None, None, None, None)
    server.store("2").dead = None
    await server.pass_time(60_000)
    found = await now(server, run)
    assert (found.to_look_at, found.expected, found.changed, found.percent) == (2, 4, 4, 100)


@on_shards()
async def test_a_run_that_waits_keeps_its_share_and_has_no_end_time(server: ShardedServer) -> None:
    await failed_on(server, "1", "2", "3", "3")
    run = await ShownRuns(server.service.of(BulkRuns)).start(DELETE._replace(jobs_per_second=0.2), "ops")
    await server.pass_time(7_000)
    before = await now(server, run)
    assert (before.percent, before.left_ms is not None) == (50, True)
    for name in ("2", "3"):
        server.store(name).dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    await server.pass_time(30_000)
    waiting = await now(server, run)
    assert (waiting.state, waiting.detail.startswith("waits: ")) == (BulkState.RUNNING, True)
    assert (waiting.left_ms, waiting.to_look_at) == (None, before.to_look_at)


@on_shards()
async def test_a_run_that_waits_for_a_shard_can_be_stopped(server: ShardedServer) -> None:
    await failed_on(server, "2")
    server.store("2").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    run = await ShownRuns(server.service.of(BulkRuns)).start(DELETE, "ops")
    await server.pass_time(30_000)
    await ShownRuns(server.service.of(BulkRuns)).stop("q", run.id)
    await server.pass_time(15_000)
    found = await now(server, run)
    assert (found.state, found.changed, found.ended_ms is not None) == (BulkState.STOPPED, 0, True)


@on_shards()
async def test_a_job_that_was_retried_and_fails_again_is_not_retried_by_the_second_look(server: ShardedServer) -> None:
    await failed_on(server, "1", "2", "3")
    server.store("2").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    run = await ShownRuns(server.service.of(BulkRuns)).start(RETRY, "ops")
    await server.pass_time(10_000)
    assert await fail(server) == 2
    server.store("2").dead = None
    await server.pass_time(60_000)
    found = await now(server, run)
    assert (found.state, found.changed) == (BulkState.DONE, 3)
    assert await left(server) == 2


@of_both_deletes
def test_what_one_shard_has_changed_counts_though_another_fails(order: BulkOrder, method: str) -> None:
    async def scenario(server: ShardedServer) -> None:
        await failed_on(server, "1", "2", "3")
        server.store("2").fails(method, error=ShardConnectionFailed("reset"))
        run = await ShownRuns(server.service.of(BulkRuns)).start(order, "ops")
        await server.pass_time(10_000)
        found = await now(server, run)
        assert (found.state, found.changed, found.detail) == (BulkState.DONE, 3, "")
        assert await left(server) == 0

    run_on_shards(scenario)


@of_both_deletes
def test_a_change_whose_answer_is_lost_may_be_missing_in_the_number_and_the_run_says_so(
    order: BulkOrder, method: str
) -> None:
    async def scenario(server: ShardedServer) -> None:
        await failed_on(server, "1", "2", "3")
        server.store("2").fails(method, error=OutcomeUnknown("reset"), done_first=True)
        run = await ShownRuns(server.service.of(BulkRuns)).start(order, "ops")
        await server.pass_time(10_000)
        found = await now(server, run)
        assert (found.state, found.changed, "may be missing" in found.detail) == (BulkState.DONE, 2, True)
        assert await left(server) == 0

    run_on_shards(scenario)


@on_shards()
async def test_a_run_whose_shard_is_unreachable_is_shown_as_it_was_seen_last(server: ShardedServer) -> None:
    """Instead of none: an operator must not take it for ended or never begun."""
    await failed_on(server, "1", "1", "1", "2")
    run = await ShownRuns(server.service.of(BulkRuns)).start(DELETE._replace(jobs_per_second=1.0), "ops")
    ended = await ShownRuns(server.service.of(BulkRuns)).start(
        RETRY._replace(filter=JobFilter(JobState.FAILED, 2)), "ops"
    )
    await server.pass_time(1_600)
    before = await now(server, run)
    assert (await now(server, ended)).state is BulkState.DONE
    server.store("1").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    await server.pass_time(10_000)
    seen = await now(server, run)
    assert seen == before._replace(detail="shard 1, which keeps it, is unreachable: it was last seen like this")
    assert (await now(server, ended)).detail == ""
    with pytest.raises(ShardConnectionFailed, match="may keep the run"):
        await ShownRuns(server.service.of(BulkRuns)).stop("q", run.id)
    server.store("1").dead = None
    await server.pass_time(60_000)
    assert ((await now(server, run)).state, await left(server)) == (BulkState.DONE, 0)


@on_shards()
async def test_the_list_of_runs_names_the_shards_that_could_not_be_asked(server: ShardedServer) -> None:
    """Those known as unreachable, and those that fail on the way; also for a queue without any run."""
    runs = ShownRuns(server.service.of(BulkRuns))
    run = await runs.start(DELETE, "ops")
    await server.pass_time(5_000)
    whole = await runs.list_runs()
    assert ([each.id for each in whole.runs], whole.incomplete, list(whole.missing_shards)) == ([run.id], False, [])
    server.store("2").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    server.store("3").fails(ListSamples, error=ShardConnectionFailed("reset"))
    part = await runs.list_runs(["q"])
    assert ([each.id for each in part.runs], part.incomplete, list(part.missing_shards)) == ([run.id], True, ["2", "3"])
    none = await runs.list_runs(["other"])
    assert (list(none.runs), none.incomplete, list(none.missing_shards)) == ([], True, ["2"])


@on_shards()
async def test_an_undo_waits_for_a_shard_that_is_unreachable(server: ShardedServer) -> None:
    """It restores what other shards have meanwhile, and ends only when it has asked the shard."""
    await failed_on(server, "1", "2", "2", "3")
    run = await ShownRuns(server.service.of(BulkRuns)).start(DELETE, "ops")
    await server.pass_time(10_000)
    assert ((await now(server, run)).state, await left(server)) == (BulkState.DONE, 0)
    server.store("2").dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    order = DELETE._replace(action=BulkAction.RESTORE, undoes=run.id)
    undone = await ShownRuns(server.service.of(BulkRuns)).start(order, "ops")
    await server.pass_time(60_000)
    waiting = await now(server, undone)
    assert (waiting.state, waiting.changed) == (BulkState.RUNNING, 2)
    assert waiting.detail == "waits: Shard 2 is unreachable"
    server.store("2").dead = None
    await server.pass_time(60_000)
    found = await now(server, undone)
    assert (found.state, found.changed, found.detail) == (BulkState.DONE, 4, "")
    assert await left(server) == 4


@on_shards()
async def test_an_undo_that_waits_for_a_shard_tells_a_taken_key_once(server: ShardedServer) -> None:
    """The second look comes to that job again: it has kept its copy."""
    [name] = (await server.enqueue(b"x", unique="k")).descriptors
    away = "3" if shard_of(name) == "2" else "2"
    pending = DELETE._replace(filter=JobFilter(JobState.PENDING))
    run = await ShownRuns(server.service.of(BulkRuns)).start(pending, "ops")
    await server.pass_time(10_000)
    await server.enqueue(b"y", unique="k")
    server.store(away).dead = "connection refused"
    await server.core.shard_monitor.ping_all()
    undone = await ShownRuns(server.service.of(BulkRuns)).start(
        pending._replace(action=BulkAction.RESTORE, undoes=run.id), "ops"
    )
    await server.pass_time(30_000)
    server.store(away).dead = None
    await server.pass_time(60_000)
    found = await now(server, undone)
    assert (found.state, found.changed) == (BulkState.DONE, 0)
    assert found.detail.startswith("1 job stayed away: another job has the unique key.")
