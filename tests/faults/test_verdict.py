"""What a verdict finds, without a database."""

from __future__ import annotations

import pytest

from pinlater.simulation.history import SUCCEEDED, History, SeenAck
from tests.faults.latency import Figures, Latencies
from tests.faults.verdict import Compared, unearned


def ack(*, succeeded: bool = True, outcome: int | None = 0) -> SeenAck:
    return SeenAck(1, 2, "q:s1:1", "t", succeeded, outcome)


@pytest.mark.parametrize("earned", [ack(), ack(outcome=None)])
def test_a_success_needs_an_ack_that_may_have_counted(earned: SeenAck) -> None:
    final = {"q:s1:1": SUCCEEDED}
    assert unearned(History(acks=[earned]), final) == []
    assert unearned(History(acks=[ack(succeeded=False), ack(outcome=2)]), final) == [
        "q:s1:1 has succeeded without an ack"
    ]


def test_the_worse_of_median_and_tail_is_compared() -> None:
    assert Compared("ack", Figures(9, 2.0, 10.0), Figures(9, 4.0, 40.0)).slower == 4
    assert Compared("ack", Figures(9, 2.0, 10.0), Figures(9, 7.0, 10.0)).slower == 3.5
    assert Compared("ack", Figures(0, 0.0, 0.0), Figures(9, 7.0, 10.0)).slower == 1


@pytest.mark.parametrize("kind", ["pickup", "pickup on the harmed shard"])
def test_of_a_pickup_the_wait_for_a_harmed_shard_is_no_slowness(kind: str) -> None:
    assert Compared(kind, Figures(9, 2.0, 10.0), Figures(9, 25.0, 900.0)).slower == 0
    assert Compared(kind, Figures(9, 2.0, 10.0), Figures(9, 33.0, 900.0)).slower == 4


def test_latencies_are_told_by_kind_shard_and_time() -> None:
    latencies = Latencies()
    for ms in range(100):
        latencies.add("ack", "1", ms / 1000)
    latencies.add("ack", "2", 7.0)
    latencies.add("enqueue", "1", 7.0)
    with latencies.aside():
        latencies.add("ack", "1", 7.0)
    assert latencies.figures("ack", {"1"}, 0, 10**12) == pytest.approx((100, 50, 99))
    assert latencies.figures("ack", {"1", "2"}, 0, 1) == (0, 0, 0)
