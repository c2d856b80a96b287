"""Servers on three shards of one kind, under load, for some seconds a fault."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.databases.database import DatabaseServer
from tests.databases.fixtures import start_or_skip, start_redis_or_skip
from tests.databases.mariadb import MariaDb
from tests.databases.servers import DatabaseServers
from tests.faults.catalogue import faults_of
from tests.faults.load import Pace
from tests.faults.stage import Stage
from tests.faults.stores import STORES, AnyServer
from tests.faults.verdict import suffer

_NORMAL_S = {"mariadb": 5.0, "redis": 2.0}
_LENGTH = 0.1  # of what they last in `make faults`
_PACE = Pace(requests_per_s=25, claim_timeout_ms=1_500)
_numbers = itertools.count(1)

NothingIsBrokenBy = Callable[[str], Awaitable[None]]


@pytest.fixture(scope="package")
def mariadbs(database_servers: DatabaseServers) -> Iterator[list[DatabaseServer]]:
    """Three, that may be killed; a test leaves them running."""
    found: list[DatabaseServer] = [start_or_skip(database_servers, MariaDb) for _ in range(3)]
    yield found
    for database in found:
        database.remove()


@pytest.fixture
def databases(kind: str, database_servers: DatabaseServers, request: pytest.FixtureRequest) -> list[AnyServer]:
    """Three of the kind that the test's file names."""
    if kind == "mariadb":
        return list(request.getfixturevalue("mariadbs"))
    start_redis_or_skip(database_servers).remove()
    return [STORES[kind].start(database_servers) for _ in range(3)]


@pytest.fixture
async def stage(
    kind: str,
    tmp_path: Path,
    database_servers: DatabaseServers,
    databases: list[AnyServer],
    request: pytest.FixtureRequest,
) -> AsyncIterator[Stage]:
    """Two servers of ours on three shards that are new, under load."""
    seed = int(os.environ.get("FAULTS_SEED") or secrets.randbelow(2**31))
    print(f"FAULTS_SEED={seed}")
    prefix = f"faults{next(_numbers)}"
    async with Stage(
        tmp_path, database_servers, STORES[kind], databases, seed=seed, length=_LENGTH, pace=_PACE, prefix=prefix
    ) as stage:
        yield stage
    left = [place.database for place in stage.places.values()]
    for added in left[len(databases) :]:
        added.remove()
    del left[len(databases) :]
    if kind != "mariadb":
        for database in left:
            database.remove()
        return
    request.getfixturevalue("mariadbs")[:] = left
    for database in left:
        if not database.running:
            database.start()
        database.resume()


@pytest.fixture
def nothing_is_broken_by(kind: str, stage: Stage) -> NothingIsBrokenBy:
    """Causes the fault of that name, and judges as `make faults` does but for the latency, which other programs would spoil."""

    async def run(name: str) -> None:
        verdict = await suffer(stage, faults_of(kind)[name], normal_s=_NORMAL_S[kind])
        print(verdict.text())
        assert not verdict.broken, verdict.text()

    return run
