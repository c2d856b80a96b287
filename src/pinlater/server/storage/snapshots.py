"""Lets one read tell all sweeps whether there is anything to do, so that an idle shard gets hardly any queries.

It is valid for a second; or for half a minute, while all other servers report that they have changed nothing since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinlater.domain.descriptor import I64_MAX

KEPT_S = 0.95
# Others may change the shard without a report: a server that this one does not know yet, or an operator.
KEPT_UNCHANGED_S = 30.0
# How often a shard is searched for lost or missed entries although it reports no change.
LOOKED_THROUGH_MS = 1_800_000
NEVER_MS = I64_MAX


class HasChanges(Protocol):
    """A snapshot. `changes`: a value that changes after any server has changed something."""

    @property
    def changes(self) -> Hashable: ...


Snapshot = TypeVar("Snapshot", bound=HasChanges)


class MaintenanceSnapshot(NamedTuple):
    """What sweeps need to know about a shard before they ask it for work: the first time of each kind, in milliseconds (`NEVER_MS` for
    none).

    `changes`: a string that changes after another server has changed something; each server counts its own changes. The last two are
    Redis' own.
    """

    first_future_ms: int = NEVER_MS
    first_deadline_ms: int = NEVER_MS
    first_expiry_ms: int = NEVER_MS
    first_request_key_ms: int = NEVER_MS
    first_key_until_ms: int = NEVER_MS
    dropped_queues: int = 0
    changes: str = ""
    finished_bytes: int = 0
    gone: str = ""  # lost keys of those that always exist, see `maintenance_snapshot.lua`


class _Latest(NamedTuple, Generic[Snapshot]):
    """A snapshot, when it was requested, and this server's and the others' changes by then."""

    snapshot: Snapshot
    asked_s: float
    own: int
    others: Hashable | None


class Snapshots(Generic[Snapshot]):
    """The latest snapshot, shared by all sweeps. `look` asks the shard; `own` counts this server's changes; `monotonic` in seconds.

    `others()`: another value after another server has changed something, or None while that is not known.
    """

    def __init__(
        self, look: Callable[[], Awaitable[Snapshot]], own: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._look = look
        self._own = own
        self._monotonic = monotonic
        self.others: Callable[[], Hashable | None] = lambda: None
        self._latest: _Latest[Snapshot] | None = None
        self._looking = asyncio.Lock()

    async def latest(self) -> Snapshot:
        """Returns the snapshot, taken after all changes that this server made; otherwise at most a second old, or half a minute while the
        others have reported no change.
        """
        async with self._looking:
            now_s, own, others = self._monotonic(), self._own(), self.others()
            latest = self._latest
            if latest is None or not self._holds(latest, now_s, own, others):
                latest = self._latest = _Latest(await self._look(), now_s, own, others)
            return latest.snapshot

    def _holds(self, latest: _Latest[Snapshot], now_s: float, own: int, others: Hashable | None) -> bool:
        is_same = others is not None and others == latest.others
        return own == latest.own and now_s - latest.asked_s < (KEPT_UNCHANGED_S if is_same else KEPT_S)

    async def state(self) -> Hashable | None:
        """The state of the shard; while it stays the same, nothing has changed. None if the other servers don't report their
        changes."""
        own, others = self._own(), self.others()
        return None if others is None else (own, others, (await self.latest()).changes)

    def forget(self) -> None:
        """The shard was closed: the next caller that wants a snapshot queries it, and is refused."""
        self._latest = None
