"""A server that answers enqueues before they are stored: what the harness must notice. `python -m tests.crash.lying_server serve ...`.

Everything else is the real command. The lie is at the store's seam: an insert is answered at once and carried out a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.commands import InsertJobs
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import Inserted, InsertRequest

BEHIND_SECONDS = 0.1


class WriteBehind:
    """Puts itself in the place of what carries out `InsertJobs`, which lanes give to a store that does not work in order."""

    def __init__(self) -> None:
        self._honest = SqliteShard.table[InsertJobs]
        self._later: set[asyncio.Task[None]] = set()

    def install(self) -> None:
        """From now on every shard lies."""
        lie = self

        async def insert(
            shard: SqliteShard, requests: Sequence[InsertRequest], now_ms: int
        ) -> Sequence[Inserted | PinLaterError]:
            task = asyncio.create_task(lie.store_later(shard, requests, now_ms))
            lie._later.add(task)
            task.add_done_callback(lie._later.discard)
            return [Inserted([job.id for job in request.jobs], {}) for request in requests]

        SqliteShard.table[InsertJobs] = insert
        SqliteShard.capabilities = SqliteShard.capabilities._replace(in_order=False)

    async def store_later(self, shard: SqliteShard, requests: Sequence[InsertRequest], now_ms: int) -> None:
        """What should have come before the answer."""
        await asyncio.sleep(BEHIND_SECONDS)
        await self._honest(shard, requests, now_ms)


if __name__ == "__main__":
    WriteBehind().install()
    from pinlater.cli.main import main

    main()
