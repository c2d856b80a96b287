"""A client's connection that stays in the process: frames go to an in-process service and back, through the real codec.

Calls over it may be reordered; no client relies on their order. Weakness: a dequeue that is given up at the moment when its answer is
ready keeps its claims until they time out, as over TCP.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pinlater.client._servers import ServerAddress
from pinlater.client._thrift import AnswerDecoder, encode_request
from pinlater.client.errors import ConnectionLost, ServerUnreachable
from pinlater.domain.clock import Clock
from pinlater.server.access.quotas import TokenUse
from pinlater.server.thrift.connection_use import ConnectionUse
from pinlater.server.thrift.methods.jobs import DequeueAnswer
from pinlater.testing._loop import LoopThread
from pinlater.testing._server import HOST, PORT, MemoryServer
from pinlater.wire.framing import LENGTH_BYTES

ADDRESS = ServerAddress(HOST, PORT)
_MAX_FRAME_BYTES = 64 * 1024 * 1024


class _Caller:
    """The service's view of a call's caller: see `server.thrift.answering.Recipient`."""

    def __init__(self) -> None:
        self.gone = False
        self.waiting = False
        self.over_limit = False
        self.last_request = False
        self.active_at_s = 0.0
        self.handed_out: DequeueAnswer | None = None
        self.peer = self.host = HOST
        self.use: ConnectionUse | None = None

    def count_for(self, token: TokenUse, own_bytes: int) -> ConnectionUse:
        raise NotImplementedError("there are no tokens here")

    def end_when_answered(self) -> None: ...


class InProcessLink:
    """Implements `client._connection.Link`."""

    def __init__(self, server: MemoryServer, thread: LoopThread, clock: Clock) -> None:
        self.address = ADDRESS
        self._server = server
        self._thread = thread
        self._clock = clock
        self._decoder = AnswerDecoder(_MAX_FRAME_BYTES)
        self._usable = True
        self._under_way: set[asyncio.Future[bytes]] = set()

    @property
    def usable(self) -> bool:
        return self._usable

    async def call(self, method: str, source: str, args: tuple[Any, ...], token: str = "") -> Any:
        """Raises the service's error, or ConnectionLost. Cancel it to give up."""
        frame = encode_request(method, 1, source, args, token)[LENGTH_BYTES:]
        caller = _Caller()
        try:
            answering = self._thread.submit(
                lambda: self._server.answering.answer(frame, self._clock.monotonic(), caller)
            )
        except RuntimeError as error:
            self._usable = False
            raise ConnectionLost(str(error)) from error
        reply = await self._reply(asyncio.wrap_future(answering), caller)
        _, answer = self._decoder.decode(reply[LENGTH_BYTES:], method)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _reply(self, answering: asyncio.Future[bytes], caller: _Caller) -> bytes:
        self._under_way.add(answering)
        try:
            # Waited for, not awaited: code that cancels the answer (`abort`, the service's end) must not seem to cancel the caller.
            await asyncio.wait([answering])
        except asyncio.CancelledError:
            caller.gone = True
            answering.cancel()
            raise
        finally:
            self._under_way.discard(answering)
        if answering.cancelled():
            raise ConnectionLost("The connection was closed before the answer came")
        return answering.result()

    def unread(self) -> Any:
        """Does nothing: answers in this process wait for its event loop."""
        return None

    def retire(self) -> None:
        """Refuses new calls."""
        self._usable = False

    def hang_up(self) -> None:
        """Does the same as `abort`. Answers that already exist are delivered, and the service takes back the rest."""
        self.abort()

    def abort(self) -> None:
        """Calls under way end with ConnectionLost."""
        self._usable = False
        for answering in self._under_way:
            answering.cancel()

    async def close(self) -> None:
        """Does the same as `abort`."""
        self.abort()


class Connector:
    """Makes links; a client takes it as `connect`."""

    def __init__(self, server: MemoryServer, thread: LoopThread, clock: Clock) -> None:
        self._server = server
        self._thread = thread
        self._clock = clock
        self.closed = False

    async def __call__(self, address: ServerAddress) -> InProcessLink:
        if self.closed:
            raise ServerUnreachable(f"Server {address} can't be reached: the in-process service is closed")
        return InProcessLink(self._server, self._thread, self._clock)
