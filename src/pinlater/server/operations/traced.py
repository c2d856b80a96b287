"""Spans around enqueue and dequeue, put there only where somebody configured tracing, so that nobody else pays for it."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.operations.service import Service
from pinlater.server.operations.values import Caller, DequeueCommand, Dequeued, Enqueued, JobToEnqueue
from pinlater.server.telemetry.tracing import Tracing


def trace(service: Service, tracing: Tracing) -> None:
    """From now on each enqueue and dequeue of `service` has a span, and the trace travels in the jobs' headers."""
    if not tracing.enabled:
        return
    enqueue, dequeue = service.enqueue, service.dequeue

    async def traced_enqueue(
        caller: Caller,
        queue: str,
        jobs: Sequence[JobToEnqueue],
        *,
        request_key: str | None = None,
        repeat: bool = False,
    ) -> Enqueued:
        with tracing.enqueue_span(queue, [job.headers for job in jobs]):
            carrying = [job._replace(headers=tracing.inject(job.headers)) for job in jobs]
            return await enqueue(caller, queue, carrying, request_key=request_key, repeat=repeat)

    async def traced_dequeue(caller: Caller, command: DequeueCommand) -> Dequeued:
        with tracing.dequeue_span(command.queue):
            dequeued = await dequeue(caller, command)
            tracing.link_jobs([handed_out.job.headers for handed_out in dequeued.jobs])
            return dequeued

    service.enqueue = traced_enqueue
    service.dequeue = traced_dequeue
