"""A call of a server as a value: the method, its arguments in the wire's types, and how to read its answer.

`_job_calls.py`, `_search_calls.py` and `_service_calls.py` make one for each method.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from pinlater.client._retries import Resend
from pinlater.client.errors import (
    ConnectionLost,
    DeadlineExceeded,
    OutcomeUnknown,
    PinLaterError,
    QueueNameInvalid,
    QueueNotFound,
)
from pinlater.domain.errors import adding
from pinlater.domain.queue import QUEUE_NAME_RULE, is_queue_name

T = TypeVar("T")
V = TypeVar("V")
E = TypeVar("E", bound=BaseException)

# What the client calls a method, where that is more than another spelling of the protocol's name.
_CLIENT_NAMES = {
    "getAudit": "audit",
    "getCluster": "cluster",
    "addDeployMark": "add_mark",
    "getQueueHistory": "queue_history",
    "getFailures": "failures",
    "getBulkRuns": "bulk_runs",
    "startLimitedBulkRun": "start_bulk_run",
    "deleteJobsInState": "delete_jobs_by_descriptor",
    "getQueueNames": "queue_names",
    "enqueueJobs": "enqueue",
    "dequeueJobs": "dequeue",
    "ackJobs": "ack",
    "ackDequeuedJobs": "ack_plain",
    "checkpointJobsFenced": "checkpoint",
    "checkpointJobs": "checkpoint_plain",
    "heartbeatClaims": "heartbeat",
    "releaseJobs": "release",
    "cancelJobs": "cancel",
    "lookupJobs": "lookup",
    "getJobCount": "count",
    "scanJobs": "scan",
    "retryFailedJobs": "retry_failed",
    "getQueueConfig": "queue_config",
    "getSettingsInForce": "settings_in_force",
    "getWaitingDequeues": "waiting_dequeues",
    "getWorkers": "workers",
    "getQueueStats": "queue_stats",
    "getServerInfo": "server_info",
    "createOrderedQueue": "create_queue",
}
_ENQUEUE = "enqueueJobs"
_MAY_BE_STORED = "The jobs may be stored; to enqueue them again is safe only with the same request key, or if they have unique keys: "
_CAPITAL = re.compile("[A-Z]")


class ClientCall(NamedTuple, Generic[T]):
    """`args` are the arguments behind the request context. `wait_ms`: how long the server may take on purpose (a long poll).
    `made_for`: the user's call, if this one only prepares it. `all_or_nothing`: a shard's refusal means that nothing of it was done."""

    method: str
    args: tuple[Any, ...]
    read: Callable[[Any], T]
    resend: Resend = Resend.NEVER
    wait_ms: int = 0
    made_for: str = ""
    all_or_nothing: bool = False

    @property
    def is_enqueue(self) -> bool:
        return self.method == _ENQUEUE

    @property
    def shown(self) -> str:
        """The call that the user made and its queue, for messages."""
        if self.made_for:
            return self.made_for
        return on_queue(client_name(self.method), self._queue or "")

    @property
    def _queue(self) -> str | None:
        """None if the call names no queue, or several."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, str) else getattr(first, "queue", None)

    def explained(self, error: PinLaterError) -> PinLaterError:
        """The server's error; servers answer only that the name is invalid, or that there is no such queue. With the rule for names if no
        queue can be called so, else with a note, which tracebacks show, of how to create one. Of an enqueue with an unknown outcome, with
        what that means: the text says what broke."""
        if isinstance(error, OutcomeUnknown | ConnectionLost | DeadlineExceeded) and self.is_enqueue:
            return adding(error, "", before=_MAY_BE_STORED)
        if isinstance(error, QueueNameInvalid):
            return adding(error, f"; {QUEUE_NAME_RULE}")
        if not isinstance(error, QueueNotFound):
            return error
        queue = self._queue
        if queue is not None and not is_queue_name(queue):
            return adding(error, f"; {QUEUE_NAME_RULE}")
        error.add_note(
            f"Create it with `pinlater queue create {queue or 'NAME'}` or client.create_queue(...), or all of a worker's queues with "
            "worker.create_queues()."
        )
        return error

    def as_repeat(self) -> ClientCall[T]:
        """The same enqueue, said to be a resend."""
        request = copy(self.args[0])
        request.repeated = True
        return self._replace(args=(request,))

    def waiting_at_most(self, wait_ms: int) -> ClientCall[T]:
        """The same long poll, but no longer than this."""
        if wait_ms >= self.wait_ms:
            return self
        request = copy(self.args[0])
        request.wait_ms = wait_ms
        return self._replace(args=(request,), wait_ms=wait_ms)


def client_name(method: str) -> str:
    """The client's name of a method of the protocol."""
    return _CLIENT_NAMES.get(method) or _CAPITAL.sub(lambda found: "_" + found[0].lower(), method)


def on_queue(name: str, queue: str) -> str:
    """A call of the client's method `name`, as messages show it."""
    return f"{name} on queue {queue}" if queue else name


def nothing(_: object) -> None:
    """Reads the answer of a method that returns nothing."""


def same(answer: Any) -> Any:
    """Reads an answer that is the call's value."""
    return answer


def value_of(kind: type[V], struct: Any, **more: Any) -> V:
    """A value with the fields of an answer's struct that have the same names, and with `more`. What the server has not sent has the value's
    default."""
    fields: Any = kind
    found = {name: getattr(struct, name) for name in fields._fields if name not in more}
    given = {name: value for name, value in found.items() if value is not None or name not in fields._field_defaults}
    return kind(**given, **more)


def values_of(kind: type[V], structs: Iterable[Any] | None) -> list[V]:
    """`value_of` each struct; none if the server has sent no list."""
    return [value_of(kind, struct) for struct in structs or ()]


def short(error: E) -> E:
    """The same error, and the same causes, without the frames that they have come through so far: those of the client say nothing of the
    caller's code."""
    link: BaseException | None = error
    for _ in range(10):  # a chain of causes may be a circle
        if link is None:
            break
        link.__traceback__ = None
        link = link.__cause__
    return error
