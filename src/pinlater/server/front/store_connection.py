"""A front process's side of the connection to the store process: many calls in each frame, answers in any order.

A connection that is lost says of each call whether it was sent: one that was may have been carried out or not. Nothing is sent twice. A
call for which there is no connection fails at once; the connection is made again in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

from pinlater.domain.errors import Draining, OutcomeUnknown, PinLaterError, RequestTooOld, ShardConnectionFailed
from pinlater.server.cluster.forwarding.frames import Frames
from pinlater.server.cluster.forwarding.messages import FRAME_BYTES_MAX, BadMessage
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.front import messages
from pinlater.server.front.frame_writer import FrameWriter
from pinlater.server.front.operations import DEQUEUE, Operation
from pinlater.server.operations.standstill import Standstill
from pinlater.server.operations.values import DequeueResult

logger = logging.getLogger(__name__)

_PAUSE_S = 0.05
_CLOSE_S = 1.0
_RETRY_AFTER_MS = 500


class StoreProcessFailed(Exception):
    """The store process failed by a bug; its log says more."""


class StoreConnection:
    """To the store process that listens at `path`, from the process of this number. `start`, then `close`. Counts since its start: `sent`,
    `lost` (no answer came). `standstill`: of this process; what it received before one is not sent."""

    def __init__(
        self, path: str, number: int, standstill: Standstill, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._path = path
        self._number = number
        self._standstill = standstill
        self._changed = changed
        self._connection: _FrameConnection | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._drains = False
        self.connected = asyncio.Event()
        self.sent = 0
        self.lost = 0

    @property
    def state(self) -> messages.StoreState:
        """What the store process says of itself, or that there is none."""
        connection = self._connection
        if connection is None or connection.state is None:
            return messages.StoreState(False, ("the process that has the store is not reachable",))
        return connection.state

    @property
    def unanswered(self) -> int:
        """Calls that were sent and are not answered."""
        return 0 if self._connection is None else self._connection.unanswered

    def start(self) -> None:
        """Connects, and connects again whenever the connection is lost."""
        self._keeping = asyncio.create_task(self._keep())

    def call(self, operation: Operation, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """The future of the operation's result. Cancel it if the caller has gone."""
        connection = self._connection
        if connection is not None and connection.usable and self._standstill.still_runs():
            self.sent += 1
            return connection.call(operation, arguments)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(_not_sent(connection))
        return future

    def undelivered(self, queue: str, claimed: Sequence[FromShard]) -> None:
        """No client got these jobs."""
        if self._connection is not None:
            self._connection.undelivered(queue, claimed)

    def drain(self) -> None:
        """This process stops: its dequeues wait no longer."""
        self._drains = True
        if self._connection is not None:
            self._connection.drain()

    async def close(self) -> None:
        """Ends the connection, and with it the calls under way."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        connection = self._connection
        if connection is not None:
            connection.close()
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await connection.lost.wait()
            except TimeoutError:  # the store process does not read
                connection.abort()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection = _FrameConnection(self._number, self._standstill.monotonic, self._connection_changed)
            try:
                await loop.create_unix_connection(lambda connection=connection: connection, self._path)  # type: ignore[misc]
            except OSError as error:
                logger.debug("no connection to the process that has the store", extra={"reason": str(error)})
            else:
                self._connection = connection
                if self._drains:
                    connection.drain()
                self._connection_changed()  # it may have said its state before the loop came here
                await connection.lost.wait()
                self.lost += connection.answers_lost
                if not self._drains:
                    logger.warning(
                        "the connection to the process that has the store is lost",
                        extra={"calls": connection.answers_lost},
                    )
                self._connection = None
                self._connection_changed()
            await asyncio.sleep(_PAUSE_S)

    def _connection_changed(self) -> None:
        if self._connection is not None and self._connection.usable:
            self.connected.set()
        else:
            self.connected.clear()
        self._changed()


class _CallOfOperation:
    """A call that was sent, or will be at the end of the turn."""

    __slots__ = ("future", "operation", "queue")

    def __init__(self, operation: Operation, arguments: tuple[Any, ...], future: asyncio.Future[Any]) -> None:
        self.operation = operation
        self.future = future
        self.queue: str = arguments[1].queue if operation is DEQUEUE else ""


class _FrameConnection(asyncio.Protocol):
    """One connection of the process of this number. `changed()` is called when its state has changed."""

    def __init__(self, number: int, monotonic: Callable[[], float], changed: Callable[[], None]) -> None:
        self._number = number
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(FRAME_BYTES_MAX)
        self._out = FrameWriter(self._write, lambda: messages.began(monotonic()))
        self._transport: asyncio.Transport | None = None
        self._numbers = 0
        self._calls: dict[int, _CallOfOperation] = {}
        self.state: messages.StoreState | None = None
        self.stopping = False  # the store process, as it said
        self.lost = asyncio.Event()
        self.answers_lost = 0

    @property
    def usable(self) -> bool:
        """Whether calls may be sent."""
        return self._transport is not None and self.state is not None and not self.stopping

    @property
    def unanswered(self) -> int:
        """Calls that were sent and are not answered."""
        return len(self._calls)

    # --- asking -------------------------------------------------------------------------------------------------------------

    def call(self, operation: Operation, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """The future of the result."""
        future: asyncio.Future[Any] = self._loop.create_future()
        try:
            value = messages.encoded(arguments)
        except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
            future.set_exception(error)
            return future
        number = self._numbers = self._numbers + 1
        self._calls[number] = _CallOfOperation(operation, arguments, future)
        if operation.may_take_long:
            future.add_done_callback(lambda done: self._cancel(number) if done.cancelled() else None)
        self._out.add(number, operation.number, value)
        return future

    def _cancel(self, number: int) -> None:
        """The caller has gone. The answer comes all the same."""
        if number in self._calls:
            self._out.add(messages.CANCEL, 0, messages.encoded(number))

    def undelivered(self, queue: str, claimed: Sequence[FromShard]) -> None:
        """No client got these jobs."""
        bare = [part._replace(jobs=[job._replace(body=b"") for job in part.jobs]) for part in claimed]
        self._out.add(messages.UNDELIVERED, 0, messages.encoded(messages.Undelivered(queue, bare)))

    def drain(self) -> None:
        """This process stops."""
        self._out.add(messages.DRAINS, 0, messages.NOTHING)

    def _write(self, frame: bytes, _: object) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    # --- answers ------------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                for number, word, value in messages.messages_of(frame):
                    if number > 0:
                        self._answer(number, word, value)
                    elif number == messages.STATE:
                        self.state = messages.state_of(value)
                        self._changed()
                    elif number == messages.GOODBYE:
                        self.stopping = True
                        self._changed()
        except BadMessage:
            logger.exception("the connection to the process that has the store is closed")
            self.close()
        if self.stopping and not self._calls:
            self.close()

    def _answer(self, number: int, word: int, value: Any) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            raise BadMessage(f"an answer to call {number}, which was not sent")
        future = call.future
        if future.done():  # the caller has gone
            if call.operation is DEQUEUE and word == messages.RESULT:
                answer: DequeueResult = messages.decoded(DEQUEUE.result, value)
                if answer.claimed:
                    self.undelivered(call.queue, answer.claimed)
        elif word == messages.RESULT:
            try:
                future.set_result(call.operation.result.decode(value))
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
                future.set_exception(error)
        elif word == messages.FAILURE:
            future.set_exception(messages.error_in(value))
        else:
            future.set_exception(StoreProcessFailed)

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._out.add(messages.PROCESS, 0, messages.encoded(self._number))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.future.done():
                self.answers_lost += 1
                call.future.set_exception(_lost(call.operation))
        self.lost.set()
        self._changed()

    def close(self) -> None:
        """Ends it once what was said is written."""
        self._out.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends it at once."""
        if self._transport is not None:
            self._transport.abort()


def _not_sent(connection: _FrameConnection | None) -> PinLaterError:
    """Why a call is not sent over this connection."""
    if connection is not None and connection.usable:
        return RequestTooOld()
    if connection is not None and connection.stopping:
        return Draining("The server process that has the store is stopping", retry_after_ms=_RETRY_AFTER_MS)
    return ShardConnectionFailed(
        "The server process that has the store is not reachable now", retry_after_ms=_RETRY_AFTER_MS
    )


def _lost(operation: Operation) -> ShardConnectionFailed:
    text = "The connection to the server process that has the store was lost before its answer came"
    kind = ShardConnectionFailed if operation.only_looks else OutcomeUnknown
    return kind(text, retry_after_ms=_RETRY_AFTER_MS)
