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
    host: Annotated[str, typer.Option("--host", help="The server's host.", show_default=False)],
    port: Annotated[int, typer.Option("--port", help="The server's Thrift port.", show_default=False)],
    mode: Annotated[
        ToolMode,
        typer.Option("--mode", metavar="MODE", help=f"What to do: {', '.join(ToolMode)}.", show_default=False),
    ],
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="Needed in all modes but get_queue_names.", autocompletion=options.complete_queue),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Queries at a time.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch_size", metavar="N", min=1, help="Jobs a query.")] = 1,
    num_queries: Annotated[int, typer.Option("--num_queries", help="Queries in all; -1: no end.")] = 1,
    dequeue_success_percent: Annotated[
        int, typer.Option("--dequeue_success_percent", metavar="N", parser=options.integer_up_to(100))
    ] = 100,
    job_descriptor: Annotated[str | None, typer.Option("--job_descriptor", help="The job to look up.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="1 where jobs are enqueued; else all.")] = None,
    job_state: Annotated[
        int,
        typer.Option("--job_state", metavar="N", parser=options.integer_up_to(3), help="0 pending to 3 failed."),
    ] = 0,
    count_future_jobs: Annotated[str, typer.Option("--count_future_jobs", metavar="true|false")] = "false",
) -> None:
    """Do what the original's client tool does. Options (with underscores) and output are those of the original, so old
    scripts work unchanged.

    Example: pinlater client-tool --host localhost --port 9010 --mode enqueue --queue emails --num_queries 100
    """
    client = options.client_for(f"{host}:{port}", options.TIMEOUT_S, connections=min(concurrency, _CONNECTIONS_MAX))
    name = _needed("--queue", queue) if mode is not ToolMode.GET_QUEUE_NAMES else ""
    with exits.reported("--host and --port name another server"):
        if mode in (ToolMode.ENQUEUE, ToolMode.DEQUEUE):
            plan = LoadPlan(
                LoadMode(mode.value),
                name,
                num_queries,
                batch_size,
                concurrency,
                dequeue_success_percent,
                None,
                priority or 1,
            )
            failed = asyncio.run(_load(client, plan))
            if failed.last_error is not None:
                raise failed.last_error
        elif mode is ToolMode.LOOKUP:
            asyncio.run(_look_up(client, _needed("--job_descriptor", job_descriptor)))
        elif mode is ToolMode.GET_JOB_COUNT:
            future = count_future_jobs.strip().lower() == "true"
            asyncio.run(_count(client, name, JobState(job_state), priority, future))
        else:
            asyncio.run(_ask(client, mode, name))


def _needed(option: str, value: str | None) -> str:
    if value is None:
        raise typer.BadParameter("this mode needs it", param_hint=option)
    return value


async def _ask(client: AsyncClient, mode: ToolMode, queue: str) -> None:
    async with client:
        if mode is ToolMode.CREATE:
            await client.create_queue(queue)
            output.print_lines([f"Created queue: {queue}"])
        elif mode is ToolMode.CHECK_DEQUEUE:
            available = len((await client.dequeue(queue, 1, dry_run=True)).jobs)
            output.print_lines([f"Jobs available for dequeue: {available}"])
        else:
            names = await client.queue_names()
            output.print_lines([f"Queues: [{', '.join(names)}]"])


async def _look_up(client: AsyncClient, descriptor: str) -> None:
    async with client:
        found = (await client.lookup([descriptor], bodies=True)).get(descriptor)
    if found is None:
        exits.fail(f"no such job: {descriptor}", exits.REFUSED)
    output.print_lines([f"Job: {_job_text(found)}"])


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


async def _count(client: AsyncClient, queue: str, state: JobState, priority: int | None, future: bool) -> None:
    async with client:
        number = await client.count(queue, state, priority=priority, future=future)
    output.print_lines([f"# jobs: {number}"])


async def _load(client: AsyncClient, plan: LoadPlan) -> Meter:
    async with client:
        run = LoadRun(client, plan)
        showing = asyncio.create_task(_show(run.meter))
        try:
            await run.run()
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        return run.meter


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
