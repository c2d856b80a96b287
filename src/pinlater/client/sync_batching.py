"""`batching` for plain code: jobs that many threads enqueue, or that one thread hands in without waiting, share few requests.

It has no thread of its own: the answer to a request, in the client's thread, sends the next. Jobs handed in are never dropped in
silence: leaving the batcher waits for them, and so does the process's end, a child's of multiprocessing as well, but for one that is
killed or ends by `os._exit`.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import sys
import threading
from concurrent.futures import CancelledError, Future
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from pinlater.client import values
from pinlater.client._batches import BatchedJob, Bounds, Placed, UnsentJobs, halves, settle
from pinlater.client._job_calls import check_job
from pinlater.client.errors import ClientClosed, ConnectionLost, TooManyWaiting
from pinlater.client.sync_client import Client


class EnqueueBatcher:
    """Joins single enqueues into requests: at most `jobs_max` jobs and `bytes_max` bytes each, `in_flight_max` of a queue at a time.

    Use as `with EnqueueBatcher(client) as batcher:`, from any number of threads; leaving it stores what was handed in, as the end
    of the process does. `waiting_max` jobs may wait; beyond that both `enqueue` and `submit` block until one of them is stored.
    """

    def __init__(
        self,
        client: Client,
        *,
        jobs_max: int = 500,
        bytes_max: int = 4 * 1024 * 1024,
        in_flight_max: int = 2,
        waiting_max: int = 100_000,
    ) -> None:
        self._client = client
        self._bounds = Bounds(jobs_max, bytes_max, in_flight_max, waiting_max).check()
        self._closed = False
        self._is_ending = False
        self._begin()
        _ALIVE.add(self)
        self._flush_at_the_end()

    def _begin(self) -> None:
        """Starts without jobs; also in a forked child, since the parent sends the jobs that wait in it."""
        self._is_flushed_at_the_end = False
        self._changed = threading.Condition()
        self._waiting: UnsentJobs[Future[Placed]] = UnsentJobs(self._bounds, _begins)
        self._senders: dict[str, set[_QueueSender]] = {}
        self._open: set[Future[Placed]] = set()

    def _flush_at_the_end(self) -> None:
        _flush_at_a_childs_end()
        self._is_flushed_at_the_end = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def enqueue(self, queue: str, job: values.Job | bytes) -> Placed:
        """Stores the job; it is safe when this returns. Interrupted before it was sent, the job is not stored."""
        done = self.submit(queue, job)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def submit(self, queue: str, job: values.Job | bytes) -> Future[Placed]:
        """Hands a job in without waiting for it: its future says what became of it, and calls back in the client's thread.

        Raises `ClientClosed` after `close`, `TooManyWaiting` if it would have to block an event loop, and TypeError or `CallerError`
        if the job can't be sent as it is.
        """
        check_job(job)
        if not self._is_flushed_at_the_end:
            self._flush_at_the_end()
        done: Future[Placed] = Future()
        sender: _QueueSender | None = None
        try:
            with self._changed:
                self._wait_for_space()
                self._open.add(done)
                done.add_done_callback(self._open.discard)
                waiting = self._waiting.add(queue, BatchedJob(job, done))
                senders = self._senders.setdefault(queue, set())
                if self._bounds.another_sender(len(senders), waiting):
                    sender = _QueueSender(queue)
                    senders.add(sender)
                    sender.batch = self._next_batch(queue)
            if sender is not None:
                self._send(sender)
        except (
            BaseException
        ) as error:  # Ctrl-C, for example: callers whose jobs share the request must not wait for ever
            if sender is not None:
                self._give_up(sender, error)
            raise
        if self._is_ending and not _on_a_loop():
            concurrent.futures.wait([done])
        return done

    def _wait_for_space(self) -> None:
        while self._waiting.count >= self._bounds.waiting_max and not self._closed:
            if _on_a_loop():
                raise TooManyWaiting(f"{self._waiting.count} jobs wait to be enqueued already")
            self._changed.wait()
        if self._closed:
            raise ClientClosed("The batcher is closed")

    def flush(self) -> None:
        """Returns when all that was handed in before is stored or refused."""
        with self._changed:
            before = list(self._open)
        concurrent.futures.wait(before)

    def _end(self) -> None:
        """Calls `flush`. As nothing does that later, `submit` waits for its job from now on."""
        self._is_ending = True
        self.flush()

    def close(self) -> None:
        """Calls `flush`, and refuses further jobs. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.flush()

    def _next_batch(self, queue: str) -> list[BatchedJob[Future[Placed]]]:
        batch = self._waiting.next_batch(queue)
        self._changed.notify_all()
        return batch

    # --- in the caller's thread for the first request, then in the client's -------------------------------------------------
    def _send(self, sender: _QueueSender) -> None:
        while sender.batch:
            try:
                call = self._client.enqueue_call(sender.queue, [entry.job for entry in sender.batch])
                answer = self._client.submit(call)
            except Exception as error:  # noqa: BLE001 - the client is closed or a job has changed: the callers get it
                self._refused(sender, error, unsent=True)
            else:
                answer.add_done_callback(partial(self._answered, sender))
                return

    def _answered(self, sender: _QueueSender, answer: Future[values.Enqueued]) -> None:
        try:
            outcome = answer.result()
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._refused(sender, error)
        except CancelledError:
            self._refused(sender, ConnectionLost("The request was given up before its answer came"))
        else:
            settle(sender.batch, outcome)
            self._go_on(sender)
        self._send(sender)

    def _refused(self, sender: _QueueSender, error: Exception, *, unsent: bool = False) -> None:
        parts = halves(sender.batch, error, unsent=unsent)
        sender.rest.extend(reversed(parts))
        if not parts:
            settle(sender.batch, error)
        self._go_on(sender)

    def _go_on(self, sender: _QueueSender) -> None:
        """Chooses what to send next; if there is nothing the sender ends in the same step, so that no caller counts on it."""
        if sender.rest:
            sender.batch = sender.rest.pop()
            return
        with self._changed:
            senders = self._senders.get(sender.queue, set())
            sender.batch = self._next_batch(sender.queue) if sender in senders else []
            if not sender.batch:
                senders.discard(sender)
            if not senders:
                self._senders.pop(sender.queue, None)

    def _give_up(self, sender: _QueueSender, error: BaseException) -> None:
        """The sender was interrupted, perhaps with a request under way whose answer is then dropped. Others send what waits."""
        unknown = ConnectionLost("Interrupted while it was sent: it may be stored or not")
        unknown.__cause__ = error
        another = _QueueSender(sender.queue)
        with self._changed:
            senders = self._senders.setdefault(sender.queue, set())
            senders.discard(sender)
            senders.add(another)
        settle(sender.batch, unknown)
        self._go_on(another)
        self._send(another)


