"""The original's example job and worker: queue `test_queue`, ten jobs at a time, a failure is retried after a second for each attempt.

Run as it is, it enqueues twenty jobs and runs them. `pinlater worker original_worker:worker` runs the worker alone, for ever.
"""

from __future__ import annotations

import asyncio

from pinlater import AsyncClient, Worker, WorkerSettings, current_job
from pinlater.worker import linear

QUEUE = "test_queue"
JOBS = 20

# Acks ride on the next dequeue or go by themselves, and no more is claimed than can be run soon: the runtime sees to both.
worker = Worker(settings=WorkerSettings(concurrency=10, prefetch_max=40), retry=linear(1))


@worker.handler(QUEUE, attempts=10)
def log_and_sometimes_fail(body: bytes) -> None:
    """A plain function, so it runs in one of ten threads. Jobs of the original's producers, which name no task, come here too."""
    number = int(body.removeprefix(b"task_"))
    if number == 13 and current_job().attempt == 1:
        raise RuntimeError("13 fails at its first attempt")


async def main() -> None:
    """A producer, and the worker beside it until everything has run."""
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
        (stats,) = await client.queue_stats(QUEUE)
    print(
        f"succeeded {stats.total('succeeded')}, failed {stats.total('failed')}, retried {stats.total('retried_total')}"
    )


if __name__ == "__main__":
    asyncio.run(main())
