"""An enqueue of very many jobs is stored in steps, with turns of the loop between, and is all or nothing all the same."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pinlater.domain.errors import PinLaterError, QueueFull, ShardConnectionFailed, TooManyWaiting
from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.server.storage.commands import InsertJobs
from pinlater.server.storage.options import NONE, Options
from pinlater.server.storage.sqlite import inserting
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.values import Inserted, InsertRequest, NewJob
from tests.sqlite.conftest import NOW, QUEUE, Bench

LONG = 10_000


def rows(path: Path) -> dict[str, list[Any]]:
    """All that the file holds, by table."""
    connection = sqlite3.connect(path)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}
    finally:
        connection.close()


async def until_begun(bench: Bench) -> None:
    while not bench.disk.connection.in_transaction:
        await asyncio.sleep(0)


async def test_calls_that_come_meanwhile_wait_and_looks_see_none_of_it(bench: Bench) -> None:
    """A look is answered between two steps, from what was committed before."""
    bench.disk.committing.clear()
    long = asyncio.ensure_future(bench.insert(LONG))
    await until_begun(bench)
    other = asyncio.ensure_future(bench.insert())
    looks = 0
    while bench.disk.connection.in_transaction and not bench.disk.committing.is_set():
        assert await bench.pending() in (0, LONG)
        assert not other.done()
        looks += 1
        await asyncio.sleep(0)
    assert looks >= LONG // inserting._STEP_JOBS - 1
    assert len(await long) == LONG
    await other
    assert await bench.pending() == LONG + 1
    assert bench.shard.commits >= 2


async def test_a_failure_halfway_leaves_nothing_and_the_next_enqueue_is_stored(bench: Bench) -> None:
    await bench.insert(3)
    execute = bench.disk.connection.execute
    execute("CREATE TEMP TRIGGER t BEFORE INSERT ON jobs WHEN new.body = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END")
    before = rows(bench.path)
    jobs = bench.jobs(LONG)
    jobs[LONG - 10] = jobs[LONG - 10]._replace(body="bad")  # type: ignore[arg-type]
    with pytest.raises((PinLaterError, sqlite3.Error)):
        await bench.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], NOW))
    assert rows(bench.path) == before
    assert await bench.pending() == 3
    execute("DROP TRIGGER t")
    await bench.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs[: LONG - 10])], NOW))
    assert await bench.pending() == 3 + LONG - 10
    assert len(await bench.claim(1_000)) == 1_000


async def test_a_repeat_with_its_key_stores_nothing_and_commits_nothing(bench: Bench) -> None:
    request = InsertRequest(QUEUE, bench.jobs(LONG), "key", b"f")
    [first] = await bench.shard.submit(InsertJobs([request], NOW))
    commits = bench.shard.commits
    [again] = await bench.shard.submit(InsertJobs([request._replace(jobs=bench.jobs(LONG))], NOW))
    assert isinstance(first, Inserted)
    assert isinstance(again, Inserted)
    assert (again.ids, again.repeated) == (first.ids, True)
    assert bench.shard.commits == commits
    assert await bench.pending() == LONG


async def test_the_same_insert_again_stores_nothing(bench: Bench) -> None:
    requests = [InsertRequest(QUEUE, bench.jobs(LONG))]
    await bench.shard.submit(InsertJobs(requests, NOW))
    await bench.shard.submit(InsertJobs(requests, NOW))
    assert await bench.pending() == LONG


async def test_a_full_queue_takes_none_of_it(bench: Bench) -> None:
    [refused] = await bench.shard.submit(
        InsertJobs([InsertRequest(QUEUE, bench.jobs(LONG), max_backlog=LONG - 1)], NOW)
    )
    assert isinstance(refused, QueueFull)
    assert await bench.pending() == 0


async def test_a_store_that_closes_meanwhile_finishes_it_first(bench: Bench) -> None:
    long = asyncio.ensure_future(bench.insert(LONG))
    await until_begun(bench)
    await bench.shard.close()
    assert len(await long) == LONG
    await bench.open()
    assert await bench.pending() == LONG


async def test_it_is_refused_if_the_file_goes_meanwhile(bench: Bench) -> None:
    long = asyncio.ensure_future(bench.insert(LONG))
    await until_begun(bench)
    away = bench.path.rename(bench.path.with_suffix(".away"))
    with pytest.raises(ShardConnectionFailed, match="Nothing is stored until it is back"):
        await long
    away.rename(bench.path)
    await bench.insert()
    assert await bench.pending() == 1


async def test_a_process_that_ends_halfway_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    """What another process finds in the files as they are between two steps."""
    await bench.insert(3)
    long = asyncio.ensure_future(bench.insert(LONG, body=b"x" * 2_000))  # more than the cache: some of it is in the log
    await until_begun(bench)
    for _ in range(15):
        await asyncio.sleep(0)
    assert bench.disk.connection.in_transaction
    for name in ("jobs.db", "jobs.db-wal"):
        (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
    copy = tmp_path / "copy-jobs.db"
    assert len(rows(copy)["jobs"]) == 3
    await long


async def test_too_many_waiting_calls_are_refused_whatever_their_length(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(SqliteSettings(waiting_calls_max=1))
    results = await asyncio.gather(*(bench.insert(LONG) for _ in range(3)), return_exceptions=True)
    assert sum(isinstance(result, TooManyWaiting) for result in results) == 2
    assert await bench.pending() == LONG


@pytest.mark.parametrize("seed", range(30))
async def test_steps_store_the_same_as_one_turn_does(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests at random, on two files: keys, repeats, unique jobs, ids in any order, options, bounds."""
    whole, stepped = Bench(tmp_path / "whole.db"), Bench(tmp_path / "stepped.db")
    await whole.open()
    await stepped.open()
    monkeypatch.setattr(inserting, "_STEP_JOBS", 3)
    monkeypatch.setattr(inserting, "_STEP_BYTES", 40)
    rng = random.Random(seed)
    for _ in range(10):
        requests = [some_request(rng) for _ in range(rng.randint(1, 4))]
        requests = without_repeated_ids(requests)
        now_ms = NOW + rng.randint(0, 100_000)
        monkeypatch.setattr(inserting, "_LONG_JOBS", 2**31)
        expected = await whole.shard.submit(InsertJobs(requests, now_ms))
        monkeypatch.setattr(inserting, "_LONG_JOBS", 0)
        found = await stepped.shard.submit(InsertJobs(requests, now_ms))
        assert [repr(one) for one in found] == [repr(one) for one in expected]
    await whole.shard.close()
    await stepped.shard.close()
    assert rows(stepped.path) == rows(whole.path)


