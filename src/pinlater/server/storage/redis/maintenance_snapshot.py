"""What sweeps have to know of a shard before they ask it for work."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.server.storage.snapshots import NEVER_MS


class MaintenanceSnapshot(NamedTuple):
    """The first time of each kind, in milliseconds (`NEVER_MS` for none)."""

    first_deadline_ms: int = NEVER_MS
    first_expiry_ms: int = NEVER_MS
    first_request_key_ms: int = NEVER_MS
    first_key_until_ms: int = NEVER_MS
    dropped_queues: int = 0
    finished_bytes: int = 0
    gone: str = ""  # lost keys of those that always exist, see `maintenance_snapshot.lua`
    changes: str = ""  # the newest call of each writer
