"""The connection goes before a script's answer comes, or before the script is called: what is done is never doubled, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from pinlater.domain.errors import OutcomeUnknown, QueueNotFound, ShardConnectionFailed
from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.redis.scripts import script
from pinlater.server.storage.values import Checkpoint, InsertRequest, JobKey
from tests.contract.desk import QUEUE, Desk, Held
from tests.redis.rig import LIMITS, Rig, stats_of, until


class Word(NamedTuple):
    """Something to be carried out on a job in hand (but for insert and claim), and what then must be so."""

    script: str
    act: Callable[[Desk, Any], Awaitable[Any]]
    answered: Callable[[Any], bool]
    state: JobState
    holds: bool = True  # whether a job is in hand before
    waits: bool = False  # whether a job waits before

    @property
    def sha(self) -> bytes:
        """What is in the packet that changes something."""
        return script(self.script).sha


async def _insert(desk: Desk, _: None) -> object:
    return await desk.put(b"new")


async def _claim(desk: Desk, _: None) -> list[Held]:
    return await desk.claim(10)


async def _checkpoint(desk: Desk, held: Held) -> object:
    return await desk.checkpoint(Checkpoint(held.key, "worker", held.holder.token, b"new", prepend_status="half;"))


WORDS = {
    "insert": Word("insert_jobs", _insert, lambda key: key is not None, JobState.PENDING, holds=False),
    "claim": Word(
        "claim_jobs",
        _claim,
        lambda jobs: [held.job.body for held in jobs] == [b"old"],
        JobState.IN_PROGRESS,
        holds=False,
        waits=True,
    ),
    "finish": Word(
        "finish_jobs",
        lambda desk, held: desk.succeed(held.key, token=held.holder.token),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.SUCCEEDED),
        JobState.SUCCEEDED,
    ),
    "fail": Word(
        "change_jobs",
        lambda desk, held: desk.fail(held.key, token=held.holder.token, error=("E", "text")),
        lambda acked: (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.PENDING),
        JobState.PENDING,
    ),
    "checkpoint": Word(
        "change_jobs", _checkpoint, lambda acked: acked.outcome is Outcome.APPLIED, JobState.IN_PROGRESS
    ),
    "extend": Word(
        "change_jobs",
        lambda desk, held: desk.heartbeat(held.ref),
        lambda acked: acked.outcome is Outcome.APPLIED and acked.deadline_ms is not None,
        JobState.IN_PROGRESS,
    ),
    "release": Word(
        "change_jobs",
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
    rig.assert_consistent()
    counts = await desk.counts()
    assert (
        counts.pending,
        counts.in_progress,
        counts.succeeded,
    ) == tuple(int(word.state is state) for state in (JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED))
    assert (counts.enqueued_total, counts.claimed_total, counts.succeeded_total, counts.retried_total) == (
        1,
        int(word is not WORDS["insert"]),
        int(word is WORDS["finish"]),
        int(word is WORDS["fail"]),
    )


async def test_a_lost_answer_is_found_out(rig: Rig, desk: Desk, word: Word) -> None:
    """Redis has done it: the caller is told what it would have been told, and nothing is done again."""
    held = await prepare(desk, word)
    trap = rig.proxy.lose_answer(word.sha)
    assert word.answered(await word.act(desk, held))
    assert trap.sprung
    assert (stats_of(desk).settled, stats_of(desk).lost_connections) == (1, 1)
    await assert_done_once(rig, desk, word)


async def test_what_never_reached_redis_is_done_by_the_next_try(rig: Rig, desk: Desk, word: Word) -> None:
    held = await prepare(desk, word)
    trap = rig.proxy.lose_request(word.sha)
    assert word.answered(await word.act(desk, held))
    assert trap.sprung
    assert stats_of(desk).lost_connections == 1
    await assert_done_once(rig, desk, word)


async def test_an_answer_that_is_lost_again_and_again_is_found_out(rig: Rig, desk: Desk, word: Word) -> None:
    held = await prepare(desk, word)
    traps = [rig.proxy.lose_answer(word.sha) for _ in range(3)]
    assert word.answered(await word.act(desk, held))
    assert all(trap.sprung for trap in traps)
    await assert_done_once(rig, desk, word)


async def test_a_network_that_goes_silent_before_an_answer(rig: Rig, word: Word) -> None:
    """The time is up, but Redis can be asked."""
    desk = await rig.desk(command_timeout_ms=500)
    held = await prepare(desk, word)
    trap = rig.proxy.lose_answer(word.sha, hang=True)
    assert word.answered(await word.act(desk, held))
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(rig, desk, word)


async def test_a_network_that_goes_silent_before_a_request(rig: Rig, word: Word) -> None:
    """The time is up, and it is sure that nothing was done, and that it won't be, wherever the request may linger."""
    desk = await rig.desk(command_timeout_ms=500)
    held = await prepare(desk, word)
    trap = rig.proxy.lose_request(word.sha, hang=True)
    with pytest.raises(ShardConnectionFailed, match="not carried out") as failed:
        await word.act(desk, held)
    assert trap.sprung
    assert failed.value.retryable
    assert not isinstance(failed.value, OutcomeUnknown)
    assert word.answered(await word.act(desk, held))
    await assert_done_once(rig, desk, word)


