"""Reads over all queues: a bounded piece in each script, so that no client waits long, however many queues there are.

So such a look is not of one moment: each line is as it was when its piece was looked at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.readers import Readers

_QUEUES_A_PIECE = 500


async def queues(readers: Readers) -> dict[bytes, tuple[bytes, bytes]]:
    """All queues by name, with their ids and packed settings."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    cursor = b"0"
    while True:
        cursor, rows = await readers.run("list_queues", cursor, _QUEUES_A_PIECE)
        found.update((rows[at], (rows[at + 1], rows[at + 2])) for at in range(0, len(rows), 3))
        if cursor == b"0":
            return found


async def walk(
    readers: Readers, name: str, named: Sequence[bytes | str], *arguments: bytes | int | str
) -> AsyncIterator[list[Any]]:
    """What a script answers of the queues that it is given after its other arguments, piece by piece."""
    for start in range(0, len(named), _QUEUES_A_PIECE):
        part = encode(named[start : start + _QUEUES_A_PIECE])
        place = 1
        while place:
            rows, place = await readers.run(name, *arguments, part, place)
            yield rows
