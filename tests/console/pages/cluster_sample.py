"""What a server says of three servers and six shards: one shard is unreachable, one drains, one leaves the map, one is slow and full, one
is of an older server."""

from __future__ import annotations

from pinlater.client import (
    ClusterServer,
    ClusterShard,
    ClusterStatus,
    ForwardedCalls,
    ServerFacts,
    ShardDetails,
    ShardDrain,
    ShardJobs,
    ShardLane,
    ShardMemory,
    ShardSize,
)

ONE, TWO, THREE = "10.0.0.1:9011", "10.0.0.2:9011", "10.0.0.3:9011"
REFUSED = "db-2.example.org:3306/pinlater_2: Access denied for user 'pinlater'@'10.0.0.1' (using password: YES)"
FULL = "Redis uses 1950351360 of 2147483648 bytes of its maxmemory, more than 90 %"
BUSY = (
    ShardLane("insert", 12, 24, 3, 9_410, 61_200, 1.26, 4.8),
    ShardLane("claim", 0, 0, None, 8_112, 20_010, 2.41, 12.7),
    ShardLane("finish", 3, 8, 1, 7_992, 59_870, 1.93, 6.1),
    ShardLane("extend", calls=60, requests=240, mean_ms=0.82, slowest_ms=0.97),
    ShardLane("checkpoint"),
    ShardLane("release", calls=2, requests=2, mean_ms=1.4, slowest_ms=1.4),
)
IDLE = tuple(ShardLane(lane.kind) for lane in BUSY)
HUNG = (ShardLane("insert", 1_480, 24, 4_200), *IDLE[1:])


def cluster_sample(now_ms: int) -> ClusterStatus:
    """As it is at that time."""
    minute_ms, hour_ms = 60_000, 3_600_000
    mysql = ShardDetails(
        kind="mysql",
        address="db-1.example.org:3306/pinlater_1",
        takes_enqueues=True,
        since_ms=now_ms - 51 * hour_ms,
        jobs=ShardJobs(now_ms - 2_000, 12_480, 310, 96, 1_204_388, 17, now_ms - 42_000),
        size=ShardSize(6_871_947_674, at_ms=now_ms - 12_000),
        lanes=BUSY,
        memory=ShardMemory(1_204, 437_248, 8_020_110, 3),
    )
    gone = mysql._replace(
        address="db-2.example.org:3306/pinlater_2",
        since_ms=now_ms - 7 * minute_ms,
        failure=REFUSED,
        failure_kind="refused",
        failed_at_ms=now_ms - 3_000,
        probing=True,
        jobs=ShardJobs(now_ms - 7 * minute_ms, 8_031, 12, 60, 900_113, 4, now_ms - 11 * minute_ms),
        size=ShardSize(4_100_000_000, at_ms=now_ms - 8 * minute_ms),
        lanes=IDLE,
        memory=None,
    )
    draining = mysql._replace(
        address="db-3.example.org:3306/pinlater_3",
        takes_enqueues=False,
        jobs=ShardJobs(now_ms - 2_000, 3_100, 0, 40, 88_000, 2, now_ms - 20 * minute_ms),
        drain=ShardDrain(now_ms - 35 * minute_ms, False, 48_000, 21.4, now_ms + 147_000),
    )
    leaving = draining._replace(
        address="db-4.example.org:3306/pinlater_4",
        jobs=ShardJobs(now_ms - 2_000, 0, 0, 0, 120, 0, None),
        drain=ShardDrain(now_ms - 2 * hour_ms, True, 900, 0.0, None),
        size=ShardSize(2_100_000, late=True),
        lanes=IDLE,
    )
    full = ShardDetails(
        kind="redis",
        address="cache.example.org:6379/0",
        takes_enqueues=True,
        since_ms=now_ms - 3 * hour_ms,
        failure="cache.example.org:6379/0: no answer within 5 s",
        failed_at_ms=now_ms - 26 * minute_ms,
        stalled=True,
        full=FULL,
        size=ShardSize(1_950_351_360, None, 2_147_483_648, now_ms - 1_000),
        lanes=HUNG,
    )
    moving = [ONE] * 5 + [TWO] * 6 + [THREE] * 5
    return ClusterStatus(
        ONE,
        [
            ClusterServer(
                ONE, "web-1-811", {"1": 0}, True, True, None, True, facts=_facts("0.1.0", now_ms - 51 * hour_ms)
            ),
            ClusterServer(
                TWO, "web-2-907", {"1": 1}, False, True, 120, True, 3, 10_412, 9_870, _facts("0.1.0", now_ms - hour_ms)
            ),
            ClusterServer(THREE, "web-3-33", {"1": 2}, False, False, 9_000, False, 41, 2**31, 12),
        ],
        [
            ClusterShard("1", True, 12, moving, (0, 1, 2, 9), mysql),
            ClusterShard("2", False, 9, moving, (), gone),
            ClusterShard("3", True, 9, moving, (), draining),
            ClusterShard("4", True, 3, [ONE] * 16, (), leaving),
            ClusterShard("5", True, 9, [*moving[:-1], ""], (), full),
            ClusterShard("6", True, 4, [TWO] * 16),
        ],
        [ForwardedCalls("insert", 1, 2, 3, 4)],
        moves=7,
    )


def _facts(version: str, started_at_ms: int) -> ServerFacts:
    return ServerFacts(version, started_at_ms, 212, 14)
