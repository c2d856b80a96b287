"""What happened in queues, for charts; and deploy marks. Reads samples, never jobs: one statement for each shard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

from pinlater.domain.errors import InvalidArgument, NoHealthyShards
from pinlater.domain.history import (
    HOUR_S,
    KEPT_MS,
    LONGEST_MS,
    MARK_AHEAD_MS,
    MARK_CHARS_MAX,
    MARKS_MAX,
    MINUTE_MS,
    MINUTE_S,
    POINTS_MAX,
    QUEUES_MAX,
    TEN_MINUTES_S,
    step_of,
)
from pinlater.domain.queue import Queue
from pinlater.server.features.history.rollup import MARKS_STEP_S
from pinlater.server.features.history.sample import Total, unpack
from pinlater.server.operations.addressing import on_reachable
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import ListSamples, SaveSamples
from pinlater.server.storage.values import SampleRange, StoredSample
from pinlater.wire.generated.structs import DeployMark, QueueHistory, QueueHistoryRequest, QueueHistoryResponse

_ROWS_A_TURN = 1_000
# After this time samples of a step are surely part of the coarser ones, unless no server rolls them up.
_ROLLED_UP_MS = {MINUTE_S: 30 * MINUTE_MS, TEN_MINUTES_S: 100 * MINUTE_MS}
_LEVELS = (MINUTE_S, TEN_MINUTES_S, HOUR_S)

Totals = dict[tuple[str, int], Total]
"""By queue and time."""


class HistoryQueries:
    """The operations on the history."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._metrics = service.metrics
        self._clock = service.clock

    # --- points ---------------------------------------------------------------------------------------------------------

    async def queue_history(self, request: QueueHistoryRequest) -> QueueHistoryResponse:
        """The points of these queues, and the marks, in a range of time. `step_s`: as `step_of` chooses it for None.

        A queue that does not exist is left out, unless it is the only one. Points that are older than the queue belong to a former queue
        of that name.
        """
        queues = await self._queues(request.queues)
        now_ms = self._clock.now_ms()
        until_ms = now_ms if request.until_ms is None else min(request.until_ms, now_ms)
        from_ms = max(request.from_ms, now_ms - LONGEST_MS)
        if from_ms >= until_ms:
            raise InvalidArgument("The range of time is empty: it has to begin in the past, and before its end")
        step_s = step_of(from_ms, until_ms, now_ms) if request.step_s is None else request.step_s
        if step_s not in KEPT_MS:
            raise InvalidArgument(f"A step has 60, 600 or 3600 seconds, not {step_s}")
        from_ms -= from_ms % (step_s * 1000)
        points = -(-(until_ms - from_ms) // (step_s * 1000)) * len(queues)
        if points > POINTS_MAX:
            raise InvalidArgument(
                f"{points} points in one request; at most {POINTS_MAX} are answered", detail="TOO_MANY"
            )
        return await self._history(queues, from_ms, until_ms, step_s, now_ms)

    async def _queues(self, names: Sequence[str]) -> Sequence[Queue]:
        if not 1 <= len(names) <= QUEUES_MAX:
            raise InvalidArgument(f"From 1 to {QUEUES_MAX} queues in one request, not {len(names)}", detail="TOO_MANY")
        if len(names) == 1:
            return [await self._queue_cache.require(names[0])]
        found = [self._queue_cache.queues.get(name) for name in dict.fromkeys(names)]
        return [queue for queue in found if queue is not None]

    async def _history(
        self, queues: Sequence[Queue], from_ms: int, until_ms: int, step_s: int, now_ms: int
    ) -> QueueHistoryResponse:
        names = [queue.name for queue in queues]
        steps = _LEVELS[: _LEVELS.index(step_s) + 1]
        ranges = [SampleRange(MARKS_STEP_S, from_ms, until_ms, ["", *names], limit=MARKS_MAX)]
        for step, coarser in zip(steps, (*steps[1:], None), strict=True):
            begin_ms = from_ms
            if coarser is not None:  # those that may not be rolled up yet, in whole windows
                begin_ms = now_ms - _ROLLED_UP_MS[step]
                begin_ms = max(from_ms, begin_ms - begin_ms % (coarser * 1000))
            ranges.append(SampleRange(step, begin_ms, until_ms, names))

        async def read(shard: ShardLanes) -> Sequence[StoredSample]:
            return await shard.store.submit(ListSamples(ranges))

        found = await on_reachable(self._shards, self._metrics, "getQueueHistory", read)
        totals: Totals = {}
        for rows in found:
            _add_up(totals, await _one_shard(steps, rows), step_s)
        marks = {(row.at_ms, row.queue, row.data) for rows in found for row in rows if row.step_s == MARKS_STEP_S}
        return QueueHistoryResponse(
            [_history_of(queue, totals, step_s) for queue in queues],
            [DeployMark(at_ms, data.decode(), queue or None) for at_ms, queue, data in sorted(marks)],
            step_s,
            from_ms,
            until_ms,
            len(found) < len(self._shards) or None,
        )

    # --- marks ----------------------------------------------------------------------------------------------------------

    async def add_mark(self, text: str, at_ms: int | None = None, queue: str = "") -> None:
        """Keeps a mark for 30 days. `at_ms`: now for None; at most an hour ahead. `queue`: '' for all. A repeat changes nothing.

        Raises InvalidArgument, also if there are a thousand marks already, and QueueNotFound.
        """
        now_ms = self._clock.now_ms()
        at_ms = now_ms if at_ms is None else at_ms
        if not 1 <= len(text) <= MARK_CHARS_MAX or not text.isprintable():
            raise InvalidArgument(f"The text of a mark has 1 to {MARK_CHARS_MAX} characters, all printable")
        if not now_ms - LONGEST_MS < at_ms <= now_ms + MARK_AHEAD_MS:
            raise InvalidArgument("A mark is at most 30 days old, and at most an hour ahead")
        if queue:
            await self._queue_cache.require(queue)
        data = text.encode()
        mark = StoredSample(MARKS_STEP_S, at_ms, queue, blake2b(data, digest_size=16).hexdigest(), data)
        shards = sorted(self._shards.in_reach(), key=lambda shard: (not shard.takes_enqueues, shard.name))
        if not shards:
            raise NoHealthyShards
        kept = await shards[0].store.submit(
            ListSamples([SampleRange(MARKS_STEP_S, now_ms - LONGEST_MS, now_ms + MARK_AHEAD_MS + 1, limit=MARKS_MAX)])
        )
        if len(kept) >= MARKS_MAX:
            raise InvalidArgument(f"{MARKS_MAX} marks of the last 30 days are kept already", detail="TOO_MANY")
        await shards[0].store.submit(SaveSamples([mark]))


async def _one_shard(steps: Sequence[int], rows: Sequence[StoredSample]) -> Totals:
    """The samples of a shard in windows of the last step. A window without a sample of its own is computed from finer ones."""
    totals: Totals = {}
    for step_s in steps:
        finer, totals = totals, {}
        _add_up(totals, finer, step_s)
        own: Totals = {}
        for number, row in enumerate(row for row in rows if row.step_s == step_s):
            if number % _ROWS_A_TURN == _ROWS_A_TURN - 1:
                await asyncio.sleep(0)
            key = (row.queue, row.at_ms)
            if key not in own:
                own[key] = Total()
            own[key].add(unpack(row.data))
        totals |= own
    return totals


def _add_up(totals: Totals, others: Totals, step_s: int) -> None:
    """Adds others in windows of this step."""
    for (queue, at_ms), other in others.items():
        key = (queue, at_ms - at_ms % (step_s * 1000))
        if key not in totals:
            totals[key] = Total()
        totals[key].add(other.sample())


def _history_of(queue: Queue, totals: Totals, step_s: int) -> QueueHistory:
    """The points of one queue, in the order of time."""
    made_ms = queue.life.made_ms
    times = sorted(at_ms for name, at_ms in totals if name == queue.name and at_ms + step_s * 1000 > made_ms)
    return QueueHistory(queue.name, [totals[queue.name, at_ms].point(at_ms) for at_ms in times])
