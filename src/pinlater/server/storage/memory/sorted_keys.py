"""Jobs in the order of a time: a sorted list of (milliseconds, id).

Adding and removing moves part of a list, which is fast enough up to some hundred thousand jobs; no other structure is as plain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

Key = tuple[int, int]


class SortedKeys:
    """A sorted set of (milliseconds, id)."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def add(self, key: Key) -> None:
        if self._keys and key <= self._keys[-1]:
            insort(self._keys, key)
        else:
            self._keys.append(key)

    def remove(self, key: Key) -> None:
        """Raises `KeyError` if it isn't there, which would be a bug of the store."""
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            raise KeyError(key)
        del self._keys[at]

    def first(self) -> Key | None:
        return self._keys[0] if self._keys else None

    def count_through(self, key: Key) -> int:
        """How many are at or before `key`."""
        return bisect_right(self._keys, key)

    def through(self, ms: int) -> Iterator[Key]:
        """The keys whose time is at most `ms`, ascending: as they are now, whatever changes while they are gone through."""
        return iter(self._keys[: bisect_left(self._keys, (ms + 1, -1))])

    def at(self, index: int) -> Key:
        return self._keys[index]

    def descending(
        self, *, below: Key | None = None, ms_max: int | None = None, ms_min: int | None = None
    ) -> Iterator[Key]:
        """Newest first: keys less than `below`, with times from `ms_min` to `ms_max`."""
        end = len(self._keys)
        if below is not None:
            end = bisect_left(self._keys, below)
        if ms_max is not None:
            end = min(end, bisect_left(self._keys, (ms_max + 1, -1)))
        start = 0 if ms_min is None else bisect_left(self._keys, (ms_min, -1))
        return (self._keys[at] for at in range(end - 1, start - 1, -1))
