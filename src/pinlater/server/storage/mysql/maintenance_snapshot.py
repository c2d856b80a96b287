"""What sweeps have to know of a shard before they ask it for work."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.server.storage.snapshots import NEVER_MS


class MaintenanceSnapshot(NamedTuple):
    """The first time of each kind, in milliseconds (`NEVER_MS` for none). `others` differs once another server has changed something."""

    first_future_ms: int = NEVER_MS
    first_deadline_ms: int = NEVER_MS
    first_expiry_ms: int = NEVER_MS
    first_request_key_ms: int = NEVER_MS
    first_key_until_ms: int = NEVER_MS
    dropped_queues: int = 0
    others: str = ""

    @property
    def changes(self) -> str:
        """The changes of the other servers. Each server counts its own."""
        return self.others
