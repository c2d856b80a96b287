"""Entries of the audit, by id."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from pinlater.server.storage.values import AUDIT_END, AuditRecord


class Audit:
    """Keeps the entries of one shard."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._ids: list[str] = []  # ascending

    def add(self, records: Sequence[AuditRecord], records_max: int) -> None:
        for record in records:
            if record.id not in self._contents:
                self._contents[record.id] = record.content
                insort(self._ids, record.id)
        self._delete(max(0, len(self._ids) - records_max))

    def newest(self, since: str, before: str, limit: int) -> Sequence[AuditRecord]:
        end = bisect_left(self._ids, before or AUDIT_END)
        start = max(bisect_left(self._ids, since), end - limit)
        return [AuditRecord(name, self._contents[name]) for name in reversed(self._ids[start:end])]

    def prune(self, before: str, limit: int) -> int:
        """How many were deleted."""
        count = min(bisect_left(self._ids, before), max(0, limit))
        self._delete(count)
        return count

    def _delete(self, count: int) -> None:
        for name in self._ids[:count]:
            del self._contents[name]
        del self._ids[:count]
