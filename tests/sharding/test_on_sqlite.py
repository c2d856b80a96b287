"""Several SQLite files as shards, each of which may fail: what the stores keep for this is kept, also across a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinlater.domain.clock import ManualClock, SystemClock
from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import Holder, JobState
from pinlater.domain.queue import QueueConfig
from pinlater.server.operations.values import Caller
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import InsertJobs, create_queues
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import ClaimCall, Inserted, InsertRequest, NewJob
from pinlater.wire.generated.structs import Ack, AckBatch, CountRequest, DequeueRequest, Enqueued, EnqueueRequest, Job
from tests.assembly import open_core
from tests.handed_out import DequeuedJobs, answer_of
from tests.sharding.faulty import FaultyShard
from tests.sharding.sharded_server import shard_of, shards_of

CALLER = Caller("tests")


class Files:
    """A service on files of these names in one folder."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.stores: dict[str, FaultyShard] = {}
        self._folder = folder

    def desired(self, name: str, *, takes_enqueues: bool = True) -> DesiredShard:
        def make() -> SqliteShard:
            file = self._folder / f"{name}.db"
            self.stores[name] = FaultyShard(SqliteShard(file, SqliteSettings(wal_reserve_kib=64), name))
            return self.stores[name].as_shard()  # type: ignore[return-value]

        return DesiredShard(name, make, takes_enqueues=takes_enqueues)

    async def open(self, *names: str) -> None:
        self.core = await open_core(*map(self.desired, names), clock=self.clock)
        self.shards, self.service = self.core.shards, self.core.service
        await self.service.queues.create_queue("q")
        await self.service.queues.configure_queue("q", QueueConfig(partitions=len(names)))
        await self.learn()

    async def learn(self) -> None:
        await self.shards.unique.learn(list(self.shards))

    async def close(self) -> None:
        await self.core.close()

    async def enqueue(
        self, body: bytes, *, unique: str | None = None, key: str | None = None, repeat: bool = False
    ) -> Enqueued:
        job = Job(body, unique_key=unique)
        return await self.service.enqueuing.enqueue(EnqueueRequest("q", [job], request_key=key, repeated=repeat))

    async def dequeue(self) -> DequeuedJobs:
        return answer_of("q", await self.service.dequeuing.dequeue(CALLER, DequeueRequest("q", 100)))

    async def pending(self) -> int:
        return await self.service.job_queries.count(CountRequest("q", JobState.PENDING))


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    files = Files(tmp_path)
    await files.open("1", "2", "3")
    yield files
    await files.close()


async def test_jobs_on_all_files_are_handed_out_and_acked(files: Files) -> None:
    stored = [(await files.enqueue(b"%d" % number)).descriptors[0] for number in range(30)]
    assert {shard_of(descriptor) for descriptor in stored} == {"1", "2", "3"}
    jobs = (await files.dequeue()).jobs
    assert {job.descriptor for job in jobs} == set(stored)
    await files.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(each) for each in stored]))
    assert await files.service.job_queries.count(CountRequest("q", JobState.SUCCEEDED)) == 30


async def test_a_repeat_is_found_after_a_restart_and_a_change_of_the_map(files: Files) -> None:
    """Wherever it was put."""
    first = {f"r{number}": await files.enqueue(b"x", key=f"r{number}") for number in range(10)}
    await files.close()
    await files.open("1", "2", "3", "4")
    for key, enqueued in first.items():
        assert await files.enqueue(b"x", key=key, repeat=True) == enqueued
    assert await files.pending() == 10


async def test_a_lost_answer_is_found_by_the_repeat(files: Files) -> None:
    for store in files.stores.values():
        store.fails(InsertJobs, error=OutcomeUnknown("lost"), done_first=True)
    with pytest.raises(OutcomeUnknown):
        await files.enqueue(b"x", key="r")
    for store in files.stores.values():
        store.recover()
    [lost] = (await files.enqueue(b"x", key="r", repeat=True)).descriptors
    assert await files.pending() == 1
    files.shards.get(shard_of(lost)).put_out_of_use("test")  # type: ignore[union-attr]
    with pytest.raises(ShardConnectionFailed):
        await files.enqueue(b"x", key="r", repeat=True)


async def test_old_unique_keys_count_after_a_restart_and_a_change_of_the_map(files: Files) -> None:
    first = {f"u{number}": await files.enqueue(b"x", unique=f"u{number}") for number in range(20)}
    assert {shard_of(each) for enqueued in first.values() for each in enqueued.descriptors} == {"3"}
    await files.close()
    files.clock.advance(hours=1)
    await files.open("1", "2", "3", "4")
    assert files.shards.home_of("q", "u0").name == "4"
    for _ in range(2):
        for key, enqueued in first.items():
            assert (await files.enqueue(b"y", unique=key)).descriptors == enqueued.descriptors
        files.clock.advance(seconds=61)
        await files.learn()
    assert await files.pending() == 20
    assert shards_of(await files.enqueue(b"x", unique="new")) == ["4"]


