"""Acks that wait for the next claim, or for a flush if no claim follows soon."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

ACKS_PER_REQUEST_MAX = 1_000
T = TypeVar("T")


class AckBuffer(Generic[T]):
    """One queue's unsent acks, in order. Bounded by the jobs that a worker may hold."""

    def __init__(self) -> None:
        self._acks: deque[T] = deque()
        self._filled = asyncio.Event()
        self._since = 0.0  # when the oldest came, by the event loop's time

    def __len__(self) -> int:
        return len(self._acks)

    def add(self, ack: T) -> None:
        if not self._acks:
            self._since = asyncio.get_running_loop().time()
            self._filled.set()
        self._acks.append(ack)

    def take(self) -> list[T]:
        """The oldest acks, as many as fit in a request."""
        taken = [self._acks.popleft() for _ in range(min(len(self._acks), ACKS_PER_REQUEST_MAX))]
        if not self._acks:
            self._filled.clear()
        return taken

    async def wait_for_flush(self, after_s: float) -> None:
        """Returns when the oldest ack has waited for `after_s`."""
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            remaining_s = self._since + after_s - loop.time()
            if remaining_s <= 0:
                return
            await asyncio.sleep(remaining_s)
