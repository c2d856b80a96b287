"""A server in the test's own process, on shards and a clock of the test: the parts that `App` creates, and nothing that runs by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from pinlater.domain.clock import Clock
from pinlater.server.config.settings import Settings
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.interface import Shard
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings


async def open_core(
    *shards: DesiredShard | Shard,
    clock: Clock,
    random: Random | None = None,
    file_limits: Callable[[], Mapping[str, float]] = dict,
    servers: Callable[[str], int] = lambda _: 1,
    **settings: Any,
) -> Core:
    """The parts of a server on these shards, which it opens, brought up to date.

    `servers(queue)`: how many share the limit of a queue. `settings`: tables and keys other than the defaults.
    """
    desired = [one if isinstance(one, DesiredShard) else _given(one) for one in shards]
    core = await Core.open(
        desired, _turned(**settings), Metrics(), clock, random or Random(1), file_limits=file_limits, servers=servers
    )
    await core.catch_up()
    return core


async def run_periodic(core: Core, name: str) -> None:
    """One turn of the periodic work that a feature has added."""
    [work] = [each for each in core.service.periodic if each.name == name]
    await work.run()


async def listen(core: Core) -> ThriftServer:
    """A started Thrift listener, on a free port."""
    server = thrift_server(core)
    await server.start()
    core.service.identity.port = server.port
    return server


def _given(shard: Shard) -> DesiredShard:
    return DesiredShard(shard.name, lambda: shard)


def _turned(*, thrift: ThriftSettings | None = None, **others: Any) -> Settings:
    """Settings for the host `host` and any free port.

    A clock that a test advances looks like a server that stood still, so no time counts as a standstill.
    """
    without_standstill = replace(thrift or ThriftSettings(port=0), standstill_s=math.inf)
    return Settings(advertised_host="host", thrift=without_standstill, **others)
