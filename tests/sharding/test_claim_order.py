"""Which shards a dequeue asks, and in which order: the most urgent heads first, as far as they are known."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import NoHealthyShards
from pinlater.domain.job import HandedOutJob
from pinlater.domain.slices import SLICES
from pinlater.server.sharding.heads import SEEN_S_MAX
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.sharding.strays import COUNTED_S_MAX
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import Claimed

NAMES = ("own", "2", "3")


@pytest.fixture
async def shards() -> AsyncIterator[Shards]:
    """Three, all partitions, of which this server owns every queue of the first and no queue of the others."""
    clock = ManualClock()
    made = Shards([ShardLanes(MemoryShard(name), clock) for name in NAMES], Random(7))
    made.partitions.number_of = lambda _: 3
    for lanes in made:
        await lanes.unguarded.open(clock.now_ms())
        lanes.route([None] * SLICES, [lanes.name == "own"] * SLICES)
    yield made
    await made.close()


async def begins(shards: Shards, turns: int = 200) -> Counter[str]:
    """On which shard the claims of each turn of the event loop begin."""
    found: Counter[str] = Counter()
    for _ in range(turns):
        found[shards.for_claim("q", 1.0)[0].name] += 1
        await asyncio.sleep(0)
    return found


def asked(shards: Shards, coverage: float = 1.0) -> list[str]:
    return [shard.name for shard in shards.for_claim("q", coverage)]


def claimed(shards: Shards, name: str, *, priority: int = 1, due_for_ms: int = 0) -> None:
    """A claim there gave a job such as this."""
    now_ms = shards.clock.now_ms()
    job = HandedOutJob(1, priority, b"", 1, 1, 1, None, now_ms, now_ms - due_for_ms, now_ms)
    shards.heads.claimed("q", name, 1, Claimed([[job]]), shards.clock.monotonic())


def empty(shards: Shards, name: str) -> None:
    """A claim there found no job."""
    shards.heads.claimed("q", name, 1, Claimed([[]]), shards.clock.monotonic())


async def count(shards: Shards, **queues: set[str]) -> None:
    """Each shard was counted, and holds jobs of these queues."""
    shards.clock.advance(ms=1)  # type: ignore[attr-defined]
    for name in NAMES:
        shards.strays.counted(name, queues.get(name, set()), shards.clock.monotonic())
    await asyncio.sleep(0)


# --- in which order --------------------------------------------------------------------------------------------------------------


async def test_claims_begin_on_the_own_shard_while_no_head_is_known(shards: Shards) -> None:
    assert await begins(shards) == {"own": 200}


async def test_all_claims_of_a_turn_have_one_order(shards: Shards) -> None:
    """So that one call has what they ask for."""
    for name in ("2", "3"):
        claimed(shards, name)
    claimed(shards, "own", due_for_ms=10_000)
    orders = set[tuple[str, ...]]()
    for _ in range(50):
        [one] = {tuple(asked(shards)) for _ in range(10)}
        orders.add(one)
        await asyncio.sleep(0)
    assert orders == {("own", "2", "3"), ("own", "3", "2")}


async def test_a_claim_with_less_coverage_keeps_the_order_of_its_turn_and_looks_at_fewer_shards(shards: Shards) -> None:
    order = asked(shards)
    seen = set[str]()
    for _ in range(50):
        some = asked(shards, 0.5)
        assert len(some) == 2
        assert sorted(some, key=order.index) == some
        seen.update(some)
    assert seen == set(NAMES)


@pytest.mark.parametrize(
    ("own", "other", "first"),
    [
        ({}, {"due_for_ms": 400}, "own"),
        ({}, {"due_for_ms": 1_100}, "2"),
        ({"due_for_ms": 60_000}, {"due_for_ms": 1_100}, "own"),
        ({"priority": 2, "due_for_ms": 60_000}, {}, "2"),
        ({"priority": 1}, {"priority": 2, "due_for_ms": 60_000}, "own"),
        (None, {}, "2"),
    ],
)
async def test_older_and_more_urgent_jobs_of_other_shards_go_first(
    shards: Shards, own: dict[str, int] | None, other: dict[str, int], first: str
) -> None:
    """None: the last claim there found no job. Heads that became due at about the same time are equally good."""
    shards.clock.advance(ms=500 - shards.clock.now_ms() % 512)  # type: ignore[attr-defined]
    if own is None:
        empty(shards, "own")
    else:
        claimed(shards, "own", **own)
    claimed(shards, "2", **other)
    empty(shards, "3")
    assert await begins(shards) == {first: 200}


async def test_a_shard_whose_head_is_not_known_any_more_is_asked_first(shards: Shards) -> None:
    claimed(shards, "own")
    empty(shards, "2")
    claimed(shards, "3", priority=5)
    assert asked(shards) == ["own", "3", "2"]
    await asyncio.sleep(0)
    shards.clock.advance(ms=51)  # type: ignore[attr-defined]
    assert asked(shards) == ["2", "own", "3"]
    await asyncio.sleep(0)
    shards.clock.advance(ms=int(SEEN_S_MAX * 1000))  # type: ignore[attr-defined]
    empty(shards, "own")
    assert asked(shards)[2] == "own"


async def test_a_dequeue_does_not_ask_an_unreachable_shard_even_if_its_jobs_are_older(shards: Shards) -> None:
    claimed(shards, "own")
    claimed(shards, "2", due_for_ms=60_000)
    empty(shards, "3")
    lost = shards.get("2")
    assert lost is not None
    lost.put_out_of_use("gone")
    assert asked(shards) == ["own", "3"]


# --- which ones ------------------------------------------------------------------------------------------------------------------


async def test_only_partitions_and_shards_that_hold_jobs_of_the_queue_are_asked_once_all_are_counted(
    shards: Shards,
) -> None:
    shards.partitions.number_of = lambda _: 1
    first, second, third = [shard.name for shard in shards.partitions.order("q")]
    assert set(asked(shards)) == set(NAMES)
    await count(shards)
    assert asked(shards) == [first]
    await count(shards, **{second: {"other"}, third: {"q"}})
    assert set(asked(shards)) == {first, third}


async def test_a_count_that_is_too_old_says_nothing(shards: Shards) -> None:
    shards.partitions.number_of = lambda _: 1
    await count(shards)
    shards.clock.advance(ms=int(COUNTED_S_MAX * 1000) + 1)  # type: ignore[attr-defined]
    assert set(asked(shards)) == set(NAMES)


async def test_what_was_heard_during_a_count_outlasts_it(shards: Shards) -> None:
    """The job may have come after the count looked."""
    shards.partitions.number_of = lambda _: 1
    first, second, _ = [shard.name for shard in shards.partitions.order("q")]
    await count(shards)
    began_s = shards.clock.monotonic()
    shards.clock.advance(ms=1)  # type: ignore[attr-defined]
    shards.strays.heard("q", [second])
    shards.strays.counted(second, set(), began_s)
    assert set(asked(shards)) == {first, second}
    await count(shards)
    assert asked(shards) == [first]


async def test_a_claim_that_finds_none_ends_what_was_heard_and_not_what_was_counted(shards: Shards) -> None:
    """Jobs in hand, or due later, are counted, too."""
    shards.partitions.number_of = lambda _: 1
    first, second, third = [shard.name for shard in shards.partitions.order("q")]
    await count(shards, **{second: {"q"}})
    shards.strays.heard("q", [third])
    for name in (second, third):
        lanes = shards.get(name)
        assert lanes is not None
        shards.clock.advance(ms=1)  # type: ignore[attr-defined]
        shards.note_claim("q", lanes, [], shards.clock.monotonic(), waiting=False)
    assert set(asked(shards)) == {first, second}


async def test_a_shard_that_comes_back_into_the_map_may_have_jobs_of_every_queue(shards: Shards) -> None:
    shards.partitions.number_of = lambda _: 1
    await count(shards)
    lanes = list(shards)
    shards.take_over_map(lanes[:2])
    shards.take_over_map(lanes)
    assert "3" in asked(shards)


async def test_a_count_that_began_before_a_shard_ceased_to_take_enqueues_does_not_count(shards: Shards) -> None:
    """It was a partition then, and may have got jobs meanwhile that nothing told of as strays."""
    shards.partitions.number_of = lambda _: 1
    former = shards.partitions.order("q")[0]
    began_s = shards.clock.monotonic()
    shards.clock.advance(ms=1)  # type: ignore[attr-defined]
    shards.change_enqueues(former, takes=False)
    shards.strays.counted(former.name, set(), began_s)
    assert former.name in asked(shards)
    await count(shards)
    assert former.name not in asked(shards)


async def test_a_queue_whose_partition_is_unreachable_is_asked_for_on_one_shard_at_least(shards: Shards) -> None:
    """Which says that there are none."""
    shards.partitions.number_of = lambda _: 1
    order = list(shards.partitions.order("q"))
    await count(shards)
    order[0].put_out_of_use("gone")
    assert asked(shards) == [order[1].name]
    for shard in order[1:]:
        shard.put_out_of_use("gone")
    await asyncio.sleep(0)
    with pytest.raises(NoHealthyShards):
        asked(shards)
