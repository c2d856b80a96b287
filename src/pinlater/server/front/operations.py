"""The operations that a front process forwards, as a table: each with a way to encode its arguments and its result.

The types come from the signatures of the operations, so a new operation needs its name here and nothing else. Both sides are processes of
one supervisor, which run the same version: an operation is known by its place in the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

import msgspec

from pinlater.domain.errors import PinLaterError
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.explain.explain import Explain
from pinlater.server.features.failures.groups import FailureQueries
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.link.messages import Failure, error_of, failure_of
from pinlater.server.operations.bulk import Bulk
from pinlater.server.operations.claimed_jobs import ClaimedJobs
from pinlater.server.operations.dequeue import Dequeue
from pinlater.server.operations.enqueue import Enqueue
from pinlater.server.operations.job_queries import JobQueries
from pinlater.server.operations.queues import Queues
from pinlater.server.operations.service import Service
from pinlater.server.operations.settings_in_force import QueueSettings


class Operation(NamedTuple):
    """One operation. `path`: where a service has it. `defaults`: of its last parameters. `only_looks`: it changes nothing.

    `may_take_long`: it waits or searches, and ends if its caller has gone. `is_quick`: it runs without a task (`stepping`).
    `of_service(service)`: the method to call.
    """

    number: int
    path: str
    parameters: Sequence[str]
    positional: int
    defaults: Mapping[str, object]
    arguments: msgspec.msgpack.Decoder[tuple[Any, ...]]
    result: msgspec.msgpack.Decoder[Any]
    only_looks: bool
    may_take_long: bool
    is_quick: bool
    of_service: Callable[[Service], Callable[..., Any]]

    def bind(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call, in the order of the parameters."""
        if not named and len(given) == len(self.parameters):
            return given
        rest = self.parameters[len(given) :]
        return (*given, *[named[name] if name in named else self.defaults[name] for name in rest])

    def begin(self, service: Service, arguments: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        """Calls it with bound arguments."""
        method, positional = self.of_service(service), self.positional
        if positional == len(arguments):
            return method(*arguments)  # type: ignore[no-any-return]
        named = dict(zip(self.parameters[positional:], arguments[positional:], strict=True))
        return method(*arguments[:positional], **named)  # type: ignore[no-any-return]


def encode_hook(value: object) -> object:
    """What no encoder knows by itself: an error among the results."""
    if isinstance(value, PinLaterError):
        return failure_of(value)
    raise NotImplementedError(f"a {type(value)} in a call of an operation")


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is PinLaterError:
        return error_of(Failure(*value))
    raise NotImplementedError(f"a {kind} in a call of an operation")


# By group, which is the attribute of `Service`; '' for the service itself.
_TABLE: Sequence[tuple[str, type, Sequence[str]]] = (
    ("enqueuing", Enqueue, ("enqueue",)),
    ("dequeuing", Dequeue, ("dequeue",)),
    ("claimed_jobs", ClaimedJobs, ("acknowledge", "checkpoint", "heartbeat", "release", "cancel")),
    ("job_queries", JobQueries, ("lookup", "find_unique_key", "count", "count_jobs", "scan")),
    ("bulk", Bulk, ("retry_failed", "run_jobs", "change_priority", "delete_jobs", "delete_jobs_by_descriptor")),
    ("bulk_runs", BulkRuns, ("start", "stop", "runs", "list_runs")),
    (
        "queues",
        Queues,
        (
            "create_queue",
            "delete_queue",
            "queue_names",
            "configure_queue",
            "queue_config",
            "set_paused",
            "queue_stats",
        ),
    ),
    ("queue_settings", QueueSettings, ("in_force",)),
    ("history", HistoryQueries, ("queue_history", "add_mark")),
    ("failures", FailureQueries, ("failure_groups", "mute")),
    ("explaining", Explain, ("explain",)),
    ("audit", AuditTrail, ("keep", "read")),
    ("", Service, ("waiting_dequeues", "known_workers", "cluster", "owners", "server_info")),
)
_ONLY_LOOK = frozenset(
    {
        "lookup",
        "find_unique_key",
        "count",
        "count_jobs",
        "scan",
        "queue_names",
        "runs",
        "list_runs",
        "queue_config",
        "queue_stats",
        "in_force",
        "explain",
        "read",
        "queue_history",
        "failure_groups",
        "waiting_dequeues",
        "known_workers",
        "cluster",
        "owners",
        "server_info",
    }
)
_MAY_TAKE_LONG = frozenset({"dequeue", "scan", "count", "count_jobs", "delete_jobs"})
_QUICK = frozenset({"enqueue", "acknowledge", "heartbeat"})


def _operations() -> Sequence[Operation]:
    found: list[Operation] = []
    for group, kind, names in _TABLE:
        for name in names:
            path = f"{group}.{name}" if group else name
            found.append(_operation(len(found), path, name, getattr(kind, name)))
    return tuple(found)


def _operation(number: int, path: str, name: str, method: Callable[..., Any]) -> Operation:
    types = get_type_hints(method)
    _, *parameters = inspect.signature(method).parameters.values()
    arguments: Any = tuple[tuple(types[each.name] for each in parameters)] if parameters else tuple[()]  # type: ignore[misc]
    return Operation(
        number,
        path,
        [each.name for each in parameters],
        sum(each.kind is not inspect.Parameter.KEYWORD_ONLY for each in parameters),
        {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty},
        msgspec.msgpack.Decoder(arguments, dec_hook=_decode_hook),
        msgspec.msgpack.Decoder(types["return"], dec_hook=_decode_hook),
        name in _ONLY_LOOK,
        name in _MAY_TAKE_LONG,
        name in _QUICK,
        attrgetter(path),
    )


OPERATIONS = _operations()
DEQUEUE = next(operation for operation in OPERATIONS if operation.path == "dequeuing.dequeue")
