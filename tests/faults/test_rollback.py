"""What a rollback excuses, and what it doesn't."""

from __future__ import annotations

import pytest

from pinlater.simulation.history import (
    APPLIED,
    History,
    PromiseKind,
    SeenAck,
    SeenClaim,
    SeenEnqueue,
    SeenHeartbeat,
    SeenRun,
    SeenUnblock,
    Violation,
)
from tests.faults.rollback import Rollback, judged, stopped_again

TAIL = Rollback("2", 1_000, 2_000, stored={1, 2}, finished={1})
IN_TIME, IN_TAIL, AFTER = (500, 900), (900, 1_100), (2_100, 2_200)
HAD, FINISHED, LACKED, ELSEWHERE = "q:s2:p1:2", "q:s2:p1:1", "q:s2:p1:9", "q:s1:p1:9"


def told(descriptor: str, when: tuple[int, int]) -> History:
    """All that can be told of a job, at one time."""
    began, ended = when
    return History(
        enqueues=[SeenEnqueue(began, ended, ("body",), (descriptor,))],
        claims=[SeenClaim(began, ended, "worker", descriptor, "token", "body", 10)],
        acks=[SeenAck(began, ended, descriptor, "token", True, APPLIED)],
        heartbeats=[SeenHeartbeat(began, descriptor, "token", APPLIED, ended)],
    )


def test_a_final_failure_and_an_operators_run_are_undone_with_the_tail() -> None:
    began, ended = IN_TAIL
    given_up = History(acks=[SeenAck(began, ended, HAD, "token", False, APPLIED, final=True)])
    assert judged([Violation(PromiseKind.REVERSED, HAD)], given_up, [TAIL]).broken == []
    run = History(runs=[SeenRun(began, ended, HAD, APPLIED)])
    found = judged([Violation(PromiseKind.GAVE_UP, HAD)], run, [TAIL])
    assert (found.broken, found.excused, found.lost) == ([], {HAD}, set())
    before, *_ = IN_TIME
    early = History(runs=[SeenRun(before, before, HAD, APPLIED)])
    assert judged([Violation(PromiseKind.GAVE_UP, HAD)], early, [TAIL]).broken


def test_a_key_that_an_operator_let_go_in_the_tail_is_let_go_again() -> None:
    began, ended = IN_TAIL
    before, _ = IN_TIME
    history = History(
        enqueues=[SeenEnqueue(0, 1, ("body",), (HAD,), ("run",))],
        runs=[SeenRun(began, ended, HAD, APPLIED)],
        unblocks=[SeenUnblock(began, ended, "q", "let go"), SeenUnblock(before, before, "q", "early")],
    )
    assert stopped_again(history, [TAIL]) == {("q", "run"), ("q", "let go")}


def is_excused(kind: PromiseKind, descriptor: str, when: tuple[int, int], text: str = "") -> bool:
    found = judged([Violation(kind, descriptor, text)], told(descriptor, when), [TAIL])
    assert bool(found.lost) is (kind is PromiseKind.LOST and not found.broken)
    return not found.broken


@pytest.mark.parametrize("when", [IN_TIME, AFTER])
@pytest.mark.parametrize("kind", list(PromiseKind))
def test_nothing_is_excused_that_was_answered_before_the_tail_or_begun_after_it(
    kind: PromiseKind, when: tuple[int, int]
) -> None:
    assert not is_excused(kind, LACKED, when)


@pytest.mark.parametrize("kind", list(PromiseKind))
def test_nothing_is_excused_on_another_shard(kind: PromiseKind) -> None:
    assert not is_excused(kind, ELSEWHERE, IN_TAIL)


def test_a_job_is_lost_with_the_tail_only_where_the_replica_lacked_it() -> None:
    assert is_excused(PromiseKind.LOST, LACKED, IN_TAIL)
    assert not is_excused(PromiseKind.LOST, HAD, IN_TAIL)


def test_a_success_is_undone_with_the_tail_only_where_the_replica_lacked_it() -> None:
    assert is_excused(PromiseKind.REVERSED, HAD, IN_TAIL)
    assert is_excused(PromiseKind.REVERSED, LACKED, IN_TAIL)
    assert not is_excused(PromiseKind.REVERSED, FINISHED, IN_TAIL)


def test_a_claim_of_the_tail_is_void() -> None:
    assert is_excused(PromiseKind.TWICE, HAD, IN_TAIL)
    assert is_excused(PromiseKind.STALE_APPLIED, HAD, IN_TAIL)


@pytest.mark.parametrize("outcome", [APPLIED, None])
def test_a_job_that_ended_or_was_run_again_in_the_tail_may_be_live_again_though_the_next_of_its_key_has_begun(
    outcome: int | None,
) -> None:
    began, ended = IN_TAIL
    end = SeenAck(began, None if outcome is None else ended, HAD, "token", True, outcome)
    run = SeenRun(began, ended, HAD, APPLIED)
    for history in (History(acks=[end]), History(runs=[run])):
        assert judged([Violation(PromiseKind.DISORDERED, ELSEWHERE, f"before {HAD}")], history, [TAIL]).broken == []
    early = end._replace(started_ns=500, ended_ns=900)
    assert judged([Violation(PromiseKind.DISORDERED, ELSEWHERE, f"before {HAD}")], History(acks=[early]), [TAIL]).broken


def test_a_claim_of_the_tail_may_have_begun_out_of_turn() -> None:
    assert is_excused(PromiseKind.DISORDERED, HAD, IN_TAIL, f"before {FINISHED}")


def test_an_enqueue_without_an_answer_may_be_repeated_after_its_job_was_lost() -> None:
    assert is_excused(PromiseKind.DOUBLED, LACKED, IN_TAIL, "also q:s3:p1:77")
    assert not is_excused(PromiseKind.DOUBLED, HAD, IN_TAIL, "also q:s3:p1:77")
    history = told(LACKED, IN_TAIL)
    assert judged([Violation(PromiseKind.DOUBLED, "q:s3:p1:77", f"also {LACKED}")], history, [TAIL]).broken == []


@pytest.mark.parametrize("kind", [PromiseKind.STUCK, PromiseKind.GAVE_UP, PromiseKind.INVENTED, PromiseKind.DAMAGED])
def test_some_things_no_rollback_explains(kind: PromiseKind) -> None:
    assert not is_excused(kind, LACKED, IN_TAIL)
