"""A store and the model side by side, asked the same things at the same hand-turned time.

The store may be several shard objects on one database, as several servers have them: each call goes through one of them, and each
remembers only what went through it. Their clocks make sure that nothing which they may trust for some time is still trusted.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from hypothesis import note

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.ids import IdMaker
from pinlater.domain.queue import QueueCounts
from pinlater.domain.transitions import StatusRule
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.values import Requeued, Swept
from tests.contract.stores import make_store, never_old
from tests.storage_model.model.shard import ModelShard

T = TypeVar("T")
ALL = 1_000_000


class Pair:
    """`model` says what is right, `servers` have the store under test. Results must be equal once they are made comparable.

    `pick(n)` chooses the one of n servers that a call goes through.
    """

    def __init__(self, kind: str, servers: int = 1) -> None:
        self.clock = ManualClock()
        self.pick: Callable[[int], int] = lambda _: 0
        self._kind = kind
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(prefix="pinlater-model-")
        # A server alone may trust its memory. What it remembers of several is old at once.
        self._monotonic = self.clock.monotonic if servers == 1 else never_old()
        self.servers = [self._make() for _ in range(servers)]
        capabilities = self.servers[0].capabilities
        status = StatusRule(capabilities.custom_status_chars_max, capabilities.ack_replaces_status)
        self.model = cast("Shard", ModelShard(status))
        for shard in self.servers:
            self.run(shard.open(self.now))
        self.ids = IdMaker(self.clock, 1)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def run(self, call: Awaitable[T]) -> T:
        async def wait() -> T:
            return await call

        return self._runner.run(wait())

    def both(self, ask: Callable[[Shard], Awaitable[Any]]) -> Any:
        """The answer that both gave; fails where they differ."""
        expected = comparable(self.run(ask(self.model)))
        given = comparable(self.run(ask(self.one())))
        assert given == expected, _difference(given, expected)
        return expected

    def one(self) -> Shard:
        """The server that the next call goes through."""
        number = self.pick(len(self.servers))
        if len(self.servers) > 1:
            note(f"through server {number}:")
        return self.servers[number]

    def reopen(self) -> None:
        """Closes and opens one server of the store under test, if it says that it keeps what it has."""
        number = self.pick(len(self.servers))
        if self.servers[number].capabilities.durable:
            self.run(self.servers[number].close())
            self.servers[number] = self._make()
            self.run(self.servers[number].open(self.now))

    def close(self) -> None:
        try:
            for shard in self.servers:
                self.run(shard.close())
        finally:
            self._runner.close()
            self._folder.cleanup()

    def _make(self) -> Shard:
        return make_store(self._kind, Path(self._folder.name), self._monotonic)


def comparable(result: Any) -> Any:
    """Sequences as lists, errors by kind and text, sweeps in one order, counters without rows that say nothing."""
    if isinstance(result, PinLaterError):
        return type(result).__name__, str(result)
    if isinstance(result, Requeued):
        return result.done  # each store counts its position in its own way
    if hasattr(result, "_fields"):
        return type(result)(*(comparable(field) for field in result))
    if isinstance(result, Sequence) and not isinstance(result, str | bytes):
        rows = [comparable(row) for row in result]
        if rows and isinstance(rows[0], Swept):
            # Stores may free what belongs to no queue at different times.
            return sorted((swept for swept in rows if swept.queue), key=lambda swept: swept[:2])
        if rows and isinstance(rows[0], QueueCounts):
            return sorted(row for row in rows if any(row.counts[1:]))
        return rows
    return result


def _difference(given: Any, expected: Any, path: str = "answer") -> str:
    """The first part that differs; whole answers are too long to read."""
    parts = getattr(given, "_fields", None) or (range(len(given)) if isinstance(given, list) else None)
    if parts is not None and type(given) is type(expected) and len(given) == len(expected):
        for name, one, other in zip(parts, given, expected, strict=True):
            if one != other:
                return _difference(one, other, f"{path}.{name}")
    return f"{path} is {given}, the model's is {expected}"
