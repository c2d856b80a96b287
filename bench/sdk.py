"""The rows about what Python teams write: a worker's throughput on handlers that do nothing, and a producer's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench import frames, peer
from bench.benchmark_run import BODY, QUEUE, BenchmarkRun, Sizes
from bench.noop_worker import TASK
from bench.raw_client import RawClient
from bench.results import Goal, RowResult, median_of
from pinlater import Client, Job, Worker
from pinlater.worker import envelope

_THREADS = 16
_BATCH = 500
# As a task's own `enqueue` writes them.
_HEADERS = envelope.headers_for(TASK, "application/octet-stream", None)


def worker_async(place: BenchmarkRun) -> RowResult:
    """One worker on a prefilled queue, coroutines; beside it Dramatiq on Redis with as many jobs and the same handler."""
    goals = [Goal("worker_rate", 12_000, 25_000, "jobs/s")]
    skipped = peer.missing()
    runs = []
    for _ in range(_repeats(place)):
        run = {"worker_rate": _worker_rate(place, "async")}
        if not skipped:
            run["dramatiq_rate"] = peer.rate(place.folder, place.sizes.worker_jobs)
            run["dramatiq_ratio"] = run["worker_rate"] / run["dramatiq_rate"]
        runs.append(run)
    figures = median_of(runs)
    notes = [f"Dramatiq skipped: {skipped}"] if skipped else [f"Dramatiq: {peer.SETTINGS}"]
    if not skipped:
        goals.append(Goal("dramatiq_ratio", 1, 1, "x"))
    references = {name: figures.pop(name) for name in ("dramatiq_rate",) if name in figures}
    title = "no-op async handler, one worker, prefilled queue; Dramatiq on a local Redis in the same run"
    return RowResult("worker_async", title, goals, figures, references, runs=list(runs), notes=notes)


def worker_threads(place: BenchmarkRun) -> RowResult:
    """The same with plain functions in threads."""
    goals = [Goal("worker_rate", 8_000, 15_000, "jobs/s")]
    runs = [{"worker_rate": _worker_rate(place, "threads")} for _ in range(_repeats(place))]
    title = "no-op sync handler in threads, one worker, prefilled queue"
    return RowResult("worker_threads", title, goals, median_of(runs), runs=list(runs))


def _repeats(place: BenchmarkRun) -> int:
    return max(1, place.sizes.repeats - 2)


def _worker_rate(place: BenchmarkRun, kind: str) -> float:
    with place.pinlater() as server:
        count = place.sizes.worker_jobs
        with Client(f"127.0.0.1:{server.port}") as client:
            batch = [Job(BODY, headers=_HEADERS)] * _BATCH
            for start in range(0, count, _BATCH):
                client.enqueue(QUEUE, batch[: count - start])
        command = [sys.executable, "-m", "bench.noop_worker", str(server.port), kind, str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=300)
        return count / float(done.stdout)


def client_sync(place: BenchmarkRun) -> RowResult:
    """One synchronous client, a call a job, from sixteen threads that share it and from one.

    Each call waits for a flush of the disk, so what one thread gets is the server's and the disk's doing: beside it a bare blocking
    connection that only sends frames, and a bare loop of single-row commits without any server.
    """
    runs = []
    for _ in range(_repeats(place)):
        bare_rate = place.bare(1)
        with place.pinlater() as server, Client(f"127.0.0.1:{server.port}") as client:
            runs.append({**_client_rates(client, server.port, place.sizes), "bare_single_rate": bare_rate})
    figures = median_of(runs)
    references = {name: figures.pop(name) for name in ("bare_connection_rate", "bare_single_rate")}
    goals = [Goal("call_rate", 4_000, 8_000, "/s")]
    title = "enqueue from one sync client, one call a job, sixteen threads"
    return RowResult("client_sync", title, goals, figures, references, runs=list(runs))


def _client_rates(client: Client, port: int, sizes: Sizes) -> dict[str, float]:
    calls, few = sizes.client_calls, max(1, sizes.client_calls // 5)
    frame = frames.enqueue(QUEUE, [BODY])
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda _: client.enqueue(QUEUE, [BODY]), range(4 * _THREADS)))
        shared = _rate(lambda: list(threads.map(lambda _: client.enqueue(QUEUE, [BODY]), range(calls))), calls)
    alone = _rate(lambda: [client.enqueue(QUEUE, [BODY]) for _ in range(few)], few)
    with RawClient(port) as raw:
        bare = _rate(lambda: [raw.call(frame) for _ in range(few)], few)
    return {"call_rate": shared, "one_thread_rate": alone, "bare_connection_rate": bare}


def enqueue_many(place: BenchmarkRun) -> RowResult:
    """A task's `enqueue_many`, its jobs made from calls meanwhile; beside it a client's `enqueue` of bare bodies, 500 a call."""
    count = place.sizes.worker_jobs
    runs = []
    for _ in range(_repeats(place)):
        with place.pinlater() as server:
            address = f"127.0.0.1:{server.port}"
            runs.append({"many_rate": _many_rate(address, count), "bare_jobs_rate": _bare_jobs_rate(address, count)})
    goals = [Goal("many_rate", 60_000, 120_000, "jobs/s")]
    title = f"enqueue_many of {count:,}"
    return RowResult("enqueue_many", title, goals, median_of(runs), runs=list(runs))


def _many_rate(address: str, count: int) -> float:
    worker = Worker(address)

    @worker.task(QUEUE)
    def task(text: str) -> None:
        """What takes an argument, as most tasks do."""

    text = BODY.decode()
    task.enqueue(text)
    return _rate(lambda: task.enqueue_many(task.job(text) for _ in range(count)), count)


def _bare_jobs_rate(address: str, count: int) -> float:
    batch, batches = [Job(BODY)] * _BATCH, max(1, count // _BATCH)
    with Client(address) as client:
        client.queue_names()
        return _rate(lambda: [client.enqueue(QUEUE, batch) for _ in range(batches)], batches * _BATCH)


def _rate(work: Callable[[], object], count: int) -> float:
    started = time.monotonic()
    work()
    return count / (time.monotonic() - started)
