"""A real server on a shard file of each kind, and what tests ask of it."""

from __future__ import annotations

import re
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pinlater.client import Ack, Client
from pinlater.testing.real_server import RealServer
from tests.mysql.shard_file import ShardFile as MysqlShardFile
from tests.redis.shard_file import ShardFile as RedisShardFile
from tests.servers.mariadb import MariaDb
from tests.servers.redis import RedisServer
from tests.servers.redis_users import PASSWORD, USER

_PATIENCE_S = 20.0


class Place(ABC):
    """Where a server of one kind has its shards: a shard file with the shards 1 and 2, and the address of one shard."""

    kind: str
    password: str
    options: tuple[str, ...]  # of every server on these shards
    broken_file: str
    path: Path
    address: str
    access_denied: str
    new_shard: str  # the name of a third shard
    last_shard: str  # with the settings of `originals`

    @property
    def store(self) -> str:
        """The setting `store` for the shard file."""
        return f"{self.kind}:{self.path}"

    @abstractmethod
    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """The shards of the file from now on, by number; an entry may replace fields."""

    @abstractmethod
    def elsewhere(self) -> Mapping[str, Any]:
        """Fields with another address of the same database server."""

    @abstractmethod
    def url(self, password: str) -> str:
        """The setting `store` for one shard, with this password; without one if it is empty."""

    @abstractmethod
    def originals(self) -> str:
        """A settings file of the original's kind."""


class MysqlPlace(Place):
    kind = "mysql"
    broken_file = '{"pinlaterdb001": {"master": {"host": "db", "port": "many"}}}'
    access_denied = "Access denied for user 'pinlater'"
    last_shard = "2d1"
    new_shard = "7"

    def __init__(self, folder: Path, server: MariaDb, prefix: str) -> None:
        self.server = server
        self.prefix = prefix
        self.file = MysqlShardFile(folder / "shards.json", server, 1, 2)
        self.path = self.file.path
        self.password = server.password
        self.address = f"{server.address}/{prefix}one"
        self.options = ("--set", f"mysql.database_prefix={prefix}", "--set", "mysql.host_prefix=pinlaterdb")

    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self.file.write(**{f"pinlaterdb{number:0>3}": entry for number, entry in entries.items()})

    def elsewhere(self) -> Mapping[str, Any]:
        return {"socket": str(self.server.socket)}

    def url(self, password: str) -> str:
        secret = f":{quote(password, safe='')}" if password else ""
        return f"mysql://{self.server.user}{secret}@{self.address}"

    def originals(self) -> str:
        return f"""\
PINLATER_BACKEND=mysql
THRIFT_PORT=0
OSTRICH_PORT=0
NUM_PRIORITY_LEVELS=3
MYSQL_NUM_DB_PER_QUEUE=2
SHARD_ALLOWED_HOSTNAME_PREFIX=pinlaterdb
BACKEND_CONNECTIONS_PER_SHARD=10
BACKEND_SOCKET_TIMEOUT_SECONDS=5
MYSQL_DATABASE_PREFIX={self.prefix}
"""


class RedisPlace(Place):
    kind = "redis"
    password = PASSWORD
    broken_file = '{"shards": [{"name": "1", "shardConfig": {"master": {"host": "r", "port": "many"}}}]}'
    access_denied = "WRONGPASS"
    last_shard = "2"
    new_shard = "new"

    def __init__(self, folder: Path, server: RedisServer, prefix: str) -> None:
        self.server = server
        self.prefix = prefix
        self.file = RedisShardFile(folder / "shards.json", server, "1", "2")
        self.path = self.file.path
        self.address = f"{server.address}/0"
        self.options = ("--set", f"redis.key_prefix={prefix}")

    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self.file.write(**{f"s{name}": entry for name, entry in entries.items()})

    def elsewhere(self) -> Mapping[str, Any]:
        return {"master": {"host": "localhost", "port": self.server.port}}

    def url(self, password: str) -> str:
        secret = f":{quote(password, safe='')}" if password else ""
        return f"redis://{USER}{secret}@{self.address}"

    def originals(self) -> str:
        return f"""\
PINLATER_BACKEND=redis
THRIFT_PORT=0
OSTRICH_PORT=0
NUM_PRIORITY_LEVELS=3
BACKEND_CONNECTIONS_PER_SHARD=10
BACKEND_SOCKET_TIMEOUT_SECONDS=5
REDIS_HEALTH_CHECK_CONSECUTIVE_FAILURES=6
REDIS_KEY_PREFIX={self.prefix}
"""


def metrics(server: RealServer, name: str) -> dict[str, float]:
    """A metric's values by their label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', text, re.MULTILINE)
    return {member: float(value) for member, value in found}


def wait_until(what: Callable[[], bool]) -> None:
    """Polls until it is true; fails after twenty seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < deadline


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1].removeprefix("s")


def work_off(client: Client, queue: str) -> set[bytes]:
    """Claims and acks every job; their bodies."""
    bodies: set[bytes] = set()
    while jobs := client.dequeue(queue, limit=100).jobs:
        bodies |= {job.body for job in jobs}
        results = client.ack(queue, [Ack(job.descriptor, token=job.token) for job in jobs])
        assert {result.outcome.name for result in results} == {"APPLIED"}
    return bodies


def everything_shown(server: RealServer) -> str:
    """What users of the machine may see of a server: its log, its pages, its process."""
    pages = ["/server_info", "/stats.txt", "/metrics", "/readyz", "/health"]
    shown = [
        urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{page}", timeout=10).read().decode()
        for page in pages
    ]
    return "\n".join([*shown, *server.said, Path(f"/proc/{server.process_id}/cmdline").read_text()])
