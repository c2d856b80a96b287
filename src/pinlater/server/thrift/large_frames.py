"""Large frames are decoded in a thread, one at a time, so that no frame blocks the event loop for long.

The cost of a frame does not follow from its length: sixteen mebibytes hold a few bodies, or sixteen million empty structs. So the thread
decodes piece by piece, lets the loop run in between, and gives up a frame that takes much longer than a request at its bounds. One at a
time, because the decoded values take up to twenty times the frame's bytes. The addresses that have frames waiting take turns, so that a
frame waits for few of each other address, however many those send.

The further work on the decoded values is done in slices on the event loop (`operations.long_lists` explains how the two relate).

Weakness: a frame that is decoded slowly delays other large ones for that long. Frames of one address are decoded in order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from pinlater.wire.codec import DecodedCall, Decoder
from pinlater.wire.limits import WireLimits

# Up to this size the worst frame takes less time than a turn of the loop may.
SMALL_BYTES = 128 * 1024
_PIECE_BYTES = 16 * 1024
_CPU_S_MAX = 2.0


class LargeFrames:
    """Decodes frames of more than `SMALL_BYTES`. Belongs to one event loop; `close` it."""

    def __init__(self, limits: WireLimits) -> None:
        self._decode = Decoder(limits, piece_bytes=_PIECE_BYTES, cpu_s_max=_CPU_S_MAX).call
        self._thread = ThreadPoolExecutor(1, "large-frames")
        self._decoding = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by address, the next one first

    async def decode(self, frame: bytes, host: str) -> DecodedCall:
        """Does the same as `Decoder.call`, for a caller at that address. Raises `WireError` also if it takes too long."""
        loop = asyncio.get_running_loop()
        if self._decoding:
            await self._wait(loop, host)
        self._decoding = True
        try:
            return await loop.run_in_executor(self._thread, self._decode, frame)
        finally:
            self._next()

    async def _wait(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came at the same moment
                self._next()
            raise

    def _next(self) -> None:
        """The first frame of the next address is next; the address goes behind the others."""
        while self._waiting:
            host = next(iter(self._waiting))
            turns = self._waiting.pop(host)
            turn = turns.popleft()
            if turns:
                self._waiting[host] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._decoding = False

    def close(self) -> None:
        """The thread ends after the frame that it is decoding. May be called twice."""
        self._thread.shutdown(wait=False, cancel_futures=True)
