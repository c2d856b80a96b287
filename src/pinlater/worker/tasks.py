"""A task: a function with a name and a queue. Any process may enqueue a call of it; a worker runs the call later.

`enqueue` and the like block; the forms that end in `_async` are for coroutines.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from sys import modules
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, Never, ParamSpec, Protocol, TypeVar, overload

from pinlater.client._bodies import check_jobs
from pinlater.client.batching import Placed
from pinlater.client.values import ClaimedJob, Job, UniqueKey
from pinlater.worker import envelope
from pinlater.worker._enqueueing.arguments import Parameters, parameters_of
from pinlater.worker._enqueueing.enqueuer import Enqueuer
from pinlater.worker._enqueueing.ordering_keys import OrderingKeys
from pinlater.worker.codecs import Codec
from pinlater.worker.context import JobContext
from pinlater.worker.durations import Duration
from pinlater.worker.errors import UnusableHandler
from pinlater.worker.option_checks import JobOptions, check_expiry, check_options
from pinlater.worker.other_names import method_hint, producer_hint, using_option_hint
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.tracing import with_trace

P = ParamSpec("P")
R = TypeVar("R")
J = TypeVar("J", ClaimedJob, JobContext)
_MANY, _MANY_ASYNC = "enqueue_many([job])", "enqueue_many_async([job])"


class RunsIn(Enum):
    """Where a worker runs a task."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


class TaskOptions(NamedTuple):
    """How a task's jobs run. Without a `retry` of its own the task uses the worker's. `ordering_key` makes the key of a call from the
    arguments that it takes, by their names."""

    runs_in: RunsIn
    codec: Codec
    retry: RetryPolicy | None = None
    time_limit_ms: int | None = 3_600_000
    attempts: int | None = 5
    priority: int = 1
    claim_timeout_ms: int | None = 60_000
    default: bool = False
    log_level: int = logging.INFO
    ordering_key: Callable[..., str | None] | None = None


