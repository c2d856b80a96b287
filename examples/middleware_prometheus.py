"""Middleware that measures jobs with prometheus_client. `/metrics` of `--health-port` works without it."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pinlater import JobContext, Worker
from pinlater.worker import Ending, Middleware

began: ContextVar[float] = ContextVar("began")


class Measuring(Middleware):
    """The hooks of an attempt run in one asyncio task, so `after` sees the context variables that `before` sets."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.ended = Counter("shop_jobs", "Attempts that ended.", ("task", "outcome"), registry=registry)
        self.running = Gauge("shop_jobs_running", "Attempts under way.", registry=registry)
        self.seconds = Histogram("shop_job_seconds", "How long they took.", ("task",), registry=registry)

    def before(self, job: JobContext) -> None:
        began.set(time.perf_counter())
        self.running.inc()

    def after(self, job: JobContext, ending: Ending) -> None:
        self.running.dec()
        self.ended.labels(job.task, ending.kind.value).inc()
        self.seconds.labels(job.task).observe(time.perf_counter() - began.get())


registry = CollectorRegistry()
worker = Worker(middleware=[Measuring(registry)])


@worker.task("parcels", attempts=1)
async def weigh(grams: int) -> None:
    if grams < 0:
        raise ValueError("lighter than nothing")


async def main() -> None:
    """Weighs three parcels, of which one fails."""
    await weigh.enqueue_many_async([weigh.job(500), weigh.job(20), weigh.job(-1)])
    await worker.run_until_idle()
    for outcome in ("succeeded", "failed"):
        print(outcome, registry.get_sample_value("shop_jobs_total", {"task": "weigh", "outcome": outcome}))
    print("timed", registry.get_sample_value("shop_job_seconds_count", {"task": "weigh"}))


if __name__ == "__main__":
    asyncio.run(main())
