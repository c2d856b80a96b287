"""Whether a server is ready for requests, and why not."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pinlater.server.http.status import Readiness
from pinlater.server.sharding.shards import Shards

logger = logging.getLogger(__name__)


class ReadinessWatch:
    """Watches the readiness of one server. `state`: starting, ready, draining or stopped."""

    def __init__(self) -> None:
        self.state = "starting"
        self._store_error: str | None = None

    @property
    def ready(self) -> bool:
        """Whether the server has started and does not stop."""
        return self.state == "ready"

    def readiness(self, shards: Shards | None, coordinator_trouble: str = "") -> Readiness:
        """Returns whether to send requests to this server. `shards`: None before the server has opened them. `coordinator_trouble`: only
        reported, since all calls continue.

        A full shared shard is only reported: claims and acks may continue there, and without enqueues the server would not notice that
        space is free again. A full embedded store fails `look`, which attempts a write.
        """
        if not self.ready or shards is None:
            return Readiness(False, (self.state,))
        if self._store_error is not None:
            return Readiness(False, (self._store_error,))
        lost = tuple(
            f"shard {shard.name} is unreachable: {shard.health.reason}" for shard in shards if not shard.healthy
        )
        full = tuple(
            f"shard {shard.name} refuses enqueues: {shard.fullness.reason}"
            for shard in shards
            if shard.fullness.reason and shard.healthy and not shard.trusted
        )
        trouble = (coordinator_trouble,) if coordinator_trouble else ()
        return Readiness(len(lost) < len(shards), (*lost, *full, *_refusals(shards), *trouble))

    async def look(self, shards: Shards) -> None:
        """Asks only the stores that are this server's own; shared ones have a health of their own. Raises the error of the store."""
        for shard in shards:
            if shard.trusted:
                try:
                    await shard.unguarded.ping()
                except Exception as error:
                    self._store_error = f"shard {shard.name}: {error}"
                    raise
        if self._store_error is not None:
            logger.info("the store can be used again")
            self._store_error = None


def _refusals(shards: Shards) -> Iterator[str]:
    because_of = sorted(shards.unique.refused_because_of)
    if because_of:
        yield f"all jobs with a unique key are refused: the keys on shard {', '.join(because_of)} are not known"
