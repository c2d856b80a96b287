"""A row is deleted by hand, or was left out by the restore of a part: all other jobs come, are found, are counted and end as ever.

For each table of each relational store, and so for each new one: half of the jobs lose their rows of the table, in a store with jobs in
every state. What Redis does is in `tests/redis/test_failures_lost_keys.py`.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from asyncmy.errors import OperationalError

from pinlater.domain.job import JobState, Outcome, UniqueScope
from pinlater.server.storage.commands import (
    AddToTrail,
    AdvanceDue,
    ConfigureQueue,
    CountJobs,
    CountOrdered,
    DeleteQueues,
    DeleteWithCopies,
    ExpireJobs,
    ListFailures,
    ListTrail,
    ListUniqueQueues,
    NoteMap,
    PeekJobs,
    RestoreJobs,
    SaveSamples,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import (
    ClaimCall,
    ClaimOrder,
    CopiesOf,
    Inserted,
    InsertRequest,
    JobCheckpoint,
    JobKey,
    RestoreOrder,
    StoredSample,
    TrailEntry,
)
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, unique
from tests.contract.stores import SERVERS

RUN = CopiesOf("0123456789abcdef", 1_000)
VICTIM, OTHER = b"victim ", b"other "
STORES = {"sqlite": "sqlite", "mariadb": "mysql", "mysql8": "mysql"}


def tables(store: str) -> list[str]:
    """All tables that the migrations of a store make."""
    folder = files(f"pinlater.server.storage.{store}") / "migrations"
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir()]
    return sorted(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", "".join(texts)))


# A server's row refers to its row of `programs`, so no hand deletes it.
CASES = [(kind, table) for kind, store in STORES.items() for table in tables(store) if table != "programs"]


class Hand:
    """An operator's hand in the tables of a shard."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._server = SERVERS.get(kind)
        self._path = folder / "jobs.db"

    async def do(self, statement: str) -> list[tuple[Any, ...]]:
        if self._server is not None:
            async with self._server.connect(database="contract") as connection, connection.cursor() as cursor:
                await cursor.execute(statement)
                rows = list(await cursor.fetchall() or ())
                await connection.commit()
                return rows
        connection = sqlite3.connect(self._path)
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()

    async def count(self, table: str) -> int:
        [(rows,)] = await self.do(f"SELECT COUNT(*) FROM {table}")
        return int(rows)

    async def take_away(self, table: str, ids: Sequence[int]) -> None:
        """The rows of these jobs; all rows of a table that names no jobs, and the last piece of each copy."""
        names = await self.do(f"SELECT * FROM {table} LIMIT 1")
        which = "TRUE"
        if table == "samples":
            which = "origin LIKE '%.000001'"
        elif table not in {"audit", "unique_keys", "failures"} and names and await self._has_id(table):
            which = f"id IN ({','.join(map(str, ids))})"
        elif table == "queues":
            which = "name = 'another'"
        await self.do(f"DELETE FROM {table} WHERE {which}")

    async def _has_id(self, table: str) -> bool:
        try:
            await self.do(f"SELECT id FROM {table} LIMIT 1")
        except (sqlite3.OperationalError, OperationalError):
            return False
        return True


Pair = tuple[JobKey, JobKey]
"""Two jobs of one kind: the first loses its rows."""


async def pair(desk: Desk, state: JobState, body: bytes, scope: UniqueScope | None = None, **about: Any) -> Pair:
    """The body of a job is also its unique key."""
    keys = []
    for which in (VICTIM, OTHER):
        named = which + body + state.name.encode()
        key = None if scope is None else unique(named.decode(), scope, 10**9)
        keys.append(await desk.put_in(state, named, unique=key, **about))
    return keys[0], keys[1]


async def retried(desk: Desk, body: bytes) -> JobKey:
    """A job that has failed once and waits again."""
    held = await desk.put_and_take(body, attempts=9, headers={"task": "t"})
    await desk.fail(held.key, error=("E", "text"), status="s", delay_ms=1)
    return held.key


async def checkpointed(desk: Desk, body: bytes) -> JobKey:
    held = await desk.put_and_take(body)
    await desk.checkpoint(JobCheckpoint(held.key, "worker", held.holder.token, body))
    return held.key


