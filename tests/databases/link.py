"""One connection through the proxy, and what may happen to its bytes. `proxy` is what tests use."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import enum
import socket
import struct
from collections.abc import Callable

from tests.databases.answers import LastAnswer, OtherAnswer

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK = 65_536
_CHUNKS_AT_ONCE = 256  # what waits for its delay; more than that is the sender's to keep
# Lingers for no time: what closes is reset.
RESET = struct.pack("ii", 1, 0)
_TAIL = 256


class Flow(enum.Enum):
    """What becomes of bytes that go one way."""

    PASS = "pass"
    HOLD = "hold"  # they wait and arrive once all is well again, as TCP sends anew after a partition
    SWALLOW = "swallow"  # they are never seen again, and no end of a connection either


class Direction:
    """What holds for all connections one way."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.flow = Flow.PASS
        self.moving = asyncio.Event()
        self.moving.set()

    def set_flow(self, flow: Flow) -> None:
        self.flow = flow
        if flow is Flow.HOLD:
            self.moving.clear()
        else:
            self.moving.set()


class Trap:
    """Springs once, on the first connection where `pattern` goes to the server."""

    def __init__(
        self,
        pattern: bytes,
        *,
        loses_answer: bool = False,
        hangs: bool = False,
        answer: LastAnswer | OtherAnswer | None = None,
        at_once: bytes | None = None,
        instead: bytes | None = None,
        caught: Callable[[], None] = lambda: None,
    ) -> None:
        assert 0 < len(pattern) <= _TAIL
        assert instead is None or len(instead) == len(pattern)
        self.pattern = pattern
        self.loses_answer = loses_answer
        self.hangs = hangs
        self.answer = answer
        self.at_once = at_once  # what the client is answered instead of the server being asked
        self.request = b""  # what the server was not asked then
        self.instead = instead
        self.caught = caught  # called as soon as the pattern was seen, before anything goes on
        self._sprung: concurrent.futures.Future[None] = concurrent.futures.Future()

    @property
    def sprung(self) -> bool:
        """The harm is done."""
        return self._sprung.done()

    async def wait(self) -> None:
        """Until it has sprung."""
        await asyncio.shield(asyncio.wrap_future(self._sprung))

    def wait_in_thread(self, deadline_s: float) -> None:
        """The same for callers without a loop. Raises `TimeoutError`."""
        self._sprung.result(deadline_s)

    def spring(self) -> None:
        """For the link that is in it."""
        if not self._sprung.done():
            self._sprung.set_result(None)


class _Cut(Exception):
    """This connection is to be reset now."""


class Link:
    """A client's connection and the one made for it to the server."""

    def __init__(
        self, client: Ends, server: Ends, to_server: Direction, to_client: Direction, traps: list[Trap]
    ) -> None:
        self._client, self._server = client, server
        self._to_server, self._to_client = to_server, to_client
        self._traps = traps
        self._trap: Trap | None = None
        self._tail = b""
        self.lossy = False  # bytes are missing: no good can come of it once the network is well again

    async def run(self) -> None:
        """Until both sides have ended it, or it is cut."""
        requests, answers = _Pipe(self._to_server), _Pipe(self._to_client)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_client(requests, answers))
                group.create_task(self._read_server(answers))
                group.create_task(self._write(requests, self._server[1]))
                group.create_task(self._write(answers, self._client[1]))
            for _, writer in (self._client, self._server):
                writer.close()
                await writer.wait_closed()
        except* (OSError, _Cut):
            self.reset()
        finally:
            for _, writer in (self._client, self._server):
                writer.transport.abort()  # both before the first wait, in which this may be cancelled
            for _, writer in (self._client, self._server):
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            if self._trap is not None:
                self._trap.spring()

    def reset(self) -> None:
        """Both sides see their connection reset, whatever was under way."""
        for _, writer in (self._client, self._server):
            if not writer.transport.is_closing():
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    async def _read_client(self, requests: _Pipe, answers: _Pipe) -> None:
        while data := await self._client[0].read(_CHUNK):
            trap = self._caught(data)
            if trap is None:
                await requests.put(data)
            elif trap.at_once is not None:
                self._trap, self.lossy, trap.request = None, False, data
                trap.spring()
                await answers.put(trap.at_once)
            elif trap.answer is not None:
                await requests.put(data if trap.instead is None else data.replace(trap.pattern, trap.instead))
            elif trap.loses_answer:
                await requests.put(data)
                if not trap.hangs:
                    break  # the server does what it was told, finds its client gone, and that ends this link
            elif not trap.hangs:
                raise _Cut
            else:
                trap.spring()
        if self._trap is None or not self._trap.hangs:
            await requests.put(None)

    async def _read_server(self, answers: _Pipe) -> None:
        while data := await self._server[0].read(_CHUNK):
            trap = self._trap
            if trap is None:
                await answers.put(data)
            elif trap.answer is not None:
                if (answer := trap.answer.take(data)) is not None:
                    self._trap, self.lossy = None, False
                    trap.spring()
                    await answers.put(answer)
            elif trap.hangs:
                trap.spring()
        if self._trap is None:
            await answers.put(None)
        elif not self._trap.hangs:
            raise _Cut

    async def _write(self, pipe: _Pipe, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await pipe.get()
            if pipe.direction.flow is Flow.SWALLOW:
                self.lossy = True
                if data is None:
                    return
            elif data is None:
                writer.write_eof()
                return
            else:
                writer.write(data)
                await writer.drain()

    def _caught(self, data: bytes) -> Trap | None:
        """The trap that this connection is in, be it by these bytes."""
        for trap in self._traps if self._trap is None else ():
            before = self._tail[max(0, len(self._tail) - len(trap.pattern) + 1) :]
            if trap.pattern in before + data:
                self._trap = trap
                self._traps.remove(trap)
                trap.caught()
                self.lossy = True
                break
        self._tail = (self._tail + data)[-_TAIL:]
        return self._trap


class _Pipe:
    """Bytes on their way: each arrives its direction's delay after it was sent, in order; None is the end of the connection."""

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self._queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_CHUNKS_AT_ONCE)

    async def put(self, data: bytes | None) -> None:
        await self._queue.put((asyncio.get_running_loop().time() + self.direction.delay_s, data))

    async def get(self) -> bytes | None:
        due, data = await self._queue.get()
        wait = due - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)  # the network's delay: there is no event to wait for
        await self.direction.moving.wait()
        return data
