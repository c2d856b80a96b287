"""A front process's side of the link to the store process. A call for which there is no connection fails at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from pinlater.domain.errors import Draining, OutcomeUnknown, PinLaterError, RequestTooOld, ShardConnectionFailed
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.front import messages
from pinlater.server.front.messages import StoreState, Undelivered
from pinlater.server.front.operations import Operation
from pinlater.server.link.asking import AskingSide
from pinlater.server.link.messages import (
    FRAME_BYTES_MAX,
    BadMessage,
    Frames,
    Part,
    PartAnswer,
    decoded,
    error_of,
    message_of_asking,
)
from pinlater.server.operations.standstill import Standstill
from pinlater.server.operations.values import DequeueResult
from pinlater.server.storage.values import NO_END_MS

logger = logging.getLogger(__name__)

_PAUSE_S = 0.05
_CLOSE_S = 1.0
_RETRY_AFTER_MS = 500
_UNREACHABLE = StoreState(False, ("the process that has the store is not reachable",))


class StoreProcessFailed(Exception):
    """The store process failed because of a bug. Its log has the details."""


class StoreConnection(AskingSide["_OperationCall"]):
    """The connection to the store process that listens at `path`, from the process of this number. It is restored whenever it is lost.
    `start`, then `stop`.

    `standstill`: of this process; calls that it received before a standstill are not sent. `state`: what the store process reports about
    itself, or that there is none. `calls` and `calls_lost` (no answer came) are counted since the start.
    """

    def __init__(self, path: str, number: int, standstill: Standstill) -> None:
        super().__init__(FRAME_BYTES_MAX)
        self._path = path
        self._number = number
        self._standstill = standstill
        self._keeping: asyncio.Task[None] | None = None
        self._drains = False
        self.connected = asyncio.Event()
        self.state = _UNREACHABLE
        self.calls = 0
        self.calls_lost = 0

    def start(self) -> None:
        """Connects, and connects again whenever the connection is lost."""
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            lost_before = self.calls_lost
            try:
                await self._loop.create_unix_connection(lambda: self, self._path)
            except OSError as error:
                logger.debug("no connection to the process that has the store", extra={"reason": str(error)})
            else:
                await self.ended.wait()
                if not self._drains:
                    logger.warning(
                        "the connection to the process that has the store is lost",
                        extra={"calls": self.calls_lost - lost_before},
                    )
            await asyncio.sleep(_PAUSE_S)

    # --- asking -------------------------------------------------------------------------------------------------------------

    def call(self, operation: Operation, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Returns the future of the operation's result. Cancel it if the caller has gone."""
        standstill = self._standstill
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.usable:
            future.set_exception(_not_sent(stopping=self.stopping))
        elif (now_s := standstill.monotonic()) > standstill.until_s:
            standstill.found(now_s)
            future.set_exception(RequestTooOld())
        else:
            self.calls += 1
            call = _OperationCall(self, operation, arguments, future, int(now_s * 1000))
            if operation.may_take_long:
                future.add_done_callback(call.note_end)
            self.say(call)
        return future

    def cancel(self, call: _OperationCall) -> None:
        """Tells the store process that the caller of a call has gone."""
        if not call.number:
            self._flush()
        if call.number in self._sent:
            self.tell(message_of_asking(messages.CANCEL, call.number))

    def undelivered(self, queue: str, claimed: Sequence[FromShard]) -> None:
        """Gives back jobs that no client received."""
        bare = [part._replace(jobs=[job._replace(body=b"") for job in part.jobs]) for part in claimed]
        self.tell(message_of_asking(messages.UNDELIVERED, Undelivered(queue, bare)))

    # --- messages of the store process --------------------------------------------------------------------------------------

    def _told(self, message: PartAnswer) -> None:
        if message.number != messages.STATE:
            raise BadMessage(f"a message of unknown kind {message.number}")
        self.state = decoded(messages.STORE_STATE, message.answers)
        self.usable = not self.stopping
        self._changed()

    def _refuse(self, error: BadMessage) -> None:
        logger.error("the connection to the process that has the store is closed", exc_info=error)

    def _changed(self) -> None:
        if self.usable:
            self.connected.set()
        else:
            self.connected.clear()

    # --- life ---------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._frames = Frames(FRAME_BYTES_MAX)
        self.ended.clear()
        self.tell(message_of_asking(messages.PROCESS, self._number))
        if self._drains:
            self.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.state, self.stopping = _UNREACHABLE, False
        self._changed()

    def drain(self) -> None:
        """Reports that this process stops: its dequeues are to stop waiting."""
        self._drains = True
        self.tell(message_of_asking(messages.DRAINS))

    async def stop(self) -> None:
        """Closes the connection, which ends the calls under way."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._transport is not None:
            self.close()
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await self.ended.wait()
            except TimeoutError:  # the store process does not read
                self.abort()


@dataclass(slots=True, eq=False)
class _OperationCall:
    """One call of the link. `began_ms`: when it was made, by the monotonic clock of the machine. `number`: 0 until it is sent."""

    link: StoreConnection
    operation: Operation
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    began_ms: int
    number: int = 0
    size_bytes: int = 0

    def part(self, number: int) -> Part | None:
        try:
            value = messages.encoded(self.arguments)
        except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
            self._fail(error)
            return None
        self.number = number
        self.size_bytes = len(value)
        return Part(number, self.operation.number, "", Raw(value), NO_END_MS, self.began_ms)

    def note_end(self, done: asyncio.Future[Any]) -> None:
        """Tells the store process if the caller has gone. The answer comes all the same."""
        if done.cancelled():
            self.link.cancel(self)

    def answered(self, answer: PartAnswer) -> None:
        if self.future.done():  # the caller has gone
            if self.operation.hands_out and answer.failure is None:
                result: DequeueResult = decoded(self.operation.result, answer.answers)
                if result.claimed:
                    self.link.undelivered(self.arguments[1].queue, result.claimed)
        elif answer.failure is not None:
            self._fail(error_of(answer.failure) if answer.failure.name else StoreProcessFailed())
        else:
            try:
                self.future.set_result(self.operation.result.decode(answer.answers))
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
                self._fail(error)

    def lost(self) -> None:
        if not self.future.done():
            self.link.calls_lost += 1
            text = "The connection to the server process that has the store was lost before its answer came"
            kind = ShardConnectionFailed if self.operation.only_looks else OutcomeUnknown
            self._fail(kind(text, retry_after_ms=_RETRY_AFTER_MS))

    def not_sent(self) -> None:
        self._fail(_not_sent(stopping=False))

    def _fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _not_sent(*, stopping: bool) -> PinLaterError:
    """Returns the reason why a call is not sent."""
    if stopping:
        return Draining("The server process that has the store is stopping", retry_after_ms=_RETRY_AFTER_MS)
    return ShardConnectionFailed(
        "The server process that has the store is not reachable now", retry_after_ms=_RETRY_AFTER_MS
    )
