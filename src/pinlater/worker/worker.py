"""The worker as users see it: register functions for queues, enqueue them, run them.

worker = Worker("127.0.0.1:9010")

@worker.handler("emails")
async def send(to: str) -> None:
    ...

send.enqueue("a@example.org")   # in the web application
worker.run()                    # in the worker's process
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from os import PathLike
from typing import Any, TypeVar, cast
from zoneinfo import ZoneInfo

from pinlater.client.async_client import AsyncClient
from pinlater.client.sync_client import Client
from pinlater.domain.clock import Clock, WallClock
from pinlater.worker._beside import Beside, Service
from pinlater.worker._consumer import Consumer, Team
from pinlater.worker._endpoint import serve_probes
from pinlater.worker._heart import Heart
from pinlater.worker._line import Hello, Line, Orders
from pinlater.worker._loop import run
from pinlater.worker._outbox import Outbox
from pinlater.worker._processes import ChildSetup
from pinlater.worker._recycling import EXIT_CODE, recycling_of
from pinlater.worker._until_idle import ConsumerUntilIdle, Idleness, OnEnd, in_threads, settings_until_idle
from pinlater.worker._vitals import Vitals
from pinlater.worker.codecs import Codec, JsonCodec
from pinlater.worker.context import JobContext
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.cron import Cron, Missed, Timetable, cron
from pinlater.worker.middleware import Middleware
from pinlater.worker.retries import Retry, linear
from pinlater.worker.settings import WorkerSettings
from pinlater.worker.tasks import Register, Task, TaskOptions, place_of

_log = logging.getLogger("pinlater.worker")
R = TypeVar("R")
_HOUR_S = 3600.0


@dataclass(slots=True)
class _Queue:
    tasks: dict[str, Task[..., Any]] = field(default_factory=dict)
    concurrency: int | None = None
    weight: int = 1

    def default(self) -> Task[..., Any] | None:
        """For jobs that name no task: the one marked so, or the only one there is."""
        marked = [task for task in self.tasks.values() if task.options.default]
        return marked[0] if marked else next(iter(self.tasks.values())) if len(self.tasks) == 1 else None


class Worker:
    """Holds tasks, enqueues their jobs and runs them.

    `client`: where the jobs are: addresses (as for `AsyncClient`), or a client that the caller opened and closes. `concurrency`: how
    many jobs run at once, those of all queues together, where `settings` need not say more.
    `codec` and `retry` hold for tasks that have none of their own; `middleware` runs around every job, the first one outermost.
    `child_setup` runs first in every process that handlers run in: a function at the top of a module, for logging and the like.
    """

    def __init__(
        self,
        client: AsyncClient | str | PathLike[str] | Sequence[str] | None = None,
        *,
        concurrency: int | None = None,
        settings: WorkerSettings | None = None,
        source: str | None = None,
        codec: Codec | None = None,
        retry: Retry | None = None,
        middleware: Sequence[Middleware] = (),
        child_setup: ChildSetup | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client: AsyncClient | Callable[[], AsyncClient] | str | PathLike[str] | Sequence[str] | None = client
        self._settings = settings or WorkerSettings()
        if concurrency is not None:
            self._settings = replace(self._settings, concurrency=concurrency)
        self._source = source
        self._codec = codec or JsonCodec()
        self._retry = retry
        self._middleware = tuple(middleware)
        self._child_setup = child_setup
        self._clock = clock or WallClock()
        self._queues: dict[str, _Queue] = {}
        self._outbox = Outbox(client, source, self._clock)
        self._crons: list[Cron] = []
        self._team: Team | None = None
        self._stop_asked = False
        self.counts = WorkerCounts()

    @property
    def recycled(self) -> str:
        """Why the worker ended to make room for another; empty where it did not."""
        return "" if self._team is None else self._team.recycled

    @property
    def settings(self) -> WorkerSettings:
        """What it runs with unless `run_async` is told otherwise."""
        return self._settings

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that have a handler."""
        return tuple(name for name, queue in self._queues.items() if queue.tasks)

    @property
    def functions_left_behind(self) -> int:
        """Functions that outlasted their jobs (time limit, lost claim, grace time) and still run; only the process's end stops them."""
        return 0 if self._team is None else sum(consumer.left_behind for consumer in self._team.consumers)

    # --- registering ------------------------------------------------------------------------------------------------------
    def queue(self, name: str, *, concurrency: int | None = None, weight: int = 1) -> None:
        """How much of the worker a queue gets: `concurrency` jobs at once at most, and slots by `weight` where queues compete."""
        if (concurrency is not None and concurrency < 1) or weight < 1:
            raise ValueError(f"concurrency and weight must be at least 1: {concurrency}, {weight}")
        queue = self._queues.setdefault(name, _Queue())
        queue.concurrency, queue.weight = concurrency, weight

    def handler(
        self,
        queue: str,
        *,
        name: str | None = None,
        default: bool = False,
        process: bool = False,
        concurrency: int | None = None,
        retry: Retry | None = None,
        attempts: int | None = None,
        priority: int = 1,
        time_limit: float | None = _HOUR_S,
        codec: Codec | None = None,
    ) -> Register:
        """Makes the decorated function a task of `queue`, called `name` (else as the function is called).

        A coroutine runs on the event loop and must not block it, a plain function in a thread, or with `process` in a process. Its
        parameters are the job's body; one of the type `JobContext` or `ClaimedJob`, the first one best, is filled in. Returning means
        success.
        `default`: it also takes the queue's jobs that name no task (as the only task of a queue does anyway). `attempts` and
        `priority` are given to the jobs that it enqueues. `time_limit` is in seconds, None for none. `concurrency` is the queue's.
        """
        if concurrency is not None:
            self.queue(queue, concurrency=concurrency, weight=self._queues.get(queue, _Queue()).weight)
        if time_limit is not None and time_limit <= 0:
            raise ValueError(f"time_limit must be more than 0, or None: {time_limit}")

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            options = TaskOptions(
                place=place_of(function, process),
                codec=codec or self._codec,
                retry=retry,
                time_limit_ms=None if time_limit is None else max(1, round(time_limit * 1000)),
                attempts=attempts,
                priority=priority,
                default=default,
            )
            called = name or str(getattr(function, "__name__", type(function).__name__))
            task: Task[..., Any] = Task(function, queue, called, options, self._outbox)
            self._add(task)
            return task

        return cast("Register", register)

    def _add(self, task: Task[..., Any]) -> None:
        tasks = self._queues.setdefault(task.queue, _Queue()).tasks
        if task.name in tasks:
            raise ValueError(f"queue {task.queue!r} has a handler called {task.name!r} already")
        if task.options.default and any(other.options.default for other in tasks.values()):
            raise ValueError(f"queue {task.queue!r} has a default handler already")
        tasks[task.name] = task

    def cron(
        self,
        expression: str,
        *,
        queue: str = "cron",
        name: str | None = None,
        tz: str | ZoneInfo = "UTC",
        missed: Missed | str = Missed.LATEST,
        look_back: timedelta = timedelta(hours=1),
        **options: Any,
    ) -> Callable[[Callable[[], R] | Callable[[JobContext], R] | Task[[], R]], Task[[], R]]:
        """Enqueues the decorated function, or task, whenever the expression fires: `@worker.cron("*/5 * * * *", tz="Europe/Berlin")`.

        A plain function becomes a task of `queue` first, with `options` as for `handler`. Any number of workers may do this: each
        firing is one job. `missed`: what becomes of firings up to `look_back` ago that no worker made.
        """

        def register(function: Callable[[], R] | Callable[[JobContext], R] | Task[[], R]) -> Task[[], R]:
            given: Any = function
            task: Task[[], R] = given if isinstance(given, Task) else self.handler(queue, **options)(given)
            entry = cron(task, expression, name=name, tz=tz, missed=missed, look_back=look_back)
            if any(other.name == entry.name for other in self._crons):
                raise ValueError(f"there is a cron entry called {entry.name!r} already; give this one a name")
            self._crons.append(entry)
            return task

        return register

    # --- making queues ----------------------------------------------------------------------------------------------------
    def create_queues(self) -> None:
        """Makes the queues that have a handler; those that exist stay as they are."""
        self._outbox.create_queues(self.queues)

    async def create_queues_async(self) -> None:
        """`create_queues`, for coroutines."""
        await self._outbox.create_queues_async(self.queues)

    # --- running ----------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Runs until SIGTERM or SIGINT; a second one hurries. Blocks. What is left behind does not keep the process from ending.

        Raises SystemExit with the code 75 where the worker was recycled: whoever started the process starts it anew.
        """
        run(self.run_async(handle_signals=True))
        if self.recycled:
            raise SystemExit(EXIT_CODE)

    async def run_async(
        self,
        *,
        client: AsyncClient | str | PathLike[str] | Sequence[str] | None = None,
        settings: WorkerSettings | None = None,
        queues: Sequence[str] | None = None,
        handle_signals: bool = False,
        child_setup: ChildSetup | None = None,
        line: Line | None = None,
    ) -> None:
        """Runs until `request_stop`. `client`, `settings` and `queues` (a part of those registered) override the worker's own. The event
        loop is the caller's, and so is what deaf handlers leave on it and in its threads; `run` ends in spite of those.

        `child_setup` runs in processes before the worker's own. `line` leads to a supervisor, for `pinlater worker --processes`.
        """
        chosen = self._chosen(queues)
        async with contextlib.AsyncExitStack() as stack:
            source = await self._opened(stack, client)
            heart = Heart(source.twin, self._clock, source.unread)
            team = self._team = self._new_team(source, settings or self._settings, heart, chosen, child_setup)
            team.recycling = recycling_of(team.settings, random.random())  # noqa: S311 - spreads processes, guards nothing
            self._stop_asked = False
            for name, queue in chosen.items():
                team.consumers.append(Consumer(team, name, queue.tasks, queue.default()))
            if handle_signals:
                stack.enter_context(self._signals())
            vitals = Vitals(team, self._clock, None if line is None else {"process": str(line.number)})
            beside = Beside(self._services(team, vitals, line))
            beside.start()
            stack.callback(beside.stop)
            heart.start()
            stack.callback(heart.stop)
            _log.info("worker started", extra={"queues": ",".join(chosen)})
            timetables = [Timetable(entry, self._clock) for entry in self._crons if entry.task.queue in chosen]
            async with asyncio.TaskGroup() as group:
                firing = [group.create_task(table.run(), name="cron") for table in timetables]
                turning = group.create_task(vitals.turn())
                consuming = [group.create_task(consumer.run()) for consumer in team.consumers]
                await team.stop.wait()
                for task in firing:
                    task.cancel()
                await asyncio.wait(consuming)
                turning.cancel()
            _log.info("worker stopped", extra={"left_behind": self.functions_left_behind})

    async def run_until_idle(
        self,
        *,
        client: AsyncClient | str | PathLike[str] | Sequence[str] | None = None,
        settings: WorkerSettings | None = None,
        queues: Sequence[str] | None = None,
        processes: bool = True,
        ended: OnEnd | None = None,
    ) -> None:
        """Runs the jobs that are due, and what they enqueue for now, then returns; a batch run, or a test.

        Jobs that are due later stay where they are, and cron entries don't fire. Raises what the server says instead of waiting for
        it to come back. Without `processes` handlers that ask for one run in threads. `ended(job, ending, error)` is called as each
        attempt ends; the rest is as for `run_async`.
        """
        chosen = self._chosen(queues)
        async with contextlib.AsyncExitStack() as stack:
            source = await self._opened(stack, client)
            heart = Heart(source.twin, self._clock, source.unread)
            team = self._team = self._new_team(source, settings_until_idle(settings or self._settings), heart, chosen)
            idleness = Idleness(team, ended)
            for name, queue in chosen.items():
                tasks = queue.tasks if processes else in_threads(queue.tasks)
                default = queue.default()
                team.consumers.append(ConsumerUntilIdle(team, name, tasks, default and tasks[default.name], idleness))
            heart.start()
            stack.callback(heart.stop)
            async with asyncio.TaskGroup() as group:
                for consumer in team.consumers:
                    group.create_task(consumer.run())
        if idleness.failure is not None:
            raise idleness.failure

    async def fire_cron(self, after: datetime, until: datetime, *, queues: Sequence[str] | None = None) -> int:
        """Enqueues the firings of cron entries (of `queues` only, if given) later than `after`, up to `until`; how many were new.

        Raises ValueError where an entry has more than ten thousand.
        """
        made = 0
        for entry in self._crons:
            if queues is not None and entry.task.queue not in queues:
                continue
            for firing in entry.between(after, until):
                placed = await entry.task.using(unique=entry.key(firing)).enqueue_async()
                made += not placed.existing
        return made

    @property
    def cron_entries(self) -> Sequence[Cron]:
        """The cron entries, in the order of their registration."""
        return tuple(self._crons)

    def next_cron(self, after: datetime) -> datetime | None:
        """When the first cron entry fires after that moment; None where none does."""
        return min((firing for entry in self._crons for firing in islice(entry.after(after), 1)), default=None)

    @contextlib.contextmanager
    def redirected(self, client: Client, new_client: Callable[[], AsyncClient], clock: Clock) -> Iterator[None]:
        """Meanwhile its tasks enqueue through `client`, and it runs by `clock` with a client that `new_client` makes.

        `pinlater.testing` puts its service there.
        """
        before = self._client, self._clock
        self._client, self._clock = new_client, clock
        try:
            with self._outbox.redirected(client, clock):
                yield
        finally:
            self._client, self._clock = before

    async def _opened(
        self, stack: contextlib.AsyncExitStack, given: AsyncClient | str | PathLike[str] | Sequence[str] | None
    ) -> AsyncClient:
        """The client to run with: one that was given is its giver's to close, one that is made here the stack's.

        One that was given may have other users, whose long polls must not end with this run's.
        """
        source = self._client if given is None else given
        if isinstance(source, AsyncClient):
            return source.sharing()
        made = source() if callable(source) else AsyncClient(source, source=self._source)
        return await stack.enter_async_context(made)

    def _new_team(
        self,
        client: AsyncClient,
        settings: WorkerSettings,
        heart: Heart,
        chosen: Mapping[str, _Queue],
        child_setup: ChildSetup | None = None,
    ) -> Team:
        retry = self._retry or linear(settings.retry_delay_ms / 1000)
        setups = [setup for setup in (child_setup, self._child_setup) if setup is not None]
        team = Team(client, settings, self._clock, heart, self._middleware, retry, self.counts, setups)
        for name, queue in chosen.items():
            team.slots.add(name, queue.weight, queue.concurrency)
        return team

    def _services(self, team: Team, vitals: Vitals, line: Line | None) -> list[Service]:
        """What answers while the event loop is blocked: the supervisor's line, which probes then come through, or else probes."""
        settings, loop = team.settings, asyncio.get_running_loop()
        if line is not None:
            hello = Hello(settings.health_host, settings.health_port, settings.grace_ms)
            orders = Orders(
                vitals.report,
                partial(loop.call_soon_threadsafe, team.stop.set),
                partial(loop.call_soon_threadsafe, self._hurry),
            )
            return [partial(line.obey, hello, orders)]
        if settings.health_port is not None:
            return [partial(serve_probes, settings.health_host, settings.health_port, vitals)]
        return []

    def request_stop(self) -> None:
        """Stops claiming and lets running jobs finish within the grace time; asked a second time, gives them back at once."""
        if self._team is None:
            return
        if self._stop_asked:
            self._hurry()
        self._stop_asked = True
        self._team.stop.set()

    def _hurry(self) -> None:
        if self._team is not None:
            self._team.hurry.set()
            self._team.stop.set()

    def check(self, queues: Sequence[str] | None = None) -> None:
        """Raises ValueError where there is nothing to run, or one of `queues` has no handler."""
        self._chosen(queues)

    def _chosen(self, queues: Sequence[str] | None) -> dict[str, _Queue]:
        with_handler = {name: queue for name, queue in self._queues.items() if queue.tasks}
        missing = [name for name in queues or () if name not in with_handler]
        if missing:
            raise ValueError(f"no handler for queue {missing[0]!r}; there are: {', '.join(with_handler) or 'none'}")
        if not with_handler:
            raise ValueError("the worker has no handler: decorate a function with @worker.handler(queue)")
        return {name: with_handler[name] for name in queues or with_handler}

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.request_stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
