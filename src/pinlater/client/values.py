"""What goes into a client's calls and what comes out: plain frozen values that know no Thrift.

Modules of this package have them by subject (`jobs` gives the units and the meaning of None), and `domain` those that servers have, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.client.audit import AuditEntry as AuditEntry
from pinlater.client.audit import AuditFilter as AuditFilter
from pinlater.client.audit import AuditPage as AuditPage
from pinlater.client.bulk import BulkRun as BulkRun
from pinlater.client.bulk import BulkRunList as BulkRunList
from pinlater.client.cluster import CallerRights as CallerRights
from pinlater.client.cluster import ClusterServer as ClusterServer
from pinlater.client.cluster import ClusterShard as ClusterShard
from pinlater.client.cluster import ClusterStatus as ClusterStatus
from pinlater.client.cluster import ForwardedCalls as ForwardedCalls
from pinlater.client.cluster import FrontProcess as FrontProcess
from pinlater.client.cluster import ServerInfo as ServerInfo
from pinlater.client.cluster import ShardDetails as ShardDetails
from pinlater.client.cluster import ShardDrain as ShardDrain
from pinlater.client.cluster import ShardJobs as ShardJobs
from pinlater.client.cluster import ShardLane as ShardLane
from pinlater.client.cluster import ShardMemory as ShardMemory
from pinlater.client.cluster import ShardSize as ShardSize
from pinlater.client.failures import FailureGroup as FailureGroup
from pinlater.client.failures import FailureGroups as FailureGroups
from pinlater.client.history import DeployMark as DeployMark
from pinlater.client.history import Histories as Histories
from pinlater.client.history import HistoryPoint as HistoryPoint
from pinlater.client.history import QueueHistory as QueueHistory
from pinlater.client.history import SpanPercentiles as SpanPercentiles
from pinlater.client.jobs import Ack as Ack
from pinlater.client.jobs import AckBatch as AckBatch
from pinlater.client.jobs import AckResult as AckResult
from pinlater.client.jobs import Checkpoint as Checkpoint
from pinlater.client.jobs import Claim as Claim
from pinlater.client.jobs import Enqueued as Enqueued
from pinlater.client.jobs import Job as Job
from pinlater.client.jobs import JobCount as JobCount
from pinlater.client.jobs import JobInfo as JobInfo
from pinlater.client.jobs import KeyHolders as KeyHolders
from pinlater.client.jobs import MovedJob as MovedJob
from pinlater.client.jobs import Scanned as Scanned
from pinlater.client.queues import QueueStats as QueueStats
from pinlater.client.queues import SettingsInForce as SettingsInForce
from pinlater.client.waiting import BehindFormer as BehindFormer
from pinlater.client.waiting import BehindKey as BehindKey
from pinlater.client.waiting import JobExplanation as JobExplanation
from pinlater.client.waiting import JobsAhead as JobsAhead
from pinlater.client.waiting import QueueFacts as QueueFacts
from pinlater.client.waiting import Reason as Reason
from pinlater.client.waiting import ShardFacts as ShardFacts
from pinlater.client.workers import WorkingProcess as WorkingProcess
from pinlater.domain.bulk import BulkAction as BulkAction
from pinlater.domain.bulk import BulkOrder as BulkOrder
from pinlater.domain.bulk import BulkState as BulkState
from pinlater.domain.job import Attempt as Attempt
from pinlater.domain.job import JobState as JobState
from pinlater.domain.job import Outcome as Outcome
from pinlater.domain.job import UniqueKey as UniqueKey
from pinlater.domain.job import UniqueScope as UniqueScope
from pinlater.domain.job_filter import JobFilter as JobFilter
from pinlater.domain.queue import PartitionNumber as PartitionNumber
from pinlater.domain.queue import PriorityCounts as PriorityCounts
from pinlater.domain.queue import QueueConfig as QueueConfig
from pinlater.domain.queue import Rates as Rates
from pinlater.domain.servers import ServerFacts as ServerFacts
from pinlater.domain.workers import LostClaim as LostClaim
from pinlater.domain.workers import ServerWorkers as ServerWorkers
from pinlater.domain.workers import WaitingDequeues as WaitingDequeues
from pinlater.domain.workers import WorkerInfo as WorkerInfo
from pinlater.domain.workers import WorkerQueue as WorkerQueue
from pinlater.domain.workers import WorkerStatus as WorkerStatus


class ClaimedJob(NamedTuple):
    """A job in hand. `token` names the claim in acks, heartbeats, checkpoints and releases ('' from servers without them).

    `attempt` counts from 1; 0 if the server didn't say. `body_masked`: as in `JobInfo`; only of a dry run.
    """

    descriptor: str
    queue: str
    body: bytes
    token: str = ""
    attempt: int = 0
    attempts_allowed: int = 0
    attempts_remaining: int = 0
    headers: Mapping[str, str] = {}
    created_at_ms: int | None = None
    claim_deadline_ms: int | None = None
    body_masked: bool = False


class Dequeued(NamedTuple):
    """Jobs in the order to run them, and what became of the acks that rode along."""

    jobs: Sequence[ClaimedJob] = ()
    ack_results: Sequence[AckResult] = ()


class QueueInfo(NamedTuple):
    """A queue's settings as they are kept in the store. `ordered`: all its jobs run one after the other."""

    name: str
    config: QueueConfig
    paused: bool = False
    ordered: bool = False
