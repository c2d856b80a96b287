"""Where a dequeue begins: on its server's own shard, unless older jobs wait elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.job import HandedOutJob
from pinlater.domain.slices import SLICES
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.sqlite.memory import MemoryShard


@pytest.fixture
async def shards() -> AsyncIterator[Shards]:
    """Three, of which this server owns every queue of the first and no queue of the others."""
    clock = ManualClock()
    made = Shards([ShardLanes(MemoryShard(name), clock) for name in ("own", "2", "3")], Random(7))
    for lanes in made:
        await lanes.unguarded.open(clock.now_ms())
        lanes.route([None] * SLICES, [lanes.name == "own"] * SLICES)
    yield made
    await made.close()


async def begins(shards: Shards, turns: int = 400) -> Counter[str]:
    """On which shard the claims of each turn of the event loop begin."""
    found: Counter[str] = Counter()
    for _ in range(turns):
        found[shards.for_claim("q", 1.0)[0].name] += 1
        await asyncio.sleep(0)
    return found


def job(shards: Shards, *, priority: int = 1, due_for_ms: int = 0) -> HandedOutJob:
    now_ms = shards.clock.now_ms()
    return HandedOutJob(1, priority, b"", 1, 1, 1, None, now_ms, now_ms - due_for_ms, now_ms)


async def test_most_claims_begin_on_the_own_shard_and_some_look_at_the_others(shards: Shards) -> None:
    found = await begins(shards)
    assert found["own"] > 340
    assert found["2"] > 0
    assert found["3"] > 0


async def test_all_claims_of_a_turn_have_one_order_but_for_one_that_looks_elsewhere(shards: Shards) -> None:
    """A turn claims with one call; what that one finds is enough to know how old the jobs elsewhere are."""
    looked = 0
    for _ in range(400):
        orders = [[shard.name for shard in shards.for_claim("q", 1.0)] for _ in range(10)]
        first, others = orders[0], orders[1:]
        assert all(order == others[0] for order in others)
        assert others[0][0] == "own"
        looked += first[0] != "own"
        await asyncio.sleep(0)
    assert 10 <= looked <= 50


async def test_a_claim_with_less_coverage_keeps_the_order_of_its_turn_and_looks_at_fewer_shards(shards: Shards) -> None:
    shards.for_claim("q", 1.0)
    order = [shard.name for shard in shards.for_claim("q", 1.0)]
    seen = set[str]()
    for _ in range(50):
        some = [shard.name for shard in shards.for_claim("q", 0.5)]
        assert len(some) == 2
        assert sorted(some, key=order.index) == some
        seen.update(some)
    assert seen == {"own", "2", "3"}


@pytest.mark.parametrize(
    ("own", "other", "first"),
    [
        ({}, {"due_for_ms": 499}, "own"),
        ({}, {"due_for_ms": 501}, "2"),
        ({"due_for_ms": 60_000}, {"due_for_ms": 501}, "own"),
        ({"priority": 2, "due_for_ms": 60_000}, {}, "2"),
        ({"priority": 1}, {"priority": 2, "due_for_ms": 60_000}, "own"),
        (None, {}, "2"),
    ],
)
async def test_older_and_more_urgent_jobs_of_other_shards_go_first(
    shards: Shards, own: dict[str, int] | None, other: dict[str, int], first: str
) -> None:
    """None: the last claim there found no job."""
    shards.oldest_jobs.note("q", "own", [] if own is None else [job(shards, **own)])
    shards.oldest_jobs.note("q", "2", [job(shards, **other)])
    found = await begins(shards)
    assert found[first] > 340


async def test_an_own_shard_that_was_empty_is_asked_again(shards: Shards) -> None:
    shards.oldest_jobs.note("q", "own", [])
    shards.oldest_jobs.note("q", "2", [job(shards)])
    shards.clock.advance(ms=50)  # type: ignore[attr-defined]
    assert (await begins(shards))["own"] > 340


async def test_a_dequeue_does_not_begin_with_an_unreachable_shard_even_if_its_jobs_are_older(shards: Shards) -> None:
    shards.oldest_jobs.note("q", "own", [job(shards)])
    shards.oldest_jobs.note("q", "2", [job(shards, due_for_ms=60_000)])
    lost = shards.get("2")
    assert lost is not None
    lost.put_out_of_use("gone")
    assert (await begins(shards))["own"] > 340
