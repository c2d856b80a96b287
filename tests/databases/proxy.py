"""A network between a client and a server that does what networks do: is slow, goes silent, breaks off, at the worst moment too.

    async with Proxy(server.address) as proxy:
        ...                                     # connect to proxy.address
        proxy.slow(0.1)                         # each way
        proxy.swallow(to_client=True)           # half-open: requests arrive, answers never
        proxy.heal()
        trap = proxy.lose_answer(b"COMMIT")
        await trap.wait()                       # the server has committed, its client saw the connection break

On the test's own loop it costs that loop a little; `in_thread` gives it one of its own, `all_in_thread` one to several, for tests without
a loop or with a measured one. All methods may be called from any thread. It sees no pattern within TLS, and resending by a real network it
only imitates.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from tests.databases.answers import LastAnswer, OtherAnswer
from tests.databases.link import RESET, Direction, Flow, Link, Trap
from tests.databases.ports import free_port

__all__ = ["Proxy", "Trap", "all_in_thread", "in_thread"]

_DEADLINE_S = 30.0
_STEP_S = 0.02


class Proxy:
    """Listens on a port of its own and passes everything on to `target` (`host:port`), until told otherwise.

    `host` and `port`: where it listens; a free port if none is given. A new connection waits `wait_for_target_s` for a target that does
    not listen yet, before it is reset.
    """

    def __init__(self, target: str, host: str = "127.0.0.1", port: int = 0, wait_for_target_s: float = 0.0) -> None:
        self.target = target  # where new connections go; may be changed, as an address is after a failover
        self.host = host
        self.port = port
        self.wait_for_target_s = wait_for_target_s
        self.connections = 0  # taken so far
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._traps: list[Trap] = []
        self._listener: socket.socket | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def open(self) -> int:
        """Connections that are there now, working or not."""
        return len(self._links)

    @property
    def lossy(self) -> int:
        """Open connections that have lost bytes."""
        return sum(link.lossy for link in self._links)

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._to_server, self._to_client = Direction(), Direction()
        self.port = self.port or free_port()
        self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Faults. Each holds for the connections that are open and those to come, until `heal`.

    def slow(self, seconds: float, *, to_server: bool = True, to_client: bool = True) -> None:
        """Bytes arrive that much later, each way named. A round trip takes twice as long longer."""
        for way in self._ways(to_server, to_client):
            way.delay_s = seconds

    def hold(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Nothing arrives; after `heal` everything does, as after a partition that TCP outlives."""
        self._do(lambda: self._set_flow(Flow.HOLD, self._ways(to_server, to_client)))

    def swallow(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Nothing arrives, ever; connections that lost something are reset by `heal`."""
        self._do(lambda: self._set_flow(Flow.SWALLOW, self._ways(to_server, to_client)))

    def swallow_open(self) -> None:
        """Nothing arrives, ever, on the connections that are open now, until `heal` resets them; those to come work."""
        self._do(self._swallow_open)

    def cut(self) -> None:
        """Every open connection is reset. New ones are taken as before."""
        self._do(self._cut)

    def refuse(self) -> None:
        """New connections are refused; the open ones stay."""
        self._do(self._close)

    def accept(self) -> None:
        """New connections are taken again, on the same port."""
        self._do(self._listen)

    def heal(self) -> None:
        """All is well again: no delay, no trap, connections are taken; what lost bytes is reset."""
        self._do(self._heal)

    # Faults at one moment.

    def lose_request(self, pattern: bytes, *, hang: bool = False) -> Trap:
        """The next connection on which `pattern` goes to the server is reset before its last byte got there; or hangs from then on."""
        return self._set(Trap(pattern, loses_answer=False, hangs=hang))

    def lose_answer(self, pattern: bytes, *, hang: bool = False, refuse: bool = False) -> Trap:
        """The server gets what has `pattern` in it and carries it out; the connection is reset after that, without an answer.

        With `hang` it goes silent instead; that trap has sprung when the first bytes of an answer are lost. With `refuse` new connections
        are refused from then on.
        """
        caught = self._close if refuse else lambda: None
        return self._set(Trap(pattern, loses_answer=True, hangs=hang, caught=caught))

    def fail_answer(
        self, pattern: bytes, code: int, message: str = "", *, instead: bytes | None = None, alone: bool = False
    ) -> Trap:
        """A MySQL server gets what has `pattern` in it and carries it out; the last answer to it arrives as this error. `alone`: it is the
        answer to all statements of the packet, as a proxy gives that has lost the server.

        With `instead`, which is as long, the server gets that in the place of `pattern`, if it came in one piece.
        """
        return self._set(Trap(pattern, answer=LastAnswer(code, message, alone=alone), instead=instead))

    def answer_itself(self, pattern: bytes, answer: bytes, *, at_once: bool = False) -> Trap:
        """The server gets what has `pattern` in it and carries it out; `answer` arrives in the place of its answer.

        With `at_once` the server does not get it: the test may send the trap's `request` to it later, as a slow proxy does.
        """
        return self._set(Trap(pattern, at_once=answer) if at_once else Trap(pattern, answer=OtherAnswer(answer)))

    # How it works.

    def _ways(self, to_server: bool, to_client: bool) -> list[Direction]:
        return [self._to_server] * to_server + [self._to_client] * to_client

    def _set_flow(self, flow: Flow, ways: list[Direction]) -> None:
        for way in ways:
            way.set_flow(flow)

    def _swallow_open(self) -> None:
        self._set_flow(Flow.SWALLOW, self._ways(True, True))
        self._to_server, self._to_client = Direction(), Direction()
        for link in self._links:
            link.lossy = True

    def _set(self, trap: Trap) -> Trap:
        self._do(lambda: self._traps.append(trap))
        return trap

    def _cut(self, *, lossy_only: bool = False) -> None:
        for link, task in self._links.items():
            if link.lossy or not lossy_only:
                link.reset()
                task.cancel()

    def _heal(self) -> None:
        self._traps.clear()
        self._cut(lossy_only=True)
        for way in self._ways(True, True):
            way.delay_s = 0.0
            way.set_flow(Flow.PASS)
        self._listen()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port), backlog=1024)
            self._listener.setblocking(False)
            self.loop.add_reader(self._listener, self._accept, self._listener)

    def _close(self) -> None:
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self.connections += 1
        connection.setblocking(False)
        # asyncio does so only where it made the socket.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        undo = contextlib.ExitStack()  # at the task's end, since one that is cancelled before it begins runs no line
        undo.callback(connection.close)
        task = self.loop.create_task(self._serve(connection, undo))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: undo.close())

    async def _serve(self, connection: socket.socket, undo: contextlib.ExitStack) -> None:
        try:
            server = await self._connect()
        except OSError:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return
        undo.callback(server[1].transport.abort)
        client = await asyncio.open_connection(sock=connection)
        undo.pop_all()
        link = Link(client, server, self._to_server, self._to_client, self._traps)
        task = asyncio.current_task()
        assert task is not None
        self._links[link] = task
        try:
            await link.run()
        finally:
            del self._links[link]

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.target.rpartition(":")
        deadline = self.loop.time() + self.wait_for_target_s
        while True:
            try:
                return await asyncio.open_connection(host, int(port))
            except OSError:
                if self.loop.time() >= deadline:
                    raise
                await asyncio.sleep(_STEP_S)

    def _do(self, act: Callable[[], object]) -> None:
        """Acts on the proxy's loop, from whichever thread."""
        if threading.get_ident() == self._thread:
            act()
            return
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                done.set_exception(error)
            else:
                done.set_result(None)

        self.loop.call_soon_threadsafe(run)
        done.result(_DEADLINE_S)


@contextlib.contextmanager
def in_thread(target: str) -> Iterator[Proxy]:
    """A proxy on a loop and a thread of its own."""
    proxy = Proxy(target)
    with all_in_thread([proxy]):
        yield proxy


@contextlib.contextmanager
def all_in_thread(proxies: Iterable[Proxy]) -> Iterator[None]:
    """These proxies listen meanwhile, on one loop and a thread of their own."""
    ready: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = concurrent.futures.Future()

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for proxy in proxies:
                await stack.enter_async_context(proxy)
            over = asyncio.Event()
            ready.set_result((asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="proxy")
    thread.start()
    loop, over = ready.result(_DEADLINE_S)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(_DEADLINE_S)
