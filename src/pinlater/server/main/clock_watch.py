"""The server's clock beside the clocks of its databases and of its machine: agreed at the start, watched from then on."""

from __future__ import annotations

import logging

from pinlater.domain.clock import CLOCK_JUMP_MS, SystemClock
from pinlater.domain.ids import made_at_ms
from pinlater.server.sharding.agreed_time import ahead_ms, tell_time
from pinlater.server.sharding.shards import Shards
from pinlater.server.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class ClockWatch:
    """Watches the clock of one server. Jumps are logged and counted; none moves a claim."""

    def __init__(self, clock: SystemClock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._drift_ms = 0

    async def agree(self, shards: Shards) -> None:
        """Adopts the time of the databases, or of the servers that already run, and passes it on to servers that start later."""
        ahead = await ahead_ms(shards, self._clock)
        self._clock.shift(ahead)
        await tell_time(shards, self._clock)
        self._drift_ms = self._clock.drift_ms()
        if abs(ahead) >= CLOCK_JUMP_MS:
            logger.warning(
                "this machine's clock is not that of the databases, whose time holds",
                extra={"databases_ahead_ms": ahead},
            )
        for shard in shards:
            if shard.opened:
                self._compare(shard.unguarded.highest_id)

    def _compare(self, highest_id: int) -> None:
        """Logs a warning if the clock was set back between two runs: due jobs then wait."""
        ahead = made_at_ms(highest_id) - self._clock.now_ms() if highest_id else 0
        if ahead >= CLOCK_JUMP_MS:
            logger.warning(
                "the newest job was made later than it is now: the clock was set back while no server ran, or was wrong before; "
                "jobs that were due wait until their time comes again, and claims last longer by as much",
                extra={"ahead_ms": ahead},
            )
            self._metrics.count("clock-jumps")

    async def look(self) -> None:
        """Whether the wall clock jumped since the last look."""
        drift_ms = self._clock.drift_ms()
        if abs(drift_ms - self._drift_ms) >= CLOCK_JUMP_MS:
            logger.warning(
                "the wall clock jumped; this server goes on by its own until its restart",
                extra={"jump_ms": drift_ms - self._drift_ms, "difference_ms": drift_ms},
            )
            self._metrics.count("clock-jumps")
            self._drift_ms = drift_ms
