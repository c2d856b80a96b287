"""OpenTelemetry: a job continues the trace of its producer.

If OpenTelemetry is in use, tasks put the current span's `traceparent` into the headers of the jobs that they enqueue. The middleware makes
a span of each attempt, with that parent. The program sets up the SDK and its exporters.

In a child process the attempt's span is the parent of new spans, which the child's own SDK exports; `Worker(child_setup=…)` sets it up.

Only the middleware needs the extra `otel`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, NamedTuple

from pinlater.domain.trace_headers import TRACEPARENT, trace_headers
from pinlater.version import __version__
from pinlater.worker._attempts.endings import Ending
from pinlater.worker.context import JobContext
from pinlater.worker.middleware import Middleware

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider


class _Open(NamedTuple):
    span: Span
    token: Token[Context]


_OPEN: ContextVar[_Open | None] = ContextVar("pinlater_open_span", default=None)


class OpenTelemetry(Middleware):
    """A span of each attempt, current while its function runs. Without `provider` the process's own is used."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        from opentelemetry import trace

        self._tracer = (provider or trace.get_tracer_provider()).get_tracer("pinlater", __version__)

    def before(self, job: JobContext) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract(trace_headers(job.headers))
        attributes: dict[str, str | int] = {
            "messaging.system": "pinlater",
            "messaging.destination.name": job.queue,
            "messaging.operation.type": "process",
            "messaging.message.id": job.descriptor,
            "pinlater.task": job.task,
            "pinlater.attempt": job.attempt,
        }
        span = self._tracer.start_span(
            f"process {job.task}", parent, kind=trace.SpanKind.CONSUMER, attributes=attributes
        )
        _OPEN.set(_Open(span, context.attach(trace.set_span_in_context(span, parent))))

    def on_failure(self, job: JobContext, ending: Ending, error: BaseException | None) -> None:
        from opentelemetry.trace import StatusCode

        opened = _OPEN.get()
        if opened is None:
            return
        if error is not None:
            opened.span.record_exception(error)
        opened.span.set_attribute("error.type", ending.error_type)
        opened.span.set_status(StatusCode.ERROR, ending.status)

    def after(self, job: JobContext, ending: Ending) -> None:
        from opentelemetry import context

        opened = _OPEN.get()
        if opened is None:
            return
        _OPEN.set(None)
        opened.span.set_attribute("pinlater.outcome", ending.kind.value)
        opened.span.end()
        context.detach(opened.token)


def with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """`headers` with the current span's `traceparent`, unless they have one or there is no span. Never imports OpenTelemetry first."""
    if "opentelemetry.trace" not in sys.modules or TRACEPARENT in headers:
        return headers
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not trace.get_current_span().get_span_context().is_valid:
        return headers
    carrier = dict(headers)
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


@contextlib.contextmanager
def with_parent_span(trace: Mapping[str, str] | None) -> Iterator[None]:
    """In a child process: the span that `with_trace` named in the parent is the current one, if there was one."""
    if not trace:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(dict(trace)))
    try:
        yield
    finally:
        context.detach(token)
