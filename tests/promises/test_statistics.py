"""The original's admin port: pages, names and numbers, from a whole server on SQLite whose clock the test turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinlater.server.main.app import App
from tests.promises.running_server import SettableClocks
from tests.promises.test_queues import refused
from tests.promises.wire import DEADLINE_S, Wire, connected, ttypes

Run = Callable[..., Awaitable[App]]


class ServerWithClock(NamedTuple):
    """A server, a connection to it with the queue `q` made, and its clock."""

    app: App
    wire: Wire
    clock: SettableClocks

    async def turn(self, seconds: float, work: str) -> None:
        """Time goes by, then this periodic work runs until it finds no more."""
        self.clock.monotonic_s += seconds
        sweep = next(each for each in self.app.periodic_work.table() if each.name == work)
        while await sweep.run() is not None:
            pass

    async def page(self, path: str) -> str:
        """A page's body; the page must be there."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.app.http.port)
            writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
        assert answer.split(" ", 2)[1] == "200", answer
        return answer.partition("\r\n\r\n")[2]

    async def stats(self, more: str = "") -> dict[str, dict[str, Any]]:
        """The statistics as JSON."""
        found: dict[str, dict[str, Any]] = json.loads(await self.page(f"/stats.json{more}"))
        return found


@pytest.fixture
async def watched(run: Run, tmp_path: Path) -> AsyncIterator[ServerWithClock]:
    clock = SettableClocks()
    app = await run(clock.clock(), store=f"sqlite:{tmp_path / 'store.db'}")
    async with connected(app.thrift.port) as wire:
        await wire.create("q")
        yield ServerWithClock(app, wire, clock)


async def test_ping_health_and_server_info_answer_as_the_originals_did(watched: ServerWithClock) -> None:
    assert json.loads(await watched.page("/ping")) == {"response": "pong"}
    assert (await watched.page("/ping.txt")).strip() == "pong"
    assert (await watched.page("/health")).strip() == "OK"
    assert json.loads(await watched.page("/server_info"))["name"] == "pinlater"


async def test_each_counter_of_a_queue_counts_what_its_name_says(watched: ServerWithClock) -> None:
    """Driven by calls alone; the sweeps are run by hand."""
    wire = watched.wire
    good, bad, lost = await wire.enqueue("q", b"good", b"bad", b"lost", numAttemptsAllowed=1)
    [retried] = await wire.enqueue("q", b"retried", numAttemptsAllowed=3, priority=2)
    await wire.claim("q", 4)
    await wire.checkpoint("q", good)
    await wire.checkpoint("q", good, source="another worker")
    await wire.ack("q", good, failed=[bad])
    await watched.turn(601, "claim-timeouts")
    assert (await wire.state(lost), await wire.state(retried)) == (3, 0)
    await wire.configure("q", maxJobsPerSecond=0.0)
    await refused(wire.dequeue("q"))
    await watched.turn(24 * 3600 + 1, "garbage")
    await watched.turn(144 * 3600, "garbage")
    counters = (await watched.stats())["counters"]
    expected = {
        "enqueue": 4,
        "dequeue": 4,
        "ack_succeeded": 1,
        "ack_failed": 1,
        "checkpoint": 1,
        "checkpoint_noop": 1,
        "dequeue_requests_rate_limited": 1,
        "timeout_done": 1,
        "timeout_retry": 1,
        "timeout_evict": 0,
        "succeeded_gc": 1,
        "failed_gc": 2,
    }
    assert {name: counters[f"q_{name}"] for name in expected} == expected


async def test_errors_are_counted_by_method_and_code(watched: ServerWithClock) -> None:
    for _ in range(2):
        await refused(watched.wire.enqueue("missing", b"x"))
    await refused(watched.wire.create("no good"))
    counters = (await watched.stats())["counters"]
    assert counters["PinLater.enqueueJobs.errors.QUEUE_NOT_FOUND"] == 2
    assert counters["PinLater.createQueue.errors.QUEUE_NAME_INVALID"] == 1


async def test_delays_sizes_and_durations_are_told_with_all_their_figures(watched: ServerWithClock) -> None:
    wire = watched.wire
    [descriptor] = await wire.enqueue("q", b"x" * 10)
    watched.clock.monotonic_s += 2
    await wire.claim("q")
    await wire.ack("q", failed=[descriptor])
    watched.clock.monotonic_s += 5
    await wire.claim("q")
    metrics = (await watched.stats())["metrics"]
    figures = ["average", "count", "maximum", "minimum", "p50", "p90", "p95", "p99", "p999", "p9999", "sum"]
    for name in ("PinLaterService.enqueueJobs_msec", "q_first_dequeue_delay_ms", "q_dequeue_delay_ms"):
        assert sorted(metrics[name]) == figures, name
    assert (metrics["q_first_dequeue_delay_ms"]["count"], metrics["q_first_dequeue_delay_ms"]["maximum"]) == (1, 2_000)
    assert (metrics["q_dequeue_delay_ms"]["count"], metrics["q_dequeue_delay_ms"]["maximum"]) == (2, 5_000)
    assert (metrics["job_body_size_q"]["count"], metrics["job_body_size_q"]["sum"]) == (1, 10)


async def test_a_queues_waiters_are_a_gauge(watched: ServerWithClock) -> None:
    async with connected(watched.app.thrift.port) as waiting, asyncio.timeout(DEADLINE_S):
        waiting.send("dequeueJobs", request=ttypes.PinLaterDequeueRequest("q", 1, waitMillis=60_000))
        while (await watched.stats())["gauges"].get("dequeue-semaphore-waiters-q") != 1:
            pass
        await watched.wire.enqueue("q", b"x")
        assert (await waiting.result("dequeueJobs")).jobs


async def test_the_text_has_four_sections_with_a_name_and_value_a_line(watched: ServerWithClock) -> None:
    await watched.wire.enqueue("q", b"x")
    lines = (await watched.page("/stats.txt")).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["counters:", "gauges:", "labels:", "metrics:"]
    assert "  q_enqueue: 1" in lines
    assert all(": " in line for line in lines if line.startswith(" "))


async def test_with_a_period_only_the_last_minute_counts(watched: ServerWithClock) -> None:
    await watched.wire.enqueue("q", b"x")
    for _ in range(30):
        await watched.turn(5, "metrics")
    await watched.wire.enqueue("q", b"y", b"z")
    await watched.turn(5, "metrics")
    assert (await watched.stats("?period=60"))["counters"]["q_enqueue"] == 2
    assert (await watched.stats())["counters"]["q_enqueue"] == 3
