"""Entries of the audit before they are stored: written in the background, so that no call waits for them.

An entry leaves the buffer once it is stored. Entries that are sent again after a lost answer keep their ids, which the store knows. Each
entry is in the log before it comes here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from msgspec.structs import replace

from pinlater.domain.audit import entry_id
from pinlater.domain.clock import Clock
from pinlater.domain.errors import Unavailable
from pinlater.server.telemetry.metrics import Metrics
from pinlater.wire.generated.structs import AuditEntry

logger = logging.getLogger(__name__)

FLUSH_MS = 500
WAITING_MAX = 1_000
ENTRIES_A_WRITE = 200
LOST = "audit_entries_lost"
"""The event that counts entries which are only in the log."""
_PAUSE_S_MAX = 15.0


class AuditBuffer:
    """Holds at most `WAITING_MAX` entries. `store` keeps entries elsewhere; it raises `Unavailable` while that is impossible."""

    def __init__(
        self, store: Callable[[Sequence[AuditEntry]], Awaitable[None]], metrics: Metrics, clock: Clock, random: Random
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._random = random
        self._number = 0
        self._failures = 0
        self._waiting: deque[AuditEntry] = deque()

    @property
    def waiting(self) -> Sequence[AuditEntry]:
        """The entries that are not stored yet, the oldest first."""
        return tuple(self._waiting)

    def add(self, entry: AuditEntry) -> None:
        """Takes the entry for the next write, with a new id and the current time if it has none. If the buffer is full, it is lost."""
        if len(self._waiting) >= WAITING_MAX:
            self._lose(1)
            return
        if not entry.id:
            self._number += 1
            now_ms = self._clock.now_ms()
            name = entry_id(now_ms, self._number, self._random.getrandbits(32))
            entry = replace(entry, id=name, at_ms=now_ms)
        self._waiting.append(entry)

    async def flush(self) -> float | None:
        """Writes what waits. Returns the seconds until the next try, longer after each failure, or None for the usual interval."""
        while self._waiting:
            entries = self.waiting[:ENTRIES_A_WRITE]
            try:
                await self._store(entries)
            except Unavailable as error:
                if not self._failures:
                    logger.warning("audit entries can't be stored now", extra={"reason": error.message})
                self._failures += 1
                return float(min(_PAUSE_S_MAX, FLUSH_MS / 1000 * 2 ** min(self._failures, 10)))
            for _ in entries:
                self._waiting.popleft()
            if self._failures:
                logger.info("audit entries are stored again")
                self._failures = 0
        return None

    async def close(self) -> None:
        """Writes the waiting entries, once more. Entries that can't be stored are counted as lost."""
        await self.flush()
        if self._waiting:
            self._lose(len(self._waiting))
            self._waiting.clear()

    def _lose(self, entries: int) -> None:
        self._metrics.count(LOST, entries)
        logger.warning("audit entries are in the log only", extra={"entries": entries})
