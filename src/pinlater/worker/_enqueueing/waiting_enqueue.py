"""An enqueue that a running job makes: while its shards or the servers are unreachable it waits, as long as the job may run.

So an outage costs the job no attempt, as with `JobContext.checkpoint`. Decides when a request is made again, and as what; the enqueuer
sends it. Must never make a request again that could then be stored twice, unless the jobs have unique keys.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from pinlater.client._client_call import ClientCall
from pinlater.client._retries import (
    Resend,
    has_done_nothing,
    outcome_is_unknown,
    passes_by_waiting,
    pause_s,
    repeats_end_at,
)
from pinlater.client.errors import PinLaterError
from pinlater.worker.context import JobContext

_log = logging.getLogger("pinlater.worker")


class OutageLog:
    """Says once that jobs wait, and once that none does any more. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0

    def began(self, job: JobContext, call: ClientCall[Any], error: PinLaterError) -> None:
        with self._lock:
            self._waiting += 1
            first = self._waiting == 1
        level = logging.WARNING if first else logging.DEBUG
        _log.log(level, "job %s waits for its %s: %s", job.descriptor, call.shown, error)

    def ended(self) -> None:
        with self._lock:
            self._waiting -= 1
            last = not self._waiting
        if last:
            _log.info("no job waits for its enqueue any more")


class WaitingEnqueue:
    """One request of a running job. `call` is what to send; after a failure `pause_s`, and then send `call` again; at last `close`."""

    def __init__(
        self,
        job: JobContext,
        call: ClientCall[Any],
        monotonic: Callable[[], float],
        log: OutageLog,
        new_request: Callable[[ClientCall[Any]], ClientCall[Any]],
        timeout_s: float,
    ) -> None:
        """`new_request`: the same jobs under a new request key. `timeout_s`: how long the client may take until it sends a try."""
        self.call = call
        self.began_s = monotonic()
        self.may_be_stored = False  # by a try before the last one
        self._job = job
        self._monotonic = monotonic
        self._log = log
        self._new_request = new_request
        self._timeout_s = timeout_s
        self._failures = 0

    def pause_s(self, error: PinLaterError) -> float:
        """How long to wait after this failure. Raises it if no further try is to be made."""
        pause = pause_s(self._failures + 1, error.retry_after_ms, False, random.random())  # noqa: S311 - spreads load, guards nothing
        if self._job.is_over or not self._prepare(error, pause):
            raise error
        self._failures += 1
        if self._failures == 1:
            self._log.began(self._job, self.call, error)
        return pause

    def close(self) -> None:
        """The request is answered, or given up."""
        if self._failures:
            self._log.ended()

    def _prepare(self, error: PinLaterError, pause: float) -> bool:
        """Makes `call` the next try, which is made after the pause; False if there is none."""
        if self.call.resend is not Resend.KEYED:  # the question what the server is
            return passes_by_waiting(error)
        nothing_done = has_done_nothing(error, self.call.all_or_nothing)
        if not nothing_done and not (passes_by_waiting(error) or outcome_is_unknown(error)):
            return False
        self.may_be_stored = self.may_be_stored or not nothing_done
        if not self.may_be_stored:
            self.began_s = self._monotonic()
            self.call = self._new_request(self.call)
            return True
        if self._monotonic() + pause + self._timeout_s <= repeats_end_at(self.began_s):
            self.call = self.call.as_repeat()
            return True
        if any(job.unique_key is None for job in self.call.args[0].jobs):
            return False  # the server may have forgotten the request key
        self.may_be_stored = False
        self.began_s = self._monotonic()
        self.call = self._new_request(self.call)
        return True
