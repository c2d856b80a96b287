"""OpenTelemetry spans, if the API is installed and an SDK is configured; otherwise only a check of one attribute.

The context travels in the job's headers as a W3C `traceparent`: the producer puts it there, the server that hands out the job and the
worker that runs it link to it. A link, not a parent: one dequeue hands out jobs of many traces, perhaps days later.

The SDK is configured by the process's environment (for instance `opentelemetry-instrument pinlater serve`), never by us, and
looked for once, in `find_tracing`. Hot paths write `if tracing.enabled:` before anything else here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from pinlater.domain.trace_headers import TRACEPARENT, trace_headers
from pinlater.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Link, TracerProvider

LINKS_MAX = 128  # the SDK's own default bound


class Tracing:
    """Spans of one server; without a provider everything is a no-op."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.enabled = provider is not None
        self._tracer = provider.get_tracer("pinlater", __version__) if provider is not None else None

    def enqueue_span(self, queue: str, headers: Iterable[Mapping[str, str] | None]) -> AbstractContextManager[None]:
        """Opens a span around an enqueue of jobs with these headers, linked to the traces of their producers."""
        return self._span(f"enqueue {queue}", "PRODUCER", queue, "send", list(headers))

    def dequeue_span(self, queue: str) -> AbstractContextManager[None]:
        """Opens a span around a dequeue. `link_jobs` then tells it which jobs were returned."""
        return self._span(f"dequeue {queue}", "SERVER", queue, "receive", ())

    @contextmanager
    def _span(
        self, name: str, kind: str, queue: str, operation: str, headers: Sequence[Mapping[str, str] | None]
    ) -> Iterator[None]:
        if self._tracer is None:
            yield
            return
        from opentelemetry.trace import SpanKind

        attributes: dict[str, str | int] = {
            "messaging.system": "pinlater",
            "messaging.destination.name": queue,
            "messaging.operation.type": operation,
        }
        if operation == "send":
            attributes["messaging.batch.message_count"] = len(headers)
        with self._tracer.start_as_current_span(
            name, kind=SpanKind[kind], attributes=attributes, links=_links(headers)
        ):
            yield

    def link_jobs(self, headers: Iterable[Mapping[str, str] | None]) -> None:
        """Notes that the current span handed out jobs with these headers."""
        if not self.enabled:
            return
        from opentelemetry.trace import get_current_span

        span = get_current_span()
        carried = list(headers)
        span.set_attribute("messaging.batch.message_count", len(carried))
        for link in _links(carried):
            span.add_link(link.context)

    def inject(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Returns `headers` with the `traceparent` of the current span; unchanged if the producer has set its own, or nothing is traced."""
        if not self.enabled or (headers is not None and TRACEPARENT in headers):
            return headers
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = dict(headers or {})
        TraceContextTextMapPropagator().inject(carrier)
        return carrier or headers


def extract(headers: Mapping[str, str] | None) -> Link | None:
    """A link to the trace that a job's headers name, or None if they name none that is valid, or without the API."""
    if not headers or TRACEPARENT not in headers:
        return None
    try:
        from opentelemetry.trace import Link, get_current_span
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    from opentelemetry.context import Context

    parent = TraceContextTextMapPropagator().extract(trace_headers(headers), Context())
    context = get_current_span(parent).get_span_context()
    return Link(context) if context.is_valid else None


def _links(headers: Iterable[Mapping[str, str] | None]) -> list[Link]:
    links: list[Link] = []
    seen: set[str] = set()
    for carried in headers:
        if len(links) >= LINKS_MAX:
            break
        if not carried or carried.get(TRACEPARENT, "") in seen:
            continue
        link = extract(carried)
        if link is not None:
            seen.add(carried[TRACEPARENT])
            links.append(link)
    return links


def find_tracing() -> Tracing:
    """Returns the tracing through the provider of the process, if one is configured."""
    try:
        from opentelemetry import trace
    except ImportError:
        return Tracing()
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return Tracing()
    return Tracing(provider)
