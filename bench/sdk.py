"""The rows about what Python teams write: a worker's throughput on handlers that do nothing, and a producer's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench import frames
from bench.raw_client import RawClient
from bench.results import Goal, RowResult, median_of
from bench.workplace import BODY, QUEUE, Sizes, Workplace
from pinlater import Client, Job

_THREADS = 16
_BATCH = 500


def worker_async(place: Workplace) -> RowResult:
    """One worker on a prefilled queue, coroutines."""
    goals = [Goal("worker_rate", 12_000, 25_000, "jobs/s")]
    return _worker(place, "async", goals, "no-op async handler, one worker, prefilled queue")


def worker_threads(place: Workplace) -> RowResult:
    """The same with plain functions in threads."""
    goals = [Goal("worker_rate", 8_000, 15_000, "jobs/s")]
    return _worker(place, "threads", goals, "no-op sync handler in threads, one worker, prefilled queue")


def _worker(place: Workplace, kind: str, goals: list[Goal], title: str) -> RowResult:
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.pinlater() as server:
            count = place.sizes.worker_jobs
            with RawClient(server.port) as client:
                client.enqueue_many(QUEUE, BODY, count)
            command = [sys.executable, "-m", "bench.noop_worker", str(server.port), kind, str(count)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=300)
            runs.append({"worker_rate": count / float(done.stdout)})
    return RowResult(f"worker_{kind}", title, goals, median_of(runs), runs=list(runs))


def client_sync(place: Workplace) -> RowResult:
    """One synchronous client: a call a job from sixteen threads and from one, and many jobs a call.

    One thread waits for a flush of the disk with each call, so its reference is a bare blocking connection that does the same.
    """
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.pinlater() as server, Client(f"127.0.0.1:{server.port}") as client:
            runs.append(_client_rates(client, server.port, place.sizes))
    goals = [Goal("call_rate", 4_000, 8_000, "/s"), Goal("many_rate", 60_000, 120_000, "jobs/s")]
    title = "enqueue from one sync client: one call a job, and five hundred jobs a call"
    return RowResult("client_sync", title, goals, median_of(runs), runs=list(runs))


def _client_rates(client: Client, port: int, sizes: Sizes) -> dict[str, float]:
    calls, few = sizes.client_calls, max(1, sizes.client_calls // 5)
    batches = max(1, sizes.worker_jobs // _BATCH)
    frame, batch = frames.enqueue(QUEUE, [BODY]), [Job(BODY)] * _BATCH
    client.enqueue(QUEUE, [BODY])
    with ThreadPoolExecutor(_THREADS) as threads:
        shared = _rate(lambda: list(threads.map(lambda _: client.enqueue(QUEUE, [BODY]), range(calls))), calls)
    alone = _rate(lambda: [client.enqueue(QUEUE, [BODY]) for _ in range(few)], few)
    with RawClient(port) as raw:
        bare = _rate(lambda: [raw.call(frame) for _ in range(few)], few)
    many = _rate(lambda: [client.enqueue(QUEUE, batch) for _ in range(batches)], batches * _BATCH)
    return {"call_rate": shared, "one_thread_rate": alone, "bare_connection_rate": bare, "many_rate": many}


def _rate(work: Callable[[], object], count: int) -> float:
    started = time.monotonic()
    work()
    return count / (time.monotonic() - started)
