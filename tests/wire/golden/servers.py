"""The servers that scenarios speak to: whole ones in this process, on SQLite, each time in the same state.

The clock stands still until a step moves it, draws of random numbers are constants, and periodic work is done when a step says so. What a
server learns from others only (a cluster, owners) is given to it.

This is the one module here that knows the inside of a server: a redesign changes it, and no recorded frame.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pinlater.domain.access import Role, digest_of
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.clock import ManualClock
from pinlater.server.access.control import AccessControl
from pinlater.server.access.quotas import NO_QUOTA, Quota
from pinlater.server.access.tokens import Token
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.features.status.status import Status
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.operations.job_settings import JobSettings
from pinlater.server.operations.service import Service
from pinlater.server.sharding.reload import DesiredShard
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.generated.structs import ShardSize
from tests.assembly import open_core
from tests.sharding.faulty import FaultyShard
from tests.wire.golden.other_servers import OWN_FACTS, tell_of_others

ADMIN_PASSWORD = "opén sesame"
SECRETS = {
    name: f"pinlater_{name}" for name in ("reader", "producer", "worker", "operator", "admin", "few", "gone", "console")
}
"""By the names of the tokens."""
_SHOWN_PORT = 9010
_SALT = "VHzMjY2Kb9BYlyrbtpyFvnHVPZAvB5Rm"  # of the original's form of a hash, which takes no time to compare
_QUEUES_OF_FEW = ("mail*", "audio")
# Flushes to a disk would take longer than all else.
_FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
_DEADLINE_S = 30.0


class _Constants(Random):
    """Draws that are always the same, so that none depends on how many were drawn before it."""

    def getrandbits(self, bits: int, /) -> int:
        return 0

    def random(self) -> float:
        return 0.5


class _Names:
    """Random names (of bulk runs), in the order in which they are made."""

    def __init__(self) -> None:
        self._number = 0

    def token_hex(self, size: int) -> str:
        self._number += 1
        return self._number.to_bytes(size, "big").hex()


def _hash_of(password: str) -> str:
    return sha256((password + _SALT).encode()).hexdigest()


class _Store(SqliteShard):
    """A store whose size does not depend on SQLite's version."""

    async def size(self) -> ShardSize:
        return ShardSize(1_000_000, 4_096, 2_000_000)


