"""One connection: bytes to frames, one request after the other, answers in order.

A task lives as long as there are requests to answer: one for each burst of frames, none while the connection is silent. Answers to
requests that take no waiting go out together. What bounds it: reading stops while too much waits unanswered, answering stops while
the peer doesn't read, and whoever does neither for too long is cut by the server's sweep.

Weakness: an answer that was handed to the kernel counts as delivered; a peer that dies before reading it keeps its claims until
they time out. A peer that only closed its sending side still gets its answers, but no jobs: mostly it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING, cast

from pinlater.wire.errors import WireError
from pinlater.wire.framing import FrameSplitter, FrameTooLong

if TYPE_CHECKING:
    from pinlater.thrift_server.server import ThriftServer

logger = logging.getLogger(__name__)

KEEPALIVE_IDLE_S = 60
REQUESTS_A_TURN = 64
FRAMES_DISCARDED = 4  # of a frame too long, so many times the bound is read for the sake of a clear answer


class Connection(asyncio.Protocol):
    """A client's connection. Its public attributes are `answering.Recipient`'s."""

    __slots__ = (
        "_answer",
        "_closing_at_s",
        "_discarding_bytes",
        "_drained",
        "_draining",
        "_farewell",
        "_flush_scheduled",
        "_held_bytes",
        "_loop",
        "_out",
        "_out_bytes",
        "_queue",
        "_reading_paused",
        "_server",
        "_splitter",
        "_stalled_since_s",
        "_task",
        "_transport",
        "active_at_s",
        "gone",
        "last_request",
        "over_limit",
        "waiting",
    )

    def __init__(self, server: ThriftServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._answer = server.answering.answer
        self._splitter = FrameSplitter(server.settings.max_frame_bytes)
        self._queue: deque[tuple[float, bytes]] = deque()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._flush_scheduled = False
        self._reading_paused = False
        self._draining = False
        self._held_bytes = 0
        self._discarding_bytes = 0
        self._farewell = b""
        self._stalled_since_s: float | None = None
        self._closing_at_s: float | None = None
        self.active_at_s = 0.0
        self.gone = False
        self.waiting = False
        self.over_limit = False
        self.last_request = False

    # --- called by the event loop -----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._server.settings.write_buffer_high_bytes)
        peer: socket.socket | None = transport.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        self.active_at_s = self._server.monotonic()
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding_bytes:
            self._discard(len(data))
            return
        frames, error = self._splitter.take_while_good(data)
        if frames:
            self._accept(frames)
        if error is not None:
            self._refuse(error)
        held = 0 if error is not None else self._splitter.buffered_bytes
        if held != self._held_bytes:
            self._server.holds(self, held - self._held_bytes)
            self._held_bytes = held

    def eof_received(self) -> bool:
        if self._task is None:
            return False
        self.gone = True
        if self.waiting:
            self._task.cancel()
        return True

    def pause_writing(self) -> None:
        self._stalled_since_s = self._server.monotonic()
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        self._stalled_since_s = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.gone = True
        self._queue.clear()
        self._transport = None
        if self._task is not None and self.waiting:
            self._task.cancel()
        self.resume_writing()
        self._server.holds(self, -self._held_bytes)
        self._held_bytes = 0
        self._server.closed(self)

    # --- bad frames -------------------------------------------------------------------------------------------------------
    def _refuse(self, error: WireError) -> None:
        """The stream is lost: what came before is answered, then the connection is closed.

        The caller of a frame that is merely too long is told so. It hears nothing before it has sent everything, so the rest of
        the frame is read and thrown away, if that isn't too much.
        """
        self._server.metrics.count("thrift_bad_frames")
        logger.info("connection closed: %s", error, extra={"peer": self.peer})
        self._splitter = FrameSplitter(0)
        if isinstance(error, FrameTooLong) and error.size <= FRAMES_DISCARDED * self._server.settings.max_frame_bytes:
            farewell = self._server.answering.too_long(error)
            if farewell:
                self._farewell = farewell
                self._closing_at_s = self._server.monotonic()
                self._discarding_bytes = error.size
                self._discard(len(error.start))
                return
        self.drain()

    def _discard(self, came_bytes: int) -> None:
        self._discarding_bytes -= came_bytes
        if self._discarding_bytes <= 0:
            self._discarding_bytes = -1
            self.drain()

    # --- requests ---------------------------------------------------------------------------------------------------------
    def _accept(self, frames: list[bytes]) -> None:
        """Queues requests, and starts answering where nobody is at it."""
        now_s = self.active_at_s = self._server.monotonic()
        queue = self._queue
        for frame in frames:
            queue.append((now_s, frame))
        if self._task is None:
            self._server.spoke(self)
            self._task = self._loop.create_task(self._serve())
        elif self._too_much_waits():
            self._reading_paused = True
            self._stop_reading()

    def _too_much_waits(self) -> bool:
        settings = self._server.settings
        if len(self._queue) >= settings.max_pipelined_requests:
            return True
        return sum(len(frame) for _, frame in self._queue) >= settings.max_pipelined_bytes

    async def _serve(self) -> None:
        """Answers what is queued, in order, until nothing is left."""
        queue, server = self._queue, self._server
        standstill, monotonic = server.standstill, server.monotonic
        try:
            while queue and not self.last_request:
                if self._drained is not None:
                    await self._drained
                    continue
                now_s = monotonic()
                if now_s - standstill.ran_at_s > standstill.limit_s:
                    standstill.found(now_s)
                    return  # nothing that came before is carried out; every connection has been cut, this one too
                arrived_s, frame = queue.popleft()
                reply = await self._answer(frame, arrived_s, self)
                if reply:
                    self._out.append(reply)
                    self._out_bytes += len(reply)
                if queue:
                    await self._between_requests()
                elif self._reading_paused:
                    self._resume_reading()
        except WireError as error:
            self._server.metrics.count("thrift_bad_frames")
            logger.info("connection closed: %s", error, extra={"peer": self.peer})
            self.last_request = True
        finally:
            self._task = None
            self._flush()
            if self.last_request or self._draining or self.gone:
                self._close()

    async def _between_requests(self) -> None:
        """Answers go out together at the end of this turn of the loop, so that none waits for a slow request behind it.

        Requests that never wait take turns with the other connections', and fill no more memory than may wait to be written.
        """
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if len(self._out) >= REQUESTS_A_TURN or self._out_bytes >= self._server.settings.write_buffer_high_bytes:
            self._flush()
            await asyncio.sleep(0)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._out_bytes = 0
        if self._farewell and self._task is None:
            self._out.append(self._farewell)
            self._farewell = b""
        out = self._out
        if not out:
            return
        if self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    # --- the end ----------------------------------------------------------------------------------------------------------
    @property
    def peer(self) -> str:
        """Who is at the other end, for the log."""
        return "" if self._transport is None else str(self._transport.get_extra_info("peername"))

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._task is not None

    def _stop_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        if self._transport is not None and not self._draining and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close(self) -> None:
        """Closes once everything written is out."""
        self._flush()
        if self._transport is not None and not self._transport.is_closing():
            self._closing_at_s = self._server.monotonic()
            self._transport.close()

    def drain(self) -> None:
        """Answers what has come, then closes; at once where nothing is under way. Reads no further."""
        self._draining = True
        self._stop_reading()
        if self._task is None:
            self._close()

    def abort(self) -> None:
        """Closes without writing what is left, and ends what is under way."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def overdue(self, now_s: float, idle_s: float, stall_s: float) -> str:
        """Why the connection should be cut now, as a counter's name; '' for no reason."""
        since_s = self._stalled_since_s if self._stalled_since_s is not None else self._closing_at_s
        if since_s is not None and now_s - since_s > stall_s:
            return "thrift_slow_readers_cut"
        if self._task is None and now_s - self.active_at_s > idle_s:
            return "thrift_idle_connections_closed"
        return ""
