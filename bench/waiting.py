"""The rows about waiting: how soon one waiting worker has its job, and what a thousand that wait for nothing cost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from bench import frames
from bench.counted import PERIODIC
from bench.load import percentiles_ms
from bench.raw_client import RawClient
from bench.results import Goal, RowResult, median_of
from bench.servers import Server, ServerFailed
from bench.workplace import BODY, QUEUE, Workplace

WAIT_MS = 60_000
# The wait must be parked in the server before the enqueue leaves, or a plain dequeue is measured.
PARKED_SECONDS = 0.004
# The worker's ack leaves a few milliseconds after its handler, and its next wait with it.
SETTLED_SECONDS = 0.012
WARM_UP_JOBS = 3


def pickup(place: Workplace) -> RowResult:
    """From the enqueue call to the handler of the one worker that waits; beside it, to the frame in a bare client's hands."""
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.pinlater() as server:
            bare = _pickups(server, place.sizes.pickups)
        with place.pinlater() as server:
            handled = _handler_pickups(server, place.sizes.pickups)
        run = {f"pickup_{name}_ms": value for name, value in percentiles_ms(handled).items()}
        runs.append(run | {f"wire_client_{name}_ms": value for name, value in percentiles_ms(bare).items()})
    goals = [Goal("pickup_p50_ms", 2, 0.9, "ms", at_most=True), Goal("pickup_p99_ms", 8, 3, "ms", at_most=True)]
    title = "idle pickup, enqueue call to handler, one waiting worker"
    return RowResult("pickup", title, goals, median_of(runs), runs=list(runs))


def _handler_pickups(server: Server, count: int) -> array[float]:
    """The package's own worker in a process of its own; the first jobs, which find it warming up, don't count."""
    latencies, enqueue = array("d"), frames.enqueue(QUEUE, [BODY])
    pause = threading.Event()
    command = [sys.executable, "-m", "bench.pickup_worker", str(server.port)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        with RawClient(server.port) as producer:
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
    counts = place.folder / "store-calls.json"
    with place.pinlater(counts=counts) as server, ExitStack() as stack:
        before_mb = server.memory_mb()
        with RawClient(server.port) as client:
            for number in range(sizes.idle_waits):
                client.create_queue(f"idle_{number}")
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(sizes.idle_waits)]
        for number, each in enumerate(clients):
            each.send(frames.dequeue(f"idle_{number}", 1, wait_ms=WAIT_MS))
        pause = threading.Event()
        pause.wait(min(1.0, sizes.idle_seconds))
        before, cpu = _store_calls(server, counts), server.cpu_seconds()
        pause.wait(sizes.idle_seconds)
        calls = _store_calls(server, counts) - before
        figures = {
            "server_mb": server.memory_mb(),
            "store_calls": float(sum(count for name, count in calls.items() if name not in PERIODIC)),
            "periodic_calls_per_s": sum(calls[name] for name in PERIODIC) / sizes.idle_seconds,
            "server_cpu": (server.cpu_seconds() - cpu) / sizes.idle_seconds,
        }
    goals = [
        Goal("server_mb", 150, 100, "MB", at_most=True),
        Goal("store_calls", 0, 0, f"in {sizes.idle_seconds:g} s", at_most=True),
    ]
    title = f"{sizes.idle_waits:,} idle waiting dequeues on {sizes.idle_waits:,} queues"
    notes = [f"store calls meanwhile, the periodic runner's included: {dict(calls)}"]
    return RowResult(
        "idle_waits", title, goals, figures, {"server_mb_before": before_mb}, runs=[dict(figures)], notes=notes
    )


def _store_calls(server: Server, counts: Path) -> Counter[str]:
    """Calls at the store's seam so far, by method."""
    counts.unlink(missing_ok=True)
    server.signal(signal.SIGUSR1)
    deadline, pause = time.monotonic() + 10, threading.Event()
    while not counts.exists():
        if time.monotonic() > deadline:
            raise ServerFailed("the server does not say what it asked its store")
        pause.wait(0.005)
    return Counter(json.loads(counts.read_text()))
