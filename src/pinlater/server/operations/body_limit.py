"""How long a body may be: what the settings say, or less if a shard that takes enqueues holds less.

One limit for all shards, so that it never depends on chance whether a body is taken. Looked up now and then and not at each enqueue;
what comes in between a change and the next look meets the shard's own check.
"""

from __future__ import annotations

import logging

from pinlater.server.sharding.shards import Shards

logger = logging.getLogger(__name__)

_SETTING = "setting jobs.max_body_bytes"


class BodyLimit:
    """`bytes` that hold, and what bounds them; `most` by the settings."""

    def __init__(self, shards: Shards, most: int) -> None:
        self._shards = shards
        self._most = most
        self.bytes = most
        self.bound_by = _SETTING
        self.look()

    def look(self) -> None:
        """Takes over what the shards say now. Whenever that changes, the log is told."""
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
