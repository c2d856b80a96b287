"""The operations in a front process: each is a call to the store process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from pinlater.domain.clock import Clock
from pinlater.server.front.operations import Operation
from pinlater.server.front.store_connection import StoreConnection
from pinlater.server.operations.parts import Parts
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.metrics import Metrics


def front_service(
    connection: StoreConnection, operations: Iterable[Operation], metrics: Metrics, clock: Clock, random: Random
) -> Service:
    """Returns the object that handlers and the Thrift listener use as a `Service`: it has these operations, and, of its other parts, only
    the lists of `Parts`.
    """
    service = Parts(metrics, clock, random)
    groups: dict[type, SimpleNamespace] = {}
    for operation in operations:
        group = groups.setdefault(operation.group.kind, SimpleNamespace())
        setattr(group, operation.name, _forwarded(connection, operation))
        if operation.hands_out:
            group.undelivered = connection.undelivered
        if operation.group.attribute:
            setattr(service, operation.group.attribute, group)
        else:
            service.put(group, operation.group.kind)
    return cast(Service, service)


def _forwarded(connection: StoreConnection, operation: Operation) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(*arguments: Any, **named: Any) -> Any:
        return await connection.call(operation, operation.bind(arguments, named))

    return call
