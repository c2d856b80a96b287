"""Failovers of a Redis shard to a replica: by hand to one that lacks the tail, and by Sentinels. What such a replica lacks is lost.

How much that may be is measured here: what the master had before a moment, and its replica had got, is not to be lost, nor is what came
after the master's death.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from pinlater.server.storage.redis.keys import parts_of
from tests.databases.redis import RedisServer
from tests.databases.redis_users import ADMIN, PASSWORD
from tests.databases.sentinel import Sentinels
from tests.faults.faults import HARMED, InjectedFault
from tests.faults.rollback import Lacked, Rollback
from tests.faults.stage import Stage
from tests.faults.stores import RedisKind


async def a_replica_without_the_tail_takes_over(stage: Stage) -> None:
    """It was cut off for a while before the master died, and now has its address; what was answered meanwhile is lost, and nothing else.

    So are heartbeats of our servers, and that one had come meanwhile: it has to take another place, or one that seems to be free.
    """
    place = stage.places[HARMED]
    master: RedisServer = place.database
    replica = await _replica_of(master, stage)
    since_ns = await _caught_up(master, replica, stage)
    await asyncio.to_thread(replica.execute, "REPLICAOF", "NO", "ONE")
    newcomer = await stage.add_server()
    stage.load.spread()
    await stage.lasts(10)
    master.kill()
    until_ns = time.monotonic_ns()
    stage.rollbacks.append(await asyncio.to_thread(_rollback, replica, stage.prefix, since_ns, until_ns))
    place.database, place.proxy.target = replica, replica.address
    await stage.back(HARMED)
    await asyncio.to_thread(master.remove)

    async def a_place_was_lost() -> bool:
        return await stage.total("pinlater_store_slots_lost", HARMED) > 0

    await stage.until(a_place_was_lost, "the newcomer has noticed that its place is unknown")
    assert await stage.take_out(newcomer) == 0, "a stop ended badly"
    await stage.lasts(5)


async def sentinels_choose_another_master(stage: Stage) -> None:
    """The master is killed, and the servers find the next one by themselves. What its replica had not got yet is lost."""
    async with _watched_by_sentinels(stage) as (master, replica, sentinels):
        since_ns = await _caught_up(master, replica, stage)
        master.kill()
        until_ns = time.monotonic_ns()
        await stage.until(lambda: _is_alone(replica), "the replica has noticed")
        stage.rollbacks.append(await asyncio.to_thread(_rollback, replica, stage.prefix, since_ns, until_ns))
        assert (await _replication(replica))["role"] == "slave", "the failover was over before it could be seen"
        await stage.lasts(10, without=HARMED)
        await asyncio.to_thread(sentinels.wait_for_master, replica.port)
        await stage.back(HARMED)


async def a_master_wakes_after_its_failover(stage: Stage) -> None:
    """SIGSTOP past the failover, and then a master that obeys no Sentinel: the servers leave it by themselves.

    Only what it was given before they left is lost: exactly what it has and the new master lacks.
    """
    async with _watched_by_sentinels(stage) as (master, replica, sentinels):
        since_ns = await _caught_up(master, replica, stage)
        await asyncio.to_thread(master.execute, "ACL", "SETUSER", ADMIN, "-slaveof", "-replicaof")
        master.suspend()
        try:
            await asyncio.to_thread(sentinels.wait_for_master, replica.port)
            await stage.lasts(10, without=HARMED)
        finally:
            master.resume()
        await stage.until(lambda: _is_left(master), "the servers have left the old master")
        until_ns = time.monotonic_ns()
        await stage.back(HARMED)
        await stage.lasts(10)
        assert await _is_left(master), "a server came back to the old master"
        assert (await _replication(master))["role"] == "master", "a Sentinel was obeyed, so nothing was tested"
        had, has = [await asyncio.to_thread(_jobs_of, server, stage.prefix) for server in (master, replica)]
        stored, finished = Lacked(had.stored - has.stored), Lacked(had.finished - has.finished)
        stage.rollbacks.append(Rollback(HARMED, since_ns, until_ns, stored, finished))


@asynccontextmanager
async def _watched_by_sentinels(stage: Stage) -> AsyncIterator[tuple[RedisServer, RedisServer, Sentinels]]:
    """A master and its replica, which servers reach through Sentinels; afterwards by the replica's address, for what comes next."""
    place = stage.places[HARMED]
    master: RedisServer = place.database
    replica = await _replica_of(master, stage)
    sentinels = Sentinels(stage.folder / f"sentinels-{master.port}", master, ADMIN, PASSWORD)
    async with AsyncExitStack() as undo:
        await asyncio.to_thread(sentinels.__enter__)
        undo.push_async_callback(asyncio.to_thread, sentinels.__exit__, None, None, None)
        place.entry = {"sentinelMaster": sentinels.name, "sentinels": sentinels.addresses}
        stage.write_map()
        await stage.until(lambda: _has_left(stage, place.proxy), "no server goes there by its address")
        await stage.back(HARMED)
        await stage.lasts(5)
        yield master, replica, sentinels
        place.database, place.proxy, place.entry = replica, await stage.proxy_of(replica), {}
        stage.write_map()
        await stage.until(lambda: _is_reached(place.proxy), "servers go there by its address")
        await stage.back(HARMED)
    await asyncio.to_thread(master.remove)


