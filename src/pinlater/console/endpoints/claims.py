"""Claims: dequeue, ack, heartbeat, checkpoint, release. An error of one shard is the outcome of its items, never of the whole request."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import Ack, AckBatch, Checkpoint, Claim, ClaimedJob
from pinlater.client.errors import ConnectionLost
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import body_given, body_shown, like, result_items, results_shown
from pinlater.console.shapes.claims import (
    AckItem,
    AckRequest,
    CheckpointRequest,
    ClaimedJobItem,
    ClaimedJobsAnswer,
    ClaimItem,
    DequeueRequest,
    HeartbeatRequest,
    ReleaseRequest,
    ResultsAnswer,
)
from pinlater.console.shapes.fields import Nothing


async def dequeue(call: ApiCall[Nothing, DequeueRequest]) -> ClaimedJobsAnswer:
    """Claims due jobs, and can wait for one. A claim ends with an ack, with a release, or when it times out. If the caller
    disconnects, its jobs are released."""
    body = call.body
    acks = AckBatch(call.queue, _acks(body.acks), per_item_errors=True) if body.acks else None
    try:
        with call.poll_limit.place(body.wait_ms):
            dequeued = await call.client.dequeue(
                call.queue, body.limit, wait_ms=body.wait_ms, acks=acks, dry_run=body.dry_run, coverage=body.coverage
            )
    except ConnectionLost:
        if acks is None and call.stopping():
            return ClaimedJobsAnswer(jobs=[], results=[])
        raise
    return ClaimedJobsAnswer(jobs=[_claimed(job) for job in dequeued.jobs], results=result_items(dequeued.ack_results))


def _claimed(job: ClaimedJob) -> ClaimedJobItem:
    return like(
        ClaimedJobItem,
        job,
        token=job.token or None,
        headers=dict(job.headers),
        claim_deadline_at_ms=job.claim_deadline_ms,
        **body_shown(job.body),
    )


async def give_back(call: ApiCall[Nothing, DequeueRequest], answer: ClaimedJobsAnswer) -> None:
    """Releases jobs whose caller is gone."""
    claims = [Claim(job.descriptor, job.token) for job in answer.jobs if job.token]
    if claims and not call.body.dry_run:
        await call.client.release(call.queue, claims, per_item_errors=True)


async def ack_jobs(call: ApiCall[Nothing, AckRequest]) -> ResultsAnswer:
    """Ends attempts, as succeeded or failed."""
    return results_shown(await call.client.ack(call.queue, _acks(call.body.jobs), per_item_errors=True))


def _acks(items: Sequence[AckItem]) -> list[Ack]:
    return [
        Ack(
            item.descriptor,
            succeeded=item.succeeded,
            token=item.token,
            append_status=item.append_status,
            retry_delay_ms=item.retry_delay_ms,
            final=item.final,
            error_type=item.error_type,
            error_text=item.error_text,
        )
        for item in items
    ]


def _claims(items: Sequence[ClaimItem]) -> list[Claim]:
    return [Claim(item.descriptor, item.token) for item in items]


async def heartbeat_jobs(call: ApiCall[Nothing, HeartbeatRequest]) -> ResultsAnswer:
    """Renews claims."""
    return results_shown(await call.client.heartbeat(call.queue, _claims(call.body.jobs), per_item_errors=True))


async def checkpoint_jobs(call: ApiCall[Nothing, CheckpointRequest]) -> ResultsAnswer:
    """Saves the progress of claimed jobs and renews their claims."""
    items = [
        Checkpoint(
            item.descriptor,
            token=item.token,
            new_body=body_given(item, f"jobs[{index}]"),
            move_to_pending=item.move_to_pending,
            run_after_ms=item.run_after_ms,
            attempts_allowed=item.attempts_allowed,
            prepend_status=item.prepend_status,
        )
        for index, item in enumerate(call.body.jobs)
    ]
    return results_shown(await call.client.checkpoint(call.queue, items, per_item_errors=True))


async def release_jobs(call: ApiCall[Nothing, ReleaseRequest]) -> ResultsAnswer:
    """Returns claimed jobs to the queue without spending an attempt."""
    claims = _claims(call.body.jobs)
    done = await call.client.release(call.queue, claims, delay_ms=call.body.delay_ms, per_item_errors=True)
    return results_shown(done)
