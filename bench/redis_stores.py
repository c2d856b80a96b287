"""Redis as the benchmark's stores: private servers of its own, which end with the run, however it ends.

They run as the documentation advises, with a log that is flushed once a second, and no configuration file of the machine is read. A
fresh store is a fresh prefix of keys on a server that runs already.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from bench import bare_redis
from bench.servers import cpu_seconds
from bench.stores import BenchmarkStore
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.shard import RedisShard
from tests.databases.guard import Guard
from tests.databases.redis import RedisServer

OPTIONS: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
# Filling sends what no request would: five thousand jobs at a time.
_FILLING_TIMEOUT_MS = 120_000
_SETTLED_SECONDS_MAX = 300.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RedisStore:
    """All keys with a prefix of its own, on one server."""

    server: RedisServer
    prefix: str
    is_kept: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        url = f"redis://{self.server.host}:{self.server.port}/0"
        return "--store", url, "--set", f"redis.key_prefix={self.prefix}"

    def shard(self) -> Shard:
        settings = RedisSettings(key_prefix=self.prefix, command_timeout_ms=_FILLING_TIMEOUT_MS)
        return RedisShard(RedisEndpoint(self.server.host, self.server.port), settings)

    def remove(self) -> None:
        """Deletes everything on its server, unless the store is kept; a kept store has its own server."""
        if not self.is_kept:
            with _client(self.server) as client:
                client.flushall()

    def used_bytes(self) -> int:
        """What its server has allocated, but for what is on its way to clients and to the log."""
        with _client(self.server) as client:
            memory = client.info("memory")
        return int(memory["used_memory"] - memory["mem_clients_normal"] - memory["mem_aof_buffer"])

    def settle(self) -> None:
        """Waits until the log has been written anew and nothing runs beside the server."""
        _rest(self.server)  # it may be at it by itself
        with _client(self.server) as client:
            client.bgrewriteaof()
        _rest(self.server)


@dataclass(frozen=True, slots=True)
class RedisShardSet:
    """A shard on each of several servers, with a prefix of its own."""

    servers: tuple[RedisServer, ...]
    prefix: str
    folder: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        shards = [
            {"name": str(number), "shardConfig": {"master": {"host": server.host, "port": server.port}}}
            for number, server in enumerate(self.servers, 1)
        ]
        path = self.folder / f"{self.prefix}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"shards": shards}))
        return "--store", f"redis:{path}", "--set", f"redis.key_prefix={self.prefix}"

    def remove(self) -> None:
        """Deletes everything on its servers."""
        for server in self.servers:
            with _client(server) as client:
                client.flushall()


class RedisStores:
    """Stores on Redis. The first server starts with the run, others with the stores that are kept."""

    kind = "redis"

    def __init__(self, folder: Path) -> None:
        self._where = folder.resolve()
        self._servers: list[RedisServer] = []
        self._spread: list[RedisServer] = []
        self._prepared: dict[str, RedisStore] = {}
        self._number = 0

    def __enter__(self) -> RedisStores:
        self._folder = Path(tempfile.mkdtemp(prefix="redis-", dir=self._where))
        self._guard = Guard(self._folder)
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.remove()
        self._guard.end()

    def facts(self) -> dict[str, str]:
        with _client(self._servers[0]) as client:
            about = client.info("server")
        name = f"Valkey {about['valkey_version']}" if "valkey_version" in about else f"Redis {about['redis_version']}"
        words = ", ".join(f"{option}={value}" for option, value in OPTIONS.items() if value)
        return {"store": self.kind, "database": name, "database_settings": words}

    def new(self) -> RedisStore:
        return self._store(self._servers[0])

    def spread(self, shards: int, *, first: int = 0) -> RedisShardSet:
        """A new store of several shards, each on a server of its own, from the one of that number on."""
        while len(self._spread) < first + shards:
            self._spread.append(self._start())
        self._number += 1
        return RedisShardSet(tuple(self._spread[first : first + shards]), f"bench{self._number}", self._folder)

    def prepared(self, name: str, fill: Callable[[BenchmarkStore], None]) -> RedisStore:
        """On a server of its own, so that its size is no other store's matter. Not copied: each use works on what the last one left,
        which matters little where it takes and adds a small part of what is there."""
        if name not in self._prepared:
            store = self._store(self._start(), is_kept=True)
            fill(store)
            store.settle()
            self._prepared[name] = store
        return self._prepared[name]

    def rest(self) -> None:
        for server in self._servers:
            _rest(server)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(server.pid) for server in self._servers)

    def bare(self, rows_per_commit: int, seconds: float) -> float:
        server = self._servers[0]
        with socket.create_connection((server.host, server.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rate = bare_redis.insert_rate(connection, rows_per_commit, seconds)
        with _client(server) as client:
            client.flushall()
        return rate

    def _start(self) -> RedisServer:
        server = RedisServer(self._folder / f"{len(self._servers) + 1}", OPTIONS)
        self._servers.append(server)
        return server.start()

    def _store(self, server: RedisServer, *, is_kept: bool = False) -> RedisStore:
        self._number += 1
        return RedisStore(server, f"bench{self._number}", is_kept)


def _rest(server: RedisServer) -> None:
    deadline, pause = time.monotonic() + _SETTLED_SECONDS_MAX, threading.Event()
    with _client(server) as client:
        while any(client.info("persistence")[f"aof_rewrite_{state}"] for state in ("in_progress", "scheduled")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"Redis did not come to rest within {_SETTLED_SECONDS_MAX:.0f} s")
            pause.wait(_LOOK_SECONDS)


def _client(server: RedisServer) -> Any:
    return redis.Redis(server.host, server.port)
