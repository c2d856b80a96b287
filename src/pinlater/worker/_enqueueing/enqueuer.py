"""Sends the jobs of a worker's tasks: one client for all of them, used from any thread or event loop.

On a server without headers the envelope goes into the body. The first call asks the server which kind it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TypeVar, cast

from pinlater.client import _calls
from pinlater.client._bodies import body_of
from pinlater.client._client_call import ClientCall, on_queue
from pinlater.client._tracebacks import short
from pinlater.client.async_client import AsyncClient
from pinlater.client.batching import Placed
from pinlater.client.errors import PinLaterError, PriorityNotSupported, TokenRequired, UnknownMethod
from pinlater.client.sync_client import Client
from pinlater.client.values import Enqueued, Job
from pinlater.domain.clock import Clock
from pinlater.domain.errors import adding
from pinlater.worker import envelope
from pinlater.worker._enqueueing.server_access import WHERE_FROM, ServerAccess
from pinlater.worker._enqueueing.waiting_enqueue import OutageLog, WaitingEnqueue
from pinlater.worker.context import current_job_or_none

T = TypeVar("T")
Servers = str | PathLike[str] | Sequence[str] | None
_JOBS_A_REQUEST = 500
_BYTES_A_REQUEST = 4 * 1024 * 1024
_OWN = "own"
_BY_DEFAULT = ServerAccess()
_WOULD_BLOCK = "this would block the event loop: await the form that ends in _async"


class Enqueuer:
    """Uses the client that the worker was given, or else opens one when first needed."""

    def __init__(
        self,
        servers: Servers | AsyncClient | Client,
        source: str | None,
        clock: Clock,
        access: ServerAccess = _BY_DEFAULT,
    ) -> None:
        self._access = access
        self._servers = servers
        self._source = source
        self._clock = clock
        self._own: dict[str, Client] = {}
        self._keeps_headers: bool | None = None
        self._outages = OutageLog()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def use(self, servers: Servers | AsyncClient) -> None:
        """Uses these servers, or this open client, from now on."""
        if servers != self._servers:
            self.close()
            self._servers, self._keeps_headers = servers, None

    @contextlib.contextmanager
    def redirected(self, servers: Servers | AsyncClient | Client, clock: Clock | None = None) -> Iterator[None]:
        """Uses these servers or this client meanwhile, and this clock if one is given."""
        before = self._servers, self._clock, self._keeps_headers, self._own
        self._servers, self._clock, self._keeps_headers, self._own = servers, clock or self._clock, None, {}
        try:
            yield
        finally:
            self.close()
            self._servers, self._clock, self._keeps_headers, self._own = before

    def send(self, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None = None) -> list[Placed]:
        """Enqueues jobs in order. Reads the jobs of the next request while one is under way.

        Raises the errors of the client and of `jobs`, RuntimeError if it would block an event loop, and TypeError for a job of a task
        that is none of `tasks`.
        """
        if _on_a_loop():
            raise RuntimeError(_WOULD_BLOCK)
        try:
            return self._send(queue, jobs, tasks)
        except PinLaterError as error:
            raise short(error) from error.__cause__

    def _send(self, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None) -> list[Placed]:
        if self._keeps_headers is None:
            try:
                self._carry_out(_calls.server_info(on_queue("enqueue", queue)))
                self._keeps_headers = True
            except UnknownMethod:
                self._keeps_headers = False
        requests = _Requests(self._enqueue(queue, part) for part in _parts(jobs, queue, tasks))
        answers: list[Enqueued] = []
        with _explained(queue, requests):
            while request := requests.take():
                answers.append(self._carry_out(request, requests.prepare))
        return [placed for enqueued in answers for placed in _placed(enqueued)]

    async def send_async(
        self, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None = None
    ) -> list[Placed]:
        """`send`, for coroutines of any event loop."""
        try:
            return await self._send_async(queue, jobs, tasks)
        except PinLaterError as error:
            raise short(error) from error.__cause__

    async def _send_async(self, queue: str, jobs: Iterable[Job], tasks: Mapping[str, object] | None) -> list[Placed]:
        if self._keeps_headers is None:
            try:
                await self._carry_out_async(_calls.server_info(on_queue("enqueue", queue)))
                self._keeps_headers = True
            except UnknownMethod:
                self._keeps_headers = False
        placed: list[Placed] = []
        requests = _Requests(self._enqueue(queue, part) for part in _parts(jobs, queue, tasks))
        with _explained(queue, requests):
            while request := requests.take():
                placed += _placed(await self._carry_out_async(request))
        return placed

    def create_queues(self, names: Sequence[str]) -> None:
        """Creates the queues that don't exist. Raises like `send`."""
        if _on_a_loop():
            raise RuntimeError(_WOULD_BLOCK)
        for name in names:
            self._wait(_calls.create_queue(name))

    async def create_queues_async(self, names: Sequence[str]) -> None:
        """`create_queues`, for coroutines of any event loop."""
        for name in names:
            await asyncio.wrap_future(self._client().submit(_calls.create_queue(name)))

    def close(self) -> None:
        """Closes the client that it opened."""
        for client in self._own.values():
            client.close()
        self._own.clear()

    def _enqueue(self, queue: str, jobs: list[Job]) -> ClientCall[Enqueued]:
        sent = jobs if self._keeps_headers else [envelope.sealed_job(job) for job in jobs]
        return self._client().with_new_key(_calls.enqueue(queue, sent, None, False))

    def _carry_out(self, call: ClientCall[T], meanwhile: Callable[[], None] | None = None) -> T:
        waiting = self._of_a_job(call)
        if waiting is None:
            return self._wait(call, meanwhile)
        with contextlib.closing(waiting):
            while True:
                try:
                    return cast("T", self._wait(waiting.call, meanwhile))
                except PinLaterError as error:
                    pause_s = waiting.pause_s(error)
                time.sleep(pause_s)

    async def _carry_out_async(self, call: ClientCall[T]) -> T:
        waiting = self._of_a_job(call)
        if waiting is None:
            return await asyncio.wrap_future(self._client().submit(call))
        with contextlib.closing(waiting):
            while True:
                try:
                    return cast("T", await asyncio.wrap_future(self._client().submit(waiting.call)))
                except PinLaterError as error:
                    pause_s = waiting.pause_s(error)
                await asyncio.sleep(pause_s)

    def _of_a_job(self, call: ClientCall[T]) -> WaitingEnqueue | None:
        """The call as one of the running job, which waits; None outside of jobs."""
        job = current_job_or_none()
        if job is None:
            return None
        timeout_s = self._client().call_timeout_s
        return WaitingEnqueue(job, call, self._clock.monotonic, self._outages, self._client().with_new_key, timeout_s)

    def _wait(self, call: ClientCall[T], meanwhile: Callable[[], None] | None = None) -> T:
        client = self._client()
        return client.carry_out(call, meanwhile) if isinstance(client, Client) else client.submit(call).result()

    def _client(self) -> AsyncClient | Client:
        if isinstance(self._servers, AsyncClient | Client):
            return self._servers
        own = self._own.get(_OWN)
        if own is None:  # two threads may come here at once: one client is kept, the other never connected
            tls, token = self._access
            made = Client(self._servers, source=self._source, tls=tls, token=token, clock=self._clock)
            own = self._own.setdefault(_OWN, made)
        return own


