"""Spans appear when an SDK is configured, and the context travels in the jobs' headers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from pinlater.server.telemetry.tracing import LINKS_MAX, Tracing, extract, find_tracing

PRODUCER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider()
    yield made
    made.shutdown()


@pytest.fixture
def exporter(provider: TracerProvider) -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(made))
    return made


def test_without_an_sdk_everything_is_a_no_op() -> None:
    tracing = find_tracing()
    headers = {"a": "b"}
    assert not tracing.enabled
    with (
        tracing.enqueue_span("emails", [headers]),
        tracing.dequeue_span("emails"),
    ):
        tracing.link_jobs([{"traceparent": PRODUCER}])
    assert tracing.inject(headers) is headers
    assert tracing.inject(None) is None


def test_an_enqueue_is_a_producers_span_whose_context_goes_into_the_headers(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracing = Tracing(provider)
    with tracing.enqueue_span("emails", [None, None]):
        headers = tracing.inject({"a": "b"})
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("enqueue emails", SpanKind.PRODUCER)
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "emails"
    assert span.attributes["messaging.batch.message_count"] == 2
    assert headers is not None
    assert headers["a"] == "b"
    assert headers["traceparent"].split("-")[2] == f"{span.context.span_id:016x}"


def test_a_producers_own_context_stays_and_is_linked_to(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracing = Tracing(provider)
    headers = {"traceparent": PRODUCER}
    with tracing.enqueue_span("emails", [headers]):
        assert tracing.inject(headers) == headers
    (span,) = exporter.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [PRODUCER.split("-")[1]]


def test_a_dequeue_links_to_the_traces_of_the_jobs_it_gave(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracing = Tracing(provider)
    with tracing.dequeue_span("emails"):
        tracing.link_jobs([{"traceparent": PRODUCER}, {"traceparent": PRODUCER}, {"traceparent": "nonsense"}, None])
    (span,) = exporter.get_finished_spans()
    assert len(span.links) == 1
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 4


def test_links_are_bounded(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    tracing = Tracing(provider)
    headers = [{"traceparent": f"00-{number:032x}-b7ad6b7169203331-01"} for number in range(1, LINKS_MAX * 2)]
    with tracing.enqueue_span("emails", headers):
        pass
    (span,) = exporter.get_finished_spans()
    assert len(span.links) == LINKS_MAX


@pytest.mark.parametrize(
    "headers", [None, {}, {"traceparent": ""}, {"traceparent": "00-0-0-01"}, {"traceparent": "\n"}]
)
def test_headers_without_a_trace_give_no_link(headers: dict[str, str] | None) -> None:
    assert extract(headers) is None


def test_a_configured_sdk_is_found_and_a_missing_one_costs_no_import() -> None:
    """In processes of their own, since the provider is global to a process."""
    find = "from pinlater.server.telemetry.tracing import find_tracing; assert find_tracing().enabled is {}"
    configured = "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
    configured += "trace.set_tracer_provider(TracerProvider());" + find.format(True)
    missing = "import sys; sys.modules['opentelemetry'] = None;" + find.format(False)
    missing += (
        "; from pinlater.server.telemetry.tracing import *; t = find_tracing(); t.enqueue_span('q', [None]).__enter__()"
    )
    missing += f"; assert extract({{'traceparent': '{PRODUCER}'}}) is None"
    for program in (configured, missing):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
