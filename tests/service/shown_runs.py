"""Bulk runs as a client shows those of a server."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import BulkOrder, BulkRun, BulkRunList, _search_calls
from pinlater.domain.caller_names import WITHOUT_TOKEN, NamedCaller
from pinlater.server.features.bulk.runs import BulkRuns


class ShownRuns:
    """The operations of a server on bulk runs; `runs` is what runs in the server."""

    def __init__(self, runs: BulkRuns) -> None:
        self._runs = runs
        self.look, self.close = runs.look, runs.close

    async def start(self, order: BulkOrder, who: str, source: str = "", caller: NamedCaller = WITHOUT_TOKEN) -> BulkRun:
        return _search_calls.bulk_run(await self._runs.start(order, who, source, caller))

    async def stop(self, queue: str, run_id: str) -> BulkRun:
        return _search_calls.bulk_run(await self._runs.stop(queue, run_id))

    async def runs(self, queues: Sequence[str] | None = None) -> list[BulkRun]:
        return list((await self.list_runs(queues)).runs)

    async def list_runs(self, queues: Sequence[str] | None = None) -> BulkRunList:
        return _search_calls.bulk_run_list(await self._runs.list_runs(queues))
