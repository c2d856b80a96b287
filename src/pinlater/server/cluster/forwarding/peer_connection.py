"""The asking side of a connection to another server: what many requests ask for in one turn of the loop goes there in one frame.

Answers come part by part, in any order. A connection that is lost says of each call whether it was sent: one that wasn't can go another
way; the outcome of one that was is unknown. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import Raw

from pinlater.domain.clock import Clock
from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.workers import ServerWorkers, WorkerStatus
from pinlater.server.cluster.forwarding import handshake, messages
from pinlater.server.cluster.forwarding.forward_lane import Call, NotSent
from pinlater.server.cluster.forwarding.frames import Frames
from pinlater.server.cluster.forwarding.messages import (
    FRAME_BYTES_MAX,
    GOODBYE,
    RUNNING,
    TOO_LATE,
    WAITS,
    WAKES_SINCE_VERSION,
    WORKERS,
    BadMessage,
    CallersLeft,
    Failure,
    Part,
    PartAnswer,
    Told,
    Wake,
    WorkersPage,
    WorkersQuestion,
)
from pinlater.server.cluster.forwarding.peer_tls import binding_of
from pinlater.server.cluster.forwarding.traffic import Traffic
from pinlater.server.cluster.forwarding.unconfirmed_claims import Lost

logger = logging.getLogger(__name__)

# Of bodies in one call, above which it goes in a frame of its own.
_FRAME_BYTES = 4 * 1024 * 1024
# Of what the other server has not taken, above which no wakes are written: it would get them too late to be of use.
WAKES_UNTAKEN_BYTES_MAX = 4 * 1024 * 1024
# Between two looks that lie further apart than this the process stood still; that isn't held against the other server.
_LATE_S = 1.0


class PeerConnection(asyncio.Protocol):
    """To the server that announced `address`. `changed(connection)` is called when it becomes usable, and when it is lost.

    `waits_changed(connection)`: when `waits` has changed; `queues_changed()`: when the other server has changed queues, or may have before
    it said anything. `limit_s`: a call is begun within this time, or never; one that takes longer fails. `usable`: whether calls may be
    sent. `traffic` counts what is sent to this server. `lost`: the last connections to it.
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
        self.address = address
        self.usable = False
        self.told: Told | None = None  # what the other server says of itself; None if it has not said anything
        self._clock = clock
        self.limit_s = limit_s
        self._hello = handshake.hello(own_address, lost)
        self._taken = 0  # answers
        self._secret = secret
        self._binding = b""
        self._changed = changed
        self._waits_changed = waits_changed
        self._queues_changed = queues_changed
        self.waits: int | None = None  # which queues the dequeues of the other server wait for; None if it has not said
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(handshake.WELCOME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._welcome = True
        self._version = 0  # which both sides speak
        self._numbers = 0
        self._turn: list[Call[Any, Any]] = []
        self._sent: dict[int, Call[Any, Any]] = {}
        self._stall_s = math.inf
        self._asked_s: float | None = None  # when it was asked whether the server runs, until it says so
        self._looked_s = self.heard_s = clock.monotonic()
        self.said_s = -math.inf  # when the server said that it runs
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._workers: list[WorkerStatus] = []  # of the answer that comes in
        self._workers_question = WorkersQuestion(0, 0)
        self._workers_answer: asyncio.Future[ServerWorkers] | None = None
        self._closing = False
        self._stopping = False  # the other server, as it said
        self.frames = 0
        self._traffic = traffic or Traffic()

    @property
    def unanswered(self) -> int:
        """Calls that were sent and are not answered."""
        return len(self._sent)

    def monotonic(self) -> float:
        """In seconds."""
        return self._clock.monotonic()

    @property
    def is_lost(self) -> bool:
        """Whether it has ended."""
        return self._lost.is_set()

    @property
    def as_lost(self) -> Lost:
        """What the next connection says of this one, which has ended."""
        return Lost(self._hello.nonce, self._taken)

    @property
    def unreachable(self) -> Sequence[str]:
        """The shards that the other server can't work on."""
        return () if self.told is None else self.told.unreachable

    @property
    def nonce(self) -> bytes:
        """The nonce of this connection; no other one has the same."""
        return self._hello.nonce

    def says_what_it_changes(self, within_s: float) -> bool:
        """Whether the other server has said so lately."""
        return self.told is not None and self._clock.monotonic() - self.said_s <= within_s

    async def wait_ready(self) -> None:
        """Returns once both sides have proven themselves. Raises `ConnectionError`."""
        await self._ready.wait()
        if self._lost.is_set():
            raise ConnectionResetError("closed by the other server")

    async def wait_lost(self) -> None:
        """Returns once it has ended."""
        await self._lost.wait()

    # --- asking -------------------------------------------------------------------------------------------------------------

    def gather(self, call: Call[Any, Any]) -> None:
        """Sends the call at the end of this turn of the loop, with all that is added to it until then."""
        self._turn.append(call)
        if len(self._turn) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        turn, self._turn = self._turn, []
        if not turn:
            return
        parts: list[Part] = []
        size_bytes = 0
        now_ms = self._clock.now_ms()
        begin_by_ms = now_ms + int(self.limit_s * 1000)
        for call in turn:
            call.lane.gathered()
            if not call.drop_cancelled():
                continue
            items = self._encoded(call)
            if items is None:
                continue
            if parts and size_bytes + call.size_bytes > _FRAME_BYTES:
                self._write(messages.frame(parts))
                parts, size_bytes = [], 0
            number = self._numbers = self._numbers + 1
            self._sent[number] = call
            call.lane.sent(number, call)
            self._traffic.count(call.lane.kind, len(call.items))
            parts.append(Part(number, call.lane.kind, call.lane.shard, items, begin_by_ms, now_ms))
            size_bytes += call.size_bytes
        if parts:
            self._write(messages.frame(parts))

    def _encoded(self, call: Call[Any, Any]) -> Raw | None:
        """The items of a call, without those that can't be encoded; None where there are no others."""
        try:
            return messages.encoded_items(call.items)
        except Exception:  # a bug: it must not take the other calls of this turn with it
            logger.exception("a forwarded request can't be encoded")
            return messages.encoded_items(call.items) if call.fail_unsendable(messages.encoded_items) else None

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self.frames += 1
            self._transport.write(frame)

    # --- answers ------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._clock.monotonic()
        try:
            for message in self._frames.feed(data):
                if self._welcome:
                    self._take_welcome(message)
                else:
                    self._take(message)
        except BadMessage as error:
            level = logging.INFO if isinstance(error, handshake.SecretUnknown) else logging.WARNING
            logger.log(level, "connection to a server closed", extra={"server": self.address, "reason": str(error)})
            self.abort()

    def _take_welcome(self, message: bytes) -> None:
        answered = handshake.decoded(message, handshake.Welcome)
        self._write(handshake.encoded(handshake.prove(self._hello, answered, self._secret, self._binding)))
        self._welcome = False
        self._version = answered.version
        self._frames.limit_bytes = FRAME_BYTES_MAX
        self.usable = True
        self._ready.set()

    def _take(self, message: bytes) -> None:
        for part in messages.part_answers_of(message):
            if part.number == RUNNING:
                self._runs(messages.told_of(part))
                continue
            if part.number == WAITS:
                self.waits = messages.waits_of(part)
                self._waits_changed(self)
                continue
            if part.number == WORKERS:
                self._take_workers(messages.workers_page_of(part))
                continue
            if part.number == GOODBYE:
                self._stopping, self.usable = True, False
                self._changed(self)
                continue
            call = self._sent.pop(part.number, None)
            if call is None:
                raise BadMessage(f"an answer to call {part.number}, which was not sent")
            call.lane.ended(part.number, call)
            try:
                self._answer(call, part)
            except BaseException:  # the answer can't be read
                self._lose(call, self._unknown())
                raise
            self._taken += 1
        if self._closing or self._stopping:
            self._end_if_idle()

    def _answer(self, call: Call[Any, Any], part: PartAnswer) -> None:
        if part.failure is not None:
            self._refused(call, part.failure)
            return
        answers: Sequence[Any] = messages.answers_of(call.lane.kind, part)
        if len(answers) != len(call.items):
            raise BadMessage(f"{len(answers)} answers to {len(call.items)} items")
        call.answer(answers)

    def _refused(self, call: Call[Any, Any], failure: Failure) -> None:
        """A call that came too late by the clock of the owner alone goes to the shard itself."""
        if failure.detail != TOO_LATE:
            call.fail(messages.error_of(failure))
            return
        error = messages.error_of(failure._replace(detail=ShardConnectionFailed.detail))
        if self._clock.monotonic() - call.sent_s >= self.limit_s:
            call.fail(error)
            return
        logger.warning(
            "calls to a server go to the shards instead: it refuses them as too late, by a clock that is ahead of this one's",
            extra={"server": self.address},
        )
        call.pass_owner(error)

    def _lose(self, call: Call[Any, Any], error: OutcomeUnknown) -> None:
        self._traffic.count_lost(call.fail(error))

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown("The connection to the server that owns the queue was lost before its answer came")

    # --- a server that doesn't answer -----------------------------------------------------------------------------------------

    def look(self, ask_after_s: float, stall_s: float) -> None:
        """To be called several times a second. A server that has not said for a while that it runs, and which shards it can't work on, is
        asked; one that doesn't say so in time gets no more calls until it does in time. If it says nothing for as long as a call may take,
        the connection ends. Calls that take too long fail; what they bring after all is orphaned."""
        now_s = self._clock.monotonic()
        self._stall_s = stall_s
        before_s, self._looked_s = self._looked_s, now_s
        if now_s - before_s > _LATE_S:  # this process stood still itself
            for call in self._sent.values():
                call.sent_s += now_s - before_s
            self._asked_s = None
            return
        for call in self._sent.values():
            if now_s - call.sent_s < self.limit_s:
                break
            self._lose(call, OutcomeUnknown(f"The server that owns the queue did not answer within {self.limit_s:g} s"))
        else:
            if self._closing:  # no caller waits any more, and the next connection tells which claims came
                self.abort()
                return
        self._tell_who_left(now_s - ask_after_s)
        if self._asked_s is not None:
            if now_s - self._asked_s >= self.limit_s:  # it may be half open, and the kernel give it up much later
                logger.info("a server does not answer: connecting again", extra={"server": self.address})
                self.abort()
            elif now_s - self._asked_s >= stall_s and self.usable:
                self.usable = False
                logger.info("a server is slow to answer", extra={"server": self.address})
                self._changed(self)
        elif not self.usable or now_s - self.said_s >= ask_after_s:  # answers to calls say nothing of the other shards
            self._asked_s = now_s
            self._write(messages.frame([messages.are_you_running(self._taken)]))

    def _tell_who_left(self, sent_by_s: float) -> None:
        """Says which callers of calls that were sent by then have gone: what has not begun for them is left out."""
        left = []
        for number, call in self._sent.items():
            if call.sent_s > sent_by_s:
                break
            places = call.newly_left()
            if places:
                left.append(CallersLeft(number, places))
        for part in messages.callers_left(left):
            self._write(messages.frame([part]))

    def wake(self, wakes: Sequence[Wake]) -> bool:
        """Says, without delay, of which queues jobs can be claimed. Returns whether it was written: not to a server that stops, one that
        does not know the message, or one that takes nothing; these find the jobs themselves."""
        transport = self._transport
        if transport is None or self._closing or self._stopping or self._version < WAKES_SINCE_VERSION:
            return False
        if transport.get_write_buffer_size() > WAKES_UNTAKEN_BYTES_MAX:
            return False
        self._write(messages.frame([messages.wakes(wakes)]))
        return True

    async def ask_workers(self, workers_max: int) -> ServerWorkers:
        """What the other server knows of workers. One question at a time: the next one ends it. Raises `ConnectionError` if the connection
        is lost, and for a question that was ended. Cancel it to give up."""
        if self._transport is None:
            raise ConnectionResetError("closed by the other server")
        self._end_workers_question()
        self._workers = []
        self._workers_question = question = WorkersQuestion(self._workers_question.number + 1, workers_max)
        answer: asyncio.Future[ServerWorkers] = self._loop.create_future()
        self._workers_answer = answer
        self._write(messages.frame([messages.which_workers(question)]))
        return await answer

    def _take_workers(self, page: WorkersPage) -> None:
        question, answer = self._workers_question, self._workers_answer
        if page.number != question.number or answer is None or answer.done():
            return  # nothing waits for it any more
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
        """This server has changed who owns what."""
        if self.usable:
            self._write(messages.frame([messages.LOOK_AT_OWNERS]))

    def _runs(self, told: Told) -> None:
        """A server that takes longer to say so than a claim may take gets no calls: what they bring would come too late, and go back."""
        now_s = self._clock.monotonic()
        is_slow = not self.usable if self._asked_s is None else now_s - self._asked_s >= self._stall_s
        self._asked_s, self.said_s = None, now_s
        before, self.told = self.told, told
        if before is None or told.queue_changes != before.queue_changes:
            self._queues_changed()
        same = list(told.unreachable) == list(() if before is None else before.unreachable)
        usable = not (is_slow or self._closing or self._stopping)
        if same and self.usable == usable:
            return
        self.usable = usable
        self._changed(self)

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._binding = binding_of(transport)
        self._write(handshake.encoded(self._hello))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.usable = False
        self._transport = None
        turn, self._turn = self._turn, []
        not_sent = NotSent("The connection to the server that owns the queue is lost", retry_after_ms=100)
        for call in turn:
            call.lane.gathered()
            call.fail(not_sent)
            call.lane.ended(None, call)
        sent, self._sent = self._sent, {}
        for number, call in sent.items():
            self._lose(call, self._unknown())
            call.lane.ended(number, call)
        self.waits = None
        self._waits_changed(self)
        self._end_workers_question()
        self._lost.set()
        self._ready.set()
        self._changed(self)

    def close_when_idle(self) -> None:
        """Takes no calls from now on, and ends once those under way are answered."""
        self._closing = True
        self.usable = False
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        """A server that stops waits until the others have closed their connections."""
        if not self._sent and not self._turn:
            self.abort()

    def abort(self) -> None:
        """Closes it: what was sent has an unknown outcome."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()
