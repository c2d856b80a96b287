"""A connection of another server of the same shards: its proof, its calls, and their answers.

What the other server may have under way is bounded in bytes, and so are answers that it does not take: beyond that it is read no further
until answers have gone out. One that takes none for the time of a call is disconnected, and answers that were not written are given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.server.cluster.forwarding import handshake, messages
from pinlater.server.cluster.forwarding.carry_out import JoinedAnswers
from pinlater.server.cluster.forwarding.frames import Frames
from pinlater.server.cluster.forwarding.messages import (
    FRAME_BYTES_MAX,
    BadMessage,
    CallKind,
    Part,
    PartAnswer,
    WorkersPage,
    WorkersQuestion,
)
from pinlater.server.cluster.forwarding.traffic import Traffic
from pinlater.server.cluster.forwarding.unconfirmed_claims import AnsweredClaims, UnconfirmedClaims
from pinlater.wire.wrong_port import begins_tls

if TYPE_CHECKING:
    from pinlater.server.cluster.forwarding.peer_listener import PeerListener

logger = logging.getLogger(__name__)

# Of one server's calls that are not answered.
UNANSWERED_BYTES_MAX = 64 * 1024 * 1024
# Of answers that one server has not taken; and of one frame of answers, above which others go in the next one.
UNTAKEN_BYTES_MAX = 16 * 1024 * 1024
_FRAME_BYTES = 4 * 1024 * 1024
_WORKERS_A_PAGE = 250


class _Answered(NamedTuple):
    """A part that has been carried out."""

    number: int
    kind: CallKind
    shard: str
    items: Sequence[Any]
    done: asyncio.Future[Sequence[Any]]

    def as_message(self) -> PartAnswer:
        error = self.done.exception()
        if error is None:
            return messages.answer(self.number, self.done.result())
        if not isinstance(error, PinLaterError):
            logger.error("a forwarded call failed by a bug", exc_info=error)
            error = PinLaterError("The server failed; its log says more")
        return messages.failed(self.number, error)


class IncomingConnection(asyncio.Protocol):
    """A connection of another server. `binding`: what proofs over it are bound to."""

    def __init__(self, listener: PeerListener, loop: asyncio.AbstractEventLoop, binding: bytes = b"") -> None:
        self._binding = binding
        self._listener = listener
        self._loop = loop
        self._frames = Frames(handshake.HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._hello: handshake.Hello | None = None
        self._nonce = b""
        self._version = 0  # which both sides speak
        self._deadline: asyncio.TimerHandle | None = None
        self._out: deque[_Answered] = deque()
        self._under_way = 0  # parts
        self._may_be_left: dict[int, JoinedAnswers] = {}  # of the parts under way, by number
        self._unanswered_bytes = 0
        self._answers = 0  # written
        self._unconfirmed = UnconfirmedClaims()
        self._may_write = True  # the other server takes its answers
        self._is_to_tell = False  # when it takes them again
        self._written_bytes = 0
        self._watch: asyncio.TimerHandle | None = None  # while it does not
        self._taken = Traffic()
        self._telling: asyncio.Task[None] | None = None  # which workers are known here
        self.proven = False
        self.heard_s = listener.monotonic()

    @property
    def address(self) -> str:
        """The address that the other server has announced."""
        return "" if self._hello is None else self._hello.address

    # --- calls --------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._listener.still_runs():
            return  # it has closed the connections
        self.heard_s = self._listener.monotonic()
        if self._hello is None and begins_tls(data):
            logger.warning(
                "a server speaks TLS, which this one does not (tls.certificate_file)", extra={"peer": self.peer}
            )
            self.abort()
            return
        try:
            for message in self._frames.feed(data):
                if self.proven:
                    self._begin(message)
                else:
                    self._greet(message)
        except BadMessage as error:
            level = logging.WARNING if self.proven else logging.INFO  # anything may connect
            logger.log(level, "a server's connection was closed", extra={"peer": self.peer, "reason": str(error)})
            self.abort()

    def _begin(self, message: bytes) -> None:
        parts = messages.parts_of(message)
        share = len(message) // max(1, len(parts))
        for part in parts:
            if part.number <= 0:
                self._hear(part, alone=len(parts) == 1)
                continue
            items = messages.items_of(part)
            kind = CallKind(part.kind)
            self._taken.count(kind, len(items))
            self._unanswered_bytes += share
            self._under_way += 1
            answers = self._listener.carry_out(kind, part.shard, items, part.begin_by_ms, part.sent_ms)
            if isinstance(answers, JoinedAnswers):
                self._may_be_left[part.number] = answers
            answers.add_done_callback(
                lambda done, number=part.number, kind=kind, shard=part.shard, items=items: self._answer(  # type: ignore[misc]
                    done, number, kind, shard, items, share
                )
            )
        self._read_or_not()

    def _hear(self, part: Part, *, alone: bool) -> None:
        """A part that is no call. `alone`: whether it has the frame for itself, as it must: each is bounded, and so are all in a frame."""
        if not alone:
            raise BadMessage(f"a message of kind {part.number} that has no frame of its own")
        match part.number:
            case messages.WAKES:
                self._listener.take_wakes(messages.wakes_of(part))
            case messages.RUNNING:
                self._unconfirmed.confirm(messages.taken_of(part))
                self.tell()
            case messages.LOOK:
                self._listener.look(self.address)
            case messages.WORKERS:
                self._tell_workers(messages.workers_question_of(part))
            case messages.LEFT:
                self._leave(part)
            case unknown:
                raise BadMessage(f"a message of unknown kind {unknown}")

    def _leave(self, part: Part) -> None:
        """Leaves out what has not begun for callers that have gone."""
        for number, places in messages.callers_left_of(part):
            if number in self._may_be_left:
                self._may_be_left[number].leave(places)

    def _answer(
        self,
        done: asyncio.Future[Sequence[Any]],
        number: int,
        kind: CallKind,
        shard: str,
        items: Sequence[Any],
        size: int,
    ) -> None:
        self._under_way -= 1
        self._may_be_left.pop(number, None)
        self._unanswered_bytes -= size
        self._out.append(_Answered(number, kind, shard, items, done))
        if len(self._out) == 1:
            self._loop.call_soon(self._flush)
        self._read_or_not()

    def _flush(self) -> None:
        """Writes answers for as long as the other server takes them. Those of a connection that is over are given back."""
        if self._transport is None or self._transport.is_closing():
            self._give_back_all()
            return
        while self._out and self._may_write:
            parts: list[PartAnswer] = []
            size_bytes = 0
            while self._out and size_bytes < _FRAME_BYTES:
                answered = self._out.popleft()
                parts.append(self._message_of(answered))
                size_bytes += len(bytes(parts[-1].answers))
            self._write(messages.frame(parts))

    def _message_of(self, answered: _Answered) -> PartAnswer:
        self._answers += 1
        try:
            message = answered.as_message()
        except Exception:  # a bug: it must not keep back the other answers
            logger.exception("the answer to a forwarded call can't be encoded")
            self._give_back([answered])
            return messages.failed(answered.number, OutcomeUnknown("The server that owns the queue failed to answer"))
        if answered.kind is CallKind.CLAIM and answered.done.exception() is None:
            self._unconfirmed.add(AnsweredClaims(self._answers, answered.shard, answered.items, answered.done.result()))
        return message

    def _give_back_all(self) -> None:
        out, self._out = self._out, deque()
        self._give_back(out)

    def _give_back(self, out: Collection[_Answered]) -> None:
        self._taken.count_lost(sum([len(answered.items) for answered in out]))
        for answered in out:
            if answered.done.exception() is None:
                self._listener.undelivered(answered.kind, answered.shard, answered.items, answered.done.result())

    @property
    def nonce(self) -> bytes:
        """The nonce of its hello; empty before that."""
        return b"" if self._hello is None else self._hello.nonce

    @property
    def owes_answers(self) -> bool:
        """Whether something that the other server asked for is not answered, or an answer is not sent."""
        return bool(
            self._under_way
            or self._out
            or (self._transport is not None and self._transport.get_write_buffer_size() > 0)
        )

    # --- a server that doesn't read -----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The other server has not taken its answers: it gets no more of them, and no calls of it are read."""
        self._may_write = False
        self._read_or_not()
        self._watch_taken()

    def resume_writing(self) -> None:
        self._may_write = True
        if self._watch is not None:
            self._watch.cancel()
        if self._is_to_tell:
            self.tell()
        self._flush()
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
        """How much of what was written the other server's side has taken."""
        return self._written_bytes - (0 if self._transport is None else self._transport.get_write_buffer_size())

    # --- life ---------------------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """Its host. Not its port: each connection has another one, and a log folds only lines that are the same."""
        if self._transport is None:
            return ""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if name else "a process of the same supervisor"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNTAKEN_BYTES_MAX)
        self._deadline = self._loop.call_later(self._listener.add(self), self.abort)

    def _greet(self, message: bytes) -> None:
        if self._hello is None:
            self._hello = handshake.decoded(message, handshake.Hello)
            answered, self._nonce = handshake.welcome(self._hello, self._listener.known_secrets(), self._binding)
            self._version = answered.version
            self._write(handshake.encoded(answered))
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
        del exc
        self._transport = None
        self._listener.discard(self)
        for timer in (self._deadline, self._watch, self._telling):
            if timer is not None:
                timer.cancel()
        self._give_back_all()
        if self._hello is not None and self.proven:
            self._listener.lost.keep(self._hello.nonce, self._unconfirmed)

    def tell_waits(self) -> None:
        """Says which queues the dequeues of this server wait for."""
        if self.proven:
            self._write(messages.frame([messages.waits(self._listener.waits)]))

    def tell(self) -> None:
        """Says that this server runs, and what it has changed: at once, or when the other one takes its answers again."""
        self._is_to_tell = not self._may_write
        if self.proven and self._may_write:
            self._write(messages.frame([messages.running(self._listener.told(), self._version)]))

    def _tell_workers(self, question: WorkersQuestion) -> None:
        """A new question ends the answer to the one before. The other server gets none while it does not read."""
        if self._telling is not None:
            self._telling.cancel()
        if self._may_write:
            self._telling = self._loop.create_task(self._write_workers(question))

    async def _write_workers(self, question: WorkersQuestion) -> None:
        known = await self._listener.workers(question.workers_max)
        for start in range(0, len(known.workers), _WORKERS_A_PAGE):
            page = WorkersPage(question.number, known.workers[start : start + _WORKERS_A_PAGE])
            self._write(messages.frame([messages.workers_page(page, self._version)]))
            await asyncio.sleep(0)
        last = WorkersPage(question.number, (), known._replace(workers=()))
        self._write(messages.frame([messages.workers_page(last, self._version)]))

    def say_goodbye(self) -> None:
        """This server stops: the other one is to send no more."""
        if self.proven:
            self._write(messages.frame([messages.I_AM_STOPPING]))

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._written_bytes += len(frame)
            self._transport.write(frame)

    def end(self, taken: int) -> None:
        """The other server says that this connection is lost. `taken`: how many answers it got."""
        unconfirmed, self._unconfirmed = self._unconfirmed, UnconfirmedClaims()
        for claims in unconfirmed.all():
            if claims.place > taken:
                self._listener.give_back(claims)
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
