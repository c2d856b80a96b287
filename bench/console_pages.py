"""The row about the dashboard: what its pages take and cost on a store with many jobs, many queues and a month of history, and what
browsers that have it open cost the requests of jobs.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.benchmark_run import QUEUE, BenchmarkRun, MeasuredRun
from bench.counted import counts_of
from bench.filling import filling
from bench.load import percentiles_ms
from bench.raw_client import RawClient
from bench.results import RowResult
from bench.servers import PinLaterServer, ServerFailed, wait_a_moment
from bench.stores import BenchmarkStore
from pinlater.domain.clock import SystemClock
from pinlater.domain.history import KEPT_MS
from pinlater.server.features.history.sample import QueueSample, pack
from pinlater.server.storage.commands import SaveSamples, create_queues
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.values import StoredSample

POLL_S = 2.0
"""How often a page that is open asks again (`static/console.js`)."""
SPREAD_MS = 24 * 3_600_000
STATEMENT_REQUESTS = 9
_CHUNK = 5_000
_QUEUES_A_CALL = 500
_SAMPLE = pack(
    QueueSample(60, 58, 55, 3, 1, 0, 1_000, 100, 20, 5_000, [3, 10, 5, 30, 7, 20, 9, 2], [4, 30, 6, 20, 8, 8])
)
_READY = re.compile(r"address\W+http://127\.0\.0\.1:(\d+)")


def console_pages(place: BenchmarkRun) -> RowResult:
    """Time and statements of three pages, beside a load; then the load's own latencies with and without browsers."""
    sizes = place.sizes
    counts = place.folder / "store-calls.json" if place.stores.kind == "sqlite" else None

    def prepare(store: BenchmarkStore) -> None:
        place.say(
            f"  filling a store with {sizes.backlog:,} jobs and {sizes.console_queues:,} queues with 30 days of history"
        )
        asyncio.run(_fill(store.shard(), sizes.backlog, sizes.console_queues))

    store = place.stores.prepared(f"console-{sizes.backlog}-{sizes.console_queues}", prepare)
    with place.pinlater(store, counts=counts) as server, running_console(server, place.folder / "console.log") as port:
        with RawClient(server.port) as client:
            [job] = client.claim(QUEUE, 1)
        pages = {"overview": "/", "queue": f"/queues/{QUEUE}", "job": f"/jobs/{job.descriptor.decode()}"}
        figures = {f"{name}_statements": _statements(place, server, counts, port, path) for name, path in pages.items()}
        figures |= _page_times(place, server, port, pages)
    with place.pinlater(store) as server, running_console(server, place.folder / "console.log") as port:
        figures |= _latencies(place, server, port)
    store.remove()
    title = f"pages with {sizes.backlog:,} jobs, {sizes.console_queues:,} queues and 30 days of history; {sizes.browsers} browsers"
    return RowResult("console_pages", title, place.goals("console_pages"), figures, runs=[dict(figures)])


def _statements(place: BenchmarkRun, server: PinLaterServer, counts: Path | None, port: int, path: str) -> float:
    """Statements of one request of a page, without those that the server makes by itself meanwhile.

    These come in bursts, so the middle one of several differences counts, each of a request and of as long a time without one.
    """
    page = Page(port, path)
    page.get()
    pause = threading.Event()

    def wait() -> float:
        pause.wait(place.sizes.page_pause_s)
        return 0.0

    def ask() -> float:
        wait()
        return page.get()

    differences = []
    for _ in range(STATEMENT_REQUESTS):
        _, without = _sent_during(place, server, counts, wait)
        _, sent = _sent_during(place, server, counts, ask)
        differences.append(sent - without)
    page.close()
    if max(differences) <= 0:
        raise RuntimeError(f"{path}: no statements, so they were counted elsewhere")
    return max(0.0, median(differences))


def _sent_during(
    place: BenchmarkRun, server: PinLaterServer, counts: Path | None, work: Callable[[], float]
) -> tuple[float, int]:
    if counts is None:
        return place.mysql.statements_during(work)
    before = counts_of(server, counts).statements
    answer = work()
    return answer, counts_of(server, counts).statements - before


def _page_times(place: BenchmarkRun, server: PinLaterServer, port: int, pages: dict[str, str]) -> dict[str, float]:
    """Percentiles of each page, the pages in turn, while jobs are enqueued at a steady rate."""
    times = {name: array("d") for name in pages}
    loading = threading.Thread(target=_enqueue_load, args=(place, server))
    loading.start()
    opened = {name: Page(port, path) for name, path in pages.items()}
    while loading.is_alive():
        for name, page in opened.items():
            times[name].append(page.get())
    for page in opened.values():
        page.close()
    return {f"{name}_{mark}_ms": value for name in pages for mark, value in percentiles_ms(times[name]).items()}


