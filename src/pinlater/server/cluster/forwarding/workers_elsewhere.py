"""What the other servers of the shards know about workers, for the list that operators see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from pinlater.domain.workers import TOLD_MAX, ServerWorkers
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection

ANSWER_S = 1.0


class WorkersElsewhere:
    """Asks all servers to which there are `connections`, at most once at a time: concurrent calls get the same answer."""

    def __init__(self, connections: Callable[[], Iterable[PeerConnection]]) -> None:
        self._connections = connections
        self._asking: asyncio.Task[Sequence[ServerWorkers]] | None = None

    async def ask(self) -> Sequence[ServerWorkers]:
        """Asks for the workers of each server that answers within a second."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        return await asyncio.shield(self._asking)

    async def _ask_all(self) -> Sequence[ServerWorkers]:
        connections = [connection for connection in self._connections() if connection.usable]
        workers_max = TOLD_MAX // max(1, len(connections))
        found = await asyncio.gather(*(_ask_one(connection, workers_max) for connection in connections))
        return [answer for answer in found if answer is not None]

    def close(self) -> None:
        """Ends the question under way."""
        if self._asking is not None:
            self._asking.cancel()


async def _ask_one(connection: PeerConnection, workers_max: int) -> ServerWorkers | None:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await connection.ask_workers(workers_max)
    except (OSError, TimeoutError):
        return None
