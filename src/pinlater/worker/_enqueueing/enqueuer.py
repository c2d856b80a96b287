"""Sends the jobs of a worker's tasks: one client for all of them, used from any thread or event loop.

On a server without headers the envelope goes into the body. The first call asks the server which kind it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import TypeVar, cast

from pinlater.client import _job_calls, _service_calls
from pinlater.client._bodies import body_of
from pinlater.client._client_call import ClientCall, on_queue, short
from pinlater.client._retries import Resend, may_be_stored, repeats_end_at
from pinlater.client.async_client import AsyncClient
from pinlater.client.batching import Placed
from pinlater.client.errors import (
    CallerError,
    OutcomeUnknown,
    PinLaterError,
    PriorityNotSupported,
    QueueNotFound,
    TokenRequired,
    UnknownMethod,
)
from pinlater.client.sync_client import Client
from pinlater.client.values import Enqueued, Job
from pinlater.domain.clock import Clock
from pinlater.domain.errors import adding
from pinlater.domain.wording import counted
from pinlater.worker import envelope
from pinlater.worker._enqueueing.partly_enqueued import PartlyEnqueued, RestOfJobs, UnknownRequest, telling
from pinlater.worker._enqueueing.servers import WHERE_FROM, Addresses, WorkerServers
from pinlater.worker._enqueueing.waiting_enqueue import OutageLog, WaitingEnqueue
from pinlater.worker.context import RUNNING, JobContext

_log = logging.getLogger("pinlater.worker")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
_JOBS_A_REQUEST = 500
_BYTES_A_REQUEST = 4 * 1024 * 1024
_OWN = "own"
_NOT_AGAIN_S = 60.0
_BODY = attrgetter("body")
_WOULD_BLOCK = "this would block the event loop: await the form that ends in _async"


class _EnqueueTarget:
    """Where an enqueuer sends jobs, and what it knows of the servers there."""

    def __init__(self, servers: WorkerServers) -> None:
        self.servers = servers
        self.keeps_headers: bool | None = None
        self.refusals: dict[str, tuple[float, CallerError]] = {}  # to create queues, and when (monotonic)
        self._own: dict[str, Client] = {}

    def client(self, clock: Clock) -> AsyncClient | Client:
        """The client that the worker was given, or one that is opened when first needed."""
        given = self.servers.given
        if isinstance(given, AsyncClient | Client):
            return given
        # Two threads may come here at once: one client is kept, the other never connected.
        return self._own.get(_OWN) or self._own.setdefault(_OWN, self.servers.sync_client(clock))

    def close(self) -> None:
        """Closes the client that it opened."""
        for client in self._own.values():
            client.close()
        self._own.clear()


class Enqueuer:
    """Belongs to one worker. `clock`: the worker's, or that of a test."""

    def __init__(self, servers: WorkerServers, clock: Clock, *, auto_create: bool = False) -> None:
        self.clock = clock
        self._target = _EnqueueTarget(servers)
        self._auto_create = auto_create
        self._outages = OutageLog()

    def use(self, servers: Addresses) -> None:
        """Uses these servers from now on."""
        if servers != self._target.servers.given:
            self._target.close()
            self._target = _EnqueueTarget(self._target.servers.instead(servers))

    @contextlib.contextmanager
    def redirected(self, servers: AsyncClient | Client | Addresses, clock: Clock | None = None) -> Iterator[None]:
        """Uses these servers or this client meanwhile, and this clock if one is given."""
        before = self._target, self.clock
        self._target, self.clock = _EnqueueTarget(self._target.servers.instead(servers)), clock or self.clock
        try:
            yield
        finally:
            self._target.close()
            self._target, self.clock = before

    def send(self, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None = None) -> list[Placed]:
        """Enqueues jobs in order. Reads the jobs of the next request while one is under way.

        Raises the errors of the client and of `jobs`, RuntimeError if it would block an event loop, and TypeError for a job of a task
        that is none of `tasks`.
        """
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - of asyncio's own list of names, for other frameworks
            raise RuntimeError(_WOULD_BLOCK)
        sending = _JobsToSend(self, queue, jobs, tasks)
        try:
            return self._send(sending)
        except PinLaterError as error:
            raise short(sending.explained(error)) from error.__cause__
        except BaseException as error:
            sending.explained(error)
            raise

    def _send(self, sending: _JobsToSend) -> list[Placed]:
        if self._target.keeps_headers is None:
            try:
                self._carry_out(_service_calls.server_info(on_queue("enqueue", sending.queue)))
                self._target.keeps_headers = True
            except UnknownMethod:
                self._target.keeps_headers = False
        while request := sending.take():
            try:
                answer = self._carry_out(request, sending.prepare if sending.has_more else None, sending)
            except QueueNotFound as missing:
                with self._creating(sending.queue, missing, sending) as creation:
                    self._carry_out(creation)
                answer = self._carry_out(request, None, sending)
            sending.answered(answer)
        return sending.placed()

    async def send_async(
        self, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None = None
    ) -> list[Placed]:
        """`send`, for coroutines of any event loop."""
        sending = _JobsToSend(self, queue, jobs, tasks)
        try:
            return await self._send_async(sending)
        except PinLaterError as error:
            raise short(sending.explained(error)) from error.__cause__
        except BaseException as error:
            sending.explained(error)
            raise

    async def _send_async(self, sending: _JobsToSend) -> list[Placed]:
        if self._target.keeps_headers is None:
            try:
                await self._carry_out_async(_service_calls.server_info(on_queue("enqueue", sending.queue)))
                self._target.keeps_headers = True
            except UnknownMethod:
                self._target.keeps_headers = False
        while request := sending.take():
            try:
                answer = await self._carry_out_async(request, sending)
            except QueueNotFound as missing:
                with self._creating(sending.queue, missing, sending) as creation:
                    await self._carry_out_async(creation)
                answer = await self._carry_out_async(request, sending)
            sending.answered(answer)
        return sending.placed()

    @contextlib.contextmanager
    def _creating(
        self, queue: str, missing: QueueNotFound, sending: _JobsToSend | None = None
    ) -> Iterator[ClientCall[None]]:
        """The call that creates the queue of a refused enqueue, to be executed within the block. So enqueues to queues that exist cost
        no further call. Raises `missing`, with the reason, if the queue is not created.

        The server decides: its setting may forbid it, and it refuses queues that were deleted within the last day. After a refusal it is
        not asked again for a minute. A queue that an enqueue and a claim of one worker create at the same time is logged twice.
        """
        if not self._auto_create:
            raise missing
        if sending is not None:
            sending.is_refused = True
        refusals, monotonic = self._target.refusals, self.clock.monotonic
        refused_s, refusal = refusals.get(queue, (0.0, None))
        if refusal is not None and monotonic() - refused_s < _NOT_AGAIN_S:
            raise not_created(missing, refusal)
        try:
            yield _service_calls.ensure_queue(queue)
        except CallerError as error:
            refusals[queue] = monotonic(), adding(error, "")  # without its traceback, whose frames hold jobs
            raise not_created(missing, error) from None
        _log.info("queue %s: created, since it did not exist", queue)
        if sending is not None:
            sending.is_refused = False

    def create_queues(self, names: Sequence[str]) -> None:
        """Creates the queues that don't exist. Raises like `send`."""
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - of asyncio's own list of names, for other frameworks
            raise RuntimeError(_WOULD_BLOCK)
        for name in names:
            self._wait(_service_calls.create_queue(name))

    async def create_queues_async(self, names: Sequence[str]) -> None:
        """`create_queues`, for coroutines of any event loop."""
        for name in names:
            await asyncio.wrap_future(self._target.client(self.clock).submit(_service_calls.create_queue(name)))

    async def ask_async(self, call: ClientCall[T]) -> T:
        """Executes a call, for coroutines of any event loop. An enqueue creates its queue as `send` does."""
        try:
            return await asyncio.wrap_future(self._target.client(self.clock).submit(call))
        except QueueNotFound as missing:
            if call.resend is not Resend.KEYED:
                raise
            with self._creating(call.args[0].queue, missing) as creation:
                await asyncio.wrap_future(self._target.client(self.clock).submit(creation))
            return await asyncio.wrap_future(self._target.client(self.clock).submit(call))

    def request(self, queue: str, jobs: list[Job]) -> ClientCall[Enqueued]:
        """A new request."""
        sent = jobs if self._target.keeps_headers else [envelope.sealed_job(job) for job in jobs]
        return _job_calls.enqueue(queue, sent, _job_calls.new_request_key(), False)

    def repeat(self, request: UnknownRequest) -> ClientCall[Enqueued]:
        """A request that may be stored, to be sent again. Raises OutcomeUnknown if servers may have forgotten its key, and its jobs have no
        unique keys."""
        jobs = request.call.args[0].jobs
        if self.clock.monotonic() + self._target.client(self.clock).call_timeout_s <= repeats_end_at(request.began_s):
            return request.call.as_repeat()
        if any(job.unique_key is None for job in jobs):
            raise OutcomeUnknown(
                f"{counted(len(jobs), 'job')} may be stored or not, and it is too late to send them again under their request key. "
                "Look for them; as a list, `enqueue_many(list(rest))`, they are enqueued anew"
            )
        return self._target.client(self.clock).with_new_key(request.call)

    def _carry_out(
        self, call: ClientCall[T], meanwhile: Callable[[], None] | None = None, sending: _JobsToSend | None = None
    ) -> T:
        client = self._target.client(self.clock)
        job = RUNNING.get()
        if job is None:
            return client.carry_out(call, meanwhile) if isinstance(client, Client) else client.submit(call).result()
        waiting = self._of_a_job(job, call)
        if sending is not None:
            sending.waiting = waiting
        with contextlib.closing(waiting):
            while True:
                try:
                    return cast("T", self._wait(waiting.call, meanwhile))
                except PinLaterError as error:
                    pause_s = waiting.pause_s(error)
                time.sleep(pause_s)

    async def _carry_out_async(self, call: ClientCall[T], sending: _JobsToSend | None = None) -> T:
        job = RUNNING.get()
        if job is None:
            return await asyncio.wrap_future(self._target.client(self.clock).submit(call))
        waiting = self._of_a_job(job, call)
        if sending is not None:
            sending.waiting = waiting
        with contextlib.closing(waiting):
            while True:
                try:
                    return cast("T", await asyncio.wrap_future(self._target.client(self.clock).submit(waiting.call)))
                except PinLaterError as error:
                    pause_s = waiting.pause_s(error)
                await asyncio.sleep(pause_s)

    def _of_a_job(self, job: JobContext, call: ClientCall[T]) -> WaitingEnqueue:
        """The call as one of the running job, which waits."""
        client = self._target.client(self.clock)
        monotonic, timeout_s = self.clock.monotonic, client.call_timeout_s
        return WaitingEnqueue(job, call, monotonic, self._outages, client.with_new_key, timeout_s)

    def _wait(self, call: ClientCall[T], meanwhile: Callable[[], None] | None = None) -> T:
        client = self._target.client(self.clock)
        return client.carry_out(call, meanwhile) if isinstance(client, Client) else client.submit(call).result()


