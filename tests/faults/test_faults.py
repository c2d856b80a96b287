"""Each fault for some seconds, judged as in the soak but for the latency, which a machine that does other things would spoil.

Two run in `make test`; the others are marked `thorough`, and `make faults` runs all of them in full length.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.databases.database import DatabaseServer
from tests.databases.farm import ServerFarm
from tests.databases.fixtures import start_or_skip
from tests.databases.mariadb import MariaDb
from tests.faults.catalogue import faults_of
from tests.faults.load import Pace
from tests.faults.stage import Stage
from tests.faults.stores import STORES
from tests.faults.verdict import judge, suffer

pytestmark = pytest.mark.crash

_NORMAL_S = 5.0
_LENGTH = 0.1  # of what they last in the soak
_PACE = Pace(requests_per_s=25, claim_timeout_ms=1_500)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def databases(server_farm: ServerFarm) -> Iterator[list[DatabaseServer]]:
    """Three, that may be killed; a test leaves them running."""
    found: list[DatabaseServer] = [start_or_skip(server_farm, MariaDb) for _ in range(3)]
    yield found
    for database in found:
        database.remove()


@pytest.fixture
async def stage(tmp_path: Path, server_farm: ServerFarm, databases: list[DatabaseServer]) -> AsyncIterator[Stage]:
    """Two servers of ours on three shards that are new, under load."""
    seed = int(os.environ.get("FAULTS_SEED") or secrets.randbelow(2**31))
    print(f"FAULTS_SEED={seed}")
    prefix = f"faults{next(_numbers)}"
    store = STORES["mariadb"]
    async with Stage(
        tmp_path, server_farm, store, databases, seed=seed, length=_LENGTH, pace=_PACE, prefix=prefix
    ) as stage:
        yield stage
    databases[:] = [place.database for place in stage.places.values()]
    for database in databases:
        if not database.running:
            database.start()
        database.resume()


async def nothing_is_broken_by(name: str, stage: Stage) -> None:
    verdict = await suffer(stage, faults_of("mariadb")[name], normal_s=_NORMAL_S)
    print(verdict.text())
    assert not verdict.broken, verdict.text()


async def test_a_shard_is_killed_and_comes_back(stage: Stage) -> None:
    await nothing_is_broken_by("a_database_is_killed", stage)


@pytest.mark.thorough
async def test_a_shard_stands_still_for_some_seconds(stage: Stage) -> None:
    await nothing_is_broken_by("a_database_stands_still", stage)


@pytest.mark.thorough
async def test_answers_of_commits_are_lost_under_load(stage: Stage) -> None:
    await nothing_is_broken_by("answers_of_commits_are_lost", stage)


@pytest.mark.thorough
async def test_other_clients_hold_row_locks_under_load(stage: Stage) -> None:
    await nothing_is_broken_by("other_clients_hold_row_locks", stage)


@pytest.mark.thorough
async def test_a_shard_fails_over_to_another_host_under_load(stage: Stage) -> None:
    """The shard file is rewritten once the old primary refuses writes."""
    await nothing_is_broken_by("a_shard_moves_to_another_host", stage)


@pytest.mark.thorough
async def test_a_shard_is_drained_and_removed_under_load(stage: Stage) -> None:
    """And no caller sees an error."""
    await nothing_is_broken_by("a_shard_is_drained_and_removed", stage)


@pytest.mark.thorough
async def test_a_claims_answer_is_lost_and_connections_are_refused_during_long_polls(stage: Stage) -> None:
    """The poll continues on other shards, and gets another job from this one once it is back."""
    await nothing_is_broken_by("a_claims_answer_is_lost_and_connections_are_refused", stage)


@pytest.mark.thorough
async def test_a_database_restarts_under_long_polls(stage: Stage) -> None:
    await nothing_is_broken_by("a_database_restarts_under_long_polls", stage)


async def test_queues_come_and_go_by_way_of_different_servers_under_load(stage: Stage) -> None:
    """Under the same names, with jobs whose claims time out before a server has looked what queues there are."""
    await nothing_is_broken_by("queues_come_and_go", stage)


@pytest.mark.thorough
async def test_one_of_three_servers_on_the_same_shards_is_killed(stage: Stage) -> None:
    await nothing_is_broken_by("a_server_is_killed", stage)


@pytest.mark.thorough
async def test_a_verdict_sees_what_is_gone(stage: Stage) -> None:
    await stage.flows(["1", "2", "3"], jobs=10)
    _, broken = await judge(stage)
    assert broken == []
    database, name = stage.places["1"].database, f"{stage.prefix}_1"
    [(job,)] = await database.execute(f"SELECT id FROM {name}.done ORDER BY id LIMIT 1")
    await database.execute(f"DELETE FROM {name}.done WHERE id = {job}")
    _, broken = await judge(stage, everything=True)
    assert [each for each in broken if each.startswith("LOST") and str(job) in each]
    assert [each for each in broken if "in no state" in each]
    assert [each for each in broken if "shard 1 counts" in each or "counted" in each]
