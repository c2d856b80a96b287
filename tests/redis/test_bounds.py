"""However many queues and jobs there are, a script does a bounded piece, so that Redis answers others in between. Counted in commands,
not in time: what a script calls is what it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest

from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import (
    ClaimJobs,
    CollectGarbage,
    CountJobs,
    DeleteJobs,
    DeleteQueues,
    FinishJobs,
    InsertJobs,
    ListChangedQueues,
    ListQueues,
    ListUniqueQueues,
    PruneFailures,
    PurgeJobs,
    RequeueFailedJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import (
    ClaimCall,
    ClaimOrder,
    InsertRequest,
    JobAck,
    JobKey,
    Purge,
    Requeue,
    TimeToLive,
)
from tests.contract.desk import ALL, HOUR_MS, QUEUE, TIMEOUT_MS, Desk
from tests.redis.proxied_redis import FRONT, ProxiedRedis
from tests.redis.script_hooks import ScriptHooks, hooks

__all__ = ["hooks"]  # a fixture

# Of one script; a command that takes many values at once counts as one.
_COMMANDS_MAX = 2_500
_QUEUES, _PRIORITIES = 520, (1, 2)
_JOBS = 2_500
_KEYS = 200


class ScriptCommandCounts:
    """How many commands each script called at most."""

    def __init__(self, ask: Callable[..., Any], hooks: ScriptHooks) -> None:
        self.commands: dict[str, int] = defaultdict(int)
        self._ask = ask
        hooks.around = self._counted

    async def _counted(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        before = self._calls()
        answer = await run()
        self.commands[name] = max(self.commands[name], self._calls() - before)
        return answer

    def _calls(self) -> int:
        stats = self._ask("INFO", "commandstats")
        return sum(row["calls"] for row in stats.values())


@pytest.fixture
def ask(database: ProxiedRedis) -> Iterator[Callable[..., Any]]:
    """The test's own words to Redis, on one connection."""
    with database.server.session() as ask:
        yield ask


async def fill(desk: Desk) -> None:
    """Many queues with a job in each state, and one queue with many jobs in each."""
    queues = [f"queue_{number}" for number in range(_QUEUES)]
    await desk.shard.submit(create_queues(queues, desk.now))
    for start in range(0, _QUEUES, 50):
        part = queues[start : start + 50]
        jobs = [[desk.job(priority=priority) for priority in _PRIORITIES for _ in range(3)] for _ in part]
        await desk.shard.submit(
            InsertJobs([InsertRequest(queue, own) for queue, own in zip(part, jobs, strict=True)], desk.now)
        )
        await finish(desk, part, 4)
    for _ in range(4):
        await desk.shard.submit(InsertJobs([InsertRequest(QUEUE, [desk.job() for _ in range(_JOBS)])], desk.now))
    for _ in range(3):
        await finish(desk, [QUEUE], _JOBS)


async def finish(desk: Desk, queues: list[str], limit: int) -> None:
    """Claims this number in each; a quarter stays claimed, a quarter fails."""
    orders = [ClaimOrder(queue, [ClaimCall(limit, desk.holder())], TIMEOUT_MS) for queue in queues]
    acks = []
    for queue, claimed in zip(queues, await desk.shard.submit(ClaimJobs(orders, desk.now)), strict=True):
        assert not isinstance(claimed, Exception)
        for number, job in enumerate(claimed.jobs[0]):
            if number % 4:
                acks.append(JobAck(JobKey(queue, job.priority, job.id), succeeded=number % 4 != 1, final=True))
    for start in range(0, len(acks), 1_000):
        await desk.shard.submit(FinishJobs(acks[start : start + 1_000], desk.now))


