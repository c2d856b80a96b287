"""`pinlater client-tool`: the original's tool with its options and its output, for users' old scripts."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from enum import Enum
from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.cli.load_generator import IntervalReader, LoadMode, LoadPlan, LoadRun, Meter
from pinlater.client import AsyncClient, JobInfo, JobState

_CONNECTIONS_MAX = 64


class ToolMode(str, Enum):  # noqa: UP042 - the option's words
    """What the tool does."""

    CREATE = "create"
    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    CHECK_DEQUEUE = "check_dequeue"
    LOOKUP = "lookup"
    GET_JOB_COUNT = "get_job_count"
    GET_QUEUE_NAMES = "get_queue_names"


def client_tool(
    host: Annotated[str, typer.Option(help="The server's host.", show_default=False)],
    port: Annotated[int, typer.Option(help="The server's Thrift port.", show_default=False)],
    mode: Annotated[
        ToolMode, typer.Option(metavar="MODE", help=f"What to do: {', '.join(ToolMode)}.", show_default=False)
    ],
    queue: Annotated[
        str | None, typer.Option(help="Needed in all modes but get_queue_names.", autocompletion=options.complete_queue)
    ] = None,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Queries at a time.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch_size", metavar="N", min=1, help="Jobs a query.")] = 1,
    num_queries: Annotated[int, typer.Option("--num_queries", help="Queries in all; -1: no end.")] = 1,
    dequeue_success_percent: Annotated[
        int, typer.Option("--dequeue_success_percent", metavar="N", parser=options.integer_up_to(100))
    ] = 100,
    job_descriptor: Annotated[str | None, typer.Option("--job_descriptor", help="The job to look up.")] = None,
    priority: Annotated[int | None, typer.Option(help="1 where jobs are enqueued; else all.")] = None,
    job_state: Annotated[
        int, typer.Option("--job_state", metavar="N", parser=options.integer_up_to(3), help="0 pending to 3 failed.")
    ] = 0,
    count_future_jobs: Annotated[str, typer.Option("--count_future_jobs", metavar="true|false")] = "false",
) -> None:
    """Do what the original's client tool does. Options (with underscores) and output are those of the original, so old
    scripts work unchanged.

    Example: pinlater client-tool --host localhost --port 9010 --mode enqueue --queue emails --num_queries 100
    """
    client = options.client_for(f"{host}:{port}", options.TIMEOUT_S, connections=min(concurrency, _CONNECTIONS_MAX))
    name = _needed("--queue", queue) if mode is not ToolMode.GET_QUEUE_NAMES else ""
    load = LoadPlan(
        LoadMode.ENQUEUE, name, num_queries, batch_size, concurrency, dequeue_success_percent, None, priority or 1
    )
    job = _needed("--job_descriptor", job_descriptor) if mode is ToolMode.LOOKUP else ""
    future = count_future_jobs.strip().lower() == "true"

    async def run() -> None:
        async with client:
            match mode:
                case ToolMode.CREATE:
                    await client.create_queue(name)
                    told = f"Created queue: {name}"
                case ToolMode.ENQUEUE | ToolMode.DEQUEUE:
                    await _load(client, load._replace(mode=LoadMode(mode.value)))
                    return
                case ToolMode.CHECK_DEQUEUE:
                    told = f"Jobs available for dequeue: {len((await client.dequeue(name, 1, dry_run=True)).jobs)}"
                case ToolMode.LOOKUP:
                    found = (await client.lookup([job], bodies=True)).get(job)
                    if found is None:
                        exits.fail(f"no such job: {job}", exits.REFUSED)
                    told = f"Job: {_job_text(found)}"
                case ToolMode.GET_JOB_COUNT:
                    state = JobState(job_state)
                    told = f"# jobs: {await client.count(name, state, priority=priority, future=future)}"
                case ToolMode.GET_QUEUE_NAMES:
                    told = f"Queues: [{', '.join(await client.queue_names())}]"
        output.print_lines([told])

    with exits.reported("--host and --port name another server"):
        asyncio.run(run())


def _needed(option: str, value: str | None) -> str:
    if value is None:
        raise typer.BadParameter("this mode needs it", param_hint=option)
    return value


def _job_text(job: JobInfo) -> str:
    """The fields under their wire names, as Thrift's Java code prints a struct."""
    fields = {
        "jobDescriptor": job.descriptor,
        "jobState": job.state.name,
        "attemptsAllowed": job.attempts_allowed,
        "attemptsRemaining": job.attempts_remaining,
        "customStatus": job.custom_status,
        "createdAtTimestampMillis": job.created_at_ms,
        "runAfterTimestampMillis": job.run_after_ms,
        "updatedAtTimestampMillis": job.updated_at_ms,
        "claimDescriptor": job.claim_descriptor,
        "body": None if job.body is None else output.shown_body(job),
    }
    return "PinLaterJobInfo(" + ", ".join(f"{key}:{value}" for key, value in fields.items() if value is not None) + ")"


async def _load(client: AsyncClient, plan: LoadPlan) -> None:
    run = LoadRun(client, plan)
    showing = asyncio.create_task(_show(run.meter))
    try:
        await run.run()
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing
    if run.meter.last_error is not None:
        raise run.meter.last_error


async def _show(meter: Meter) -> None:
    """Prints the original's line once a second, and at the end for the remaining queries."""
    reader = IntervalReader(meter)
    try:
        while True:
            await asyncio.sleep(1)
            _print_rate(reader)
    finally:
        _print_rate(reader)


def _print_rate(reader: IntervalReader) -> None:
    now = reader.read()
    if now.queries:
        qps = now.queries / now.seconds
        output.print_lines([f"QPS: {qps:.0f} Avg Latency (ms): {now.latency_ms_avg:.3f}"])
        sys.stdout.flush()
