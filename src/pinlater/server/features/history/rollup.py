"""Computes the coarser steps of the history from the finer ones, and deletes what is too old, on the shards that this server sweeps.

A window is rolled up three minutes after its end. Each server that does so writes the same rows, and then a row without a
queue which marks the window as done. So two servers do no harm, and the next one continues where the last one stopped.

Weakness: samples that arrive more than three minutes after their window are missing in the coarser steps.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.history import HOUR_S, KEPT_MS, LONGEST_MS, MINUTE_MS, MINUTE_S, TEN_MINUTES_S
from pinlater.server.features.history.sample import Total, pack, unpack
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import ListSamples, SaveSamples, TrimSamples
from pinlater.server.storage.values import COPIES_KEPT_MS, COPIES_STEP_S, RESTORED_STEP_S, SampleRange, StoredSample

MARKS_STEP_S = 0
"""The step of rows that are deploy marks."""
MUTES_STEP_S = 1
"""The step of rows that mute a group of failures, or end a mute (`features.failures.groups`)."""
BULK_STEP_S = 2
"""The step of rows of bulk changes in the background (`features.bulk.runs`)."""
_NO_POINTS = (MARKS_STEP_S, MUTES_STEP_S, BULK_STEP_S, RESTORED_STEP_S)
ROLLED_UP = ""
"""The origin of rows that stand for all servers."""
LATE_MS = 3 * MINUTE_MS
_WINDOWS_A_TURN = 8
_ROWS_A_PAGE = 1_000
_TRIMMED_A_CALL = 1_000
_COPIES_A_CALL = 100  # up to 64 KiB each
_TRIM_EVERY_MS = 10 * MINUTE_MS


class _Level(NamedTuple):
    """A step that is computed from a finer one, both in seconds."""

    step_s: int
    finer_s: int

    @property
    def span_ms(self) -> int:
        return self.step_s * 1000


_LEVELS = (_Level(TEN_MINUTES_S, MINUTE_S), _Level(HOUR_S, TEN_MINUTES_S))


class _Progress(NamedTuple):
    """The progress on one shard and level: where the next window begins, and which later ones are done."""

    next_ms: int
    done: Set[int]


class Rollup:
    """Rolls up for one server."""

    def __init__(self, shards: Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._progress: dict[tuple[str, int], _Progress] = {}
        self._trimmed_ms: dict[str, int] = {}
        self.swept_by_others: Callable[[], Set[str]] = frozenset

    async def run(self) -> None:
        """Does a bounded part of the work. Raises the `Unavailable` of a shard that fails; the next turn continues there."""
        left = self.swept_by_others()
        now_ms = self._clock.now_ms()
        for shard in self._shards.in_reach():
            if shard.name in left:
                for level in _LEVELS:
                    self._progress.pop((shard.name, level.step_s), None)
                continue
            until_ms = now_ms - LATE_MS
            for level in _LEVELS:
                until_ms = await self._roll_up(shard, level, until_ms, now_ms)
            await self._trim(shard, now_ms)

    async def _roll_up(self, shard: ShardLanes, level: _Level, until_ms: int, now_ms: int) -> int:
        """Rolls up some of the windows that end by `until_ms`, the oldest first. Returns the time up to which all are done."""
        key = (shard.name, level.step_s)
        progress = self._progress.get(key) or await self._begin(shard, level, now_ms)
        next_ms, done = progress
        for _ in range(_WINDOWS_A_TURN):
            while next_ms in done:
                next_ms += level.span_ms
            if next_ms + level.span_ms > until_ms:
                break
            has_samples = await self._window(shard, level, next_ms)
            next_ms += level.span_ms
            if not has_samples and next_ms + level.span_ms <= until_ms:
                next_ms = await self._next_window(shard, level, next_ms, until_ms)
            self._progress[key] = _Progress(next_ms, done)
        self._progress[key] = _Progress(next_ms, {at_ms for at_ms in done if at_ms >= next_ms})
        return next_ms

    async def _begin(self, shard: ShardLanes, level: _Level, now_ms: int) -> _Progress:
        """Begins where other servers, or an earlier run of this one, stopped."""
        oldest_ms = -(-(now_ms - KEPT_MS[level.finer_s]) // level.span_ms) * level.span_ms
        done = await shard.store.submit(ListSamples([SampleRange(level.step_s, oldest_ms, now_ms, [""])]))
        return _Progress(oldest_ms, {row.at_ms for row in done})

    async def _next_window(self, shard: ShardLanes, level: _Level, from_ms: int, until_ms: int) -> int:
        """Returns the start of the first window from `from_ms` on that has samples, or of the first window that is not over by
        `until_ms`."""
        rows = await shard.store.submit(ListSamples([SampleRange(level.finer_s, from_ms, until_ms, limit=1)]))
        return max(from_ms, min([row.at_ms for row in rows], default=until_ms) // level.span_ms * level.span_ms)

    async def _window(self, shard: ShardLanes, level: _Level, at_ms: int) -> bool:
        """Rolls up the samples of a window. Returns whether it has any."""
        totals: dict[str, Total] = {}
        after: tuple[int, str, str] | None = None
        while True:
            wanted = SampleRange(level.finer_s, at_ms, at_ms + level.span_ms, after=after, limit=_ROWS_A_PAGE)
            rows = await shard.store.submit(ListSamples([wanted]))
            for row in rows:
                if row.queue:
                    if row.queue not in totals:
                        totals[row.queue] = Total()
                    totals[row.queue].add(unpack(row.data))
            if len(rows) < _ROWS_A_PAGE:
                break
            after = rows[-1][1:4]
        if not totals:
            return False
        made = [
            StoredSample(level.step_s, at_ms, queue, ROLLED_UP, pack(total.sample()))
            for queue, total in sorted(totals.items())
        ]
        await shard.store.submit(SaveSamples(made))
        await shard.store.submit(SaveSamples([StoredSample(level.step_s, at_ms, "", ROLLED_UP, b"")]))
        return True

    async def _trim(self, shard: ShardLanes, now_ms: int) -> None:
        if now_ms - self._trimmed_ms.get(shard.name, 0) < _TRIM_EVERY_MS:
            return
        for step_s, kept_ms in {**dict.fromkeys(_NO_POINTS, LONGEST_MS), **KEPT_MS}.items():
            while await shard.store.submit(TrimSamples(step_s, now_ms - kept_ms, _TRIMMED_A_CALL)) >= _TRIMMED_A_CALL:
                pass
        while (
            await shard.store.submit(TrimSamples(COPIES_STEP_S, now_ms - COPIES_KEPT_MS, _COPIES_A_CALL))
            >= _COPIES_A_CALL
        ):
            pass
        self._trimmed_ms[shard.name] = now_ms
