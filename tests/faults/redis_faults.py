"""What goes wrong with Redis' shards only: the server says no, other clients keep it busy, connections don't last."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import redis

from tests.databases.redis import RedisServer
from tests.databases.redis_users import WITH_USERS
from tests.faults.failovers import FAILOVERS
from tests.faults.faults import HARMED, InjectedFault
from tests.faults.lost_keys import ON_KEYS
from tests.faults.stage import Stage

# A server's connections to one shard: four to write, `reader_connections` (2) to read.
CONNECTIONS = 6
_OTHER_KEYS = 100_000


async def a_redis_that_flushes_each_answer_is_killed(stage: Stage) -> None:
    """`appendfsync always`: kill -9 at any moment, and its return, twice."""
    database: RedisServer = stage.places[HARMED].database
    await asyncio.to_thread(database.execute, "CONFIG", "SET", "appendfsync", "always")
    for _ in range(2):
        await stage.lasts(5)
        database.kill()
        await stage.lasts(10, without=HARMED)
        await asyncio.to_thread(database.start, appendfsync="always")
        await stage.back(HARMED)
    await asyncio.to_thread(database.execute, "CONFIG", "SET", "appendfsync", "everysec")


async def a_script_of_another_client_never_ends(stage: Stage) -> None:
    """First it says nothing, then BUSY, until the script is killed."""
    database: RedisServer = stage.places[HARMED].database
    for silent_ms in (5_000, 100):
        await asyncio.to_thread(database.execute, "CONFIG", "SET", "lua-time-limit", silent_ms)
        endless = asyncio.ensure_future(asyncio.to_thread(_run_for_ever, database))
        try:
            await stage.lasts(12, without=HARMED)
        finally:
            await asyncio.to_thread(database.execute, "SCRIPT", "KILL")
            await endless
        await stage.back(HARMED)


def _run_for_ever(database: RedisServer) -> None:
    with contextlib.suppress(redis.ResponseError):  # that it was killed
        database.execute("EVAL", "while true do end", 0)


async def another_client_fills_the_memory(stage: Stage) -> None:
    """Others' keys take all of `maxmemory`: enqueues go to other shards, claims and acks go on, and no caller sees an error."""
    database: RedisServer = stage.places[HARMED].database
    used = (await asyncio.to_thread(database.execute, "INFO", "memory"))["used_memory"]
    await asyncio.to_thread(database.execute, "CONFIG", "SET", "maxmemory", used + 20 * 2**20)
    keys = await asyncio.to_thread(_fill, database)
    await stage.lasts(15, without=HARMED)  # servers look once a second
    assert await stage.in_use(HARMED), "a shard that only takes no more jobs is out of use"
    before = stage.load.enqueued[HARMED]
    await stage.lasts(10, without=HARMED)
    assert stage.load.enqueued[HARMED] == before, "a full shard took jobs"
    await asyncio.to_thread(database.execute, "UNLINK", *keys)
    await stage.back(HARMED)
    await asyncio.to_thread(database.execute, "CONFIG", "SET", "maxmemory", 0)


def _fill(database: RedisServer) -> list[str]:
    """Until there is no memory for even a small key; the keys that it took."""
    keys: list[str] = []
    for size in (2**17, 2**12, 2**7):
        with (
            database.session() as ask,
            contextlib.suppress(redis.OutOfMemoryError),
        ):  # a large one's buffers end with its connection
            while True:
                key = f"other:{len(keys)}"
                ask("SET", key, bytes(size))
                keys.append(key)
    return keys


async def a_master_becomes_a_replica_for_a_while(stage: Stage) -> None:
    """READONLY: `REPLICAOF` an unreachable master, and back."""
    database: RedisServer = stage.places[HARMED].database
    await asyncio.to_thread(database.execute, "REPLICAOF", "127.0.0.1", "1")
    await stage.lasts(15, without=HARMED)
    await asyncio.to_thread(database.execute, "REPLICAOF", "NO", "ONE")
    await stage.back(HARMED)


async def a_clusters_other_node_answers(stage: Stage) -> None:
    """MOVED: the shard's Redis is a node of a cluster, and its address leads to another node, which has not its keys."""
    place = stage.places[HARMED]
    database: RedisServer = place.database
    await stage.store.kill(database)
    await asyncio.to_thread(database.start, **_OF_A_CLUSTER)
    other = await asyncio.to_thread(stage.database_servers.start_redis, **WITH_USERS, **_OF_A_CLUSTER)
    await stage.back(HARMED)  # one node with all the keys is as good as no cluster
    await asyncio.to_thread(other.execute, "CLUSTER", "MEET", database.host, database.port)
    key = f"{stage.prefix}{{{HARMED}}}:"

    async def knows() -> bool:
        return await asyncio.to_thread(_sends_on, other, key)

    await stage.until(knows, "the other node knows who has the keys")
    place.proxy.target = other.address
    place.proxy.cut()
    await stage.until(lambda: _none_in_use(stage), f"no server uses shard {HARMED}")
    await stage.lasts(15, without=HARMED)
    clear = [log for log in stage.folder.glob("server-*.log") if "is a node of a Redis Cluster" in log.read_text()]
    assert len(clear) == len(stage.servers), "a server did not say that it talks to a cluster's node"
    place.proxy.target = database.address
    place.proxy.cut()
    await stage.back(HARMED)
    await stage.store.kill(database)
    await asyncio.to_thread(database.start, cluster_enabled=False)
    await asyncio.to_thread(other.remove)
    await stage.back(HARMED)


