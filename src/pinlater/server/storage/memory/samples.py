"""The history of queues: samples by step and time."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.values import SampleRange, StoredSample


class MemorySamples:
    """Keeps the samples of one shard."""

    def __init__(self) -> None:
        self._by_moment: dict[tuple[int, int], dict[tuple[str, str], StoredSample]] = {}

    def save(self, samples: Sequence[StoredSample]) -> None:
        """Each in the place of one with the same key."""
        for sample in samples:
            moment = self._by_moment.setdefault((sample.step_s, sample.at_ms), {})
            moment[sample.queue, sample.origin] = sample

    def drop(self, samples: Sequence[StoredSample]) -> None:
        """Deletes these."""
        for sample in samples:
            moment = self._by_moment[sample.step_s, sample.at_ms]
            del moment[sample.queue, sample.origin]

    def list(self, wanted: SampleRange) -> list[StoredSample]:
        """The samples of a range, in order."""
        queues = None if wanted.queues is None else set(wanted.queues)
        found: list[StoredSample] = []
        for step_s, at_ms in sorted(self._by_moment):
            if step_s != wanted.step_s or not wanted.from_ms <= at_ms < wanted.until_ms:
                continue
            for (queue, origin), sample in sorted(self._by_moment[step_s, at_ms].items()):
                if queues is not None and queue not in queues:
                    continue
                if wanted.after is None or (at_ms, queue, origin) > wanted.after:
                    found.append(sample)
                if len(found) >= wanted.limit:
                    return found
        return found

    def trim(self, step_s: int, before_ms: int, limit: int) -> int:
        """Deletes the oldest."""
        gone = 0
        for step, at_ms in sorted(self._by_moment):
            if step == step_s and at_ms < before_ms and gone < limit:
                gone += len(self._by_moment.pop((step, at_ms)))
        return gone
