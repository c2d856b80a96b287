"""The operations that a front process forwards, as a table: each with a way to encode its arguments and its result.

The types come from the signatures of the operations, so a new operation needs only its name here, or in its feature. Both
sides are processes of one supervisor, which run the same version: an operation is identified by its position in the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

import msgspec

from pinlater.server.operations.bulk import Bulk
from pinlater.server.operations.claimed_jobs import ClaimedJobs
from pinlater.server.operations.dequeue import Dequeue
from pinlater.server.operations.enqueue import Enqueue
from pinlater.server.operations.job_queries import JobQueries
from pinlater.server.operations.queues import Queues
from pinlater.server.operations.service import Service
from pinlater.server.operations.settings_in_force import QueueSettings


class Forwarded(NamedTuple):
    """The operations of one class: names of methods that change something, and of those that only read.

    `attribute`: the name of the object in a service; without one, `Service.of` finds it.
    """

    kind: type
    changes: Sequence[str] = ()
    looks: Sequence[str] = ()
    attribute: str = ""

    def method(self, name: str) -> Callable[[Service], Callable[..., Any]]:
        """Returns a function from a service to its method of this name."""
        if self.attribute:
            return attrgetter(f"{self.attribute}.{name}")
        return lambda service: getattr(service.of(self.kind), name)


class Operation(NamedTuple):
    """One operation. `group`: where a service has the object. `defaults`: of its last parameters. `only_looks`: it changes nothing.

    `may_take_long`: it waits or searches, and ends if its caller has gone. `is_quick`: it runs without a task (`stepping`).
    `hands_out`: its result contains jobs. `of_service(service)`: the method to call.
    """

    number: int
    group: Forwarded
    name: str
    parameters: Sequence[str]
    positional: int
    defaults: Mapping[str, object]
    arguments: msgspec.msgpack.Decoder[tuple[Any, ...]]
    result: msgspec.msgpack.Decoder[Any]
    only_looks: bool
    may_take_long: bool
    is_quick: bool
    hands_out: bool
    of_service: Callable[[Service], Callable[..., Any]]

    @property
    def path(self) -> str:
        """The name of the operation, for the log."""
        return f"{self.group.attribute or self.group.kind.__name__}.{self.name}"

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


_JOBS_AND_QUEUES = (
    Forwarded(Enqueue, ("enqueue",), attribute="enqueuing"),
    Forwarded(Dequeue, ("dequeue",), attribute="dequeuing"),
    Forwarded(ClaimedJobs, ("acknowledge", "checkpoint", "heartbeat", "release", "cancel"), attribute="claimed_jobs"),
    Forwarded(JobQueries, looks=("lookup", "find_unique_key", "count", "count_jobs", "scan"), attribute="job_queries"),
    Forwarded(
        Bulk,
        ("retry_failed", "run_jobs", "change_priority", "delete_jobs", "delete_jobs_by_descriptor"),
        attribute="bulk",
    ),
    Forwarded(
        Queues,
        ("create_queue", "delete_queue", "configure_queue", "set_paused", "unblock_key"),
        ("queue_names", "queue_config", "queue_stats"),
        "queues",
    ),
    Forwarded(QueueSettings, looks=("in_force",), attribute="queue_settings"),
)
_MAY_TAKE_LONG = frozenset({"dequeue", "scan", "count", "count_jobs", "delete_jobs"})
_QUICK = frozenset({"enqueue", "acknowledge", "heartbeat"})


def operations(features: Iterable[Forwarded]) -> Sequence[Operation]:
    """The table: the operations on jobs and queues, and those of features."""
    places = [(one, name) for one in (*_JOBS_AND_QUEUES, *features) for name in (*one.changes, *one.looks)]
    return tuple(_operation(number, one, name) for number, (one, name) in enumerate(places))


def _operation(number: int, group: Forwarded, name: str) -> Operation:
    method = getattr(group.kind, name)
    types = get_type_hints(method)
    _, *parameters = inspect.signature(method).parameters.values()
    arguments: Any = tuple[tuple(types[each.name] for each in parameters)] if parameters else tuple[()]  # type: ignore[misc]
    return Operation(
        number,
        group,
        name,
        [each.name for each in parameters],
        sum(each.kind is not inspect.Parameter.KEYWORD_ONLY for each in parameters),
        {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty},
        msgspec.msgpack.Decoder(arguments),
        msgspec.msgpack.Decoder(types["return"]),
        name in group.looks,
        name in _MAY_TAKE_LONG,
        name in _QUICK,
        name == "dequeue",
        group.method(name),
    )