def _latencies(place: BenchmarkRun, server: PinLaterServer, port: int) -> dict[str, float]:
    """The 99th percentile of enqueues, at a steady rate, and of claims and acks of one connection: alone, and beside browsers."""
    figures: dict[str, float] = {}
    for name, browsers in (("alone", 0), ("beside", place.sizes.browsers)):
        with open_browsers(port, browsers):
            for kind, run in (("enqueue", _enqueue_load(place, server)), ("claim", _claim_load(place, server))):
                figures[f"{kind}_{name}_p99_ms"] = (run.report.latency_ms or {})["p99"]
    for kind in ("enqueue", "claim"):
        figures[f"{kind}_p99_ratio"] = figures[f"{kind}_beside_p99_ms"] / figures[f"{kind}_alone_p99_ms"]
    return figures


def _enqueue_load(place: BenchmarkRun, server: PinLaterServer) -> MeasuredRun:
    plan = replace(place.plan(server, "enqueue", 16, 1), rate=place.sizes.console_rate)
    return place.load(server, replace(plan, seconds=place.sizes.console_seconds), rested=True)


def _claim_load(place: BenchmarkRun, server: PinLaterServer) -> MeasuredRun:
    plan = place.plan(server, "claim", 1, 1)
    return place.load(server, replace(plan, seconds=place.sizes.console_seconds), rested=True)


class Page:
    """A page of the console over a connection of its own."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._path = path

    def get(self) -> float:
        """Asks for it as an open page does; seconds. Raises `ServerFailed` for an answer that is no page."""
        began_s = time.perf_counter()
        self._connection.request("GET", self._path, headers={"Accept": "text/html", "PinLater-Update": "1"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != http.client.OK:
            raise ServerFailed(f"{self._path}: {answer.status} {text[:200]!r}")
        return time.perf_counter() - began_s

    def close(self) -> None:
        self._connection.close()


@contextmanager
def open_browsers(port: int, number: int) -> Iterator[None]:
    """As many tabs that show the overview, spread over the time between two of their requests."""
    ends = threading.Event()

    def show(at: int) -> None:
        page = Page(port, "/")
        pause_s = POLL_S * at / number
        while not ends.wait(pause_s):
            page.get()
            pause_s = POLL_S
        page.close()

    tabs = [threading.Thread(target=show, args=(at,)) for at in range(number)]
    for tab in tabs:
        tab.start()
    try:
        yield
    finally:
        ends.set()
        for tab in tabs:
            tab.join()


@contextmanager
def running_console(server: PinLaterServer, log: Path) -> Iterator[int]:
    """`pinlater console` in front of the server; gives its port."""
    command = [sys.executable, "-m", "pinlater", "console", "--port", "0", "--server", f"127.0.0.1:{server.port}"]
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        stack.callback(process.wait)
        stack.callback(process.kill)
        deadline = time.monotonic() + 30
        while (found := _READY.search(log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"the console did not start:\n{log.read_text(errors='replace')[-2000:]}")
            wait_a_moment(process)
        yield int(found[1])


async def _fill(shard: Shard, jobs: int, queues: int) -> None:
    clock = SystemClock()
    names = [f"queue_{number}" for number in range(queues)]
    async with filling(shard, clock) as filler:
        for start in range(0, queues, _QUEUES_A_CALL):
            await shard.submit(create_queues(names[start : start + _QUEUES_A_CALL], clock.now_ms()))
        now_ms = clock.now_ms()
        for start in range(0, jobs, _CHUNK):
            numbers = range(start, min(start + _CHUNK, jobs))
            await filler.waiting([now_ms - SPREAD_MS + number * SPREAD_MS // jobs for number in numbers])
        samples: list[StoredSample] = []
        for sample in _samples([QUEUE, *names], now_ms):
            samples.append(sample)
            if len(samples) == _CHUNK:
                await shard.submit(SaveSamples(samples))
                samples = []
        await shard.submit(SaveSamples(samples))


def _samples(queues: list[str], now_ms: int) -> Iterator[StoredSample]:
    """Every step that is kept, of every queue."""
    for step_s, kept_ms in KEPT_MS.items():
        step_ms = step_s * 1000
        last_ms = now_ms // step_ms * step_ms - step_ms
        for at_ms in range(last_ms - kept_ms + step_ms, last_ms + 1, step_ms):
            for queue in queues:
                yield StoredSample(step_s, at_ms, queue, "", _SAMPLE)
