"""The lanes to a shard as callers see them: in this server, or through the server that owns the queue."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pinlater.server.sharding.lane_queue import Asker


class AnyLane(Protocol):
    """A lane of this server, or one through another server (`forwarding.forward_lane`)."""

    @property
    def rank(self) -> int: ...

    def submit(self, item: Any, asker: Asker[Any] | None = None, /) -> asyncio.Future[Any]: ...

    def busy_for(self) -> float: ...


class JobLanes(Protocol):
    """The lanes to a shard, by either route."""

    @property
    def insert(self) -> AnyLane: ...

    @property
    def claim(self) -> AnyLane: ...

    @property
    def finish(self) -> AnyLane: ...

    @property
    def extend(self) -> AnyLane: ...

    @property
    def checkpoint(self) -> AnyLane: ...

    @property
    def release(self) -> AnyLane: ...
