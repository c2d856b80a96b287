"""The package's own worker on handlers that do nothing: `python -m bench.noop_worker PORT async|threads COUNT`.

Runs until COUNT jobs have begun and what was reported of them is stored; says on stdout how many seconds that took from the first
one's start.
"""

from __future__ import annotations

import sys
import threading
import time

from bench.benchmark_run import QUEUE
from pinlater import Worker, WorkerSettings

TASK = "noop"


class BegunJobs:
    """How many jobs have begun, and when the first one did."""

    def __init__(self, worker: Worker, wanted: int) -> None:
        self._worker = worker
        self._wanted = wanted
        self._lock = threading.Lock()
        self._count = 0
        self.began = 0.0

    def one(self) -> None:
        """A job begins."""
        with self._lock:
            if not self._count:
                self.began = time.monotonic()
            self._count += 1
            if self._count == self._wanted:
                self._worker.request_stop()


def main(port: int, kind: str, count: int) -> None:
    """One queue, one handler."""
    worker = Worker(f"127.0.0.1:{port}", settings=WorkerSettings(concurrency=64 if kind == "async" else 16))
    seen = BegunJobs(worker, count)

    if kind == "async":

        @worker.task(QUEUE, name=TASK)
        async def noop(body: bytes) -> None:
            seen.one()

    else:

        @worker.task(QUEUE, name=TASK)
        def noop_in_thread(body: bytes) -> None:
            seen.one()

    worker.run()
    print(time.monotonic() - seen.began, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