async def live(desk: Desk) -> list[Pair]:
    """Something in every table, with two jobs of each kind."""
    pairs = []
    for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.IN_PROGRESS, JobState.PENDING):
        pairs.append(await pair(desk, state, b"plain"))
        pairs.append(
            await pair(desk, state, b"keyed", UniqueScope.UNFINISHED, headers={"a": "b"}, claim_timeout_ms=TIMEOUT_MS)
        )
        pairs.append(await pair(desk, state, b"expires", UniqueScope.PENDING, expires_in_ms=10 * TIMEOUT_MS))
        if state is JobState.IN_PROGRESS:
            pairs.append((await checkpointed(desk, VICTIM), await checkpointed(desk, OTHER + b"checkpointed")))
            pairs.append((await retried(desk, VICTIM), await retried(desk, OTHER + b"retried")))
    pairs.append(await pair(desk, JobState.PENDING, b"later", delay_ms=TIMEOUT_MS))
    pairs.append(await pair(desk, JobState.PENDING, b"timed", UniqueScope.TIME))
    pairs.append(await pair(desk, JobState.PENDING, b"second", priority=2))
    request = InsertRequest(QUEUE, [desk.job(OTHER + b"requested")], "request", b"f")
    assert isinstance(await desk.request(request), Inserted)
    long = random.Random(1).randbytes(100_000)
    copied = [await desk.put(long + body, priority=3) for body in (b"1", b"2")]
    for number, key in enumerate(copied):
        await desk.shard.submit(DeleteWithCopies([key], JobState.PENDING, RUN, desk.now + number))
    for queue in ("dropped", "another"):
        await desk.shard.submit(create_queues([queue], desk.now))
        await desk.put(queue=queue)
    await desk.shard.submit(DeleteQueues(["dropped"], desk.now, desk.now))
    await desk.shard.submit(NoteMap("{}", desk.now))
    await desk.shard.submit(AddToTrail([TrailEntry("1", b"{}")], 10))
    await desk.shard.submit(SaveSamples([StoredSample(60, desk.now, QUEUE, "server", b"s")]))
    return pairs


async def look(desk: Desk, pairs: Sequence[Pair]) -> dict[bytes, JobState]:
    """Reads all that there is; the states of the other jobs, by body."""
    await desk.shard.submit(PeekJobs(QUEUE, 100, desk.now, 10**6))
    await desk.shard.submit(CountJobs())
    await desk.shard.submit(ListFailures([QUEUE], 0))
    await desk.shard.submit(ListTrail("", "~", 10))
    await desk.shard.submit(ListUniqueQueues())
    for state in JobState:
        await desk.scan(state)
    found = [await desk.look(other) for _, other in pairs]
    for victim, _ in pairs:
        await desk.find(victim)
    return {job.body: JobState(job.state) for job in found if job.body is not None}


async def look_after(desk: Desk) -> None:
    """What a server does by itself."""
    for paused in (True, False):
        await desk.shard.ping()
        await desk.shard.submit(ConfigureQueue("more", paused=paused))  # so that the next look is a new one
        await desk.shard.submit(AdvanceDue(desk.now, ALL))
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))
        await desk.shard.submit(ExpireJobs(desk.now, ALL))
        await desk.shard.submit(CountJobs())
        await desk.collect()


async def finish_all(desk: Desk) -> set[bytes]:
    """Claims and ends all that is due; the bodies."""
    done: set[bytes] = set()
    empty = 0
    while empty < 3:
        claimed = await desk.claim(5, owned=empty == 0)
        empty = 0 if claimed else empty + 1
        for held in claimed:
            assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
            done.add(held.job.body)
    return done


@pytest.mark.parametrize(("store_kind", "table"), CASES, indirect=["store_kind"])
async def test_whatever_row_is_lost_all_other_jobs_end_and_no_row_is_kept(
    store_kind: str, table: str, tmp_path: Path, desk: Desk
) -> None:
    await desk.shard.submit(create_queues(["more"], desk.now))
    pairs = await live(desk)
    hand = Hand(store_kind, tmp_path)
    await hand.take_away(table, [victim.id for victim, _ in pairs])

    states = await look(desk, pairs)
    unfinished = {body for body, state in states.items() if state in (JobState.PENDING, JobState.IN_PROGRESS)}
    assert len(unfinished) == 11
    if table == "servers":  # the ids of the slot may be another server's
        await desk.reopen()
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await look_after(desk)
    done = await finish_all(desk)
    assert unfinished <= done
    assert OTHER + b"requested" in done
    failed = {body for body, state in states.items() if state is JobState.FAILED}
    assert await desk.retry_failed() >= len(failed)
    assert failed <= await finish_all(desk)

    for state in JobState:
        for which in (VICTIM, OTHER):
            for body, scope in ((b"expires", UniqueScope.PENDING), (b"keyed", UniqueScope.UNFINISHED)):
                key = unique((which + body + state.name.encode()).decode(), scope)
                assert (await desk.insert(desk.job(b"again", unique=key))).existing == {}
    assert b"again" in await finish_all(desk)
    after: str | None = ""
    while after is not None:
        after = (await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, RUN, after), desk.now))).after
    await finish_all(desk)

    await desk.shard.submit(DeleteQueues(["another"], desk.now, desk.now))
    desk.clock.advance(ms=200 * TIMEOUT_MS)
    await look_after(desk)
    await look_after(desk)
    for priority in (1, 2, 3):
        assert (await desk.counts(priority=priority))[1:6] == (0, 0, 0, 0, 0), priority
    if table not in {
        "queues",
        "dropped_queues",
    }:  # a deleted queue of which nothing is known any more keeps its rows
        left = {name: await hand.count(name) for name in ("ready", "claims", "done", "expiries", "request_keys")}
        assert left == dict.fromkeys(left, 0)
    await desk.put(b"new")
    assert (await desk.take()).job.body == b"new"


