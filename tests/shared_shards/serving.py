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

import pytest

from pinlater.client import Ack, Client, Job
from pinlater.testing.real_server import RealServer
from tests.databases.mariadb import MariaDb
from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD, USER
from tests.shared_shards.shard_files import MysqlShardFile, RedisShardFile

_DEADLINE_S = 20.0


class ServedShards(ABC):
    """Where a server of one kind has its shards: a shard file with the shards 1 and 2, and the address of one shard."""

    kind: str
    server: MariaDb | RedisServer
    prefix: str  # of its databases or keys
    password: str
    settings: Mapping[str, str]  # of every server and command on these shards
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

    @property
    def options(self) -> tuple[str, ...]:
        """The settings as options of a command."""
        return tuple(word for key, value in self.settings.items() for word in ("--set", f"{key}={value}"))

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings as variables of the environment."""
        return {f"PINLATER_{key.replace('.', '_').upper()}": value for key, value in self.settings.items()}

    @abstractmethod
    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """The shards of the file from now on, by number; an entry may replace fields."""

    @abstractmethod
    def key(self, number: str) -> str:
        """How the file names this shard."""

    @abstractmethod
    def entry(self, content: Any, number: str) -> dict[str, Any]:
        """The fields of this shard in the content of the file."""

    @abstractmethod
    def elsewhere(self) -> Mapping[str, Any]:
        """Fields with another address of the same database server."""

    @abstractmethod
    def url(self, password: str) -> str:
        """The setting `store` for one shard, with this password; without one if it is empty."""

    @abstractmethod
    def originals(self) -> str:
        """A settings file of the original's kind."""


class MysqlPlace(ServedShards):
    kind = "mysql"
    server: MariaDb
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
        self.settings = {"mysql.database_prefix": prefix, "mysql.host_prefix": "pinlaterdb"}

    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self.file.write(**{self.key(number): entry for number, entry in entries.items()})

    def key(self, number: str) -> str:
        return f"pinlaterdb{number:0>3}"

    def entry(self, content: Any, number: str) -> dict[str, Any]:
        found: dict[str, Any] = content[self.key(number)]
        return found

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


class RedisPlace(ServedShards):
    kind = "redis"
    server: RedisServer
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
        self.settings = {"redis.key_prefix": prefix}

    def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self.file.write(**{f"s{name}": entry for name, entry in entries.items()})

    def key(self, number: str) -> str:
        return number

    def entry(self, content: Any, number: str) -> dict[str, Any]:
        [found] = [shard["shardConfig"] for shard in content["shards"] if shard["name"] == number]
        fields: dict[str, Any] = found
        return fields

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


def place_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> ServedShards:
    """On the session's database server of this kind; the shard file is in `folder`."""
    get = request.getfixturevalue
    if kind == "mysql":
        return MysqlPlace(folder, get("mariadb"), get("mariadb_prefix"))
    return RedisPlace(folder, get("redis_with_users"), get("redis_prefix"))


def metrics(server: RealServer, name: str) -> dict[str, float]:
    """A metric's values by their label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{name}{{\w+="([^"]*)"}} (\S+)$', text, re.MULTILINE)
    return {member: float(value) for member, value in found}


def wait_until(what: Callable[[], bool]) -> None:
    """Polls until it is true; fails after twenty seconds."""
    deadline = time.monotonic() + _DEADLINE_S
    while not what():
        assert time.monotonic() < deadline


def one_job_through(address: str) -> None:
    """Creates the queue `emails`; a job goes through it, from the enqueue to the ack."""
    with Client(address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}


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
    shown: list[str] = []
    for page in pages:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{page}", timeout=10) as answer:
            shown.append(answer.read().decode())
    return "\n".join([*shown, *server.said, Path(f"/proc/{server.process_id}/cmdline").read_text()])
