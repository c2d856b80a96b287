"""Notes on standard error about a queue, for commands whose answer does not show it: a missing queue looks like an idle one.

None of them is written if the server does not answer: the caller must still learn what was changed.
"""

from __future__ import annotations

from pinlater.cli import notes
from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError, UnknownMethod


async def say_if_missing(client: AsyncClient, *queues: str) -> None:
    """Notes each queue that does not exist."""
    try:
        there = set(await client.queue_names())
    except PinLaterError:
        return
    for queue in dict.fromkeys(queues):
        if queue not in there:
            say_missing(queue)


def say_missing(queue: str) -> None:
    """Notes that the queue does not exist."""
    notes.note(f"there is no queue {queue} (`pinlater queue list` shows the queues)")


async def is_paused(client: AsyncClient, queue: str) -> bool:
    """Returns whether a dequeue gets no jobs. Returns False for an original server, which can't pause queues."""
    try:
        return (await client.queue_config(queue)).paused
    except UnknownMethod:
        return False


async def say_if_paused(client: AsyncClient, queue: str) -> None:
    """Notes that the queue is paused, for commands that make jobs due: no worker gets them before the queue is resumed."""
    try:
        paused = await is_paused(client, queue)
    except PinLaterError:
        return
    if paused:
        notes.note(f"{queue} is paused: its jobs wait until `pinlater queue resume {queue}`")


async def say_if_no_group(client: AsyncClient, queue: str, group: str) -> None:
    """Notes that the queue has no group of failures of that name, for commands that found no job in it. '' is not a group."""
    if not group:
        return
    try:
        found = await client.failures(queue)
    except PinLaterError:
        return
    if not found.incomplete and group not in {each.name for each in found.groups}:
        notes.note(f"{queue} has no group of failures {group} (`pinlater job failures {queue}` shows its groups)")
