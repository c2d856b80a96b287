"""The worker as users see it: register tasks, enqueue calls of them, run them.

worker = Worker("127.0.0.1:9010")

@worker.task("emails")
async def send(to: str) -> None:
    ...

send.enqueue("a@example.org")   # in the web application
worker.run()                    # in the worker's process
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from inspect import signature
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Never, TypeVar, cast
from zoneinfo import ZoneInfo

from pinlater.client._servers import check_servers
from pinlater.client._tls import Tls
from pinlater.client.async_client import AsyncClient
from pinlater.client.sync_client import Client
from pinlater.domain.clock import Clock, WallClock
from pinlater.domain.setting_types import check_integer
from pinlater.worker._enqueueing.enqueuer import Enqueuer
from pinlater.worker._enqueueing.servers import Addresses, WorkerServers
from pinlater.worker.codecs import Codec, JsonCodec
from pinlater.worker.context import JobContext
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.cron import Cron, Missed, cron
from pinlater.worker.durations import Duration
from pinlater.worker.middleware import Middleware
from pinlater.worker.option_checks import (
    check_attempts,
    check_client,
    check_codec,
    check_middleware,
    check_name,
    check_priority,
    check_queue,
    log_level_of,
    positive_duration_of,
)
from pinlater.worker.other_names import CRON_OPTIONS, cron_option_hint, task_option_hint, worker_option_hint
from pinlater.worker.registry import QueueTasks, Registry
from pinlater.worker.retries import RetryPolicy, check_retry, exponential
from pinlater.worker.settings import WorkerSettings, with_lower_limits
from pinlater.worker.tasks import Register, Task, TaskOptions, runs_in

# What runs jobs is loaded by the first run: a program that registers tasks and enqueues their jobs needs none of it.
if TYPE_CHECKING:
    from pinlater.worker._children.child import ChildSetup
    from pinlater.worker._consumer.consumer import Consumer
    from pinlater.worker._consumer.worker_run import OnEnd, WorkerRun
    from pinlater.worker._outbox.heartbeater import Heartbeater
    from pinlater.worker._process.control_channel import ControlChannel

R = TypeVar("R")
_MINUTE_S = 60.0
_HOUR_S = 3600.0


class Worker:
    """Registers tasks, enqueues their jobs and runs them.

    `client` is addresses, or a client that the caller opens and closes. `enqueue_servers`, `tls` and `token` are for addresses, as for
    `AsyncClient`.
    `concurrency` is how many jobs run at once, of all queues together; it overrides `settings`. `codec` and `retry` apply to tasks without
    their own. `middleware` runs around every job, the first one outermost. `child_setup`, a function at the top of a module, runs first in
    every child process.
    """

    def __init__(
        self,
        client: AsyncClient | str | PathLike[str] | Sequence[str] | None = None,
        *,
        enqueue_servers: str | PathLike[str] | Sequence[str] | None = None,
        concurrency: int | None = None,
        settings: WorkerSettings | None = None,
        source: str | None = None,
        codec: Codec | None = None,
        retry: RetryPolicy | None = None,
        middleware: Sequence[Middleware] = (),
        child_setup: ChildSetup | None = None,
        tls: Tls | bool | None = None,
        token: str | PathLike[str] | None = None,
        clock: Clock | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            own, settings_fields = [*signature(Worker).parameters], [field.name for field in fields(WorkerSettings)]
            raise TypeError(f"Worker() has no argument {name!r}{worker_option_hint(name, own, settings_fields)}")
        check_client(client)
        if isinstance(client, AsyncClient) or callable(client):
            for name, given in (("enqueue_servers", enqueue_servers), ("tls", tls), ("token", token)):
                if given is not None:
                    raise TypeError(f"Worker(): {name} is for addresses; a client has its own")
        if enqueue_servers is not None:
            check_servers(enqueue_servers)
        self._servers = WorkerServers(client, enqueue_servers, source, tls, token)
        if settings is not None and not isinstance(settings, WorkerSettings):
            raise TypeError(f"Worker(): settings must be WorkerSettings(...), not {type(settings).__name__}")
        self._settings = settings or WorkerSettings()
        if concurrency is not None:
            self._settings = replace(self._settings, concurrency=concurrency)
        check_codec("Worker(): codec", codec)
        self._codec = codec or JsonCodec()
        if retry is not None:
            check_retry("Worker(): retry", retry)
        self._retry = retry
        check_middleware(middleware)
        self._middleware = tuple(middleware)
        self._child_setup = child_setup
        self._clock = clock or WallClock()
        self._registry = Registry()
        self._enqueuer = Enqueuer(self._servers, self._clock, auto_create=self._settings.auto_create)
        self._run: WorkerRun | None = None
        self._stop_asked = False
        self.counts = WorkerCounts()

    def __repr__(self) -> str:
        queues = [f"{name} ({', '.join(queue.tasks)})" for name, queue in self._registry.queues_with_tasks.items()]
        return f"<{type(self).__name__} of {self._servers}: {', '.join(queues) or 'no task'}>"

    @property
    def recycled(self) -> str:
        """Why the worker ended so that another replaces it; '' if it did not."""
        return "" if self._run is None else self._run.recycled

    @property
    def settings(self) -> WorkerSettings:
        """The settings that `run_async` uses by default."""
        return self._settings

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that have tasks."""
        return tuple(self._registry.queues_with_tasks)

    @property
    def abandoned_functions(self) -> int:
        """Functions that still run although the worker gave up their jobs (time limit, lost claim, stop). They end with the process."""
        return 0 if self._run is None else self._run.abandoned_functions

    # --- registering ------------------------------------------------------------------------------------------------------
    def queue(self, name: str, *, concurrency: int | None = None, weight: int = 1) -> None:
        """Sets how many jobs of a queue run at once at most, and its weight when queues compete for the time of the worker's slots.

        Raises TypeError or ValueError that names queue and argument.
        """
        check_queue(name)
        if concurrency is not None:
            check_integer(f"queue {name}: concurrency", concurrency, 1)
        check_integer(f"queue {name}: weight", weight, 1)
        queue = self._registry.queue(name)
        queue.concurrency, queue.weight = concurrency, weight

    def task(
        self,
        queue: str,
        *,
        name: str | None = None,
        default: bool = False,
        process: bool = False,
        concurrency: int | None = None,
        retry: RetryPolicy | None = None,
        attempts: int | None = 5,
        priority: int = 1,
        time_limit: Duration | None = _HOUR_S,
        claim_timeout: Duration | None = _MINUTE_S,
        ordering_key: Callable[..., str | None] | None = None,
        codec: Codec | None = None,
        log_level: str = "info",
        **unknown: Never,
    ) -> Register:
        """Makes the decorated function a task of `queue`, called `name` (default: the function's name).

        A coroutine runs on the event loop and must not block it; a plain function runs in a thread, or with `process` in a child process.
        The parameters are the job's body, except for one of the type `JobContext` or `ClaimedJob`, best the first, which the worker
        passes. A function that returns has succeeded, unless it returns a `Snooze`, `Retry` or `Reject`, which is the same as raising it.

        A `default` task also takes the queue's jobs that name no task; a queue's only task is its default. `attempts`, `priority` and
        `claim_timeout` apply to the jobs that the task enqueues; None leaves attempts and claim timeout to the queue. Durations are
        seconds, a timedelta or text such as `10m`; `time_limit=None` is none. `concurrency` is the queue's. Jobs for which `ordering_key`
        makes the same key run one after the other; it takes some of the task's arguments by their names, and returns None for a job
        without a key. `log_level`, `debug` for a task that runs often, is that of the log line of an attempt that succeeds; failures have
        their own. Raises TypeError or ValueError that names task and argument if an option is invalid.
        """
        check_queue(queue)
        check_name(name)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            with self._registry.all_or_nothing():
                called = name or str(getattr(function, "__name__", type(function).__name__))
                for option in unknown:
                    raise TypeError(f"task {called}: @worker.task() has no option {option!r}{task_option_hint(option)}")
                check_attempts(called, attempts)
                check_priority(called, priority)
                check_codec(f"task {called}: codec", codec)
                if retry is not None:
                    check_retry(f"task {called}: retry", retry)
                options = TaskOptions(
                    runs_in=runs_in(called, function, process),
                    codec=codec or self._codec,
                    retry=retry,
                    time_limit_ms=positive_duration_of(called, "time_limit", time_limit),
                    attempts=attempts,
                    priority=priority,
                    claim_timeout_ms=positive_duration_of(called, "claim_timeout", claim_timeout),
                    default=default,
                    log_level=log_level_of(called, log_level),
                    ordering_key=ordering_key,
                )
                task: Task[..., Any] = Task(
                    function, queue, called, options, self._enqueuer, self._registry.queue(queue).tasks
                )
                if concurrency is not None:
                    self.queue(queue, concurrency=concurrency, weight=self._registry.queue(queue).weight)
                self._registry.add(task)
                return task

        return cast("Register", register)

    handler = task  # an alias, so that `@worker.handler` works too

    def cron(
        self,
        expression: str,
        *,
        queue: str = "cron",
        name: str | None = None,
        tz: str | ZoneInfo = "UTC",
        missed: Missed | str | None = None,
        overlap: bool = True,
        look_back: Duration = timedelta(hours=1),
        **options: Any,
    ) -> Callable[[Callable[[], R] | Callable[[JobContext], R] | Task[[], R]], Task[[], R]]:
        """Enqueues the decorated function, or task, when the expression fires: `@worker.cron("*/5 * * * *", tz="Europe/Berlin")`.

        The expression has five or six fields (seconds first), or is a name such as `@daily`. `JobContext.cron_time` is the planned time.
        A plain function becomes a task of `queue` first, with `options` as for `task`. Many workers may have the same entry: each firing
        is one job. `name` is the entry's, not the task's, whose name it is by default. `missed` says what happens to firings up to
        `look_back` ago that no worker made, also before the first start of a new entry: "latest", the default, "skip" or "all". Unless it
        is "all", no further firing is enqueued while one waits for its run. With `overlap=False` none is while one waits or runs, and
        `missed` is "skip". If both the day of the month and the weekday are given, either is enough, but both must match if one of them
        begins with `*`, as `*/2` does; `pinlater worker cron` shows which.
        """

        def register(function: Callable[[], R] | Callable[[JobContext], R] | Task[[], R]) -> Task[[], R]:
            given: Any = function
            for option in options.keys() - CRON_OPTIONS:
                raise TypeError(f"@worker.cron() has no option {option!r}{cron_option_hint(option)}")
            with self._registry.all_or_nothing():
                task: Task[[], R] = given if isinstance(given, Task) else self.task(queue, **options)(given)
                entry = cron(task, expression, name=name, tz=tz, missed=missed, overlap=overlap, look_back=look_back)
                self._registry.add_cron(entry)
            return task

        return register

    # --- creating queues --------------------------------------------------------------------------------------------------
    def create_queues(self) -> None:
        """Creates the queues that have tasks and don't exist yet."""
        self._enqueuer.create_queues(self.queues)

    async def create_queues_async(self) -> None:
        """`create_queues`, for coroutines."""
        await self._enqueuer.create_queues_async(self.queues)

    # --- running ----------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Runs until SIGTERM or SIGINT; a second signal skips the grace time. Blocks. Abandoned functions end with the process.

        If the program has set up no logging, the log goes to standard error as text: the worker's lines from info on, the program's from
        warning on unless a logger has a level of its own. Raises SystemExit with the code 75 if the worker was recycled, so that its
        supervisor starts another.
        """
        from pinlater.supervision.start_signals import stopped_by
        from pinlater.worker._process import default_logs, event_loop

        self._run, self._stop_asked = None, False
        with stopped_by(self._signalled), default_logs.shown():
            event_loop.run(self.run_async(handle_signals=True))
        if self.recycled:
            raise SystemExit(os.EX_TEMPFAIL)

    async def run_async(
        self,
        *,
        client: AsyncClient | str | PathLike[str] | Sequence[str] | None = None,
        settings: WorkerSettings | None = None,
        queues: Sequence[str] | None = None,
        handle_signals: bool = False,
        child_setup: ChildSetup | None = None,
        control: ControlChannel | None = None,
    ) -> None:
        """Runs until `request_stop`. `client`, `settings` and `queues` (some of those with tasks) override the worker's own.

        With `client` the worker's tasks and cron entries enqueue there too until the end, from any thread of this process.

        Tasks that ignore cancellation stay on the caller's event loop and in its threads; `run` ends in spite of them. `child_setup` runs
        in child processes before the worker's own. `control` is the channel to a supervisor, for `pinlater worker --processes`.
        """
        from pinlater.supervision.signals import handled
        from pinlater.supervision.start_signals import STOP_SIGNALS
        from pinlater.worker._consumer import banner
        from pinlater.worker._consumer.consumer import Consumer
        from pinlater.worker._process.endpoint import services_of
        from pinlater.worker._process.health import WorkerHealth

        chosen = self._registry.chosen(queues)
        async with contextlib.AsyncExitStack() as stack:
            limited = with_lower_limits(settings or self._settings, random.random())  # noqa: S311 - spreads processes, guards nothing
            run = await self._new_run(stack, client, limited, chosen, child_setup)
            if client is None and (control is None or control.number == 0):
                banner.log_unused_variable(self._servers)
            self._stop_asked = run.stop.is_set()
            consumers = [Consumer(run, name, queue.tasks, queue.default()) for name, queue in chosen.items()]
            if handle_signals:
                stack.enter_context(handled(dict.fromkeys(STOP_SIGNALS, self._signalled)))
            labels = None if control is None else {"process": str(control.number)}
            health = WorkerHealth(run, consumers, self._clock, labels)
            run.heartbeater.start(*services_of(run, health, control))
            stack.callback(run.heartbeater.stop)
            await self._run_until_stopped(run, consumers, health.mark_until_cancelled(), chosen)
            banner.log_stop(run)

    async def _run_until_stopped(
        self,
        run: WorkerRun,
        consumers: Sequence[Consumer],
        marks: Coroutine[Any, Any, None],
        chosen: Mapping[str, QueueTasks],
    ) -> None:
        from pinlater.worker._consumer import banner
        from pinlater.worker._cron.timetable import Timetable

        entries = self._registry.crons_of(chosen)
        timetables = [Timetable(entry, self._clock, ask=self._enqueuer.ask_async) for entry in entries]
        async with asyncio.TaskGroup() as group:
            marking = group.create_task(marks)
            firing = [group.create_task(timetable.run(), name="cron") for timetable in timetables]
            banner.log_start(run, chosen, len(timetables))
            banner.warn_of_queues_without_tasks(self._registry.queues_without_tasks, self.queues)
            consuming = [group.create_task(consumer.run()) for consumer in consumers]
            await run.stop.wait()
            for task in firing:
                task.cancel()
            await asyncio.wait(consuming)
            marking.cancel()

    async def run_until_idle(
        self,
        *,
        client: AsyncClient | str | PathLike[str] | Sequence[str] | None = None,
        settings: WorkerSettings | None = None,
        queues: Sequence[str] | None = None,
        processes: bool = True,
        ended: OnEnd | None = None,
    ) -> None:
        """Runs the jobs that are due, and due jobs that they enqueue, then returns. For batch runs and tests.

        Later jobs stay where they are, and cron entries don't fire. Raises the server's errors instead of retrying. Without `processes`
        tasks that run in processes run in threads. Calls `ended(job, ending, error)` as each attempt ends; the rest is as for `run_async`.
        """
        from pinlater.worker._consumer.until_idle import Idleness, in_threads, settings_until_idle

        chosen = self._registry.chosen(queues)
        async with contextlib.AsyncExitStack() as stack:
            run = await self._new_run(stack, client, settings_until_idle(settings or self._settings), chosen)
            run.on_end = ended
            idleness = Idleness(run)
            for name, queue in chosen.items():
                tasks, default = queue.tasks if processes else in_threads(queue.tasks), queue.default()
                idleness.add_consumer(name, tasks, default and tasks[default.name])
            run.heartbeater.start()
            stack.callback(run.heartbeater.stop)
            async with asyncio.TaskGroup() as group:
                for consumer in idleness.consumers:
                    group.create_task(consumer.run())
        if idleness.failure is not None:
            raise idleness.failure

    async def fire_cron(
        self,
        after: datetime,
        until: datetime,
        *,
        queues: Sequence[str] | None = None,
        away_until: datetime | None = None,
    ) -> int:
        """Enqueues the firings of cron entries (of `queues`, if given) later than `after`, up to `until`. Returns how many were new.

        Up to `away_until`, if given, no worker ran: of those firings it makes what each entry's `missed` says. It makes none if an earlier
        firing waits, unless `missed` is "all". Raises ValueError if an entry has more than ten thousand others.
        """
        from pinlater.worker._cron.timetable import Firings

        made = 0
        for entry in self._registry.crons_of(queues):
            missed = [] if away_until is None else [each for each in entry.missed_before(away_until) if each > after]
            wanted = missed + entry.between(away_until or after, until)
            firings = Firings(entry, self._enqueuer.ask_async)
            if not wanted or await firings.one_waits():
                continue
            for firing in wanted:
                made += not (await firings.enqueue(firing)).existing
        return made

    @property
    def cron_entries(self) -> Sequence[Cron]:
        """The cron entries, in the order of their registration."""
        return tuple(self._registry.crons)

    def next_cron(self, after: datetime, *, queues: Sequence[str] | None = None) -> datetime | None:
        """When the first cron entry (of `queues`, if given) fires after that moment; None if none does."""
        firings = (firing for entry in self._registry.crons_of(queues) for firing in islice(entry.after(after), 1))
        return min(firings, default=None)

    @contextlib.contextmanager
    def redirected(self, client: Client, new_client: Callable[[], AsyncClient], clock: Clock) -> Iterator[None]:
        """Meanwhile its tasks enqueue through `client`, and it runs with `clock` and the client of `new_client`. For `pinlater.testing`."""
        before = self._servers, self._clock
        self._servers, self._clock = self._servers._replace(given=new_client), clock
        try:
            with self._enqueuer.redirected(client, clock):
                yield
        finally:
            self._servers, self._clock = before

    async def _new_run(
        self,
        stack: contextlib.AsyncExitStack,
        given: AsyncClient | Addresses,
        settings: WorkerSettings,
        chosen: Mapping[str, QueueTasks],
        child_setup: ChildSetup | None = None,
    ) -> WorkerRun:
        from pinlater.worker._outbox.heartbeater import Heartbeater

        check_client(given)
        servers = self._servers if given is None else self._servers.instead(given)
        client = await servers.open(stack)
        if given is not None:
            stack.enter_context(self._enqueuer.redirected(given))
        heartbeater = Heartbeater(client.unopened_copy, self._clock, client.unread)
        setups = [setup for setup in (child_setup, self._child_setup) if setup is not None]
        of_children = {"child_setups": setups, "servers_of_children": None if given is None else servers.for_children}
        return self._run_with(client, settings, heartbeater, chosen, **of_children)

    def _run_with(
        self,
        client: AsyncClient,
        settings: WorkerSettings,
        heartbeater: Heartbeater,
        chosen: Mapping[str, QueueTasks],
        **more: Any,
    ) -> WorkerRun:
        """`more`: of `RunOptions`."""
        from pinlater.worker._consumer.worker_run import RunOptions, WorkerRun

        is_first = self._run is None
        retry = self._retry or exponential(settings.retry_delay_ms / 1000)
        options = RunOptions(settings, self._clock, self._middleware, retry, self.counts, **more)
        run = self._run = WorkerRun(client, heartbeater, options)
        if is_first and self._stop_asked:
            run.stop.set()
        for name, queue in chosen.items():
            run.slots.add(name, queue.weight, queue.concurrency)
        return run

    def request_stop(self) -> None:
        """Stops claiming; running jobs may finish within the grace time. A second call gives them back at once.

        Before the first run, it ends that run as it begins.
        """
        if self._stop_asked and self._run is not None:
            self._run.stop_now.set()
        self._stop_asked = True
        if self._run is not None:
            self._run.stop.set()

    def _signalled(self) -> None:
        """A first Ctrl-C says what the worker waits for, as it would seem to do nothing otherwise."""
        if self._run is not None and not self._stop_asked:
            from pinlater.worker._consumer.banner import log_stopping

            log_stopping(self._run)
        self.request_stop()

    def check(self, queues: Sequence[str] | None = None) -> None:
        """Raises ValueError if there is nothing to run, or if one of `queues` has no task."""
        self._registry.chosen(queues)
