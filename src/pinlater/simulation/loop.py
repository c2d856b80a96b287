"""Virtual time, and an event loop for each simulated process.

Every process has a loop of its own, so that it can be paused and killed as a whole; all of them take turns on one timeline, in the order
in which their callbacks become due. Nothing waits for real time, and nothing here is random: the same calls give the same order.

A loop has only what production code uses. A missing method raises NotImplementedError, so the first run detects code that would use the
real world (a thread, a socket, a file).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

if TYPE_CHECKING:
    from pinlater.simulation.network import Network

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ProcessState(Enum):
    """Whether a process's callbacks run now, later, or never."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Timeline:
    """The time of a simulation, in seconds, and its timers.

    `turn_s`: how long one turn of the event loops takes. It lets timers fire between two steps of the same task, as in a real process.
    """

    def __init__(self, *, turn_s: float = 0.000_02, starts_at_s: float = 1_000.0) -> None:
        self.now_s = starts_at_s
        self.turns = 0
        self.complaints: list[str] = []
        self._turn_s = turn_s
        self._ready: deque[tuple[asyncio.Handle, ProcessLoop]] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, ProcessLoop]] = []
        self._serials = itertools.count()
        self._kept: list[asyncio.Task[Any]] = []
        self._over = False
        self._current: ProcessLoop | None = None

    def now_ns(self) -> int:
        """The time in nanoseconds, for the history."""
        return round(self.now_s * 1_000_000_000)

    def monotonic(self) -> float:
        """The time in seconds, for clocks."""
        return self.now_s

    def serial(self) -> int:
        """A number that no other object of this timeline has."""
        return next(self._serials)

    def run(self, work: Awaitable[Any], loop: ProcessLoop, *, until_s: float, turns_max: int = 500_000) -> bool:
        """Runs all processes until `work`, a task of `loop`, has ended. Returns False if it has not by then. Raises the error of
        `work`."""
        task = loop.create_task(_awaited(work))
        try:
            while not task.done() and self.now_s < until_s and self.turns < turns_max:
                if not self._ready and not self._timers:
                    raise RuntimeError("nothing is due any more, and the work has not ended")
                self._turn()
        finally:
            events._set_running_loop(None)
            self._current = None
        if not task.done():
            return False
        task.result()
        return True

    def end(self) -> None:
        """Lets nothing run from now on. Objects that are destroyed after this are not reported."""
        self._over = True
        self._ready.clear()
        self._timers.clear()
        self._kept.clear()

    def keep(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Tasks of a killed process stay in memory until the end: a coroutine that is deleted runs its `finally`s."""
        self._kept.extend(tasks)

    def complain(self, text: str) -> None:
        """An error that no caller saw."""
        if not self._over:
            self.complaints.append(text)

    # --- turns --------------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Runs what is ready now, as one iteration of asyncio's loop does. Then moves the time to the next timer if nothing else is
        ready.
        """
        self.turns += 1
        ready, running = self._ready, ProcessState.RUNNING
        for _ in range(len(ready)):
            handle, loop = ready.popleft()
            if handle._cancelled:
                continue
            if loop.state is running:
                if loop is not self._current:
                    events._set_running_loop(loop)
                    self._current = loop
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except Exception as error:  # noqa: BLE001 as asyncio does: no other callback is affected
                    self.complain(f"{loop.name}: a callback failed: {error!r}")
            elif loop.state is ProcessState.PAUSED:
                loop.held.append(handle)
        timers = self._timers
        self.now_s += self._turn_s
        if not ready:
            while timers and (timers[0][2]._cancelled or timers[0][3].state is ProcessState.DEAD):
                heapq.heappop(timers)
            if timers and timers[0][0] > self.now_s:
                self.now_s = timers[0][0]
        while timers and timers[0][0] <= self.now_s:
            _, _, timer, loop = heapq.heappop(timers)
            ready.append((timer, loop))

    def soon(self, handle: asyncio.Handle, loop: ProcessLoop) -> None:
        """The handle is ready."""
        self._ready.append((handle, loop))

    def at(self, handle: asyncio.TimerHandle, loop: ProcessLoop) -> None:
        """The handle becomes ready at its time."""
        heapq.heappush(self._timers, (handle.when(), next(self._serials), handle, loop))


class SimulatedTask(asyncio.Task[T]):
    """A task whose position in a set does not depend on its address, so that code that iterates over a set of tasks does so in one
    order."""

    __slots__ = ("_serial",)

    def __init__(self, serial: int, coro: Coroutine[Any, Any, T], **more: Any) -> None:
        self._serial = serial  # first: making a task puts it into a set
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._serial


class Handle(asyncio.Handle):
    """A handle that costs half: there is no debug mode here."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: ProcessLoop, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None


class Timer(asyncio.TimerHandle):
    """The same with a time."""

    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: ProcessLoop, context: Context | None) -> None:
        Handle.__init__(cast("Handle", self), callback, args, loop, context)
        self._when = when
        self._scheduled = True


class ProcessLoop(asyncio.AbstractEventLoop):
    """One process's event loop. `host` is the machine's name in the network."""

    def __init__(self, timeline: Timeline, name: str, host: str, network: Network | None = None) -> None:
        self.timeline = timeline
        self.name = name
        self.host = host
        self.network = network
        self.state = ProcessState.RUNNING
        self.held: list[asyncio.Handle] = []  # callbacks that became ready while the process was paused

    # --- the process --------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Suspends the process as SIGSTOP does: nothing runs, and input that arrives meanwhile waits."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """Continues the process as SIGCONT does."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            held, self.held = self.held, []
            for handle in held:
                self.timeline.soon(handle, self)

    def kill(self) -> None:
        """Ends the process as SIGKILL does: none of its code ever runs again, not even a `finally`."""
        self.state = ProcessState.DEAD
        self.held.clear()
        self.timeline.keep(asyncio.all_tasks(self))

    # --- callbacks ----------------------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = Handle(callback, args, self, context)
        self.timeline._ready.append((handle, self))
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.timeline.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = Timer(when, callback, args, self, context)
        self.timeline.at(timer, self)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The timeline skips it."""

    def time(self) -> float:
        return self.timeline.now_s

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        return SimulatedTask(self.timeline.serial(), coro, loop=self, name=name or "task", context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.state is not ProcessState.DEAD

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state is not ProcessState.DEAD:
            error = context.get("exception")
            self.timeline.complain(f"{self.name}: {context.get('message')}: {error!r}")

    # --- the network ----------------------------------------------------------------------------------------------------------

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        assert self.network is not None
        return await self.network.connect(self, protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        assert self.network is not None
        return self.network.listen(self, protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, *, family: int = 0, type: int = 0, **more: Any) -> Any:
        return [(family, type, 0, "", (host, port))]


def new_process(timeline: Timeline, name: str, host: str, network: Network | None = None) -> ProcessLoop:
    """A process's loop. Its abstract methods are abstract to the type checker only."""
    return ProcessLoop(timeline, name, host, network)  # type: ignore[abstract]


async def _awaited(work: Awaitable[T]) -> T:
    return await work
