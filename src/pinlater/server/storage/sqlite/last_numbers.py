"""The jobs with the last places of ordering keys in memory, so that an enqueue reads nothing for a key that it has just seen.

The file has one writer, which reports each job that takes or leaves a place. After a rollback, and if another connection has changed the
file, everything is forgotten. A key that is not here is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pinlater.server.storage.relational.dialect import OrderedRow, OrderingKey

# A key takes about 350 bytes. If there are more, all are forgotten.
_KEYS_MAX = 16_384


class LastNumbers:
    """The last jobs of keys, by key, and these keys by the ids of the jobs."""

    __slots__ = ("_keys", "_last")

    def __init__(self) -> None:
        self._last: dict[OrderingKey, tuple[int, int]] = {}  # the number, the id
        self._keys: dict[int, OrderingKey] = {}

    def of(self, keys: Collection[OrderingKey]) -> dict[OrderingKey, int]:
        """Returns the numbers of the known keys."""
        last = self._last
        return {key: last[key][0] for key in keys if key in last}

    def enter(self, rows: Sequence[OrderedRow]) -> None:
        """Notes that these rows of `ordered` are stored, in the order of their numbers."""
        last, keys = self._last, self._keys
        if len(last) + len(rows) > _KEYS_MAX:
            self.clear()
        for job_id, queue_id, text, number, _ in rows:
            key = (queue_id, text)
            before = last.get(key)
            if before is not None:
                del keys[before[1]]
            last[key] = (number, job_id)
            keys[job_id] = key

    def leave(self, ids: Iterable[int]) -> None:
        """Notes that the rows of these jobs are deleted. If one was the last of its key, the last number is unknown."""
        for job_id in ids:
            key = self._keys.pop(job_id, None)
            if key is not None:
                del self._last[key]

    def clear(self) -> None:
        """Forgets everything."""
        self._last.clear()
        self._keys.clear()
