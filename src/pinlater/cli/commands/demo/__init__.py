"""`pinlater demo`: a server on SQLite in a temporary folder, a queue, some thousand jobs, a worker, a few failures retried, a check.

The check is on the server's own counts, not on what the worker thinks: every job must have ended as its body says it would. On a terminal
the server, its console and the worker keep running, so that a newcomer can look at the failed jobs and retry them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from pinlater.cli import exits, output
from pinlater.cli.call import CommandReply
from pinlater.cli.commands.demo.server import DemoConsoleFailed, DemoServer, DemoServerFailed
from pinlater.cli.commands.demo.view import DemoView, Figures
from pinlater.cli.demo_tasks import ATTEMPTS, Cause, mail_task
from pinlater.client import AsyncClient, Job, QueueStats
from pinlater.worker import Task, Worker, WorkerSettings

QUEUE = "demo"
BATCH = 100
_FAILS_ONCE_EVERY = 50
_FAILS_ALWAYS_EVERY = 500
_LOOK_S = 0.25
_DEADLINE_S = 120.0


class Expected(NamedTuple):
    """How the jobs must end."""

    succeeded: int
    failed: int
    retried: int


class DemoPlan(NamedTuple):
    """`stay`: keeps the server until Ctrl-C; None does so on a terminal."""

    jobs: int
    stay: bool | None

    @property
    def stays(self) -> bool:
        """Whether the server is kept."""
        return (sys.stdin.isatty() and sys.stdout.isatty()) if self.stay is None else self.stay


class DemoOutcome(NamedTuple):
    """The counts of the server, and whether they are as expected."""

    figures: Figures
    expected: Expected
    right: bool


def failures_of(number: int) -> int:
    """How often job `number` fails: most never, some once, a few each time."""
    if number % _FAILS_ALWAYS_EVERY == _FAILS_ALWAYS_EVERY - 1:
        return ATTEMPTS
    return 1 if number % _FAILS_ONCE_EVERY == 0 else 0


def cause_of(number: int) -> Cause:
    """Why job `number` fails, if it does: of the jobs that fail each time, every second one has the same cause."""
    return "template" if number // _FAILS_ALWAYS_EVERY % 2 else "server"


def expected_of(jobs: int) -> Expected:
    """How `jobs` jobs must end. A failure that leaves an attempt is a retry."""
    failures = [failures_of(number) for number in range(jobs)]
    lost = sum(count >= ATTEMPTS for count in failures)
    return Expected(jobs - lost, lost, sum(min(count, ATTEMPTS - 1) for count in failures))


def demo(
    reply: CommandReply,
    jobs: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many jobs.")] = 5_000,
    stay: Annotated[
        bool | None,
        typer.Option(
            "--stay/--no-stay",
            help="Afterwards, keep the server, its dashboard and the worker until Ctrl-C: the default on a terminal. "
            "--no-stay ends at once.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Watch a service run some thousand jobs. A few of them fail and are retried. Then look at them in the dashboard. Leaves nothing
    behind.

    Leaves nothing behind.

    Example: pinlater demo --jobs 20000
    """
    if reply.json and stay:
        raise typer.BadParameter("--json and --stay exclude each other", param_hint="--stay")
    plan = DemoPlan(jobs, False if reply.json else stay)
    logging.getLogger("pinlater").addHandler(logging.NullHandler())  # the jobs that fail are meant to
    with exits.reported(), tempfile.TemporaryDirectory(prefix="pinlater-demo-") as folder:
        try:
            outcome = asyncio.run(_run(Path(folder), plan, DemoView(jobs, quiet=reply.json)))
        except DemoServerFailed as error:
            exits.fail(str(error), exits.UNEXPECTED_RESULT)
        except asyncio.CancelledError:
            raise typer.Exit(exits.TERMINATED) from None
    if reply.json:
        wanted = {"enqueued": jobs, **outcome.expected._asdict()}
        output.print_json({**outcome.figures._asdict(), "expected": wanted, "as_expected": outcome.right})
    if not outcome.right:
        exits.fail(f"not every job ended as it should: expected {outcome.expected}", exits.UNEXPECTED_RESULT)


