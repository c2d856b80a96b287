"""The live example of `pinlater serve --example`: queues with a producer and a worker, at a low rate, for the pages of the dashboard.

The server runs this module as a process of its own (`python -m pinlater.cli.example HOST:PORT`), which ends with standard input. The
queues bound the jobs that they keep: the number of waiting jobs, and the time until waiting, succeeded and failed jobs are deleted. So
the jobs that a killed server leaves in its store are deleted within two hours while a server runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinlater.cli import notes
from pinlater.cli.demo_tasks import Cause, mail_task, make_report
from pinlater.client import AsyncClient, Job, QueueConfig
from pinlater.client.errors import PinLaterError
from pinlater.worker import Worker, WorkerSettings, constant

MAILS, INVOICES, REPORTS = "example_mails", "example_invoices", "example_reports"
REMINDERS, NEWSLETTER = "example_reminders", "example_newsletter"
PAUSED = NEWSLETTER
TICK_S = 0.5
_MINUTE_MS = 60_000
_KEPT = QueueConfig(
    succeeded_ttl_ms=2 * _MINUTE_MS, failed_ttl_ms=10 * _MINUTE_MS, max_backlog=200, default_expiry_ms=60 * _MINUTE_MS
)
QUEUES: Mapping[str, QueueConfig] = {
    MAILS: _KEPT._replace(max_jobs_per_second=20.0),
    INVOICES: _KEPT,
    REPORTS: _KEPT._replace(max_backlog=20),
    REMINDERS: _KEPT,
    NEWSLETTER: _KEPT._replace(max_backlog=25),
}
_REPORT_S = 15


class Example:
    """Its queues, tasks and jobs, on a server that `client` reaches."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.worker = Worker(client, settings=WorkerSettings(concurrency=16))
        self._mail = {queue: mail_task(self.worker, queue, delay="2s") for queue in QUEUES if queue != REPORTS}
        self._report = self.worker.task(REPORTS, attempts=2, concurrency=3, retry=constant(5))(make_report)

    async def prepare(self) -> None:
        """Creates the queues, sets how long they keep jobs, and pauses one of them."""
        for queue, config in QUEUES.items():
            await self._client.create_queue(queue)
            await self._client.configure_queue(queue, config)
        await self._client.pause_queue(PAUSED)

    async def enqueue(self, tick: int) -> None:
        """Enqueues the jobs of this tick. A queue that is full or was deleted gets none."""
        for queue, jobs in self.jobs_of(tick).items():
            with contextlib.suppress(PinLaterError):
                await self._client.enqueue(queue, jobs)

    def jobs_of(self, tick: int) -> Mapping[str, Sequence[Job]]:
        """The jobs of a tick, by queue. The first tick has more, so that there are jobs in each state at once."""
        ticks = range(-20, 1) if tick == 0 else [tick]
        found: dict[str, list[Job]] = {}
        for one in ticks:
            for queue, job in self._jobs_of(one):
                found.setdefault(queue, []).append(job)
        return found

    def _jobs_of(self, tick: int) -> Iterator[tuple[str, Job]]:
        yield MAILS, self._mail_of(MAILS, tick, failures=1 if tick % 20 == 7 else 0, milliseconds=tick % 7 * 50)
        if tick % 4 == 0:
            failures = {0: 3, 8: 1}.get(tick % 16, 0)
            cause: Cause = "template" if tick % 32 else "server"
            yield INVOICES, self._mail_of(INVOICES, tick, failures=failures, cause=cause, milliseconds=200)
        if tick % 16 == 0:
            yield REPORTS, self._report.job(month=f"month {abs(tick) // 16}", seconds=_REPORT_S)
        if tick % 6 == 0:
            yield REMINDERS, self._mail_of(REMINDERS, tick, delay=10 + tick % 180)
        if tick % 3 == 0:
            yield NEWSLETTER, self._mail_of(NEWSLETTER, tick, priority=2, milliseconds=100)

    def _mail_of(
        self, queue: str, tick: int, *, delay: float | None = None, priority: int = 1, **arguments: Any
    ) -> Job:
        return self._mail[queue].using(delay=delay, priority=priority).job(reader=abs(tick), **arguments)


async def run(address: str) -> None:
    """Runs the example on the server at this address until standard input ends. Raises PinLaterError if it can't prepare the queues."""
    async with AsyncClient(address, source="example", wait_for_servers=False) as client:
        example = Example(client)
        await example.prepare()
        runs = (example.worker.run_async(), _produce(example), _end_of_stdin())
        tasks = [asyncio.create_task(one) for one in runs]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()  # the server is gone: the worker's claims time out
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()


async def _produce(example: Example) -> None:
    tick = 0
    while True:
        await example.enqueue(tick)
        await asyncio.sleep(TICK_S)
        tick += 1


async def _end_of_stdin() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


if __name__ == "__main__":
    logging.getLogger("pinlater").addHandler(logging.NullHandler())  # the jobs that fail are meant to
    try:
        asyncio.run(run(sys.argv[1]))
    except PinLaterError as failure:
        notes.write(f"error: the example can't run: {failure.message}")
        sys.exit(1)