class GoldenServer:
    """A started server. `do` does what a step of a scenario says."""

    def __init__(self, core: Core, server: ThriftServer, clock: ManualClock, stores: dict[str, FaultyShard]) -> None:
        self.port = server.port
        self._core = core
        self._server = server
        self._clock = clock
        self._stores = stores
        self._closing = False
        self._pausing = 0
        core.service.of(BulkRuns)._sleep = self._pause

    async def _pause(self, seconds: float) -> None:
        """Until the clock has gone on by that much."""
        end_s = self._clock.monotonic() + seconds
        self._pausing += 1
        try:
            await self._until(lambda: self._closing or self._clock.monotonic() >= end_s)
        finally:
            self._pausing -= 1

    async def do(self, words: str) -> None:
        """Does one of the methods below, by its name and the words behind it."""
        name, *arguments = words.split()
        await getattr(self, f"_{name}")(*arguments)

    async def _advance(self, ms: str) -> None:
        """The clock goes on."""
        self._clock.advance(ms=int(ms))

    async def _sweep(self) -> None:
        """Claims time out, jobs expire or become due, and old ones go."""
        sweeps = self._core.sweeps
        for sweep in (sweeps.time_out_claims, sweeps.expire_jobs, sweeps.advance_due, sweeps.collect_garbage):
            while await sweep() is not None:
                pass

    async def _sample(self) -> None:
        """The server counts the jobs of the shards in reach, and keeps the minute for the history."""
        self._core.service.of(Status).shard_reports.lane_minute.sample()
        await self._core.rates.sample()
        await self._core.service.of(HistoryKeeper).keep()

    async def _write_audit(self) -> None:
        """The audit's entries go to the store."""
        await self._core.service.of(AuditTrail).buffer.flush()

    async def _break(self, shard: str) -> None:
        """Each call of the shard fails from now on, and the server has noticed it."""
        self._stores[shard].dead = "the connection is gone"
        broken = self._core.shards.get(shard)
        while broken is not None and broken.healthy:
            await self._core.shard_monitor.ping_all()

    async def _lose(self, shard: str) -> None:
        """Each call of the shard fails from now on."""
        self._stores[shard].dead = "the connection is gone"

    async def _only(self, shard: str) -> None:
        """From now on only this shard takes enqueues."""
        shards = self._core.shards
        for one in shards:
            shards.change_enqueues(one, takes=one.name == shard)

    async def _both(self) -> None:
        """All shards take enqueues again."""
        shards = self._core.shards
        for one in shards:
            shards.change_enqueues(one, takes=True)

    async def _wait_for_poll(self, queue: str, number: str) -> None:
        """Until that number of dequeues wait for jobs of the queue."""
        await self._until(lambda: self._core.dispatcher.waiting_by_queue().get(queue) == int(number))

    async def _wait_for_pause(self) -> None:
        """Until a bulk run makes a pause."""
        await self._until(lambda: self._pausing)

    async def _wait_for_news(self) -> None:
        """Until a bulk run that is under way has told how far it is now."""
        now_ms = self._clock.now_ms()
        async with asyncio.timeout(_DEADLINE_S):
            while not any(
                run.ended_ms is None and run.news_ms == now_ms for run in await self._core.service.of(BulkRuns).runs()
            ):
                await asyncio.sleep(0.001)

    async def _finish_runs(self) -> None:
        """Until all bulk runs have ended."""
        async with asyncio.timeout(_DEADLINE_S):
            while any(run.ended_ms is None for run in await self._core.service.of(BulkRuns).runs()):
                await asyncio.sleep(0.001)

    async def _drain(self) -> None:
        """The server begins to stop."""
        self._core.dispatcher.drain()

    async def _until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(_DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Stops the server."""
        self._closing = True
        self._core.dispatcher.drain()
        await self._server.drain(5)
        await self._core.close()


@asynccontextmanager
async def start_server(kind: str) -> AsyncIterator[GoldenServer]:
    """Starts a server of that kind."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder, patch("secrets.token_hex", _Names().token_hex):
        started = await _KINDS[kind](Path(folder))
        try:
            yield started
        finally:
            await started.close()


async def _start(
    folder: Path,
    *,
    shards: Sequence[str] = (),
    draining: Sequence[str] = (),
    access: Callable[[ManualClock], AccessControl] | None = None,
    password: str | None = ADMIN_PASSWORD,
    thrift: ThriftSettings | None = None,
    tells: Callable[[Service], None] | None = None,
    **settings: Any,
) -> GoldenServer:
    """One shard that is the server's own, or the named ones, which fail when a step says so."""
    clock, stores = ManualClock(), dict[str, FaultyShard]()

    def desired(name: str) -> DesiredShard:
        def make() -> Shard:
            options = SqliteSettings(wal_reserve_kib=1, cache_kib=256)
            store = _Store(folder / name, options, name, clock.monotonic)
            if not shards:
                return store
            stores[name] = FaultyShard(store)
            return stores[name].as_shard()

        return DesiredShard(name, make, takes_enqueues=name not in draining, shown_address=f"folder/{name}")

    core = await open_core(
        *map(desired, shards or ["1"]),
        clock=clock,
        random=_Constants(),
        admin_password_hash=password and _hash_of(password),
        thrift=thrift or ThriftSettings(port=0),
        **settings,
    )
    core.service.of(Status).facts = lambda: OWN_FACTS
    core.service.of(Status).access = "insecure" if access is None else "tokens"
    if tells is not None:
        tells(core.service)
    server = thrift_server(core, access=None if access is None else access(clock))
    await server.start()
    core.service.identity.port = _SHOWN_PORT
    return GoldenServer(core, server, clock, stores)


# --- kinds of servers -------------------------------------------------------------------------------------------------------------
async def _plain(folder: Path) -> GoldenServer:
    """All callers may do anything."""
    return await _start(folder)


async def _without_password(folder: Path) -> GoldenServer:
    """It deletes queues for no password."""
    return await _start(folder, password=None)


async def _bounded(folder: Path) -> GoldenServer:
    """Its bounds are low, so that short calls are beyond them."""
    jobs = JobSettings(
        max_body_bytes=64,
        max_jobs_per_request=3,
        max_descriptors_per_request=3,
        max_header_bytes=40,
        max_unique_key_bytes=8,
        max_queues=2,
        max_backlog=4,
        max_wait_ms=1_000,
        max_compared_jobs=2,
        regex_pattern_bytes_max=20,
        max_frame_bytes=1_024,
        max_answer_bytes=1_024,
    )
    thrift = ThriftSettings(port=0, max_frame_bytes=1_024, max_answer_bytes=1_024, max_body_bytes=64)
    return await _start(folder, jobs=jobs, thrift=thrift)


async def _two_shards(folder: Path) -> GoldenServer:
    return await _start(folder, shards=["1", "2"])


async def _draining_shard(folder: Path) -> GoldenServer:
    """A second shard takes no enqueues."""
    return await _start(folder, shards=["1", "2"], draining=["2"])


async def _guarded(folder: Path) -> GoldenServer:
    """Callers without a token may only ask for the server's info."""
    return await _start(folder, access=lambda clock: _access(clock, BodyMasks()))


async def _masked(folder: Path) -> GoldenServer:
    """The bodies of the queues `mail*`, and a field of all others, are shown to the role admin only."""
    return await _start(folder, access=lambda clock: _access(clock, BodyMasks(["mail*"], ["card.number"])))


async def _guarded_shards(folder: Path) -> GoldenServer:
    return await _start(folder, shards=["1", "2"], access=lambda clock: _access(clock, BodyMasks()))


async def _with_quotas(folder: Path) -> GoldenServer:
    quota = Quota(connections=2, polls=1)
    return await _start(folder, access=lambda clock: _access(clock, BodyMasks(), quota))


def _access(clock: ManualClock, masks: BodyMasks, each_token: Quota = NO_QUOTA) -> AccessControl:
    def token(name: str, *roles: Role, queues: tuple[str, ...] = ("*",), **more: Any) -> Token:
        return Token(name, digest_of(SECRETS[name]), roles, queues, **more)

    tokens = [
        token("reader", Role.READ),
        token("producer", Role.PRODUCE),
        token("worker", Role.WORK),
        token("operator", Role.OPERATE),
        token("admin", Role.ADMIN),
        token(
            "few", Role.OPERATE, Role.PRODUCE, Role.WORK, queues=_QUEUES_OF_FEW, expires_at_ms=clock.now_ms() + 10**9
        ),
        token("gone", Role.ADMIN, expires_at_ms=clock.now_ms() - 1),
        token("console", Role.OPERATE, speaks_for_others=True),
    ]
    return AccessControl(tokens, (), clock.now_ms, clock.monotonic, masks, each_token=each_token)


async def _clustered(folder: Path) -> GoldenServer:
    """It knows of other servers, and says all that one can say of them."""
    return await _start(folder, tells=tell_of_others)


_KINDS: dict[str, Callable[[Path], Awaitable[GoldenServer]]] = {
    "plain": _plain,
    "without a password": _without_password,
    "with low bounds": _bounded,
    "on two shards": _two_shards,
    "with a draining shard": _draining_shard,
    "with tokens": _guarded,
    "with tokens, on two shards": _guarded_shards,
    "with quotas": _with_quotas,
    "with masks": _masked,
    "in a cluster": _clustered,
}
