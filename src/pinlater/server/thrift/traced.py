"""Spans around the methods that carry a trace: put around their handlers at the start, so that a server without tracing pays nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pinlater.server.operations.service import Service
from pinlater.server.telemetry.tracing import Tracing
from pinlater.server.thrift.handlers import Handler

InSpan = Callable[[Tracing, Handler, Service, Any], Awaitable[Any]]


async def _enqueue(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The trace travels in the headers of the jobs."""
    request = call.request
    with tracing.enqueue_span(request.queueName, [job.headers for job in request.jobs]):
        for job in request.jobs:
            job.headers = tracing.inject(job.headers)
        return await handle(service, call)


async def _dequeue(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The span links to the traces that the jobs carry."""
    with tracing.dequeue_span(call.request.queueName):
        answer = await handle(service, call)
        tracing.link_jobs([metadata.headers for metadata in answer.jobMetadata.values()])
        return answer


IN_SPAN: Mapping[str, InSpan] = {"enqueueJobs": _enqueue, "dequeueJobs": _dequeue}


def traced(handlers: Mapping[str, Handler], tracing: Tracing) -> Mapping[str, Handler]:
    """The handlers, with spans around those that `IN_SPAN` names; as they are without tracing."""
    if not tracing.enabled:
        return handlers

    def handler(in_span: InSpan, handle: Handler) -> Handler:
        return lambda service, call: in_span(tracing, handle, service, call)

    return {**handlers, **{name: handler(in_span, handlers[name]) for name, in_span in IN_SPAN.items()}}
