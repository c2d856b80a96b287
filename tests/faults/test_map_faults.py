"""What counts as a job that ran again, without servers."""

from __future__ import annotations

import pytest

from pinlater.client import Outcome
from pinlater.simulation.history import APPLIED, History, SeenAck, SeenClaim, SeenHeartbeat
from tests.faults.map_faults import ran_again

S = 10**9
NEW, OLD = "q:s4:p1:1", "q:s1:p1:1"


def claim(began_s: float, token: str, job: str = NEW) -> SeenClaim:
    began_ns = round(began_s * S)
    return SeenClaim(began_ns, began_ns + 1, "worker", job, token, "body", 2 * S, began_ns + 2 * S)


def ack(began_s: float, token: str, outcome: int | None = APPLIED, *, succeeded: bool = True) -> SeenAck:
    began_ns = round(began_s * S)
    return SeenAck(began_ns, began_ns + 1, NEW, token, succeeded, outcome)


@pytest.mark.parametrize(
    ("acks", "again"),
    [
        ([ack(0.5, "a")], True),
        ([ack(0.5, "a", None)], True),
        ([ack(1.9, "a")], False),  # too late for its claim
        ([ack(0.5, "a", succeeded=False)], False),
        ([ack(2.6, "b")], False),
        ([ack(2.6, "b", Outcome.NOT_FOUND)], True),
        ([], False),  # forgotten by its worker
    ],
)
def test_a_job_ran_again_if_it_was_claimed_after_its_success_was_reported_in_time(
    acks: list[SeenAck], again: bool
) -> None:
    history = History(claims=[claim(0.0, "a"), claim(2.5, "b")], acks=acks)
    assert ran_again(history, "4") == ([NEW] if again else [])
    assert ran_again(history, "1") == []


def test_a_heartbeat_of_a_job_that_exists_must_find_it() -> None:
    heartbeats = [SeenHeartbeat(1, job, "a", Outcome.NOT_FOUND, 2) for job in (NEW, OLD)]
    assert ran_again(History(heartbeats=heartbeats), "4") == [NEW]