async def _run(folder: Path, plan: DemoPlan, view: DemoView) -> DemoOutcome:
    """Runs the jobs, shows the progress, and stays if that was requested."""
    _end_with_terminal()
    async with DemoServer(folder / "demo.db", console=plan.stays) as server:
        view.say(
            f"server: {server.address}, jobs in a SQLite file, metrics at http://127.0.0.1:{server.http_port}/metrics"
        )
        async with AsyncClient(server.address, source="demo") as client:
            await client.create_queue(QUEUE)
            worker = Worker(client, settings=WorkerSettings(concurrency=32))
            task = mail_task(worker, QUEUE, delay="250ms")
            async with _at_work(worker) as working:
                figures = await _work(client, task, plan.jobs, view, working)
                outcome = _outcome(figures, plan.jobs)
                view.finish(figures, outcome.right)
                if plan.stays and outcome.right:
                    await _stay(server, figures.failed, view, working)
                elif plan.stay is None and outcome.right:
                    view.say("`pinlater demo --stay` keeps the server, and shows these jobs in its dashboard")
            return outcome


def _end_with_terminal() -> None:
    """SIGTERM, and SIGHUP of a terminal that closes, end the demo in order."""
    this = asyncio.current_task()
    if this is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, this.cancel)


@contextlib.asynccontextmanager
async def _at_work(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """The worker runs meanwhile. Raises what ended it."""
    working = asyncio.create_task(worker.run_async())
    try:
        yield working
    finally:
        worker.request_stop()
        await asyncio.wait([working])
    working.result()


async def _work(
    client: AsyncClient, task: Task[..., Any], jobs: int, view: DemoView, working: asyncio.Task[None]
) -> Figures:
    started = time.monotonic()
    with view:
        producing = asyncio.create_task(_produce(client, task, jobs))
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await _watch(client, started, view, working, producing)
        except TimeoutError:
            view.say(f"not finished after {_DEADLINE_S:.0f} s, giving up")
        finally:
            producing.cancel()
            await asyncio.wait([producing])
        seconds = time.monotonic() - started
    if not producing.cancelled():
        producing.result()
    return _figures(await client.queue_stats(QUEUE), seconds)


async def _watch(
    client: AsyncClient, started: float, view: DemoView, working: asyncio.Task[None], producing: asyncio.Task[None]
) -> None:
    """Shows the progress until every job has ended, or the server or the worker failed."""
    while not working.done():
        await asyncio.wait([working], timeout=_LOOK_S)
        figures = _figures(await client.queue_stats(QUEUE), time.monotonic() - started)
        view.show(figures)
        if producing.done() and (producing.exception() is not None or figures.unfinished == 0):
            return


async def _stay(server: DemoServer, failed: int, view: DemoView, working: asyncio.Task[None]) -> None:
    """Prints where the console is, and returns at Ctrl-C."""
    try:
        address = await server.console_address()
    except DemoConsoleFailed as error:
        view.say(str(error))
        return
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    view.invite(address, failed)
    waiting = asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait([waiting, working], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if interrupted.is_set():
        view.say("\nThe demo ends, and leaves nothing behind.")  # on a line of its own, as the terminal shows ^C


async def _produce(client: AsyncClient, task: Task[..., Any], jobs: int) -> None:
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(first + BATCH, jobs))
        await client.enqueue(QUEUE, [_job(task, number) for number in numbers])


def _job(task: Task[..., Any], number: int) -> Job:
    return task.job(reader=number, failures=failures_of(number), cause=cause_of(number), milliseconds=number % 5)


def _outcome(figures: Figures, jobs: int) -> DemoOutcome:
    expected = expected_of(jobs)
    ended = (figures.enqueued, figures.succeeded, figures.failed, figures.retried)
    return DemoOutcome(figures, expected, ended == (jobs, *expected) and figures.unfinished == 0)


def _figures(stats: list[QueueStats], seconds: float) -> Figures:
    (queue,) = stats
    return Figures(
        enqueued=queue.total("enqueued_total"),
        succeeded=queue.total("succeeded_total"),
        retried=queue.total("retried_total"),
        failed=queue.total("failed_total"),
        unfinished=queue.total("pending") + queue.total("in_progress"),
        seconds=round(seconds, 2),
        jobs_per_second=round((queue.total("succeeded_total") + queue.total("failed_total")) / max(seconds, 1e-9)),
    )