@pytest.mark.timeout(120)
async def test_no_script_does_more_the_more_queues_and_jobs_there_are(
    database: ProxiedRedis, ask: Callable[..., Any], hooks: ScriptHooks
) -> None:
    """Through everything that goes over all queues or over many jobs."""
    desk = await database.desk(direct=True, command_timeout_ms=30_000)
    shard = desk.shard
    watch = ScriptCommandCounts(ask, hooks)
    await fill(desk)

    await shard.submit(ListQueues())
    assert len(await shard.submit(CountJobs())) == _QUEUES * len(_PRIORITIES) + 1
    await shard.submit(ListUniqueQueues())
    await shard.submit(ListChangedQueues())
    orders = [ClaimOrder(QUEUE, [ClaimCall(_JOBS, desk.holder())], TIMEOUT_MS) for _ in range(3)]
    await shard.submit(ClaimJobs(orders, desk.now))
    await shard.submit(RequeueFailedJobs(Requeue(QUEUE, 1, 2, desk.now, ALL), desk.now))
    await shard.submit(PurgeJobs(Purge(QUEUE, JobState.PENDING, 1, ALL)))
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await shard.submit(TimeOutClaims(desk.now, ALL))
    database.server.execute("DEL", FRONT + b"pr", FRONT + b"c")
    for _ in range(3):
        await shard.submit(create_queues(["another"], desk.now))
        await shard.submit(TimeOutClaims(desk.now, ALL))
    desk.clock.advance(ms=HOUR_MS + 1)
    await shard.submit(PruneFailures(desk.now, desk.now // HOUR_MS + 1, 2_000))
    ttls = [TimeToLive(queue.name, HOUR_MS, HOUR_MS) for queue in await shard.submit(ListQueues())]
    await shard.submit(CollectGarbage(ttls, desk.now, 2_000))
    await shard.submit(DeleteQueues([QUEUE, *(f"queue_{number}" for number in range(_QUEUES))]))
    while await shard.submit(CollectGarbage([], desk.now, 2_000)) or b"j" in kinds_left(database):
        await shard.submit(create_queues(["another"], desk.now))

    assert {name: calls for name, calls in watch.commands.items() if calls > _COMMANDS_MAX} == {}
    assert watch.commands.keys() >= {
        "count_jobs",
        "list_oldest_finished",
        "free_queue",
        "repair_priorities",
        "repair_jobs",
    }


def kinds_left(database: ProxiedRedis) -> set[bytes]:
    return {key.removeprefix(FRONT)[:1] for key in database.server.execute("KEYS", "*")}


async def test_counts_cost_the_same_however_many_jobs_there_are(
    ask: Callable[..., Any], desk: Desk, hooks: ScriptHooks
) -> None:
    watch = ScriptCommandCounts(ask, hooks)
    costs = []
    for _ in range(2):
        await desk.shard.submit(InsertJobs([InsertRequest(QUEUE, [desk.job() for _ in range(_JOBS)])], desk.now))
        watch.commands.clear()
        await desk.shard.submit(CountJobs([QUEUE]))
        costs.append(watch.commands["count_jobs"])
    assert costs[0] == costs[1] < 20


@pytest.mark.parametrize("known", [True, False], ids=["refused", "unknown"])
async def test_trouble_in_the_middle_of_a_bulk_leaves_whole_pieces(
    database: ProxiedRedis, desk: Desk, hooks: ScriptHooks, known: bool
) -> None:
    """The error says what was done, or that this is unknown; a repeat does the rest. The service asks for one piece at a time."""
    for _ in range(2):
        await desk.shard.submit(InsertJobs([InsertRequest(QUEUE, [desk.job() for _ in range(1_250)])], desk.now))
    changes = count(1)

    async def fails_the_second_time(name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        if name == "change_jobs" and next(changes) == 2:
            raise ShardConnectionFailed("it is away") if known else OutcomeUnknown("it went away")
        return await run()

    hooks.around = fails_the_second_time
    if known:
        assert await desk.purge(JobState.PENDING) == 1_000
    else:
        with pytest.raises(OutcomeUnknown):
            await desk.purge(JobState.PENDING)
    assert (await desk.counts()).pending == 1_500
    await database.assert_consistent()
    assert await desk.purge(JobState.PENDING) == 1_500


async def test_a_bulk_that_fails_at_once_has_done_nothing(database: ProxiedRedis, desk: Desk) -> None:
    keys = [await desk.put() for _ in range(3)]
    database.server.execute("CONFIG", "SET", "min-replicas-to-write", 1)
    try:
        with pytest.raises(ShardConnectionFailed, match="replicas"):
            await desk.shard.submit(DeleteJobs(keys))
    finally:
        database.server.execute("CONFIG", "SET", "min-replicas-to-write", 0)
    assert await desk.shard.submit(DeleteJobs(keys)) == 3


async def test_jobs_with_ordering_keys_are_stored_with_one_command_each(
    database: ProxiedRedis, ask: Callable[..., Any], hooks: ScriptHooks
) -> None:
    """The look at the last place of the key; all else is written for all jobs together, whichever requests they are of."""
    desk = await database.desk(direct=True)
    await desk.put(ordering_key="first of the shard")
    watch = ScriptCommandCounts(ask, hooks)
    requests = [InsertRequest(QUEUE, [desk.job(ordering_key=f"{number}")]) for number in range(_KEYS)]
    await desk.shard.submit(InsertJobs(requests, desk.now))
    assert _KEYS < watch.commands["insert_jobs"] < 1.2 * _KEYS


async def test_the_next_jobs_of_ordering_keys_go_with_one_command_each(
    database: ProxiedRedis, ask: Callable[..., Any], hooks: ScriptHooks
) -> None:
    """The look for the first one of the key."""
    desk = await database.desk(direct=True)
    await desk.insert(*[desk.job(ordering_key=f"{number}") for number in [*range(_KEYS), *range(_KEYS)]])
    held = await desk.claim(_KEYS)
    watch = ScriptCommandCounts(ask, hooks)
    await desk.shard.submit(FinishJobs([JobAck(one.key, succeeded=True) for one in held], desk.now))
    assert _KEYS < watch.commands["finish_jobs"] < 1.2 * _KEYS
    assert len(await desk.claim(2 * _KEYS)) == _KEYS
