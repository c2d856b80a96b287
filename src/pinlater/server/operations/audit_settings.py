"""Settings of the audit."""

from __future__ import annotations

from dataclasses import dataclass

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How much of the [audit](../how-to/audit.md) each shard keeps."""

    # How long entries are kept.
    ttl_ms: int = 30 * _DAY_MS
    # Most entries that a shard keeps: beyond it the oldest go. 0: none is stored, and only the log has them.
    max_entries: int = 50_000

    @property
    def stores(self) -> bool:
        """Whether shards keep any."""
        return self.max_entries > 0
