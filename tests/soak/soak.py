"""Watches one server under mixed load for as long as it is told, and judges: every job ended, counters true, nothing grew."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.servers import PinLaterServer, pinlater_server
from pinlater import AsyncClient, JobState
from tests.soak.mixed_load import QUEUES, MixedLoad

# Finished jobs are thrown away soon, so that a run of an hour reaches a steady state in its first minutes.
TTL_MS = 60_000
SETTINGS = {
    "PINLATER_JOBS_SUCCEEDED_TTL_MS": str(TTL_MS),
    "PINLATER_JOBS_FAILED_TTL_MS": str(TTL_MS),
    "PINLATER_MAINTENANCE_SWEEP_INTERVAL_MS": "500",
}
MEMORY_GROWTH_MB_MAX = 50.0
WAL_MB_MAX = 256.0
SETTLED_AFTER_WINDOWS = 12
_FINISHED = (JobState.SUCCEEDED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class Window:
    """What was seen at the end of one stretch of time."""

    jobs: int
    memory_mb: float
    store_mb: float
    wal_mb: float
    slowest_ms: float

    def text(self, number: int) -> str:
        """A line for the person who watches."""
        return (
            f"{number:5}  {self.jobs:10} jobs  {self.memory_mb:6.0f} MB memory  {self.store_mb:8.1f} MB store  "
            f"{self.wal_mb:6.1f} MB WAL  slowest enqueue {self.slowest_ms:6.1f} ms"
        )


async def soak(
    folder: Path, *, windows: int, window_seconds: float, jobs_per_second: int, seed: int, say: Callable[[str], None]
) -> list[str]:
    """Runs it all; returns what is wrong, in words. An empty list is a success."""
    store = folder / "store.db"
    server = pinlater_server(store, log=folder / "server.log", env=SETTINGS)
    seen: list[Window] = []
    with server:
        load = MixedLoad(f"127.0.0.1:{server.port}", seed, jobs_per_second)
        running = asyncio.create_task(load.run())
        for number in range(1, windows + 1):
            await asyncio.wait([running], timeout=window_seconds)
            if running.done():
                break
            seen.append(measure(server, store, load))
            say(seen[-1].text(number))
        load.stop()
        await running
        wrong = await unfinished(load)
        status = server.stop()
    return [*wrong, *grown(seen), *([f"the server ended with {status}"] if status else [])]


def measure(server: PinLaterServer, store: Path, load: MixedLoad) -> Window:
    """Now."""
    slowest, load.seen.slowest_ms = load.seen.slowest_ms, 0.0
    wal = store.with_name(store.name + "-wal")
    sizes = [path.stat().st_size / 1e6 if path.exists() else 0.0 for path in (store, wal)]
    return Window(load.seen.enqueued, server.memory_mb(), sizes[0], sizes[1], slowest)


async def unfinished(load: MixedLoad) -> list[str]:
    """Watched jobs that were accepted and neither ended nor were thrown away after their time to live; counters that disagree."""
    states: Counter[str] = Counter()
    async with AsyncClient(load.servers) as client:
        descriptors = load.seen.watched
        for start in range(0, len(descriptors), 1000):
            infos = await client.lookup(descriptors[start : start + 1000])
            states.update(info.state.name for info in infos.values() if info.state not in _FINISHED)
        counted = {
            stats.queue: stats.total("pending") + stats.total("in_progress")
            for stats in await client.queue_stats(*QUEUES)
        }
    wrong = [f"{queue} still counts {count} unfinished jobs" for queue, count in counted.items() if count]
    if states:
        wrong.append(f"jobs that never ended: {dict(states)}")
    return wrong


def grown(seen: list[Window]) -> list[str]:
    """What should have levelled off and did not; judged in long runs only."""
    wrong = [f"WAL of {window.wal_mb:.0f} MB" for window in seen if window.wal_mb > WAL_MB_MAX][:1]
    settled = seen[SETTLED_AFTER_WINDOWS:]
    if len(settled) >= SETTLED_AFTER_WINDOWS:
        third = len(settled) // 3
        early = max(window.memory_mb for window in settled[:third])
        late = max(window.memory_mb for window in settled[-third:])
        if late - early > MEMORY_GROWTH_MB_MAX:
            wrong.append(f"memory grew from {early:.0f} to {late:.0f} MB")
    return wrong
