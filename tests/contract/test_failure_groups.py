"""Failed attempts in groups: counted with the failure itself, a bounded number of groups, forgotten by age."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pinlater.domain.failures import CLAIM_TIMED_OUT, GROUPS_MAX, HOUR_MS, OTHERS, FailureKind
from pinlater.domain.job import TASK_HEADER, JobState
from pinlater.server.storage.commands import (
    DeleteQueues,
    ExpireJobs,
    FinishJobs,
    ListFailures,
    PruneFailures,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import JobAck, StoredFailures
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk

SEND = {TASK_HEADER: "send"}


async def groups(desk: Desk, *queues: str, from_hour: int = 0) -> list[StoredFailures]:
    """Those of the queues, the most failures first."""
    found = await desk.shard.submit(ListFailures(queues or (QUEUE,), from_hour))
    return sorted(found, key=lambda group: (-group.failures, group.queue, group.task, group.pattern))


async def failed(desk: Desk, error_type: str, text: str, **about: object) -> JobAck:
    """The ack of the only attempt of a job, which failed so."""
    held = await desk.put_and_take(**about)  # type: ignore[arg-type]
    ack = JobAck(held.key, False, held.holder.token, error_type=error_type, error_text=text, final=True)
    await desk.ack(ack)
    return ack


async def test_a_queue_without_failures_has_no_groups(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.succeed(held.key)
    assert await groups(desk) == []
    assert await groups(desk, "none") == []


async def test_failures_that_look_alike_are_one_group(desk: Desk) -> None:
    first_ms = desk.now
    await failed(desk, "OSError", "no file 17\n  in line 3", headers=SEND)
    desk.clock.advance(ms=5)
    await failed(desk, "OSError", "no file 18", headers=SEND, priority=2)
    last = await failed(desk, "OSError", "no file 9", headers=SEND)
    await failed(desk, "OSError", "no file 17")
    await failed(desk, "ValueError", "no file 17", headers=SEND)
    same, *others = await groups(desk)
    failure = FailureKind("send", "OSError", "no file …")
    assert same == StoredFailures(
        QUEUE, failure.group, *failure, 3, first_ms, desk.now, last.key.priority, last.key.id, {desk.now // HOUR_MS: 3}
    )
    assert [(one.task, one.error_type, one.failures) for one in others] == [
        ("", "OSError", 1),
        ("send", "ValueError", 1),
    ]


async def test_a_repeated_ack_counts_no_second_failure(desk: Desk) -> None:
    ack = await failed(desk, "OSError", "no file")
    await desk.ack(ack)
    await desk.fail(ack.key, token="another", error=("OSError", "no file"))
    assert [group.failures for group in await groups(desk)] == [1]


async def test_each_failed_attempt_of_a_job_counts(desk: Desk) -> None:
    await desk.put(attempts=2)
    for _ in range(2):
        held = await desk.take()
        await desk.fail(held.key, error=("E", "text"))
    [group] = await groups(desk)
    assert group.failures == 2


async def test_failures_of_one_call_are_added_up(desk: Desk) -> None:
    held = [await desk.put_and_take() for _ in range(5)]
    acks = [JobAck(one.key, False, one.holder.token, error_type="E", error_text="x") for one in held]
    await desk.shard.submit(FinishJobs(acks, desk.now))
    [group] = await groups(desk)
    assert (group.failures, group.hours) == (5, {desk.now // HOUR_MS: 5})


async def test_a_failure_without_an_error_is_grouped_by_its_status(desk: Desk) -> None:
    """As clients of the original say what failed."""
    held = await desk.put_and_take()
    await desk.ack(JobAck(held.key, False, append_status="smtp 550 refused"))
    [group] = await groups(desk)
    assert (group.error_type, group.pattern) == ("", "smtp … refused")


async def test_claims_that_time_out_are_a_group(desk: Desk) -> None:
    await desk.put_and_take(headers=SEND)
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    [group] = await groups(desk)
    assert (group.task, group.error_type, group.pattern) == ("send", CLAIM_TIMED_OUT, "")


async def test_what_is_no_failure_is_not_counted(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.release(held.ref)
    await desk.cancel(held.key)
    await desk.put(expires_in_ms=1)
    desk.clock.advance(ms=10)
    await desk.shard.submit(ExpireJobs(desk.now, ALL))
    stale = await desk.put_and_take()
    await desk.ack(JobAck(stale.key, False, "another", error_type="E"))
    assert await groups(desk) == []


async def test_beyond_a_number_of_groups_failures_are_counted_together(desk: Desk) -> None:
    for start in range(0, GROUPS_MAX + 3, 50):
        number = min(50, GROUPS_MAX + 3 - start)
        held = [await desk.put_and_take() for _ in range(number)]
        acks = [
            JobAck(one.key, False, one.holder.token, final=True, error_type=f"Error{start + at}")
            for at, one in enumerate(held)
        ]
        await desk.shard.submit(FinishJobs(acks, desk.now))
    found = await groups(desk)
    assert len(found) == GROUPS_MAX + 1
    assert (found[0].name, found[0].failures, found[0].error_type) == (OTHERS, 3, "")
    await failed(desk, "Error0", "")
    assert {one.failures for one in await groups(desk) if one.error_type == "Error0"} == {2}


async def test_the_bound_holds_within_one_call_and_after_all_groups_were_forgotten(desk: Desk) -> None:
    for start in (0, 1000):
        held = [await desk.put_and_take() for _ in range(GROUPS_MAX + 3)]
        acks = [
            JobAck(one.key, False, one.holder.token, final=True, error_type=f"Error{start + at}")
            for at, one in enumerate(held)
        ]
        await desk.shard.submit(FinishJobs(acks, desk.now))
        found = await groups(desk)
        assert len(found) == GROUPS_MAX + 1
        assert (found[0].name, found[0].failures) == (OTHERS, 3)
        desk.clock.advance(ms=2 * HOUR_MS)
        while await desk.shard.submit(PruneFailures(desk.now, desk.now // HOUR_MS, ALL)):
            pass
        assert await groups(desk) == []


async def test_hours_are_told_from_one_on(desk: Desk) -> None:
    first_hour = desk.now // HOUR_MS
    for _ in range(3):
        await failed(desk, "E", "x")
        desk.clock.advance(ms=HOUR_MS)
    [group] = await groups(desk)
    assert group.hours == {first_hour + hour: 1 for hour in range(3)}
    [group] = await groups(desk, from_hour=first_hour + 2)
    assert (group.failures, group.hours) == (3, {first_hour + 2: 1})


async def test_old_groups_and_old_hours_are_forgotten(desk: Desk) -> None:
    await failed(desk, "Old", "")
    await failed(desk, "Kept", "")
    desk.clock.advance(ms=3 * HOUR_MS)
    await failed(desk, "Kept", "")
    assert await desk.shard.submit(PruneFailures(0, 0, ALL)) == 0
    before = desk.now // HOUR_MS
    assert await desk.shard.submit(PruneFailures(desk.now, before, 0)) == 0
    while await desk.shard.submit(PruneFailures(desk.now, before, 1)):
        pass
    [group] = await groups(desk)
    assert (group.error_type, group.failures, group.hours) == ("Kept", 2, {before: 1})
    await failed(desk, "Old", "")
    assert [one.failures for one in await groups(desk)] == [2, 1]


async def test_groups_go_with_their_queue(desk: Desk) -> None:
    await failed(desk, "E", "")
    await desk.shard.submit(DeleteQueues([QUEUE], desk.now))
    await desk.collect()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    assert await groups(desk) == []


async def test_groups_outlive_a_restart_and_the_bound_holds_after_it(desk: Desk) -> None:
    if not desk.shard.capabilities.durable:
        pytest.skip("this store keeps nothing after its process, and says so")
    await failed(desk, "E", "")
    before: Sequence[StoredFailures] = await groups(desk)
    await desk.reopen()
    assert await groups(desk) == before
    await failed(desk, "E", "")
    assert [one.failures for one in await groups(desk)] == [2]


async def test_the_newest_failed_job_is_the_sample(desk: Desk) -> None:
    ack = await failed(desk, "E", "")
    [group] = await groups(desk)
    assert (group.priority, group.job_id) == (ack.key.priority, ack.key.id)
    assert (await desk.look(ack.key)).state is JobState.FAILED
