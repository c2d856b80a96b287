"""The audit of a server: entries reach a shard that answers, are read from all shards, and stop no call."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import ClassVar

import pytest
import pytest_asyncio
from msgspec.structs import replace

from pinlater.domain.caller_names import NamedCaller
from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, OutcomeUnknown, ShardConnectionFailed
from pinlater.server.features.audit.buffer import ENTRIES_A_WRITE, FLUSH_MS, LOST, WAITING_MAX, AuditBuffer
from pinlater.server.features.audit.settings import AuditSettings
from pinlater.server.features.audit.trail import AuditTrail, entry_for, packed, unpacked
from pinlater.server.main.core import Core
from pinlater.server.operations.changes import AdministrativeChange, ChangeOutcome
from pinlater.server.storage.commands import AddToTrail, ListTrail
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import TrailEntry
from pinlater.server.telemetry.metrics import Metrics
from pinlater.wire.generated.structs import AuditEntry, AuditRequest
from tests.assembly import open_core, run_periodic

DAY_MS = 86_400_000


class FailingShard(MemoryShard):
    """Fails writes of the audit with `failure`, before or after it stored them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.failure: Exception | None = None
        self.stores_first = False
        self.reads_fail = False

    async def _add_to_trail(self, records: Sequence[TrailEntry], records_max: int) -> None:
        if self.failure is None or self.stores_first:
            await MemoryShard.table[AddToTrail](self, records, records_max)
        if self.failure is not None:
            raise self.failure

    async def _list_trail(self, since: str, before: str, limit: int) -> list[TrailEntry]:
        if self.reads_fail:
            raise ShardConnectionFailed("gone")
        found: list[TrailEntry] = await MemoryShard.table[ListTrail](self, since, before, limit)
        return found

    table: ClassVar[Table] = MemoryShard.table | dict(
        [entry_of(AddToTrail)(_add_to_trail), entry_of(ListTrail)(_list_trail)]
    )


class TwoShards:
    """A server on two shards."""

    def __init__(self, core: Core, clock: ManualClock, shards: Sequence[FailingShard]) -> None:
        self.core = core
        self.trail = core.service.of(AuditTrail)
        self.clock = clock
        self.shards = shards

    async def put(self, *changes: AdministrativeChange) -> None:
        for each in changes:
            self.clock.advance(ms=1)
            self.trail.note(each)
            await self.trail.buffer.flush()

    async def operations(self, **wanted: object) -> list[str]:
        """Of a page, newest first."""
        return [found.operation for found in (await self.trail.read(AuditRequest(**wanted))).entries]  # type: ignore[arg-type]

    async def on_shards(self) -> list[int]:
        return [len(await MemoryShard.table[ListTrail](shard, "", "", 1_000)) for shard in self.shards]

    @property
    def lost(self) -> int:
        return dict(self.core.metrics.snapshot().counters).get(LOST, 0)


def change(operation: str = "pauseQueue", who: str = "ops", queue: str = "q") -> AdministrativeChange:
    return AdministrativeChange(operation, queue, {"a": 1}, NamedCaller(who, ("operate",)), "cli", "10.0.0.1", jobs=3)


def entry(operation: str = "pauseQueue") -> AuditEntry:
    return entry_for(change(operation))


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[TwoShards]:
    clock, shards = ManualClock(), [FailingShard("1"), FailingShard("2")]
    core = await open_core(*shards, clock=clock, audit=AuditSettings(max_entries=1_000))
    yield TwoShards(core, clock, shards)
    await core.close()


async def test_an_entry_is_read_as_it_was_noted_with_its_id_time_and_server(pair: TwoShards) -> None:
    await pair.put(change())

    [found] = (await pair.trail.read(AuditRequest())).entries

    assert found == replace(entry(), id=found.id, at_ms=pair.clock.now_ms(), server="host:0")
    assert found.id.startswith(f"{pair.clock.now_ms():013d}-")


async def test_an_entry_that_is_not_written_yet_is_read_too(pair: TwoShards) -> None:
    pair.trail.note(change("createQueue"))

    assert await pair.operations() == ["createQueue"]
    assert await pair.on_shards() == [0, 0]


async def test_noting_writes_nothing_and_a_flush_without_entries_asks_no_shard(pair: TwoShards) -> None:
    for shard in pair.shards:
        shard.failure = AssertionError("a shard was asked")

    assert await pair.trail.buffer.flush() is None
    pair.trail.note(change())
    assert await pair.on_shards() == [0, 0]
    for shard in pair.shards:
        shard.failure = None


