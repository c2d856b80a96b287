"""The writer remembers the last places of ordering keys, and the file alone decides: a job behind one that is not there would never run."""

from __future__ import annotations

import sqlite3

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.queue import NO_HOME, Home, QueueConfig
from pinlater.server.storage.commands import CancelJobs, ConfigureQueue, InsertJobs, MoveHome
from pinlater.server.storage.options import Options
from pinlater.server.storage.sqlite import last_numbers
from pinlater.server.storage.values import Inserted, InsertRequest, JobKey
from tests.sqlite.conftest import NOW, QUEUE, Bench
from tests.sqlite.test_failures import disk_error


async def put(bench: Bench, *keys: str) -> list[JobKey]:
    """Stores jobs with these ordering keys by one request."""
    options = [Options(ordering_key=key) for key in keys]
    jobs = [job._replace(options=one) for job, one in zip(bench.jobs(len(keys)), options, strict=True)]
    await bench.shard.submit(MoveHome(QUEUE, NO_HOME, Home(bench.shard.name, 1)))
    [result] = await bench.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], NOW))
    assert isinstance(result, Inserted), result
    return [JobKey(QUEUE, 1, job.id) for job in jobs]


async def claimed(bench: Bench) -> list[int]:
    return [job.id for job in await bench.claim(100)]


async def test_a_job_whose_transaction_failed_has_no_place(bench: Bench) -> None:
    bench.disk.fails = lambda text: disk_error() if text == "COMMIT" else None
    with pytest.raises(ShardConnectionFailed):
        await put(bench, "a")
    bench.disk.works()
    [key] = await put(bench, "a")
    assert await claimed(bench) == [key.id]


async def test_a_job_that_another_connection_deleted_has_no_place(bench: Bench) -> None:
    """As an operator does by hand."""
    await put(bench, "a")
    other = sqlite3.connect(bench.path)
    with other:
        for table in ("ready", "jobs", "ordered", "counters"):
            other.execute(f"DELETE FROM {table}")
    other.close()
    [key] = await put(bench, "a")
    assert await claimed(bench) == [key.id]


async def test_the_next_job_is_first_once_all_of_its_key_have_ended(bench: Bench) -> None:
    """Whichever of them ended last."""
    first, second, third = await put(bench, "a", "a", "a")
    await bench.shard.submit(CancelJobs([third], NOW))
    assert await claimed(bench) == [first.id]
    await bench.succeed(first)
    assert await claimed(bench) == [second.id]
    await bench.succeed(second)
    [key] = await put(bench, "a")
    assert await claimed(bench) == [key.id]


@pytest.mark.parametrize("in_hand", [1, 2])
async def test_the_requests_of_a_call_look_for_their_places_and_store_them_together(bench: Bench, in_hand: int) -> None:
    await put(bench, "a")
    await bench.shard.submit(ConfigureQueue(QUEUE, config=QueueConfig(max_in_hand_per_key=in_hand)))
    statements: list[str] = []
    bench.disk.fails = statements.append
    counts: list[int] = []
    for number in (1, 8):
        statements.clear()
        jobs = [job._replace(options=Options(ordering_key="a")) for job in bench.jobs(number)]
        await bench.shard.submit(InsertJobs([InsertRequest(QUEUE, [job]) for job in jobs], NOW))
        counts.append(sum("ordered" in text for text in statements))
    one, eight = counts
    assert one == eight
    going = await claimed(bench)
    assert len(going) == in_hand
    assert going == sorted(going)


async def test_more_keys_than_the_writer_remembers_keep_their_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_numbers, "_KEYS_MAX", 3)
    keys = [str(number) for number in range(10)]
    first, second = await put(bench, *keys), await put(bench, *keys)
    assert sorted(await claimed(bench)) == [key.id for key in first]
    await bench.succeed(*first)
    assert sorted(await claimed(bench)) == [key.id for key in second]
