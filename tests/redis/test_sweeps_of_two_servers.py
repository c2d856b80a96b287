"""Two servers sweep one shard at the same time: what one has seen overdue may be another claim by the time it acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import ExpireJobs, ListQueues, TimeOutClaims, create_queues
from tests.contract.desk import TIMEOUT_MS, Desk, DeskJob
from tests.redis.proxied_redis import ProxiedRedis
from tests.redis.script_hooks import ScriptHooks, hooks

__all__ = ["hooks"]  # a fixture


@pytest.fixture
async def desks(database: ProxiedRedis) -> tuple[Desk, Desk]:
    """Two servers' views of one shard."""
    return await database.desk(), await database.desk(direct=True)


def after_the_look(hooks: ScriptHooks, happens: Callable[[], Awaitable[None]]) -> None:
    """Between the next look at the index of deadlines and the look at the jobs."""
    left = [happens]

    async def watched(name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        answer = await run()
        if name == "select_first" and left:
            await left.pop()()
        return answer

    hooks.around = watched


async def test_a_job_that_was_claimed_again_meanwhile_is_not_timed_out(
    desks: tuple[Desk, Desk], database: ProxiedRedis, hooks: ScriptHooks
) -> None:
    """The other server times it out and hands it out anew; that claim has all its time before it."""
    one, other = desks
    await one.put_and_take()
    for desk in desks:
        desk.clock.advance(ms=TIMEOUT_MS + 1)
    anew: list[DeskJob] = []

    async def happens() -> None:
        await other.shard.submit(TimeOutClaims(other.now, 10))
        anew.append(await other.take())

    after_the_look(hooks, happens)
    assert list(await one.shard.submit(TimeOutClaims(one.now, 10))) == []
    [held] = anew
    assert (await one.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await database.assert_consistent()


async def test_a_claim_that_was_renewed_meanwhile_does_not_time_out(
    desks: tuple[Desk, Desk], database: ProxiedRedis, hooks: ScriptHooks
) -> None:
    """The heartbeat came in time, at the other server."""
    one, other = desks
    held = await one.put_and_take()
    one.clock.advance(ms=TIMEOUT_MS + 1)
    other.clock.advance(ms=TIMEOUT_MS - 1)

    async def happens() -> None:
        assert (await other.heartbeat(held.ref)).outcome is Outcome.APPLIED

    after_the_look(hooks, happens)
    assert list(await one.shard.submit(TimeOutClaims(one.now, 10))) == []
    assert (await one.look(held.key)).state is JobState.IN_PROGRESS
    await database.assert_consistent()


@pytest.mark.parametrize("waiting", [True, False], ids=["expired", "timed-out"])
async def test_a_sweep_knows_the_queues_that_another_server_has_just_made(
    desks: tuple[Desk, Desk], database: ProxiedRedis, waiting: bool
) -> None:
    """Taken for what a deleted queue left, its jobs would be thrown away."""
    one, other = desks
    await other.shard.submit(ListQueues())
    await one.shard.submit(create_queues(["new"], one.now))
    key = await one.put(queue="new", expires_in_ms=TIMEOUT_MS if waiting else None)
    if not waiting:
        await one.take(queue="new")
    other.clock.advance(ms=TIMEOUT_MS + 1)

    sweep = ExpireJobs(other.now, 10) if waiting else TimeOutClaims(other.now, 10)
    [swept] = await other.shard.submit(sweep)

    assert (swept.queue, swept.lost) == ("new", 0)
    assert (await one.look(key)).state is (JobState.FAILED if waiting else JobState.PENDING)
    await database.assert_consistent()
