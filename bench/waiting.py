"""The rows about waiting: how soon one waiting worker has its job, and what a thousand that wait for nothing cost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import frames
from bench.benchmark_run import BODY, QUEUE, BenchmarkRun
from bench.counted import PERIODIC, counts_of
from bench.load import percentiles_ms
from bench.raw_client import RawClient
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer

WAIT_MS = 60_000
# The wait must be parked in the server before the enqueue leaves, or a plain dequeue is measured.
PARKED_SECONDS = 0.004
# The worker's ack leaves a few milliseconds after its handler, and its next wait with it.
SETTLED_SECONDS = 0.012
WARM_UP_JOBS = 3


def pickup(place: BenchmarkRun) -> RowResult:
    """From the enqueue call to the handler of the one worker that waits; beside it, to the frame in a bare client's hands.

    And both where jobs are kept in memory: what is more is the store's.
    """
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.storeless() as server:
            nowhere = named("memory_client", wire_pickups(server, server, place.sizes.pickups))
        with place.storeless() as server:
            nowhere |= named("memory", handler_pickups(server, server, place.sizes.pickups))
        with place.pinlater() as server:
            bare = wire_pickups(server, server, place.sizes.pickups)
        with place.pinlater() as server:
            handled = handler_pickups(server, server, place.sizes.pickups)
        runs.append(named("pickup", handled) | named("wire_client", bare) | nowhere)
    title = "idle pickup, enqueue call to handler, one waiting worker"
    figures = median_of(runs)
    references = {name: figures.pop(name) for name in list(figures) if name.startswith("memory_")}
    return RowResult("pickup", title, place.goals("pickup"), figures, references, runs=list(runs))


def named(prefix: str, latencies: array[float]) -> dict[str, float]:
    """Percentiles as figures."""
    return {f"{prefix}_{name}_ms": value for name, value in percentiles_ms(latencies).items()}


def handler_pickups(taker: PinLaterServer, giver: PinLaterServer, count: int) -> array[float]:
    """Enqueued at `taker`, waited for at `giver` by the package's own worker, in a process of its own.

    The first jobs, which find it warming up, don't count.
    """
    latencies, enqueue = array("d"), frames.enqueue(QUEUE, [BODY])
    pause = threading.Event()
    command = [sys.executable, "-m", "bench.pickup_worker", str(giver.port)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        with RawClient(taker.port) as producer:
            for number in range(count + WARM_UP_JOBS):
                started_ns = time.monotonic_ns()
                producer.call(enqueue)
                began_ns = int(worker.stdout.readline())
                if number >= WARM_UP_JOBS:
                    latencies.append((began_ns - started_ns) / 1e9)
                pause.wait(SETTLED_SECONDS)
    finally:
        worker.kill()
        worker.communicate()
    return latencies


def wire_pickups(taker: PinLaterServer, giver: PinLaterServer, count: int) -> array[float]:
    """One job after another: wait parked at `giver`, enqueue called at `taker`, job received, acked."""
    latencies, enqueue = array("d"), frames.enqueue(QUEUE, [BODY])
    wait, acks = frames.dequeue(QUEUE, 1, wait_ms=WAIT_MS), frames.AckMaker(QUEUE)
    pause = threading.Event()
    with RawClient(taker.port) as producer, RawClient(giver.port) as worker:
        for _ in range(count):
            worker.send(wait)
            pause.wait(PARKED_SECONDS)
            started = time.perf_counter()
            producer.send(enqueue)
            reply = worker.receive()
            latencies.append(time.perf_counter() - started)
            frames.result_at(producer.receive())
            worker.call(acks.frame(frames.claimed_descriptors(reply)))
    return latencies


def idle_waits(place: BenchmarkRun) -> RowResult:
    """A thousand long polls on a thousand queues: memory, and store calls while nothing happens."""
    sizes = place.sizes
    counts = place.folder / "store-calls.json"
    with place.pinlater(counts=counts) as server, parked(server, sizes.idle_waits) as before_mb:
        pause = threading.Event()
        pause.wait(min(1.0, sizes.idle_seconds))
        before, cpu = counts_of(server, counts).calls, server.cpu_seconds()
        pause.wait(sizes.idle_seconds)
        calls = counts_of(server, counts).calls - before
        figures = {
            "server_mb": server.memory_mb(),
            "store_calls": float(sum(count for name, count in calls.items() if name not in PERIODIC)),
            "periodic_calls_per_s": sum(calls[name] for name in PERIODIC) / sizes.idle_seconds,
            "server_cpu": (server.cpu_seconds() - cpu) / sizes.idle_seconds,
        }
    goals = place.goals("idle_waits")
    title = f"{sizes.idle_waits:,} idle waiting dequeues on {sizes.idle_waits:,} queues"
    notes = [f"store calls meanwhile, the periodic runner's included: {dict(calls)}"]
    return RowResult(
        "idle_waits", title, goals, figures, {"server_mb_before": before_mb}, runs=[dict(figures)], notes=notes
    )


@contextmanager
def parked(server: PinLaterServer, waits: int) -> Iterator[float]:
    """This number of long polls wait, each on its own queue. Gives the server's memory before."""
    before_mb = server.memory_mb()
    with RawClient(server.port) as client:
        for number in range(waits):
            client.create_queue(f"idle_{number}")
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(waits)]
        for number, each in enumerate(clients):
            each.send(frames.dequeue(f"idle_{number}", 1, wait_ms=WAIT_MS))
        yield before_mb
