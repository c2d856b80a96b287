"""What a server does with the calls of other servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.cluster.forwarding.carry_out import CarryOut
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.storage.values import NO_END_MS


class FakeShards(dict[str, Any]):
    """By name."""

    clock = SystemClock()


@pytest.mark.parametrize("kind", CallKind)
async def test_calls_for_a_shard_that_the_owner_can_not_reach_are_refused_at_once(kind: CallKind) -> None:
    shards = FakeShards({"1": SimpleNamespace(healthy=False)})
    for shard in ("1", "2"):
        with pytest.raises(ShardConnectionFailed):
            await CarryOut(cast("Any", shards), print)(kind, shard, [], NO_END_MS, 0)


@pytest.mark.parametrize("kind", CallKind)
async def test_calls_that_come_too_late_are_not_begun(kind: CallKind) -> None:
    shards = FakeShards({"1": SimpleNamespace(healthy=True)})
    with pytest.raises(ShardConnectionFailed, match="too late"):
        await CarryOut(cast("Any", shards), print)(kind, "1", [], shards.clock.now_ms() - 1_000, 0)
