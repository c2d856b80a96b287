"""Groups of failures of a queue over several shards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
import pytest_asyncio

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import InvalidArgument, QueueNotFound, ShardConnectionFailed
from pinlater.domain.failures import (
    GROUP_KEPT_MS,
    HOUR_MS,
    HOURS_SHOWN,
    MUTED_MS_MAX,
    QUEUES_MAX,
    FailureKind,
)
from pinlater.domain.job import Holder
from pinlater.server.features.failures import groups
from pinlater.server.features.failures.groups import FailureQueries
from pinlater.server.features.history.rollup import MUTES_STEP_S
from pinlater.server.main.core import Core
from pinlater.server.storage.commands import ClaimJobs, FinishJobs, InsertJobs, ListFailures, ListSamples, SaveSamples
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import (
    ClaimCall,
    ClaimOrder,
    InsertRequest,
    JobAck,
    JobKey,
    NewJob,
    SampleRange,
    StoredFailures,
    StoredSample,
)
from tests.assembly import open_core, run_periodic


class BreakableShard(MemoryShard):
    """Fails to list its groups once it is broken. `most_queues`: of one call."""

    broken = False
    most_queues = 0

    async def _list_failures(self, queues: Sequence[str], from_hour: int) -> list[StoredFailures]:
        self.most_queues = max(self.most_queues, len(queues))
        if self.broken:
            raise ShardConnectionFailed("gone")
        found: list[StoredFailures] = await MemoryShard.table[ListFailures](self, queues, from_hour)
        return found

    table: ClassVar[Table] = MemoryShard.table | dict([entry_of(ListFailures)(_list_failures)])


class TwoShards:
    """A server on two shards. Failures are made on the shards themselves."""

    def __init__(self, core: Core, clock: ManualClock, shards: Sequence[BreakableShard]) -> None:
        self.core = core
        self.clock = clock
        self.shards = shards
        self._ids = 0

    async def fails(self, shard: int, error_type: str, times: int = 1) -> None:
        now_ms = self.clock.now_ms()
        for _ in range(times):
            self._ids += 1
            job = NewJob(self._ids, b"x", 1, now_ms, 1)
            await self.shards[shard].submit(InsertJobs([InsertRequest("q", [job])], now_ms))
            holder = Holder("host:1:1:worker:1", "worker", f"token{self._ids}")
            [claimed] = await self.shards[shard].submit(
                ClaimJobs([ClaimOrder("q", [ClaimCall(1, holder)], 60_000)], now_ms)
            )
            assert not isinstance(claimed, Exception)
            await self.shards[shard].submit(
                FinishJobs([JobAck(JobKey("q", 1, self._ids), False, error_type=error_type)], now_ms)
            )


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[TwoShards]:
    clock = ManualClock()
    shards = [BreakableShard("1"), BreakableShard("2")]
    core = await open_core(*shards, clock=clock)
    await core.service.queues.create_queue("q")
    yield TwoShards(core, clock, shards)
    await core.close()


async def test_a_group_is_the_sum_over_the_shards(pair: TwoShards) -> None:
    first_ms = pair.clock.now_ms()
    await pair.fails(0, "OSError", 2)
    pair.clock.advance(ms=HOUR_MS)
    await pair.fails(1, "OSError", 3)
    await pair.fails(1, "ValueError")
    found = await pair.core.service.of(FailureQueries).list_groups(["q"])
    one, other = found.groups
    assert (one.error_type, one.failures, one.first_ms, one.last_ms) == ("OSError", 5, first_ms, pair.clock.now_ms())
    assert one.sample_descriptor == "q:s2:p1:5"
    assert one.hours == [0] * (HOURS_SHOWN - 2) + [2, 3]
    assert (other.error_type, other.failures) == ("ValueError", 1)
    assert not found.incomplete


async def test_a_shard_that_does_not_answer_makes_the_answer_incomplete(pair: TwoShards) -> None:
    await pair.fails(0, "OSError")
    await pair.fails(1, "OSError")
    pair.shards[1].broken = True
    found = await pair.core.service.of(FailureQueries).list_groups(["q", "none"])
    assert (found.incomplete, [group.failures for group in found.groups]) == (True, [1])


async def test_the_groups_of_many_queues_are_read_in_pieces(pair: TwoShards) -> None:
    await pair.fails(0, "OSError")
    names = [f"none{number}" for number in range(QUEUES_MAX - 1)]
    found = await pair.core.service.of(FailureQueries).list_groups([*names, "q"])
    assert [group.failures for group in found.groups] == [1]
    assert 0 < pair.shards[0].most_queues < 10


async def test_those_with_the_most_failures_of_a_day_come_first_and_old_ones_are_left_out(pair: TwoShards) -> None:
    await pair.fails(0, "Old", 9)
    pair.clock.advance(ms=2 * 24 * HOUR_MS)
    await pair.fails(0, "New")
    await pair.fails(1, "Often", 2)
    found = await pair.core.service.of(FailureQueries).list_groups(["q"])
    assert [group.error_type for group in found.groups] == ["Often", "New", "Old"]
    pair.clock.advance(ms=GROUP_KEPT_MS - HOUR_MS)
    found = await pair.core.service.of(FailureQueries).list_groups(["q"])
    assert {group.error_type for group in found.groups} == {"Often", "New"}
    await run_periodic(pair.core, "failures-garbage")
    assert len(await pair.shards[0].submit(ListFailures(["q"], 0))) == 1


async def test_a_request_names_a_bounded_number_of_queues(pair: TwoShards) -> None:
    for names in ([], ["q"] * (QUEUES_MAX + 1)):
        with pytest.raises(InvalidArgument):
            await pair.core.service.of(FailureQueries).list_groups(names)
    with pytest.raises(QueueNotFound):
        await pair.core.service.of(FailureQueries).list_groups(["none"])
    assert (await pair.core.service.of(FailureQueries).list_groups(["q"])).groups == []


async def shown(pair: TwoShards) -> list[tuple[str, int]]:
    """The types of the errors in their order, with the ends of their mutes."""
    found = await pair.core.service.of(FailureQueries).list_groups(["q"])
    return [(group.error_type, group.muted_until_ms or 0) for group in found.groups]


async def mute(pair: TwoShards, error_type: str, until_ms: int | None = None) -> None:
    await pair.core.service.of(FailureQueries).mute("q", FailureKind("", error_type, "").group, until_ms)


async def test_a_muted_group_comes_last_and_still_counts(pair: TwoShards) -> None:
    await pair.fails(0, "Often", 3)
    await pair.fails(1, "Rare")
    now_ms = pair.clock.now_ms()
    await mute(pair, "Often", now_ms + HOUR_MS)
    await pair.fails(1, "Often")
    assert await shown(pair) == [("Rare", 0), ("Often", now_ms + HOUR_MS)]
    pair.clock.advance(ms=HOUR_MS)
    assert await shown(pair) == [("Often", 0), ("Rare", 0)]


async def test_a_mute_lasts_for_30_days_at_most_and_ends_when_an_operator_ends_it(pair: TwoShards) -> None:
    await pair.fails(0, "Often")
    longest_ms = pair.clock.now_ms() + MUTED_MS_MAX
    for until_ms in (None, 2**60):
        await mute(pair, "Often", until_ms)
        assert await shown(pair) == [("Often", longest_ms)]
    pair.clock.advance(ms=1)
    await mute(pair, "Often", 0)
    assert await shown(pair) == [("Often", 0)]


async def test_the_newest_change_of_any_shard_counts(pair: TwoShards) -> None:
    """So a shard that was unreachable when a mute was ended elsewhere does not bring it back."""
    await pair.fails(1, "Often")
    await mute(pair, "Often")
    pair.clock.advance(ms=1)
    ended = StoredSample(MUTES_STEP_S, pair.clock.now_ms(), "q", FailureKind("", "Often", "").group, b"0")
    for shard in pair.shards:
        if not await shard.submit(ListSamples([SampleRange(MUTES_STEP_S, 0, 2**50)])):
            await shard.submit(SaveSamples([ended]))
    assert await shown(pair) == [("Often", 0)]


async def test_a_mute_and_its_end_in_one_millisecond_or_by_another_clock(pair: TwoShards) -> None:
    """The change that was made last counts, on whatever shard the first one is."""
    await pair.fails(0, "Often")
    for shard in pair.shards:
        ahead = StoredSample(
            MUTES_STEP_S, pair.clock.now_ms() + 500, "q", FailureKind("", "Often", "").group, b"%d" % 2**50
        )
        await shard.submit(SaveSamples([ahead]))
    for until_ms in (0, None, 0):
        await mute(pair, "Often", until_ms)
        [(_, shown_ms)] = await shown(pair)
        assert (shown_ms > 0) is (until_ms is None)


async def test_the_changes_of_mutes_are_bounded_and_old_ones_are_deleted(
    pair: TwoShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mute can be ended after any number of them."""
    monkeypatch.setattr(groups, "MUTES_MAX", 5)
    await pair.fails(0, "Often")
    for _ in range(5):
        pair.clock.advance(ms=1)
        await mute(pair, "Often")
    await mute(pair, "Often", 0)
    await mute(pair, "Often", 0)
    assert await shown(pair) == [("Often", 0)]
    with pytest.raises(InvalidArgument, match="5 changes"):
        await mute(pair, "Often")
    pair.clock.advance(ms=MUTED_MS_MAX)
    await mute(pair, "Often")


async def test_what_cannot_be_muted_is_refused(pair: TwoShards) -> None:
    failures = pair.core.service.of(FailureQueries)
    for name in ("", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0", "0123456789abcde\n"):
        with pytest.raises(InvalidArgument, match="16 hexadecimal digits"):
            await failures.mute("q", name)
    with pytest.raises(QueueNotFound):
        await failures.mute("none", "0" * 16)
