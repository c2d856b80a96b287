"""Which jobs the other servers of the same shards are told of."""

from __future__ import annotations

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.dispatch.wakeups import Wakeups
from pinlater.server.storage.values import InsertRequest, NewJob

NOW_MS = 1_000_000
DUE, LATER = NewJob(1, b"due", 1, NOW_MS, 1), NewJob(2, b"later", 1, NOW_MS + 60_000, 1)


@pytest.mark.parametrize("waited", [False, True], ids=["no dequeue ever waited here", "one has"])
def test_other_servers_are_told_of_due_jobs_only(waited: bool) -> None:
    told: list[tuple[str, int]] = []
    wakeups = Wakeups(ManualClock(NOW_MS))
    wakeups.join_others(lambda queue, jobs, past_owner: told.append((queue, jobs)), lambda _: None)
    if waited:
        wakeups.waiters_of("q")
    for jobs in ([DUE, DUE], [DUE, LATER], [LATER]):
        assert not wakeups.inserting("1", InsertRequest("q", jobs), NOW_MS, lambda _: True)
    assert told == [("q", 2), ("q", 1)]


def test_after_jobs_past_the_owner_the_next_claim_searches() -> None:
    told: list[bool] = []
    wakeups = Wakeups(ManualClock(NOW_MS))
    wakeups.join_others(lambda _queue, _jobs, past_owner: told.append(past_owner), lambda _: None)
    for owns in (lambda _: True, lambda _: False):
        wakeups.inserting("1", InsertRequest("q", [DUE]), NOW_MS, owns)
    assert told == [False, True]
    waiters = wakeups.waiters_of("q")
    wakeups.wake_from_peer("q", 1, past_owner=False)
    assert not waiters.search
    wakeups.wake_from_peer("q", 1, past_owner=True)
    wakeups.wake_from_peer("q", 1, past_owner=False)
    assert waiters.search
    waiters.search = False
    wakeups.jobs_ready("q", 1)  # as after an ack, which goes to the owner
    assert not waiters.search
    wakeups.jobs_ready("q", 1, past_owner=True)  # as after a sweep or an operator's command, which don't
    assert waiters.search
    assert told == [False, True, False, True]


def test_other_servers_are_told_before_a_dequeue_waits() -> None:
    begun: list[str] = []
    wakeups = Wakeups(ManualClock(NOW_MS))
    wakeups.waiters_of("before there were others")
    wakeups.join_others(lambda _queue, _jobs, _past_owner: None, begun.append)
    for _ in range(2):
        wakeups.waiters_of("q")
    assert begun == ["q", "q"]
