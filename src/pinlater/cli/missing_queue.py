"""Says that a queue does not exist, for commands whose answer does not tell it: an answer without it looks like one of an idle queue."""

from __future__ import annotations

from pinlater.cli import notes
from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError


async def say_if_missing(client: AsyncClient, *queues: str) -> None:
    """A note on standard error for each queue that does not exist. None if the server does not tell."""
    try:
        there = set(await client.queue_names())
    except PinLaterError:
        return
    for queue in dict.fromkeys(queues):
        if queue not in there:
            say_missing(queue)


def say_missing(queue: str) -> None:
    """The note that the queue does not exist."""
    notes.note(f"there is no queue {queue} (`pinlater queue list` shows the queues)")
