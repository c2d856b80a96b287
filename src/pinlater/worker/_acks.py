"""Acks on their way: they ride on the next claim, and a flush takes them where none comes soon."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from pinlater.client.values import Ack

ACKS_PER_REQUEST_MAX = 1_000


class AckBuffer:
    """Acks of one queue, in order. Bounded by what a worker may have in hand."""

    def __init__(self) -> None:
        self._acks: deque[Ack] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._acks)

    def add(self, ack: Ack) -> None:
        self._acks.append(ack)
        self._filled.set()

    def take(self) -> list[Ack]:
        """The oldest acks, as many as fit a request; the caller gives them back if they can't be delivered."""
        taken = [self._acks.popleft() for _ in range(min(len(self._acks), ACKS_PER_REQUEST_MAX))]
        if not self._acks:
            self._filled.clear()
        return taken

    def give_back(self, acks: Sequence[Ack]) -> None:
        self._acks.extendleft(reversed(acks))
        if self._acks:
            self._filled.set()

    async def wait_filled(self) -> None:
        """Returns when there is something to deliver."""
        await self._filled.wait()
