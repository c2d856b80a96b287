"""Says that a queue has no such group of failures, for commands that found no job in it."""

from __future__ import annotations

from pinlater.cli import notes
from pinlater.client import AsyncClient
from pinlater.client.errors import PinLaterError


async def say_if_no_group(client: AsyncClient, queue: str, group: str) -> None:
    """A note on standard error if the queue has no group of that name; none if `group` is empty, or the server does not tell."""
    if not group:
        return
    try:
        found = await client.failures(queue)
    except PinLaterError:
        return
    if not found.incomplete and group not in {each.name for each in found.groups}:
        notes.note(f"{queue} has no group of failures {group} (`pinlater job failures {queue}` shows its groups)")
