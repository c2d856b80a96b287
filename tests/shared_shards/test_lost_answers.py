"""The connection is lost before a change reaches the database, or before its answer arrives: nothing is done twice, nothing is lost."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import DeleteJobs, TimeOutClaims
from tests.contract.desk import Desk
from tests.shared_shards.changes import CHANGES, Change, assert_done_once, connect_all, prepare
from tests.shared_shards.conftest import AnyDatabase
from tests.shared_shards.proxied_database import stats_of, until

TIME_LIMIT_MS = 500


@pytest.fixture(params=list(CHANGES))
def change(request: pytest.FixtureRequest) -> Change:
    return CHANGES[request.param]


async def test_a_lost_answer_is_found_out(database: AnyDatabase, desk: Desk, change: Change) -> None:
    """The database made the change: the caller gets the usual answer, and nothing is done again."""
    held = await prepare(desk, change)
    trap = database.proxy.lose_answer(database.packet_of(change.name))
    assert change.answered(await change.act(desk, held))
    assert trap.sprung
    assert (stats_of(desk).settled, stats_of(desk).lost_connections) == (1, int(database.counts_settled_as_lost))
    await assert_done_once(database, desk, change.name, held)


async def test_a_change_that_never_reached_the_database_is_made_by_the_next_try(
    database: AnyDatabase, desk: Desk, change: Change
) -> None:
    held = await prepare(desk, change)
    trap = database.proxy.lose_request(database.packet_of(change.name))
    assert change.answered(await change.act(desk, held))
    assert trap.sprung
    assert stats_of(desk).lost_connections == 1
    await assert_done_once(database, desk, change.name, held)


async def test_a_network_that_goes_silent_before_an_answer(database: AnyDatabase, change: Change) -> None:
    """The time limit passes, and the server asks the database for the outcome on another connection."""
    desk = await database.desk(time_limit_ms=TIME_LIMIT_MS)
    held = await prepare(desk, change)
    trap = database.proxy.lose_answer(database.packet_of(change.name), hang=True)
    assert change.answered(await change.act(desk, held))
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(database, desk, change.name, held)


async def test_a_network_that_goes_silent_before_a_request(database: AnyDatabase, change: Change) -> None:
    """The time limit passes. The error says that nothing was done, and the delayed request can do nothing later."""
    desk = await database.desk(time_limit_ms=TIME_LIMIT_MS)
    held = await prepare(desk, change)
    trap = database.proxy.lose_request(database.packet_of(change.name), hang=True)
    with pytest.raises(ShardConnectionFailed, match="not carried out") as failed:
        await change.act(desk, held)
    assert trap.sprung
    assert failed.value.retryable
    assert not isinstance(failed.value, OutcomeUnknown)
    assert change.answered(await change.act(desk, held))
    await assert_done_once(database, desk, change.name, held)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_an_outcome_is_unknown_if_the_database_can_not_be_asked(
    database: AnyDatabase, desk: Desk, carried_out: bool
) -> None:
    """The database stays unreachable. When it is back, the change is complete or absent, and work continues."""
    held = await desk.put_and_take()
    await desk.succeed(held.key, token="not that of the claim")  # connects
    lose = database.proxy.lose_answer if carried_out else database.proxy.lose_request
    trap = lose(database.packet_of("finish"))
    database.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.succeed(held.key, token=held.holder.token)
    assert trap.sprung
    database.proxy.heal()
    again = await desk.succeed(held.key, token=held.holder.token)
    assert again.outcome is (Outcome.ALREADY_FINAL if carried_out else Outcome.APPLIED)
    await assert_done_once(database, desk, "finish", held)


async def test_a_database_that_refuses_connections_is_asked_again_until_it_is_back(
    database: AnyDatabase, desk: Desk, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart takes longer than the few tries of a change: a time limit ends them, not their number."""
    held = await prepare(desk, change)
    await connect_all(desk)
    caplog.set_level(logging.DEBUG, "pinlater.server.storage")
    trap = database.proxy.lose_answer(database.packet_of(change.name))
    database.proxy.refuse()
    call = asyncio.ensure_future(change.act(desk, held))

    async def refused_often() -> bool:
        return call.done() or caplog.text.count("can't be asked for yet") > database.limits["retries"] + 1

    await until(refused_often)
    warnings = [
        record for record in caplog.records if "asked for yet" in record.msg and record.levelno == logging.WARNING
    ]
    assert len(warnings) == 1
    database.proxy.accept()
    assert change.answered(await call)
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(database, desk, change.name, held)


async def test_an_insert_with_an_unknown_outcome_is_not_doubled_when_it_comes_again(
    database: AnyDatabase, desk: Desk
) -> None:
    """The repeat has the same ids."""
    await desk.insert()  # connects
    job = desk.job(b"new")
    database.proxy.lose_answer(database.packet_of("insert"))
    database.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.insert(job)
    database.proxy.heal()
    assert (await desk.insert(job)).ids == [job.id]
    await assert_done_once(database, desk, "insert")


async def test_a_job_deleted_between_a_claim_and_its_second_answer_is_left_out(
    database: AnyDatabase, desk: Desk
) -> None:
    """The claim was made and its answer lost. Before the server asks again, another server deletes one of the jobs."""
    gone, other = await desk.put(b"gone"), await desk.put(b"other")
    operator = await database.desk(direct=True)
    database.proxy.lose_answer(database.packet_of("claim"))
    again = database.proxy.lose_request(database.claim_read_again)
    claim = asyncio.ensure_future(desk.claim(10))
    await again.wait()
    database.proxy.hold()
    assert await operator.shard.submit(DeleteJobs([gone])) == 1
    database.proxy.heal()
    assert [held.key for held in await claim] == [other]
    await database.assert_consistent(deleted=True)


async def test_a_cancelled_claim_that_was_carried_out_is_given_back(database: AnyDatabase, desk: Desk) -> None:
    """A lane that gives up a call cancels it. The next sweep releases the claim unspent."""
    await desk.put(b"old")
    await desk.claim(0)  # connects
    trap = database.proxy.lose_answer(database.packet_of("claim"), hang=True)
    call = asyncio.ensure_future(desk.claim())
    await trap.wait()

    async def carried_out() -> bool:
        return (await desk.counts()).in_progress == 1

    await until(carried_out)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 10))) == []
    again = await desk.take()
    assert (again.job.body, again.job.attempts_remaining) == (b"old", again.job.attempts_allowed)
    await database.assert_consistent()


async def test_idle_connections_that_broke_are_replaced_without_an_error(database: AnyDatabase, desk: Desk) -> None:
    """As after a restart of the database. No change was in flight, so the server asks for no outcome."""
    held = await desk.put_and_take()
    database.proxy.cut()

    async def gone() -> bool:
        return not database.proxy.open

    await until(gone)
    assert (await desk.look(held.key)).body == b"hello"
    await desk.put(b"other")
    assert [one.job.body for one in await desk.claim(10)] == [b"other"]
    assert (await desk.succeed(held.key)).outcome is Outcome.APPLIED
    assert (stats_of(desk).lost_connections, stats_of(desk).settled) == (0, 0)
