"""The operations as a front process has them: each is a call to the store process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from pinlater.domain.audit import AuditEntry
from pinlater.server.front.operations import OPERATIONS, Operation
from pinlater.server.front.store_connection import StoreConnection
from pinlater.server.operations.service import Service


def front_service(connection: StoreConnection, note: Callable[[AuditEntry], None] = lambda _: None) -> Service:
    """What handlers and the Thrift listener call as a `Service`: it has the operations of the table, and no other part of one.

    `note`: takes entries of the audit, which `audit.keep` sends to the store process.
    """
    service = SimpleNamespace(dequeuing=SimpleNamespace(undelivered=connection.undelivered))
    for operation in OPERATIONS:
        group, _, name = operation.path.rpartition(".")
        place = service if not group else service.__dict__.setdefault(group, SimpleNamespace())
        setattr(place, name, _forwarded(connection, operation))
    service.audit.note = note
    return cast(Service, service)


def _forwarded(connection: StoreConnection, operation: Operation) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(*arguments: Any, **named: Any) -> Any:
        return await connection.call(operation, operation.bind(arguments, named))

    return call
