"""Refuses connections to a database that lacks changes which this server had committed: after a change of machine behind one address, the
new one may be a replica that has not applied all changes. It would answer with old data.

Compares the numbers of this server's writers. A cluster that can be told to catch up is told so first (`connection`). Changes that other
servers had committed are not compared.

A failover may lose changes for good. So a database that lacks them for the time of a lease is used as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.errors import lacks_changes
from pinlater.server.storage.mysql.settings import MysqlEndpoint
from pinlater.server.storage.mysql.statements import sql

logger = logging.getLogger(__name__)

_LIST_NEWEST = sql("list_newest")


class Freshness:
    """`committed`: the number of each writer's newest transaction that is known to be committed. `monotonic` in seconds."""

    def __init__(
        self,
        endpoint: MysqlEndpoint,
        lease_ms: int,
        committed: Callable[[], Mapping[int, int]],
        monotonic: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._lease_s = lease_ms / 1000
        self._committed = committed
        self._monotonic = monotonic
        self._stale_since: float | None = None
        self._told = False

    async def check(self, connection: MysqlConnection) -> None:
        """Raises `DatabaseConnectionLost` if the database lacks changes."""
        committed = self._committed()
        if not committed:
            return
        found, _ = await connection.run([_LIST_NEWEST(first=min(committed), last=max(committed)), b"ROLLBACK"])
        newest = dict(found.rows)
        if all(newest.get(writer, -1) >= number for writer, number in committed.items()):
            self._stale_since, self._told = None, False
            return
        now = self._monotonic()
        if self._stale_since is None:
            self._stale_since = now
        if now - self._stale_since < self._lease_s:
            raise lacks_changes(self._endpoint)
        if not self._told:
            self._told = True
            logger.error("%s has lost changes that were answered as stored; it is used as it is", self._endpoint)
