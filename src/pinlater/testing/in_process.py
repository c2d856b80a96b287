"""A PinLater service inside the test's process: real rules, no sockets, a clock that the test moves.

    with InProcessService() as service, service.serving(worker):
        send.enqueue("a@example.org")                # any code that enqueues
        service.assert_enqueued(send, "a@example.org")
        await service.run_until_idle(worker)         # the worker's tasks run, on the test's event loop
        service.clock.advance(hours=1)               # delays, retries, expiry, claims, cron

It consists of the server's own operations on the store in memory, behind the real codec; only listeners and sockets are missing.
Weakness: moving the clock skips the moments in between; `run_for` stops at those at which something is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Self
from weakref import WeakKeyDictionary

from pinlater.client.async_client import AsyncClient
from pinlater.client.sync_client import Client
from pinlater.client.values import ClaimedJob, JobInfo, JobState
from pinlater.domain.passwords import hash_password
from pinlater.server.features.all import METHODS
from pinlater.server.operations.job_settings import JobSettings
from pinlater.testing._link import ADDRESS, Connector
from pinlater.testing._loop import LoopThread
from pinlater.testing._record import EnqueuedJobs
from pinlater.testing._seen import EnqueuedCall, Ran, arguments_of, call_of
from pinlater.testing._server import MemoryServer
from pinlater.testing.clock import STARTS_AT, TurnedClock
from pinlater.testing.errors import JobFailed, NeverIdle
from pinlater.worker import Ending, Retry, Task, Worker, envelope

P = ParamSpec("P")
_PAGE = 1_000
_LISTED_MAX = 20


class _IdleRun(NamedTuple):
    """One call of `run_until_idle`."""

    concurrency: int
    queues: Sequence[str] | None
    processes: bool
    jobs_max: int
    ran: list[Ran]


class _CronTimes(NamedTuple):
    """Until when the firings of a queue are made; until when it was left out after that."""

    made_until: datetime
    away_until: datetime | None = None


class InProcessService:
    """A service that starts empty. Use as `with InProcessService() as service:`, or `close` it.

    `clock` begins at `now` and stands still until it is moved. `client` is a synchronous client, for the test and for code under test.
    `settings` are a server's settings of jobs, and `admin_password` is the one that `delete_queue` needs. Everything here may be used from
    plain code and from coroutines, of any thread.
    """

    def __init__(
        self,
        *,
        now: datetime = STARTS_AT,
        settings: JobSettings | None = None,
        admin_password: str | None = None,
    ) -> None:
        self.clock = TurnedClock(now, self._sweep)
        self._record = EnqueuedJobs(self.clock)
        self._ran: list[Ran] = []
        self._served: list[Worker] = []
        self._cron_times: WeakKeyDictionary[Worker, dict[str, _CronTimes]] = WeakKeyDictionary()
        self._started_at = self.clock.now
        self._thread = LoopThread(self.clock)
        self._server = MemoryServer(
            self.clock,
            settings or JobSettings(),
            admin_password and hash_password(admin_password),
            methods={**METHODS, "enqueueJobs": replace(METHODS["enqueueJobs"], handle=self._record.enqueue_jobs)},
        )
        self._thread.start()
        self._thread.run(self._server.open)
        self._connect = Connector(self._server, self._thread, self.clock)
        self.client = self.new_client()

    def new_client(self, *, source: str = "test") -> Client:
        """A new synchronous client, for code that closes its client: `with service.new_client() as client:`."""
        return Client(str(ADDRESS), source=source, clock=self.clock, connect=self._connect)

    def async_client(self, *, source: str = "test") -> AsyncClient:
        """A new asynchronous client, not open yet: `async with service.async_client() as client:`."""
        return AsyncClient(str(ADDRESS), source=source, clock=self.clock, connect=self._connect)

    def close(self) -> None:
        """Stops the service, and drops all its jobs. May be called twice."""
        if self._connect.closed:
            return
        self._connect.closed = True
        self.client.close()
        self._thread.run(self._server.close)
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sweep(self) -> None:
        if not self._connect.closed:
            self._thread.run(self._server.sweep)

    # --- running ----------------------------------------------------------------------------------------------------------
    @contextmanager
    def serving(self, *workers: Worker) -> Iterator[Self]:
        """Within `with service.serving(worker):` the worker's tasks enqueue in this service and use its clock, in any thread. Creates the
        workers' queues."""
        with ExitStack() as stack:
            for worker in workers:
                for queue in worker.queues:
                    self.client.create_queue(queue)
                stack.enter_context(worker.redirected(self.client, self._client_of_a_worker, self.clock))
                self._served.append(worker)
                stack.callback(self._served.remove, worker)
            yield self

    def _at_work(self, given: tuple[Worker, ...]) -> tuple[Worker, ...]:
        for one in given:
            if not isinstance(one, Worker):
                raise TypeError(f"expected a worker, not {one!r}; give a time by name: run_for(hours=1)")
        workers = given or tuple(dict.fromkeys(self._served))
        if not workers:
            raise ValueError("no worker to run: pass one, or call this in `with service.serving(worker):`")
        return workers

    async def run_until_idle(
        self,
        *workers: Worker,
        raise_errors: bool = True,
        concurrency: int = 1,
        queues: Sequence[str] | None = None,
        processes: bool = False,
        jobs_max: int = 10_000,
    ) -> list[Ran]:
        """Runs all due jobs, and the due jobs that these enqueue, on this event loop; returns the attempts in the order of their ends.

        `workers` run them, or else the workers of `serving`. One job at a time unless `concurrency` says more. Later jobs wait until the
        clock is moved. Cron entries of `queues` fire for the time since these last ran (at first: since the service began), as if the
        worker had been there; more than ten thousand firings of one are a ValueError. The other queues' entries count as missed up to
        now: when they run next, they fire according to their `missed`. Tasks that ask for a process run in a thread, where they see the
        test's patches, unless `processes` is given. The first error of a task is raised when all is done, except for
        `raise_errors=False`; `failures` has them all. `Retry` and `Snooze` are planned and are not raised; `Reject` is. Raises
        `NeverIdle` after `jobs_max` attempts.
        """
        workers = self._at_work(workers)
        _check_queues(queues, workers)
        run = _IdleRun(concurrency, queues, processes, jobs_max, [])
        with self.serving(*workers):
            for one in workers:
                await self._fire_cron(one, run)
            before = -1
            while len(run.ran) != before:
                before = len(run.ran)
                for one in workers:
                    await self._run(one, run)
                if len(workers) == 1:
                    break
        if raise_errors:
            _raise_first([one for one in run.ran if one.failed and not isinstance(one.error, Retry)])
        return run.ran

    async def _fire_cron(self, worker: Worker, run: _IdleRun) -> None:
        times = self._cron_times.setdefault(worker, {})
        for queue in _chosen(worker, run.queues):
            known = times.get(queue, _CronTimes(self._started_at))
            await worker.fire_cron(known.made_until, self.clock.now, queues=[queue], away_until=known.away_until)
            times[queue] = _CronTimes(self.clock.now)
        self._leave_out(worker, run.queues)

    def _leave_out(self, worker: Worker, queues: Sequence[str] | None) -> None:
        """Up to now, the firings of the worker's queues that are not in `queues` count as missed."""
        times = self._cron_times.setdefault(worker, {})
        for queue in set(worker.queues).difference(_chosen(worker, queues)):
            known = times.get(queue, _CronTimes(self._started_at))
            times[queue] = known._replace(away_until=self.clock.now)

    async def _run(self, worker: Worker, run: _IdleRun) -> None:
        def ended(job: ClaimedJob, ending: Ending, error: BaseException | None) -> None:
            task = envelope.opened(job.body, job.headers).task
            one = Ran(task, job.descriptor, job.attempt, ending.kind, error, ending.error_type, ending.error_text)
            run.ran.append(one)
            self._ran.append(one)
            if len(run.ran) >= run.jobs_max:
                worker.request_stop()

        settings = replace(worker.settings, concurrency=run.concurrency)
        queues = _chosen(worker, run.queues)
        if queues:
            await worker.run_until_idle(settings=settings, queues=queues, processes=run.processes, ended=ended)
        if len(run.ran) >= run.jobs_max:
            raise NeverIdle(f"{run.jobs_max} attempts were made and there is no end; the last: {run.ran[-1].task!r}")

    async def run_for(
        self,
        *workers: Worker,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        raise_errors: bool = True,
        concurrency: int = 1,
        queues: Sequence[str] | None = None,
        processes: bool = False,
        jobs_max: int = 10_000,
    ) -> list[Ran]:
        """Moves the clock forward by that much, step by step: at each moment at which something is due, `workers` (or else those of
        `serving`) run until idle.

        The other arguments are those of `run_until_idle`; `jobs_max` applies to all attempts together. Jobs of other queues than `queues`
        wait, and their cron entries count as missed. An error that is raised leaves the clock where it happened.
        """
        workers = self._at_work(workers)
        _check_queues(queues, workers)
        end = self.clock.now + timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        run = partial(
            self.run_until_idle,
            *workers,
            raise_errors=raise_errors,
            concurrency=concurrency,
            queues=queues,
            processes=processes,
        )
        ran = await run(jobs_max=jobs_max)
        while (moment := self._next_moment(workers, queues, end)) is not None:
            self.clock.advance_to(moment)
            try:
                ran += await run(jobs_max=jobs_max - len(ran))
            except NeverIdle:
                raise NeverIdle(
                    f"{jobs_max} attempts were made until {self.clock.now}, and the end is {end}; the last: {self._ran[-1].task!r}. "
                    "A cron entry that fires often makes many: leave it out with `queues`, or raise `jobs_max`"
                ) from None
        self.clock.advance_to(end)
        for one in workers:
            self._leave_out(one, queues)
        return ran

    def _next_moment(self, workers: Sequence[Worker], queues: Sequence[str] | None, end: datetime) -> datetime | None:
        """The next moment, up to `end`, at which a job becomes due, a claim times out or a cron entry fires; in `queues`, if given."""
        now = self.clock.now
        moments = [worker.next_cron(now, queues=queues) for worker in workers]
        for queue in {queue for worker in workers for queue in _chosen(worker, queues)}:
            due = [job.run_after_ms for job in self._scan(queue, JobState.PENDING, future=True)]
            # A claim is valid up to its deadline and is over after it.
            claims = [(job.claim_deadline_ms or 0) + 1 for job in self._scan(queue, JobState.IN_PROGRESS)]
            moments += [datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms in due + claims if at_ms is not None]
        return min((moment for moment in moments if moment is not None and now < moment <= end), default=None)

    def _client_of_a_worker(self) -> AsyncClient:
        return self.async_client(source="worker")

    # --- looking ----------------------------------------------------------------------------------------------------------
    @property
    def ran(self) -> list[Ran]:
        """All attempts of all runs so far."""
        return list(self._ran)

    @property
    def failures(self) -> list[Ran]:
        """The attempts that failed, of all runs so far."""
        return [one for one in self._ran if one.failed]

    def enqueued(self, task: Task[P, Any]) -> list[EnqueuedCall]:
        """The calls of this task that were ever enqueued here, in order, including those that have been run.

        Jobs that already existed under their unique key are left out.
        """
        called = [call_of(task, stored) for stored in self._record.stored]
        return [call for call in called if call is not None]

    def assert_enqueued(self, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall:
        """Returns the last enqueued call of this task with these arguments. Raises AssertionError, which names the calls that were
        enqueued instead."""
        expected = task.job(*args, **kwargs)
        content_type = (expected.headers or {}).get(envelope.CONTENT_TYPE_HEADER, "")
        arguments = arguments_of(task, expected.body, content_type)
        calls: list[EnqueuedCall] = self.enqueued(task)
        same = [call for call in calls if call.arguments == arguments]
        if same:
            return same[-1]
        raise AssertionError(f"{task.name}({_shown(arguments)}) was not enqueued; enqueued were:{_listed(calls)}")

    def forget_enqueued(self) -> None:
        """Lets `enqueued` and `assert_enqueued` start over; the jobs stay."""
        self._record.clear()

    def jobs(self, queue: str, state: JobState | None = None) -> list[JobInfo]:
        """Returns the queue's jobs as they are now, with their bodies, in the order of their enqueues; only those in `state` if it is
        given.
        """
        found: list[JobInfo] = []
        for one in JobState if state is None else (state,):
            for future in (False, True) if one is JobState.PENDING else (False,):
                found += self._scan(queue, one, future=future, bodies=True)
        return sorted(found, key=lambda job: int(job.descriptor.rpartition(":")[2]))

    def _scan(self, queue: str, state: JobState, *, future: bool = False, bodies: bool = False) -> Iterator[JobInfo]:
        continuation = "0"
        while continuation != "-1":
            page = self.client.scan(
                queue, state, future=future, limit=_PAGE, continuation=continuation, paged=True, bodies=bodies
            )
            yield from page.jobs
            continuation = page.continuation

    def job(self, descriptor: str) -> JobInfo:
        """Returns one job as it is now. Raises KeyError if it does not exist."""
        return self.client.lookup([descriptor], bodies=True)[descriptor]


def _check_queues(queues: Sequence[str] | None, workers: Sequence[Worker]) -> None:
    unknown = set(queues or ()) - {queue for worker in workers for queue in worker.queues}
    if unknown:
        raise ValueError(f"no task for queue {min(unknown)!r}")


def _chosen(worker: Worker, queues: Sequence[str] | None) -> list[str]:
    """The worker's queues that take part: all, or those of `queues`."""
    return [queue for queue in worker.queues if queues is None or queue in queues]


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _listed(calls: Sequence[EnqueuedCall]) -> str:
    left_out = f"\n  and {len(calls) - _LISTED_MAX} more before" if len(calls) > _LISTED_MAX else ""
    last = calls[-_LISTED_MAX:]
    return "".join(f"\n  {call.task}({_shown(call.arguments)})" for call in last) + left_out or " none of this task"


def _raise_first(failures: Sequence[Ran]) -> None:
    if not failures:
        return
    first = failures[0]
    more = f"; {len(failures) - 1} more attempts failed, see `failures`" if len(failures) > 1 else ""
    note = f"attempt {first.attempt} of task {first.task!r}, job {first.descriptor}{more}"
    if not isinstance(first.error, Exception):  # not for a test to catch, or raised in another process
        raise JobFailed(f"{first.error_type}: {first.error_text} ({note})") from first.error
    first.error.add_note(note)
    raise first.error