@contextlib.contextmanager
def _explained(queue: str, requests: _Requests) -> Iterator[None]:
    """Says what to do about a missing token, and which task has the priority that the server lacks: only it knows them."""
    try:
        yield
    except PriorityNotSupported as error:
        raise adding(error, _job_with_priority(queue, requests.sent, error)) from None
    except TokenRequired as error:
        error.add_note(WHERE_FROM)
        raise


def _job_with_priority(queue: str, request: ClientCall[Enqueued] | None, error: PriorityNotSupported) -> str:
    """The first job of a request whose priority the error names, by its task."""
    jobs = [] if request is None else request.args[0].jobs
    job = next((job for job in jobs if error.message.startswith(f"Priority {job.priority} ")), None)
    if job is None:
        return ""
    task = (job.headers or {}).get(envelope.TASK_HEADER)
    return f" ({f'task {task}' if task else f'a job for queue {queue}'}: priority={job.priority})"


def _placed(enqueued: Enqueued) -> list[Placed]:
    existing = frozenset(enqueued.existing)
    return [Placed(descriptor, index in existing) for index, descriptor in enumerate(enqueued.descriptors)]


def _parts(jobs: Iterable[Job], queue: str, tasks: Mapping[str, object] | None) -> Iterator[list[Job]]:
    part: list[Job] = []
    size = 0
    for index, job in enumerate(jobs):
        if not isinstance(job, Job):
            raise TypeError(f"jobs[{index}] must be a Job, not {type(job).__name__}")
        if tasks is not None and job.headers and job.headers.get(envelope.TASK_HEADER, "") not in tasks:
            _check_task(index, job.headers, queue, tasks)
        body = job.body if isinstance(job.body, bytes) else body_of(job.body, f"jobs[{index}].body")
        if part and (len(part) >= _JOBS_A_REQUEST or size + len(body) > _BYTES_A_REQUEST):
            yield part
            part, size = [], 0
        part.append(job)
        size += len(body)
    if part:
        yield part


def _check_task(index: int, headers: Mapping[str, str], queue: str, tasks: Mapping[str, object]) -> None:
    """Raises TypeError for a job of another queue's task. A job that names no task is the default task's."""
    task = headers.get(envelope.TASK_HEADER)
    if task:
        raise TypeError(f"jobs[{index}] is a job of task {task}, which queue {queue} does not have: {', '.join(tasks)}")


class _Requests:
    """Requests in order. `take` raises the error of preparing a request, so that the request under way is awaited first."""

    def __init__(self, requests: Iterator[ClientCall[Enqueued]]) -> None:
        self._requests = requests
        self._next: ClientCall[Enqueued] | BaseException | None = None
        self.sent: ClientCall[Enqueued] | None = None  # the one that `take` returned last

    def prepare(self) -> None:
        """Prepares the next one now."""
        if self._next is None:
            try:
                self._next = next(self._requests, None)
            except Exception as error:  # noqa: BLE001 - raised by `take`
                self._next = error

    def take(self) -> ClientCall[Enqueued] | None:
        """The next request; None at the end."""
        self.prepare()
        request, self._next = self._next, None
        if isinstance(request, BaseException):
            raise request
        self.sent = request
        return request


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
