"""Says that a queue is paused, for commands that make jobs due: no worker gets them before the queue is resumed."""

from __future__ import annotations

from pinlater.cli import notes
from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError, UnknownMethod


async def is_paused(client: AsyncClient, queue: str) -> bool:
    """Whether a dequeue gets no jobs. False if the server is an original one, which pauses no queues."""
    try:
        return (await client.queue_config(queue)).paused
    except UnknownMethod:
        return False


async def say_if_paused(client: AsyncClient, queue: str) -> None:
    """A note on standard error; none if the server does not tell."""
    try:
        paused = await is_paused(client, queue)
    except PinLaterError:  # the caller must still learn what was changed
        return
    if paused:
        notes.note(f"{queue} is paused: its jobs wait until `pinlater queue resume {queue}`")
