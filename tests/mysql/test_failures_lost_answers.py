"""The connection goes between a COMMIT and its answer, or just before the COMMIT: what is done is never doubled, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed, StoreFull
from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.values import Checkpoint, JobKey
from tests.contract.desk import QUEUE, Desk, Held
from tests.mysql.rig import LIMITS, Rig, gathered, stats_of, until

COMMIT = b";COMMIT"  # not that of READ COMMITTED
NO_COMMIT = b";DO   0"
ERROR_DURING_COMMIT, LOG_NOT_WRITTEN, UNKNOWN_ERROR, NO_LOCK, HOOK_FAILED, DEADLOCK = 1180, 1026, 1105, 1205, 3100, 1213


class Word(NamedTuple):
    """Something to be carried out on a job in hand (but for insert and claim), and what then must be so."""

    act: Callable[[Desk, Any], Awaitable[Any]]
    answered: Callable[[Any], bool]
    state: JobState
    holds: bool = True  # whether a job is in hand before
    waits: bool = False  # whether a job waits before


async def _insert(desk: Desk, _: None) -> object:
    return await desk.put(b"new")


async def _claim(desk: Desk, _: None) -> list[Held]:
    return await desk.claim(10)


async def _checkpoint(desk: Desk, held: Held) -> object:
    return await desk.checkpoint(Checkpoint(held.key, "worker", held.holder.token, b"new", prepend_status="half;"))


WORDS = {
    "insert": Word(_insert, lambda key: key is not None, JobState.PENDING, holds=False),
    "claim": Word(
        _claim, lambda jobs: [held.job.body for held in jobs] == [b"old"], JobState.IN_PROGRESS, holds=False, waits=True
    ),
    "finish": Word(
        lambda desk, held: desk.succeed(held.key, token=held.holder.token),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.SUCCEEDED),
        JobState.SUCCEEDED,
    ),
    "fail": Word(
        lambda desk, held: desk.fail(held.key, token=held.holder.token, error=("E", "text")),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.PENDING),
        JobState.PENDING,
    ),
    "checkpoint": Word(_checkpoint, lambda acked: acked.outcome is Outcome.APPLIED, JobState.IN_PROGRESS),
    "extend": Word(
        lambda desk, held: desk.heartbeat(held.ref),
        lambda acked: acked.outcome is Outcome.APPLIED and acked.deadline_ms is not None,
        JobState.IN_PROGRESS,
    ),
    "release": Word(
        lambda desk, held: desk.release(held.ref),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.PENDING),
        JobState.PENDING,
    ),
}


@pytest.fixture(params=list(WORDS))
def word(request: pytest.FixtureRequest) -> Word:
    return WORDS[request.param]


async def prepare(desk: Desk, word: Word) -> Held | None:
    """What must be there before."""
    if word.waits:
        await desk.put(b"old")
    return await desk.put_and_take(b"old") if word.holds else None


async def connect_all(desk: Desk) -> None:
    """Changes nothing, and leaves every writer with a connection."""
    await desk.insert()
    assert await desk.claim(0) == []
    assert (await desk.succeed(JobKey(QUEUE, 1, 1))).outcome is Outcome.NOT_FOUND


async def assert_done_once(rig: Rig, desk: Desk, word: Word) -> None:
    """One job in the right state, one step on."""
    await rig.assert_consistent()
    [[queue_id]] = await rig.ask("SELECT queue_id FROM queues")
    [totals] = await rig.ask(
        "SELECT SUM(enqueued_total), SUM(claimed_total), SUM(succeeded_total), SUM(retried_total) FROM counters "
        f"WHERE queue_id = {queue_id}"
    )
    counts = await desk.counts()
    assert (
        counts.pending,
        counts.in_progress,
        counts.succeeded,
    ) == tuple(int(word.state is state) for state in (JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED))
    assert [int(total) for total in totals] == [
        1,
        int(word is not WORDS["insert"]),
        int(word is WORDS["finish"]),
        int(word is WORDS["fail"]),
    ]
    for (status,) in await rig.ask("SELECT custom_status FROM progress"):
        assert status in ("", "half;")


async def test_a_lost_answer_to_a_commit_is_found_out(rig: Rig, desk: Desk, word: Word) -> None:
    """The database has done it: the caller is told what it would have been told, and nothing is done again."""
    held = await prepare(desk, word)
    trap = rig.proxy.lose_answer(COMMIT)
    assert word.answered(await word.act(desk, held))
    assert trap.sprung
    assert (stats_of(desk).settled, stats_of(desk).lost_connections) == (1, 0)
    await assert_done_once(rig, desk, word)


async def test_a_look_whose_answer_is_lost_is_done_again_and_counted(rig: Rig, desk: Desk) -> None:
    """It changes nothing, so there is nothing to find out."""
    key = await desk.put(b"looked for")
    await desk.look(key)  # a connection for looks is there now
    trap = rig.proxy.lose_answer(b"FROM jobs")
    assert (await desk.look(key)).body == b"looked for"
    assert (trap.sprung, stats_of(desk).lost_connections) == (True, 1)


async def test_what_never_reached_the_database_is_done_by_the_next_try(rig: Rig, desk: Desk, word: Word) -> None:
    held = await prepare(desk, word)
    trap = rig.proxy.lose_request(COMMIT)
    assert word.answered(await word.act(desk, held))
    assert trap.sprung
    assert (stats_of(desk).settled, stats_of(desk).lost_connections) == (0, 1)
    await assert_done_once(rig, desk, word)


async def test_an_error_that_answers_a_commit_which_was_carried_out_is_none(rig: Rig, desk: Desk, word: Word) -> None:
    """The database has done it, and something of its own went wrong after: what is done must not be told as failed."""
    held = await prepare(desk, word)
    trap = rig.proxy.fail_answer(COMMIT, ERROR_DURING_COMMIT, "Got error 28 during COMMIT")
    assert word.answered(await word.act(desk, held))
    assert trap.sprung
    assert (stats_of(desk).settled, stats_of(desk).lost_connections) == (1, 0)
    await assert_done_once(rig, desk, word)


@pytest.mark.parametrize("code", [LOG_NOT_WRITTEN, UNKNOWN_ERROR, NO_LOCK, HOOK_FAILED])
async def test_whatever_error_leaves_a_commit_open_the_database_is_asked(rig: Rig, desk: Desk, code: int) -> None:
    trap = rig.proxy.fail_answer(COMMIT, code)
    assert await desk.put(b"new")
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(rig, desk, WORDS["insert"])


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
    rig: Rig, desk: Desk, code: int, told: type[PinLaterError] | None
) -> None:
    """The transaction is even still open in the database: it is ended, and then what helps may be done again."""
    held = await desk.put_and_take()
    trap = rig.proxy.fail_answer(COMMIT, code, "no", instead=NO_COMMIT)
    if told is not None:
        with pytest.raises(told) as failed:
            await WORDS["fail"].act(desk, held)
        assert not isinstance(failed.value, OutcomeUnknown)
        assert "no" in str(failed.value)
    assert WORDS["fail"].answered(await WORDS["fail"].act(desk, held))
    assert (trap.sprung, stats_of(desk).settled, stats_of(desk).lost_connections) == (True, 0, 0)
    await assert_done_once(rig, desk, WORDS["fail"])


async def test_an_error_that_answers_a_commit_is_unknown_where_nobody_can_be_asked(rig: Rig, desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.succeed(held.key, token="not that of the claim")  # connects
    trap = rig.proxy.fail_answer(COMMIT, ERROR_DURING_COMMIT)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.succeed(held.key, token=held.holder.token)
    assert trap.sprung
    rig.proxy.heal()
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.ALREADY_FINAL
    await assert_done_once(rig, desk, WORDS["finish"])


async def test_connections_that_go_again_and_again_are_given_up(rig: Rig, desk: Desk) -> None:
    """After as many tries as are set, each of them counted; nothing was done, and the next call is as any other."""
    held = await desk.put_and_take()
    tries = LIMITS["retries"] + 1
    traps = [rig.proxy.lose_request(b"INSERT INTO writers") for _ in range(tries)]
    with pytest.raises(ShardConnectionFailed, match="was not carried out") as failed:
        await desk.succeed(held.key, token=held.holder.token)
    assert all(trap.sprung for trap in traps)
    assert failed.value.retryable
    assert stats_of(desk).lost_connections == tries
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await assert_done_once(rig, desk, WORDS["finish"])


async def test_a_network_that_goes_silent_before_an_answer(rig: Rig) -> None:
    """The database still has the old connection: it is ended before anything is believed."""
    desk = await rig.desk(statement_timeout_ms=700)
    held = await desk.put_and_take()
    trap = rig.proxy.lose_answer(COMMIT, hang=True)
    assert WORDS["fail"].answered(await WORDS["fail"].act(desk, held))
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(rig, desk, WORDS["fail"])


async def test_a_network_that_goes_silent_before_a_request(rig: Rig) -> None:
    """The time is up, and it is sure that nothing was done, though the transaction was still open in the database."""
    desk = await rig.desk(statement_timeout_ms=700)
    held = await desk.put_and_take()
    trap = rig.proxy.lose_request(COMMIT, hang=True)
    with pytest.raises(ShardConnectionFailed, match="not carried out") as failed:
        await WORDS["fail"].act(desk, held)
    assert trap.sprung
    assert failed.value.retryable
    assert not isinstance(failed.value, OutcomeUnknown)
    assert WORDS["fail"].answered(await WORDS["fail"].act(desk, held))
    await assert_done_once(rig, desk, WORDS["fail"])


async def test_a_transaction_left_open_by_a_silent_network_holds_nothing_up(rig: Rig) -> None:
    """Lost in its middle: the database would keep its locks for hours. The next call ends it first."""
    desk = await rig.desk(statement_timeout_ms=700)
    await desk.put(b"old")
    trap = rig.proxy.lose_request(b"INSERT INTO claims", hang=True)  # the waiting row is locked by then
    with pytest.raises(PinLaterError) as failed:
        await desk.claim()
    assert trap.sprung
    assert not isinstance(failed.value, OutcomeUnknown)
    assert failed.value.retryable
    [held] = await desk.claim()
    assert held.job.body == b"old"
    await rig.assert_consistent()


async def test_a_cancelled_call_leaves_no_locks(rig: Rig, desk: Desk) -> None:
    """Whoever gives a call up, cancels it: its transaction ends before the next one begins."""
    await desk.put(b"old")
    trap = rig.proxy.lose_request(b"INSERT INTO claims", hang=True)
    call = asyncio.ensure_future(desk.claim())
    await trap.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [held.job.body for held in await desk.claim()] == [b"old"]
    await rig.assert_consistent()


@pytest.mark.parametrize("carried_out", [True, False])
async def test_an_outcome_that_nobody_can_be_asked_for_is_unknown(rig: Rig, desk: Desk, carried_out: bool) -> None:
    """The server stays away. After it is back the job is there or not, whole in both cases, and work goes on."""
    held = await desk.put_and_take()
    await desk.succeed(held.key, token="not that of the claim")  # connects
    lose = rig.proxy.lose_answer if carried_out else rig.proxy.lose_request
    trap = lose(COMMIT)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.succeed(held.key, token=held.holder.token)
    assert trap.sprung
    rig.proxy.heal()
    again = await desk.succeed(held.key, token=held.holder.token)
    assert again.outcome is (Outcome.ALREADY_FINAL if carried_out else Outcome.APPLIED)
    await assert_done_once(rig, desk, WORDS["finish"])


async def test_a_database_that_refuses_connections_is_asked_again_until_it_is_back(
    rig: Rig, desk: Desk, word: Word, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart takes longer than the few tries of a transaction: the time decides, not their number."""
    held = await prepare(desk, word)
    await connect_all(desk)
    trap = rig.proxy.lose_answer(COMMIT)
    rig.proxy.refuse()
    call = asyncio.ensure_future(word.act(desk, held))

    async def refused_often() -> bool:
        return call.done() or caplog.text.count("can't be asked for yet") > LIMITS["retries"] + 1

    await until(refused_often)
    rig.proxy.accept()
    assert word.answered(await call)
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(rig, desk, word)


