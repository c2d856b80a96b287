"""Workers: what all servers know of them, with the jobs in their hands."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import AsyncClient, JobInfo, JobState, QueueStats, WorkerStatus
from pinlater.client.errors import UnknownMethod
from pinlater.client.worker_judgement import SLOW_MS, in_hand_of, now_of, usual_run_ms, workers_of
from pinlater.client.worker_replies import worker_replies
from pinlater.client.workers import JobInHand, KnownWorker, WorkersFound
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import like
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.workers import (
    HeldJobItem,
    LostClaimItem,
    WorkerItem,
    WorkerProcessItem,
    WorkersAnswer,
    WorkersQuery,
)
from pinlater.domain.history import HOUR_MS, TEN_MINUTES_S

QUEUES_MAX, JOBS_MAX = 10, 100  # bounds of the search for claimed jobs: the queues with the most, and jobs of each
WORKERS_MAX = 1_000
_SERVER_S = 3.0


async def get_workers(call: ApiCall[WorkersQuery, Nothing]) -> WorkersAnswer:
    """Returns who asks for jobs and who holds some, with versions, last requests and lost claims. Asks all servers of the shards,
    and looks at 100 jobs in hand of each of the ten queues with the most."""
    client, queues = call.client, list(call.query.queue)
    replies = await worker_replies(client, _SERVER_S)
    now_ms = now_of(replies) or call.now_ms()
    stats = sorted(await client.queue_stats(*queues), key=lambda one: -one.total("in_progress"))
    busy = [one for one in stats[:QUEUES_MAX] if one.total("in_progress")]
    gaps = ["a shard is unreachable, and its jobs are not counted"] if any(one.incomplete for one in stats) else []
    jobs: list[JobInHand] = []
    for one in busy:
        jobs += in_hand_of(one.queue, await _running(client, one), now_ms)
    usual_ms = await _usual_ms(client, jobs, now_ms)
    found = workers_of(replies, jobs, usual_ms, queues, gaps)
    return _shown(found, sum(one.total("in_progress") for one in stats), len(jobs))


async def _running(client: AsyncClient, stats: QueueStats) -> Sequence[JobInfo]:
    return (await client.scan(stats.queue, JobState.IN_PROGRESS, limit=JOBS_MAX)).jobs


async def _usual_ms(client: AsyncClient, jobs: Sequence[JobInHand], now_ms: int) -> dict[str, int]:
    """Returns the run times of the queues in which a job may run too long."""
    queues = sorted({job.queue for job in jobs if job.for_ms >= SLOW_MS})
    if not queues:
        return {}
    try:
        found = await client.queue_history(*queues, from_ms=now_ms - HOUR_MS, step_s=TEN_MINUTES_S)
    except UnknownMethod:
        return {}
    return usual_run_ms(found.queues)


def _shown(found: WorkersFound, running: int, looked_at: int) -> WorkersAnswer:
    return WorkersAnswer(
        workers=[_worker(worker) for worker in found.workers[:WORKERS_MAX]],
        total=len(found.workers),
        running=running,
        looked_at=looked_at,
        counted_ms=found.counted_ms,
        gaps=found.gaps,
        incomplete=bool(found.gaps),
    )


def _worker(worker: KnownWorker) -> WorkerItem:
    return like(
        WorkerItem,
        worker,
        trouble=worker.trouble.value,
        waiting=worker.waits,
        longest=_job(worker.longest),
        next_end=_job(worker.next_end),
        lost=[like(LostClaimItem, claim) for claim in worker.lost],
        processes=[_process(status) for status in worker.processes],
    )


def _job(job: JobInHand | None) -> HeldJobItem | None:
    return None if job is None else like(HeldJobItem, job)


def _process(status: WorkerStatus) -> WorkerProcessItem:
    info = status.info
    return WorkerProcessItem(
        process=status.process,
        library="" if info is None else info.library,
        version="" if info is None else info.version,
        host="" if info is None else info.host,
        pid=None if info is None else info.pid,
        concurrency=None if info is None else info.concurrency,
        running=None if info is None else info.running,
        started_at_ms=None if info is None else info.started_at_ms,
        heard_ms=status.heard_ms,
        said_ms=status.said_ms,
        handed_out=status.handed_out,
    )
