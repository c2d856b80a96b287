"""A worker in a process of its own, to be killed and stopped. `python -m tests.crash.worker_process PORT QUEUE LIMIT`.

It claims up to LIMIT jobs, says `claimed` with its jobs as JSON, waits for a line on stdin, acks all of them as succeeded and says
`acked` with the outcomes. The test decides when it goes on; what happens to it in between is the test's matter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import IO, Any

from tests.crash.wire_client import Job, Outcome, WireClient


class WorkerProcess:
    """The test's end of it. Use as a context manager: the process is killed at the end."""

    def __init__(self, port: int, queue: str, limit: int) -> None:
        command = [sys.executable, "-m", "tests.crash.worker_process", str(port), queue, str(limit)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def claimed(self) -> list[Job]:
        """Waits until it has its jobs."""
        return [Job(*each) for each in self._say("claimed")]

    def go_on(self) -> list[Outcome]:
        """Lets it ack, and waits for the outcomes."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()
        return [Outcome(*each) for each in self._say("acked")]

    def _say(self, word: str) -> list[Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(word), f"the worker said {line!r} instead of {word}"
        return json.loads(line.partition(" ")[2])  # type: ignore[no-any-return]


def work(port: int, queue: str, limit: int, orders: IO[str]) -> None:
    """The worker's whole life."""
    with WireClient(port, "worker-process") as client:
        jobs = client.claim(queue, limit, wait_ms=20_000)
        print("claimed", json.dumps(jobs), flush=True)
        if orders.readline():
            outcomes = client.ack(queue, [(job.descriptor, job.token, True) for job in jobs])
            print("acked", json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    work(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.stdin)
