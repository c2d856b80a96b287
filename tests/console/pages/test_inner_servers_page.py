"""Rows of shards, from the answers of servers in states that the sample of a cluster does not have."""

from __future__ import annotations

import pytest

from pinlater.client import ClusterShard, ShardDetails, ShardDrain, ShardJobs
from pinlater.console.endpoints.forms import like
from pinlater.console.endpoints.servers import ClusterShardItem
from pinlater.console.pages.servers import shard_row


def _shard(shard: ClusterShard) -> ClusterShardItem:
    return like(ClusterShardItem, shard)


def _row(**given: object) -> ClusterShard:
    return ClusterShard("1", True, 1, [], details=ShardDetails("mysql", "", False, 1)._replace(**given))  # type: ignore[arg-type]


def test_a_drain_whose_jobs_grow_or_are_not_counted_has_no_share_below_0() -> None:
    grown = shard_row(_shard(_row(drain=ShardDrain(1, live_at_first=5), jobs=ShardJobs(1, 10)))).drain
    assert grown is not None
    assert (grown.live, grown.done) == (10, 0.0)
    unknown = shard_row(_shard(_row(drain=ShardDrain(1)))).drain
    assert unknown is not None
    assert (unknown.live, unknown.done) == (None, None)
    empty = shard_row(_shard(_row(drain=ShardDrain(1, live_at_first=0), jobs=ShardJobs(1)))).drain
    assert empty is not None
    assert empty.done == 100.0


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"failure": "db-1: reset", "failure_kind": "connection"}, "db-1: reset"),
        ({"failure_kind": "timeout"}, "it did not answer in time"),
        ({"failure_kind": "of a newer server"}, "of a newer server"),
        ({}, ""),
    ],
)
def test_a_visitor_who_may_not_see_the_text_of_a_failure_sees_its_kind(given: dict[str, str], shown: str) -> None:
    row = shard_row(_shard(_row(**given)._replace(in_reach=False)))
    assert (row.failure, row.marks[0].why) == (shown, shown)


def test_a_shard_whose_jobs_were_counted_before_it_was_lost_is_not_shown_as_empty() -> None:
    drained = _row(drain=ShardDrain(1, live_at_first=5), jobs=ShardJobs(1), probing=True)
    lost = shard_row(_shard(drained)).drain
    assert lost is not None
    assert not lost.is_empty
