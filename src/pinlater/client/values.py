"""What goes into a client's calls and what comes out: plain frozen values that know no Thrift.

Most are those of the service (`domain.calls`, which gives the units and the meaning of None). A job in hand is defined here, since a server
keeps the jobs of a claim together, without their descriptors; and so are a queue's settings without the versions that a store keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.audit import AuditEntry as AuditEntry
from pinlater.domain.audit import AuditFilter as AuditFilter
from pinlater.domain.audit import AuditPage as AuditPage
from pinlater.domain.bulk import BulkAction as BulkAction
from pinlater.domain.bulk import BulkOrder as BulkOrder
from pinlater.domain.bulk import BulkRun as BulkRun
from pinlater.domain.bulk import BulkRunList as BulkRunList
from pinlater.domain.bulk import BulkState as BulkState
from pinlater.domain.calls import Ack as Ack
from pinlater.domain.calls import AckBatch as AckBatch
from pinlater.domain.calls import AckResult as AckResult
from pinlater.domain.calls import CallerRights as CallerRights
from pinlater.domain.calls import Checkpoint as Checkpoint
from pinlater.domain.calls import Claim as Claim
from pinlater.domain.calls import ClusterServer as ClusterServer
from pinlater.domain.calls import ClusterShard as ClusterShard
from pinlater.domain.calls import ClusterStatus as ClusterStatus
from pinlater.domain.calls import Enqueued as Enqueued
from pinlater.domain.calls import ForwardedCalls as ForwardedCalls
from pinlater.domain.calls import FrontProcess as FrontProcess
from pinlater.domain.calls import Job as Job
from pinlater.domain.calls import JobCount as JobCount
from pinlater.domain.calls import KeyHolders as KeyHolders
from pinlater.domain.calls import MovedJob as MovedJob
from pinlater.domain.calls import QueueStats as QueueStats
from pinlater.domain.calls import Scanned as Scanned
from pinlater.domain.calls import ServerFacts as ServerFacts
from pinlater.domain.calls import ServerInfo as ServerInfo
from pinlater.domain.calls import SettingsInForce as SettingsInForce
from pinlater.domain.calls import ShardDetails as ShardDetails
from pinlater.domain.calls import ShardDrain as ShardDrain
from pinlater.domain.calls import ShardJobs as ShardJobs
from pinlater.domain.calls import ShardLane as ShardLane
from pinlater.domain.calls import ShardMemory as ShardMemory
from pinlater.domain.calls import ShardSize as ShardSize
from pinlater.domain.calls import WaitingDequeues as WaitingDequeues
from pinlater.domain.failures import FailureGroup as FailureGroup
from pinlater.domain.failures import FailureGroups as FailureGroups
from pinlater.domain.history import DeployMark as DeployMark
from pinlater.domain.history import Histories as Histories
from pinlater.domain.history import HistoryPoint as HistoryPoint
from pinlater.domain.history import QueueHistory as QueueHistory
from pinlater.domain.history import SpanPercentiles as SpanPercentiles
from pinlater.domain.job import Attempt as Attempt
from pinlater.domain.job import JobInfo as JobInfo
from pinlater.domain.job import JobState as JobState
from pinlater.domain.job import Outcome as Outcome
from pinlater.domain.job import UniqueKey as UniqueKey
from pinlater.domain.job import UniqueScope as UniqueScope
from pinlater.domain.job_criteria import JobCriteria as JobCriteria
from pinlater.domain.queue import PriorityCounts as PriorityCounts
from pinlater.domain.queue import QueueConfig as QueueConfig
from pinlater.domain.queue import Rates as Rates
from pinlater.domain.waiting import JobExplanation as JobExplanation
from pinlater.domain.waiting import JobsAhead as JobsAhead
from pinlater.domain.waiting import QueueFacts as QueueFacts
from pinlater.domain.waiting import Reason as Reason
from pinlater.domain.waiting import ShardFacts as ShardFacts
from pinlater.domain.workers import LostClaim as LostClaim
from pinlater.domain.workers import ServerWorkers as ServerWorkers
from pinlater.domain.workers import WorkerInfo as WorkerInfo
from pinlater.domain.workers import WorkerQueue as WorkerQueue
from pinlater.domain.workers import WorkerStatus as WorkerStatus
from pinlater.domain.workers import WorkingProcess as WorkingProcess


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
    """A queue's settings as they are kept in the store."""

    name: str
    config: QueueConfig
    paused: bool = False
