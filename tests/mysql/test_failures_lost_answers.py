"""What only MySQL does when the connection is lost around a COMMIT. Lost answers in general: tests/shared_shards."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed, StoreFull
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import ListChangedQueues, TimeOutClaims
from tests.contract.desk import QUEUE, Desk
from tests.mysql.proxied_mysql import COMMIT, LIMITS, ProxiedMysql
from tests.shared_shards.changes import CHANGES, Change, assert_done_once, prepare
from tests.shared_shards.proxied_database import gathered, stats_of, until

NO_COMMIT = b";DO   0"
NO_ROLLBACK = b"DO     0"
ERROR_DURING_COMMIT, LOG_NOT_WRITTEN, UNKNOWN_ERROR, NO_LOCK, HOOK_FAILED, DEADLOCK = 1180, 1026, 1105, 1205, 3100, 1213
READ_ONLY, NODE_NOT_READY = 1290, 1047
NO_BACKEND = 9001  # of ProxySQL


@pytest.fixture(params=list(CHANGES))
def change(request: pytest.FixtureRequest) -> Change:
    return CHANGES[request.param]


async def test_a_look_whose_answer_is_lost_is_done_again_and_counted(database: ProxiedMysql, desk: Desk) -> None:
    key = await desk.put(b"looked for")
    await desk.look(key)  # a connection for looks is there now
    trap = database.proxy.lose_answer(b"FROM jobs")
    assert (await desk.look(key)).body == b"looked for"
    assert (trap.sprung, stats_of(desk).lost_connections) == (True, 1)


async def test_an_error_that_answers_a_commit_which_was_carried_out_is_none(
    database: ProxiedMysql, desk: Desk, change: Change
) -> None:
    """Something of the database's own went wrong after the commit: what is done must not be told as failed."""
    held = await prepare(desk, change)
    trap = database.proxy.fail_answer(COMMIT, ERROR_DURING_COMMIT, "Got error 28 during COMMIT")
    assert change.answered(await change.act(desk, held))
    assert trap.sprung
    assert (stats_of(desk).settled, stats_of(desk).lost_connections) == (1, 0)
    await assert_done_once(database, desk, change.name, held)


@pytest.mark.parametrize("code", [LOG_NOT_WRITTEN, UNKNOWN_ERROR, NO_LOCK, HOOK_FAILED, READ_ONLY])
async def test_whatever_error_leaves_a_commit_open_the_database_is_asked(
    database: ProxiedMysql, desk: Desk, code: int
) -> None:
    """A proxy says that the server is read-only, if it loses the server while the COMMIT is under way."""
    trap = database.proxy.fail_answer(COMMIT, code)
    assert await desk.put(b"new")
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(database, desk, "insert")


@pytest.mark.parametrize("code", [LOG_NOT_WRITTEN, NO_LOCK, READ_ONLY, NO_BACKEND])
async def test_an_error_of_a_proxy_for_a_packet_that_was_carried_out_is_none(
    database: ProxiedMysql, desk: Desk, change: Change, code: int
) -> None:
    """A proxy that loses the server gives one answer to the whole packet: no statement of it is known to have failed."""
    held = await prepare(desk, change)
    trap = database.proxy.fail_answer(COMMIT, code, "upstream failure", alone=True)
    assert change.answered(await change.act(desk, held))
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(database, desk, change.name, held)


async def test_a_commit_to_a_node_that_takes_no_commands_is_sent_again_on_another_connection(
    database: ProxiedMysql, desk: Desk
) -> None:
    """A Galera node without a quorum refuses all commands before it begins them, a ROLLBACK too."""
    await desk.put(b"connects")
    before = database.proxy.connections
    trap = database.proxy.fail_answer(COMMIT, NODE_NOT_READY, "not prepared", instead=NO_COMMIT)
    assert await desk.put(b"new")
    assert (trap.sprung, stats_of(desk).settled, stats_of(desk).lost_connections) == (True, 0, 1)
    assert database.proxy.connections == before + 1
    assert len(await desk.claim(10)) == 2
    await database.assert_consistent()


async def test_a_transaction_whose_rollback_is_answered_with_an_error_is_no_part_of_the_next(
    database: ProxiedMysql, desk: Desk
) -> None:
    """Galera tells a rollback of its own to the next command, whatever it is. The connection is kept."""
    await desk.put(b"connects")
    before = database.proxy.connections
    commit = database.proxy.fail_answer(COMMIT, DEADLOCK, instead=NO_COMMIT)
    rollback = database.proxy.fail_answer(b"ROLLBACK", DEADLOCK, instead=NO_ROLLBACK)
    assert await desk.put(b"new")
    assert (commit.sprung, rollback.sprung, stats_of(desk).deadlocks) == (True, True, 1)
    assert database.proxy.connections == before
    assert len(await desk.claim(10)) == 2
    await database.assert_consistent()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ERROR_DURING_COMMIT, ShardConnectionFailed),
        (LOG_NOT_WRITTEN, StoreFull),
        (HOOK_FAILED, ShardConnectionFailed),
        (NO_LOCK, None),
        (DEADLOCK, None),
    ],
)
async def test_an_error_that_answers_a_commit_which_was_not_carried_out_is_one(
    database: ProxiedMysql, desk: Desk, code: int, told: type[PinLaterError] | None
) -> None:
    """The transaction is even still open in the database: it is ended, and then what helps may be done again."""
    held = await desk.put_and_take()
    trap = database.proxy.fail_answer(COMMIT, code, "no", instead=NO_COMMIT)
    if told is not None:
        with pytest.raises(told) as failed:
            await CHANGES["fail"].act(desk, held)
        assert not isinstance(failed.value, OutcomeUnknown)
        assert "no" in str(failed.value)
    assert CHANGES["fail"].answered(await CHANGES["fail"].act(desk, held))
    assert (trap.sprung, stats_of(desk).settled, stats_of(desk).lost_connections) == (True, 0, 0)
    await assert_done_once(database, desk, "fail")


