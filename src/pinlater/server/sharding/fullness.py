"""Tracks whether a shard has no space for jobs: its store refuses enqueues as full, and others accept them meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.values import Inserted

logger = logging.getLogger(__name__)

# A full shard gets no enqueues for this long while others accept them.
_FULL_FOR_S = 1.0
# A shard counts as full until it has stored jobs and refused none as full for this long: near its limit it alternates between both.
_NO_LONGER_FULL_AFTER_S = 10.0


class Fullness:
    """Notes whether one shard is full. `monotonic`: seconds."""

    def __init__(self, shard: str, monotonic: Callable[[], float]) -> None:
        self.reason = ""  # why the shard refuses enqueues as full; empty while it does not
        self._shard = shard
        self._monotonic = monotonic
        self._full_until = 0.0

    @property
    def full(self) -> bool:
        """Whether the shard has refused an enqueue as full within the last second."""
        return self._full_until != 0.0 and self._monotonic() < self._full_until

    def refused(self, reason: str) -> None:
        """Notes that the shard has refused enqueues as full."""
        self._full_until = self._monotonic() + _FULL_FOR_S
        if not self.reason:
            logger.warning("a shard is full and refuses enqueues", extra={"shard": self._shard, "reason": reason})
        self.reason = reason

    def answered(self, answers: Sequence[Inserted | PinLaterError]) -> None:
        """Notes that a full shard has answered enqueues: if it has stored jobs and refused none for long enough, it is no longer full."""
        quiet = self._monotonic() >= self._full_until - _FULL_FOR_S + _NO_LONGER_FULL_AFTER_S
        if quiet and any(isinstance(answer, Inserted) for answer in answers):
            self.reason = ""
            logger.info("a shard takes enqueues again", extra={"shard": self._shard})

    def forget(self) -> None:
        """Resets the state of a shard that no longer gets enqueues, and so refuses none."""
        self.reason = ""
        self._full_until = 0.0
