"""The link to another server, on the side that asks: it proves itself, receives what the other server reports about itself, and notices
when that server does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.domain.clock import Clock
from pinlater.domain.errors import OutcomeUnknown
from pinlater.domain.workers import ServerWorkers, WorkerStatus
from pinlater.server.cluster.forwarding import handshake, messages
from pinlater.server.cluster.forwarding.forward_lane import ForwardedCall
from pinlater.server.cluster.forwarding.messages import (
    WAKES_SINCE_VERSION,
    CallersLeft,
    Told,
    Wake,
    WorkersPage,
    WorkersQuestion,
)
from pinlater.server.cluster.forwarding.peer_tls import binding_of
from pinlater.server.cluster.forwarding.traffic import Traffic
from pinlater.server.cluster.forwarding.unconfirmed_claims import Lost
from pinlater.server.link.asking import AskingSide
from pinlater.server.link.messages import FRAME_BYTES_MAX, BadMessage, PartAnswer, decoded, frame, message_of_asking

logger = logging.getLogger(__name__)

# Bytes that the kernel has not accepted, above which no wakes are written: they would arrive too late to be useful.
WAKES_UNTAKEN_BYTES_MAX = 4 * 1024 * 1024
# If two looks are further apart than this, the process stood still; that is not held against the other server.
_LATE_S = 1.0
# Share of a core at or above which the event loop of a server is saturated, and the share below which it no longer is.
_SATURATED_SHARE, _SATURATED_SHARE_MIN = 0.9, 0.7


class PeerConnection(AskingSide[ForwardedCall[Any, Any]]):
    """The connection to the server that announced `address`. `changed(connection)` is called when it becomes usable, and when it is lost.

    `waits_changed(connection)`: when `waits` has changed; `queues_changed()`: when the other server has changed queues, or may have before
    it said anything. `limit_s`: a call is begun within this time, or never; one that takes longer fails. `traffic` counts what is sent to
    this server. `lost`: the last connections to it. `now_s`, `now_ms`: when it began to write this turn's calls, on both clocks;
    `begin_by_ms`: when the other side must have begun them.
    """

    def __init__(
        self,
        address: str,
        own_address: str,
        secret: bytes,
        clock: Clock,
        limit_s: float,
        changed: Callable[[PeerConnection], None],
        waits_changed: Callable[[PeerConnection], None] = lambda _: None,
        traffic: Traffic | None = None,
        lost: Sequence[Lost] = (),
        queues_changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(handshake.WELCOME_BYTES_MAX)
        self.address = address
        self.told: Told | None = None  # what the other server reports about itself; None: nothing yet
        self.is_saturated = False
        """Whether the event loop of the other server has hardly any time left: then plain enqueues go directly to the shard."""
        self.waits: int | None = None  # which queues the dequeues of the other server wait for; None if it has not said
        self.limit_s = limit_s
        self.traffic = traffic or Traffic()
        self.monotonic = clock.monotonic
        self._clock = clock
        self.now_s, self.now_ms, self.begin_by_ms = 0.0, 0, 0
        self._hello = handshake.hello(own_address, lost)
        self._secret = secret
        self._binding = b""
        self.version = 0  # the version that both sides speak, once the other one has proven itself
        self.encode_items = messages.encoder_of_items(0)
        self._call_changed = changed
        self._waits_changed = waits_changed
        self._queues_changed = queues_changed
        self._stall_s = math.inf
        self._asked_s: float | None = None  # when it was asked whether the server runs, until it says so
        self._looked_s = self.heard_s = clock.monotonic()
        self.said_s = -math.inf  # when the server said that it runs
        self._ready = asyncio.Event()
        self._workers: list[WorkerStatus] = []  # the answer that is being received
        self._workers_question = WorkersQuestion(0, 0)
        self._workers_answer: asyncio.Future[ServerWorkers] | None = None

    @property
    def as_lost(self) -> Lost:
        """Returns what the next connection reports about this one, which has ended."""
        return Lost(self._hello.nonce, self.answers)

    @property
    def unreachable(self) -> Sequence[str]:
        """The shards that the other server can't work on."""
        return () if self.told is None else self.told.unreachable

    @property
    def nonce(self) -> bytes:
        """The nonce of this connection; no other one has the same."""
        return self._hello.nonce

    def says_what_it_changes(self, within_s: float) -> bool:
        """Returns whether the other server has recently reported its changes."""
        return self.told is not None and self.monotonic() - self.said_s <= within_s

    async def wait_ready(self) -> None:
        """Returns once both sides have proven themselves. Raises `ConnectionError`."""
        await self._ready.wait()
        if self.ended.is_set():
            raise ConnectionResetError("closed by the other server")

    def _flush(self) -> None:
        self.now_s, self.now_ms = self.monotonic(), self._clock.now_ms()
        self.begin_by_ms = self.now_ms + int(self.limit_s * 1000)
        super()._flush()

    # --- messages of the other server ---------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard_s = self.monotonic()
        super().data_received(data)

    def _refuse(self, error: BadMessage) -> None:
        level = logging.INFO if isinstance(error, handshake.SecretUnknown) else logging.WARNING
        logger.log(level, "connection to a server closed", extra={"server": self.address, "reason": str(error)})

    def _hear(self, message: bytes) -> None:
        if self.version:
            super()._hear(message)
            return
        answered = handshake.decoded(message, handshake.Welcome)
        self._write(frame(handshake.prove(self._hello, answered, self._secret, self._binding)))
        self.version = answered.version
        self.encode_items = messages.encoder_of_items(answered.version)
        self._frames.limit_bytes = FRAME_BYTES_MAX
        self.usable = True
        self._ready.set()

    def _told(self, message: PartAnswer) -> None:
        match message.number:
            case messages.RUNNING:
                self._runs(decoded(messages.TOLD, message.answers))
            case messages.WAITS:
                self.waits = messages.waits_of(message)
                self._waits_changed(self)
            case messages.WORKERS:
                self._take_workers(decoded(messages.WORKERS_PAGE, message.answers))
            case unknown:
                raise BadMessage(f"a message of unknown kind {unknown}")

    # --- a server that doesn't answer -----------------------------------------------------------------------------------------

    def look(self, ask_after_s: float, stall_s: float) -> None:
        """Call it several times a second. A server that has not reported its state for a while is asked for it; if it does not
        answer in time, it gets no more calls until it answers in time. If it says nothing for as long as a call may take, the connection is
        closed. Calls that take too long fail; jobs that they still return are orphaned."""
        now_s = self.monotonic()
        self._stall_s = stall_s
        before_s, self._looked_s = self._looked_s, now_s
        if now_s - before_s > _LATE_S:  # this process itself stood still
            for call in self._sent.values():
                call.sent_s += now_s - before_s
            self._asked_s = None
            return
        for call in self._sent.values():
            if now_s - call.sent_s < self.limit_s:
                break
            call.lose(OutcomeUnknown(f"The server that owns the queue did not answer within {self.limit_s:g} s"))
        else:
            if self._closing:  # no caller waits any longer, and the next connection reports which claims arrived
                self.abort()
                return
        self._tell_who_left(now_s - ask_after_s)
        if self._asked_s is not None:
            if now_s - self._asked_s >= self.limit_s:  # half open perhaps, and the kernel may keep it much longer
                logger.info("a server does not answer: connecting again", extra={"server": self.address})
                self.abort()
            elif now_s - self._asked_s >= stall_s and self.usable:
                self.usable = False
                logger.info("a server is slow to answer", extra={"server": self.address})
                self._changed()
        elif not self.usable or now_s - self.said_s >= ask_after_s:  # answers to calls contain nothing of other shards
            self._asked_s = now_s
            self.tell(message_of_asking(messages.RUNNING, self.answers))

    def _tell_who_left(self, sent_by_s: float) -> None:
        """Tells the other server which callers of the calls sent so far have gone, so that it skips items that it has not begun for
        them."""
        left = []
        for number, call in self._sent.items():
            if call.sent_s > sent_by_s:
                break
            places = call.newly_left()
            if places:
                left.append(CallersLeft(number, places))
        for part in messages.callers_left(left):
            self.tell(part)

    def wake(self, wakes: Sequence[Wake]) -> bool:
        """Tells the other server, without delay, which queues have jobs to claim. Returns whether the message was written: a server that
        stops, does not know the message or does not read finds the jobs by itself.
        """
        if self._transport is None or self._closing or self.stopping or self.version < WAKES_SINCE_VERSION:
            return False
        if self.unsent_bytes > WAKES_UNTAKEN_BYTES_MAX:
            return False
        self.tell(message_of_asking(messages.WAKES, wakes))
        return True

    async def ask_workers(self, workers_max: int) -> ServerWorkers:
        """Returns what the other server knows about workers. One question at a time: the next one ends it. Raises `ConnectionError` if the
        connection is lost, and for a question that was ended. Cancel the call to give up."""
        if self._transport is None:
            raise ConnectionResetError("closed by the other server")
        self._end_workers_question()
        self._workers = []
        self._workers_question = question = WorkersQuestion(self._workers_question.number + 1, workers_max)
        answer: asyncio.Future[ServerWorkers] = self._loop.create_future()
        self._workers_answer = answer
        self.tell(message_of_asking(messages.WORKERS, question))
        return await answer

    def _take_workers(self, page: WorkersPage) -> None:
        question, answer = self._workers_question, self._workers_answer
        if page.number != question.number or answer is None or answer.done():
            return  # nothing waits for it any longer
        self._workers += page.workers
        if len(self._workers) > question.workers_max:
            raise BadMessage(f"more workers than the {question.workers_max} that were asked for")
        if page.rest is not None:
            workers, self._workers = self._workers, []
            answer.set_result(page.rest._replace(workers=workers))

    def _end_workers_question(self) -> None:
        if self._workers_answer is not None and not self._workers_answer.done():
            self._workers_answer.set_exception(ConnectionResetError("there is another question, or no connection"))

    def tell_to_look(self) -> None:
        """Reports that this server has changed owners."""
        if self.usable:
            self.tell(message_of_asking(messages.LOOK))

    def _runs(self, told: Told) -> None:
        """Stops calls to a server that takes longer to answer than a claim may take: its jobs would come too late and be given back."""
        now_s = self.monotonic()
        is_slow = not self.usable if self._asked_s is None else now_s - self._asked_s >= self._stall_s
        self._asked_s, self.said_s = None, now_s
        before, self.told = self.told, told
        self._follow_load(told.loop)
        if before is None or told.queue_changes != before.queue_changes:
            self._queues_changed()
        same = list(told.unreachable) == list(() if before is None else before.unreachable)
        usable = not (is_slow or self._closing or self.stopping)
        if same and self.usable == usable:
            return
        self.usable = usable
        self._changed()

    def _follow_load(self, loop: float) -> None:
        is_saturated = loop >= (_SATURATED_SHARE_MIN if self.is_saturated else _SATURATED_SHARE)
        if is_saturated != self.is_saturated:
            self.is_saturated = is_saturated
            how = "go past it, to the shards" if is_saturated else "go to it again"
            logger.info("plain enqueues of a saturated server %s", how, extra={"server": self.address, "loop": loop})

    # --- life ---------------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._call_changed(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._binding = binding_of(transport)
        self._write(frame(self._hello))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        super().connection_lost(exc)
        self.waits = None
        self._waits_changed(self)
        self._end_workers_question()
        self._ready.set()
        self._changed()
