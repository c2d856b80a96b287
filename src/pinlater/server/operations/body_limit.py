"""The longest body that is accepted: the limit of the settings, or less if a shard that accepts enqueues has a lower one.

One limit for all shards, so that it never depends on chance whether a body is accepted. Read periodically and not at each enqueue; an
enqueue between a change and the next read meets the shard's own check.
"""

from __future__ import annotations

import logging

from pinlater.server.sharding.shards import Shards

logger = logging.getLogger(__name__)

_SETTING = "setting jobs.max_body_bytes"


class BodyLimit:
    """`bytes`: the limit in force, and what sets it; `most`: the limit of the settings."""

    def __init__(self, shards: Shards, most: int) -> None:
        self._shards = shards
        self._most = most
        self.bytes = most
        self.bound_by = _SETTING
        self.look()

    def look(self) -> None:
        """Applies what the shards report now. Each change is logged."""
        before = (self.bytes, self.bound_by)
        self.bytes, self.bound_by = self._most, _SETTING
        for shard in self._shards:
            declared = shard.unguarded.capabilities
            if shard.takes_enqueues and declared.body_bytes_max < self.bytes:
                self.bytes, self.bound_by = declared.body_bytes_max, f"shard {shard.name}: {declared.body_bytes_bound}"
        if (self.bytes, self.bound_by) != before:
            lowered = self.bytes < self._most
            logger.log(
                logging.WARNING if lowered else logging.INFO,
                "bodies may %s as long as jobs.max_body_bytes says",
                "not be" if lowered else "be",
                extra={"limit_bytes": self.bytes, "max_body_bytes": self._most, "bound_by": self.bound_by},
            )
