"""The store process's side: carries out what front processes ask for, with its own operations.

What a front may have under way is bounded by its own memory for requests. Answers that a front does not take are bounded here; beyond that
it is disconnected. Claims in an answer that the kernel did not take are given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

from pinlater.domain.calls import FrontProcess
from pinlater.domain.errors import Draining, PinLaterError, RequestTooOld
from pinlater.server.cluster.forwarding.frames import Frames
from pinlater.server.cluster.forwarding.messages import FRAME_BYTES_MAX, BadMessage
from pinlater.server.front import messages
from pinlater.server.front.frame_writer import FrameWriter
from pinlater.server.front.messages import StoreState, Undelivered
from pinlater.server.front.operations import DEQUEUE, OPERATIONS, Operation
from pinlater.server.front.stepping import Stepping
from pinlater.server.operations.service import Service

logger = logging.getLogger(__name__)

# How long a front that does not stop by itself may go on asking, once this process stops.
_LAST_CALL_S = 0.25


class FrontListener:
    """`stop_waiting(tasks)`: dequeues that run in these tasks wait no longer. `still_runs()`: False where this process stood still.
    `too_old(began_s)`: whether no call of a frame may be begun that a front began then.

    `untaken_bytes_max`: of answers that one front has not taken. `taken` counts calls since the start.
    """

    def __init__(
        self,
        service: Service,
        stop_waiting: Callable[[Collection[asyncio.Task[Any]]], None],
        still_runs: Callable[[], bool],
        untaken_bytes_max: int,
        too_old: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self.too_old = too_old
        self.service = service
        self.stop_waiting = stop_waiting
        self.still_runs = still_runs
        self.untaken_bytes_max = untaken_bytes_max
        self.state = StoreState(True)
        self.taken = 0
        self._server: asyncio.Server | None = None
        self._fronts: set[_Front] = set()
        self._changed = asyncio.Event()  # a front has gone, or says that it stops

    @property
    def connections(self) -> int:
        """How many fronts are connected."""
        return len(self._fronts)

    def processes(self) -> Sequence[FrontProcess]:
        """The fronts that are connected and have said their numbers, by number. Of two connections of one process, both."""
        return sorted(front.process for front in self._fronts if front.number is not None)

    async def open(self, path: str) -> None:
        """Listens at `path`, instead of a process that had it before. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 a moment's work, before anything else is served
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Front(self), path)

    def tell(self, state: StoreState) -> None:
        """Tells all fronts whether this process is ready, if that has changed."""
        if state != self.state:
            self.state = state
            for front in self._fronts:
                front.tell()

    async def drain(self, grace_s: float) -> None:
        """Listens no more. Lets fronts that stop, too, finish first, and tells the others to ask for nothing more."""
        self._stop_listening()
        if not await self._until(lambda: all(front.drains for front in self._fronts), min(grace_s, _LAST_CALL_S)):
            for front in self._fronts:
                if not front.drains:
                    front.say_goodbye()
        if not await self._until(lambda: not self._fronts, grace_s):
            logger.warning("front processes still ask while this one stops", extra={"processes": len(self._fronts)})

    async def _until(self, true: Callable[[], bool], seconds: float) -> bool:
        """Whether it became true within this time."""
        try:
            async with asyncio.timeout(seconds):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Listens no more, and ends the connections."""
        self._stop_listening()
        self.abort_connections()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def abort_connections(self) -> None:
        """Closes all connections without reading what lies in them."""
        for front in list(self._fronts):
            front.abort()

    # --- told by connections ------------------------------------------------------------------------------------------------

    def add(self, front: _Front) -> None:
        """A new connection."""
        self._fronts.add(front)

    def discard(self, front: _Front) -> None:
        """The connection is over."""
        self._fronts.discard(front)
        self._changed.set()

    def note_stop(self) -> None:
        """A front process says that it stops."""
        self._changed.set()


class _Front(asyncio.Protocol):
    """The connection of a front process."""

    def __init__(self, listener: FrontListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(FRAME_BYTES_MAX)
        self._out = FrameWriter(self._write)
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._long: set[asyncio.Task[Any]] = set()  # those that wait or search
        self._may_write = True  # the front takes its answers
        # Frames that the kernel has not taken, with the claims in them; of the first it may have a part.
        self._kept: deque[tuple[bytes, Sequence[Undelivered]]] = deque()
        self._kept_bytes = 0
        self.drains = False
        self.number: int | None = None
        self._late = False  # the frame that is read now
        self._calls_taken = self._calls_answered = 0

    @property
    def process(self) -> FrontProcess:
        """What this process knows of it. It must have said its number."""
        return FrontProcess(
            self.number or 0,
            self._calls_taken,
            self._calls_taken - self._calls_answered,
            len(self._long),
            self._kept_bytes,
        )

    # --- calls --------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._listener.still_runs():
            return  # it has closed the connections
        try:
            for frame in self._frames.feed(data):
                for number, word, value in messages.messages_of(frame):
                    if number > 0:
                        self._begin(number, word, value)
                    else:
                        self._told(number, value)
        except BadMessage:
            logger.exception("the connection of a front process is closed")
            self.abort()

    def _told(self, number: int, value: Any) -> None:
        if number == messages.UNDELIVERED:
            undelivered = messages.undelivered_of(value)
            self._listener.service.dequeuing.undelivered(*undelivered)
        elif number == messages.CANCEL:
            task = self._tasks.get(messages.number_of(value))
            if task is not None:
                task.cancel()
        elif number == messages.BEGAN:
            self._late = self._listener.too_old(messages.seconds_of(value))
        elif number == messages.PROCESS:
            self.number = messages.number_of(value)
        elif number == messages.DRAINS:
            self.drains = True
            self._listener.note_stop()
            self._listener.stop_waiting(self._long)

    def _begin(self, number: int, word: int, value: Any) -> None:
        if not 0 <= word < len(OPERATIONS):
            raise BadMessage(f"a call of unknown operation {word}")
        operation = OPERATIONS[word]
        self._listener.taken += 1
        self._calls_taken += 1
        if self._late:
            self._calls_answered += 1
            self._out.add(number, messages.FAILURE, messages.failed(RequestTooOld()))
            return
        try:
            arguments = operation.arguments.decode(value)
        except Exception:  # a bug: it must reach its own caller and no other
            logger.exception("a call can't be decoded", extra={"operation": operation.path})
            self._calls_answered += 1
            self._out.add(number, messages.BUG, messages.NOTHING)
            return
        coroutine = operation.begin(self._listener.service, arguments)
        if operation.is_quick or (operation is DEQUEUE and not arguments[1].wait_ms):
            Stepping(coroutine, partial(self._answer, number, operation, arguments)).begin()
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
        if done.cancelled():
            self._answer(number, operation, arguments, None, asyncio.CancelledError())
        elif (error := done.exception()) is not None:
            self._answer(number, operation, arguments, None, error)
        else:
            self._answer(number, operation, arguments, done.result(), None)

    def _answer(
        self,
        number: int,
        operation: Operation,
        arguments: tuple[Any, ...],
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._calls_answered += 1
        if error is None:
            self._answer_with(number, operation, arguments, result)
        elif isinstance(error, PinLaterError):
            self._out.add(number, messages.FAILURE, messages.failed(error))
        elif isinstance(error, asyncio.CancelledError):
            self._out.add(number, messages.FAILURE, messages.failed(Draining()))
        else:
            logger.error("request failed", exc_info=error, extra={"operation": operation.path})
            self._out.add(number, messages.BUG, messages.NOTHING)

    def _answer_with(self, number: int, operation: Operation, arguments: tuple[Any, ...], result: Any) -> None:
        claims = Undelivered(arguments[1].queue, result.claimed) if operation is DEQUEUE and result.claimed else None
        try:
            value = messages.encoded(result)
        except Exception:  # a bug: it must not keep back the other answers
            logger.exception("an answer can't be encoded", extra={"operation": operation.path})
            self._out.add(number, messages.BUG, messages.NOTHING)
            self._give_back([] if claims is None else [claims])
            return
        self._out.add(number, messages.RESULT, value, claims)

    def _write(self, frame: bytes, claims: Sequence[Undelivered]) -> None:
        """Writes a frame, or keeps it until the kernel takes more. The kernel has all of a frame, or the front can't read it."""
        if self._transport is None:
            self._give_back(claims)
            return
        self._kept.append((frame, claims))
        self._kept_bytes += len(frame)
        self._write_kept()
        if self._kept_bytes > self._listener.untaken_bytes_max:
            logger.warning("a front process does not take its answers and is disconnected")
            self.abort()

    def _write_kept(self) -> None:
        while self._kept and self._may_write and self._transport is not None:
            self._transport.write(self._kept[0][0])
            if self._may_write:
                self._taken()

    def _taken(self) -> None:
        frame, _ = self._kept.popleft()
        self._kept_bytes -= len(frame)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        if self._transport is not None:
            self._taken()
            self._write_kept()

    def _give_back(self, claims: Sequence[Undelivered]) -> None:
        for each in claims:
            self._listener.service.dequeuing.undelivered(*each)

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._listener.add(self)
        self.tell()

    def tell(self) -> None:
        """Says whether this process is ready."""
        self._out.add(messages.STATE, 0, messages.encoded(self._listener.state))

    def say_goodbye(self) -> None:
        """This process stops: the front is to ask for nothing more."""
        self._out.add(messages.GOODBYE, 0, messages.NOTHING)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._listener.discard(self)
        kept, self._kept = self._kept, deque()
        for _, claims in kept:
            self._give_back(claims)
        for task in self._long:
            task.cancel()

    def abort(self) -> None:
        """Closes it without writing the rest."""
        if self._transport is not None:
            self._transport.abort()
