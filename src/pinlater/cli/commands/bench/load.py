"""`pinlater bench load`: the performance mode of the original's client tool, with live rates and percentiles."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pinlater.cli import exits, notes, options, output
from pinlater.cli.call import CommandReply, ServerCall
from pinlater.cli.load_generator import IntervalReader, LoadMode, LoadPlan, LoadRun, Meter
from pinlater.client import AsyncClient

_CONNECTIONS_MAX = 64
_LOOK_S = 1.0


def load(
    call: ServerCall,
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", help="Made if it isn't there.", autocompletion=options.complete_queue)
    ] = "load_test",
    mode: Annotated[
        LoadMode, typer.Option(metavar="MODE", help=f"What a query is: {', '.join(LoadMode)}.")
    ] = LoadMode.ENQUEUE,
    num_queries: Annotated[
        int | None, typer.Option(help="Queries in all; -1: no end.", show_default="1000, or no end with --duration")
    ] = None,
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs a query.")] = 1,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Queries at a time.")] = 1,
    dequeue_success_percent: Annotated[
        int, typer.Option(metavar="N", parser=options.integer_up_to(100), help="How many of 100 dequeued jobs succeed.")
    ] = 100,
    body_size: Annotated[int | None, typer.Option(metavar="N", min=0, help="Bytes a body; else a short text.")] = None,
    priority: Annotated[int, typer.Option("--priority", "-p", help="Of the jobs enqueued.")] = 1,
    wait: Annotated[str, typer.Option(help="How long a dequeue waits for jobs.")] = "0",
    duration: Annotated[str | None, typer.Option(help="Ends after this span: 30s, 5m.")] = None,
) -> None:
    """Send a load and measure it. Ctrl-C ends it with its summary. Exit code 5 if any query failed.

    Example: pinlater bench load --mode enqueue --num-queries -1 --concurrency 64 --duration 30s
    """
    plan = LoadPlan(
        mode,
        queue,
        num_queries if num_queries is not None else 1000 if duration is None else -1,
        batch_size,
        concurrency,
        dequeue_success_percent,
        body_size,
        priority,
        options.span_ms(wait, "--wait") or 0,
    )
    duration_ms = options.span_ms(duration, "--duration")
    client = options.client_for(call.server, call.timeout, connections=min(concurrency, _CONNECTIONS_MAX))
    with exits.reported():
        meter = asyncio.run(_measure(client, plan, duration_ms))
    answer_summary(call, plan, meter)
    if meter.last_error is not None:
        exits.fail(f"{meter.errors} queries failed, the last: {meter.last_error}", exits.UNEXPECTED_RESULT)


async def _measure(client: AsyncClient, plan: LoadPlan, duration_ms: int | None) -> Meter:
    async with client:
        await client.create_queue(plan.queue)
        run = LoadRun(client, plan)
        with _interrupt_stops(run):
            loading = asyncio.create_task(run.run())
            showing = asyncio.create_task(_show(run.meter, plan))
            if duration_ms is not None:
                await asyncio.wait([loading], timeout=duration_ms / 1000)
                run.stop()
            try:
                await loading
            finally:
                showing.cancel()
                await asyncio.wait([showing])
        return run.meter


@contextlib.contextmanager
def _interrupt_stops(run: LoadRun) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, run.stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _show(meter: Meter, plan: LoadPlan) -> None:
    """Shows live figures on standard error: a bar on a terminal, a line per second elsewhere. Shows nothing to a caller that reads JSON."""
    if notes.in_json():
        return
    console = Console(file=sys.stderr)
    reader = IntervalReader(meter)
    if not console.is_interactive:
        while True:
            await asyncio.sleep(_LOOK_S)
            sys.stderr.write(_live_text(reader) + "\n")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[live]}"), console=console, transient=True) as progress:
        total = plan.queries if plan.queries >= 0 else None
        bar = progress.add_task(plan.mode.value, total=total, live="")
        while True:
            await asyncio.sleep(_LOOK_S / 4)
            progress.update(bar, completed=meter.queries, live=_live_text(reader))


def _live_text(reader: IntervalReader) -> str:
    now = reader.read()
    rate = now.jobs / now.seconds if now.seconds else 0.0
    return f"{rate:,.0f} jobs/s  avg {now.latency_ms_avg:.2f} ms  p99 {now.latency_ms_p99:.2f} ms"


def answer_summary(reply: CommandReply, plan: LoadPlan, meter: Meter) -> None:
    """Prints what was measured."""
    summary = meter.summary()
    rows = [(name.replace("_", " "), f"{value:,}") for name, value in summary.items()]
    reply.answer(
        {"mode": plan.mode.value, "queue": plan.queue, **summary},
        lambda: output.print_table(["measured", plan.mode.value], rows),
    )
