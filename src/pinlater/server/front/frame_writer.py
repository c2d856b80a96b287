"""Gathers what one side of a connection says in a turn of the event loop, and writes it in few frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Raw

from pinlater.server.cluster.forwarding.messages import frame
from pinlater.server.front.messages import FRAME_BYTES, Message, Undelivered


class FrameWriter:
    """`write(frame, claims)` gets each frame at the end of the turn, with the claims that are handed out in it. `opening` makes the first
    message of each frame, when another one is added to an empty frame."""

    def __init__(
        self, write: Callable[[bytes, Sequence[Undelivered]], None], opening: Callable[[], Message] | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._opening = opening
        self._turn: list[Message] = []
        self._claims: list[Undelivered] = []
        self._bytes = 0

    def add(self, number: int, word: int, value: bytes, claims: Undelivered | None = None) -> None:
        """Says it at the end of this turn."""
        if not self._turn:
            self._loop.call_soon(self.flush)
            if self._opening is not None:
                self._turn.append(self._opening())
        self._turn.append((number, word, Raw(value)))
        if claims is not None:
            self._claims.append(claims)
        self._bytes += len(value)
        if self._bytes >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """Says now what has been added."""
        if self._turn:
            turn, claims = self._turn, self._claims
            self._turn, self._claims, self._bytes = [], [], 0
            self._write(frame(turn), claims)
