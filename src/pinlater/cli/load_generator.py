"""Sends a load and measures it; used only by `bench load` and `client-tool`. Prints nothing.

A closed loop: each of `concurrency` tasks sends its next query when its last was answered. Weakness of every closed loop: if the server
stalls, the load stalls with it, so the latencies show the stall once and not for every query that would have been sent.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pinlater.client import Ack, AsyncClient, Job
from pinlater.client.errors import CallerError, PinLaterError
from pinlater.server.telemetry.histogram import Histogram, Mark

_AFTER_ERROR_S = 0.1
MICROSECONDS = 1_000


class LoadMode(str, Enum):  # noqa: UP042 - the option's words
    """What a query is."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"


class LoadPlan(NamedTuple):
    """`queries` below 0: no end. A query of a dequeue is a claim and the ack of its jobs, in a second call, as in the original's tool."""

    mode: LoadMode
    queue: str
    queries: int = 1
    batch_size: int = 1
    concurrency: int = 1
    success_percent: int = 100
    body_bytes: int | None = None
    priority: int = 1
    wait_ms: int = 0


@dataclass
class Meter:
    """What was measured. Latencies in milliseconds, of the enqueue or of the claim."""

    started: float = field(default_factory=time.monotonic)
    queries: int = 0
    jobs: int = 0
    acked: int = 0
    failed_on_purpose: int = 0
    errors: int = 0
    last_error: PinLaterError | None = None
    latencies: Histogram = field(default_factory=lambda: Histogram(MICROSECONDS))
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    def summary(self) -> dict[str, float | int]:
        """The figures since the start."""
        spread = self.latencies.read()
        p50, p90, p99, p999 = spread.quantiles([0.5, 0.9, 0.99, 0.999])
        seconds = max(self.seconds, 1e-9)
        return {
            "seconds": round(self.seconds, 3),
            "queries": self.queries,
            "jobs": self.jobs,
            "acked": self.acked,
            "failed_on_purpose": self.failed_on_purpose,
            "errors": self.errors,
            "queries_per_second": round(self.queries / seconds, 1),
            "jobs_per_second": round(self.jobs / seconds, 1),
            "latency_ms_avg": round(spread.average, 3),
            "latency_ms_p50": round(p50, 3),
            "latency_ms_p90": round(p90, 3),
            "latency_ms_p99": round(p99, 3),
            "latency_ms_p999": round(p999, 3),
            "latency_ms_max": round(spread.maximum, 3),
        }


class Interval(NamedTuple):
    """A period of the measurement, for live figures."""

    seconds: float
    queries: int
    jobs: int
    latency_ms_avg: float
    latency_ms_p99: float


class IntervalReader:
    """Reads the figures since its last call."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._mark: Mark | None = None
        self._at, self._queries, self._jobs = meter.started, 0, 0

    def read(self) -> Interval:
        """The period since the last reading."""
        meter, now = self._meter, time.monotonic()
        mark = meter.latencies.mark()
        spread = mark.since(self._mark)
        (p99,) = spread.quantiles([0.99])
        taken = Interval(now - self._at, meter.queries - self._queries, meter.jobs - self._jobs, spread.average, p99)
        self._mark, self._at, self._queries, self._jobs = mark, now, meter.queries, meter.jobs
        return taken


class LoadRun:
    """One run of a plan. `stop` ends it early, after the answers to queries under way."""

    def __init__(self, client: AsyncClient, plan: LoadPlan) -> None:
        self._client = client
        self._plan = plan
        self._left = plan.queries
        self._stopped = False
        self._random = random.Random()  # noqa: S311 - bodies and dice, nothing secret
        self.meter = Meter()

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """Sends the load. Raises CallerError if the server refuses it for good; other errors are counted and it continues."""
        refusal: CallerError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._plan.concurrency):
                    group.create_task(self._send())
        except* CallerError as refused:
            refusal = _first(refused)  # raised below: an error that is raised here is wrapped in a group
        finally:
            self.meter.ended = time.monotonic()
        if refusal is not None:
            raise refusal

    def _take(self) -> bool:
        if self._stopped or self._left == 0:
            return False
        self._left -= 1
        return True

    async def _send(self) -> None:
        one = self._enqueue if self._plan.mode is LoadMode.ENQUEUE else self._dequeue
        meter = self.meter
        while self._take():
            try:
                await one()
            except CallerError:
                self._stopped = True
                raise
            except PinLaterError as error:
                meter.errors += 1
                meter.last_error = error
                await asyncio.sleep(_AFTER_ERROR_S)
            meter.queries += 1

    async def _enqueue(self) -> None:
        jobs = [Job(self._body(), self._plan.priority) for _ in range(self._plan.batch_size)]
        started = time.monotonic()
        await self._client.enqueue(self._plan.queue, jobs)
        self.meter.latencies.record((time.monotonic() - started) * 1000)
        self.meter.jobs += len(jobs)

    def _body(self) -> bytes:
        text = b"task_%d" % self._random.randrange(2**31)
        size = self._plan.body_bytes
        return text if size is None else text[:size].ljust(size, b".")

    async def _dequeue(self) -> None:
        plan, meter = self._plan, self.meter
        started = time.monotonic()
        jobs = (await self._client.dequeue(plan.queue, plan.batch_size, wait_ms=plan.wait_ms)).jobs
        meter.latencies.record((time.monotonic() - started) * 1000)
        if not jobs:
            return
        acks = [Ack(job.descriptor, self._random.randrange(100) < plan.success_percent, job.token) for job in jobs]
        await self._client.ack(plan.queue, acks)
        meter.jobs += len(jobs)
        meter.acked += len(acks)
        meter.failed_on_purpose += sum(not ack.succeeded for ack in acks)


def _first(group: BaseExceptionGroup[CallerError]) -> CallerError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, CallerError)  # noqa: S101 - `except*` has chosen it
    return error
