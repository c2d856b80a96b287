"""Tracing: the producer's trace travels in the job's headers, and a dequeue links to it."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pinlater.server.operations.traced import trace
from pinlater.server.operations.values import JobToEnqueue
from pinlater.server.telemetry.tracing import TRACEPARENT, Tracing
from tests.service.conftest import CALLER, World


async def test_a_dequeue_links_to_the_enqueue_by_the_jobs_headers(world: World) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace(world.service, Tracing(provider))
    await world.enqueue(b"x", headers={"kept": "as it is"})
    [handed_out] = (await world.dequeue()).jobs
    assert handed_out.job.headers is not None
    assert handed_out.job.headers["kept"] == "as it is"
    enqueue, dequeue = exporter.get_finished_spans()
    assert enqueue.context is not None
    assert f"{enqueue.context.trace_id:032x}" in handed_out.job.headers[TRACEPARENT]
    assert [link.context.span_id for link in dequeue.links] == [enqueue.context.span_id]


async def test_a_resend_with_another_trace_is_the_same_request(world: World) -> None:
    first = await world.service.enqueue(
        CALLER, "q", [JobToEnqueue(b"x", headers={TRACEPARENT: "one"})], request_key="k"
    )
    second = await world.service.enqueue(
        CALLER, "q", [JobToEnqueue(b"x", headers={TRACEPARENT: "two"})], request_key="k"
    )
    assert first.descriptors == second.descriptors


async def test_without_tracing_nothing_is_wrapped(world: World) -> None:
    before = world.service.enqueue
    trace(world.service, Tracing())
    assert world.service.enqueue == before
