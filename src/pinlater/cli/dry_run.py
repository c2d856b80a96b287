"""Looks at the jobs that a dequeue would get, for `job check-dequeue` and `job peek`."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.cli import notes
from pinlater.cli.paused_queue import is_paused
from pinlater.client import AsyncClient, Dequeued


class DryRun(NamedTuple):
    """`paused`: a real dequeue is refused, or waits, until the queue is resumed."""

    dequeued: Dequeued
    paused: bool


async def dry_run(client: AsyncClient, queue: str, limit: int) -> DryRun:
    """Up to `limit` jobs, also of a paused queue."""
    dequeued = await client.dequeue(queue, limit, dry_run=True)
    return DryRun(dequeued, await is_paused(client, queue))


def warn_paused() -> None:
    """On standard error."""
    notes.write("paused: a dequeue gets no jobs until `pinlater queue resume`")
