"""The side of the store process: executes calls of front processes with its own operations.

The calls of a front under way are bounded by its own memory for requests. Answers that a front does not read are bounded here; beyond the
bound it is disconnected. Claims in an answer that the kernel did not take are given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

from msgspec import Raw

from pinlater.domain.errors import Draining, PinLaterError, RequestTooOld
from pinlater.server.front import messages
from pinlater.server.front.messages import StoreState, Undelivered
from pinlater.server.front.operations import Operation
from pinlater.server.front.stepping import step
from pinlater.server.link.answering import AnsweringSide, Listener
from pinlater.server.link.messages import (
    FRAME_BYTES_MAX,
    BadMessage,
    Part,
    PartAnswer,
    decoded,
    failed,
    message_of_answering,
)
from pinlater.server.operations.service import Service
from pinlater.wire.generated.structs import FrontProcess

logger = logging.getLogger(__name__)

# How long a front that does not stop by itself may continue to send calls, once this process stops.
_LAST_CALL_S = 0.25


class FrontListener(Listener["_Front"]):
    """`operations`: those that fronts may call. `stop_waiting(tasks)`: ends the wait of dequeues that run in these tasks. `still_runs()`:
    False if this process stood still. `too_old(began_s)`: whether no call may be begun that a front made then.

    `untaken_bytes_max`: the most bytes of answers to one front that the kernel has not accepted. `taken` counts calls since the start.
    """

    def __init__(
        self,
        service: Service,
        operations: Sequence[Operation],
        stop_waiting: Callable[[Collection[asyncio.Task[Any]]], None],
        still_runs: Callable[[], bool],
        untaken_bytes_max: int,
        too_old: Callable[[float], bool] = lambda _: False,
    ) -> None:
        super().__init__(still_runs)
        self.too_old = too_old
        self.service = service
        self.operations = operations
        self.stop_waiting = stop_waiting
        self.untaken_bytes_max = untaken_bytes_max
        self.state = StoreState(True)
        self.taken = 0

    def _new(self) -> _Front:
        return _Front(self)

    def processes(self) -> Sequence[FrontProcess]:
        """Returns the connected fronts that have reported their numbers, by number. Two connections of one process are both included."""
        told = [front.process for front in self._connections if front.number is not None]
        return sorted(told, key=lambda process: process.number)

    def add(self, front: _Front) -> None:
        """Adds a new connection."""
        self._connections[front] = None

    def tell(self, state: StoreState) -> None:
        """Tells all fronts whether this process is ready, if that has changed."""
        if state != self.state:
            self.state = state
            for front in self._connections:
                front.tell_state()

    async def drain(self, grace_s: float) -> None:
        """Stops listening. Lets fronts that stop, too, finish first, and tells the others to send nothing more."""
        self._stop_listening()
        if not await self._until(lambda: all(front.drains for front in self._connections), min(grace_s, _LAST_CALL_S)):
            for front in self._connections:
                if not front.drains:
                    front.say_goodbye()
        if not await self._until(lambda: not self._connections, grace_s):
            extra = {"processes": len(self._connections)}
            logger.warning("front processes still ask while this one stops", extra=extra)


class _Front(AnsweringSide[Undelivered]):
    """The connection of a front process. Claims go back unless the kernel has all of the frame with them: then the front can read it."""

    def __init__(self, listener: FrontListener) -> None:
        super().__init__(FRAME_BYTES_MAX)
        self._listener = listener
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._long: set[asyncio.Task[Any]] = set()  # those that wait or search
        self.drains = False
        self.number: int | None = None
        self._calls_taken = self._calls_answered = 0

    @property
    def process(self) -> FrontProcess:
        """Returns what this process knows about the front, which must have reported its number."""
        return FrontProcess(
            self.number or 0,
            self._calls_taken,
            self._calls_taken - self._calls_answered,
            len(self._long),
            self.untaken_bytes,
        )

    # --- calls --------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._listener.still_runs():  # otherwise the loop has closed the connections
            super().data_received(data)

    def _refuse(self, error: BadMessage) -> None:
        logger.error("the connection of a front process is closed", exc_info=error)

    def _told(self, message: Part) -> None:
        match message.number:
            case messages.UNDELIVERED:
                self._listener.service.dequeuing.undelivered(*decoded(messages.UNDELIVERED_CLAIMS, message.items))
            case messages.CANCEL:
                task = self._tasks.get(decoded(messages.NUMBER, message.items))
                if task is not None:
                    task.cancel()
            case messages.PROCESS:
                self.number = decoded(messages.NUMBER, message.items)
            case messages.DRAINS:
                self.drains = True
                self._listener.stop_waiting(self._long)
            case unknown:
                raise BadMessage(f"a message of unknown kind {unknown}")

    def _begin(self, part: Part, share_bytes: int) -> None:
        del share_bytes
        number = part.number
        operations = self._listener.operations
        if not 0 <= part.kind < len(operations):
            raise BadMessage(f"a call of unknown operation {part.kind}")
        operation = operations[part.kind]
        self._listener.taken += 1
        self._calls_taken += 1
        if self._listener.too_old(part.sent_ms / 1000):
            self._answer(number, operation, (), None, RequestTooOld())
            return
        try:
            arguments = operation.arguments.decode(part.items)
        except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
            self._answer(number, operation, (), None, error)
            return
        coroutine = operation.begin(self._listener.service, arguments)
        if operation.is_quick or (operation.hands_out and not arguments[1].wait_ms):
            step(coroutine, partial(self._answer, number, operation, arguments))
            return
        task = self._tasks[number] = self._loop.create_task(coroutine)
        task.add_done_callback(partial(self._ended, number, operation, arguments))
        if operation.may_take_long:
            self._long.add(task)
            if self.drains:
                self._listener.stop_waiting([task])

    # --- answers ------------------------------------------------------------------------------------------------------------

    def _ended(self, number: int, operation: Operation, arguments: tuple[Any, ...], done: asyncio.Task[Any]) -> None:
        del self._tasks[number]
        self._long.discard(done)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._answer(number, operation, arguments, None if error else done.result(), error)

    def _answer(
        self,
        number: int,
        operation: Operation,
        arguments: tuple[Any, ...],
        result: Any,
        error: BaseException | None,
    ) -> None:
        claims = None
        if isinstance(error, asyncio.CancelledError):
            error = Draining()
        if isinstance(error, PinLaterError):
            message = failed(number, error)
        elif error is not None:
            logger.error("request failed", exc_info=error, extra={"operation": operation.path})
            message = messages.bug(number)
        else:
            if operation.hands_out and result.claimed:
                claims = Undelivered(arguments[1].queue, result.claimed)
            try:
                message = PartAnswer(number, Raw(messages.encoded(result)), {})
            except Exception:  # a bug: it must not keep back the other answers
                logger.exception("an answer can't be encoded", extra={"operation": operation.path})
                if claims is not None:
                    self._give_back(claims)
                message, claims = messages.bug(number), None
        self._calls_answered += 1
        self.answer(message, claims)
        if not self._may_write:
            self._check_untaken()

    def _check_untaken(self) -> None:
        if self.untaken_bytes > self._listener.untaken_bytes_max:
            logger.warning("a front process does not take its answers and is disconnected")
            self.abort()

    def _give_back(self, claims: Undelivered) -> None:
        self._listener.service.dequeuing.undelivered(*claims)

    def _write(self, data: bytes) -> None:
        super()._write(data)
        if self._may_write:  # the kernel has all
            self.confirm(self.answers)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_untaken()

    def resume_writing(self) -> None:
        self.confirm(self.answers)
        super().resume_writing()

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=0)
        self._listener.add(self)
        self.tell_state()

    def tell_state(self) -> None:
        """Reports whether this process is ready."""
        self.tell(message_of_answering(messages.STATE, self._listener.state))

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.discard(self)
        super().connection_lost(exc)
        self.give_back_unconfirmed()
        for task in self._long:
            task.cancel()
