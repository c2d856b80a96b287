"""Large frames are decoded in a thread, one at a time, so that no frame keeps the event loop from turning for long.

What a frame costs does not follow from its length: sixteen mebibytes hold a few bodies, or sixteen million empty structs. So the thread
decodes piece by piece, lets the loop go on in between, and gives up a frame that takes much longer than a request at its bounds. One at
a time, because what is decoded takes up to twenty times the frame's bytes.

Weakness: a frame that is decoded slowly holds up other large ones for that long.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from pinlater.wire.codec import Call, Decoder
from pinlater.wire.limits import WireLimits

# Up to here the worst frame takes less time than a turn of the loop may.
SMALL_BYTES = 128 * 1024
_PIECE_BYTES = 16 * 1024
_CPU_S_MAX = 0.5


class LargeFrames:
    """Decodes frames of more than `SMALL_BYTES`. Belongs to one event loop; `close` it."""

    def __init__(self, limits: WireLimits) -> None:
        self._decode = Decoder(limits, piece_bytes=_PIECE_BYTES, cpu_s_max=_CPU_S_MAX).call
        self._thread = ThreadPoolExecutor(1, "large-frames")
        self._turn = asyncio.Lock()

    async def decode(self, frame: bytes) -> Call:
        """As `Decoder.call`. Raises `WireError` also where it takes too long."""
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._decode, frame)

    def close(self) -> None:
        """The thread ends after the frame that it decodes now. May be called twice."""
        self._thread.shutdown(wait=False, cancel_futures=True)
