"""`pinlater demo`: a server on SQLite in a temporary folder, a queue, some thousand jobs, a worker, a few failures retried, a check.

The check is on the server's own counts, not on what the worker thinks: every job must have ended as its body says it would.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import logging
import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import exits, options, output
from pinlater.cli.commands.demo.server import DemoServer, DemoServerFailed
from pinlater.cli.commands.demo.view import DemoView, Figures
from pinlater.client import AsyncClient, ClaimedJob, Job, QueueStats
from pinlater.worker import Worker, WorkerSettings

QUEUE = "demo"
ATTEMPTS = 3
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


class DemoFailure(Exception):
    """A job that was told to fail."""


def failures_of(number: int) -> int:
    """How often job `number` fails: most never, some once, a few each time."""
    if number % _FAILS_ALWAYS_EVERY == _FAILS_ALWAYS_EVERY - 1:
        return ATTEMPTS
    return 1 if number % _FAILS_ONCE_EVERY == 0 else 0


def expected_of(jobs: int) -> Expected:
    """How `jobs` jobs must end. A failure that leaves an attempt is a retry."""
    failures = [failures_of(number) for number in range(jobs)]
    lost = sum(count >= ATTEMPTS for count in failures)
    return Expected(jobs - lost, lost, sum(min(count, ATTEMPTS - 1) for count in failures))


def demo(
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_000_000, help="How many jobs.")] = 5_000,
    json: options.Json = False,
) -> None:
    """Watch a service run some thousand jobs, a few of which fail and are retried. Takes a few seconds, leaves nothing behind.

    Example: pinlater demo --jobs 20000
    """
    logging.getLogger("pinlater").addHandler(logging.NullHandler())  # the jobs that fail are meant to
    view = DemoView(jobs, quiet=json)
    with exits.reported(), tempfile.TemporaryDirectory(prefix="pinlater-demo-") as folder:
        try:
            figures = asyncio.run(_run(Path(folder), jobs, view))
        except DemoServerFailed as error:
            exits.fail(str(error), exits.UNEXPECTED_RESULT)
        except asyncio.CancelledError:
            raise typer.Exit(exits.TERMINATED) from None
    expected = expected_of(jobs)
    right = _as_expected(figures, jobs, expected)
    if json:
        wanted = {"enqueued": jobs, **expected._asdict()}
        output.print_json({**figures._asdict(), "expected": wanted, "as_expected": right})
    else:
        view.finish(figures, right)
    if not right:
        exits.fail(f"not every job ended as it should: expected {expected}", exits.UNEXPECTED_RESULT)


def _as_expected(figures: Figures, jobs: int, expected: Expected) -> bool:
    ended = (figures.enqueued, figures.succeeded, figures.failed, figures.retried)
    return ended == (jobs, *expected) and figures.unfinished == 0


async def _run(folder: Path, jobs: int, view: DemoView) -> Figures:
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    async with DemoServer(folder / "demo.db") as server:
        view.say(
            f"server: {server.address}, jobs in a SQLite file, metrics at http://127.0.0.1:{server.http_port}/metrics"
        )
        async with AsyncClient(server.address, source="demo") as client:
            await client.create_queue(QUEUE)
            return await _work(client, jobs, view)


async def _work(client: AsyncClient, jobs: int, view: DemoView) -> Figures:
    worker = _worker(client)
    started = time.monotonic()
    with view:
        working = asyncio.create_task(worker.run_async())
        producing = asyncio.create_task(_produce(client, jobs))
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await _watch(client, started, view, working, producing)
        except TimeoutError:
            view.say(f"not finished after {_DEADLINE_S:.0f} s, giving up")
        finally:
            producing.cancel()
            worker.request_stop()
            await asyncio.wait([working, producing])
        seconds = time.monotonic() - started
    for task in (working, producing):
        if not task.cancelled():
            task.result()
    return _figures(await client.queue_stats(QUEUE), seconds)


async def _watch(
    client: AsyncClient, started: float, view: DemoView, working: asyncio.Task[None], producing: asyncio.Task[None]
) -> None:
    """Shows how it goes until every job has ended, or one of the two failed."""
    while not working.done():
        await asyncio.wait([working], timeout=_LOOK_S)
        figures = _figures(await client.queue_stats(QUEUE), time.monotonic() - started)
        view.show(figures)
        if producing.done() and (producing.exception() is not None or figures.unfinished == 0):
            return


def _worker(client: AsyncClient) -> Worker:
    worker = Worker(client, settings=WorkerSettings(concurrency=32, retry_delay_ms=250))

    @worker.task(QUEUE)
    async def run(job: ClaimedJob) -> None:
        task = jsonlib.loads(job.body)
        await asyncio.sleep(task["milliseconds"] / 1000)
        if job.attempt <= task["failures"]:
            raise DemoFailure(f"job {task['number']} was told to fail {task['failures']} times")

    return worker


async def _produce(client: AsyncClient, jobs: int) -> None:
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(first + BATCH, jobs))
        await client.enqueue(QUEUE, [_job(number) for number in numbers])


def _job(number: int) -> Job:
    task = {"number": number, "failures": failures_of(number), "milliseconds": number % 5}
    return Job(jsonlib.dumps(task).encode(), attempts_allowed=ATTEMPTS)


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
