"""Counting jobs as due and collecting garbage: exact, whether they are locked or not, and no dearer for how many others there are."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from asyncmy.errors import OperationalError

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import (
    AdvanceDue,
    CollectGarbage,
    CountJobs,
    DeleteJobs,
    DeleteQueues,
    ExpireJobs,
    FinishJobs,
    TimeOutClaims,
)
from pinlater.server.storage.mysql.connection import Result
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.values import JobAck, TimeToLive
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.mysql.test_failures_locks import other_client
from tests.shared_shards.proxied_database import QUEUE

WAITING = 3_000
_ROWS_READ = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_read_rnd_next', 'Handler_read_prev')"
)
_DAY_MS = 86_400_000


async def rows_read(database: ProxiedMysql) -> int:
    return sum(int(value) for _, value in await database.ask(_ROWS_READ))


async def future_rows(database: ProxiedMysql) -> int:
    [(count,)] = await database.ask("SELECT COUNT(*) FROM future")
    return int(count)


async def test_sweeps_look_at_what_there_is_to_do_and_not_at_what_waits(database: ProxiedMysql, desk: Desk) -> None:
    """A sweep that read the backlog would cost a shard with millions of waiting jobs most of its time."""
    await desk.insert(*[desk.job() for _ in range(WAITING)])
    while held := await desk.claim(1000):
        await desk.shard.submit(FinishJobs([JobAck(one.key, succeeded=True) for one in held], desk.now))
    await desk.insert(*[desk.job(delay_ms=_DAY_MS + n) for n in range(WAITING)], *[desk.job() for _ in range(WAITING)])
    await desk.insert(*[desk.job(delay_ms=10) for _ in range(20)])
    desk.clock.advance(ms=20)
    ttls = [TimeToLive(QUEUE, _DAY_MS, _DAY_MS)]
    await desk.shard.submit(CollectGarbage(ttls, desk.now, 100))  # also looks after partitions, in the dictionary
    before = await rows_read(database)
    assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 20
    await desk.put()  # something happened: all look again
    assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 0
    await desk.shard.submit(TimeOutClaims(desk.now, 100))
    await desk.shard.submit(ExpireJobs(desk.now, 100))
    await desk.shard.submit(CollectGarbage(ttls, desk.now, 100))
    looked_at = await rows_read(database) - before
    assert looked_at < WAITING / 3
    await database.assert_consistent()


async def test_counts_read_no_jobs_that_wait_but_a_bounded_number_of_those_behind_others(
    database: ProxiedMysql, desk: Desk
) -> None:
    await desk.insert(*[desk.job(delay_ms=_DAY_MS + n) for n in range(WAITING)], *[desk.job() for _ in range(WAITING)])
    await desk.insert(*[desk.job(ordering_key="a") for _ in range(3)])
    before = await rows_read(database)
    for queues in (None, [QUEUE]):
        [found] = [row.counts for row in await desk.shard.submit(CountJobs(queues)) if row.counts.priority == 1]
        assert (found.pending, found.future, found.behind_key) == (2 * WAITING + 3, WAITING + 2, 2)
    assert await rows_read(database) - before < WAITING / 3


async def test_a_due_job_in_another_hand_is_counted_when_it_is_let_go(database: ProxiedMysql, desk: Desk) -> None:
    key = await desk.put(delay_ms=1000)
    await desk.put(delay_ms=1000)
    desk.clock.advance(ms=1000)
    async with other_client(database, f"SELECT * FROM ready WHERE id = {key.id} FOR UPDATE"):
        assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 1
        assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 0
    assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 1
    assert ((await desk.counts()).pending, (await desk.counts()).future) == (2, 0)
    assert await future_rows(database) == 0
    await database.assert_consistent()


async def test_a_due_job_in_another_hand_is_not_forgotten_when_others_are_let_go_meanwhile(
    database: ProxiedMysql, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One due job is locked by another client now; a second one was locked when the sweep looked for it."""
    in_hand, let_go = await desk.put(delay_ms=1000), await desk.put(delay_ms=1000)
    desk.clock.advance(ms=1000)
    select = Transaction.select
    async with AsyncExitStack() as until_found:
        await until_found.enter_async_context(
            other_client(
                database, f"SELECT * FROM future WHERE id = {let_go.id} AND run_after_ms <= {desk.now} FOR UPDATE"
            )
        )

        async def select_and_let_go(transaction: Transaction, *statements: bytes) -> list[Result]:
            found = await select(transaction, *statements)
            await until_found.aclose()
            return found

        monkeypatch.setattr(Transaction, "select", select_and_let_go)
        async with other_client(database, f"SELECT * FROM ready WHERE id = {in_hand.id} FOR UPDATE"):
            assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 1
            await database.assert_consistent()
    assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 1
    assert await future_rows(database) == 0
    await database.assert_consistent()