async def test_an_insert_with_an_unknown_outcome_is_not_doubled_when_it_comes_again(rig: Rig, desk: Desk) -> None:
    """It comes with the same ids."""
    await desk.insert()  # connects
    job = desk.job(b"new")
    rig.proxy.lose_answer(COMMIT)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.insert(job)
    rig.proxy.heal()
    assert (await desk.insert(job)).ids == [job.id]
    await assert_done_once(rig, desk, WORDS["insert"])


async def test_a_claim_whose_bodies_can_not_be_read_any_more_is_unknown(rig: Rig) -> None:
    """Carried out, but the answer is lost a second time: it must not claim others in their place."""
    desk = await rig.desk(connect_timeout_ms=700, statement_timeout_ms=700)
    await desk.put(b"old")
    await desk.put(b"other")
    rig.proxy.lose_answer(COMMIT)
    second = rig.proxy.lose_request(b"SELECT id, attempts_allowed, created_at_ms, body")
    claim = asyncio.ensure_future(desk.claim())
    await second.wait()
    rig.proxy.hold()
    with pytest.raises(OutcomeUnknown):
        await claim
    rig.proxy.heal()
    assert (await desk.counts()).in_progress == 1
    await rig.assert_consistent()

    # Nobody works on it: the next sweep gives it back unspent, and whoever waits is told.
    assert list(await desk.shard.time_out_claims(desk.now, 10)) == []
    assert QUEUE in await desk.shared.changed_queues()
    again = await desk.take()
    assert (again.job.body, again.job.attempts_remaining) == (b"old", again.job.attempts_allowed)
    await rig.assert_consistent()