def not_created(missing: PinLaterError, refusal: CallerError) -> PinLaterError:
    """The error of a call whose queue is missing, with the reason why it was not created. An original server gives none."""
    if isinstance(refusal, UnknownMethod):
        return missing
    if isinstance(refusal, QueueNotFound):
        return adding(refusal, "")  # each caller is told its own rest of the jobs
    return adding(missing, f"; it can't be created: {refusal.message}")


def _job_with_priority(queue: str, request: ClientCall[Enqueued] | None, error: PriorityNotSupported) -> str:
    """The first job of a request whose priority the error names, by its task."""
    jobs = [] if request is None else request.args[0].jobs
    job = next((job for job in jobs if error.message.startswith(f"Priority {job.priority} ")), None)
    if job is None:
        return ""
    task = (job.headers or {}).get(envelope.TASK_HEADER)
    return f" ({f'task {task}' if task else f'a job for queue {queue}'}: priority={job.priority})"


def _check_task(index: int, headers: Mapping[str, str], queue: str, tasks: Mapping[str, object]) -> None:
    """Raises TypeError for a job of another queue's task. A job that names no task is the default task's."""
    task = headers.get(envelope.TASK_HEADER)
    if task:
        raise TypeError(f"jobs[{index}] is a job of task {task}, which queue {queue} does not have: {', '.join(tasks)}")