async def test_a_file_is_added_drained_and_removed_while_requests_go_on(files: Files) -> None:
    await files.core.shard_map.replace([files.desired(name) for name in "1234"])
    while "4" not in shards_of(await files.enqueue(b"x")):
        pass
    await files.core.shard_map.replace(
        [*(files.desired(name) for name in "123"), files.desired("4", takes_enqueues=False)]
    )
    before = await files.pending()
    await asyncio.gather(*(files.enqueue(b"x") for _ in range(20)))
    assert await files.pending() == before + 20
    files.clock.advance(seconds=151)
    change = await files.core.shard_map.replace([files.desired(name) for name in "123"])
    assert "live job" in change.kept["4"]
    while jobs := (await files.dequeue()).jobs:
        await files.service.claimed_jobs.acknowledge(CALLER, AckBatch("q", [Ack(job.descriptor) for job in jobs]))
    await files.core.shard_map.tidy()
    assert [shard.name for shard in files.shards] == ["1", "2", "3"]


@asynccontextmanager
async def lanes_on(path: Path) -> AsyncIterator[ShardLanes]:
    """The lanes of a shard with the queue `q`."""
    clock = SystemClock()
    shard = SqliteShard(path / "jobs.db")
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    lanes = ShardLanes(shard, clock)
    yield lanes
    await asyncio.wait_for(lanes.close(), 20)


def request(lanes: ShardLanes, body: bytes = b"x") -> InsertRequest:
    return InsertRequest("q", [NewJob(lanes.ids.make(1)[0], body, 1, 0, 1)])


def claim_of(number: int, limit: int = 1) -> ClaimRequest:
    return ClaimRequest("q", ClaimCall(limit, Holder(str(number), "worker", str(number))), 60_000)


class BrokenBody(bytes):
    """One whose length can't be told once its request waits."""

    measured = 0

    def __len__(self) -> int:
        self.measured += 1
        if self.measured > 1:
            raise ZeroDivisionError
        return 1


async def test_a_request_that_makes_the_store_raise_before_its_transaction_harms_only_itself(tmp_path: Path) -> None:
    async with lanes_on(tmp_path) as lanes:
        bodies = (b"x", BrokenBody(b"b"), b"y")
        asked = [lanes.insert.submit(request(lanes, body)) for body in bodies]
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        assert [type(answer) for answer in answers] == [Inserted, ZeroDivisionError, Inserted]
        claimed = await asyncio.wait_for(lanes.claim.submit(claim_of(1, 10)), 20)
        assert [job.body for job in claimed.jobs[0]] == [b"x", b"y"]


class BrokenAsker:
    """A caller whose answer can't be given to it."""

    def done(self) -> bool:
        return False

    def set_result(self, result: object, /) -> None:
        raise ZeroDivisionError

    set_exception = set_result


@pytest.mark.parametrize("stored", [True, False], ids=["an answer", "an error"])
async def test_a_caller_that_takes_no_answer_stops_neither_its_lane_nor_another(tmp_path: Path, stored: bool) -> None:
    async with lanes_on(tmp_path) as lanes:
        lanes.insert.submit(request(lanes, b"x" if stored else BrokenBody(b"b")), BrokenAsker())
        claiming = lanes.claim.submit(claim_of(1, 10))
        assert len((await asyncio.wait_for(claiming, 20)).jobs[0]) == stored
        await asyncio.wait_for(lanes.insert.submit(request(lanes)), 20)
        assert len((await asyncio.wait_for(lanes.claim.submit(claim_of(2)), 20)).jobs[0]) == 1


async def test_claims_of_an_empty_queue_that_are_more_than_one_command_holds_are_answered_each_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The writer answers the first from memory, and looks at the others in its next turn."""
    calls = [claim_of(number, 1_000) for number in range(24)]
    async with lanes_on(tmp_path) as lanes:
        for _ in range(3):  # the first looks into the file
            answers = await asyncio.wait_for(asyncio.gather(*[lanes.claim.submit(call) for call in calls]), 20)
            assert [list(answer.jobs[0]) for answer in answers] == [[]] * 24
        claiming = [lanes.claim.submit(call) for call in calls]
        stored = lanes.insert.submit(request(lanes))
        answers = await asyncio.wait_for(asyncio.gather(*claiming), 20)
        await asyncio.wait_for(stored, 20)
        again = await asyncio.wait_for(lanes.claim.submit(calls[0]), 20)
        assert sum(len(answer.jobs[0]) for answer in [*answers, again]) == 1
        assert lanes.claim.length == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