async def test_a_job_deleted_between_a_claim_and_its_second_answer_is_left_out(rig: Rig, desk: Desk) -> None:
    """The claim was carried out and its answer lost; before the bodies were asked for again another server deleted one."""
    gone, other = await desk.put(b"gone"), await desk.put(b"other")
    operator = await rig.desk(direct=True)
    rig.proxy.lose_answer(COMMIT)
    again = rig.proxy.lose_request(b"SELECT id, attempts_allowed, created_at_ms, body")
    claim = asyncio.ensure_future(desk.claim(10))
    await again.wait()
    rig.proxy.hold()
    assert await operator.shard.delete_jobs([gone]) == 1
    rig.proxy.heal()
    assert [held.key for held in await claim] == [other]
    await rig.assert_consistent(deleted=True)


async def test_connections_that_broke_while_nobody_used_them_are_replaced_unnoticed(rig: Rig, desk: Desk) -> None:
    """As after a restart of the database: nothing was under way, so there is nothing to find out."""
    held = await desk.put_and_take()
    rig.proxy.cut()

    async def gone() -> bool:
        return not rig.proxy.open

    await until(gone)
    assert (await desk.look(held.key)).body == b"hello"
    await desk.put(b"other")
    assert [one.job.body for one in await desk.claim(10)] == [b"other"]
    assert (await desk.succeed(held.key)).outcome is Outcome.APPLIED
    assert (stats_of(desk).lost_connections, stats_of(desk).settled) == (0, 0)


async def test_a_server_that_vanished_holds_its_locks_for_less_than_its_lease(rig: Rig) -> None:
    """Nobody told the database that its machine is off: it would wait for hours for the next word."""
    vanished = await rig.desk(lease_ms=2_000, statement_timeout_ms=30_000)
    other = await rig.desk(direct=True)
    await other.put(b"old")
    trap = rig.proxy.lose_request(b"INSERT INTO claims", hang=True)
    call = asyncio.ensure_future(vanished.claim())
    await trap.wait()
    rig.proxy.refuse()
    assert await other.claim() == []

    async def claimed() -> bool:
        return bool(await other.claim())

    await until(claimed)
    call.cancel()
    await gathered([call])
    await rig.assert_consistent()