async def test_an_error_for_a_commit_is_an_unknown_outcome_if_the_database_is_unreachable(
    database: ProxiedMysql, desk: Desk
) -> None:
    held = await desk.put_and_take()
    await desk.succeed(held.key, token="not that of the claim")  # connects
    trap = database.proxy.fail_answer(COMMIT, ERROR_DURING_COMMIT)
    database.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.succeed(held.key, token=held.holder.token)
    assert trap.sprung
    database.proxy.heal()
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.ALREADY_FINAL
    await assert_done_once(database, desk, "finish")


async def test_connections_that_go_again_and_again_are_given_up(database: ProxiedMysql, desk: Desk) -> None:
    """After as many tries as are set, each of them counted; nothing was done, and the next call is as any other."""
    held = await desk.put_and_take()
    tries = LIMITS["retries"] + 1
    traps = [database.proxy.lose_request(b"INSERT INTO writers") for _ in range(tries)]
    with pytest.raises(ShardConnectionFailed, match="was not carried out") as failed:
        await desk.succeed(held.key, token=held.holder.token)
    assert all(trap.sprung for trap in traps)
    assert failed.value.retryable
    assert stats_of(desk).lost_connections == tries
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await assert_done_once(database, desk, "finish")


async def test_a_transaction_left_open_by_a_silent_network_holds_nothing_up(database: ProxiedMysql) -> None:
    """Lost in its middle: the database would keep its locks for hours. The next call ends it first."""
    desk = await database.desk(statement_timeout_ms=700)
    await desk.put(b"old")
    trap = database.proxy.lose_request(b"INSERT INTO claims", hang=True)  # the waiting row is locked by then
    with pytest.raises(PinLaterError) as failed:
        await desk.claim()
    assert trap.sprung
    assert not isinstance(failed.value, OutcomeUnknown)
    assert failed.value.retryable
    [held] = await desk.claim()
    assert held.job.body == b"old"
    await database.assert_consistent()


async def test_a_cancelled_call_leaves_no_locks(database: ProxiedMysql, desk: Desk) -> None:
    """A caller that gives a call up cancels it: its transaction ends before the next one begins."""
    await desk.put(b"old")
    trap = database.proxy.lose_request(b"INSERT INTO claims", hang=True)
    call = asyncio.ensure_future(desk.claim())
    await trap.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [held.job.body for held in await desk.claim()] == [b"old"]
    await database.assert_consistent()


async def test_a_claim_whose_bodies_can_not_be_read_any_more_is_unknown(database: ProxiedMysql) -> None:
    """Carried out, but the answer is lost a second time: it must not claim others in their place."""
    desk = await database.desk(connect_timeout_ms=700, statement_timeout_ms=700)
    await desk.put(b"old")
    await desk.put(b"other")
    database.proxy.lose_answer(COMMIT)
    second = database.proxy.lose_request(database.claim_read_again)
    claim = asyncio.ensure_future(desk.claim())
    await second.wait()
    database.proxy.hold()
    with pytest.raises(OutcomeUnknown):
        await claim
    database.proxy.heal()
    assert (await desk.counts()).in_progress == 1
    await database.assert_consistent()

    # No worker has it: the next sweep gives it back unspent and wakes a waiter.
    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 10))) == []
    assert QUEUE in await desk.shared.submit(ListChangedQueues())
    again = await desk.take()
    assert (again.job.body, again.job.attempts_remaining) == (b"old", again.job.attempts_allowed)
    await database.assert_consistent()


async def test_a_server_whose_machine_is_off_holds_its_locks_for_less_than_its_lease(database: ProxiedMysql) -> None:
    """The database does not learn that the server's machine is off: it would wait for hours for the next statement."""
    cut_off = await database.desk(lease_ms=2_000, statement_timeout_ms=30_000)
    other = await database.desk(direct=True)
    await other.put(b"old")
    trap = database.proxy.lose_request(b"INSERT INTO claims", hang=True)
    call = asyncio.ensure_future(cut_off.claim())
    await trap.wait()
    database.proxy.refuse()
    assert await other.claim() == []

    async def claimed() -> bool:
        return bool(await other.claim())

    await until(claimed)
    call.cancel()
    await gathered([call])
    await database.assert_consistent()
