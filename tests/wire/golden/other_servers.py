"""What a server in a cluster says of the others: every field, with its extremes, and none."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from pinlater.domain.servers import ServerFacts
from pinlater.domain.workers import LostClaim, ServerWorkers, WaitingDequeues, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.features.status.status import Status
from pinlater.server.features.workers.workers import Workers
from pinlater.server.operations.service import Service
from pinlater.wire.generated import structs

NOW_MS = 1_767_225_600_000
OWN_FACTS = ServerFacts("1.2.3", NOW_MS, 3, 7)
_OWN, _OTHER, _THIRD = "host:9010", "other:9010", "third:9010"

_DETAILS = {
    "1": structs.ShardDetails(
        "mysql",
        "db1:3306/pinlater",
        True,
        NOW_MS - 5,
        "Access denied for user 'pinlater'@'db1'",
        NOW_MS - 4,
        True,
        True,
        "The table is full",
        structs.ShardJobs(NOW_MS - 3, 1, 2, 3, 4, 5, NOW_MS - 2),
        structs.ShardSize(2**40, 2**33, 2**41, NOW_MS - 1, True),
        structs.ShardDrain(NOW_MS, True, 2**40, -2.5, NOW_MS + 1),
        [structs.ShardLane("insert", 1, 2, 3, 4, 5, 0.5, 1.5), structs.ShardLane("claim", 0, 0, None, 0, 0)],
        "refused",
        structs.ShardMemory(10, 2**31, 2**32, 2**33),
    ),
    "2": structs.ShardDetails(
        "redis",
        None,
        False,
        0,
        probing=False,
        stalled=False,
        size=structs.ShardSize(),
        drain=structs.ShardDrain(1, False),
        lanes=[],
    ),
}
_STATUS = structs.ClusterStatus(
    _OWN,
    [
        structs.ClusterServer(_OWN, "host 1", {"1": 1, "2": 1023}, True, True, None, True, 0, 0, 0),
        structs.ClusterServer(_OTHER, "höst 2", {"2": 2}, False, True, 12, True, 3, 2**40, 2**41, "1.2.2", 5, 6, 7),
        structs.ClusterServer(_THIRD, None, {}, False, False, None, False, 0, 0, 0),
    ],
    [
        structs.ClusterShard("1", True, 2**40, [0, 1, -1, 2], [1, 3]),
        structs.ClusterShard("2", False, 0, [], []),
        structs.ClusterShard("3", True, 1, [0], []),
    ],
    [structs.ForwardedCalls("insert", 1, 2, 3, 2**40), structs.ForwardedCalls("claim", 0, 0, 0, 0)],
    2**40,
    3,
    True,
    coordinator_trouble="ZooKeeper does not answer (since 2026-01-01T00:00:00Z)",
)
_FRONTS = [structs.FrontProcess(1, 2**40, 2, 3, 2**41), structs.FrontProcess(2, 0, 0, 0, 0)]
_OWNERS = structs.QueueOwners(
    [structs.OwningServer("0-1-2", _OWN), structs.OwningServer("1-2-3")],
    [structs.OwnedShard("1", True, [0, 1, -1, 0]), structs.OwnedShard("2", False, [])],
    {"mail": 2},
)
_WORKERS = ServerWorkers(
    [
        WorkerStatus("höst", 7, 5, [WorkerQueue("mail", 4, 3, 2, 1, 2, 1, 1)], 600_000, WorkerInfo("go"), 6),
        WorkerStatus("lost", lost=[LostClaim("mail", "mail:s1:p1:5", 2**40)]),
    ],
    [WaitingDequeues("mail", "höst", 2)],
    "1-2-3",
    2**31,
    NOW_MS,
    2**40,
    5,
)


async def _details() -> dict[str, structs.ShardDetails]:
    return deepcopy(_DETAILS)


async def _workers() -> Sequence[ServerWorkers]:
    return [_WORKERS]


def tell_of_others(service: Service) -> None:
    """Lets the service answer this."""
    service.of(Status).shard_reports.details = _details  # type: ignore[method-assign]
    service.of(Status).cluster_status = lambda: deepcopy(_STATUS)
    service.of(Status).front_processes = lambda: _FRONTS
    service.of(Workers).elsewhere = _workers
    service.of(Status).server_id = "0-19b76daa400-0"
    service.of(Status).queue_owners = lambda: _OWNERS
