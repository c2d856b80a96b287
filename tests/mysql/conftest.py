"""Fixtures for the tests of failures: a rig on each kind of server, on the session's own or on one that may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.desk import Desk
from tests.databases.database import DatabaseServer
from tests.databases.farm import ServerFarm
from tests.databases.fixtures import start_or_skip
from tests.databases.mariadb import MariaDb
from tests.databases.mysql import MySql8
from tests.mysql.rig import Rig, rig_on

KINDS: dict[str, type[DatabaseServer]] = {"mariadb": MariaDb, "mysql8": MySql8}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def rig(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """On the session's server, which must be left as it is."""
    async with rig_on(request.getfixturevalue(kind)) as rig:
        yield rig


@pytest.fixture(scope="session")
def victims(server_farm: ServerFarm) -> dict[str, DatabaseServer]:
    """Servers that the tests here may kill, suspend and restart, one of a kind, begun when first needed."""
    return {}


@pytest.fixture
def victim(kind: str, victims: dict[str, DatabaseServer], server_farm: ServerFarm) -> Iterator[DatabaseServer]:
    """One of them, running; whatever a test did to it is undone after."""
    if kind not in victims:
        victims[kind] = start_or_skip(server_farm, KINDS[kind])
    server = victims[kind]
    if not server.running:
        server.start()
    yield server
    if server.running:
        server.resume()


@pytest.fixture
async def mortal(victim: DatabaseServer) -> AsyncIterator[Rig]:
    """A rig on a server that may be killed."""
    async with rig_on(victim) as rig:
        yield rig


@pytest.fixture
async def desk(rig: Rig) -> Desk:
    """A desk behind the proxy."""
    return await rig.desk()