class _QueueSender:
    """One request at a time of one queue. `rest`: parts of a refused batch that come after `batch`."""

    __slots__ = ("batch", "queue", "rest")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.batch: list[BatchedJob[Future[Placed]]] = []
        self.rest: list[list[BatchedJob[Future[Placed]]]] = []


def _begins(done: Future[Placed]) -> bool:
    """Whether it is still wanted; from here on it can't be cancelled any more."""
    return done.set_running_or_notify_cancel()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_ALIVE: WeakSet[EnqueueBatcher] = WeakSet()


_AT_A_CHILDS_END: list[Any] = []


def _flush_at_a_childs_end() -> None:
    """A child of multiprocessing ends without the functions of `atexit`. What it does run are multiprocessing's own finalizers.

    Those that a parent registered are forgotten in its forked child, so each process registers, with its first batcher or job.
    """
    if "multiprocessing" not in sys.modules:
        return  # and so it is no child of that
    from multiprocessing import parent_process, util

    if parent_process() is not None and not any(registered.still_active() for registered in _AT_A_CHILDS_END):
        _AT_A_CHILDS_END[:] = [util.Finalize(None, _end_child, exitpriority=0)]


def _end_child() -> None:
    """Its main function has returned. Threads that are no daemons go on for now, and may hand in more."""
    if _threads_that_go_on():  # asked before the flush: one may hand in its last jobs during that, and end
        threading.Thread(target=_flush_after_threads, name="pinlater-end", daemon=False).start()
    _flush_all()


def _threads_that_go_on() -> list[threading.Thread]:
    """The threads that the process's end waits for, but for its main thread and this one."""
    these = (threading.main_thread(), threading.current_thread())
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in these]


def _flush_after_threads() -> None:
    while others := _threads_that_go_on():
        for thread in others:
            thread.join()
    _flush_all()


def _forget_all() -> None:
    for batcher in list(_ALIVE):
        batcher._begin()  # noqa: SLF001 - its own module


def _flush_all() -> None:
    for batcher in list(_ALIVE):
        batcher.flush()


def _end_all() -> None:
    for batcher in list(_ALIVE):
        batcher._end()  # noqa: SLF001 - its own module


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_end_all)  # before the clients close: what was registered last is called first
