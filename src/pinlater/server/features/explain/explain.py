"""Why a job waits: the facts from which a client derives the reason. None of its counts scans jobs."""

from __future__ import annotations

from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import PinLaterError, Unavailable
from pinlater.domain.job import JobState
from pinlater.domain.queue import Queue
from pinlater.domain.rate_limit import lower_limit
from pinlater.server.features.status.cluster_status import members_of
from pinlater.server.features.status.status import Status
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.operations.addressing import OnShard, find_jobs, on_reachable
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import CountAhead, CountJobs, FindAheadInKey, LookupJobs
from pinlater.server.storage.values import AheadInKey, Place, raise_error
from pinlater.wire.generated.structs import (
    JobExplanation,
    JobInfo,
    JobsAhead,
    PartitionNumber,
    QueueFacts,
    ShardFacts,
)

AHEAD_MAX = 10_000
"""Jobs that are counted on each shard before a job. A count that reaches it is a lower bound (`JobsAhead.at_least`)."""


class Explain:
    """Answers for one job at a time."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._homes = service.order_homes
        self._dispatcher = service.dispatcher
        self._identity = service.identity
        self._metrics = service.metrics
        self._clock = service.clock
        self._rates = service.of(RateSampler).per_second
        self._status = service.of(Status)

    async def explain(self, queue_name: str, descriptor: str) -> JobExplanation:
        """Returns the facts. Raises `QueueNotFound`, and `DescriptorInvalid` if the name can't be read; a job that is missing is not an
        error.
        """
        parts = await find_jobs(self._shards, queue_name, [descriptor], 1)
        queue = await self._queue_cache.require(queue_name)
        if not parts:
            shard = ShardFacts(parse_descriptor(descriptor)[1], in_reach=True, drains=False)
            return JobExplanation(descriptor, None, self._clock.now_ms(), shard, self._of_queue(queue, 0))
        [part] = parts
        lanes = part.shard
        facts = ShardFacts(lanes.name, lanes.healthy, not lanes.takes_enqueues)
        job: JobInfo | None = None
        if lanes.healthy:
            try:
                [job] = await lanes.store.submit(LookupJobs(part.keys, bodies=False))
            except Unavailable:
                facts.in_reach = False
        explained = JobExplanation(descriptor, job, self._clock.now_ms(), facts, self._of_queue(queue, 0))
        if job is not None and job.state == JobState.PENDING:
            before = await self._before_in_key(job, part)
            if job.ordering_key is not None and queue.home.waits and queue.home.shard == lanes.name:
                explained.former_shard = queue.home.former
                explained.ahead_on_former = await self._before_on_former(queue)
            elif before is None:
                explained.queue.in_progress, explained.jobs_ahead = await self._count(job, part)
            else:
                explained.behind_job = before.first.on(lanes.name)
                explained.ahead_in_key = before.jobs
        return explained

    async def _before_in_key(self, job: JobInfo, part: OnShard) -> AheadInKey | None:
        """The jobs that the job waits for under its ordering key, or None if there are none, or the shard has just become unreachable."""
        if job.ordering_key is None:
            return None
        [key] = part.keys
        try:
            return await part.shard.store.submit(FindAheadInKey(key, AHEAD_MAX))
        except Unavailable:
            return None

    async def _before_on_former(self, queue: Queue) -> int | None:
        """Jobs with ordering keys on the former home of the queue, or None if it can't be asked."""
        try:
            return await self._homes.before(queue, AHEAD_MAX)
        except PinLaterError:
            return None

    async def _count(self, job: JobInfo, part: OnShard) -> tuple[int, JobsAhead]:
        """Jobs of the queue in progress, and those that precede the job."""
        [key] = part.keys
        run_after_ms = job.run_after_ms or 0
        due_by_ms = max(self._clock.now_ms(), run_after_ms)
        place = Place(key.queue, key.priority, run_after_ms, key.id, due_by_ms, AHEAD_MAX)

        async def count(shard: ShardLanes) -> tuple[int, int]:
            ahead = raise_error(await shard.store.submit(CountAhead(place)))
            return sum(row.counts.in_progress for row in await shard.store.submit(CountJobs([key.queue]))), ahead

        counts = await on_reachable(self._shards, self._metrics, "explainJob", count)
        return sum(running for running, _ in counts), JobsAhead(
            sum(ahead for _, ahead in counts),
            at_least=any(ahead >= AHEAD_MAX for _, ahead in counts),
            incomplete=len(counts) < len(self._shards),
        )

    def _of_queue(self, queue: Queue, running: int) -> QueueFacts:
        limits = self._dispatcher.limits
        block = limits.block(queue.name)
        return QueueFacts(
            paused=queue.paused,
            paused_at_ms=queue.paused_at_ms,
            paused_by=queue.paused_by or None,
            max_jobs_per_second=lower_limit(limits.of_file(queue.name), queue.config.max_jobs_per_second),
            next_slot_ms=None if block is None else block.retry_after_ms,
            claimed_per_second=self._rates(queue.name).claimed,
            in_progress=running,
            waiting_dequeues=self._dispatcher.waiting(queue.name),
            last_dequeue_at_ms=self._dispatcher.asked_at_ms(queue.name),
            server_started_at_ms=self._identity.started_at_ms,
            servers=members_of(self._status.cluster_status()),
            partition_number=PartitionNumber(*queue.partitions) if len(self._shards) > 1 else None,
        )