async def test_a_request_that_arrives_after_its_caller_was_told_that_it_failed_does_nothing(rig: Rig) -> None:
    """Held up by the network, and delivered when it heals."""
    desk = await rig.desk(command_timeout_ms=500)
    other = await rig.desk(direct=True)
    await desk.insert()  # connects
    rig.proxy.hold()
    call = asyncio.ensure_future(desk.put(b"late"))
    with pytest.raises(OutcomeUnknown):
        await call
    rig.proxy.heal()
    await desk.put(b"next")
    bodies = [held.job.body for held in await other.claim(10)]
    assert bodies in ([b"next"], [b"late", b"next"])  # whole or not at all, and at most once
    await desk.put(b"last")
    assert [held.job.body for held in await other.claim(10)] == [b"last"]
    rig.assert_consistent()


async def test_a_cancelled_claim_is_given_back(rig: Rig, desk: Desk) -> None:
    """Whoever gives a call up, cancels it; Redis may have carried it out."""
    await desk.put(b"old")
    trap = rig.proxy.lose_answer(script("claim_jobs").sha, hang=True)
    call = asyncio.ensure_future(desk.claim())
    await trap.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert list(await desk.shard.time_out_claims(desk.now, 10)) == []
    again = await desk.take()
    assert (again.job.body, again.job.attempts_remaining) == (b"old", again.job.attempts_allowed)
    rig.assert_consistent()


@pytest.mark.parametrize("carried_out", [True, False])
async def test_an_outcome_that_nobody_can_be_asked_for_is_unknown(rig: Rig, desk: Desk, carried_out: bool) -> None:
    """Redis stays away. After it is back the job is there or not, whole in both cases, and work goes on."""
    held = await desk.put_and_take()
    await desk.succeed(held.key, token="not that of the claim")  # connects
    lose = rig.proxy.lose_answer if carried_out else rig.proxy.lose_request
    trap = lose(script("finish_jobs").sha)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.succeed(held.key, token=held.holder.token)
    assert trap.sprung
    rig.proxy.heal()
    again = await desk.succeed(held.key, token=held.holder.token)
    assert again.outcome is (Outcome.ALREADY_FINAL if carried_out else Outcome.APPLIED)
    await assert_done_once(rig, desk, WORDS["finish"])


async def test_a_redis_that_refuses_connections_is_asked_again_until_it_is_back(
    rig: Rig, desk: Desk, word: Word, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart takes longer than the few tries of a change: the time decides, not their number."""
    held = await prepare(desk, word)
    await connect_all(desk)
    trap = rig.proxy.lose_answer(word.sha)
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
    rig.proxy.lose_answer(script("insert_jobs").sha)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.insert(job)
    rig.proxy.heal()
    assert (await desk.insert(job)).ids == [job.id]
    await assert_done_once(rig, desk, WORDS["insert"])


async def test_an_insert_that_sends_nothing_still_settles_the_one_before(rig: Rig, desk: Desk) -> None:
    """Its good end tells the lane that nothing before it can be carried out any more."""
    await desk.insert()  # connects
    rig.proxy.lose_answer(script("insert_jobs").sha)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.insert(desk.job(b"new"))
    rig.proxy.heal()
    before = stats_of(desk).settled
    [missing] = await desk.shard.insert_jobs([InsertRequest("missing", [desk.job()])], desk.now)
    assert isinstance(missing, QueueNotFound)
    assert stats_of(desk).settled == before + 1


async def test_a_claim_with_an_unknown_outcome_is_given_back(rig: Rig, desk: Desk) -> None:
    """Nobody works on it: the next sweep gives it back unspent, and whoever waits is told."""
    await desk.put(b"old")
    assert await desk.claim(0) == []  # connects
    rig.proxy.lose_answer(script("claim_jobs").sha)
    rig.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.claim()
    rig.proxy.heal()
    assert (await desk.counts()).in_progress == 1

    assert list(await desk.shard.time_out_claims(desk.now, 10)) == []
    assert QUEUE in await desk.shared.changed_queues()
    again = await desk.take()
    assert (again.job.body, again.job.attempts_remaining) == (b"old", again.job.attempts_allowed)
    rig.assert_consistent()


async def test_a_job_deleted_between_a_claim_and_its_second_answer_is_left_out(rig: Rig, desk: Desk) -> None:
    """The claim was carried out and its answer lost; before it was asked for again another server deleted one."""
    gone, other = await desk.put(b"gone"), await desk.put(b"other")
    operator = await rig.desk(direct=True)
    rig.proxy.lose_answer(script("claim_jobs").sha)
    again = rig.proxy.lose_request(script("claim_jobs").sha)
    claim = asyncio.ensure_future(desk.claim(10))
    await again.wait()
    rig.proxy.hold()
    assert await operator.shard.delete_jobs([gone]) == 1
    rig.proxy.heal()
    assert [held.key for held in await claim] == [other]
    rig.assert_consistent()


async def test_connections_that_broke_while_nobody_used_them_are_replaced_unnoticed(rig: Rig, desk: Desk) -> None:
    """As after a restart of Redis: nothing was under way, so there is nothing to find out."""
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