async def test_entries_of_all_shards_are_merged_newest_first(pair: TwoShards) -> None:
    names = [f"op{number}" for number in range(30)]
    await pair.put(*(change(name) for name in names))

    assert await pair.operations() == names[::-1]
    assert min(await pair.on_shards()) > 0


@pytest.mark.parametrize("failure", [ShardConnectionFailed("out"), OutcomeUnknown("lost")])
async def test_while_a_shard_fails_the_other_one_keeps_the_entries(pair: TwoShards, failure: Exception) -> None:
    pair.shards[0].failure = failure
    await pair.put(*(change(f"op{number}") for number in range(10)))

    assert await pair.on_shards() == [0, 10]
    assert pair.lost == 0


async def test_an_entry_whose_answer_was_lost_is_on_two_shards_and_is_read_once(pair: TwoShards) -> None:
    for shard in pair.shards:
        shard.failure, shard.stores_first = OutcomeUnknown("lost"), True
    await pair.put(change())
    assert await pair.on_shards() == [1, 1]
    for shard in pair.shards:
        shard.failure = None
    assert await pair.trail.buffer.flush() is None

    assert await pair.operations() == ["pauseQueue"]


async def test_with_all_shards_out_entries_wait_and_are_stored_when_a_shard_is_back(
    pair: TwoShards, caplog: pytest.LogCaptureFixture
) -> None:
    for shard in pair.shards:
        shard.failure = ShardConnectionFailed("out")
    with caplog.at_level(logging.INFO):
        pair.trail.note(change())
        pauses = [await pair.trail.buffer.flush() for _ in range(12)]
        pair.shards[1].failure = None
        assert await pair.trail.buffer.flush() is None

    assert pauses[:3] == [FLUSH_MS / 500, FLUSH_MS / 250, FLUSH_MS / 125]
    assert pauses[-1] == 15.0
    assert await pair.on_shards() == [0, 1]
    assert pair.trail.buffer.waiting == ()
    assert [record.getMessage() for record in caplog.records] == [
        "audit entries can't be stored now",
        "audit entries are stored again",
    ]


async def test_entries_beyond_the_buffer_are_counted_and_the_earlier_ones_stay(pair: TwoShards) -> None:
    for shard in pair.shards:
        shard.failure = ShardConnectionFailed("out")
    for number in range(WAITING_MAX + 3):
        pair.trail.note(change(f"op{number}"))
    assert pair.lost == 3
    for shard in pair.shards:
        shard.failure = None
    await pair.trail.buffer.flush()

    assert sum(await pair.on_shards()) == WAITING_MAX
    assert (await pair.operations())[0] == f"op{WAITING_MAX - 1}"


async def test_a_server_that_stops_writes_what_waits(pair: TwoShards) -> None:
    pair.trail.note(change())
    await pair.trail.buffer.close()

    assert sum(await pair.on_shards()) == 1


async def test_what_a_stopping_server_can_not_store_is_counted_as_lost(pair: TwoShards) -> None:
    for shard in pair.shards:
        shard.failure = ShardConnectionFailed("out")
    pair.trail.note(change())
    await pair.trail.buffer.close()

    assert pair.lost == 1


async def test_one_write_has_a_bounded_number_of_entries() -> None:
    writes: list[int] = []

    async def store(entries: Sequence[AuditEntry]) -> None:
        writes.append(len(entries))

    buffer = AuditBuffer(store, Metrics(), ManualClock(), Random(1))
    for _ in range(ENTRIES_A_WRITE + 1):
        buffer.add(entry())
    await buffer.flush()

    assert writes == [ENTRIES_A_WRITE, 1]


async def test_filters_choose_by_queue_caller_operation_and_time(pair: TwoShards) -> None:
    await pair.put(change("a", "ops", "q"))
    at_ms = pair.clock.now_ms()
    await pair.put(change("b", "bob", "q"), change("c", "ops", "other"))

    assert await pair.operations(queue="q") == ["b", "a"]
    assert await pair.operations(who="ops") == ["c", "a"]
    assert await pair.operations(operation="b", who="bob", queue="q") == ["b"]
    assert await pair.operations(operation="b", who="ops") == []
    assert await pair.operations(since_ms=at_ms + 1) == ["c", "b"]
    assert await pair.operations(until_ms=at_ms + 1) == ["a"]
    assert await pair.operations(since_ms=at_ms + 1, until_ms=at_ms + 2) == ["b"]
    assert await pair.operations(until_ms=0) == []