FAILOVERS = (
    InjectedFault(a_replica_without_the_tail_takes_over, slots_lost=True),
    InjectedFault(sentinels_choose_another_master),
    InjectedFault(a_master_wakes_after_its_failover),
)


async def _replica_of(master: RedisServer, stage: Stage) -> RedisServer:
    assert isinstance(stage.store, RedisKind)
    replica = stage.store.start(stage.database_servers)
    await asyncio.to_thread(replica.execute, "REPLICAOF", master.host, master.port)

    async def follows() -> bool:
        return not await _is_alone(replica)

    await stage.until(follows, "the replica has what the master has")
    return replica


async def _caught_up(master: RedisServer, replica: RedisServer, stage: Stage) -> int:
    """A moment; what the master had answered before it, the replica has by now."""
    moment_ns = time.monotonic_ns()
    goal = int((await _replication(master))["master_repl_offset"])

    async def has_it() -> bool:
        return int((await _replication(replica))["slave_repl_offset"]) >= goal

    await stage.until(has_it, "the replica has what the master had")
    return moment_ns


async def _is_alone(replica: RedisServer) -> bool:
    status: str = (await _replication(replica)).get("master_link_status", "")
    return status != "up"


async def _has_left(stage: Stage, proxy: Any) -> bool:
    return bool(proxy.open == 0)


async def _is_reached(proxy: Any) -> bool:
    return bool(proxy.open > 0)


async def _replication(server: RedisServer) -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(server.execute, "INFO", "replication")
    return found


async def _is_left(master: RedisServer) -> bool:
    """Whether no server of ours is connected to it."""
    clients: str = await asyncio.to_thread(master.execute, "CLIENT", "LIST", "TYPE", "normal")
    return " name=pinlater " not in (clients.decode() if isinstance(clients, bytes) else str(clients))


def _rollback(replica: RedisServer, prefix: str, since_ns: int, until_ns: int) -> Rollback:
    """By what the replica has, which gets no writes now."""
    return Rollback(HARMED, since_ns, until_ns, *_jobs_of(replica, prefix))


class _Jobs(NamedTuple):
    """The ids of all jobs, and of those that have succeeded or failed."""

    stored: set[int]
    finished: set[int]


def _jobs_of(server: RedisServer, prefix: str) -> _Jobs:
    front = f"{prefix}{{{HARMED}}}:".encode()
    with server.session() as ask:
        keys = [key.removeprefix(front) for key in ask("KEYS", front + b"*")]
        stored = {parts_of(key[1:])[2] for key in keys if key[:1] == b"j" and len(key) == 14}
        finished = {
            int.from_bytes(job_id, "big")
            for key in keys
            if key[:1] in (b"s", b"f") and len(key) == 6
            for job_id in ask("ZRANGE", front + key, 0, -1)
        }
    return _Jobs(stored, finished)
