"""How much space a store takes."""

from __future__ import annotations

import pytest

from pinlater.wire.generated.structs import ShardSize
from tests.contract.desk import Desk

BODY = bytes(50_000)


@pytest.mark.differs
async def test_a_store_says_how_much_space_it_takes(desk: Desk) -> None:
    size, kind = await desk.shard.size(), desk.shard.capabilities.kind
    if kind == "memory":
        assert size == ShardSize()
        return
    assert (size.used_bytes or 0) > 0
    assert (size.log_bytes is not None) == (kind == "sqlite")
    assert (size.at_ms, size.late) == (None, None)


async def test_the_size_grows_with_the_jobs(desk: Desk) -> None:
    if desk.shard.capabilities.kind not in {"sqlite", "redis"}:
        pytest.skip("a memory store does not know its size, and MySQL counts its pages some seconds later")
    before = await desk.shard.size()
    for _ in range(40):
        await desk.put(BODY)
    after = await desk.shard.size()
    used = [(size.used_bytes or 0) + (size.log_bytes or 0) for size in (before, after)]
    assert used[1] - used[0] > 30 * len(BODY)


@pytest.mark.differs
async def test_the_size_costs_two_statements_at_most(desk: Desk) -> None:
    await desk.shard.size()  # connects
    before = desk.shard.figures().get("statements", 0)
    await desk.shard.size()
    assert desk.shard.figures().get("statements", 0) - before <= 2
