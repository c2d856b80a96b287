"""Workers as several servers know them: put together, judged, sorted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pinlater.client.history import HistoryPoint, QueueHistory, SpanPercentiles
from pinlater.client.jobs import JobInfo
from pinlater.client.worker_judgement import in_hand_of, misses_servers, usual_run_ms, workers_of
from pinlater.client.workers import JobInHand, KnownWorker, ServerReply, Trouble, WorkersFound
from pinlater.domain.history import HOUR_MS
from pinlater.domain.job import JobState
from pinlater.domain.workers import (
    LostClaim,
    ServerWorkers,
    WaitingDequeues,
    WorkerInfo,
    WorkerQueue,
    WorkerStatus,
    cut_to,
)

INFO = WorkerInfo("python", "1.0", "host", 17, 16, 3, 1)
MINUTE_MS = 60_000
NOTHING: Mapping[str, int] = {}


def status(source: str = "w", process: int = 7, heard_ms: int | None = 100, **more: Any) -> WorkerStatus:
    return WorkerStatus(source, process, heard_ms, **{"queues": [WorkerQueue("q", 100, 5)], **more})


def reply(
    *workers: WorkerStatus,
    server: str = "a",
    waiting: Any = (),
    servers: int = 1,
    forgotten: int = 0,
    up_ms: int = 10 * HOUR_MS,
) -> ServerReply:
    return ServerReply(f"{server}:9010", [ServerWorkers(workers, waiting, server, servers, 1_000, up_ms, forgotten)])


def job(
    for_ms: int = 10, left_ms: int | None = 30_000, source: str = "w", queue: str = "q", number: int = 1
) -> JobInHand:
    return JobInHand(f"{queue}:s1:p1:{number}", queue, source, for_ms, left_ms)


def found(*replies: ServerReply, jobs: Any = (), usual: Any = NOTHING, queues: Any = ()) -> WorkersFound:
    return workers_of(replies, jobs, usual, queues)


def only(*replies: ServerReply, **more: Any) -> KnownWorker:
    [worker] = found(*replies, **more).workers
    return worker


def test_the_numbers_of_servers_are_summed_and_the_newest_word_of_a_process_counts() -> None:
    """It asks one server now, and asked another one before a failover."""
    before = status(
        heard_ms=90_000,
        queues=[WorkerQueue("q", 90_000, 5, 1, 2, 0, 1, 1)],
        claim_ms=60_000,
        info=INFO._replace(running=9),
        said_ms=91_000,
    )
    now = status(
        heard_ms=100,
        queues=[WorkerQueue("q", 100, 7, 2, 0, 0, 0, 2), WorkerQueue("r", None, 0, 1)],
        claim_ms=30_000,
        info=INFO,
        said_ms=4_000,
    )
    worker = only(reply(before), reply(now, server="b", servers=2))
    [process] = worker.processes
    assert (process.heard_ms, process.info, process.said_ms, process.claim_ms) == (100, INFO, 4_000, 60_000)
    assert process.queues[0] == WorkerQueue("q", 100, 12, 3, 2, 0, 1, 2)
    assert (worker.handed_out, worker.timed_out, worker.late, worker.queues) == (12, 4, 2, ["q", "r"])


def test_a_server_that_is_asked_under_two_addresses_counts_once() -> None:
    answers = reply(status()), reply(status())._replace(address="alias:9010")
    assert only(*answers).handed_out == 5
    assert found(*answers).gaps == []


def test_processes_that_share_a_source_keep_their_own_numbers() -> None:
    worker = only(reply(status(process=7, info=INFO), status(process=8, heard_ms=50), status(process=0, heard_ms=70)))
    assert [each.process for each in worker.processes] == [8, 0, 7]
    assert [sum(queue.handed_out for queue in each.queues) for each in worker.processes] == [5, 5, 5]
    assert worker.versions == ["", "python 1.0"]


def test_a_source_of_which_only_lost_claims_are_known_is_no_process() -> None:
    worker = only(reply(status(process=0, heard_ms=None, queues=[WorkerQueue("q", None, 0, 3)])))
    assert (worker.processes, worker.heard_ms, worker.timed_out, worker.trouble) == ([], None, 3, Trouble.NONE)


def test_jobs_in_hand_and_long_polls_belong_to_their_source() -> None:
    worker = only(
        reply(status(), waiting=[WaitingDequeues("q", "w", 2)]),
        jobs=[job(10, 20_000), job(99, 30_000, queue="r", number=2)],
    )
    assert (worker.holds, worker.waits, worker.held) == ({"q": 1, "r": 1}, {"q": 2}, 2)
    assert worker.longest is not None
    assert worker.next_end is not None
    assert (worker.longest.for_ms, worker.next_end.left_ms) == (99, 20_000)


def test_a_source_that_no_server_has_heard_is_shown_with_its_jobs() -> None:
    """Its entry may have been forgotten."""
    worker = only(reply(), jobs=[job(source="gone")])
    assert (worker.source, worker.processes, worker.held) == ("gone", [], 1)


def test_only_the_named_queues_are_shown() -> None:
    answer = reply(
        status(queues=[WorkerQueue("q", 1, 2), WorkerQueue("r", 1, 3)]),
        status("other", queues=[WorkerQueue("r", 1, 4)]),
        waiting=[WaitingDequeues("r", "third", 1)],
    )
    worker = only(answer, jobs=[job(), job(queue="r", source="fourth")], queues=["q"])
    assert (worker.source, worker.queues, worker.handed_out) == ("w", ["q"], 2)


# --- what is not known --------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_a_gap() -> None:
    assert found(reply(), ServerReply("b:9010", (), "no route")).gaps == ["b:9010 does not answer: no route"]


def test_servers_of_the_shards_that_were_not_asked_are_a_gap() -> None:
    [gap] = found(reply(servers=3), reply(server="b", servers=2)).gaps
    assert gap.startswith("2 of 3 servers answered")


def test_a_server_that_others_tell_of_is_no_gap() -> None:
    here, other = reply(servers=2), reply(server="b", servers=2)
    assert misses_servers([here])
    told = here._replace(found=[*here.found, *other.found])
    assert not misses_servers([told])
    assert found(told).gaps == []


def test_numbers_go_back_to_the_start_of_the_server_that_started_last() -> None:
    assert found(reply(), reply(server="b")).counted_ms == HOUR_MS
    assert found(reply(), reply(server="b", up_ms=5 * MINUTE_MS)).counted_ms == 5 * MINUTE_MS


def test_forgotten_workers_are_a_gap() -> None:
    [gap] = found(reply(forgotten=48_000)).gaps
    assert "gave up workers 48,000 times" in gap


def test_an_answer_is_cut_to_what_fits_and_says_what_it_lacks() -> None:
    long = "ü" * 100
    [answer] = reply(*[status(f"w{number}", info=INFO._replace(host=long)) for number in range(100)]).found
    cut = cut_to(answer, 50 * 500)
    assert 20 < len(cut.workers) < 50
    assert (cut.workers, cut.forgotten) == (answer.workers[: len(cut.workers)], 100 - len(cut.workers))
    assert cut_to(answer, 1_000_000) == answer


# --- trouble ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "jobs", "reason"),
    [
        ({}, [job(left_ms=-75_000)], "The claim of 1 job should have ended 1m 15s ago"),
        (
            {"queues": [WorkerQueue("q", 1, 5, 4, 0, 4)]},
            [],
            "4 claims timed out in the last 10 minutes",
        ),  # by an older server
        (
            {"queues": [WorkerQueue("q", 1, 500, 9, 0, 4, 0, 3)]},
            [],
            "4 claims timed out in the last 10 minutes; that happened 3 times in the last hour",
        ),
        (
            {},
            [job(60 * MINUTE_MS)],
            "q:s1:p1:1 has run for 1h since its claim or its last checkpoint; 99 % of the jobs of q took at most 2s in the last hour",
        ),
    ],
)
def test_a_stuck_worker_is_told_with_its_reason(more: Any, jobs: Any, reason: str) -> None:
    worker = only(reply(status(**more)), jobs=jobs, usual={"q": 2_000})
    assert (worker.trouble, worker.reasons) == (Trouble.STUCK, [reason])


@pytest.mark.parametrize(
    ("more", "jobs", "reasons"),
    [
        (
            {"heard_ms": 41_000, "claim_ms": 60_000},
            [job(left_ms=19_000)],
            ["Not heard for 41s; it still holds 1 job, whose claim times out in 19s"],
        ),
        (
            {"heard_ms": 5 * MINUTE_MS},
            [job(left_ms=30_000), job(left_ms=90_000, number=2)],
            ["Not heard for 5m; it still holds 2 jobs, whose claims time out within 1m 30s"],
        ),
        (
            {"process": 0, "heard_ms": 11 * MINUTE_MS, "claim_ms": 10 * MINUTE_MS},
            [job(left_ms=None)],
            ["Not heard for 11m; it still holds 1 job"],
        ),
        (
            {"heard_ms": 5 * MINUTE_MS},
            [job(left_ms=-75_000)],
            ["Not heard for 5m; it still holds 1 job", "The claim of 1 job should have ended 1m 15s ago"],
        ),
        (
            {"heard_ms": 45_000, "claim_ms": 60_000, "queues": [WorkerQueue("q", 1, 5, 2, 0, 2)]},
            [],
            ["Not heard for 45s", "2 claims timed out in the last 10 minutes"],
        ),
        (
            {"heard_ms": None, "queues": [WorkerQueue("q", None, 5, 1, 0, 1)]},
            [],
            ["No server has heard it lately", "1 claim timed out in the last 10 minutes"],
        ),
        (
            {"heard_ms": 5 * MINUTE_MS},
            [job(60 * MINUTE_MS)],
            [
                "Not heard for 5m; it still holds 1 job, whose claim times out in 30s",
                "q:s1:p1:1 has run for 1h since its claim or its last checkpoint; 99 % of the jobs of q took at most 2s in the last hour",
            ],
        ),
    ],
)
def test_a_worker_that_was_killed_is_silent_and_its_claims_are_told(more: Any, jobs: Any, reasons: list[str]) -> None:
    """A process that stands still or can't reach the servers looks the same, so that nothing else is said of it."""
    worker = only(reply(status(**more)), jobs=jobs, usual={"q": 2_000})
    assert (worker.trouble, worker.reasons) == (Trouble.SILENT, reasons)


