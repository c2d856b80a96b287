"""The checker itself: each broken promise is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pinlater.domain.queue import STOP, TO_BACK, QueueConfig
from pinlater.simulation.history import (
    ALREADY_FINAL,
    APPLIED,
    FAILED,
    IN_PROGRESS,
    NO_SETTINGS,
    NOT_FOUND,
    PENDING,
    STALE_CLAIM,
    SUCCEEDED,
    Delete,
    History,
    HistoryRecorder,
    PromiseKind,
    SeenAck,
    SeenCancel,
    SeenClaim,
    SeenEnqueue,
    SeenHeartbeat,
    SeenRun,
    SeenUnblock,
    check,
    read_history,
)

TIMEOUT = 1_000
ENQUEUED = SeenEnqueue(0, 10, ("a", "b"), ("q:s1:p1:1", "q:s1:p1:2"))
ALL_DONE = {"q:s1:p1:1": SUCCEEDED, "q:s1:p1:2": SUCCEEDED}


def claim(
    started: int, ended: int, job: str = "q:s1:p1:1", token: str = "t1", body: str = "a", worker: str = "w"
) -> SeenClaim:
    return SeenClaim(started, ended, worker, job, token, body, TIMEOUT)


def ack(
    started: int, ended: int | None, token: str = "t1", outcome: int | None = APPLIED, *, success: bool = True
) -> SeenAck:
    return SeenAck(started, ended, "q:s1:p1:1", token, success, outcome)


def kinds(history: History, final: dict[str, int], *, failures_allowed: bool = False) -> set[PromiseKind]:
    return {each.kind for each in check(history, final, failures_allowed=failures_allowed)}


Seen = SeenEnqueue | SeenClaim | SeenAck | SeenCancel | SeenUnblock | SeenRun


def seen(*records: Seen) -> History:
    made = History()
    for record in records:
        if isinstance(record, SeenEnqueue):
            made.enqueues.append(record)
        elif isinstance(record, SeenClaim):
            made.claims.append(record)
        elif isinstance(record, SeenAck):
            made.acks.append(record)
        elif isinstance(record, SeenUnblock):
            made.unblocks.append(record)
        elif isinstance(record, SeenRun):
            made.runs.append(record)
        else:
            made.cancels.append(record)
    return made


def history(*records: Seen) -> History:
    return seen(ENQUEUED, *records)


def test_a_clean_run_has_no_violations() -> None:
    assert check(history(claim(20, 30), ack(40, 50)), ALL_DONE) == []


def test_an_acknowledged_enqueue_that_is_gone_is_lost() -> None:
    assert kinds(history(), {"q:s1:p1:1": SUCCEEDED}) == {PromiseKind.LOST}


def test_an_enqueue_without_an_answer_may_be_gone() -> None:
    assert check(history(SeenEnqueue(0, None, ("c",), None)), ALL_DONE) == []


@pytest.mark.parametrize("state", [PENDING, IN_PROGRESS])
def test_a_job_that_never_ends_is_stuck(state: int) -> None:
    assert kinds(history(), {"q:s1:p1:1": state, "q:s1:p1:2": SUCCEEDED}) == {PromiseKind.STUCK}


def test_a_job_of_an_unanswered_enqueue_that_was_handed_out_must_end_too() -> None:
    made = history(SeenEnqueue(0, None, ("c",), None), claim(20, 30, "q:s1:p1:3", body="c"))
    assert kinds(made, {**ALL_DONE, "q:s1:p1:3": IN_PROGRESS}) == {PromiseKind.STUCK}


def test_an_unexplained_failure_is_found_unless_failures_are_expected() -> None:
    final = {"q:s1:p1:1": FAILED, "q:s1:p1:2": SUCCEEDED}
    assert kinds(history(), final) == {PromiseKind.GAVE_UP}
    assert kinds(history(), final, failures_allowed=True) == set()


@pytest.mark.parametrize("state", [PENDING, IN_PROGRESS, FAILED])
def test_an_acknowledged_success_that_is_no_longer_one_is_undone(state: int) -> None:
    found = kinds(
        history(claim(20, 30), ack(40, 50)), {"q:s1:p1:1": state, "q:s1:p1:2": SUCCEEDED}, failures_allowed=True
    )
    assert PromiseKind.REVERSED in found


def test_an_acknowledged_success_that_is_handed_out_again_is_undone() -> None:
    found = kinds(history(claim(20, 30), ack(40, 50), claim(1500, 1510, token="t2")), ALL_DONE)
    assert found == {PromiseKind.REVERSED}


def test_a_hand_out_between_a_claim_and_the_success_that_counted_is_found() -> None:
    found = kinds(history(claim(20, 30), claim(1500, 1580, token="t2"), ack(1550, 1600)), ALL_DONE)
    assert found == {PromiseKind.REVERSED}


def test_two_successes_of_one_job_cannot_both_count() -> None:
    made = history(claim(20, 30), ack(40, 50), ack(45, 55, token="t2"))
    assert kinds(made, ALL_DONE) == {PromiseKind.REVERSED}


def test_an_ack_without_an_answer_may_be_turned_back() -> None:
    made = history(claim(20, 30), ack(40, None, outcome=None), claim(1500, 1510, token="t2"))
    assert check(made, ALL_DONE) == []


def test_a_success_without_an_answer_does_not_free_the_job() -> None:
    made = history(claim(20, 30), ack(40, None, outcome=None), claim(60, 70, token="t2"))
    assert kinds(made, ALL_DONE) == {PromiseKind.TWICE}


def test_a_second_hand_out_within_the_claim_is_found() -> None:
    assert kinds(history(claim(20, 30), claim(500, 510, token="t2")), ALL_DONE) == {PromiseKind.TWICE}


def test_a_second_hand_out_in_overlapping_calls_is_found() -> None:
    assert kinds(history(claim(20, 40), claim(30, 35, token="t2")), ALL_DONE) == {PromiseKind.TWICE}


def test_a_second_hand_out_within_a_restarted_call_of_the_same_worker_is_found() -> None:
    assert kinds(history(claim(20, 30), claim(20, 30)), ALL_DONE) == {PromiseKind.TWICE}


def test_a_hand_out_after_the_time_out_is_right() -> None:
    assert check(history(claim(20, 30), claim(20, 1021, token="t2")), ALL_DONE) == []


def test_a_heartbeat_that_counted_makes_the_claim_last() -> None:
    made = history(claim(20, 30), claim(1200, 1210, token="t2"))
    made.heartbeats.append(SeenHeartbeat(500, "q:s1:p1:1", "t1", APPLIED))
    assert kinds(made, ALL_DONE) == {PromiseKind.TWICE}
    made.heartbeats[0] = SeenHeartbeat(500, "q:s1:p1:1", "t1", STALE_CLAIM)
    assert check(made, ALL_DONE) == []


def test_a_hand_out_after_the_holder_gave_it_back_is_right() -> None:
    made = history(claim(20, 30), ack(40, 50, success=False), claim(45, 60, token="t2"))
    assert check(made, ALL_DONE) == []


def test_three_hand_outs_are_compared_with_each_other() -> None:
    made = history(claim(20, 30), claim(1500, 1510, token="t2"), claim(1600, 1610, token="t3"))
    assert kinds(made, ALL_DONE) == {PromiseKind.TWICE}


@pytest.mark.parametrize("success", [True, False])
def test_a_zombies_ack_that_counts_is_found(success: bool) -> None:
    made = history(claim(20, 30), claim(1500, 1510, token="t2"), ack(1600, 1610, success=success))
    assert PromiseKind.STALE_APPLIED in kinds(made, ALL_DONE)


@pytest.mark.parametrize("outcome", [STALE_CLAIM, ALREADY_FINAL, None])
def test_a_zombies_ack_that_is_refused_is_right(outcome: int | None) -> None:
    made = history(claim(20, 30), claim(1500, 1510, token="t2"), ack(1600, 1610, outcome=outcome))
    assert check(made, ALL_DONE) == []


def test_a_claimed_job_that_no_client_enqueued_is_reported_as_invented() -> None:
    assert kinds(history(claim(20, 30, "q:s1:p1:9", body="z")), {**ALL_DONE, "q:s1:p1:9": SUCCEEDED}) == {
        PromiseKind.INVENTED
    }


def test_a_body_under_another_jobs_name_is_damage() -> None:
    assert kinds(history(claim(20, 30, body="b")), ALL_DONE) == {PromiseKind.DAMAGED}


def test_a_job_that_exists_twice_is_doubled() -> None:
    made = history(claim(20, 30), claim(20, 30, "q:s1:p1:9", token="t2"))
    assert kinds(made, {**ALL_DONE, "q:s1:p1:9": SUCCEEDED}) == {PromiseKind.DOUBLED}


S = 10**9
HELD = 3 * S


def polled(
    began_s: float, ended_s: float, token: str, *, job: str = "q:s1:p1:1", told: bool = True, waited: bool = True
) -> SeenClaim:
    """A job of a long poll, granted in the moment of its answer (or, not `waited`, as the call left), with a claim of three seconds."""
    began, ended = int(began_s * S), int(ended_s * S)
    until = (ended if waited else began) + HELD
    return SeenClaim(began, ended, token, job, token, "a" if job == "q:s1:p1:1" else "b", HELD, until if told else None)


def test_a_second_hand_out_to_a_long_poll_is_found_by_the_deadlines_that_were_told() -> None:
    """The first poll began twenty seconds before it got the job: its claim is no older for that."""
    one, other = polled(1, 20, "t1"), polled(10, 21, "t2")
    assert kinds(history(one, other), ALL_DONE) == {PromiseKind.TWICE}
    assert kinds(history(one, polled(10, 23.1, "t2")), ALL_DONE) == set()
    untold = polled(1, 20, "t1", told=False), polled(10, 21, "t2", told=False)
    assert kinds(history(*untold), ALL_DONE) == set()  # what could not be seen without


def test_a_claim_whose_answer_came_late_may_have_ended_before_the_next() -> None:
    """A server stood still before it sent its answer: the deadline is counted from the grant."""
    assert kinds(history(polled(1, 20, "t1", waited=False), polled(10, 21, "t2")), ALL_DONE) == set()


def test_of_a_poll_with_jobs_from_two_shards_the_one_that_was_handed_out_twice_is_found() -> None:
    """Each claim call has a token of its own, so one answer has several."""
    first, second = "q:s1:p1:1", "q:s2:p1:1"
    made = History(enqueues=[SeenEnqueue(0, 10, ("a", "b"), (first, second))])
    made.claims = [
        polled(1, 20, "t1", job=first)._replace(body="a"),
        polled(1, 20, "t1.0.1", job=second)._replace(body="b"),
        polled(10, 20.5, "t2", job=second)._replace(body="b"),
    ]
    found = check(made, {first: SUCCEEDED, second: SUCCEEDED})
    assert [(each.kind, each.descriptor) for each in found] == [(PromiseKind.TWICE, second)]


def test_a_finished_job_that_is_handed_to_a_poll_which_waited_is_found() -> None:
    made = history(polled(1, 2, "t1"), ack(3 * S, 4 * S), polled(1.5, 30, "t2"))
    assert kinds(made, ALL_DONE) == {PromiseKind.REVERSED}


def test_a_zombies_ack_that_counts_against_a_poll_which_waited_is_found() -> None:
    made = history(polled(1, 2, "t1"), polled(1.5, 10, "t2"), ack(11 * S, 12 * S, success=False))
    assert PromiseKind.STALE_APPLIED in kinds(made, ALL_DONE)


def test_the_deadline_that_an_answer_named_is_read() -> None:
    recorder = HistoryRecorder()
    call = recorder.call("claim", worker="w", timeout_ms=3_000)
    recorder.answer(call, jobs=[["q:s1:p1:1", "t", "a", 2_900], ["q:s1:p1:2", "t", "b"]])
    told, untold = recorder.history().claims
    assert told.until_ns == told.ended_ns + 2_900_000_000
    assert untold.until_ns is None
    assert untold.granted_ns == untold.started_ns


def test_a_job_that_was_there_when_its_queue_was_deleted_may_be_gone() -> None:
    made = history(claim(20, 30), ack(40, 50))
    made.deletes.append(Delete(100, 110, "q"))
    assert check(made, {}) == []
    made.deletes[0] = Delete(100, None, "q")
    assert check(made, {}) == []
    made.deletes[0] = Delete(100, 110, "other")
    assert kinds(made, {}) == {PromiseKind.LOST, PromiseKind.REVERSED}


def test_a_job_of_after_its_queues_deletion_must_be_there() -> None:
    made = history()
    made.enqueues.append(SeenEnqueue(200, 210, ("c",), ("q:s1:p1:3",)))
    made.deletes.append(Delete(100, 110, "q"))
    assert {each.descriptor for each in check(made, {})} == {"q:s1:p1:3"}


def test_a_repeat_after_its_queues_deletion_stores_new_jobs() -> None:
    made = history(claim(20, 30), claim(150, 160, "q:s1:p1:9", token="t2"))
    final = {**ALL_DONE, "q:s1:p1:9": SUCCEEDED}
    assert kinds(made, final) == {PromiseKind.DOUBLED}
    made.deletes.append(Delete(100, 110, "q"))
    assert check(made, final) == []


@pytest.mark.parametrize("outcome", [APPLIED, ALREADY_FINAL, None])
def test_a_cancelled_job_may_fail(outcome: int | None) -> None:
    made = history()
    made.cancels.append(SeenCancel(20, 30, "q:s1:p1:1", outcome))
    assert check(made, {"q:s1:p1:1": FAILED, "q:s1:p1:2": SUCCEEDED}) == []


def test_a_cancelled_job_that_does_not_stay_so_is_undone() -> None:
    made = history()
    made.cancels.append(SeenCancel(20, 30, "q:s1:p1:1", APPLIED))
    assert kinds(made, ALL_DONE) == {PromiseKind.REVERSED}


def test_a_cancelled_job_that_is_handed_out_again_without_an_operators_run_is_found() -> None:
    made = history(SeenCancel(20, 30, "q:s1:p1:1", APPLIED), claim(2_000, 2_010))
    assert kinds(made, FIRST_FAILED) == {PromiseKind.REVERSED}
    made.runs.append(SeenRun(40, 50, "q:s1:p1:1", APPLIED))
    assert check(made, FIRST_FAILED) == []
    made.acks.append(ack(2_020, 2_030))
    assert check(made, ALL_DONE) == []


@pytest.mark.parametrize("other", [SeenCancel(40, 50, "q:s1:p1:1", APPLIED), ack(40, 50)])
def test_a_cancel_that_counts_beside_another_end_is_found(other: Seen) -> None:
    made = history(claim(10, 15), SeenCancel(20, 30, "q:s1:p1:1", APPLIED), other)
    assert PromiseKind.REVERSED in kinds(made, FIRST_FAILED)


def test_a_claim_may_end_sooner_by_what_the_servers_clocks_differ() -> None:
    made = history(claim(20, 30), claim(20, 1011, token="t2"))
    assert kinds(made, ALL_DONE) == {PromiseKind.TWICE}
    assert check(made, ALL_DONE, slack_ns=9) == []


LISTED = SeenEnqueue(0, 10, ("a", "b"), ("q:s1:p1:1", "q:s1:p1:2"), ("k", "k"))
LATER = SeenEnqueue(20, 30, ("b",), ("q:s1:p1:2",), ("k",))


def in_order(*records: Seen, settings: Mapping[str, QueueConfig] = NO_SETTINGS) -> set[PromiseKind]:
    made = seen(*records)
    failed = made.has_failed() | made.may_be_cancelled()
    ended = {descriptor: FAILED if descriptor in failed else SUCCEEDED for descriptor in made.acknowledged()}
    return {each.kind for each in check(made, ended, settings=settings)}


FIRST, SECOND = claim(40, 50), claim(60, 70, "q:s1:p1:2", "t2", "b")


def first_of_key() -> SeenEnqueue:
    return SeenEnqueue(0, 10, ("a",), ("q:s1:p1:1",), ("k",))


@pytest.mark.parametrize("enqueues", [[LISTED], [first_of_key(), LATER]], ids=["in one request", "by two requests"])
def test_a_job_that_is_handed_out_before_the_one_before_it_has_ended_is_found(enqueues: list[SeenEnqueue]) -> None:
    assert in_order(*enqueues, FIRST, ack(75, 80), SECOND) == {PromiseKind.DISORDERED}
    assert not in_order(*enqueues, FIRST, ack(65, 80), SECOND)


def test_a_failed_attempt_does_not_let_the_next_job_go() -> None:
    assert in_order(LISTED, FIRST, ack(55, 58, success=False), SECOND) == {PromiseKind.DISORDERED}


def test_an_ack_without_an_answer_and_a_cancelling_may_have_let_the_next_job_go() -> None:
    assert not in_order(LISTED, FIRST, ack(55, None, outcome=None), SECOND)
    assert not in_order(LISTED, SeenCancel(55, 58, "q:s1:p1:1", APPLIED), SECOND)


def test_a_job_whose_predecessor_never_began_is_found() -> None:
    assert in_order(LISTED, SECOND) == {PromiseKind.DISORDERED}


def test_jobs_of_requests_under_way_at_once_are_in_any_order_and_do_not_run_at_once() -> None:
    other = SeenEnqueue(5, 15, ("b",), ("q:s1:p1:2",), ("k",))
    first, second = claim(60, 70), claim(40, 50, "q:s1:p1:2", "t2", "b")
    ends = [SeenAck(52, 55, "q:s1:p1:2", "t2", True, APPLIED), ack(75, 80)]
    assert not in_order(first_of_key(), other, first, second, *ends)
    late = SeenAck(72, 78, "q:s1:p1:2", "t2", True, APPLIED)
    assert in_order(first_of_key(), other, first, second, late, ack(75, 80)) == {PromiseKind.DISORDERED}


def test_jobs_of_different_keys_or_without_one_run_at_once() -> None:
    for keys in [("k", "l"), ("k", None), ()]:
        assert not in_order(
            SeenEnqueue(0, 10, ("a", "b"), ("q:s1:p1:1", "q:s1:p1:2"), keys), FIRST, SECOND, ack(75, 80)
        )


THREE = SeenEnqueue(0, 10, ("a", "b", "c"), ("q:s1:p1:1", "q:s1:p1:2", "q:s1:p1:3"), ("k", "k", "k"))
THIRD = claim(60, 70, "q:s1:p1:3", "t3", "c")


def test_as_many_jobs_of_a_key_run_at_once_as_its_queue_says_and_no_more() -> None:
    two = {"q": QueueConfig(max_in_hand_per_key=2)}
    assert not in_order(LISTED, FIRST, ack(75, 80), SECOND, settings=two)
    assert in_order(THREE, FIRST, ack(75, 80), THIRD, settings=two) == {PromiseKind.DISORDERED}
    second_ends = SeenAck(55, 58, "q:s1:p1:2", "t2", True, APPLIED)
    begun = claim(41, 51, "q:s1:p1:2", "t2", "b")
    assert not in_order(THREE, FIRST, ack(75, 80), begun, second_ends, THIRD, settings=two)


FAILED_ONCE = ack(55, 58, success=False)
BACK = {"q": QueueConfig(retry_place=TO_BACK)}


def test_a_failed_attempt_lets_the_next_job_go_where_it_goes_to_the_end_and_comes_behind_it() -> None:
    again: list[Seen] = [claim(90, 95, token="t2"), SeenAck(97, 99, "q:s1:p1:1", "t2", True, APPLIED)]
    second_ends = SeenAck(75, 80, "q:s1:p1:2", "t2", True, APPLIED)
    assert not in_order(LISTED, FIRST, FAILED_ONCE, SECOND, second_ends, *again, settings=BACK)
    too_early: list[Seen] = [
        claim(59, 62, token="t2"),
        SeenAck(63, 64, "q:s1:p1:1", "t2", True, APPLIED),
    ]
    assert in_order(LISTED, FIRST, FAILED_ONCE, SECOND, second_ends, *too_early, settings=BACK) == {
        PromiseKind.DISORDERED
    }


def test_where_it_is_not_known_if_a_failure_counted_a_job_may_have_either_place() -> None:
    unknown = ack(55, None, outcome=None, success=False)
    too_early: list[Seen] = [
        claim(59, 62, token="t2"),
        SeenAck(63, 64, "q:s1:p1:1", "t2", True, APPLIED),
    ]
    assert not in_order(LISTED, FIRST, unknown, SECOND, *too_early, settings=BACK)
    assert in_order(LISTED, FIRST, unknown, SECOND, ack(75, 80), settings=BACK) == {PromiseKind.DISORDERED}


LIVE_AGAIN = claim(1_320, 1_330, token="t3")
LATE_SECOND = claim(1_300, 1_310, "q:s1:p1:2", "t2", "b"), SeenAck(1_312, 1_315, "q:s1:p1:2", "t2", True, APPLIED)


@pytest.mark.parametrize(
    "unknown",
    [
        ack(1_190, None, outcome=None),
        ack(1_190, 1_500, outcome=ALREADY_FINAL),
        SeenCancel(1_250, 1_500, "q:s1:p1:1", ALREADY_FINAL),
        SeenCancel(1_250, None, "q:s1:p1:1", None),
        ack(1_190, None, outcome=None, success=False)._replace(final=True),
    ],
    ids=["success", "late success", "late cancel", "cancel", "final failure"],
)
def test_an_end_of_unknown_outcome_lets_no_job_go_if_a_later_one_counted(unknown: SeenAck | SeenCancel) -> None:
    success = ack(1_400, 1_410, token="t3")
    failure = success._replace(succeeded=False, final=True)
    for end, final in [(success, ALL_DONE), (failure, FIRST_FAILED)]:
        assert kinds(seen(LISTED, FIRST, unknown, LIVE_AGAIN, *LATE_SECOND, end), final) == {PromiseKind.DISORDERED}
    assert not in_order(LISTED, FIRST, unknown, *LATE_SECOND)


def test_an_end_of_unknown_outcome_lets_no_job_go_on_another_shard_if_a_later_one_counted() -> None:
    unknown, end = ack(1_190, None, outcome=None), ack(1_400, 1_410, token="t3")
    there = claim(1_300, 1_310, "q:s2:p1:3", "t4", "c")
    assert in_order(first_of_key(), MOVED, FIRST, unknown, LIVE_AGAIN, there, end) == {PromiseKind.DISORDERED}


def test_a_failure_of_unknown_outcome_counted_later_than_a_heartbeat_of_its_claim() -> None:
    made = seen(LISTED, FIRST, ack(55, None, outcome=None, success=False)._replace(final=True), SECOND)
    assert check(made, FIRST_FAILED) == []
    made.heartbeats.append(SeenHeartbeat(75, "q:s1:p1:1", "t1", APPLIED, 80))
    assert kinds(made, FIRST_FAILED) == {PromiseKind.DISORDERED}


def test_a_cancel_of_unknown_outcome_may_have_let_the_next_job_go_if_the_job_was_run_again() -> None:
    cancel, run = SeenCancel(55, None, "q:s1:p1:1", None), SeenRun(80, 85, "q:s1:p1:1", APPLIED)
    second_ends = SeenAck(72, 75, "q:s1:p1:2", "t2", True, APPLIED)
    again: list[Seen] = [claim(90, 95, token="t3"), ack(97, 99, token="t3")]
    made = seen(LISTED, cancel, SECOND, second_ends, run, *again)
    assert check(made, ALL_DONE) == []
    made.runs.clear()
    assert kinds(made, ALL_DONE) == {PromiseKind.DISORDERED}


def test_a_final_failure_ends_a_job_or_stops_its_key() -> None:
    given_up = ack(55, 58, success=False)._replace(final=True)
    assert not in_order(LISTED, FIRST, given_up, SECOND)
    stops = {"q": QueueConfig(after_failure=STOP)}
    assert in_order(LISTED, FIRST, given_up, SECOND, settings=stops) == {PromiseKind.DISORDERED}
    assert not in_order(LISTED, FIRST, given_up, SeenUnblock(59, 60, "q", "k"), SECOND, settings=stops)
    assert in_order(LISTED, FIRST, given_up, SeenUnblock(52, 54, "q", "k"), SECOND, settings=stops)
    assert in_order(LISTED, FIRST, given_up, SeenUnblock(59, 60, "q", "other"), SECOND, settings=stops)


def test_a_final_failure_under_the_second_claim_of_a_job_ends_it_though_its_dequeue_left_before_the_first() -> None:
    retried = ack(51, 54, success=False)
    again, given_up = claim(30, 55, token="t2"), ack(56, 58, token="t2", success=False)._replace(final=True)
    assert not in_order(LISTED, FIRST, retried, again, given_up, SECOND)


def test_a_claim_whose_answer_comes_after_the_next_one_is_not_a_later_claim() -> None:
    late = claim(40, 4_015, token="t0")
    second, given_up = claim(4_000, 4_010), ack(4_020, 4_030, success=False)._replace(final=True)
    assert not in_order(LISTED, late, second, given_up, claim(4_040, 4_050, "q:s1:p1:2", "t2", "b"))


def test_a_claim_of_which_an_ack_counted_is_none_that_had_timed_out() -> None:
    retried, long = ack(5_020, 5_030, success=False), claim(1_000, 5_040, token="t3")
    given_up = ack(5_050, 5_060, token="t3", success=False)._replace(final=True)
    second = claim(5_070, 5_080, "q:s1:p1:2", "t2", "b")
    assert not in_order(LISTED, claim(5_000, 5_010), retried, long, given_up, second)


def test_a_claim_that_timed_out_early_by_what_the_servers_clocks_differ_is_not_a_later_claim() -> None:
    late, second = claim(40, 1_038, token="t0"), claim(1_030, 1_035)
    given_up = ack(1_050, 1_060, success=False)._replace(final=True)
    made = seen(LISTED, late, second, given_up, claim(1_070, 1_080, "q:s1:p1:2", "t2", "b"))
    assert check(made, FIRST_FAILED, slack_ns=9) == []


def test_a_key_that_is_let_go_when_the_job_that_had_stopped_it_is_back_in_its_place_is_still_its_own() -> None:
    given_up, again = ack(52, 55, success=False)._replace(final=True), claim(73, 75, token="t3")
    ends = [SeenAck(70, 72, "q:s1:p1:2", "t2", True, APPLIED), ack(76, 78, token="t3")]
    records: list[Seen] = [
        LISTED,
        FIRST,
        given_up,
        SeenUnblock(62, 64, "q", "k"),
        claim(66, 69, "q:s1:p1:2", "t2", "b"),
    ]
    stops = {"q": QueueConfig(after_failure=STOP)}
    back, late = SeenRun(57, 60, "q:s1:p1:1", APPLIED), SeenRun(63, 65, "q:s1:p1:1", APPLIED)
    assert in_order(*records, back, again, *ends, settings=stops) == {PromiseKind.DISORDERED}
    assert not in_order(*records, late, again, *ends, settings=stops)


def test_a_key_that_is_let_go_after_the_job_that_had_stopped_it_was_retried_is_still_its_own() -> None:
    given_up = ack(55, 58, success=False)._replace(final=True)
    again: list[Seen] = [claim(60, 65, token="t2"), SeenAck(67, 69, "q:s1:p1:1", "t2", True, APPLIED)]
    run, late, second = RUN_AGAIN, SeenUnblock(75, 80, "q", "k"), claim(70, 74, "q:s1:p1:2", "t3", "b")
    stops = {"q": QueueConfig(after_failure=STOP)}
    assert not in_order(LISTED, FIRST, given_up, run, *again, second, late, settings=stops)


MOVED = SeenEnqueue(20, 30, ("c",), ("q:s2:p1:3",), ("k",))
THERE = claim(60, 70, "q:s2:p1:3", "t3", "c")


@pytest.mark.parametrize("most", [None, 2, 3])
def test_a_job_that_is_handed_out_while_one_of_its_key_is_live_on_a_former_home_is_found(most: int | None) -> None:
    settings = {"q": QueueConfig(max_in_hand_per_key=most)}
    assert in_order(first_of_key(), MOVED, FIRST, THERE, ack(75, 80), settings=settings) == {PromiseKind.DISORDERED}
    assert in_order(first_of_key(), MOVED, THERE, settings=settings) == {PromiseKind.DISORDERED}
    assert not in_order(first_of_key(), MOVED, FIRST, ack(55, 58), THERE, settings=settings)
    at_once = SeenEnqueue(5, 15, ("c",), ("q:s2:p1:3",), ("k",))
    assert in_order(first_of_key(), at_once, FIRST, THERE, ack(75, 80), settings=settings) == {PromiseKind.DISORDERED}


def test_a_job_that_goes_to_the_end_of_its_key_on_a_former_home_still_comes_before_those_on_the_next() -> None:
    again: list[Seen] = [claim(59, 62, token="t2"), SeenAck(63, 64, "q:s1:p1:1", "t2", True, APPLIED)]
    late: list[Seen] = [claim(90, 95, token="t2"), SeenAck(97, 99, "q:s1:p1:1", "t2", True, APPLIED)]
    ends = SeenAck(75, 80, "q:s2:p1:3", "t3", True, APPLIED)
    assert not in_order(first_of_key(), MOVED, FIRST, FAILED_ONCE, *again, THERE, ends, settings=BACK)
    assert in_order(first_of_key(), MOVED, FIRST, FAILED_ONCE, THERE, ends, *late, settings=BACK) == {
        PromiseKind.DISORDERED
    }


GIVEN_UP = ack(35, 40, success=False)._replace(final=True)
RUN_AGAIN = SeenRun(59, 60, "q:s1:p1:1", APPLIED)
FIRST_FAILED = {"q:s1:p1:1": FAILED, "q:s1:p1:2": SUCCEEDED}


def test_a_job_that_a_worker_gave_up_may_have_failed() -> None:
    assert check(history(claim(20, 30), GIVEN_UP), FIRST_FAILED) == []
    assert check(history(claim(20, 30), GIVEN_UP._replace(outcome=None, ended_ns=None)), FIRST_FAILED) == []
    refused = GIVEN_UP._replace(outcome=ALREADY_FINAL)
    assert kinds(history(claim(20, 30), refused), FIRST_FAILED) == {PromiseKind.GAVE_UP}


@pytest.mark.parametrize("given_up", [GIVEN_UP, GIVEN_UP._replace(outcome=None, ended_ns=None)])
def test_a_job_that_was_run_again_fails_only_if_a_worker_gives_it_up_again(given_up: SeenAck) -> None:
    again = claim(65, 70, token="t2")
    once = ack(75, 80, token="t2", success=False)
    assert kinds(history(claim(20, 30), given_up, RUN_AGAIN, again, once), FIRST_FAILED) == {PromiseKind.GAVE_UP}
    finally_ = once._replace(final=True)
    assert check(history(claim(20, 30), given_up, RUN_AGAIN, again, finally_), FIRST_FAILED) == []
    unknown = RUN_AGAIN._replace(outcome=None, ended_ns=None)
    assert check(history(claim(20, 30), given_up, unknown, again, once), FIRST_FAILED) == []


def test_a_final_failure_that_is_handed_out_again_without_an_operators_run_is_found() -> None:
    again: list[Seen] = [claim(1500, 1510, token="t2"), ack(1520, 1530, token="t2")]
    assert kinds(history(claim(20, 30), GIVEN_UP, *again), ALL_DONE) == {PromiseKind.REVERSED}
    assert check(history(claim(20, 30), GIVEN_UP, RUN_AGAIN, *again), ALL_DONE) == []
    late, before = RUN_AGAIN._replace(started_ns=1511), RUN_AGAIN._replace(started_ns=31, ended_ns=34)
    refused = RUN_AGAIN._replace(outcome=NOT_FOUND)
    for run in (late, before, refused):
        assert kinds(history(claim(20, 30), GIVEN_UP, run, *again), ALL_DONE) == {PromiseKind.REVERSED}


def test_a_second_final_failure_counts_only_after_an_operators_run() -> None:
    second = claim(25, 70, token="t2"), ack(80, 90, token="t2", success=False)._replace(final=True)
    made = history(claim(20, 30), GIVEN_UP, *second)
    assert kinds(made, FIRST_FAILED) == {PromiseKind.REVERSED}
    made.runs.append(RUN_AGAIN)
    assert check(made, FIRST_FAILED) == []


def test_records_of_clients_may_be_added_in_any_order() -> None:
    made = seen(claim(80, 90, token="t2"), ack(95, 99, token="t2"))
    made.add(history(claim(20, 30), GIVEN_UP, RUN_AGAIN))
    assert check(made, ALL_DONE) == []


@pytest.mark.parametrize("state", [SUCCEEDED, None])
def test_a_final_failure_that_is_no_longer_one_is_found(state: int | None) -> None:
    final = {descriptor: each for descriptor, each in {**ALL_DONE, "q:s1:p1:1": state}.items() if each is not None}
    assert PromiseKind.REVERSED in kinds(history(claim(20, 30), GIVEN_UP), final)


def test_the_outcome_of_an_operators_run_is_read() -> None:
    recorder = HistoryRecorder()
    recorder.answer(recorder.call("run", descriptor="q:s1:p1:1"), outcome=APPLIED)
    recorder.call("run", descriptor="q:s1:p1:2")
    told, untold = recorder.history().runs
    assert (told.descriptor, told.outcome) == ("q:s1:p1:1", APPLIED)
    assert (untold.ended_ns, untold.outcome) == (None, None)


def test_records_survive_a_killed_writer(tmp_path: Path) -> None:
    path = tmp_path / "records"
    recorder = HistoryRecorder(path)
    first = recorder.call("enqueue", bodies=["a"])
    recorder.answer(first, descriptors=["q:s1:p1:1"])
    second = recorder.call("claim", worker="w", timeout_ms=1)
    recorder.answer(second, jobs=[["q:s1:p1:1", "t", "a"]])
    recorder.call("ack", acks=[["q:s1:p1:1", "t", True]])
    with path.open("a") as file:
        file.write('{"n": 3, "outc')
    recorder.close()
    seen = read_history(path.read_text().splitlines())
    assert seen.acknowledged() == {"q:s1:p1:1": "a"}
    assert [each.timeout_ns for each in seen.claims] == [1_000_000]
    assert [(each.outcome, each.ended_ns) for each in seen.acks] == [(None, None)]
