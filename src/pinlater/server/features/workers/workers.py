"""The workers and the waiting dequeues, as operators see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pinlater.domain.workers import ServerWorkers, WaitingDequeues, cut_to
from pinlater.server.features.status.cluster_status import members_of
from pinlater.server.features.status.status import Status
from pinlater.server.features.workers.registry import WORKERS_MAX, WorkerRegistry
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.service import Service

_WORKERS_A_TURN = 250
_WORKERS_BYTES_MAX = 8 * 1024 * 1024


async def _no_other_server() -> Sequence[ServerWorkers]:
    return ()


class Workers:
    """Answers for one server. `elsewhere` asks the other servers for the workers that they know."""

    def __init__(self, service: Service, registry: WorkerRegistry) -> None:
        self.registry = registry
        self.elsewhere: Callable[[], Awaitable[Sequence[ServerWorkers]]] = _no_other_server
        self._dispatcher = service.dispatcher
        self._identity = service.identity
        self._clock = service.clock
        self._started_s = service.clock.monotonic()
        self._status = service.of(Status)

    async def waiting_dequeues(self) -> Sequence[WaitingDequeues]:
        """The dequeues that wait for jobs on this server, by queue and source."""
        waiting = sorted(self._dispatcher.waiting_by_source().items())
        return [WaitingDequeues(queue, source, number) for (queue, source), number in waiting]

    async def known_workers(self, everywhere: bool) -> Sequence[ServerWorkers]:
        """The workers that this server recently heard from, and what happened to their claims here; then the same from other servers that
        answer in time.

        An answer that would be too long has only the first workers of each server.
        """
        found = [await self.workers_here(WORKERS_MAX)]
        if everywhere:
            found += await self.elsewhere()
        share_bytes = _WORKERS_BYTES_MAX // len(found)
        cut = []
        for each in found:
            cut.append(cut_to(each, share_bytes))
            await asyncio.sleep(0)
        return cut

    async def workers_here(self, workers_max: int) -> ServerWorkers:
        """The workers that this server recently heard from, latest first, at most that many."""
        now_ms = self._clock.now_ms()
        known = self.registry.known()
        return ServerWorkers(
            await in_turns(known[:workers_max], self.registry.shown, _WORKERS_A_TURN),
            await self.waiting_dequeues(),
            self._identity.life,
            members_of(self._status.cluster_status()),
            now_ms,
            round((self._clock.monotonic() - self._started_s) * 1000),
            self.registry.forgotten + len(known[workers_max:]),
        )
