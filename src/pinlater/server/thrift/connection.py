"""One connection: from bytes to frames, one request after the other, answers in order.

One task answers all requests, from the first to the end of the connection: to start one for each request would take a tenth of what a
request costs. Answers to requests that need no waiting are sent together.

Its bounds: reading stops while too much waits unanswered, answering stops while the kernel doesn't accept the answers, and the server's
sweep closes a connection that makes no progress. All bytes that it holds, in (`request_queue.py`) and out (`answer_writer.py`), are
counted in the server's budget; a request that doesn't fit is discarded as it arrives and answered with an error, in its turn. So is a
request that has to give way to others' requests (`shed`).

Nothing is read while reading is paused, not even that the peer has gone. So the sweep asks the kernel, and continues reading, only to
refuse new requests, if requests wait behind a long poll: the news that the peer has gone may be behind them.

Weakness: an answer that was passed to the kernel counts as delivered; a peer that dies before reading it keeps its claims until they time
out. Claims in answers that are still in this process when the connection is lost are given back. A peer that only closed its sending side
still gets its answers, but no jobs, and its searches of bodies are ended: usually it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import select
from typing import TYPE_CHECKING, cast

from pinlater.domain.byte_budget import SMALL_FRAME_BYTES
from pinlater.domain.caller_address import address_of, with_port
from pinlater.server.access.quotas import TokenUse
from pinlater.server.thrift.answer_writer import ANSWERS_A_WRITE, AnswerWriter
from pinlater.server.thrift.connection_use import ConnectionUse
from pinlater.server.thrift.large_frames import SMALL_BYTES
from pinlater.server.thrift.methods.jobs import DequeueAnswer
from pinlater.server.thrift.request_queue import HEAD_BYTES, AnyRequest, OverQuotaRequest, QueuedRequest, RequestQueue
from pinlater.server.thrift.transports import descriptor_of, keep_alive, peer_has_left, start_reading, stop_reading
from pinlater.wire.errors import WireError
from pinlater.wire.framing import LENGTH_BYTES, BadLength, FrameSplitter, FrameTooLong
from pinlater.wire.other_protocols import HEAD_BYTES_MAX, OtherCall, other_call
from pinlater.wire.wrong_port import FRAMED_BINARY, THRIFT_PORT, begins_http, begins_tls, http_answer, other_manner

if TYPE_CHECKING:
    from pinlater.server.thrift.server import ThriftServer

logger = logging.getLogger(__name__)

LONG_FRAME_BYTES = SMALL_BYTES // ANSWERS_A_WRITE  # no other request follows one with more bytes than this in its turn
# Of an oversized frame, at most this many times the bound is read, so that the client can read the error.
FRAMES_DISCARDED = 4


class ThriftConnection(asyncio.Protocol):
    """A client's connection. Its public attributes are `answering.Recipient`'s."""

    __slots__ = (
        "_budget",
        "_closing_at_s",
        "_discarding_bytes",
        "_draining",
        "_farewell",
        "_flush_scheduled",
        "_idle",
        "_loop",
        "_opened_uncounted",
        "_other_call",
        "_peer",
        "_reading_paused",
        "_refusing",
        "_requests",
        "_server",
        "_splitter",
        "_task",
        "_transport",
        "_writer",
        "active_at_s",
        "busy",
        "gone",
        "handed_out",
        "host",
        "last_request",
        "over_limit",
        "silent",
        "use",
        "waiting",
    )

    def __init__(self, server: ThriftServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._budget = server.answering.budget
        self._splitter = FrameSplitter(server.settings.max_frame_bytes)
        self._requests = RequestQueue(self._budget, server.settings)
        self._writer = AnswerWriter(self._budget)
        self._transport: asyncio.Transport | None = None
        self._peer: object = ""
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None  # what the task waits for while there are no requests
        self._flush_scheduled = False
        self._reading_paused = False
        self._refusing = False  # all requests that arrive while requests wait behind a long poll
        self._draining = False
        self._discarding_bytes: int | None = None  # the remaining bytes of a frame that is too long
        self._other_call = b""  # the beginning of a call in another protocol, until it shows how to answer it
        self._farewell = b""  # the last answer
        self._closing_at_s: float | None = None
        self.active_at_s = 0.0
        self.busy = False  # a request is under way
        self.gone = False
        self.host = ""
        self.handed_out: DequeueAnswer | None = None
        self.waiting = False
        self.silent = True  # the server must be notified of the next request
        self.over_limit = False
        self.last_request = False
        self.use: ConnectionUse | None = None
        quotas = server.answering.quotas
        self._opened_uncounted = quotas is not None and not quotas.are_set

    # --- called by the event loop -----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writer.connect(self._transport)
        self._peer = transport.get_extra_info("peername")
        self.host = address_of(self._peer)
        keep_alive(self._transport)
        self.active_at_s = self._server.monotonic()
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding_bytes is not None:
            if self._other_call:
                self._answer_other(self._other_call + data)
            self._discard(self._discarding_bytes - len(data))
            return
        frames, error = self._splitter.take_while_good(data)
        requests = self._requests
        if frames:
            if requests.partial_bytes:
                requests.free_partial()
            now_s = self.active_at_s = self._server.monotonic()
            for frame in frames:
                if self._refusing or not requests.add(frame, now_s):
                    self._add_or_refuse(frame, now_s)
            self._start()
            if requests.queued_bytes >= self._server.held_bytes_min:
                self._server.holds(self)
        if error is not None:
            self._refuse(error)
        if self._splitter.partial or requests.partial_bytes:
            self._hold_partial(len(self._splitter.partial))

    def eof_received(self) -> bool:
        if not self.busy:
            return False
        self.gone = True
        if self.waiting and self._task is not None:
            self._task.cancel()
        return True

    def pause_writing(self) -> None:
        self._writer.pause(self._server.monotonic(), self._loop)

    def resume_writing(self) -> None:
        self.handed_out = None  # of the answers in the buffer at most one hands out jobs, and it is the last
        self._server.unstalled(self)
        self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.gone = True
        if self.handed_out is not None:
            self._take_back()
        self._requests.clear()
        self._transport = None
        self._writer.disconnect()
        if self.use is not None:
            self.use.end()
        if self._task is not None and (self.waiting or not self.busy):
            self._task.cancel()
        self.resume_writing()
        self._server.closed(self)

    # --- incoming requests ------------------------------------------------------------------------------------------------
    def _add_or_refuse(self, frame: bytes, now_s: float) -> None:
        request = self._requests.count(frame, now_s)
        if self._may_stay(request.counted_bytes):
            self._requests.append(request)
        else:
            self._requests.refuse(request)

    def _start(self) -> None:
        """Starts answering if no request is under way."""
        if not self.busy:
            self.busy = True
            if self.silent:
                self._server.spoke(self)
            if self._idle is None:
                self._task = self._loop.create_task(self._serve())
            elif not self._idle.done():
                self._idle.set_result(None)
        elif self._requests.is_full(refusing=self._refusing):
            self._pause_reading()

    def _hold_partial(self, partial_bytes: int) -> None:
        """Counts the received bytes of an incomplete frame."""
        if self._requests.hold_partial(partial_bytes, self._server.monotonic()) <= 0:
            return
        if partial_bytes > SMALL_FRAME_BYTES and self._refuse_over_quota():
            return
        if partial_bytes >= self._server.held_bytes_min:
            self._server.holds(self)
        if self._budget.free_bytes < 0 or self._refusing:
            self._refuse_partial()
        if self.busy and self._requests.is_full(refusing=self._refusing):
            self._pause_reading()

    def _refuse_partial(self) -> None:
        """Discards the frame that is being received, with the rest of it, if it may not stay."""
        partial_bytes = self._requests.partial_bytes
        if self._may_stay(partial_bytes) or partial_bytes < HEAD_BYTES:
            return
        if self.busy and not self._refusing:
            return  # reading pauses: it may fit later
        self._drop_partial()

    def _drop_partial(self) -> None:
        self._requests.refuse_partial(self._splitter.skip(HEAD_BYTES), self._server.monotonic())
        self._start()

    # --- quotas -----------------------------------------------------------------------------------------------------------
    def count_for(self, token: TokenUse, own_bytes: int) -> ConnectionUse:
        """From now on counts the bytes that it holds for that token. `own_bytes`: those of the request under way."""
        use = self.use
        if use is None:
            held_bytes = (
                own_bytes + self._requests.queued_bytes + self._requests.partial_bytes + self._writer.held_bytes
            )
            use = self.use = ConnectionUse(self._budget, token, held_bytes, ended=self._transport is None)
            self._requests.count_in(use)
            self._writer.count_in(use)
            if self._opened_uncounted:
                use.take()
        elif use.token is not token:
            use.move_bytes(token)
        return use

    def end_when_answered(self) -> None:
        """Closes after the answer of the request under way, unless others have arrived, perhaps of other callers."""
        if not self._requests.waiting and not self._requests.partial_bytes:
            self.last_request = True

    def _refuse_over_quota(self) -> bool:
        """Discards a long, incomplete frame if the quota of its token has no space for it; returns whether it did."""
        quotas = self._server.answering.quotas
        if quotas is None or not quotas.are_set:
            return False
        call = quotas.caller_of(self._splitter.head(HEAD_BYTES))
        if call is None:
            return False
        if not self.busy:
            self.count_for(call.token, 0)
        size_bytes = self._splitter.partial_size
        if call.token.takes_bytes(call.token.bytes_held, size_bytes, is_report=call.is_report):
            return False
        self._requests.refuse_over_quota(self._splitter.skip(HEAD_BYTES), size_bytes, self._server.monotonic())
        self._start()
        return True

    def _may_stay(self, frame_bytes: int) -> bool:
        """Whether a frame, which is already counted, is kept and not refused; others' frames may have to give way to it."""
        if self._refusing and self.waiting:
            return False
        alone = not self.busy and not self._requests.waiting
        return self._budget.admits(frame_bytes, alone=alone) or self._server.shed_for(self)

    # --- giving way to others' requests -----------------------------------------------------------------------------------
    @property
    def held_bytes(self) -> int:
        """The bytes that it holds of requests that are not begun: of an incomplete frame, and of frames behind a long poll."""
        return self._requests.partial_bytes + (self._requests.queued_bytes if self.waiting else 0)

    @property
    def held_since_s(self) -> float:
        """When the oldest of those bytes arrived."""
        requests = self._requests
        return requests.oldest_arrived_s if self.waiting and requests.waiting else requests.partial_since_s

    def shed(self) -> None:
        """Discards the bytes that `held_bytes` counts, except for the beginnings of frames; each is answered with an error in its turn."""
        if self.waiting:
            self._requests.shed()
        if self._requests.partial_bytes >= HEAD_BYTES:
            self._drop_partial()

    def cut_for_memory(self) -> None:
        """Closes the connection, and frees its memory at once."""
        self._server.metrics.count("thrift_connections_cut_for_memory")
        self.abort()

    # --- pausing and resuming reading -------------------------------------------------------------------------------------
    def _pause_reading(self) -> None:
        """Stops reading until all waiting requests are answered, or the sweep sees that it waits for long."""
        if self._budget.exhausted:
            self.cut_for_memory()
            return
        if not self._reading_paused:
            self._reading_paused = True
            self._server.reading_paused(self)
        stop_reading(self._transport)

    def _resume_reading(self) -> None:
        self._reading_paused = self._refusing = False
        self._server.reading_resumed(self)
        if not self._draining:
            start_reading(self._transport)

    def fileno(self) -> int:
        """Its socket's descriptor; -1 if it is closed."""
        return descriptor_of(self._transport)

    def look_at_peer(self, events: int) -> None:
        """Called by the sweep, while reading is paused, with what the kernel knows about the peer (0: nothing)."""
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
            if not self._draining and not self._requests.is_full(refusing=True):
                start_reading(self._transport)

    # --- bad frames -------------------------------------------------------------------------------------------------------
    def _refuse(self, error: WireError) -> None:
        """Closes the connection, since the next frame can no longer be found. First answers the requests that came before.

        The sender of a frame that is too long gets an error. It reads no answer before it has sent the whole frame, so the rest of
        the frame is read and discarded, up to `FRAMES_DISCARDED` times the bound.
        """
        first_bytes = error.received if isinstance(error, BadLength) else b""
        if other_manner(first_bytes):
            self._splitter = FrameSplitter(0)
            self._closing_at_s = self._server.monotonic()
            self._discarding_bytes = FRAMES_DISCARDED * self._server.settings.max_frame_bytes
            self._answer_other(first_bytes)
            return
        if begins_http(first_bytes):
            error = WireError("an HTTP request at the Thrift port")
            self._farewell = http_answer(THRIFT_PORT)
        self._report_bad_frame(error)
        if begins_tls(first_bytes):
            self._server.wrong_client(self.host, "with TLS, which this port does not have")
        self._splitter = FrameSplitter(0)
        if isinstance(error, FrameTooLong) and error.size <= FRAMES_DISCARDED * self._server.settings.max_frame_bytes:
            self._farewell = self._server.answering.too_long(error)
            if self._farewell:
                self._closing_at_s = self._server.monotonic()
                self._discard(error.size - len(error.start))
                return
        self.drain()

    def _answer_other(self, received: bytes) -> None:
        """Answers a call without framed transport in its own protocol, once enough of it has arrived; the rest is discarded, so that its
        client, which reads no answer before it has sent the whole call, can read it."""
        other = other_call(received)
        self._other_call = b""
        if other is None or (other.name is None and len(received) < HEAD_BYTES_MAX):
            self._other_call = received
            return
        self._refuse_other(other)
        if self.busy:
            self._draining = True
            return
        self._flush()
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def _refuse_other(self, other: OtherCall) -> None:
        self._server.metrics.count("thrift_bad_frames")
        self._server.wrong_client(self.host, other.manner)
        self._farewell = other.answer(f"{FRAMED_BINARY}; this call came {other.manner}")

    def _report_bad_frame(self, error: WireError) -> None:
        self._server.metrics.count("thrift_bad_frames")
        logger.info("connection closed: %s", error, extra={"peer": self.peer})

    def _discard(self, bytes_to_come: int) -> None:
        """Discards bytes of an oversized frame; closes the connection after the last one."""
        self._discarding_bytes = bytes_to_come
        if bytes_to_come <= 0:
            self.drain()

    # --- answers ----------------------------------------------------------------------------------------------------------
    async def _serve(self) -> None:
        """Answers the queued requests, in order, and waits for more, until the connection is to be closed."""
        answering, standstill = self._server.answering, self._server.standstill
        requests, writer = self._requests, self._writer
        waiting = requests.waiting
        request: AnyRequest | None = None
        frame = reply = b""
        try:
            while not self.last_request:
                if not waiting:
                    self.busy = False
                    frame = reply = b""  # a connection that waits keeps no memory of its last request
                    if writer.collected or self._farewell:
                        self._flush()
                    if self._draining or self.gone:
                        return
                    self._idle = self._loop.create_future()
                    await self._idle
                    continue
                if writer.drained is not None:
                    await writer.drained
                    continue
                if (now_s := standstill.monotonic()) > standstill.until_s:
                    standstill.found(now_s)
                    return  # no earlier request is executed; every connection has been closed, this one too
                request = requests.begin()
                if isinstance(request, QueuedRequest):
                    frame = request.frame
                    reply = await answering.answer(frame, request.arrived_s, self)
                elif isinstance(request, OverQuotaRequest):
                    frame = request.head
                    reply = answering.refuse_over_quota(frame, request.frame_bytes, self)
                else:
                    frame = request.head
                    reply = answering.refuse_unread(frame, pipelined=self._refusing)
                requests.end(request)
                request = None
                if self.handed_out is not None:
                    self._deliver(reply)
                elif reply and (waiting or writer.collected):
                    writer.collect(reply)
                elif reply and writer.write(reply):
                    self._server.stalled(self)
                if waiting:
                    await self._between_requests(len(frame))
                elif self._reading_paused:
                    self._resume_reading()
        except WireError as error:
            self.last_request = True
            if other := other_call(len(frame).to_bytes(LENGTH_BYTES, "big") + frame[:HEAD_BYTES_MAX]):
                self._refuse_other(other)
            else:
                self._report_bad_frame(error)
        except Exception:
            logger.exception("a connection was closed: its request failed", extra={"peer": self.peer})
            self.last_request = True
        finally:
            self._task = self._idle = None
            self.busy = False
            if request is not None:
                requests.end(request)
            if writer.collected or self._farewell:
                self._flush()
            if self.last_request or self._draining or self.gone:
                self._close()

    def _deliver(self, reply: bytes) -> None:
        """Writes an answer that hands out jobs. Answers that the kernel doesn't accept completely wait for `resume_writing`."""
        if self._reading_paused and peer_has_left(self._transport):
            self._take_back()
            return
        writer = self._writer
        if writer.collected:
            writer.collect(reply)
            self._flush()
        elif writer.write(reply):
            self._server.stalled(self)
        if not writer.is_open:
            self._take_back()
        elif writer.drained is None:
            self.handed_out = None
        elif self.handed_out is not None:
            self.handed_out.forget_bodies()

    def _take_back(self) -> None:
        """Gives back the jobs of the last answer, which reached no client."""
        answer, self.handed_out = self.handed_out, None
        if answer is not None:
            self._server.answering.undelivered(answer)

    async def _between_requests(self, frame_bytes: int) -> None:
        """Answers are sent together at the end of this turn of the loop, so that none waits for a slow request behind it.

        Requests that never wait alternate with those of other connections, and use no more memory than may wait to be written.
        """
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        writer = self._writer
        if (
            len(writer.collected) >= ANSWERS_A_WRITE
            or writer.collected_bytes >= self._server.settings.write_buffer_high_bytes
        ):
            self._flush()
            await asyncio.sleep(0)
        elif frame_bytes > LONG_FRAME_BYTES:
            await asyncio.sleep(0)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._farewell and not self.busy:
            self._writer.collect(self._farewell)
            self._farewell = b""
        if self._writer.collected and self._writer.write(self._writer.take_collected()):
            self._server.stalled(self)

    def look_at_progress(self, now_s: float) -> None:
        """Called by the sweep while the kernel does not accept all answers."""
        self._writer.look_at_progress(now_s)

    # --- the end ----------------------------------------------------------------------------------------------------------
    @property
    def peer(self) -> str:
        """The address of the client, for the log."""
        return with_port(self._peer)

    def _close(self) -> None:
        """Closes once everything written is sent."""
        self._flush()
        if self._transport is not None and not self._transport.is_closing():
            self._closing_at_s = self._server.monotonic()
            self._transport.close()

    def drain(self) -> None:
        """Answers the requests that have arrived, then closes; at once if nothing is under way. Reads no further."""
        self._draining = True
        stop_reading(self._transport)
        if not self.busy:
            self._close()

    def abort(self) -> None:
        """Closes without writing the rest, and ends the request under way."""
        self._requests.clear()
        if self._task is not None:
            self._task.cancel()
        self._writer.free()
        if self._transport is not None:
            self._transport.abort()

    def holds_old_frame(self, begun_before_s: float) -> bool:
        """Whether it holds an incomplete frame that began before that moment, with no request under way."""
        requests = self._requests
        return not self.busy and requests.partial_bytes > 0 and requests.partial_since_s < begun_before_s

    def overdue(self, now_s: float, idle_s: float, stall_s: float) -> str:
        """Why the connection should be closed now, as a counter's name; '' for no reason."""
        stalled_since_s = self._writer.stalled_since_s
        since_s = stalled_since_s if stalled_since_s is not None else self._closing_at_s
        if since_s is not None and now_s - since_s > stall_s:
            return "thrift_slow_readers_cut"
        if not self.busy and now_s - self.active_at_s > idle_s:
            return "thrift_idle_connections_closed"
        return ""
