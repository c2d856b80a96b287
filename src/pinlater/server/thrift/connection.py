"""One connection: bytes to frames, one request after the other, answers in order.

A task lives as long as there are requests to answer: one for each burst of frames, none while the connection is silent. Answers to
requests that take no waiting go out together.

What bounds it: reading stops while too much waits unanswered, answering stops while the kernel doesn't take the answers, and the
server's sweep cuts a connection that makes no progress. All that it holds, in and out, is counted in the server's budget; what doesn't
fit is thrown away as it comes and answered with an error, in its turn. So is what has to give way to others' requests (`shed`).

Nothing is read while reading is paused, not even that the peer has gone. So the sweep asks the kernel, and goes on reading, only to
refuse what comes, where requests wait behind a long poll: the news that the peer has gone may be behind them.

Weakness: an answer that was handed to the kernel counts as delivered; a peer that dies before reading it keeps its claims until
they time out. What is still in this process when the connection is lost is given back. A peer that only closed its sending side still
gets its answers, but no jobs, and its searches of bodies are ended: mostly it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections import deque
from typing import TYPE_CHECKING, cast

from pinlater.server.thrift.answers import Delivery
from pinlater.server.thrift.large_frames import SMALL_BYTES
from pinlater.server.thrift.shedding import address_of
from pinlater.wire.errors import WireError
from pinlater.wire.framing import FrameSplitter, FrameTooLong

if TYPE_CHECKING:
    from pinlater.server.thrift.server import ThriftServer

logger = logging.getLogger(__name__)

KEEPALIVE_IDLE_S = 60
REQUESTS_A_TURN = 64
LONG_FRAME_BYTES = SMALL_BYTES // REQUESTS_A_TURN  # no other request follows one of more than this in its turn
HEAD_BYTES = 512  # of a frame that is thrown away: enough to know which call to answer
QUEUED_BYTES = 200  # that a request takes while it waits, beside its frame
# A connection is read up to this many times the bound on bytes that wait, refusals counted.
PIPELINED_WHILE_REFUSING = 2
# Of a frame too long, this many times the bound is read, so that the client gets a clear answer.
FRAMES_DISCARDED = 4


class ThriftConnection(asyncio.Protocol):
    """A client's connection. Its public attributes are `answering.Recipient`'s."""

    __slots__ = (
        "_answer",
        "_answer_bytes",
        "_budget",
        "_closing_at_s",
        "_discarding_bytes",
        "_drained",
        "_draining",
        "_farewell",
        "_flush_scheduled",
        "_held_bytes_min",
        "_loop",
        "_out",
        "_out_bytes",
        "_partial_bytes",
        "_partial_since_s",
        "_peer",
        "_queue",
        "_queued_bytes",
        "_reading_paused",
        "_refusing",
        "_server",
        "_splitter",
        "_stalled_since_s",
        "_task",
        "_transport",
        "_unsent_bytes",
        "active_at_s",
        "gone",
        "handed_out",
        "host",
        "last_request",
        "over_limit",
        "silent",
        "waiting",
    )

    def __init__(self, server: ThriftServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._answer = server.answering.answer
        self._budget = server.answering.budget
        self._splitter = FrameSplitter(server.settings.max_frame_bytes)
        # When it came, the frame, and what the budget counts for it; where the last is true, the beginning of a frame that is refused.
        self._queue: deque[tuple[float, bytes, int, bool]] = deque()
        self._queued_bytes = 0
        self._held_bytes_min = server.held_bytes_min
        self._partial_bytes = 0
        self._partial_since_s = 0.0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._peer: object = ""
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._flush_scheduled = False
        self._answer_bytes = 0
        self._unsent_bytes = 0
        self._reading_paused = False
        self._refusing = False
        self._draining = False
        self._discarding_bytes = 0
        self._farewell = b""
        self._stalled_since_s: float | None = None
        self._closing_at_s: float | None = None
        self.active_at_s = 0.0
        self.gone = False
        self.host = ""
        self.handed_out: Delivery | None = None
        self.waiting = False
        self.silent = True  # the server is to be told of the next request
        self.over_limit = False
        self.last_request = False

    # --- called by the event loop -----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # So `pause_writing` is called whenever the kernel doesn't take all of an answer, and `resume_writing` once it has.
        self._transport.set_write_buffer_limits(high=0)
        self._peer = transport.get_extra_info("peername")
        self.host = address_of(self._peer)
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
            if self._partial_bytes:
                self._budget.free_bytes += self._partial_bytes
                self._partial_bytes = 0
            self._accept(frames)
        if error is not None:
            self._refuse(error)
        if self._splitter.partial or self._partial_bytes:
            self._hold_partial(len(self._splitter.partial))

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
        self.handed_out = None  # of the answers in the buffer at most one hands out jobs, and it is the last
        self._free_answers()
        self._server.unstalled(self)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.gone = True
        if self.handed_out is not None:
            self._take_back()
        self._drop_requests()
        self._transport = None
        if self._task is not None and self.waiting:
            self._task.cancel()
        self.resume_writing()
        self._server.closed(self)

    # --- memory -----------------------------------------------------------------------------------------------------------
    def _hold_partial(self, partial_bytes: int) -> None:
        """Counts what is here of a frame that isn't whole yet."""
        more_bytes = partial_bytes - self._partial_bytes
        if not self._partial_bytes:
            self._partial_since_s = self._server.monotonic()
        self._partial_bytes = partial_bytes
        budget = self._budget
        budget.free_bytes -= more_bytes
        if more_bytes <= 0:
            return
        if partial_bytes >= self._held_bytes_min:
            self._server.holds(self)
        if budget.free_bytes < 0 or self._refusing:
            self._refuse_partial()
        if self._task is not None and self._too_much_waits():
            self._pause_reading()

    def _refuse_partial(self) -> None:
        """Throws away the frame that is being received, and what is to come of it, where it may not stay."""
        if self._may_stay(self._partial_bytes) or self._partial_bytes < HEAD_BYTES:
            return
        if self._task is not None and not self._refusing:
            return  # reading pauses: it may fit later
        self._drop_partial()

    def _drop_partial(self) -> None:
        self._budget.free_bytes += self._partial_bytes
        self._partial_bytes = 0
        self._enqueue_refused(self._server.monotonic(), self._splitter.skip(HEAD_BYTES))
        self._start()

    def _may_stay(self, frame_bytes: int) -> bool:
        """Whether a frame, which is counted already, is kept and not refused; others' may have to give way to it."""
        if self._refusing and self.waiting:
            return False
        alone = self._task is None and not self._queue
        return self._budget.admits(frame_bytes, alone=alone) or self._server.make_room_for(self)

    @property
    def held_bytes(self) -> int:
        """What it holds of requests that are not begun: of a frame that is not whole, and of frames behind a long poll."""
        return self._partial_bytes + (self._queued_bytes if self.waiting else 0)

    @property
    def held_since_s(self) -> float:
        """Since when it holds the oldest of that."""
        if self.waiting and self._queue:
            arrived_s, _, _, _ = self._queue[0]
            return arrived_s
        return self._partial_since_s

    def shed(self) -> None:
        """Throws away what `held_bytes` counts, but for the beginnings of frames; each is answered with an error in its turn."""
        if self.waiting:
            for index, (arrived_s, frame, size, refused) in enumerate(self._queue):
                shed_bytes = len(frame) - HEAD_BYTES
                if not refused and shed_bytes > 0:
                    self._queue[index] = arrived_s, frame[:HEAD_BYTES], size - shed_bytes, True
                    self._queued_bytes -= shed_bytes
                    self._budget.free_bytes += shed_bytes
        if self._partial_bytes >= HEAD_BYTES:
            self._drop_partial()

    def _drop_requests(self) -> None:
        """Gives up all that is not begun, without an answer."""
        self._budget.free_bytes += self._queued_bytes + self._partial_bytes
        self._queued_bytes = self._partial_bytes = 0
        self._queue.clear()

    def cut_for_memory(self) -> None:
        """Closes it, and frees at once what it holds."""
        self._server.metrics.count("thrift_connections_cut_for_memory")
        self.abort()

    def _pause_reading(self) -> None:
        """Reads no more before all that waits is answered, or the sweep sees that it waits for long."""
        if self._budget.exhausted:
            self.cut_for_memory()
            return
        if not self._reading_paused:
            self._reading_paused = True
            self._server.reading_paused(self)
        self._stop_reading()

    def _hold_answers(self, written_bytes: int) -> None:
        """The kernel has not taken all that was just written. All of it is counted until it has: it is one piece of memory."""
        self._answer_bytes += written_bytes
        self._budget.hold_answer(written_bytes)
        self._unsent_bytes = self._transport_holds()
        self._server.stalled(self)

    def _free_answers(self) -> None:
        self._budget.hold_answer(-self._answer_bytes)
        self._answer_bytes = self._unsent_bytes = 0

    def _transport_holds(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def look_at_progress(self, now_s: float) -> None:
        """A client that reads slowly is not one that doesn't read."""
        unsent_bytes = self._transport_holds()
        if unsent_bytes < self._unsent_bytes:
            self._stalled_since_s = now_s
        self._unsent_bytes = unsent_bytes

    def holds_old_frame(self, begun_before_s: float) -> bool:
        """Whether it holds a frame that began before that moment and isn't whole, with no request under way."""
        return self._task is None and self._partial_bytes > 0 and self._partial_since_s < begun_before_s

    # --- a peer that may be gone --------------------------------------------------------------------------------------------
    def fileno(self) -> int:
        """Its socket's descriptor; -1 where it is closed."""
        if self._transport is None or self._transport.is_closing():
            return -1
        peer: socket.socket | None = self._transport.get_extra_info("socket")
        return -1 if peer is None else peer.fileno()

    def look_at_peer(self, events: int) -> None:
        """Told by the sweep, while reading is paused, what the kernel knows of the peer (0: nothing)."""
        if events & (select.POLLHUP | select.POLLERR):
            if self._transport is not None:
                self._transport.abort()
        elif not self.waiting:
            return
        elif events & select.POLLRDHUP:
            self.eof_received()
        elif not self._refusing:
            self._refusing = True
            self._refuse_partial()
            if not self._too_much_waits():
                self._start_reading()

    def _peer_left(self) -> bool:
        """Whether the peer has closed or reset, though nothing of that has been read."""
        descriptor = self.fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _take_back(self) -> None:
        """The jobs of the last answer reached no client."""
        answer, self.handed_out = self.handed_out, None
        if answer is not None:
            self._server.answering.undelivered(answer)

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
        """Queues requests, and starts answering where no request is under way."""
        now_s = self.active_at_s = self._server.monotonic()
        queue, budget = self._queue, self._budget
        for frame in frames:
            size = len(frame) + QUEUED_BYTES
            budget.free_bytes = free_bytes = budget.free_bytes - size
            if (free_bytes < 0 or self._refusing) and not self._may_stay(size):
                budget.free_bytes += size
                self._enqueue_refused(now_s, frame[:HEAD_BYTES])
            else:
                self._queued_bytes += size
                queue.append((now_s, frame, size, False))
        if self._task is None and not self.silent:  # as most requests come
            self._task = self._loop.create_task(self._serve())
        else:
            self._start()
        if self._queued_bytes >= self._held_bytes_min:
            self._server.holds(self)

    def _enqueue_refused(self, now_s: float, head: bytes) -> None:
        """It is answered in its turn, with an error; until then only its beginning is kept."""
        size = len(head) + QUEUED_BYTES
        self._budget.free_bytes -= size
        self._queued_bytes += size
        self._queue.append((now_s, head, size, True))

    def _start(self) -> None:
        if self._task is None:
            if self.silent:
                self._server.spoke(self)
            self._task = self._loop.create_task(self._serve())
            return
        if self._too_much_waits():
            self._pause_reading()

    def _too_much_waits(self) -> bool:
        """Whether to read no further while a request is under way."""
        settings, waiting_bytes = self._server.settings, self._queued_bytes + self._partial_bytes
        if self._refusing:
            return waiting_bytes >= PIPELINED_WHILE_REFUSING * settings.max_pipelined_bytes or self._budget.exhausted
        return (
            len(self._queue) >= settings.max_pipelined_requests
            or waiting_bytes >= settings.max_pipelined_bytes
            or self._budget.free_bytes < 0
        )

    async def _serve(self) -> None:
        """Answers what is queued, in order, until nothing is left."""
        queue, budget, standstill = self._queue, self._budget, self._server.standstill
        size = 0
        try:
            while queue and not self.last_request:
                if self._drained is not None:
                    await self._drained
                    continue
                if (now_s := standstill.monotonic()) > standstill.until_s:
                    standstill.found(now_s)
                    return  # nothing that came before is carried out; every connection has been cut, this one too
                arrived_s, frame, size, refused = queue.popleft()
                self._queued_bytes -= size
                if refused:
                    reply = self._server.answering.refuse_unread(frame, pipelined=self._refusing)
                else:
                    reply = await self._answer(frame, arrived_s, self)
                budget.free_bytes += size
                size = 0
                if self.handed_out is not None:
                    self._deliver(reply)
                elif reply and (queue or self._out):
                    self._out.append(reply)
                    self._out_bytes += len(reply)
                elif reply:
                    self._write(reply)
                if queue:
                    await self._between_requests(len(frame))
                elif self._reading_paused:
                    self._resume_reading()
        except WireError as error:
            self._server.metrics.count("thrift_bad_frames")
            logger.info("connection closed: %s", error, extra={"peer": self.peer})
            self.last_request = True
        finally:
            self._task = None
            budget.free_bytes += size
            if self._out or self._farewell:
                self._flush()
            if self.last_request or self._draining or self.gone:
                self._close()

    def _deliver(self, reply: bytes) -> None:
        """Writes an answer that hands out jobs. Those of which the kernel doesn't take all wait for `resume_writing`."""
        if self._reading_paused and self._peer_left():
            self._take_back()
            return
        if self._out:
            self._out.append(reply)
            self._flush()
        else:
            self._write(reply)
        if self._transport is None or self._transport.is_closing():
            self._take_back()
        elif self._drained is None:
            self.handed_out = None
        elif self.handed_out is not None:
            self.handed_out.forget_bodies()

    async def _between_requests(self, frame_bytes: int) -> None:
        """Answers go out together at the end of this turn of the loop, so that none waits for a slow request behind it.

        Requests that never wait take turns with the other connections', and fill no more memory than may wait to be written.
        """
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if len(self._out) >= REQUESTS_A_TURN or self._out_bytes >= self._server.settings.write_buffer_high_bytes:
            self._flush()
            await asyncio.sleep(0)
        elif frame_bytes > LONG_FRAME_BYTES:
            await asyncio.sleep(0)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._out_bytes = 0
        if self._farewell and self._task is None:
            self._out.append(self._farewell)
            self._farewell = b""
        out = self._out
        if out:
            self._write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)
            if self._drained is not None:
                self._hold_answers(len(data))

    # --- the end ----------------------------------------------------------------------------------------------------------
    @property
    def peer(self) -> str:
        """Who is, or was, at the other end, for the log."""
        return str(self._peer)

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._task is not None

    def _stop_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _start_reading(self) -> None:
        transport = self._transport
        if transport is not None and not self._draining and not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = self._refusing = False
        self._server.reading_resumed(self)
        self._start_reading()

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
        """Closes without writing the rest, and ends what is under way."""
        self._drop_requests()
        if self._task is not None:
            self._task.cancel()
        self._free_answers()
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
