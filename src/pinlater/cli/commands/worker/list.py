"""`pinlater worker list`: who asks for jobs and who holds some, by the name that workers give themselves (their source)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.cli import options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.watch import Watching
from pinlater.client import AsyncClient, JobState
from pinlater.client.errors import UnknownMethod
from pinlater.client.worker_judgement import SLOW_MS, in_hand_of, now_of, usual_run_ms, workers_of
from pinlater.client.worker_replies import worker_replies
from pinlater.client.workers import JobInHand, KnownWorker, WorkersFound
from pinlater.domain.clock import SystemClock
from pinlater.domain.history import HOUR_MS, QUEUES_MAX, TEN_MINUTES_S

_PAGE_JOBS, _JOBS_MAX = 1_000, 20_000
_PLAIN_CLIENT = "plain client"  # a command, or a program whose client does not report what it is
_NONE = "no worker holds a job, waits for one, or was heard lately"
_COLUMNS: output.Columns[KnownWorker] = {
    "worker": lambda worker: worker.source,
    "state": lambda worker: None if not worker.reasons else worker.trouble.value,
    "version": lambda worker: [version or _PLAIN_CLIENT for version in worker.versions] or None,
    "queues": lambda worker: list(worker.queues),
    "holds": lambda worker: worker.held,
    "waits": lambda worker: sum(worker.waits.values()),
    "heard": lambda worker: output.age(worker.heard_ms),
    "lost": lambda worker: worker.timed_out,
    "why": lambda worker: ". ".join(worker.reasons) or None,
}


def list_workers(call: ServerCall, watching: Watching, queues: options.QueueNames = None) -> None:
    """List workers, those in trouble first. Stuck workers come before silent ones (no longer heard, although they hold jobs or lost
    some), and these before slow ones, each with the reason.

    Asks the servers of --server, and by them the others of the shards, which workers they heard in the last 15 minutes, what became of
    their claims in the last hour, and which wait in a long poll.

    --watch --json prints one line each time.

    Example: pinlater worker list emails --server a:9010,b:9010
    """
    watching.ask_and_show(
        call,
        lambda client: _find(client, queues or [], call.timeout),
        lambda found: _answer(call, found, in_one_line=watching.watch),
    )


async def _find(client: AsyncClient, queues: Sequence[str], timeout_s: float) -> WorkersFound:
    replies = await worker_replies(client, timeout_s)
    now_ms = now_of(replies) or SystemClock().now_ms()
    jobs, gaps = await _in_hand(client, queues, now_ms)
    return workers_of(replies, jobs, await _usual_ms(client, jobs, now_ms), queues, gaps)


async def _in_hand(client: AsyncClient, queues: Sequence[str], now_ms: int) -> tuple[list[JobInHand], list[str]]:
    """Returns the claimed jobs, and what is not known about them."""
    jobs: list[JobInHand] = []
    incomplete = cut = False
    for stats in await client.queue_stats(*queues):
        incomplete |= stats.incomplete
        after, looked_at = "0", 0
        while stats.total("in_progress") and after != "-1" and looked_at < _JOBS_MAX:
            page = await client.scan(
                stats.queue, JobState.IN_PROGRESS, limit=_PAGE_JOBS, continuation=after, paged=True
            )
            jobs += in_hand_of(stats.queue, page.jobs, now_ms)
            incomplete |= page.incomplete
            looked_at += len(page.jobs)
            after = page.continuation
        cut |= after not in ("0", "-1")
    gaps = ["a shard is unreachable, and its jobs are not counted"] if incomplete else []
    return jobs, [*gaps, "more jobs are held than one look counts"] if cut else gaps


async def _usual_ms(client: AsyncClient, jobs: Sequence[JobInHand], now_ms: int) -> dict[str, int]:
    """Returns the run times of the queues in which a job may run too long."""
    queues = sorted({job.queue for job in jobs if job.for_ms >= SLOW_MS})[:QUEUES_MAX]
    if not queues:
        return {}
    try:
        found = await client.queue_history(*queues, from_ms=now_ms - HOUR_MS, step_s=TEN_MINUTES_S)
    except UnknownMethod:
        return {}
    return usual_run_ms(found.queues)


def _answer(call: ServerCall, found: WorkersFound, *, in_one_line: bool) -> None:
    listed, gaps = list(map(_as_json, found.workers)), list(found.gaps)
    call.answer(
        {"workers": listed, "incomplete": bool(gaps), "gaps": gaps, "counted_ms": found.counted_ms},
        lambda: output.print_blocks(_COLUMNS, found.workers, "worker ", without_rows=_NONE),
        in_one_line=in_one_line,
    )
    if gaps and not call.json:
        output.warn_incomplete("; ".join(gaps))


def _as_json(worker: KnownWorker) -> dict[str, Any]:
    return {
        "worker": worker.source,
        "trouble": worker.trouble.value,
        "reasons": list(worker.reasons),
        "queues": list(worker.queues),
        "holds": dict(worker.holds),
        "waits": dict(worker.waits),
        "heard_ms": worker.heard_ms,
        "handed_out": worker.handed_out,
        "timed_out": worker.timed_out,
        "late": worker.late,
        "lost": [claim._asdict() for claim in worker.lost],
        "longest": None if worker.longest is None else worker.longest._asdict(),
        "next_end": None if worker.next_end is None else worker.next_end._asdict(),
        "processes": [
            {
                "process": status.process,
                **({} if status.info is None else status.info._asdict()),
                "heard_ms": status.heard_ms,
                "said_ms": status.said_ms,
                "handed_out": status.handed_out,
            }
            for status in worker.processes
        ],
    }