class _JobsToSend:
    """One `send`: its requests in order, and what to tell of them if one fails."""

    def __init__(self, enqueuer: Enqueuer, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None) -> None:
        self.queue = queue
        self.waiting: WaitingEnqueue | None = None  # how the request is sent, if a running job does it
        self.is_refused = False  # so that none of its jobs is stored
        self._enqueuer = enqueuer
        self._tasks = tasks
        self._repeated = jobs.unknown if isinstance(jobs, RestOfJobs) else None
        if isinstance(jobs, RestOfJobs) and jobs.queue != queue:
            raise TypeError(f"the rest of the jobs is for queue {jobs.queue}, not {queue}")
        self._jobs = iter(jobs)
        self._read = 0
        self.has_more = True  # jobs that are not read yet, as far as is known
        self._filling: list[Job] = []  # what is read for the request after the prepared one
        self._next: tuple[list[Job], ClientCall[Enqueued]] | BaseException | None = None
        self._sent: tuple[list[Job], ClientCall[Enqueued]] | None = None  # and not answered yet
        self._began_s = 0.0
        self._answers: list[Enqueued] = []

    def prepare(self) -> None:
        """Prepares the next request now."""
        if self._next is None:
            try:
                self._next = self._prepared()
            except Exception as error:  # noqa: BLE001 - raised by `take`, so that the request under way is awaited first
                self._next = error

    def take(self) -> ClientCall[Enqueued] | None:
        """The next request; None at the end."""
        if self._next is None and not self.has_more:
            return None
        request, self._next = self._prepared() if self._next is None else self._next, None
        if isinstance(request, BaseException):
            raise request
        if request is None:
            return None
        self._sent, self.waiting, self._began_s = request, None, self._enqueuer.clock.monotonic()
        return request[1]

    def answered(self, answer: Enqueued) -> None:
        self._sent = self._repeated = None
        self._answers.append(answer)

    def placed(self) -> list[Placed]:
        placed = []
        for enqueued in self._answers:
            existing = enqueued.existing and frozenset(enqueued.existing)
            for index, descriptor in enumerate(enqueued.descriptors):
                placed.append(Placed(descriptor, index in existing))
        return placed

    def explained(self, error: E) -> E:
        """The error with what is stored, with what to do about a missing token, and with the task that has a priority which the server
        lacks: only it knows them."""
        request = self._sent and self._sent[1]
        explained: BaseException = error
        if isinstance(error, PriorityNotSupported):
            explained = adding(error, _job_with_priority(self.queue, request, error))
        if isinstance(error, TokenRequired):
            error.add_note(WHERE_FROM)
        unsent = self._next[0] if isinstance(self._next, tuple) else []
        read = [*(self._sent[0] if self._sent else []), *unsent, *self._filling]
        unknown = self._unknown(error)
        rest = RestOfJobs(self.queue, read, self._jobs, unknown)
        return cast("E", telling(explained, PartlyEnqueued(self.placed(), rest.may_be_stored, rest)))

    def _unknown(self, error: BaseException) -> UnknownRequest | None:
        """The request that may be stored although it ended with this error, or has not been sent again."""
        if self._sent is None or self.is_refused:
            return self._repeated
        call, began_s, tried_before = self._sent[1], self._began_s, False
        if self.waiting is not None:
            call, began_s, tried_before = self.waiting.call, self.waiting.began_s, self.waiting.may_be_stored
        if self._repeated is not None:
            began_s, tried_before = self._repeated.began_s, True
        return UnknownRequest(call, began_s) if tried_before or may_be_stored(error, call.all_or_nothing) else None

    def _prepared(self) -> tuple[list[Job], ClientCall[Enqueued]] | None:
        if self._repeated is not None and self._sent is None:
            call = self._enqueuer.repeat(self._repeated)
            return list(islice(self._jobs, len(call.args[0].jobs))), call
        part = self._part()
        return (part, self._enqueuer.request(self.queue, part)) if part else None

    def _part(self) -> list[Job]:
        """The jobs of the next request; none at the end."""
        size = sum(map(len, map(_BODY, self._filling)))
        for job in self._jobs:
            if not isinstance(job, Job):
                raise TypeError(f"jobs[{self._read}] must be a Job, not {type(job).__name__}")
            headers, tasks = job.headers, self._tasks
            if tasks is not None and headers and headers.get(envelope.TASK_HEADER, "") not in tasks:
                _check_task(self._read, headers, self.queue, tasks)
            body = job.body if isinstance(job.body, bytes) else body_of(job.body, f"jobs[{self._read}].body")
            self._read += 1
            if self._filling and (len(self._filling) >= _JOBS_A_REQUEST or size + len(body) > _BYTES_A_REQUEST):
                part, self._filling = self._filling, [job]
                return part
            self._filling.append(job)
            size += len(body)
        part, self._filling, self.has_more = self._filling, [], False
        return part
