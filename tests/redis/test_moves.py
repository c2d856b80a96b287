"""Jobs that get another priority in Redis: all keys agree about them, whatever changes meanwhile, and a full Redis moves them, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import ListFailures
from pinlater.server.storage.values import Page
from tests.contract.desk import QUEUE, DeskJob, unique
from tests.databases.redis import RedisServer
from tests.redis.proxied_redis import ProxiedRedis, proxied
from tests.redis.script_hooks import ScriptHooks, hooks

__all__ = ["hooks"]  # a fixture


@pytest.fixture
async def own(start_redis: Callable[..., RedisServer]) -> AsyncIterator[ProxiedRedis]:
    """On a Redis of the test's own."""
    async with proxied(start_redis(appendonly=False)) as database:
        yield database


@pytest.mark.parametrize("is_full", [False, True])
async def test_all_keys_agree_about_jobs_that_move(own: ProxiedRedis, is_full: bool) -> None:
    desk = await own.desk()
    keys = {
        state: await desk.put_in(state, unique=unique(state.name), expires_in_ms=10**9, headers={"a": "b"})
        for state in list(JobState)[::-1]
    }
    plain = await desk.put()
    if is_full:
        own.server.execute("CONFIG", "SET", "maxmemory", 1_000)
    outcomes = {state: (await desk.move(key, 7)).outcome for state, key in keys.items()}
    await desk.move(plain, 7)
    own.server.execute("CONFIG", "SET", "maxmemory", 0)

    assert outcomes == {
        JobState.PENDING: Outcome.APPLIED,
        JobState.IN_PROGRESS: Outcome.STALE_CLAIM,
        JobState.SUCCEEDED: Outcome.ALREADY_FINAL,
        JobState.FAILED: Outcome.APPLIED,
    }
    await own.assert_consistent()
    await desk.assert_counters_exact(priorities=[1, 7])
    assert {held.job.id for held in await desk.claim(5)} == {plain.id, keys[JobState.PENDING].id}
    await own.assert_consistent()


async def test_a_job_that_is_claimed_while_a_move_is_decided_stays_with_its_worker(
    own: ProxiedRedis, hooks: ScriptHooks
) -> None:
    """The script that moves compares the job with what was loaded, and the call decides again."""
    desk = await own.desk()
    key = await desk.put()
    held: list[DeskJob] = []

    async def after_a_claim(name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        if name == "change_jobs" and not held:
            held.extend(await desk.claim())
        return await run()

    hooks.around = after_a_claim
    answer = await desk.move(key, 2)

    assert (answer.outcome, answer.holder) == (Outcome.STALE_CLAIM, held[0].holder.descriptor)
    assert (await desk.succeed(key, token=held[0].holder.token)).outcome is Outcome.APPLIED
    await own.assert_consistent()


async def test_a_group_whose_newest_failure_is_another_job_by_now_is_left_alone(
    own: ProxiedRedis, hooks: ScriptHooks
) -> None:
    desk = await own.desk()
    key = await desk.put()
    await desk.fail((await desk.take()).key, error=("OSError", "no disk"), final=True)
    other = await desk.put_and_take()
    failing = iter([True])

    async def after_a_failure(name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        if name == "change_jobs" and next(failing, False):
            await desk.fail(other.key, error=("OSError", "no disk"), final=True)
        return await run()

    hooks.around = after_a_failure
    assert (await desk.move(key, 2)).outcome is Outcome.APPLIED

    [group] = await desk.shard.submit(ListFailures([key.queue], 0))
    assert (group.priority, group.job_id, group.failures) == (1, other.key.id, 2)
    await own.assert_consistent()


@pytest.mark.parametrize("bodies", [False, True])
async def test_a_page_of_several_priorities_has_a_job_that_moves_while_it_is_read(
    own: ProxiedRedis, hooks: ScriptHooks, bodies: bool
) -> None:
    """The order of the page is read first, and then the jobs, which by then have other names."""
    desk = await own.desk()
    keys = [await desk.put(priority=priority, body=b"x") for priority in (1, 2, 3)]
    moving = iter([True])

    async def then_move(name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        answer = await run()
        if name == "page_jobs" and next(moving, False):
            await desk.move(keys[0], 3)
            await desk.move(keys[1], 7)
        return answer

    page = Page(QUEUE, JobState.PENDING, [1, 2, 3], 10, due_by_ms=desk.now, bodies=bodies)
    hooks.around = then_move
    rows = await desk.page(page)

    # The second job has a priority that the page does not ask for.
    assert {(row.key.id, row.key.priority) for row in rows} == {(keys[0].id, 3), (keys[2].id, 3)}
    assert {row.job.body for row in rows} == {b"x" if bodies else None}
