"""Claims that take jobs from memory: fewer round trips, and the same answers as a search, whatever other servers do."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import count, islice
from random import Random

import pytest

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import HandedOutJob, Holder, UniqueKey, UniqueScope
from pinlater.server.storage.commands import ClaimJobs, ListChangedQueues, TimeOutClaims
from pinlater.server.storage.mysql import ready_jobs
from pinlater.server.storage.mysql.ready_jobs import (
    JOB_BYTES,
    ROWS_MAX,
    ROWS_MIN,
    TRUSTED_S,
    JobContent,
    ReadyBytes,
    ReadyJobs,
    ReadyMemory,
)
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder, JobKey
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE, stats_of

MOST = 16 * 1024 * 1024


async def claim(
    desk: Desk, *limits: int, from_memory: bool = True, max_bytes: int = 2**24, through: int | None = None
) -> Claimed:
    calls = [
        ClaimCall(limit, Holder(f"call {place}", "source", f"{place}"), max_bytes) for place, limit in enumerate(limits)
    ]
    [claimed] = await desk.shard.submit(
        ClaimJobs([ClaimOrder(QUEUE, calls, 60_000, from_memory=from_memory, through_priority=through)], desk.now)
    )
    assert not isinstance(claimed, PinLaterError)
    return claimed


def bodies(claimed: Claimed) -> list[bytes]:
    return [job.body for jobs in claimed.jobs for job in jobs]


def round_trips(desk: Desk) -> Callable[[], int]:
    before = stats_of(desk).round_trips
    return lambda: stats_of(desk).round_trips - before


async def test_jobs_that_this_server_stored_take_one_round_trip_and_an_empty_queue_takes_none(
    database: ProxiedMysql,
) -> None:
    desk = await database.desk(direct=True)
    assert bodies(await claim(desk, 1)) == []
    took = round_trips(desk)
    assert bodies(await claim(desk, 10)) == []
    assert took() == 0
    for body in (b"1", b"2", b"3"):
        await desk.put(body)
    took = round_trips(desk)
    assert bodies(await claim(desk, 1, 5)) == [b"1", b"2", b"3"]
    assert took() == 1
    await desk.assert_counters_exact()
    await database.assert_consistent()


async def test_claims_through_a_priority_go_by_memory_and_leave_there_what_they_do_not_take(
    database: ProxiedMysql,
) -> None:
    """Those that find too few jobs with a search, too: the search reads on."""
    desk, there = await database.desk(direct=True), await database.desk(direct=True)
    for priority in (1, 2, 3, 3):
        await there.put(b"%d" % priority, priority=priority)
    assert bodies(await claim(desk, 5, through=1)) == [b"1"]
    took = round_trips(desk)
    found = await claim(desk, 5, through=1)
    assert (bodies(found), found.head) == ([], (2, desk.now))
    assert took() == 0
    await desk.put(b"new", priority=1)
    took = round_trips(desk)
    assert bodies(await claim(desk, 5, through=2)) == [b"new", b"2"]
    assert bodies(await claim(desk, 1, through=3)) == [b"3"]
    found = await claim(desk, 5)
    assert (bodies(found), found.head) == ([b"3"], None)
    assert took() == 3
    await desk.assert_counters_exact()
    await database.assert_consistent()


async def test_a_remembered_job_is_handed_out_as_a_searched_one(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    kinds: list[dict[str, object]] = [
        {},
        {"priority": 2},
        {"headers": {"a": "b"}, "attempts": 7},
        {"status": "new"},
        {"claim_timeout_ms": 5_000},
        {"unique": UniqueKey("k", UniqueScope.PENDING)},
        {"expires_in_ms": 90_000},
    ]

    async def found(*, from_memory: bool) -> list[HandedOutJob]:
        await claim(desk, 1, from_memory=from_memory)
        for place, kind in enumerate(kinds):
            await desk.put(b"%d" % place, **kind)  # type: ignore[arg-type]
        [jobs] = (await claim(desk, 20, from_memory=from_memory)).jobs
        for job in jobs:
            await desk.succeed(JobKey(QUEUE, job.priority, job.id))
        return [job._replace(id=0) for job in jobs]

    searched, remembered = await found(from_memory=False), await found(from_memory=True)
    assert len(searched) == len(kinds)
    assert remembered == searched


async def test_a_job_that_another_server_took_is_not_handed_out_again(database: ProxiedMysql) -> None:
    here, there = await database.desk(direct=True), await database.desk(direct=True)
    await claim(here, 1)
    for body in (b"1", b"2", b"3"):
        await here.put(body)
    assert bodies(await claim(there, 1, from_memory=False)) == [b"1"]
    assert bodies(await claim(here, 5)) == [b"2", b"3"]
    await database.assert_consistent()


async def test_a_job_that_another_server_claimed_and_gave_back_is_read_anew(database: ProxiedMysql) -> None:
    """It has the same place as before, and another attempt or body."""
    here, there = await database.desk(direct=True), await database.desk(direct=True)
    await claim(here, 1)
    key = await here.put(b"old", attempts=5)
    assert bodies(await claim(there, 1, from_memory=False)) == [b"old"]
    there.clock.advance(hours=1)
    assert len(await there.shard.submit(TimeOutClaims(there.now, 10))) == 1
    here.clock.advance(hours=1)
    [[job]] = (await claim(here, 1)).jobs
    assert (job.id, job.attempt) == (key.id, 2)
    await database.assert_consistent()


async def test_jobs_of_another_server_are_found_within_a_second_and_at_once_by_a_search(database: ProxiedMysql) -> None:
    here, there = await database.desk(direct=True), await database.desk(direct=True)
    await claim(here, 1)
    await there.put(b"there")
    assert bodies(await claim(here, 1)) == []
    assert bodies(await claim(here, 1, from_memory=False)) == [b"there"]
    await claim(here, 1)
    await there.put(b"later")
    await here.shared.submit(ListChangedQueues())
    assert bodies(await claim(here, 1)) == [b"later"]


async def test_jobs_that_come_back_or_become_due_are_found(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    await claim(desk, 1)
    key = await desk.put(b"again", attempts=3)
    [[job]] = (await claim(desk, 1)).jobs
    await desk.fail(key)
    assert bodies(await claim(desk, 1)) == [b"again"]
    await claim(desk, 1)
    await desk.put(b"later", run_after_ms=desk.now + 400)
    assert (await claim(desk, 1)).next_due_ms == desk.now + 400
    assert job.attempt == 1
    desk.clock.advance(ms=400)
    assert bodies(await claim(desk, 1)) == [b"later"]


async def test_claims_of_a_backlog_take_one_round_trip_after_the_first(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    await desk.insert(*[desk.job(b"%d" % number) for number in range(60)])
    assert bodies(await claim(desk, 5)) == [b"%d" % number for number in range(5)]
    took = round_trips(desk)
    assert bodies(await claim(desk, 5, 5)) == [b"%d" % number for number in range(5, 15)]
    assert took() == 1
    await desk.put(b"urgent", priority=1, run_after_ms=1)
    await desk.put(b"last")
    assert bodies(await claim(desk, 2)) == [b"urgent", b"15"]
    assert took() == 4  # two of them are inserts
    assert bodies(await claim(desk, 99)) == [*[b"%d" % number for number in range(16, 60)], b"last"]
    assert took() == 5
    await desk.assert_counters_exact()
    await database.assert_consistent()


async def test_jobs_beyond_the_rows_that_were_read_come_after_them(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    await desk.insert(*[desk.job(b"%d" % number) for number in range(ROWS_MIN + 20)])
    found = bodies(await claim(desk, 1))
    await desk.put(b"last")
    await desk.put(b"first", priority=1, run_after_ms=1)
    while more := bodies(await claim(desk, 7)):
        found += more
    assert found == [b"0", b"first", *[b"%d" % number for number in range(1, ROWS_MIN + 20)], b"last"]


async def test_a_claim_of_many_jobs_remembers_no_others(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    await desk.insert(*[desk.job(b"%d" % number) for number in range(300)])
    await claim(desk, 1, from_memory=False)
    for _ in range(2):
        took = round_trips(desk)
        assert len(bodies(await claim(desk, 120))) == 120
        assert took() == 2
    assert len(bodies(await claim(desk, 20))) == 20
    took = round_trips(desk)
    assert len(bodies(await claim(desk, 20))) == 20
    assert took() == 1


async def test_a_long_backlog_is_read_in_ever_larger_parts(
    database: ProxiedMysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that reads rows takes one round trip more than one from memory: 6 of these 200, and 30 if each read as many as the first."""
    monkeypatch.setattr(ready_jobs, "TRUSTED_S", 1_000.0)  # a slow machine takes more than a second
    desk = await database.desk(direct=True)
    jobs, claims = 2_000, 200
    for first in range(0, jobs, 500):
        await desk.insert(*[desk.job(b"%d" % number) for number in range(first, first + 500)])
    await claim(desk, 1, from_memory=False)
    took = round_trips(desk)
    found = [body for _ in range(claims) for body in bodies(await claim(desk, jobs // claims))]
    assert found == [b"%d" % number for number in range(1, jobs)]
    assert took() <= claims + 8


async def test_jobs_with_a_past_are_searched(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    await desk.insert(*[desk.job(b"%d" % number, attempts=3) for number in range(ROWS_MIN + 20)])
    [jobs] = (await claim(desk, ROWS_MIN + 10)).jobs
    for job in jobs:
        await desk.fail(JobKey(QUEUE, 1, job.id))
    attempts = []
    while jobs := (await claim(desk, 3)).jobs[0]:
        attempts += [job.attempt for job in jobs]
    assert sorted(attempts) == [*[1] * 10, *[2] * (ROWS_MIN + 10)]
    await database.assert_consistent()


async def test_the_bytes_of_a_call_count_for_remembered_jobs(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    await claim(desk, 1)
    for number in range(4):
        await desk.put(b"%d" % number * 100)
    found = await claim(desk, 4, max_bytes=250)
    assert [len(jobs) for jobs in found.jobs] == [2]
    assert found.next_due_ms == desk.now
    assert [len(jobs) for jobs in (await claim(desk, 4)).jobs] == [2]


@pytest.mark.parametrize("backlog", [0, 100])
@pytest.mark.parametrize("seed", range(3))
async def test_each_job_is_handed_out_once_whatever_two_servers_do(
    database: ProxiedMysql, seed: int, backlog: int
) -> None:
    dice = Random(seed)
    desks = [await database.desk(direct=True), await database.desk(direct=True)]
    got = list[bytes]()
    await desks[0].insert(*[desks[0].job(b"%d" % number) for number in range(backlog)])
    stored = backlog
    for _ in range(60):
        desk = dice.choice(desks)
        match dice.randrange(4):
            case 0 | 1:
                for _ in range(dice.randrange(1, 4)):
                    await desk.put(b"%d" % stored, priority=dice.randrange(1, 4))
                    stored += 1
            case 2:
                got += bodies(await claim(desk, dice.randrange(1, 6)))
            case 3:
                got += bodies(await claim(desk, dice.randrange(1, 3), from_memory=False))
    for desk in desks:
        while found := bodies(await claim(desk, 50, from_memory=False)):
            got += found
    assert sorted(got) == sorted(b"%d" % number for number in range(stored)), f"seed {seed}"
    await desks[0].assert_counters_exact()
    await database.assert_consistent()


# --- by itself ------------------------------------------------------------------------------------------------------------------


def put(ready: ReadyJobs, *ids: int, priority: int = 1, run_after_ms: int = 0, body: bytes = b"x") -> None:
    for job_id in ids:
        ready.add((priority, run_after_ms, job_id, 0, len(body)), JobContent(3, 0, body))


def taken(ready: ReadyJobs, count: int = 99) -> list[int]:
    return [job_id for _, _, job_id, _, _ in ready.take(count).rows]


def complete(ready: ReadyJobs, *, now_s: float = 0.0) -> None:
    ready.search_begins(1, 0, 0.0)
    ready.search_found_all([], None, now_s)


def test_jobs_come_in_the_order_of_claims() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    complete(ready)
    put(ready, 3, priority=2)
    put(ready, 2, 1, run_after_ms=5)
    put(ready, 4)
    assert taken(ready, 3) == [4, 1, 2]
    assert taken(ready, 3) == [3]


def test_the_result_of_a_search_is_trusted_for_a_second_and_until_a_row_elsewhere_is_due() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    assert not ready.has_next(1, 0, 0.0)
    complete(ready)
    assert ready.has_next(1, 99, TRUSTED_S / 2)
    assert not ready.has_next(1, 99, TRUSTED_S)
    ready.waits_elsewhere(100)
    assert ready.has_next(1, 99, 0.0)
    assert not ready.has_next(1, 100, 0.0)


def test_a_search_after_a_long_time_without_one_counts() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    complete(ready)
    ready.search_begins(1, 0, 100.0)
    assert ready.tracks(100.1)
    ready.search_found_all([], None, 100.1)
    put(ready, 1)
    assert taken(ready) == [1]
    assert not ready.tracks(200.0)


def test_what_is_stored_or_comes_back_during_a_search_counts() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    ready.search_begins(1, 0, 0.0)
    put(ready, 1)
    put(ready, 2)
    ready.waits_elsewhere(50)
    ready.search_found_all([1], None, 0.0)
    assert taken(ready) == [2]
    assert ready.elsewhere_ms == 50


def test_jobs_from_before_a_search_that_found_all_are_forgotten() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    complete(ready)
    put(ready, 1)
    ready.search_begins(1, 0, 0.0)
    put(ready, 2)
    ready.search_found_all([], None, 0.0)
    assert taken(ready) == [2]


def test_a_search_that_looks_no_further_is_a_check_of_what_was_complete() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    complete(ready)
    put(ready, 1, 2, 3)
    ready.search_begins(2, 5, 0.0)
    ready.search_found_enough([1, 2], 1.0)
    assert ready.has_next(1, 5, 1.5)
    ready.search_begins(1, 5, 0.0)
    ready.search_found_enough([99], 2.0)  # another server's
    assert not ready.has_next(1, 5, 2.0)
    assert len(ready) == 0


def test_a_search_reads_twice_as_many_rows_as_were_taken_since_the_last_one() -> None:
    """Within bounds: a steady consumer searches ever more rarely, and rows that are not taken cost little."""
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    job_ids = count(1)

    def search_and_take(share: float) -> int:
        """How many rows a search wanted and got; then that share of them is taken."""
        ready.search_begins(1, 0, 0.0)
        wanted = ready.rows_wanted
        rows = [(1, 0, job_id, 0, 1) for job_id in islice(job_ids, wanted)]
        ready.search_read_on([], rows, wanted, None, 0.0)
        assert len(taken(ready, round(wanted * share))) == round(wanted * share)
        return wanted

    assert [search_and_take(1.0) for _ in range(7)] == [ROWS_MIN, 128, 256, 512, 1_024, ROWS_MAX, ROWS_MAX]
    assert search_and_take(0.1) == ROWS_MAX
    assert [search_and_take(0.1) for _ in range(3)] == [ROWS_MAX // 5, 80, ROWS_MIN]


def test_after_a_check_of_the_first_jobs_a_search_looks_at_those_behind_them() -> None:
    """Another server may have put a job back between those that are here."""
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    complete(ready)
    put(ready, 1, 2, 4)
    ready.search_begins(1, 5, 1.1)
    assert not ready.wants_rows(1.1)
    ready.search_found_enough([1], 1.1)
    assert ready.has_next(1, 5, 2.0)
    ready.search_begins(1, 5, 2.2)
    assert ready.wants_rows(2.2)
    ready.search_read_on([2], [(1, 0, 3, 0, 10), (1, 0, 4, 0, 10)], ROWS_MIN, None, 2.2)
    assert taken(ready) == [3, 4]


def test_jobs_that_have_no_space_are_found_by_a_search() -> None:
    used = ReadyBytes(MOST)
    ready, other = ReadyJobs(ReadyMemory(used)), ReadyJobs(ReadyMemory(used))
    complete(ready)
    complete(other)
    put(ready, 1, body=bytes(used.most))
    put(other, 2, run_after_ms=7)
    assert (len(other), other.elsewhere_ms) == (0, 7)
    ready.take(1)
    assert used.used == 0
    put(other, 3)
    assert used.used == JOB_BYTES + 1
    other.forget()
    assert used.used == 0
    put(other, 4)  # nothing is kept before a search
    assert len(other) == 0


def test_headers_count_for_what_they_take() -> None:
    used = ReadyBytes(MOST)
    ready = ReadyJobs(ReadyMemory(used))
    complete(ready)
    tracemalloc.start()
    try:
        for number in range(500):
            headers = {f"{number}-{place}": f"value {number}-{place}" for place in range(100)}
            ready.add((1, 0, number, 4, 1), JobContent(3, 0, b"%d" % number, Options(headers=headers)))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used.used / 2 < taken_bytes < used.used * 2


def test_a_full_memory_is_checked_in_a_short_turn_of_the_event_loop() -> None:
    used = ReadyBytes(MOST)
    ready = ReadyJobs(ReadyMemory(used))
    complete(ready)
    while used.bytes_left > 0:
        put(ready, len(ready) + 1)
    ready.search_begins(1, 0, 0.0)
    began = time.process_time()
    ready.search_found_enough([1], 0.5)
    assert time.process_time() - began < 0.05
    assert len(ready) > 50_000


def test_a_search_that_ends_after_its_queue_is_gone_takes_no_space_from_the_others() -> None:
    used = ReadyBytes(MOST)
    ready = ReadyJobs(ReadyMemory(used))
    complete(ready)
    put(ready, 1)
    ready.search_begins(1, 0, 0.0)
    ready.close()
    ready.search_read_on([], [(1, 0, number, 0, 10) for number in range(2, 90)], 100, None, 0.5)
    put(ready, 100)
    assert (used.used, len(ready)) == (0, 0)


def test_without_space_each_claim_searches() -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(0)))
    complete(ready)
    put(ready, 1)
    assert len(ready) == 0
    assert not ready.has_next(1, 0, 0.1)
