"""Workers: what all servers know of them, with the jobs in their hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pinlater.client import AsyncClient, JobState, WorkerInfo, WorkerStatus
from pinlater.client.errors import UnknownMethod
from pinlater.client.worker_judgement import SLOW_MS, in_hand_of, now_of, usual_run_ms, workers_of
from pinlater.client.worker_replies import worker_replies
from pinlater.client.workers import JobInHand
from pinlater.console import costs
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Incomplete, Nothing, QueuesQuery, doc
from pinlater.console.endpoints.forms import like
from pinlater.domain.history import HOUR_MS, TEN_MINUTES_S

QUEUES_MAX, JOBS_MAX = 10, 100  # bounds of the search for claimed jobs: the queues with the most, and jobs of each
WORKERS_MAX = 1_000
_SERVER_S = 3.0
_NOT_SAID = {**dict.fromkeys(WorkerInfo._fields), "library": "", "version": "", "host": ""}


class WorkerProcessItem(AnswerShape, frozen=True, kw_only=True):
    """A process of a worker. Clients that do not identify themselves appear as one process, although they may be several."""

    process: Annotated[
        int, doc("A random number that identifies the process; 0 for clients that do not identify themselves.")
    ]
    library: str
    version: Annotated[str, doc("Empty if unknown.")]
    host: str
    pid: int | None
    concurrency: int | None
    running: Annotated[int | None, doc("The number of jobs that it was running when it last reported.")]
    started_at_ms: Annotated[int | None, doc("According to its own clock.")]
    heard_ms: Annotated[int | None, doc("How long ago it last sent a request.")]
    said_ms: Annotated[int | None, doc("How long ago it last reported the other fields.")]
    handed_out: Annotated[int, doc("The number of jobs that it received in the last hour.")]


class HeldJobItem(AnswerShape, frozen=True, kw_only=True):
    """A claimed job."""

    descriptor: str
    queue: str
    for_ms: Annotated[int, doc("How long ago it was claimed or last checkpointed.")]
    left_ms: Annotated[int | None, doc("How long until its claim ends; below 0 after the deadline.")]


class LostClaimItem(AnswerShape, frozen=True, kw_only=True):
    """A claim that ended at its deadline."""

    queue: str
    descriptor: str
    ended_ms: Annotated[int, doc("How long ago.")]


class WorkerItem(AnswerShape, frozen=True, kw_only=True):
    """The workers with one source. Numbers are of the last hour, of the servers that answered."""

    source: str
    trouble: Annotated[
        Literal["stuck", "silent", "slow", "none"],
        doc(
            "`stuck`: it sends requests but makes no progress; `silent`: it, or one of its processes, no longer sends any."
        ),
    ]
    reasons: Annotated[Sequence[str], doc("Sentences that say why it needs attention.")]
    heard_ms: Annotated[int | None, doc("How long ago one of its processes was last heard from; null if never.")]
    queues: Sequence[str]
    waiting: Annotated[Mapping[str, int], doc("Long polls by queue.")]
    holds: Annotated[Mapping[str, int], doc("Claimed jobs by queue, of those that were looked at.")]
    longest: Annotated[HeldJobItem | None, doc("The job that it has held longest.")]
    next_end: Annotated[HeldJobItem | None, doc("The job whose claim ends first.")]
    handed_out: int
    timed_out: Annotated[int, doc("Claims that ended at their deadline.")]
    late: Annotated[int, doc("Acks that came after their claim had ended, including repeated ones.")]
    lost: Annotated[Sequence[LostClaimItem], doc("The latest claims that timed out, newest first.")]
    processes: Annotated[Sequence[WorkerProcessItem], doc("The most recently heard first.")]


class WorkersAnswer(AnswerShape, frozen=True, kw_only=True):
    """Workers: stuck ones first, then silent ones, then slow ones, then the others."""

    workers: Sequence[WorkerItem]
    total: Annotated[int, doc("The number of workers that were found; the answer has the first of them.")]
    running: Annotated[int, doc("The number of claimed jobs in all queues.")]
    looked_at: Annotated[int, doc("The number of claimed jobs that were looked at.")]
    counted_ms: Annotated[
        int, doc("How far back the numbers go: an hour, or to the start of the server that started last.")
    ]
    gaps: Annotated[Sequence[str], doc("Sentences that say what is unknown.")]
    incomplete: Incomplete


@endpoint(
    "GET",
    "/v1/workers",
    calls="workers, queue_stats, scan, queue_history",
    cost=lambda _: costs.of_jobs(QUEUES_MAX * JOBS_MAX),  # other data of servers about workers is smaller
)
async def get_workers(call: ApiCall[QueuesQuery, Nothing]) -> WorkersAnswer:
    """Returns the workers that ask for jobs or hold some, with versions, last requests and lost claims. Asks all servers of the shards,
    and looks at 100 claimed jobs in each of the ten queues with the most."""
    client, queues = call.client, list(call.query.queue)
    replies = await worker_replies(client, _SERVER_S)
    now_ms = now_of(replies) or call.now_ms
    stats = sorted(await client.queue_stats(*queues), key=lambda one: -one.total("in_progress"))
    busy = [one.queue for one in stats[:QUEUES_MAX] if one.total("in_progress")]
    gaps = ["a shard is unreachable, and its jobs are not counted"] if any(one.incomplete for one in stats) else []
    jobs: list[JobInHand] = []
    for queue in busy:
        jobs += in_hand_of(queue, (await client.scan(queue, JobState.IN_PROGRESS, limit=JOBS_MAX)).jobs, now_ms)
    usual_ms = await _usual_ms(client, jobs, now_ms)
    found = workers_of(replies, jobs, usual_ms, queues, gaps)
    return like(
        WorkersAnswer,
        found,
        workers=[
            like(WorkerItem, worker, waiting=worker.waits, processes=[_process(status) for status in worker.processes])
            for worker in found.workers[:WORKERS_MAX]
        ],
        total=len(found.workers),
        running=sum(one.total("in_progress") for one in stats),
        looked_at=len(jobs),
        incomplete=bool(found.gaps),
    )


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


def _process(status: WorkerStatus) -> WorkerProcessItem:
    return like(WorkerProcessItem, status, **(_NOT_SAID if status.info is None else status.info._asdict()))
