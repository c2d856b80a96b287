"""Settings of the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How much of the [audit](../how-to/audit.md) each shard keeps."""

    ttl_ms: int = 30 * _DAY_MS
    """How long entries are kept."""
    max_entries: Annotated[int, Meta(ge=0, le=10_000_000)] = 50_000
    """Most entries that a shard keeps: beyond it the oldest go. 0: none is stored, and only the log has them."""

    @property
    def stores(self) -> bool:
        """Whether shards keep any."""
        return self.max_entries > 0
