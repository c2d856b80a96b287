"""Lets one look tell all sweeps whether there is anything to do, so that an idle shard gets hardly any queries.

It holds for a second; or for half a minute, while all other servers say that they have changed nothing since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinlater.domain.descriptor import I64_MAX

KEPT_S = 0.95
# Others may change the shard and not say so: a server of which this one does not know yet, or an operator.
KEPT_UNCHANGED_S = 30.0
# How often a shard is looked through for what was lost or missed, though it says that nothing has changed.
LOOKED_THROUGH_MS = 1_800_000
NEVER_MS = I64_MAX


class HasChanges(Protocol):
    """A snapshot. `changes`: another one after any server has changed something."""

    @property
    def changes(self) -> Hashable: ...


Snapshot = TypeVar("Snapshot", bound=HasChanges)


class MaintenanceSnapshot(NamedTuple):
    """What sweeps have to know of a shard before they ask it for work: the first time of each kind, in milliseconds (`NEVER_MS` for none).

    `changes`: another text after another server has changed something; each server counts its own. The last two are Redis' own.
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
    """A snapshot, when it was asked for, and what this server and the others had changed by then."""

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
        """Returns the snapshot, taken after all changes that this server made; otherwise as of a second ago, or of half a minute while
        others have told of no change.
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
        """The state of the shard: as long as it is the same, nothing has changed. None where the other servers don't say what they
        change."""
        own, others = self._own(), self.others()
        return None if others is None else (own, others, (await self.latest()).changes)

    def forget(self) -> None:
        """The shard was closed: the next one that wants a snapshot asks it, and is refused."""
        self._latest = None
