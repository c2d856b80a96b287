"""A claim of a queue without due jobs: memory says so, SQLite is asked nothing, and no job is missed.

The shard's monotonic clock stands still unless a test turns it, so that memory is trusted for as long as a test takes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.job import UniqueKey
from pinlater.server.storage.commands import ClaimJobs, DeleteJobs, InsertJobs, create_queues
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder, InsertRequest
from tests.contract.store_calls import traced_statements
from tests.sqlite.conftest import HOLDER, NOW, QUEUE, Bench, insert_by_a_bug
from tests.sqlite.test_failures import disk_error

OTHER = "other"
TRUSTED_MS = 1_000
LONG = 3_000  # enough that SQLite carries out the insert in steps
IN_THREAD = SqliteSettings(inline_commit_us=0, transaction_ms_max=60_000)
INLINE = SqliteSettings(inline_commit_us=10_000_000, transaction_ms_max=60_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=[INLINE, IN_THREAD], ids=["inline", "thread"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    """With commits on the loop and in the thread. A claim has found nothing in `emails` and in another queue."""
    bench = Bench(tmp_path / "jobs.db", clock.monotonic)
    await bench.open(request.param)
    await bench.shard.submit(create_queues([OTHER], NOW))
    assert await bench.claim() == []
    yield bench
    await bench.shard.close()


async def insert_elsewhere(bench: Bench) -> None:
    await bench.shard.submit(InsertJobs([InsertRequest(OTHER, bench.jobs(1))], NOW))


async def until_committing(bench: Bench) -> None:
    """Until the thread has a transaction to commit."""
    assert await asyncio.to_thread(bench.disk.committing.wait, 30)


async def test_claims_that_memory_answers_are_counted_and_claims_that_look_are_not(
    bench: Bench, clock: ManualClock
) -> None:
    before = bench.shard.figures()["claims_from_memory"]

    def counted() -> float:
        return bench.shard.figures()["claims_from_memory"] - before

    assert await bench.claim() == await bench.claim() == []
    assert counted() == 2
    await bench.insert()
    assert len(await bench.claim()) == 1
    clock.advance(ms=TRUSTED_MS)
    assert await bench.claim() == []
    assert counted() == 2
    assert await bench.claim() == []
    assert counted() == 3


# --- nothing is asked -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["new queue", "all claimed", "later", "deleted", "expired"])
async def test_a_claim_of_an_empty_queue_asks_sqlite_nothing(bench: Bench, history: str) -> None:
    match history:
        case "all claimed":
            await bench.insert(3)
            assert len(await bench.claim(3)) == 3
        case "later":
            await bench.insert(3, run_after_ms=NOW + 1_000)
        case "deleted":
            await bench.shard.submit(DeleteJobs(await bench.insert(3)))
        case "expired":
            options = Options(unique=UniqueKey("key"), expires_ms=NOW - 1)
            jobs = [job._replace(options=options) for job in bench.jobs(1)]
            await bench.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], NOW))
            assert await bench.claim() == []
    executed = traced_statements(bench.shard)
    for _ in range(2):
        assert await bench.claim(5) == []
    assert executed == []


async def test_a_claim_looks_once_after_a_restart(bench: Bench) -> None:
    await bench.insert(3, run_after_ms=NOW + 1_000)
    await bench.shard.close()
    await bench.open()
    assert await bench.claim() == []
    executed = traced_statements(bench.shard)
    assert await bench.claim() == []
    assert executed == []
    assert len(await bench.claim(5, NOW + 1_000)) == 3


async def test_a_claim_that_waits_for_a_commit_is_answered_without_a_transaction_of_its_own(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(IN_THREAD)
    executed = traced_statements(bench.shard)
    storing = asyncio.ensure_future(insert_elsewhere(bench))
    await until_committing(bench)
    assert await bench.claim() == []
    await storing
    assert executed.count("BEGIN IMMEDIATE") == 1


async def test_a_claim_that_may_not_go_by_memory_looks(bench: Bench) -> None:
    executed = traced_statements(bench.shard)
    await bench.shard.submit(ClaimJobs([ClaimOrder(QUEUE, [ClaimCall(1, HOLDER)], 60_000)], NOW))
    assert "BEGIN IMMEDIATE" in executed


# --- nothing is missed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, LONG])
async def test_a_claim_behind_an_insert_gets_its_job(bench: Bench, jobs: int) -> None:
    for _ in range(3):
        keys, claimed = await asyncio.gather(bench.insert(jobs), bench.claim(jobs))
        assert [job.id for job in claimed] == [key.id for key in keys]


@pytest.mark.parametrize("jobs", [1, LONG])
async def test_a_claim_behind_an_insert_that_is_being_stored_gets_its_job(bench: Bench, jobs: int) -> None:
    """Memory is ahead of the file meanwhile."""
    await bench.shard.close()
    await bench.open(IN_THREAD)
    assert await bench.claim() == []
    storing = asyncio.ensure_future(bench.insert(jobs))
    await until_committing(bench)
    assert len(await bench.claim(jobs)) == jobs
    await storing


async def test_a_claim_in_front_of_an_insert_gets_nothing_and_the_next_one_the_job(bench: Bench) -> None:
    storing = asyncio.ensure_future(insert_elsewhere(bench))  # so that the claim waits for its turn
    before, keys = await asyncio.gather(bench.claim(), bench.insert())
    await storing
    assert before == []
    assert [job.id for job in await bench.claim()] == [key.id for key in keys]


async def test_a_job_is_found_in_the_millisecond_in_which_it_is_due(bench: Bench) -> None:
    await bench.insert(1, run_after_ms=NOW + 500)
    assert await bench.claim(1, NOW + 499) == []
    assert len(await bench.claim(1, NOW + 500)) == 1


async def test_a_claim_names_the_time_of_no_job_that_is_gone(bench: Bench) -> None:
    """A dequeue that waits would wake for nothing."""
    [first] = await bench.insert(1, run_after_ms=NOW + 500)
    await bench.insert(1, run_after_ms=NOW + 900)
    order = ClaimOrder(QUEUE, [ClaimCall(1, HOLDER)], 60_000, from_memory=True)
    assert await bench.shard.submit(ClaimJobs([order], NOW)) == [Claimed([[]], NOW + 500)]
    await bench.shard.submit(DeleteJobs([first]))
    for _ in range(2):
        assert await bench.shard.submit(ClaimJobs([order], NOW)) == [Claimed([[]], NOW + 900)]


async def test_jobs_of_a_claim_whose_commit_failed_are_found_by_the_next(bench: Bench) -> None:
    await bench.insert(2)
    bench.disk.fails = lambda text: disk_error() if text == "COMMIT" else None
    claims = [asyncio.ensure_future(bench.claim(2)) for _ in range(3)]
    assert {type(result) for result in await asyncio.gather(*claims, return_exceptions=True)} == {ShardConnectionFailed}
    bench.disk.works()
    assert len(await bench.claim(5)) == 2


async def test_a_claim_that_comes_while_another_is_committed_gets_the_job_if_that_fails(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(IN_THREAD)
    [key] = await bench.insert()
    errors, may_fail = iter([disk_error()]), threading.Event()

    def fails(text: str) -> sqlite3.Error | None:
        return next(errors, None) if text == "COMMIT" and may_fail.wait(30) else None

    bench.disk.committing.clear()
    bench.disk.fails = fails
    first = asyncio.ensure_future(bench.claim())
    await until_committing(bench)
    claiming = asyncio.ensure_future(bench.claim())
    await asyncio.sleep(0)
    may_fail.set()
    second = await claiming
    with pytest.raises(ShardConnectionFailed):
        await first
    assert [job.id for job in second] == [key.id]


async def test_jobs_that_were_claimed_beside_a_faulty_call_are_found_by_the_next(bench: Bench) -> None:
    """The transaction is rolled back, and its calls are carried out again one by one, the claim without its caller."""
    await bench.insert(2)
    claiming = asyncio.ensure_future(bench.claim(2))
    await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        await insert_by_a_bug(bench, claiming.cancel)
    assert claiming.cancelled()
    assert len(await bench.claim(5)) == 2


async def test_a_claim_after_a_transaction_that_failed_looks(bench: Bench) -> None:
    """Memory may be half read."""
    bench.disk.fails = lambda text: disk_error() if text == "COMMIT" else None
    with pytest.raises(ShardConnectionFailed):
        await bench.insert()
    bench.disk.works()
    executed = traced_statements(bench.shard)
    assert await bench.claim() == []
    assert "BEGIN IMMEDIATE" in executed


async def test_a_job_that_an_operator_makes_due_by_hand_is_found_within_a_second(
    bench: Bench, clock: ManualClock
) -> None:
    await bench.insert(1, run_after_ms=NOW + 3_600_000)
    assert await bench.claim() == []
    connection = sqlite3.connect(bench.path)
    with connection:
        connection.execute("UPDATE ready SET run_after_ms = ?", (NOW,))
    connection.close()
    assert await bench.claim() == []
    clock.advance(ms=TRUSTED_MS)
    assert len(await bench.claim()) == 1