async def test_a_job_that_is_claimed_before_it_was_counted_is_counted_once(database: ProxiedMysql, desk: Desk) -> None:
    await desk.put(delay_ms=1000)
    desk.clock.advance(ms=1000)
    held = await desk.take()
    assert await desk.shard.submit(AdvanceDue(desk.now, 100)) == 0
    assert await future_rows(database) == 0
    await desk.fail(held.key, delay_ms=1000)
    counts = await desk.counts()
    assert (counts.pending, counts.future) == (1, 1)
    desk.clock.advance(ms=1000)
    counts = await desk.counts()
    assert (counts.pending, counts.future) == (1, 0)
    await database.assert_consistent()


@pytest.mark.parametrize("how", ["purge", "delete", "queue"])
async def test_nothing_is_left_of_future_jobs_that_are_deleted(database: ProxiedMysql, desk: Desk, how: str) -> None:
    key = await desk.put(delay_ms=_DAY_MS)
    if how == "purge":
        await desk.purge(JobState.PENDING, limit=10)
    elif how == "delete":
        await desk.shard.submit(DeleteJobs([key]))
    else:
        await desk.shard.submit(DeleteQueues([QUEUE]))
        await desk.shard.submit(CollectGarbage([], desk.now, 1000))  # as every server does, sooner or later
    assert await future_rows(database) == 0


async def test_a_shard_of_the_schema_before_lists_the_jobs_that_it_counts_as_future(
    database: ProxiedMysql, desk: Desk
) -> None:
    await desk.put(delay_ms=1000)
    await desk.put()
    await desk.shard.close()
    await database.ask("DROP TABLE future")
    await database.ask("UPDATE meta SET value = '2' WHERE name = 'schema'")
    await desk.reopen()
    await database.assert_consistent()
    desk.clock.advance(ms=1000)
    assert ((await desk.counts()).pending, (await desk.counts()).future) == (2, 0)


async def test_a_finish_that_was_written_down_late_is_collected_in_the_end(database: ProxiedMysql, desk: Desk) -> None:
    """Garbage is looked for where it ended the last time; now and then from the start."""
    late, *_ = [await desk.put_in(JobState.SUCCEEDED) for _ in range(3)]
    desk.clock.advance(ms=2000)
    await database.ask(f"UPDATE done SET finished_at_ms = finished_at_ms + 3600000 WHERE id = {late.id}")
    assert await desk.collect(succeeded_ms=1000, failed_ms=1000) == (2, 0)
    await database.ask(f"UPDATE done SET finished_at_ms = finished_at_ms - 7200000 WHERE id = {late.id}")
    desk.clock.advance(hours=2)
    assert await desk.collect(succeeded_ms=1000, failed_ms=1000) == (1, 0)
    await desk.assert_counters_exact()
    await database.assert_consistent(deleted=True)


async def test_a_collection_that_was_rolled_back_finds_its_garbage_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first try has found is forgotten: the jobs are there yet."""
    await desk.put_in(JobState.SUCCEEDED)
    desk.clock.advance(ms=10_000)
    commit, tries = Transaction.commit, []

    async def deadlock_at_first(transaction: Transaction, *last: bytes) -> list[Result]:
        tries.append(transaction)
        if len(tries) == 1:
            raise OperationalError(1213, "Deadlock found when trying to get lock")
        return await commit(transaction, *last)

    monkeypatch.setattr(Transaction, "commit", deadlock_at_first)
    [swept] = await desk.shard.submit(CollectGarbage([TimeToLive(QUEUE, 1_000, 1_000)], desk.now, 100))
    assert (len(tries), swept.deleted_succeeded) == (2, 1)
    await desk.assert_counters_exact()
