"""OpenTelemetry: the producer, the attempt and the task's own spans are one trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pinlater.client import AsyncClient
from pinlater.worker import Worker
from pinlater.worker.tracing import OpenTelemetry
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import running_processes
from tests.worker.conftest import eventually
from tests.worker.test_worker import FAST, running


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Collects finished spans."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """A provider for this test only."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def test_a_job_continues_the_trace_of_its_producer(
    client: AsyncClient, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = provider.get_tracer("shop")
    worker = Worker(client, settings=FAST, middleware=[OpenTelemetry(provider)])

    @worker.task("q")
    async def on_loop() -> None:
        tracer.start_span("inside on_loop").end()

    @worker.task("q")
    def in_thread() -> None:
        tracer.start_span("inside in_thread").end()

    with tracer.start_as_current_span("request") as request:
        placed = await on_loop.enqueue_async()
        await in_thread.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.succeeded == 2)
    trace_id = request.get_span_context().trace_id
    for task in ("on_loop", "in_thread"):
        (attempt,), (inside,) = named(exporter, f"process {task}"), named(exporter, f"inside {task}")
        assert attempt.context is not None
        assert attempt.parent is not None
        assert inside.parent is not None
        assert (attempt.context.trace_id, attempt.parent.span_id) == (trace_id, request.get_span_context().span_id)
        assert inside.parent.span_id == attempt.context.span_id
        assert attempt.kind is SpanKind.CONSUMER
    attributes = dict(named(exporter, "process on_loop")[0].attributes or {})
    assert attributes["messaging.message.id"] == placed.descriptor
    assert (attributes["pinlater.attempt"], attributes["pinlater.outcome"]) == (1, "succeeded")


async def test_a_task_in_a_process_continues_the_trace(
    client: AsyncClient,
    provider: TracerProvider,
    exporter: InMemorySpanExporter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spans that the task starts, and jobs that it enqueues, are children of its attempt."""
    monkeypatch.setattr(process_tasks.worker, "_middleware", (OpenTelemetry(provider),))
    async with running_processes(client) as worker:
        await process_tasks.note_span.enqueue_async(str(tmp_path))
        await eventually(lambda: worker.counts.succeeded == 1)
    (attempt,) = named(exporter, "process note_span")
    assert attempt.context is not None
    trace_id, span_id, carried = (tmp_path / "span").read_text().split(" ")
    assert (int(trace_id, 16), int(span_id, 16)) == (attempt.context.trace_id, attempt.context.span_id)
    assert f"{attempt.context.trace_id:032x}-{attempt.context.span_id:016x}" in carried


async def test_a_process_without_a_current_span_has_none(client: AsyncClient, tmp_path: Path) -> None:
    async with running_processes(client) as worker:
        await process_tasks.note_span.enqueue_async(str(tmp_path))
        await eventually(lambda: worker.counts.succeeded == 1)
    assert (tmp_path / "span").read_text() == "0 0 "


async def test_each_attempt_has_a_span_which_names_its_failure(
    client: AsyncClient, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    worker = Worker(client, settings=FAST, middleware=[OpenTelemetry(provider)])

    @worker.task("q", attempts=2)
    async def fail() -> None:
        raise ValueError("no")

    @worker.task("q", attempts=1, time_limit=0.02)
    async def hang() -> None:
        await eventually(lambda: False)

    await fail.enqueue_async()
    await hang.enqueue_async()
    async with running(worker):
        await eventually(lambda: worker.counts.failed == 3)
    first, second = named(exporter, "process fail")
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id != second.context.trace_id  # its enqueuer did not trace
    assert first.status.status_code is StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert dict(first.attributes or {})["error.type"] == "ValueError"
    (hung,) = named(exporter, "process hang")
    assert dict(hung.attributes or {})["error.type"].endswith("TimeLimitExceeded")  # type: ignore[union-attr]


async def test_a_job_without_a_current_span_gets_no_header_and_a_given_one_stays(
    client: AsyncClient, provider: TracerProvider
) -> None:
    worker = Worker(client)

    @worker.task("q")
    async def run() -> None: ...

    assert "traceparent" not in (run.job().headers or {})
    with provider.get_tracer("shop").start_as_current_span("request"):
        mine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        assert (run.using(headers={"traceparent": mine}).job().headers or {})["traceparent"] == mine
        span = trace.get_current_span().get_span_context()
        assert f"{span.trace_id:032x}-{span.span_id:016x}" in (run.job().headers or {})["traceparent"]


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    program = (
        "import sys\nfrom pinlater import Worker\nw = Worker('127.0.0.1:1')\n"
        "@w.task('q')\ndef run() -> None: ...\nrun.job()\nprint('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