def test_a_worker_with_a_long_poll_is_alive() -> None:
    lost_some = status(heard_ms=21_000, claim_ms=10_000, queues=[WorkerQueue("q", 1, 5, 2, 0, 2, 0, 1)])
    worker = only(reply(lost_some, waiting=[WaitingDequeues("q", "w", 1)]))
    assert (worker.trouble, worker.reasons) == (Trouble.SLOW, ["2 claims timed out in the last 10 minutes"])


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_is_heard_and_lost_claims_once_or_twice_is_slow_not_stuck(times: int) -> None:
    """A server or a shard failed before the answer with the jobs had reached it."""
    healthy = status(queues=[WorkerQueue("q", 100, 5, 2, 0, 2, 0, times), WorkerQueue("r", 100, 5)])
    at_two_servers = reply(healthy), reply(healthy._replace(heard_ms=7), server="b")
    worker = only(*at_two_servers, jobs=[job()])
    assert (worker.trouble, worker.reasons) == (Trouble.SLOW, ["4 claims timed out in the last 10 minutes"])


def test_a_worker_with_an_overdue_claim_is_stuck_although_it_lost_claims_once() -> None:
    lost_some = status(queues=[WorkerQueue("q", 1, 5, 2, 0, 2, 0, 1)])
    worker = only(reply(lost_some), jobs=[job(left_ms=-75_000)])
    reasons = ["The claim of 1 job should have ended 1m 15s ago", "2 claims timed out in the last 10 minutes"]
    assert (worker.trouble, worker.reasons) == (Trouble.STUCK, reasons)


