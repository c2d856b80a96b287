"""Corrects counters of queues: adds the difference to their rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pinlater.server.storage.mysql.queues import MysqlQueueTable
from pinlater.server.storage.mysql.statements import sql
from pinlater.server.storage.mysql.transaction import Transaction

logger = logging.getLogger(__name__)

_COUNT_DIFFERENCES = sql("count_differences")


async def recount(transaction: Transaction, names: Sequence[str]) -> None:
    """Adds the differences of the queues that still exist. Totals stay.

    Each queue is locked, so that the second of two servers finds no difference.
    """
    table = MysqlQueueTable(transaction)
    for name in sorted(names):
        queue = await table.lock(name)
        if queue is None:
            continue
        [found] = await transaction.select(_COUNT_DIFFERENCES(queue_id=queue.queue_id))
        for priority, *differences in found.rows:
            if any(differences):
                transaction.counters.of(queue.queue_id, priority).correct(*differences)
                logger.error(
                    "%s, queue %s: its counters were wrong, its rows are counted anew", transaction.endpoint, name
                )