class Task(Generic[P, R]):
    """A function and how to run it. Calling it calls the function directly."""

    def __init__(
        self,
        function: Callable[..., R],
        queue: str,
        name: str,
        options: TaskOptions,
        enqueuer: Enqueuer,
        tasks_of_queue: Mapping[str, object],
    ) -> None:
        self.function = function
        self.queue = queue
        self.name = name
        self.options = options
        self.parameters: Parameters = parameters_of(function, name, options.codec)
        self._enqueuer = enqueuer
        self._tasks_of_queue = tasks_of_queue
        self.ordering_keys = (
            None if options.ordering_key is None else OrderingKeys(name, options.ordering_key, self.parameters)
        )
        self._plain: Producer[P] = Producer(self, enqueuer, JobOptions())
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        if options.runs_in is RunsIn.PROCESS:
            self.reference()  # raises now if another process could not import it

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    if not TYPE_CHECKING:  # type checkers would take any name for an attribute

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(f"a task has no {name!r}{method_hint(name)}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<task {self.name} on {self.queue}>"

    def reference(self) -> tuple[str, str]:
        """Module and name by which another process imports the function. Raises `UnusableHandler`."""
        module = getattr(self.function, "__module__", "")
        name = getattr(self.function, "__qualname__", "")
        if not module or not name or "<" in name:
            raise UnusableHandler(f"{name or self.function!r} can't run in a process: define it at the top of a module")
        return module, name

    # --- enqueueing ---------------------------------------------------------------------------------------------------
    def using(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | int | None = None,
        priority: int | None = None,
        unique: str | UniqueKey | None = None,
        headers: Mapping[str, str] | None = None,
        attempts: int | None = None,
        expires_in: Duration | None = None,
        claim_timeout: Duration | None = None,
        ordering_key: str | None = None,
        **unknown: Never,
    ) -> Producer[P]:
        """The task with options for the jobs to enqueue: `send.using(delay=60).enqueue("x")`.

        `delay`, `expires_in` and `claim_timeout` are seconds, a timedelta or text such as `5m`; `at` is a datetime with a time zone, or
        milliseconds since the epoch. While a job with the key `unique` is unfinished, enqueueing returns that job instead of a new one.
        A job with an `ordering_key` runs once the jobs of the queue that had the key before it have ended; it takes the place of the key
        that the task would make.
        Raises TypeError or ValueError that names task and argument if an option is invalid, also if `expires_in` ends before `delay`.
        An `expires_in` that ends before `at` is a ValueError of `enqueue`.
        """
        for name in unknown:
            raise TypeError(f"task {self.name}: using() has no option {name!r}{using_option_hint(name)}")
        return Producer(
            self,
            self._enqueuer,
            JobOptions(
                delay=delay,
                at=at,
                priority=priority,
                unique=unique,
                headers=headers or {},
                attempts=attempts,
                expires_in=expires_in,
                claim_timeout=claim_timeout,
                ordering_key=ordering_key,
            ),
        )

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """The job of a call, for `enqueue_many` and for the client. Raises TypeError if the arguments don't fit the function."""
        return self._plain.job(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Placed:
        """Enqueues a call. The server has stored the job when this returns."""
        return self._plain.enqueue(*args, **kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Placed:
        """`enqueue`, for coroutines."""
        return await self._plain.enqueue_async(*args, **kwargs)

    def enqueue_many(self, jobs: Iterable[Job]) -> list[Placed]:
        """Enqueues jobs made with `job`, in order and in as few requests as possible; reads `jobs` meanwhile.

        After an error, also one of `jobs` itself, the jobs of earlier requests are stored: `partly_enqueued(error)` has their descriptors,
        and the rest for another `enqueue_many`. Raises TypeError for a job of a task that the queue does not have.
        """
        check_jobs(jobs, _MANY)
        return self._enqueuer.send(self.queue, jobs, self._tasks_of_queue)

    async def enqueue_many_async(self, jobs: Iterable[Job]) -> list[Placed]:
        """`enqueue_many`, for coroutines."""
        check_jobs(jobs, _MANY_ASYNC)
        return await self._enqueuer.send_async(self.queue, jobs, self._tasks_of_queue)


class TaskWithJob(Task[P, R], Generic[P, R, J]):
    """A task whose function takes its job or context first: the worker passes that, so `enqueue` does not take it."""

    def __call__(self, job: J, /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        return self.function(job, *args, **kwargs)


class Register(Protocol):
    """Makes a task of a function, and tells type checkers which parameters `enqueue` takes."""

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> TaskWithJob[P, R, JobContext]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[ClaimedJob, P], R], /) -> TaskWithJob[P, R, ClaimedJob]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, function: Callable[..., R], /) -> Task[..., R]: ...


class Producer(Generic[P]):
    """A task with options for its jobs."""

    def __init__(self, task: Task[P, Any], enqueuer: Enqueuer, options: JobOptions) -> None:
        self._task = task
        self._enqueuer = enqueuer
        self._options = options
        self._times_of = check_options(task.name, options)
        # What all its jobs have in common; times are computed for each job.
        self._common = Job(
            b"",
            priority=task.options.priority if options.priority is None else options.priority,
            attempts_allowed=task.options.attempts if options.attempts is None else options.attempts,
            headers=self._headers(options.headers),
            unique=UniqueKey(options.unique) if isinstance(options.unique, str) else options.unique,
            claim_timeout_ms=task.options.claim_timeout_ms
            if self._times_of.claim_timeout_ms is None
            else self._times_of.claim_timeout_ms,
        )
        self._has_times = not (options.delay is None and options.at is None and options.expires_in is None)

    def __repr__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self._options._asdict().items() if value not in (None, {})]
        return f"<task {self._task.name} on {self._task.queue}, using {', '.join(given) or 'no option'}>"

    if not TYPE_CHECKING:  # as for a task

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(f"a task with options has no {name!r}{producer_hint(name)}", name=name, obj=self)

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        task = self._task
        return envelope.headers_for(task.name, task.parameters.content_type(task.options.codec), headers)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Like `Task.job`."""
        task, options, common = self._task, self._options, self._common
        body = task.parameters.encode(task.options.codec, args, kwargs)
        headers = with_trace(options.headers) if "opentelemetry.trace" in modules else options.headers
        all_headers = common.headers if headers is options.headers else self._headers(headers)
        ordering_key = options.ordering_key
        if ordering_key is None and task.ordering_keys is not None:
            ordering_key = task.ordering_keys.of(args, kwargs)
        run_after_ms, expires_at_ms = self._times() if self._has_times else (None, None)
        return Job(
            body,
            common.priority,
            run_after_ms,
            common.attempts_allowed,
            "",
            all_headers,
            common.unique,
            common.claim_timeout_ms,
            expires_at_ms,
            ordering_key,
        )

    def _times(self) -> tuple[int | None, int | None]:
        """When the job runs, and when it expires."""
        times, now_ms = self._times_of, self._enqueuer.clock.now_ms()
        run_after_ms = times.at_ms if times.delay_ms is None else now_ms + times.delay_ms
        check_expiry(self._task.name, self._options, times, now_ms)
        return run_after_ms, None if times.expires_in_ms is None else now_ms + times.expires_in_ms

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Placed:
        """Like `Task.enqueue`."""
        return self._enqueuer.send(self._task.queue, [self.job(*args, **kwargs)])[0]

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Placed:
        """Like `Task.enqueue_async`."""
        return (await self._enqueuer.send_async(self._task.queue, [self.job(*args, **kwargs)]))[0]


def runs_in(task: str, function: Callable[..., Any], in_process: bool) -> RunsIn:
    """Coroutines run on the event loop, plain functions in a thread, or with `in_process` in a child process. Raises `UnusableHandler`."""
    # An object with an async __call__ counts, too.
    called = [function, getattr(function, "__call__", None)]  # noqa: B004
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in called):
        raise UnusableHandler(f"task {task}: the function has a `yield`, so that a call of it runs none of its lines")
    is_async = any(map(inspect.iscoroutinefunction, called))
    if is_async and in_process:
        raise UnusableHandler(
            f"task {task}: the function is a coroutine and runs on the event loop; only plain functions run in a process"
        )
    if in_process:
        return RunsIn.PROCESS
    return RunsIn.LOOP if is_async else RunsIn.THREAD
