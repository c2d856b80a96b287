"""Tracing: the producer's trace travels in the job's headers, and a dequeue links to it."""

from __future__ import annotations

from types import SimpleNamespace

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pinlater.domain.trace_headers import TRACEPARENT
from pinlater.server.features.all import METHODS
from pinlater.server.telemetry.tracing import Tracing
from pinlater.wire.generated import structs as types
from pinlater.wire.generated.structs import EnqueueRequest, Job
from tests.service.conftest import ServiceUnderTest

CONTEXT = types.RequestContext("tests", "request-1")


async def test_a_dequeue_links_to_the_enqueue_by_the_jobs_headers(world: ServiceUnderTest) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    methods = {name: method.traced(tracing) for name, method in METHODS.items()}
    job = types.Job(b"x", headers={"kept": "as it is"})
    enqueuing = SimpleNamespace(context=CONTEXT, request=types.EnqueueRequest("q", [job]), arrived_s=None)
    await methods["enqueueJobs"].handle(world.service, enqueuing)
    dequeuing = SimpleNamespace(context=CONTEXT, request=types.DequeueRequest("q", 1))
    answer = await methods["dequeueJobs"].handle(world.service, dequeuing)
    [metadata] = answer.metadata.values()
    assert metadata.headers["kept"] == "as it is"
    enqueue, dequeue = exporter.get_finished_spans()
    assert enqueue.context is not None
    assert f"{enqueue.context.trace_id:032x}" in metadata.headers[TRACEPARENT]
    assert [link.context.span_id for link in dequeue.links] == [enqueue.context.span_id]


async def test_a_resend_with_another_trace_is_the_same_request(world: ServiceUnderTest) -> None:
    first = await world.service.enqueuing.enqueue(
        EnqueueRequest("q", [Job(b"x", headers={TRACEPARENT: "one"})], request_key="k")
    )
    second = await world.service.enqueuing.enqueue(
        EnqueueRequest("q", [Job(b"x", headers={TRACEPARENT: "two"})], request_key="k")
    )
    assert first.descriptors == second.descriptors


def test_without_tracing_nothing_is_wrapped() -> None:
    assert all(method.traced(Tracing()) is method for method in METHODS.values())
