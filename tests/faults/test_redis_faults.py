"""Each fault of shards on Redis for some seconds, judged as in the soak but for the latency.

Three run in `make test`; the others are marked `thorough`, and `make faults ARGS="--kind redis"` runs all of them in full length.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.databases.farm import ServerFarm
from tests.databases.fixtures import start_redis_or_skip
from tests.faults.catalogue import faults_of
from tests.faults.load import Pace
from tests.faults.stage import Stage
from tests.faults.stores import STORES
from tests.faults.verdict import judge, suffer

pytestmark = pytest.mark.crash

_NORMAL_S = 2.0
_LENGTH = 0.1  # of what they last in the soak
_PACE = Pace(requests_per_s=25, claim_timeout_ms=1_500)
_STORE = STORES["redis"]


@pytest.fixture
async def stage(tmp_path: Path, server_farm: ServerFarm) -> AsyncIterator[Stage]:
    """Two servers of ours on three shards that are new, under load."""
    start_redis_or_skip(server_farm).remove()
    seed = int(os.environ.get("FAULTS_SEED") or secrets.randbelow(2**31))
    print(f"FAULTS_SEED={seed}")
    databases = [_STORE.start(server_farm) for _ in range(3)]
    async with Stage(tmp_path, server_farm, _STORE, databases, seed=seed, length=_LENGTH, pace=_PACE) as stage:
        yield stage
    for place in stage.places.values():
        place.database.remove()


async def nothing_is_broken_by(name: str, stage: Stage) -> None:
    verdict = await suffer(stage, faults_of("redis")[name], normal_s=_NORMAL_S)
    print(verdict.text())
    assert not verdict.broken, verdict.text()


async def test_a_redis_is_killed_and_comes_back(stage: Stage) -> None:
    """What it had answered is in its log, flushed or not."""
    await nothing_is_broken_by("a_database_is_killed", stage)


@pytest.mark.thorough
async def test_answers_of_scripts_are_lost_under_load(stage: Stage) -> None:
    """Cut, or silent, between a script and its answer, on every shard."""
    await nothing_is_broken_by("answers_of_commits_are_lost", stage)


@pytest.mark.thorough
async def test_a_claims_answer_is_lost_and_connections_are_refused_during_long_polls(stage: Stage) -> None:
    """The poll continues on other shards, and gets another job from this one once it is back."""
    await nothing_is_broken_by("a_claims_answer_is_lost_and_connections_are_refused", stage)


@pytest.mark.thorough
async def test_a_redis_restarts_under_long_polls(stage: Stage) -> None:
    await nothing_is_broken_by("a_database_restarts_under_long_polls", stage)


async def test_queues_come_and_go_by_way_of_different_servers_under_load(stage: Stage) -> None:
    """Under the same names, with jobs whose claims time out before a server has looked what queues there are."""
    await nothing_is_broken_by("queues_come_and_go", stage)


@pytest.mark.thorough
async def test_a_replica_that_lacks_the_tail_takes_over_under_load(stage: Stage) -> None:
    """What was answered while it was cut off is lost, and nothing else."""
    await nothing_is_broken_by("a_replica_without_the_tail_takes_over", stage)
    assert stage.lost, "nothing was lost, so nothing was tested"


@pytest.mark.thorough
async def test_sentinels_choose_another_master_under_load(stage: Stage) -> None:
    """kill -9 of the master. Servers find the next by themselves, and what had reached it is kept."""
    await nothing_is_broken_by("sentinels_choose_another_master", stage)


async def test_a_master_that_wakes_after_its_failover_is_left_under_load(stage: Stage) -> None:
    """SIGSTOP of the master. What it was given before the servers left it is lost, and nothing else."""
    await nothing_is_broken_by("a_master_wakes_after_its_failover", stage)


@pytest.mark.thorough
async def test_keys_of_each_kind_are_deleted_under_load(stage: Stage) -> None:
    """A deleted key loses only its own jobs, which are counted; the servers rebuild everything else."""
    await nothing_is_broken_by("keys_are_deleted", stage)


@pytest.mark.thorough
async def test_another_client_fills_the_memory_under_load(stage: Stage) -> None:
    """No caller sees an error."""
    await nothing_is_broken_by("another_client_fills_the_memory", stage)


@pytest.mark.thorough
async def test_connections_are_killed_again_and_again_under_load(stage: Stage) -> None:
    """And there are never more of them than of a server at rest."""
    await nothing_is_broken_by("connections_are_killed_again_and_again", stage)


@pytest.mark.thorough
async def test_a_verdict_sees_what_is_gone(stage: Stage) -> None:
    await stage.flows(["1", "2", "3"], jobs=10)
    _, broken = await judge(stage)
    assert broken == []
    place = stage.places["1"]
    for server in stage.servers:  # else they may have put it right before it is looked at
        server.signal(signal.SIGSTOP)
    with place.database.session() as ask:
        ask("DEL", next(key for key in ask("KEYS", "pinlater{1}:j*") if len(key) == len("pinlater{1}:j") + 13))
    left = await stage.store.inconsistencies(place, stage.prefix, "1")
    for server in stage.servers:
        server.signal(signal.SIGCONT)
    assert [each for each in left if "is gone and has left" in each]
    _, broken = await judge(stage, everything=True)
    assert [each for each in broken if each.startswith("LOST")]
