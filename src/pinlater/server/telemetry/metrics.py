"""The server's numbers. Hot paths hold a handle and increment plain attributes; all expensive work is left to the reader.

Only the event loop's thread writes. Nothing here does I/O, and nothing grows without a bound: past `queues_max` queues, or
`names_max` other names, the rest is counted together under `OVERFLOW`.

Weakness: a handle of a queue that was deleted continues counting unseen; so ask `Metrics.queue` anew for each
request (one dictionary look-up) instead of keeping handles for long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from pinlater.server.telemetry.catalogue import MethodMetrics, QueueMetrics
from pinlater.server.telemetry.snapshots import (
    QueueMark,
    Reading,
    Snapshot,
    difference,
    mark_queues,
    take_snapshot,
)

OVERFLOW = "(other)"
TICK_S = 5.0
PERIOD_S = 60.0
_QUEUES_A_TURN = 500


Join = Literal["sum", "max", "min"]
"""The combined value of several processes' values of one gauge: values of each process's own add up; values that all of them read in the
store, or that are only as good as the worst process, do not."""


class Gauge(NamedTuple):
    """The names of a gauge. `prometheus` is its name there, `label` names the kind of its members; Ostrich shows `name` + member."""

    name: str
    prometheus: str = ""
    label: str = ""
    help: str = ""
    join: Join = "sum"


class GaugeReading(NamedTuple):
    """A gauge's values now, by member; one without members has the single member ''."""

    gauge: Gauge
    values: Mapping[str, float]


class _QueueHandles(dict[str, QueueMetrics]):
    """The handles of queues by name; each is made on first use. Past `most` queues the others share that of `OVERFLOW`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __missing__(self, name: str) -> QueueMetrics:
        key = name if len(self) < self._most else OVERFLOW
        return self.setdefault(key, QueueMetrics(key))


class Metrics:
    """All numbers of one server."""

    def __init__(self, queues_max: int = 10_000, names_max: int = 1_000) -> None:
        self._names_max = names_max
        self._queues = _QueueHandles(queues_max)
        self.queue: Callable[[str], QueueMetrics] = self._queues.__getitem__
        """Returns the handle of an existing queue. Call it only for names that a store has confirmed: each takes a place."""
        self._methods: dict[str, MethodMetrics] = {}
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, tuple[Gauge, Callable[[], Mapping[str, float]]]] = {}
        self._ring: deque[Snapshot] = deque(maxlen=int(PERIOD_S / TICK_S) + 1)
        self.labels: dict[str, str] = {}

    # --- writing ----------------------------------------------------------------------------------------------------------
    def forget_queue(self, name: str) -> None:
        """Call it when the queue was deleted: its numbers are removed, its place is free."""
        self._queues.pop(name, None)

    def method(self, name: str) -> MethodMetrics:
        """The handle of a method of the wire contract; the name must not be a caller's own."""
        found = self._methods.get(name)
        if found is None:
            key = name if len(self._methods) < self._names_max else OVERFLOW
            found = self._methods.setdefault(key, MethodMetrics(key))
        return found

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a counter that belongs to no queue and no method, e.g. `shard_connection_failed_<host>`."""
        if name not in self._counters and len(self._counters) >= self._names_max:
            name = OVERFLOW
        self._counters[name] = self._counters.get(name, 0) + n

    def gauge(
        self, name: str, read: Callable[[], float], *, prometheus: str = "", help: str = "", join: Join = "sum"
    ) -> None:
        """Shows the results of `read` at each reading of the metrics; it is called on the event loop, so it must be cheap.

        `prometheus` is the whole name in /metrics; by default it is derived from `name`, with the prefix `pinlater_`.
        """
        self._gauges[name] = Gauge(name, prometheus, "", help, join), lambda: {"": read()}

    def labelled_gauge(
        self,
        name: str,
        read: Callable[[], Mapping[str, float]],
        *,
        label: str,
        prometheus: str = "",
        help: str = "",
        join: Join = "sum",
    ) -> None:
        """Adds a gauge as `gauge` does, with a value for each key: `name` + key in /stats.txt, a `label` with the key in /metrics."""
        self._gauges[name] = Gauge(name, prometheus, label, help, join), read

    # --- reading ----------------------------------------------------------------------------------------------------------
    @property
    def requests(self) -> int:
        """Requests answered since the start, of all methods."""
        return sum(method.requests for method in self._methods.values())

    def snapshot(self, now_s: float = 0.0) -> Snapshot:
        """Returns everything since the start. Call it on the event loop's thread only."""
        before = self._ring[-1] if self._ring else None
        return take_snapshot(now_s, mark_queues(self._queues.items(), before), self._methods, self._counters, before)

    async def snapshot_in_turns(self, now_s: float = 0.0) -> Snapshot:
        """The same for thousands of queues: in pieces between which other tasks run."""
        before = self._ring[-1] if self._ring else None
        queues = list(self._queues.items())
        marked: dict[str, QueueMark] = {}
        for start in range(0, len(queues), _QUEUES_A_TURN):
            if start:
                await asyncio.sleep(0)
            marked.update(mark_queues(queues[start : start + _QUEUES_A_TURN], before))
        return take_snapshot(now_s, marked, self._methods, self._counters, before)

    def tick(self, now_s: float) -> None:
        """Keeps a snapshot for `last_minute`."""
        self._ring.append(self.snapshot(now_s))

    async def tick_in_turns(self, now_s: float) -> None:
        """Does the same in pieces; the runner of periodic work calls it every `TICK_S` seconds (monotonic clock)."""
        self._ring.append(await self.snapshot_in_turns(now_s))

    def last_minute(self) -> tuple[Snapshot, Snapshot | None]:
        """The newest snapshot of `tick` and the one a minute before it, as `difference` takes them.

        Whole ticks rather than up to this moment, so that a reader that reads once a minute counts every event once.
        After less than a minute: all since the start; before the second tick: up to now.
        """
        if len(self._ring) < 2:
            return self.snapshot(), None
        newest = self._ring[-1]
        past = [snapshot for snapshot in self._ring if snapshot.at_s <= newest.at_s - PERIOD_S + TICK_S / 2]
        return newest, past[-1] if past else None

    def read(self, *, last_minute: bool = False) -> Reading:
        """Returns what happened since the start, or in the last minute. Costs some µs a queue: for tests and small servers."""
        newer, older = self.last_minute() if last_minute else (self.snapshot(), None)
        return difference(newer, older)

    def read_gauges(self) -> list[GaugeReading]:
        """Returns all gauges now. Call it on the event loop's thread only."""
        readings = []
        for gauge, read in self._gauges.values():
            readings.append(GaugeReading(gauge, {member: +number for member, number in read().items()}))  # True is 1
        return readings
