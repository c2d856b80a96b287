"""Reads over all queues: a bounded piece in each script, so that no client waits long, however many queues there are.

So such a read is not of one moment: each line is as it was when its piece was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.readers import Readers

QUEUES_A_PIECE = 500
# For scripts that query all their queues at once: each value of one command costs a fraction of a command.
MORE_QUEUES_A_PIECE = 2_500


async def queues(readers: Readers) -> dict[bytes, tuple[bytes, bytes]]:
    """Returns all queues by name, with their ids and packed settings."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    cursor = b"0"
    while True:
        cursor, rows = await readers.run("list_queues", cursor, MORE_QUEUES_A_PIECE)
        found.update((rows[at], (rows[at + 1], rows[at + 2])) for at in range(0, len(rows), 3))
        if cursor == b"0":
            return found


async def walk(
    readers: Readers,
    name: str,
    named: Sequence[bytes | str],
    *arguments: bytes | int | str,
    at_once: int = QUEUES_A_PIECE,
) -> AsyncIterator[list[Any]]:
    """The answers of a script for the queues that it gets after its other arguments, `at_once` or fewer in each piece.

    The script returns how many of them it processed. The next piece has at most twice as many, since sending and reading the others
    would be wasted.
    """
    start, size = 0, at_once
    while start < len(named):
        rows, done = await readers.run(name, *arguments, encode(named[start : start + size]))
        start, size = start + done, min(at_once, 2 * done)
        yield rows
