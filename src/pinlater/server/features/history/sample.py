"""The counts of one server, or a roll-up of all servers, for one queue and one step, packed for a store and added up.

Counts and buckets add up. Depths and ages, which describe the whole store, are not added up: the highest counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from pinlater.server.features.history.buckets import flat, percentiles
from pinlater.wire.generated.structs import HistoryPoint

UNKNOWN = -1
"""A depth or an age that is not in this sample."""


class QueueSample(Struct, frozen=True, array_like=True):
    """Packed as a list in this order. New fields go to the end: readers skip what they do not know."""

    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    expired: int = 0
    due: int = UNKNOWN
    scheduled: int = UNKNOWN
    running: int = UNKNOWN
    oldest_ms: int = UNKNOWN
    waits: Sequence[int] = ()
    runs: Sequence[int] = ()


pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(QueueSample).decode


class Total:
    """Samples of one queue, added up in any order."""

    __slots__ = ("_counts", "_highest", "_runs", "_waits")

    def __init__(self) -> None:
        self._counts = [0] * 6
        self._highest = [UNKNOWN] * 4
        self._waits: dict[int, int] = {}
        self._runs: dict[int, int] = {}

    def add(self, sample: QueueSample) -> None:
        counts, highest = self._counts, self._highest
        counts[0] += sample.enqueued
        counts[1] += sample.claimed
        counts[2] += sample.succeeded
        counts[3] += sample.failed
        counts[4] += sample.timed_out
        counts[5] += sample.expired
        for index, value in enumerate((sample.due, sample.scheduled, sample.running, sample.oldest_ms)):
            if value > highest[index]:
                highest[index] = value
        _add_buckets(self._waits, sample.waits)
        _add_buckets(self._runs, sample.runs)

    def sample(self) -> QueueSample:
        enqueued, claimed, succeeded, failed, timed_out, expired = self._counts
        due, scheduled, running, oldest_ms = self._highest
        return QueueSample(
            enqueued,
            claimed,
            succeeded,
            failed,
            timed_out,
            expired,
            due,
            scheduled,
            running,
            oldest_ms,
            flat(self._waits),
            flat(self._runs),
        )

    def point(self, at_ms: int) -> HistoryPoint:
        """Makes the point that callers see."""
        enqueued, claimed, succeeded, failed, timed_out, expired = self._counts
        due, scheduled, running, oldest_ms = (None if value == UNKNOWN else value for value in self._highest)
        return HistoryPoint(
            at_ms,
            enqueued,
            claimed,
            succeeded,
            failed,
            timed_out,
            expired,
            due,
            scheduled,
            running,
            oldest_ms,
            percentiles(self._waits),
            percentiles(self._runs),
        )


def _add_buckets(counts: dict[int, int], packed: Sequence[int]) -> None:
    for at in range(0, len(packed), 2):
        bucket = packed[at]
        counts[bucket] = counts.get(bucket, 0) + packed[at + 1]