@pytest.mark.parametrize("text", ['a"b\\c', "größer 🙂", "\x00\u2028", "x" * 200])
async def test_a_filter_finds_texts_that_json_writes_in_another_way(pair: TwoShards, text: str) -> None:
    await pair.put(change("a", text, text), change(text, "ops", "q"))

    assert await pair.operations(queue=text, who=text) == ["a"]
    assert await pair.operations(operation=text) == [text]


async def test_pages_follow_each_other_without_gap_and_repeat(pair: TwoShards) -> None:
    await pair.put(*(change(f"op{number}", queue="q" if number % 3 else "other") for number in range(40)))
    found: list[str] = []
    continuation = ""
    for _ in range(100):
        page = await pair.trail.read(AuditRequest(queue="q", limit=4, continuation=continuation))
        found += [each.operation for each in page.entries]
        continuation = page.continuation or ""
        if not continuation:
            break

    assert found == [f"op{number}" for number in range(39, -1, -1) if number % 3]


async def test_a_page_that_finds_nothing_among_many_entries_ends_with_a_continuation(pair: TwoShards) -> None:
    """One call reads a bounded number of entries, and the next one goes on there."""
    records = [
        packed(replace(entry("rare" if not number else "common"), id=f"{number:013d}-{number:014x}", at_ms=number))
        for number in range(6_000)
    ]
    await MemoryShard.table[AddToTrail](pair.shards[0], records, 10_000)

    first = await pair.trail.read(AuditRequest(operation="rare"))
    second = await pair.trail.read(AuditRequest(operation="rare", continuation=first.continuation))

    assert (first.entries, bool(first.continuation)) == ([], True)
    assert ([each.operation for each in second.entries], second.continuation) == (["rare"], None)


async def test_a_page_says_that_a_shard_is_missing(pair: TwoShards) -> None:
    await pair.put(*(change(f"op{number}") for number in range(20)))
    pair.shards[0].reads_fail = True

    page = await pair.trail.read(AuditRequest())

    assert page.incomplete
    assert len(page.entries) == (await pair.on_shards())[1]
    pair.shards[0].reads_fail = False
    assert not (await pair.trail.read(AuditRequest())).incomplete


@pytest.mark.parametrize("limit", [0, -1, 501])
async def test_a_limit_out_of_its_range_is_refused(pair: TwoShards, limit: int) -> None:
    with pytest.raises(InvalidArgument, match="limit must be from 1 to 500"):
        await pair.trail.read(AuditRequest(limit=limit))


@pytest.mark.parametrize("continuation", ["x", "0", "~", "1" * 13, "1" * 13 + "-" + "g" * 14, "\x00", "9" * 10_000])
async def test_a_continuation_that_no_server_gave_is_refused(pair: TwoShards, continuation: str) -> None:
    with pytest.raises(ContinuationInvalid):
        await pair.trail.read(AuditRequest(continuation=continuation))


async def test_old_entries_are_pruned_on_every_shard(pair: TwoShards) -> None:
    await pair.put(*(change(f"old{number}") for number in range(10)))
    pair.clock.advance(ms=31 * DAY_MS)
    await pair.put(change("new"))
    await run_periodic(pair.core, "audit-garbage")

    assert await pair.operations() == ["new"]
    assert sum(await pair.on_shards()) == 1


async def test_with_no_entries_allowed_nothing_is_stored() -> None:
    shard = FailingShard("1")
    shard.failure = AssertionError("a shard was asked")
    core = await open_core(shard, clock=ManualClock(), audit=AuditSettings(max_entries=0))
    core.service.of(AuditTrail).note(change())
    await core.service.of(AuditTrail).buffer.flush()

    assert (await core.service.of(AuditTrail).read(AuditRequest())).entries == []
    await core.close()


def test_an_entry_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    known = replace(entry(), id="1" * 13 + "-" + "0" * 14, at_ms=5)
    record = packed(known)
    newer = record._replace(content=record.content.replace(b"{", b'{"newer":[1],', 1))

    assert unpacked(record) == unpacked(newer) == known


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b"\xff", b'{"at_ms":"x"}', b'{"at_ms":1,"roles":5}'])
def test_an_entry_that_can_not_be_read_says_so_and_hides_no_other(content: bytes) -> None:
    found = unpacked(TrailEntry("0000000000005-00", content))

    assert (found.at_ms, found.operation) == (5, "(unreadable)")


def test_outcomes_are_words() -> None:
    assert [outcome.value for outcome in ChangeOutcome] == ["ok", "refused", "failed", "unknown"]
