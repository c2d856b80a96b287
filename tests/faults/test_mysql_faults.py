"""Faults that are tested on shards on MySQL only, in `make test-all`. Those of every kind of database: `test_faults.py`."""

from __future__ import annotations

import pytest

from tests.faults.conftest import NothingIsBrokenBy
from tests.faults.stage import Stage
from tests.faults.verdict import judge

pytestmark = [pytest.mark.crash, pytest.mark.thorough]


@pytest.fixture
def kind() -> str:
    return "mariadb"


async def test_a_shard_stands_still_for_some_seconds(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("a_database_stands_still")


async def test_other_clients_hold_row_locks_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("other_clients_hold_row_locks")


async def test_another_client_holds_waiting_jobs_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("another_client_holds_waiting_jobs")


async def test_a_shard_fails_over_to_another_host_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """The shard file is rewritten once the old primary refuses writes."""
    await nothing_is_broken_by("a_shard_moves_to_another_host")


async def test_a_shard_is_drained_and_removed_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """And no caller sees an error."""
    await nothing_is_broken_by("a_shard_is_drained_and_removed")


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
