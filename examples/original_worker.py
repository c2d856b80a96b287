"""The example of the original: queue `test_queue`, ten jobs at a time, one second more delay after each failure.

Run as it is, it enqueues twenty jobs and runs them. `pinlater worker original_worker:worker` runs the worker alone until it is stopped.
"""

from __future__ import annotations

import asyncio

from pinlater import AsyncClient, Worker, WorkerSettings, current_job
from pinlater.worker import linear

QUEUE = "test_queue"
JOBS = 20

# The worker sends acks with the next dequeue, and claims only jobs that it can start soon.
worker = Worker(settings=WorkerSettings(concurrency=10, prefetch_max=40), retry=linear(1))


@worker.task(QUEUE, attempts=10)
def log_and_sometimes_fail(body: bytes) -> None:
    """A plain function, so it runs in one of ten threads. It also gets the jobs of old producers, which name no task."""
    number = int(body.removeprefix(b"task_"))
    if number == 13 and current_job().attempt == 1:
        raise RuntimeError("13 fails at its first attempt")


async def main() -> None:
    """A producer, and the worker until all jobs have run."""
    async with AsyncClient() as client:
        await worker.create_queues_async()
        await log_and_sometimes_fail.enqueue_many_async(
            log_and_sometimes_fail.job(b"task_%d" % number) for number in range(JOBS)
        )
        running = asyncio.create_task(worker.run_async(client=client))
        while worker.counts.succeeded < JOBS:
            await asyncio.wait([running], timeout=0.05)
        worker.request_stop()
        await running
    print(f"succeeded {worker.counts.succeeded}, failed attempts {worker.counts.failed}")


if __name__ == "__main__":
    asyncio.run(main())
