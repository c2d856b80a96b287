"""What a server in a cluster says of the others: every field, with its extremes, and none."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain import calls
from pinlater.domain.workers import LostClaim, ServerWorkers, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.features.status.status import Status
from pinlater.server.features.workers.workers import Workers
from pinlater.server.operations.service import Service

NOW_MS = 1_767_225_600_000
OWN_FACTS = calls.ServerFacts("1.2.3", NOW_MS, 3, 7)
_OWN, _OTHER, _THIRD = "host:9010", "other:9010", "third:9010"

_DETAILS = {
    "1": calls.ShardDetails(
        "mysql",
        "db1:3306/pinlater",
        True,
        NOW_MS - 5,
        "Access denied for user 'pinlater'@'db1'",
        NOW_MS - 4,
        True,
        True,
        "The table is full",
        calls.ShardJobs(NOW_MS - 3, 1, 2, 3, 4, 5, NOW_MS - 2),
        calls.ShardSize(2**40, 2**33, 2**41, NOW_MS - 1, True),
        calls.ShardDrain(NOW_MS, True, 2**40, -2.5, NOW_MS + 1),
        [calls.ShardLane("insert", 1, 2, 3, 4, 5, 0.5, 1.5), calls.ShardLane("claim")],
        "refused",
        calls.ShardMemory(10, 2**31, 2**32, 2**33),
    ),
    "2": calls.ShardDetails("redis", "", False, 0, drain=calls.ShardDrain(1)),
}
_OTHER_FACTS = calls.ServerFacts("1.2.2", 5, 6, 7)
_STATUS = calls.ClusterStatus(
    _OWN,
    [
        calls.ClusterServer(_OWN, "host 1", {"1": 1, "2": 1023}, True, True, None, True),
        calls.ClusterServer(_OTHER, "höst 2", {"2": 2}, False, True, 12, True, 3, 2**40, 2**41, _OTHER_FACTS),
        calls.ClusterServer(_THIRD),
    ],
    [
        calls.ClusterShard("1", True, 2**40, [_OWN, _OTHER, "", _THIRD], [1, 3]),
        calls.ClusterShard("2", False, 0, []),
        calls.ClusterShard("3", True, 1, [_OWN]),
    ],
    [calls.ForwardedCalls("insert", 1, 2, 3, 2**40), calls.ForwardedCalls("claim")],
    2**40,
    3,
    True,
)
_FRONTS = [calls.FrontProcess(1, 2**40, 2, 3, 2**41), calls.FrontProcess(2)]
_OWNERS = calls.QueueOwners(
    [calls.OwningServer("0-1-2", _OWN), calls.OwningServer("1-2-3")],
    [calls.OwnedShard("1", True, [0, 1, -1, 0]), calls.OwnedShard("2", False, [])],
)
_WORKERS = ServerWorkers(
    [
        WorkerStatus("höst", 7, 5, [WorkerQueue("mail", 4, 3, 2, 1, 2, 1, 1)], 600_000, WorkerInfo("go"), 6),
        WorkerStatus("lost", lost=[LostClaim("mail", "mail:s1:p1:5", 2**40)]),
    ],
    [calls.WaitingDequeues("mail", "höst", 2)],
    "1-2-3",
    2**31,
    NOW_MS,
    2**40,
    5,
)


async def _details() -> dict[str, calls.ShardDetails]:
    return _DETAILS


async def _workers() -> Sequence[ServerWorkers]:
    return [_WORKERS]


def tell_of_others(service: Service) -> None:
    """Lets the service answer this."""
    service.of(Status).shard_reports.details = _details  # type: ignore[method-assign]
    service.of(Status).cluster_status = lambda: _STATUS
    service.of(Status).front_processes = lambda: _FRONTS
    service.of(Workers).elsewhere = _workers
    service.of(Status).server_id = "0-19b76daa400-0"
    service.of(Status).queue_owners = lambda: _OWNERS
