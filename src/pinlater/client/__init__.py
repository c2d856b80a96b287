"""The client: producers and workers import it to call PinLater servers."""

# ruff: noqa: F405 - most values are loaded when they are first asked for

from typing import TYPE_CHECKING

from pinlater.client import values as _values
from pinlater.client._tls import Tls
from pinlater.client.async_client import AsyncClient
from pinlater.client.batching import AsyncEnqueueBatcher, Placed
from pinlater.client.sync_batching import EnqueueBatcher
from pinlater.client.sync_client import Client

if TYPE_CHECKING:
    from pinlater.client.values import *  # noqa: F403

__all__ = [
    "Ack",
    "AckBatch",
    "AckResult",
    "AsyncClient",
    "AsyncEnqueueBatcher",
    "Attempt",
    "AuditEntry",
    "AuditPage",
    "BehindFormer",
    "BehindKey",
    "BulkAction",
    "BulkOrder",
    "BulkRun",
    "BulkRunList",
    "BulkState",
    "CallerRights",
    "Checkpoint",
    "Claim",
    "ClaimedJob",
    "Client",
    "ClusterServer",
    "ClusterShard",
    "ClusterStatus",
    "DeployMark",
    "Dequeued",
    "EnqueueBatcher",
    "Enqueued",
    "FailureGroup",
    "FailureGroups",
    "ForwardedCalls",
    "FrontProcess",
    "Histories",
    "HistoryPoint",
    "Job",
    "JobCount",
    "JobExplanation",
    "JobFilter",
    "JobInfo",
    "JobState",
    "JobsAhead",
    "KeyHolders",
    "LostClaim",
    "MovedJob",
    "Outcome",
    "PartitionNumber",
    "Placed",
    "PriorityCounts",
    "QueueConfig",
    "QueueFacts",
    "QueueHistory",
    "QueueInfo",
    "QueueStats",
    "Rates",
    "Reason",
    "Scanned",
    "ServerFacts",
    "ServerInfo",
    "ServerWorkers",
    "SettingsInForce",
    "ShardDetails",
    "ShardDrain",
    "ShardFacts",
    "ShardJobs",
    "ShardLane",
    "ShardMemory",
    "ShardSize",
    "SpanPercentiles",
    "Tls",
    "UniqueKey",
    "UniqueScope",
    "WaitingDequeues",
    "WorkerInfo",
    "WorkerQueue",
    "WorkerStatus",
    "WorkingProcess",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name in __all__:
        value = globals()[name] = getattr(_values, name)
        return value
    raise AttributeError(f"module 'pinlater.client' has no attribute {name!r}")