def test_a_worker_that_loses_claims_again_and_again_comes_before_one_that_lost_some_once() -> None:
    once, again = (
        status(name, queues=[WorkerQueue("q", 1, 5, 9, 0, 9, 0, times)]) for name, times in (("a", 1), ("b", 3))
    )
    assert [worker.source for worker in found(reply(once, again)).workers] == ["b", "a"]


@pytest.mark.parametrize(
    ("more", "jobs"),
    [
        ({}, [job(left_ms=-4_000)]),  # servers take a moment to end a claim
        ({"heard_ms": 5 * MINUTE_MS, "claim_ms": 30_000}, []),  # idle, or gone
        ({"heard_ms": 20_000, "claim_ms": 30_000}, [job()]),
        ({"heard_ms": 200_000, "claim_ms": 30_000}, [job(left_ms=400_000)]),  # it got a shorter claim last
        ({"heard_ms": 4_000}, [job(left_ms=100)]),  # a short claim, and a slow moment
        ({"process": 0, "heard_ms": 5 * MINUTE_MS}, [job()]),  # it is not known how long its claims last
        ({"queues": [WorkerQueue("q", 1, 5, 4, 3)]}, []),  # lost long ago
        (
            {"queues": [WorkerQueue("q", 1, 5, 0, 3, 0, 3)]},
            [],
        ),  # answers that were sent twice
        ({}, [job(59_000)]),  # short in any case
        ({}, [job(60 * MINUTE_MS, queue="unusual")]),  # nothing to compare with
    ],
)
def test_what_is_usual_is_no_trouble(more: Any, jobs: Any) -> None:
    worker = only(reply(status(**more)), jobs=jobs, usual={"q": 2_000})
    assert (worker.trouble, worker.reasons) == (Trouble.NONE, [])


def test_a_worker_is_not_called_silent_while_a_server_is_unreachable() -> None:
    """That server may hear it."""
    silent = status(heard_ms=5 * MINUTE_MS, claim_ms=30_000)
    assert only(reply(silent), ServerReply("b:9010", (), "gone"), jobs=[job()]).trouble is Trouble.NONE


# --- the job that killed its worker ---------------------------------------------------------------------------------------


def lost(*ended_ms: int) -> list[LostClaim]:
    return [LostClaim("q", f"q:s1:p1:{each}", each) for each in ended_ms]


