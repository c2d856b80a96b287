"""Faults that are tested on shards on Redis only, in `make test-all`. Those of every kind of database: `test_faults.py`."""

from __future__ import annotations

import signal

import pytest

from tests.faults.conftest import NothingIsBrokenBy
from tests.faults.stage import Stage
from tests.faults.verdict import judge

pytestmark = [pytest.mark.crash, pytest.mark.thorough]


@pytest.fixture
def kind() -> str:
    return "redis"


async def test_a_replica_that_lacks_the_tail_takes_over_under_load(
    nothing_is_broken_by: NothingIsBrokenBy, stage: Stage
) -> None:
    """What was answered while it was cut off is lost, and nothing else."""
    await nothing_is_broken_by("a_replica_without_the_tail_takes_over")
    assert stage.lost, "nothing was lost, so nothing was tested"


async def test_sentinels_choose_another_master_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """kill -9 of the master. Servers find the next by themselves, and what had reached it is kept."""
    await nothing_is_broken_by("sentinels_choose_another_master")


async def test_a_master_that_wakes_after_its_failover_is_left_under_load(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    """SIGSTOP of the master. What it was given before the servers left it is lost, and nothing else."""
    await nothing_is_broken_by("a_master_wakes_after_its_failover")


async def test_keys_of_each_kind_are_deleted_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """A deleted key loses only its own jobs, which are counted; the servers rebuild everything else."""
    await nothing_is_broken_by("keys_are_deleted")


async def test_another_client_fills_the_memory_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """No caller sees an error."""
    await nothing_is_broken_by("another_client_fills_the_memory")


async def test_connections_are_killed_again_and_again_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """And there are never more of them than of a server at rest."""
    await nothing_is_broken_by("connections_are_killed_again_and_again")


async def test_a_verdict_sees_what_is_gone(stage: Stage) -> None:
    await stage.flows(["1", "2", "3"], jobs=10)
    _, broken = await judge(stage)
    assert broken == []
    place = stage.places["1"]
    for server in stage.servers:  # else they may have put it right before it is looked at
        server.signal(signal.SIGSTOP)
    with place.database.session() as ask:
        begin = f"{stage.prefix}{{1}}:j"
        ask("DEL", next(key for key in ask("KEYS", f"{begin}*") if len(key) == len(begin) + 13))
    left = await stage.store.inconsistencies(place, stage.prefix, "1")
    for server in stage.servers:
        server.signal(signal.SIGCONT)
    assert [each for each in left if "is gone and has left" in each]
    _, broken = await judge(stage, everything=True)
    assert [each for each in broken if each.startswith("LOST")]
