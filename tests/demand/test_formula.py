"""The rule for the slots that a queue wants. No door can show its bounds for every load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.features.demand.formula import QueueWork, slots_wanted

TARGET_S = 60.0
LOADS = st.builds(
    QueueWork,
    st.integers(0, 10**6),
    st.integers(0, 10**7),
    st.floats(0, 10**6),
    st.floats(0, 10**6),
    st.none() | st.floats(0, 10**6),
    st.none() | st.floats(0, 10**9),
    st.booleans(),
)


@pytest.mark.parametrize(
    ("load", "slots"),
    [
        pytest.param(QueueWork(7, 0, enqueued=50, run_s=10), 7, id="nothing waits"),
        pytest.param(QueueWork(0, 0, enqueued=50, run_s=10), 0, id="nothing at all"),
        pytest.param(QueueWork(0, 10_000, run_s=0.01), 2, id="short jobs"),
        pytest.param(QueueWork(0, 10_000, run_s=0.0), 1, id="jobs that take no time"),
        pytest.param(QueueWork(3, 5, run_s=3_600), 8, id="long jobs"),
        pytest.param(QueueWork(10, 300, claimed=5, enqueued=10, run_s=2), 30, id="the rate and what waits"),
        pytest.param(QueueWork(4, 2, claimed=2, enqueued=10, run_s=2), 6, id="no more slots than jobs"),
        pytest.param(QueueWork(40, 100, run_s=0.01), 41, id="a slot beside those that are taken"),
        pytest.param(QueueWork(160, 10_000, claimed=3_200, run_s=0.05), 9, id="jobs that are claimed ahead"),
        pytest.param(QueueWork(160, 0, claimed=3_200, enqueued=100, run_s=0.05), 5, id="and no others"),
        pytest.param(QueueWork(1, 0, claimed=10, run_s=0.05), 1, id="one short job in hand"),
        pytest.param(QueueWork(50, 3, claimed=2, enqueued=2, run_s=0.05), 49, id="long jobs among short ones"),
        pytest.param(QueueWork(2, 500, claimed=1), 502, id="run time not known"),
        pytest.param(QueueWork(40, 500, claimed=4), 540, id="nor told by claims: they may all be the first ones"),
        pytest.param(QueueWork(160, 60_000, claimed=3_200), 50, id="told by many claims a second"),
        pytest.param(QueueWork(0, 500, claimed=100), 1, id="all done at once"),
    ],
)
def test_the_slots_keep_up_with_what_comes_and_drain_what_waits(load: QueueWork, slots: int) -> None:
    assert slots_wanted(load, TARGET_S) == slots


@pytest.mark.parametrize(
    ("load", "slots"),
    [
        pytest.param(QueueWork(3, 100, enqueued=10, run_s=1, paused=True), 3, id="paused"),
        pytest.param(QueueWork(3, 100, paused=True), 3, id="paused, run time not known"),
        pytest.param(QueueWork(3, 100, enqueued=10, run_s=1, limit=0), 3, id="limit 0"),
        pytest.param(QueueWork(0, 10_000, enqueued=100, run_s=10, limit=2), 20, id="limited"),
        pytest.param(QueueWork(20, 10_000, claimed=2, enqueued=100, run_s=10, limit=2), 20, id="all in hand"),
        pytest.param(QueueWork(25, 10_000, enqueued=100, run_s=10, limit=2), 25, id="more in hand, of a higher limit"),
        pytest.param(QueueWork(0, 10_000, run_s=0.001, limit=2), 1, id="less than one"),
        pytest.param(QueueWork(0, 10_000, limit=2), 120, id="limited, run time not known"),
        pytest.param(QueueWork(0, 3, run_s=100, limit=2), 3, id="limited, few jobs"),
    ],
)
def test_a_pause_leaves_the_jobs_in_hand_and_a_limit_bounds_the_slots(load: QueueWork, slots: int) -> None:
    assert slots_wanted(load, TARGET_S) == slots


def test_a_shorter_drain_target_wants_more_slots() -> None:
    load = QueueWork(0, 600, run_s=1)
    assert [slots_wanted(load, target_s) for target_s in (10, 60, 600)] == [60, 10, 1]


@given(LOADS, st.floats(1, 86_400))
def test_the_slots_are_between_the_jobs_that_are_held_and_all_jobs_and_no_fewer_for_more_jobs(
    load: QueueWork, target_s: float
) -> None:
    slots = slots_wanted(load, target_s)
    assert max(0, load.in_hand - load.claimed) <= slots <= load.in_hand + load.runnable
    stopped = load.paused or load.limit == 0
    if load.in_hand or (load.runnable and not stopped):
        assert slots > 0
    if load.runnable and load.limit is None and not stopped:
        assert slots > load.in_hand - load.claimed
    assert slots_wanted(load._replace(runnable=load.runnable + 1), target_s) >= slots
    assert slots_wanted(load._replace(in_hand=load.in_hand + 1), target_s) >= slots
