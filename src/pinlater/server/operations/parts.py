"""What features add to a process of a server: their objects, their periodic work, and what they listen to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from pinlater.domain.clock import Clock
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.changes import AdministrativeChange
from pinlater.server.telemetry.metrics import Metrics

Part = TypeVar("Part")


class Parts:
    """Objects by their class, and lists that features append to.

    `periodic`: the work of the maintenance runner.
    `closing`: functions that run before the shards are closed, in this order.
    `change_listeners`: get each administrative change that has ended.
    """

    def __init__(self, metrics: Metrics, clock: Clock, random: Random) -> None:
        self.metrics = metrics
        self.clock = clock
        self.random = random
        self.periodic: list[Periodic] = []
        self.closing: list[Callable[[], Awaitable[None]]] = []
        self.change_listeners: list[Callable[[AdministrativeChange], None]] = []
        self._parts: dict[type, Any] = {}

    def put(self, part: Any, kind: type | None = None) -> None:
        """Adds an object, to be found by its class, or by `kind` for one that replaces an object of that class."""
        self._parts[kind or type(part)] = part

    def of(self, kind: type[Part]) -> Part:
        """Returns the object of this class."""
        return self._parts[kind]  # type: ignore[no-any-return]

    def changed(self, *changes: AdministrativeChange) -> None:
        """Tells the listeners of administrative changes that have ended."""
        for change in changes:
            for listener in self.change_listeners:
                listener(change)

    async def close(self) -> None:
        """Closes the resources that features have opened."""
        for close in self.closing:
            await close()
