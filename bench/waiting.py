"""The rows about waiting: how soon one waiting worker has its job, and what a thousand that wait for nothing cost."""

from __future__ import annotations

import threading
import time
from array import array
from contextlib import ExitStack

from bench import frames
from bench.load import percentiles_ms
from bench.raw_client import RawClient
from bench.results import Goal, RowResult, median_of
from bench.servers import Server
from bench.workplace import BODY, QUEUE, Workplace

WAIT_MS = 60_000
# The wait must be parked in the server before the enqueue leaves, or a plain dequeue is measured.
PARKED_SECONDS = 0.004


def pickup(place: Workplace) -> RowResult:
    """From the enqueue call to the job in the hands of the one worker that waits for it."""
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.pinlater() as server:
            latencies = _pickups(server, place.sizes.pickups)
        runs.append({f"pickup_{name}_ms": value for name, value in percentiles_ms(latencies).items()})
    goals = [Goal("pickup_p50_ms", 2, 0.9, "ms", at_most=True), Goal("pickup_p99_ms", 8, 3, "ms", at_most=True)]
    title = "idle pickup, enqueue call to handler, one waiting worker"
    return RowResult("pickup", title, goals, median_of(runs), runs=list(runs))


def _pickups(server: Server, count: int) -> array[float]:
    """One job after another: wait parked, enqueue called, job received, acked."""
    latencies, enqueue = array("d"), frames.enqueue(QUEUE, [BODY])
    wait, acks = frames.dequeue(QUEUE, 1, wait_ms=WAIT_MS), frames.AckMaker(QUEUE)
    pause = threading.Event()
    with RawClient(server.port) as producer, RawClient(server.port) as worker:
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


def idle_waits(place: Workplace) -> RowResult:
    """A thousand long polls on a thousand queues: memory, and store calls while nothing happens."""
    sizes = place.sizes
    with place.pinlater() as server, ExitStack() as stack:
        before_mb = server.memory_mb()
        with RawClient(server.port) as client:
            for number in range(sizes.idle_waits):
                client.create_queue(f"idle_{number}")
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(sizes.idle_waits)]
        for number, each in enumerate(clients):
            each.send(frames.dequeue(f"idle_{number}", 1, wait_ms=WAIT_MS))
        pause = threading.Event()
        pause.wait(min(1.0, sizes.idle_seconds))
        calls, cpu = store_calls(server), server.cpu_seconds()
        pause.wait(sizes.idle_seconds)
        # Reading the statistics must not itself be counted as a store call; if it were, it would show here as one.
        figures = {
            "store_calls": store_calls(server) - calls,
            "server_mb": server.memory_mb(),
            "server_cpu": (server.cpu_seconds() - cpu) / sizes.idle_seconds,
        }
    goals = [
        Goal("server_mb", 150, 100, "MB", at_most=True),
        Goal("store_calls", 0, 0, f"in {sizes.idle_seconds:g} s", at_most=True),
    ]
    title = f"{sizes.idle_waits:,} idle waiting dequeues on {sizes.idle_waits:,} queues"
    return RowResult("idle_waits", title, goals, figures, {"server_mb_before": before_mb}, runs=[dict(figures)])


def store_calls(server: Server) -> float:
    """Statements the server has run for callers so far, by its own count."""
    return sum(value for name, value in server.stats()["counters"].items() if name in STORE_COUNTERS)


STORE_COUNTERS = frozenset({"store_transactions", "store_reads"})