def dead(heard_ms: int = 100_000, process: int = 7, claim_ms: int | None = 30_000) -> WorkerStatus:
    return status(process=process, heard_ms=heard_ms, claim_ms=claim_ms, info=INFO)


def source_lost(*ended_ms: int) -> WorkerStatus:
    return status(process=0, heard_ms=None, queues=[WorkerQueue("q")], lost=lost(*ended_ms))


def test_the_job_whose_claim_timed_out_after_its_worker_was_heard_last_may_have_killed_it() -> None:
    worker = only(reply(dead(), source_lost(70_000)))
    assert worker.reasons == [
        "Process 17 on host was last heard 1m 40s ago, before its claims timed out; this job may have killed it: q:s1:p1:70000"
    ]
    assert (worker.trouble, worker.lost) == (Trouble.SILENT, lost(70_000))


def test_a_worker_that_had_several_jobs_may_have_been_killed_by_any_of_them() -> None:
    [reason] = only(reply(dead(), source_lost(60_000, 70_000))).reasons
    assert reason.endswith("; one of these jobs may have killed it: q:s1:p1:60000, q:s1:p1:70000")


def test_a_process_that_was_started_in_its_place_does_not_hide_the_death() -> None:
    [reason] = only(reply(dead(), status(process=8, heard_ms=10, claim_ms=30_000), source_lost(70_000))).reasons
    assert reason.startswith("Process 17 on host was last heard 1m 40s ago")


@pytest.mark.parametrize(
    "process",
    [
        dead(heard_ms=50_000),  # it may be heard again: the last request is not long ago
        dead(heard_ms=65_000),  # it was heard after its claim had ended
        dead(heard_ms=700_000),  # it had no claim that ends so late
        dead(claim_ms=None),  # it got no job
    ],
)
def test_a_claim_that_ended_at_another_time_killed_no_process(process: WorkerStatus) -> None:
    assert only(reply(process, source_lost(70_000))).trouble is Trouble.NONE


def test_no_process_is_called_killed_while_a_server_is_unreachable() -> None:
    assert only(reply(dead(), source_lost(70_000)), ServerReply("b:9010", (), "gone")).trouble is Trouble.NONE


def test_the_claims_that_several_servers_ended_are_told_together_in_bounds() -> None:
    one, two = reply(source_lost(*range(1, 6))), reply(source_lost(*range(3, 9)), server="b")
    assert only(one, two).lost == lost(1, 2, 3, 4, 5)


def test_a_job_that_runs_some_times_longer_than_usual_makes_its_worker_slow() -> None:
    worker = only(reply(status()), jobs=[job(90_000), job(70_000, number=2)], usual={"q": 20_000})
    assert worker.trouble is Trouble.SLOW
    [reason] = worker.reasons
    assert reason.startswith("q:s1:p1:1 has run for 1m 30s")


def test_stuck_workers_come_before_silent_ones_then_slow_ones_and_the_others() -> None:
    answer = reply(
        status("idle"),
        status("gone", heard_ms=5 * MINUTE_MS),
        status("busy"),
        status("slow"),
        status("silent", heard_ms=5 * MINUTE_MS),
        status("stuck"),
    )
    jobs = [
        job(5_000, source="busy"),
        job(90_000, source="slow"),
        job(1, source="silent"),
        job(1, left_ms=-75_000, source="stuck"),
    ]
    shown = found(answer, jobs=jobs, usual={"q": 20_000}).workers
    assert [worker.source for worker in shown] == ["stuck", "silent", "slow", "busy", "idle", "gone"]


# --- from jobs and histories --------------------------------------------------------------------------------------------


def test_jobs_in_hand_are_told_by_the_source_of_their_claim() -> None:
    claimed = JobInfo(
        "q:s1:p1:1",
        JobState.IN_PROGRESS,
        2,
        2,
        "",
        0,
        updated_at_ms=400,
        claim_descriptor="h:1:2:a:b:3",
        claim_deadline_ms=900,
    )
    unusual = claimed._replace(claim_descriptor="odd", updated_at_ms=None, claim_deadline_ms=None)
    assert in_hand_of("q", [claimed, unusual], 1_000) == [
        JobInHand("q:s1:p1:1", "q", "a:b", 600, -100),
        JobInHand("q:s1:p1:1", "q", "odd", 0, None),
    ]


def test_what_is_usual_is_the_slowest_step_of_the_history() -> None:
    runs = [None, SpanPercentiles(5, 1, 2, 300), SpanPercentiles(5, 1, 2, 200)]
    points = [HistoryPoint(number, runs=each) for number, each in enumerate(runs)]
    assert usual_run_ms([QueueHistory("q", points), QueueHistory("unused", [])]) == {"q": 300}