_OF_A_CLUSTER: dict[str, Any] = {"cluster_enabled": True, "cluster_require_full_coverage": False}


def _sends_on(node: RedisServer, key: str) -> bool:
    try:
        node.execute("GET", key)
    except redis.ResponseError as error:
        return isinstance(error, redis.exceptions.MovedError)
    return False


async def _none_in_use(stage: Stage) -> bool:
    known = [(await stage.metric(server, "pinlater_shard_healthy")).get(HARMED) for server in stage.servers]
    return not any(known)


async def connections_are_killed_again_and_again(stage: Stage) -> None:
    """Those of all clients, on every Redis, several times a second: none stays, and there are never more of them."""
    with contextlib.ExitStack() as storms:
        seen = [
            storms.enter_context(_storm(place.database, Random(f"{stage.dice.random()} {name}")))
            for name, place in stage.places.items()
        ]
        await stage.lasts(20, without=None)
    most = CONNECTIONS * len(stage.servers)
    assert all(storm.kills > 3 for storm in seen), "this was no storm"
    assert max(storm.most for storm in seen) <= most, (
        f"a Redis had {[storm.most for storm in seen]} connections of ours"
    )
    for shard in stage.places:
        await stage.back(shard)
        assert await stage.total("pinlater_store_connections", shard) <= most


class _Storm:
    """Kills the connections of one Redis until told to stop; what it saw."""

    def __init__(self, database: RedisServer, dice: Random) -> None:
        self.kills = 0
        self.most = 0  # connections at a time, without its own
        self.over = threading.Event()
        self._database = database
        self._dice = dice

    def run(self) -> None:
        with self._database.session() as ask:
            while not self.over.is_set():
                self.most = max(self.most, int(ask("INFO", "clients")["connected_clients"]) - 1)
                self.kills += ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") > 0
                self.over.wait(self._dice.uniform(0.05, 0.5))


@contextlib.contextmanager
def _storm(database: RedisServer, dice: Random) -> Iterator[_Storm]:
    storm = _Storm(database, dice)
    thread = threading.Thread(target=storm.run)
    thread.start()
    try:
        yield storm
    finally:
        storm.over.set()
        thread.join()


async def another_client_blocks_redis(stage: Stage) -> None:
    """Slow commands of another client, one after the other: while one runs no other client is served."""
    database: RedisServer = stage.places[HARMED].database
    over = threading.Event()
    hog = asyncio.ensure_future(asyncio.to_thread(_hog, database, over))
    try:
        await stage.lasts(20, without=HARMED)
    finally:
        over.set()
        await hog
    await stage.back(HARMED)


def _hog(database: RedisServer, over: threading.Event) -> None:
    """Loops of some tenths of a second, and lists of all keys, of which there are many."""
    with database.session() as ask:
        for first in range(0, _OTHER_KEYS, 1_000):
            pairs = [word for number in range(first, first + 1_000) for word in (f"other:{number}", "x")]
            ask("MSET", *pairs)
        began = time.monotonic()
        ask("EVAL", _LOOP, 0, 1_000_000)
        turns_a_second = 1_000_000 / (time.monotonic() - began)
        seconds = 0.1
        while not over.is_set():
            ask("EVAL", _LOOP, 0, round(turns_a_second * seconds))
            ask("KEYS", "other:*")
            seconds = seconds * 2 if seconds < 0.7 else 0.1
            over.wait(0.05)
        ask("EVAL", "for i = 0, ARGV[1] - 1 do redis.call('UNLINK', 'other:' .. i) end", 0, _OTHER_KEYS)


_LOOP = "local sum = 0 for i = 1, tonumber(ARGV[1]) do sum = sum + i end return 0"

ON_REDIS = (
    InjectedFault(a_redis_that_flushes_each_answer_is_killed),
    InjectedFault(a_script_of_another_client_never_ends),
    InjectedFault(another_client_fills_the_memory, errors=False),
    InjectedFault(a_master_becomes_a_replica_for_a_while),
    InjectedFault(a_clusters_other_node_answers),
    InjectedFault(connections_are_killed_again_and_again, harmed=None),
    InjectedFault(another_client_blocks_redis),
    *ON_KEYS,
    *FAILOVERS,
)