def some_request(rng: random.Random) -> InsertRequest:
    jobs = [some_job(rng, job_id) for job_id in rng.sample(range(1, 400), rng.randint(1, 12))]
    if rng.random() < 0.5:
        jobs.sort()
    return InsertRequest(
        QUEUE if rng.random() < 0.95 else "nowhere",
        jobs,
        rng.choice([None, None, "k1", "k2"]),
        rng.choice([b"f", b"g"]),
        rng.choice([None, None, 30]),
    )


def some_job(rng: random.Random, job_id: int) -> NewJob:
    options = Options(
        rng.choice(["", "status"]),
        rng.choice([None, {"a": "b"}]),
        rng.choice([None, None, UniqueKey(f"u{rng.randint(1, 9)}", rng.choice(list(UniqueScope)), 50_000)]),
        rng.choice([None, 5_000]),
        rng.choice([None, NOW + 90_000]),
    )
    return NewJob(
        job_id,
        b"x" * rng.choice([0, 5, 100]),
        rng.randint(1, 3),
        NOW + rng.choice([-5, 0, 50_000]),
        rng.randint(1, 3),
        None if options == NONE else options,
    )


def without_repeated_ids(requests: list[InsertRequest]) -> list[InsertRequest]:
    """Within a call every id is new or was stored by an earlier call: a server makes each id once."""
    seen: set[int] = set()
    kept: list[InsertRequest] = []
    for request in requests:
        jobs = [job for job in request.jobs if job.id not in seen]
        seen |= {job.id for job in jobs}
        if jobs:
            kept.append(request._replace(jobs=jobs))
    return kept
