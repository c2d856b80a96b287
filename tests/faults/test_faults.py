"""Faults that are tested on every kind of database. Others: `test_mysql_faults.py`, `test_redis_faults.py`.

Three run in `make test` on each kind; the others are marked `thorough`, and `make faults` runs all of them in full length.
"""

from __future__ import annotations

import pytest

from tests.faults.conftest import NothingIsBrokenBy

pytestmark = pytest.mark.crash


@pytest.fixture(params=["mariadb", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_shard_is_killed_and_comes_back(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """What it had answered is in its log, on Redis flushed or not."""
    await nothing_is_broken_by("a_database_is_killed")


async def test_queues_come_and_go_by_way_of_different_servers_under_load(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    """Under the same names, with jobs whose claims time out before a server has looked what queues there are."""
    await nothing_is_broken_by("queues_come_and_go")


async def test_ordered_jobs_keep_their_order_while_their_shard_drains_beside_lost_servers_and_answers(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    """For each key, with settings drawn by the seed; none waits without a reason at the end."""
    await nothing_is_broken_by("homes_of_ordered_jobs_drain_and_come_back")


@pytest.mark.parametrize("kind", ["redis"])
async def test_an_ensemble_loses_its_leader_and_then_its_data_between_changes_of_the_coordinator(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    await nothing_is_broken_by("an_ensemble_fails")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["redis"])
async def test_the_server_that_leads_is_killed_as_it_gives_slices_of_a_killed_server_to_others(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    await nothing_is_broken_by("the_leading_server_is_killed_in_mid_move")


@pytest.mark.thorough
async def test_servers_change_their_coordinator_there_and_back_under_load(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    await nothing_is_broken_by("the_coordinator_changes")


@pytest.mark.thorough
async def test_the_server_that_leads_is_suspended_while_another_one_stops(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    await nothing_is_broken_by("the_leading_server_is_suspended_in_mid_move")


@pytest.mark.thorough
async def test_answers_of_commits_are_lost_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    """Or of scripts: cut, or silent, before the answer, on every shard."""
    await nothing_is_broken_by("answers_of_commits_are_lost")


@pytest.mark.thorough
async def test_a_claims_answer_is_lost_and_connections_are_refused_during_long_polls(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    """The poll continues on other shards, and gets another job from this one once it is back."""
    await nothing_is_broken_by("a_claims_answer_is_lost_and_connections_are_refused")


@pytest.mark.thorough
async def test_a_database_restarts_under_long_polls(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("a_database_restarts_under_long_polls")


@pytest.mark.thorough
async def test_one_of_three_servers_on_the_same_shards_is_killed(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("a_server_is_killed")


@pytest.mark.thorough
async def test_a_server_is_stopped_in_order_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("a_server_is_stopped")


@pytest.mark.thorough
async def test_a_server_is_suspended_past_its_lease_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("a_server_is_suspended_past_its_lease")


@pytest.mark.thorough
async def test_connections_between_servers_break_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("connections_between_servers_break")


@pytest.mark.thorough
async def test_an_empty_shard_is_added_and_servers_read_the_shard_file_one_after_the_other(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    """No job runs twice, and no server says that a job on the new shard does not exist."""
    await nothing_is_broken_by("an_empty_shard_is_added")


@pytest.mark.thorough
async def test_servers_are_replaced_by_another_version_under_load(nothing_is_broken_by: NothingIsBrokenBy) -> None:
    await nothing_is_broken_by("servers_are_replaced_by_another_version")


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_a_bulk_run_goes_on_when_its_server_is_killed_or_suspended(
    nothing_is_broken_by: NothingIsBrokenBy,
) -> None:
    await nothing_is_broken_by("a_bulk_run_loses_its_server")
