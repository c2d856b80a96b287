"""The changes that a call of a shard can make to one job, for tests that lose the answer to one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pinlater.domain.job import JobState, Outcome
from pinlater.domain.queue import PriorityCounts
from pinlater.server.storage.commands import ListFailures
from pinlater.server.storage.values import JobCheckpoint, JobKey
from tests.contract.desk import QUEUE, Desk, DeskJob
from tests.shared_shards.proxied_database import ProxiedDatabase


class Change(NamedTuple):
    """A call of a shard, and what must hold after it. `insert` and `claim` need no claimed job; the others change one."""

    name: str
    act: Callable[[Desk, Any], Awaitable[Any]]
    answered: Callable[[Any], bool]
    state: JobState
    needs_claim: bool = True
    needs_waiting_job: bool = False
    is_released: bool = False
    priority: int = 1  # of the job afterwards


async def _insert(desk: Desk, _: None) -> object:
    return await desk.put(b"new")


async def _claim(desk: Desk, _: None) -> list[DeskJob]:
    return await desk.claim(10)


async def _checkpoint(desk: Desk, held: DeskJob) -> object:
    return await desk.checkpoint(JobCheckpoint(held.key, "worker", held.holder.token, b"new", prepend_status="half;"))


_CHANGES = [
    Change("insert", _insert, lambda key: key is not None, JobState.PENDING, needs_claim=False),
    Change(
        "claim",
        _claim,
        lambda jobs: [held.job.body for held in jobs] == [b"old"],
        JobState.IN_PROGRESS,
        needs_claim=False,
        needs_waiting_job=True,
    ),
    Change(
        "finish",
        lambda desk, held: desk.succeed(held.key, token=held.holder.token),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.SUCCEEDED),
        JobState.SUCCEEDED,
    ),
    Change(
        "fail",
        lambda desk, held: desk.fail(held.key, token=held.holder.token, error=("E", "text")),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.PENDING),
        JobState.PENDING,
    ),
    Change("checkpoint", _checkpoint, lambda acked: acked.outcome is Outcome.APPLIED, JobState.IN_PROGRESS),
    Change(
        "extend",
        lambda desk, held: desk.heartbeat(held.ref),
        lambda acked: acked.outcome is Outcome.APPLIED and acked.deadline_ms is not None,
        JobState.IN_PROGRESS,
    ),
    Change(
        "release",
        lambda desk, held: desk.release(held.ref),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.PENDING),
        JobState.PENDING,
    ),
    Change(
        "move",
        lambda desk, held: desk.move(held.key, 2),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.PENDING),
        JobState.PENDING,
        is_released=True,
        priority=2,
    ),
]
CHANGES = {change.name: change for change in _CHANGES}


async def prepare(desk: Desk, change: Change) -> DeskJob | None:
    """Stores the job that the change needs; claims it if the change needs a claim, and gives it back if it needs none any more."""
    if change.needs_waiting_job:
        await desk.put(b"old")
    held = await desk.put_and_take(b"old") if change.needs_claim else None
    if held is not None and change.is_released:
        await desk.release(held.ref)
    return held


async def connect_all(desk: Desk) -> None:
    """Changes nothing, and leaves every writer with a connection."""
    await desk.insert()
    assert await desk.claim(0) == []
    assert (await desk.succeed(JobKey(QUEUE, 1, 1))).outcome is Outcome.NOT_FOUND


async def assert_done_once(
    database: ProxiedDatabase[Any, Any], desk: Desk, change: str, held: DeskJob | None = None
) -> None:
    """The shard has one job, to which the change was made once."""
    await database.assert_consistent()
    state = CHANGES[change].state
    each_priority = [await desk.counts(priority=priority) for priority in (1, 2)]
    rows = zip(*(one._replace(oldest_due_at_ms=None) for one in each_priority), strict=True)
    counts = PriorityCounts(*[sum(filter(None, found)) for found in rows])
    assert (counts.pending, counts.in_progress, counts.succeeded, counts.failed, counts.behind_key) == (
        *(int(state is each) for each in (JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED)),
        *(0, 0),
    )
    assert (counts.enqueued_total, counts.claimed_total, counts.succeeded_total, counts.retried_total) == (
        1,
        int(change != "insert"),
        int(change == "finish"),
        int(change == "fail"),
    )
    groups = await desk.shard.submit(ListFailures([QUEUE], 0))
    assert sum(group.failures for group in groups) == int(change == "fail")
    if held is not None:
        key = held.key._replace(priority=CHANGES[change].priority)
        assert (await desk.look(key)).custom_status == ("half;" if change == "checkpoint" else "")
