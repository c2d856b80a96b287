"""The periodic work of the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from pinlater.domain.clock import Clock
from pinlater.domain.queue import QueueCounts
from pinlater.server.features.history.recorder import Recorder
from pinlater.server.features.history.rollup import Rollup
from pinlater.server.features.history.settings import HistorySettings
from pinlater.server.sharding.shards import Shards
from pinlater.server.telemetry.metrics import Metrics


class HistoryKeeper:
    """Keeps the history for one server. `swept_by_others()`: the shards that another server sweeps, and rolls up."""

    def __init__(
        self,
        shards: Shards,
        metrics: Metrics,
        counts: Callable[[], Sequence[QueueCounts]],
        clock: Clock,
        origin: str,
        settings: HistorySettings,
        swept_by_others: Callable[[], Set[str]],
    ) -> None:
        self._recorder = Recorder(shards, metrics, counts, clock, origin, settings)
        self._rollup = Rollup(shards, clock)
        self._recorder.swept_by_others = self._rollup.swept_by_others = swept_by_others

    async def keep(self) -> float:
        """Does the work of one minute. Returns the seconds until the next."""
        pause_s = await self._recorder.record()
        await self._rollup.run()
        return pause_s

    async def stop(self) -> None:
        """Stores the batches that are not stored yet."""
        await self._recorder.stop()
