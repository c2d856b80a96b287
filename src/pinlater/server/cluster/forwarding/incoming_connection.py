"""A connection of another server of the same shards: its proof, its calls, and their answers.

The bytes of the other server's calls under way are bounded, and so are those of answers that it does not read: beyond the bound, no more
is read from it until answers have been sent. A server that reads no answer for as long as a call may take is disconnected, and claims in
unwritten answers are given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.server.cluster.forwarding import handshake, messages
from pinlater.server.cluster.forwarding.carry_out import JoinedAnswers
from pinlater.server.cluster.forwarding.messages import CallKind, WorkersPage, WorkersQuestion
from pinlater.server.cluster.forwarding.traffic import Traffic
from pinlater.server.cluster.forwarding.unconfirmed_claims import AnsweredClaims
from pinlater.server.link.answering import AnsweringSide
from pinlater.server.link.messages import FRAME_BYTES_MAX, BadMessage, Part, decoded, failed, frame
from pinlater.wire.wrong_port import begins_tls

if TYPE_CHECKING:
    from pinlater.server.cluster.forwarding.peer_listener import PeerListener

logger = logging.getLogger(__name__)

# The most bytes of one server's calls that are not answered.
UNANSWERED_BYTES_MAX = 64 * 1024 * 1024
# The most bytes of written answers to one server that the kernel has not accepted.
UNTAKEN_BYTES_MAX = 16 * 1024 * 1024
_WORKERS_A_PAGE = 250


class _Asked(NamedTuple):
    """A call under way. `size_bytes`: its share of the frame with which it came."""

    number: int
    kind: CallKind
    shard: str
    items: Sequence[Any]
    size_bytes: int


class IncomingConnection(AnsweringSide[AnsweredClaims]):
    """A connection of another server. `binding`: the value to which proofs over it are bound."""

    def __init__(self, listener: PeerListener, binding: bytes = b"") -> None:
        super().__init__(handshake.HELLO_BYTES_MAX)
        self._binding = binding
        self._listener = listener
        self._hello: handshake.Hello | None = None
        self._nonce = b""
        self._version = 0  # which both sides speak
        self._deadline: asyncio.TimerHandle | None = None
        self._under_way: dict[int, asyncio.Future[Sequence[Any]]] = {}  # calls, by number
        self._unanswered_bytes = 0
        self._is_to_tell = False  # when the other server reads its answers again
        self._watch: asyncio.TimerHandle | None = None  # while it does not
        self._taken = Traffic()
        self._telling: asyncio.Task[None] | None = None  # the workers known to this server
        self.proven = False
        self.heard_s = listener.monotonic()

    @property
    def address(self) -> str:
        """The address that the other server has announced."""
        return "" if self._hello is None else self._hello.address

    # --- calls --------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._listener.still_runs():
            return  # the loop has closed the connections
        self.heard_s = self._listener.monotonic()
        if self._hello is None and begins_tls(data):
            logger.warning(
                "a server speaks TLS, which this one does not (tls.certificate_file)", extra={"peer": self.peer}
            )
            self.abort()
            return
        super().data_received(data)

    def _refuse(self, error: BadMessage) -> None:
        level = logging.WARNING if self.proven else logging.INFO  # anything may connect
        logger.log(level, "a server's connection was closed", extra={"peer": self.peer, "reason": str(error)})

    def _hear(self, message: bytes) -> None:
        if not self.proven:
            self._greet(message)
            return
        super()._hear(message)
        self._read_or_not()

    def _begin(self, part: Part, share_bytes: int) -> None:
        items = messages.items_of(part, self._version)
        asked = _Asked(part.number, CallKind(part.kind), part.shard, items, share_bytes)
        self._taken.count(asked.kind, len(items))
        self._unanswered_bytes += share_bytes
        answers = self._listener.carry_out(asked.kind, part.shard, items, part.begin_by_ms, part.sent_ms)
        self._under_way[part.number] = answers
        answers.add_done_callback(partial(self._answer, asked))

    def _told(self, message: Part) -> None:
        match message.number:
            case messages.WAKES:
                self._listener.take_wakes(messages.wakes_of(message))
            case messages.RUNNING:
                self.confirm(decoded(messages.TAKEN, message.items))
                self.tell_running()
            case messages.LOOK:
                self._listener.look(self.address)
            case messages.WORKERS:
                self._tell_workers(decoded(messages.WORKERS_QUESTION, message.items))
            case messages.LEFT:
                self._leave(message)
            case unknown:
                raise BadMessage(f"a message of unknown kind {unknown}")

    def _leave(self, message: Part) -> None:
        """Drops items of callers that have gone if they have not begun."""
        for number, places in messages.callers_left_of(message):
            answers = self._under_way.get(number)
            if isinstance(answers, JoinedAnswers):
                answers.leave(places)

    # --- answers ------------------------------------------------------------------------------------------------------------

    def _answer(self, asked: _Asked, done: asyncio.Future[Sequence[Any]]) -> None:
        self._under_way.pop(asked.number, None)
        self._unanswered_bytes -= asked.size_bytes
        claims = None
        if (error := done.exception()) is None:
            answers = done.result()
            claims = AnsweredClaims(asked.shard, asked.items, answers) if asked.kind is CallKind.CLAIM else None
            try:
                message = messages.answer(asked.number, answers, self._version)
            except Exception:  # a bug: it must not keep back the other answers
                logger.exception("the answer to a forwarded call can't be encoded")
                if claims is not None:
                    self._give_back(claims)
                error = OutcomeUnknown("The server that owns the queue failed to answer")
        elif not isinstance(error, PinLaterError):
            logger.error("a forwarded call failed by a bug", exc_info=error)
            error = PinLaterError("The server failed; its log says more")
        if error is not None:
            message, claims = failed(asked.number, error), None
        self.answer(message, claims)
        self._read_or_not()

    def _give_back(self, claims: AnsweredClaims) -> None:
        self._listener.undelivered(claims)

    @property
    def nonce(self) -> bytes:
        """The nonce of its hello; empty before the hello."""
        return b"" if self._hello is None else self._hello.nonce

    @property
    def owes_answers(self) -> bool:
        """Whether a call of the other server is not answered, or an answer is not sent."""
        return bool(self._under_way or self._said or self.unsent_bytes)

    # --- a server that doesn't read -----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Stops reading calls and sending answers while the other server does not read its answers."""
        super().pause_writing()
        self._read_or_not()
        self._watch_taken()

    def resume_writing(self) -> None:
        self._may_write = True
        if self._watch is not None:
            self._watch.cancel()
        if self._is_to_tell:
            self.tell_running()
        super().resume_writing()
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        wanted = self._may_write and self._unanswered_bytes <= UNANSWERED_BYTES_MAX
        if wanted and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not wanted and self._transport.is_reading():
            self._transport.pause_reading()

    def _watch_taken(self) -> None:
        self._watch = self._loop.call_later(self._listener.limit_s, self._look_at_taken, self._taken_bytes)

    def _look_at_taken(self, before_bytes: int) -> None:
        if self._taken_bytes > before_bytes:
            self._watch_taken()
            return
        logger.warning("a server's connection was closed", extra={"peer": self.peer, "reason": "it reads no answers"})
        self.abort()

    @property
    def _taken_bytes(self) -> int:
        """Returns how many of the written bytes the kernel has accepted, which it does as the other server reads."""
        return self.written_bytes - self.unsent_bytes

    # --- life ---------------------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """Its host. Without its port: each connection has another one, and a log folds only identical lines."""
        if self._transport is None:
            return ""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if name else "a process of the same supervisor"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(UNTAKEN_BYTES_MAX)
        self._deadline = self._loop.call_later(self._listener.add(self), self.abort)

    def _greet(self, message: bytes) -> None:
        if self._hello is None:
            self._hello = handshake.decoded(message, handshake.Hello)
            answered, self._nonce = handshake.welcome(self._hello, self._listener.known_secrets(), self._binding)
            self._version = answered.version
            self._write(frame(answered))
            return
        proof = handshake.decoded(message, handshake.Proof)
        handshake.check(self._hello, self._nonce, proof, self._listener.known_secrets(), self._binding)
        self.proven = True
        self._listener.settle(self._hello.lost)
        self.tell_waits()
        self._taken = self._listener.taken.of(self.address)
        self._listener.look(self.address)
        self._frames.limit_bytes = FRAME_BYTES_MAX
        if self._deadline is not None:
            self._deadline.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.discard(self)
        for timer in (self._deadline, self._watch, self._telling):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._hello is not None and self.proven:
            self._listener.lost.keep(self._hello.nonce, self.unconfirmed)

    def tell_waits(self) -> None:
        """Tells the other server which queues the dequeues of this server wait for."""
        if self.proven:
            self.tell(messages.waits(self._listener.waits))

    def tell_running(self) -> None:
        """Tells the other server that this one runs, and what it has changed: at once, or when the other one reads its answers again."""
        self._is_to_tell = not self._may_write
        if self.proven and self._may_write:
            self.tell(messages.running(self._listener.told(), self._version))

    def _tell_workers(self, question: WorkersQuestion) -> None:
        """Answers a question about workers. A new question ends the previous answer, and a server that does not read gets none."""
        if self._telling is not None:
            self._telling.cancel()
        if self._may_write:
            self._telling = self._loop.create_task(self._write_workers(question))

    async def _write_workers(self, question: WorkersQuestion) -> None:
        known = await self._listener.workers(question.workers_max)
        for start in range(0, len(known.workers), _WORKERS_A_PAGE):
            page = WorkersPage(question.number, known.workers[start : start + _WORKERS_A_PAGE])
            self.tell(messages.workers_page(page, self._version))
            await asyncio.sleep(0)
        last = WorkersPage(question.number, (), known._replace(workers=()))
        self.tell(messages.workers_page(last, self._version))

    def say_goodbye(self) -> None:
        if self.proven:
            super().say_goodbye()

    def end(self, taken: int) -> None:
        """Notes that this connection is lost, as the other server reports. `taken`: how many answers that server received."""
        self.confirm(taken)
        self.give_back_unconfirmed()
        self.abort()