@pytest.mark.parametrize("store_kind", STORES, indirect=True)
async def test_claims_pass_over_lost_jobs_and_count_them(
    store_kind: str, tmp_path: Path, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs with and without options, one in hand, and one that waits behind them."""
    held = await desk.put_and_take()
    lost = [await desk.put(headers={"a": "b"} if number % 2 else None) for number in range(60)]
    last = await desk.put(b"last")
    ids = [job.key.id for job in (held,)] + [key.id for key in lost]
    await Hand(store_kind, tmp_path).take_away("jobs", ids)
    await desk.reopen()  # the server has none of them in its memory

    claimed: list[JobKey] = []
    while not claimed:
        answer = await desk.order(ClaimOrder(QUEUE, [ClaimCall(1, desk.holder())], TIMEOUT_MS))
        claimed = [JobKey(QUEUE, job.priority, job.id) for job in answer.jobs[0]]
        assert claimed or answer.cut_short or answer.next_due_ms == desk.now, "the caller would not come again"
    assert claimed == [last]
    assert (await desk.counts())[:4] == (1, 0, 0, 2)
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    assert (swept.lost, swept.retried) == (1, 1)
    assert desk.shard.figures()["jobs_lost"] == 61
    assert "jobs are gone" in caplog.text
    assert (await desk.counts())[:4] == (1, 1, 0, 0)
    assert (await desk.take()).key == last


@pytest.mark.parametrize("first_one", ["waits", "times out", "succeeds"])
@pytest.mark.parametrize("store_kind", STORES, indirect=True)
async def test_the_next_job_of_an_ordering_key_goes_in_the_place_of_a_lost_one(
    store_kind: str, first_one: str, tmp_path: Path, desk: Desk
) -> None:
    """The second one is lost, and the first one, too, unless it succeeds."""
    first, second, third = [await desk.put(ordering_key="a") for _ in range(3)]
    if first_one != "waits":
        await desk.take()
    lost = [second.id] if first_one == "succeeds" else [first.id, second.id]
    await Hand(store_kind, tmp_path).take_away("jobs", lost)
    await desk.reopen()  # the server has none of them in its memory
    if first_one == "times out":
        desk.clock.advance(ms=TIMEOUT_MS + 1)
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    elif first_one == "succeeds":
        assert (await desk.succeed(first)).outcome is Outcome.APPLIED
    found = [held.key for _ in range(2) for held in await desk.claim(10)]
    assert found == [third]


@pytest.mark.parametrize("store_kind", STORES, indirect=True)
async def test_no_job_on_another_shard_waits_for_lost_ones_of_which_only_the_places_are_left(
    store_kind: str, tmp_path: Path, desk: Desk
) -> None:
    lost, _ = [await desk.put(ordering_key=key) for key in "ab"]
    for table in ("jobs", "ready"):
        await Hand(store_kind, tmp_path).take_away(table, [lost.id])
    assert await desk.shard.submit(CountOrdered(QUEUE, 10)) == 1


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("store_kind", STORES, indirect=True)
async def test_lost_jobs_do_not_stand_before_others_that_an_operator_deletes(
    store_kind: str, state: JobState, tmp_path: Path, desk: Desk
) -> None:
    lost = [await desk.put_in(state) for _ in range(4)]
    desk.clock.advance(ms=1)
    await desk.put_in(state)
    await Hand(store_kind, tmp_path).take_away("jobs", [key.id for key in lost])
    assert sum([await desk.purge(state, limit=2) for _ in range(3)]) == 5
    assert (await desk.counts())[1:6] == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("store_kind", ["mariadb", "mysql8"], indirect=True)
async def test_a_row_that_waits_although_its_job_is_claimed_or_finished_stops_no_queue(
    store_kind: str, tmp_path: Path, desk: Desk
) -> None:
    """As a transaction leaves it that was carried out by half. The job is handed out to no second worker."""
    held, finished = await desk.put_and_take(), await desk.put_in(JobState.SUCCEEDED)
    hand = Hand(store_kind, tmp_path)
    for key in (held.key, finished):
        await hand.do(
            f"INSERT INTO ready SELECT queue_id, priority, run_after_ms, id, 0, 5 FROM jobs WHERE id = {key.id}"
        )
    last = await desk.put(b"last")
    await desk.reopen()

    assert (await desk.take()).key == last
    assert await hand.count("ready") == 0
    assert (await desk.look(finished)).state is JobState.SUCCEEDED
    await hand.do(f"INSERT INTO done SELECT id, queue_id, 3, priority, 1, NULL FROM jobs WHERE id = {held.key.id}")
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await desk.succeed(last)
    await desk.shard.submit(CountJobs())
    assert (await desk.counts())[1:6] == (0, 0, 0, 3, 0)
