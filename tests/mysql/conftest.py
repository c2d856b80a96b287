"""Fixtures for the tests of failures: a database on each kind of server, on the session's own or on one that may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.desk import Desk
from tests.databases.database import DatabaseServer
from tests.databases.fixtures import start_or_skip
from tests.databases.mariadb import MariaDb
from tests.databases.mysql import MySql8
from tests.databases.servers import DatabaseServers
from tests.mysql.proxied_mysql import ProxiedMysql, proxied

KINDS: dict[str, type[DatabaseServer]] = {"mariadb": MariaDb, "mysql8": MySql8}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def database(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[ProxiedMysql]:
    """On the session's server, which must be left as it is."""
    async with proxied(request.getfixturevalue(kind)) as database:
        yield database


@pytest.fixture(scope="session")
def victims(database_servers: DatabaseServers) -> dict[str, DatabaseServer]:
    """Servers that the tests here may kill, suspend and restart, one of a kind, begun when first needed."""
    return {}


@pytest.fixture
def victim(
    kind: str, victims: dict[str, DatabaseServer], database_servers: DatabaseServers
) -> Iterator[DatabaseServer]:
    """One of them, running; whatever a test did to it is undone after."""
    if kind not in victims:
        victims[kind] = start_or_skip(database_servers, KINDS[kind])
    server = victims[kind]
    if not server.running:
        server.start()
    yield server
    if server.running:
        server.resume()


@pytest.fixture
async def killable(victim: DatabaseServer) -> AsyncIterator[ProxiedMysql]:
    """A database on a server that may be killed."""
    async with proxied(victim) as database:
        yield database


@pytest.fixture
async def desk(database: ProxiedMysql) -> Desk:
    """A desk behind the proxy."""
    return await database.desk()
