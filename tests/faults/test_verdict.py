"""What a verdict finds, without a database."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinlater.simulation.history import SUCCEEDED, History, SeenAck
from tests.faults import verdict
from tests.faults.faults import InjectedFault
from tests.faults.latency import Figures, Latencies
from tests.faults.recovery import HandOver, Recovery, hand_over_of
from tests.faults.stage import Stage
from tests.faults.stores import Sums
from tests.faults.verdict import Compared, expected_sums, suffer, unearned


def ack(*, succeeded: bool = True, outcome: int | None = 0) -> SeenAck:
    return SeenAck(1, 2, "q:s1:1", "t", succeeded, outcome)


@pytest.mark.parametrize("earned", [ack(), ack(outcome=None)])
def test_a_success_needs_an_ack_that_may_have_counted(earned: SeenAck) -> None:
    final = {"q:s1:1": SUCCEEDED}
    assert unearned(History(acks=[earned]), final) == []
    assert unearned(History(acks=[ack(succeeded=False), ack(outcome=2)]), final) == [
        "q:s1:1 has succeeded without an ack"
    ]


def test_a_shard_may_count_as_failed_what_clients_know_to_have_failed_or_cannot_know() -> None:
    for failed in (2, 3):
        counted = Sums(10, 10 - failed, 10 - failed, failed)
        assert expected_sums(counted, stored=10, failed=2, may_have_failed=3) == counted
    for failed in (1, 4):
        counted = Sums(10, 10 - failed, 10 - failed, failed)
        assert expected_sums(counted, stored=10, failed=2, may_have_failed=3) != counted


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


class QuietStage:
    """As much of a stage as `suffer` asks for, where nothing but the recovery goes wrong."""

    def __init__(self) -> None:
        self.load = SimpleNamespace(errors=Counter[str](), enqueued=Counter[str](), ordered=0, latencies=Latencies())
        self.places: dict[str, Any] = {}
        self.lost: set[str] = set()
        self.recoveries: list[Recovery] = []
        self.hand_overs: list[HandOver] = []

    async def lasts(self, seconds: float) -> None:
        """At once."""

    async def stalls(self) -> int:
        return 0


@pytest.mark.parametrize(
    "log",
    [
        '{"message": "gave its slices away", "slices": 7, "took_ms": 12.5}\n{"message": "stopped"}\n',
        "INFO gave its slices away slices=1 took_ms=3\nINFO gave its slices away slices=7 took_ms=12.5\nINFO stopped\n",
    ],
)
def test_how_long_a_server_took_to_give_its_slices_away_is_read_from_its_log(log: str) -> None:
    assert hand_over_of(log) == HandOver(7, 12.5)
    assert hand_over_of("INFO stopped\n") is None


@pytest.mark.parametrize(
    ("recovery", "broken"),
    [
        (Recovery({"a": 2.0, "b": 5.0}, 4.0, 0.0), []),
        (Recovery({"a": 2.0, "b": 6.5}, 4.0, 2.0), []),
        (
            Recovery({"a": 2.0, "b": 6.5}, None, 1.0),
            ["b was served only 6.5 s after a loss, 1.0 s of which may be due to the machine"],
        ),
        (
            Recovery({"a": 2.0}, 6.0, 0.1),
            ["the other servers owned all slices only 6.0 s after a loss, 0.1 s of which may be due to the machine"],
        ),
    ],
)
async def test_service_or_owners_that_are_back_too_late_after_the_loss_of_a_server_are_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, recovery: Recovery, broken: list[str]
) -> None:
    async def nothing_is_wrong(stage: Stage) -> tuple[float, list[str]]:
        del stage
        return 0.0, []

    async def a_server_is_lost(stage: Stage) -> None:
        stage.recoveries.append(recovery)

    monkeypatch.setattr(verdict, "judge", nothing_is_wrong)
    stage = cast("Stage", QuietStage())
    seen = await suffer(stage, InjectedFault(a_server_is_lost, harmed=None), normal_s=0.0)
    assert seen.broken == broken
    assert [line for line in seen.text().splitlines() if "BROKEN" in line] == [f"  BROKEN {each}" for each in broken]
    assert stage.recoveries == [], "the next fault would be judged by them, too"
