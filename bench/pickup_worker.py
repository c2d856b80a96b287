"""The package's own worker for the pickup row: says on stdout when its handler began, in `time.monotonic_ns`, which processes share.

`python -m bench.pickup_worker PORT`; it runs until it is killed.
"""

from __future__ import annotations

import sys
import time

import uvloop

from bench.benchmark_run import QUEUE
from pinlater import ClaimedJob, Worker


async def work(port: int) -> None:
    """One queue, one handler that says when it was called."""
    worker = Worker(f"127.0.0.1:{port}")

    @worker.task(QUEUE)
    async def handle(job: ClaimedJob) -> None:
        began_ns = time.monotonic_ns()
        print(began_ns, flush=True)

    await worker.run_async()


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))
