"""What goes into a client's calls and what comes out: plain frozen values that know no Thrift.

Most are the service's own (`domain.calls`, which gives the units and the meaning of None). Those defined here are what a client makes
of the wire's answers: by descriptor if the service has ids, and with a default for what an original server does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
from pinlater.domain.calls import ServerInfo as ServerInfo
from pinlater.domain.calls import SettingsInForce as SettingsInForce
from pinlater.domain.calls import WaitingDequeues as WaitingDequeues
from pinlater.domain.job import Attempt as Attempt
from pinlater.domain.job import JobState as JobState
from pinlater.domain.job import Outcome as Outcome
from pinlater.domain.job import UniqueKey as UniqueKey
from pinlater.domain.job import UniqueScope as UniqueScope
from pinlater.domain.queue import QueueConfig as QueueConfig
from pinlater.domain.queue import Rates as Rates
from pinlater.domain.waiting import JobsAhead as JobsAhead
from pinlater.domain.waiting import QueueFacts as QueueFacts
from pinlater.domain.waiting import Reason as Reason
from pinlater.domain.waiting import ShardFacts as ShardFacts
from pinlater.domain.waiting import reasons


class ClaimedJob(NamedTuple):
    """A job in hand. `token` names the claim in acks, heartbeats, checkpoints and releases ('' from servers without them).

    `attempt` counts from 1; 0 if the server didn't say.
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


class Dequeued(NamedTuple):
    """Jobs in the order to run them, and what became of the acks that rode along."""

    jobs: Sequence[ClaimedJob] = ()
    ack_results: Sequence[AckResult] = ()


class JobInfo(NamedTuple):
    """All that a server tells of a job. `body` is None unless it was asked for. `progress`: what the job said last of how far it is
    (`40 % row 2`); '' if it said nothing."""

    descriptor: str
    state: JobState
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    created_at_ms: int
    run_after_ms: int | None = None
    updated_at_ms: int | None = None
    claim_descriptor: str | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    unique_key: str | None = None
    claim_deadline_ms: int | None = None
    error_type: str = ""
    error_text: str = ""
    attempts: Sequence[Attempt] = ()
    finished_at_ms: int | None = None
    expires_at_ms: int | None = None
    progress: str = ""


class JobExplanation(NamedTuple):
    """What tells why a job waits, as the server that answers knows it; `reasons` tells it. `now_ms`: the server's clock.

    `job` is None if its shard is not in reach (`shard.in_reach`); else there is no such job. `ahead`: for a waiting job.
    """

    descriptor: str
    now_ms: int
    job: JobInfo | None
    shard: ShardFacts
    queue: QueueFacts
    ahead: JobsAhead | None = None

    @property
    def missing(self) -> bool:
        """Whether there is no such job."""
        return self.job is None and self.shard.in_reach

    def reasons(self) -> list[Reason]:
        """Why the job waits, what an operator has to change first. Or how it ended, or who runs it. None if there is no such job."""
        return [] if self.missing else reasons(self.now_ms, self.job, self.ahead, self.queue, self.shard)


class Scanned(NamedTuple):
    """A page of jobs, newest first. `continuation` is '-1' at the end; `incomplete`: a shard or a time budget cut it short."""

    jobs: Sequence[JobInfo]
    continuation: str = "-1"
    incomplete: bool = False


class PriorityCounts(NamedTuple):
    """A queue's jobs of one priority. `pending` includes `future`, the jobs that aren't due yet. Totals: since the queue was made."""

    priority: int
    pending: int = 0
    future: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    enqueued_total: int = 0
    claimed_total: int = 0
    succeeded_total: int = 0
    failed_total: int = 0
    retried_total: int = 0


class QueueStats(NamedTuple):
    """What an operator asks of a queue. `oldest_waiting_ms`: age of the job that has been due longest, or None.

    `incomplete`: a shard was unreachable, and its jobs are not counted.
    """

    queue: str
    paused: bool
    counts: Sequence[PriorityCounts]
    oldest_waiting_ms: int | None
    rates: Rates
    waiting_dequeues: int
    incomplete: bool = False

    def total(self, field: str) -> int:
        """The sum of a count over all priorities, by its name in `PriorityCounts`."""
        return sum(int(getattr(counts, field)) for counts in self.counts)


class QueueInfo(NamedTuple):
    """A queue's settings as they are kept in the store."""

    name: str
    config: QueueConfig
    paused: bool = False
