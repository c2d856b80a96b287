"""The state of each shard, for operators: composed of what the server already knows, and of the sizes of the stores.

A size is queried while operators look, at most twice a minute, and only on reachable shards. A look waits briefly for sizes that are
unknown or more than a minute old: a shard that hangs delays no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding.lane_minute import LaneMinute
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.wire.generated.structs import ShardDetails, ShardDrain, ShardJobs, ShardMemory, ShardSize

_EVERY_S = 30.0
_OLD_MS = 60_000
_WAIT_S = 0.5
_REASON_CHARS_MAX = 500
_SHARDS_A_TURN = 16


class _Measured(NamedTuple):
    """`asked_s`: when the store was last asked."""

    size: ShardSize
    asked_s: float


class ShardSizes:
    """The sizes that the stores report. Keeps one answer for each shard of the map."""

    def __init__(self, shards: Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._known: dict[str, _Measured] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, shard: str) -> ShardSize:
        """Returns the details as the shard last reported them."""
        known = self._known.get(shard)
        return ShardSize() if known is None else known.size

    async def look(self) -> None:
        """Asks the shards whose sizes are old, and waits for those whose sizes are unknown."""
        now_s = self._clock.monotonic()
        names = {shard.name for shard in self._shards}
        self._known = {name: known for name, known in self._known.items() if name in names}
        for shard in self._shards.in_reach():
            known = self._known.get(shard.name)
            if shard.name not in self._asking and (known is None or now_s - known.asked_s >= _EVERY_S):
                self._known[shard.name] = _Measured(self.of(shard.name), now_s)
                task = self._asking[shard.name] = asyncio.create_task(self._ask(shard), name=f"size of {shard.name}")
                task.add_done_callback(lambda _, name=shard.name: self._asking.pop(name, None))  # type: ignore[misc]
        unknown = {name: task for name, task in self._asking.items() if self._is_old(name)}
        if unknown:
            await asyncio.wait(unknown.values(), timeout=_WAIT_S)
        now_s = self._clock.monotonic()
        for name, task in self._asking.items():
            known = self._known.get(name)
            if known is not None and not task.done() and (name in unknown or now_s - known.asked_s >= _WAIT_S):
                self._note(name, replace(known.size, late=True))

    def _is_old(self, shard: str) -> bool:
        """Returns whether its size is unknown or very old, and the shard has not been late with the answer."""
        size = self.of(shard)
        return not size.late and (size.at_ms is None or self._clock.now_ms() - size.at_ms >= _OLD_MS)

    async def close(self) -> None:
        """Cancels the calls under way."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _ask(self, shard: ShardLanes) -> None:
        try:
            size = await shard.store.size()
        except PinLaterError:
            self._note(shard.name, replace(self.of(shard.name), late=True))
        else:
            self._note(shard.name, replace(size, at_ms=self._clock.now_ms()))

    def _note(self, shard: str, size: ShardSize) -> None:
        known = self._known.get(shard)
        if known is not None:  # otherwise it has left the map
            self._known[shard] = known._replace(size=size)


class ShardReports:
    """Describes shards. `jobs_of(shard)`: the latest counts by state; `drain_of(shard)`: the progress of one that accepts no enqueues."""

    def __init__(
        self,
        shards: Shards,
        clock: Clock,
        jobs_of: Callable[[str], ShardJobs | None],
        drain_of: Callable[[ShardLanes], ShardDrain | None],
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._jobs_of = jobs_of
        self._drain_of = drain_of
        self.lane_minute = LaneMinute(shards)
        self.sizes = ShardSizes(shards, clock)

    async def close(self) -> None:
        """Cancels the calls under way."""
        await self.sizes.close()

    async def details(self) -> dict[str, ShardDetails]:
        """Returns all shards of the map by name, in pieces between which others get their turn."""
        await self.sizes.look()
        found: dict[str, ShardDetails] = {}
        for index, shard in enumerate(list(self._shards)):
            found[shard.name] = self._of(shard)
            if index % _SHARDS_A_TURN == _SHARDS_A_TURN - 1:
                await asyncio.sleep(0)
        return found

    def _of(self, shard: ShardLanes) -> ShardDetails:
        health = shard.health
        failure = health.failure or ("" if shard.healthy else health.reason)
        return ShardDetails(
            shard.unguarded.capabilities.kind,
            shard.shown_address or None,
            shard.takes_enqueues,
            self._moment_ms(health.since),
            failure[:_REASON_CHARS_MAX] or None,
            None if health.failed_at is None else self._moment_ms(health.failed_at),
            not shard.healthy,
            shard.stalled,
            shard.fullness.reason[:_REASON_CHARS_MAX] or None,
            self._jobs_of(shard.name),
            self._size_of(shard),
            self._drain_of(shard),
            self.lane_minute.of(shard),
            health.failure_kind or None,
            _memory_of(shard),
        )

    def _size_of(self, shard: ShardLanes) -> ShardSize:
        """Returns the size of a shard. A shard that is out of use is not asked, so its size is old."""
        size = self.sizes.of(shard.name)
        return size if shard.healthy else replace(size, late=True)

    def _moment_ms(self, monotonic_s: float) -> int:
        return self._clock.now_ms() - round((self._clock.monotonic() - monotonic_s) * 1000)


def _memory_of(shard: ShardLanes) -> ShardMemory | None:
    """Returns the figures, or None if its store answers no claims from memory. Some stores remember no jobs, only that none is due."""
    figures = shard.unguarded.figures()
    if "claims_from_memory" not in figures:
        return None
    names = ("remembered_jobs", "remembered_bytes", "claims_from_memory", "stale_claims")
    return ShardMemory(*[int(figures.get(name, 0)) for name in names])
