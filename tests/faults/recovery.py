"""How long service and owners take to come back after a loss, as clients of the servers that are left see it.

The load's own clients say little of that: those that wait for a server that stands still wait until their own time limit, ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.load import QUEUES, SteadyLoad, shard_of

RECOVERED_S_MAX = 5.0
# A call to a server that is lost may take as long as its time limit, so others are made meanwhile.
_TRIED_EACH_S = 0.5
_LOOK_S = 0.02
DEADLINE_S = 60.0


class Recovery(NamedTuple):
    """Seconds by the clock on the wall from a loss. `served_s`: by queue, until each server that is left has taken a job for each shard
    that is left, and the job was done. `owned_s`: until these servers own all slices; None if no server was lost.

    `stalled_s`: how long one of the processes that take part waited for a core of this machine meanwhile, which no server can help.
    """

    served_s: Mapping[str, float]
    owned_s: float | None
    stalled_s: float

    def late(self) -> list[str]:
        """What took longer than was promised, beyond the machine's own delay."""
        found = [(s, f"{queue} was served") for queue, s in self.served_s.items()]
        if self.owned_s is not None:
            found.append((self.owned_s, "the other servers owned all slices"))
        return [
            f"{what} only {s:.1f} s after a loss, {self.stalled_s:.1f} s of which may be due to the machine"
            for s, what in found
            if s > RECOVERED_S_MAX + self.stalled_s
        ]

    def text(self) -> str:
        """For the log."""
        owners = "" if self.owned_s is None else f", and after {self.owned_s:.1f} s the others owned all"
        return (
            f"{min(self.served_s.values()):.1f} to {max(self.served_s.values()):.1f} s after a loss, {len(self.served_s)} queues were "
            f"served on every shard{owners}; {self.stalled_s:.1f} s of that a process waited for a core"
        )


class HandOver(NamedTuple):
    """A server that stopped gave away its slices, in `took_ms` milliseconds by its own clock, as it logs."""

    slices: int
    took_ms: float

    def text(self) -> str:
        """For the log."""
        return f"a server that stopped gave {self.slices} slices away in {self.took_ms:.1f} ms"


_GAVE_AWAY = re.compile(r"gave its slices away.*", re.MULTILINE)
_FIELD = re.compile(r"(slices|took_ms)\W{1,3}([\d.]+)")


def hand_over_of(log: str) -> HandOver | None:
    """The last one of a server with this log; None if it had no slices."""
    lines = _GAVE_AWAY.findall(log)
    if not lines:
        return None
    found = dict(_FIELD.findall(lines[-1]))
    return HandOver(int(found["slices"]), float(found["took_ms"]))


async def served_after(load: SteadyLoad, servers: Sequence[str], shards: Collection[str]) -> dict[str, float]:
    """Waits until each of these servers (addresses) and shards serves each queue of the load; after how many seconds, by queue."""
    over = asyncio.Event()
    for server, queue in itertools.product(servers, QUEUES):
        load.begin_work(queue, server, over)
    try:
        async with asyncio.TaskGroup() as group:
            tried = {
                queue: [
                    group.create_task(_served_s(load, queue, shard, server))
                    for shard, server in itertools.product(shards, servers)
                ]
                for queue in QUEUES
            }
    finally:
        over.set()
    return {queue: max(task.result() for task in tasks) for queue, tasks in tried.items()}


async def _served_s(load: SteadyLoad, queue: str, shard: str, server: str) -> float:
    """Jobs are put until one is done."""
    began = time.monotonic()
    puts: list[asyncio.Task[Sequence[str]]] = []
    while time.monotonic() < began + DEADLINE_S:
        if time.monotonic() >= began + len(puts) * _TRIED_EACH_S:
            puts.append(load.begin_put(queue, shard, server))
        stored = {name for put in puts if put.done() and not put.exception() for name in put.result()}
        if any(shard_of(name) == shard for name in stored & load.done):
            return time.monotonic() - began
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {server} serves {queue} on shard {shard}")


class CoreWaits:
    """How long the threads of these processes were ready to run and waited for a core, since now. Linux counts it for each thread."""

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes
        self._before = self._now()

    def longest_s(self) -> float:
        """Of the thread that waited longest."""
        return max((self._now() - self._before).values(), default=0) / 1e9

    def _now(self) -> Counter[Path]:
        waited_ns = Counter[Path]()
        for process in self._processes:
            for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):  # a thread that has just ended
                    waited_ns[path] = int(path.read_text().split()[1])
        return waited_ns
