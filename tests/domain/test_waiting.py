"""Why a job waits, by table: from facts to reasons."""

from __future__ import annotations

import pytest

from pinlater.client.jobs import JobInfo
from pinlater.client.waiting import BehindFormer, JobsAhead, QueueFacts, ShardFacts, not_due, reasons
from pinlater.domain.job import QUARANTINED, Attempt, JobState, quarantine_text

NOW = 1_767_225_600_000  # 2026-01-01
MINUTE = 60_000
WORKED = QueueFacts(claimed_per_second=2.0, waiting_dequeues=1)
SHARD = ShardFacts("1")
NONE = JobsAhead(0)


WAITING = JobInfo("q:s1:p1:1", JobState.PENDING, 5, 5, "", created_at_ms=NOW - MINUTE, run_after_ms=NOW - MINUTE)
FAILED_ONCE = WAITING._replace(
    run_after_ms=NOW + MINUTE,
    updated_at_ms=NOW - 1_000,
    attempts=(Attempt(1, "h:1:2:w:3", NOW - 2_000, NOW - 1_000, "timed_out"),),
)
HELD = WAITING._replace(state=JobState.IN_PROGRESS, claim_descriptor="h:1:2:w:1:3", claim_deadline_ms=NOW + 25_000)

# Job, jobs before it, queue, and the expected reasons.
CASES: dict[str, tuple[JobInfo | None, JobsAhead | None, QueueFacts, list[tuple[str, str]]]] = {
    "paused by a known caller at a known time": (
        WAITING,
        NONE,
        WORKED._replace(paused=True, paused_by="ops-7", paused_at_ms=NOW - MINUTE),
        [("paused", "The queue is paused by ops-7, since 2025-12-31T23:59:00Z, for 1m.")],
    ),
    "paused by an older server": (
        WAITING,
        NONE,
        WORKED._replace(paused=True),
        [("paused", "The queue is paused.")],
    ),
    "not due": (
        WAITING._replace(run_after_ms=NOW + 90_000),
        NONE,
        WORKED,
        [("not_due", "It is not due until 2026-01-01T00:01:30Z, in 1m 30s.")],
    ),
    "put off": (
        WAITING._replace(run_after_ms=NOW + MINUTE, updated_at_ms=NOW - 5_000),
        NONE,
        WORKED,
        [("not_due", "It was put off 5s ago without an attempt, and is not due until 2026-01-01T00:01:00Z, in 1m.")],
    ),
    "retry": (
        FAILED_ONCE,
        NONE,
        WORKED,
        [("not_due", "Attempt 1 ended (timed out), and its retry is not due until 2026-01-01T00:01:00Z, in 1m.")],
    ),
    "limit of 0": (
        WAITING,
        NONE,
        WORKED._replace(max_jobs_per_second=0.0),
        [("stopped", "The rate limit of the queue is 0, which stops dequeues.")],
    ),
    "limit with its next slot": (
        WAITING,
        NONE,
        WORKED._replace(max_jobs_per_second=1.0, next_slot_ms=400),
        [("rate_limit", "The rate limit allows 1 job a second. This server hands out the next in 400ms.")],
    ),
    "limit that is reached": (
        WAITING,
        JobsAhead(10),
        WORKED._replace(max_jobs_per_second=2.2),
        [
            (
                "rate_limit",
                "The rate limit allows 2.2 jobs a second. In the last minute, 2 jobs a second were claimed.",
            ),
            (
                "behind",
                "10 jobs come before it. At 2 jobs a second, as all servers claimed in the last minute, its turn comes in about 5s.",
            ),
        ],
    ),
    "limit that holds back a queue that was quiet, while a worker waits": (
        WAITING,
        JobsAhead(1),
        QueueFacts(max_jobs_per_second=0.2, next_slot_ms=1_000, claimed_per_second=1 / 60, waiting_dequeues=1),
        [
            ("rate_limit", "The rate limit allows 0.2 jobs a second. This server hands out the next in 1s."),
            ("behind", "1 job comes before it. At 0.2 jobs a second, the rate limit, its turn comes in about 6s."),
        ],
    ),
    "limit that holds back, without a worker that waits": (
        WAITING,
        JobsAhead(4),
        WORKED._replace(max_jobs_per_second=2.0, next_slot_ms=400, waiting_dequeues=0, claimed_per_second=1.0),
        [
            ("rate_limit", "The rate limit allows 2 jobs a second. This server hands out the next in 400ms."),
            (
                "behind",
                "4 jobs come before it. At 1 job a second, as all servers claimed in the last minute, its turn comes in about 4s.",
            ),
        ],
    ),
    "behind others in a queue that was quiet": (
        WAITING,
        JobsAhead(2),
        WORKED._replace(claimed_per_second=4 / 60),
        [
            (
                "behind",
                "2 jobs come before it. Hardly any job was claimed in the last minute, so no time can be told.",
            )
        ],
    ),
    "limit that is lower than the claims were": (
        WAITING,
        JobsAhead(10),
        WORKED._replace(max_jobs_per_second=0.5),
        [
            (
                "rate_limit",
                "The rate limit allows 0.5 jobs a second. In the last minute, 2 jobs a second were claimed.",
            ),
            ("behind", "10 jobs come before it. At 0.5 jobs a second, the rate limit, its turn comes in about 20s."),
        ],
    ),
    "paused, so that no turn can be told": (
        WAITING,
        JobsAhead(2),
        WORKED._replace(paused=True),
        [("paused", "The queue is paused."), ("behind", "2 jobs come before it.")],
    ),
    "limit that is far": (
        WAITING,
        NONE,
        WORKED._replace(max_jobs_per_second=100.0),
        [("next", "It is due and comes first: the next request of a worker gets it.")],
    ),
    "no worker since the start": (
        WAITING,
        NONE,
        QueueFacts(server_started_at_ms=NOW - 2 * MINUTE),
        [("no_worker", "No worker asks for jobs of the queue. None has asked this server since its start 2m ago.")],
    ),
    "no worker for a while, on one of several servers": (
        WAITING,
        JobsAhead(1, incomplete=True),
        QueueFacts(last_dequeue_at_ms=NOW - 2 * MINUTE, servers=3),
        [
            (
                "no_worker",
                "No worker asks for jobs of the queue. The last one asked this server 2m ago. 3 servers share the shards, "
                "and each knows only the workers that ask it.",
            ),
            (
                "behind",
                "1 job comes before it. No job was claimed in the last minute, so no time can be told. A shard is unreachable, "
                "and its jobs are not counted.",
            ),
        ],
    ),
    "workers are busy": (
        WAITING,
        NONE,
        QueueFacts(last_dequeue_at_ms=NOW - 2 * MINUTE, running=2),
        [
            (
                "workers_busy",
                "No worker asks for jobs of the queue; 2 jobs of it are claimed. The last one asked this server 2m ago.",
            )
        ],
    ),
    "a worker asked lately": (
        WAITING,
        NONE,
        QueueFacts(last_dequeue_at_ms=NOW - 30_000),
        [
            (
                "next",
                "It is due and comes first: the next request of a worker gets it. No worker waits for it now. "
                "The last one asked this server 30s ago.",
            )
        ],
    ),
    "behind at least 10,000 jobs, and not due": (
        WAITING._replace(run_after_ms=NOW + 90_000),
        JobsAhead(10_000, at_least=True),
        WORKED,
        [
            ("not_due", "It is not due until 2026-01-01T00:01:30Z, in 1m 30s."),
            (
                "behind",
                "At least 10,000 jobs come before it. At 2 jobs a second, as all servers claimed in the last minute, its turn comes "
                "in more than 1h 23m.",
            ),
        ],
    ),
    "claimed": (HELD, None, WORKED, [("claimed", "w:1 has claimed it until 2026-01-01T00:00:25Z, for another 25s.")]),
    "claim that is over": (
        HELD._replace(claim_deadline_ms=NOW - 3_000),
        None,
        WORKED,
        [("claimed", "The claim of w:1 ended 3s ago; a server is about to end the attempt.")],
    ),
    "claim of an original server": (
        WAITING._replace(state=JobState.IN_PROGRESS, claim_descriptor="x"),
        None,
        WORKED,
        [("claimed", "x has claimed it.")],
    ),
    "succeeded": (WAITING._replace(state=JobState.SUCCEEDED), None, WORKED, [("succeeded", "It has succeeded.")]),
    "failed": (
        WAITING._replace(state=JobState.FAILED),
        None,
        WORKED,
        [("failed", "It has failed, and does not run again by itself.")],
    ),
    "failed, as its worker died in the last attempt": (
        FAILED_ONCE._replace(state=JobState.FAILED, attempts_remaining=0),
        None,
        WORKED,
        [
            (
                "failed",
                "It has failed, and does not run again by itself. Attempt 1, its last, timed out: its worker neither ended it nor "
                "renewed the claim.",
            )
        ],
    ),
    "cancelled after an attempt that timed out": (
        FAILED_ONCE._replace(
            state=JobState.FAILED, attempts_remaining=0, custom_status="cancelled", finished_at_ms=NOW - 500
        ),
        None,
        WORKED,
        [("cancelled", "It was cancelled, 500ms ago, and does not run again by itself.")],
    ),
    "cancelled, as an original server says it": (
        WAITING._replace(state=JobState.FAILED, custom_status="cancelled"),
        None,
        WORKED,
        [("cancelled", "It was cancelled, and does not run again by itself.")],
    ),
    "failed, with the status that its producer gave it": (
        FAILED_ONCE._replace(
            state=JobState.FAILED, attempts_remaining=0, custom_status="cancelled", finished_at_ms=NOW - 1_000
        ),
        None,
        WORKED,
        [
            (
                "failed",
                "It has failed, and does not run again by itself. Attempt 1, its last, timed out: its worker neither ended it nor "
                "renewed the claim.",
            )
        ],
    ),
    "quarantined": (
        FAILED_ONCE._replace(
            state=JobState.FAILED, attempts_remaining=0, error_type=QUARANTINED, error_text=quarantine_text(3)
        ),
        None,
        WORKED,
        [
            (
                "quarantined",
                "It is quarantined, and does not run again by itself. The claims of 3 attempts in a row timed out: the job may kill "
                "its workers. Its last workers: w.",
            )
        ],
    ),
    "expired": (
        WAITING._replace(state=JobState.FAILED, custom_status="expired", finished_at_ms=NOW - MINUTE),
        None,
        WORKED,
        [("expired", "It expired while it waited, 1m ago, and does not run again by itself.")],
    ),
    "behind others while workers claim": (
        WAITING,
        JobsAhead(4),
        WORKED._replace(waiting_dequeues=0, last_dequeue_at_ms=NOW - 9_999),
        [
            (
                "behind",
                "4 jobs come before it. At 2 jobs a second, as all servers claimed in the last minute, its turn comes in about 2s.",
            )
        ],
    ),
    "behind others, after the last worker has gone": (
        WAITING,
        JobsAhead(4),
        WORKED._replace(waiting_dequeues=0, last_dequeue_at_ms=NOW - 20_000),
        [
            (
                "behind",
                "4 jobs come before it. At 2 jobs a second, as all servers claimed in the last minute, its turn comes in about 2s. "
                "No worker asks now: the last one asked this server 20s ago.",
            )
        ],
    ),
    "unreachable": (
        None,
        None,
        WORKED._replace(paused=True),
        [
            ("shard_unreachable", "Its shard 1 is unreachable, and nothing more is known of the job."),
            ("paused", "The queue is paused."),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_facts_give_these_reasons_in_this_order(case: str) -> None:
    job, ahead, queue, said = CASES[case]
    assert [(reason.code, reason.text) for reason in reasons(NOW, job, ahead, queue, SHARD)] == said


def test_a_draining_shard_is_said_last() -> None:
    found = reasons(NOW, WAITING, NONE, WORKED._replace(paused=True), ShardFacts("2", drains=True))
    assert [reason.code for reason in found] == ["paused", "shard_drains"]
    assert found[-1].text.startswith("Its shard 2 drains")


def test_the_figures_say_what_the_text_says() -> None:
    queue = WORKED._replace(paused=True, paused_by="ops", paused_at_ms=NOW - 1)
    [paused] = reasons(NOW, WAITING, NONE, queue, SHARD)
    assert paused.figures == {"paused_by": "ops", "paused_at_ms": NOW - 1}
    later, behind = reasons(NOW, WAITING._replace(run_after_ms=NOW + 9), JobsAhead(4), WORKED, SHARD)
    assert later.figures == {"due_at_ms": NOW + 9, "due_in_ms": 9}
    assert behind.figures == {
        "jobs_ahead": 4,
        "at_least": False,
        "incomplete": False,
        "claimed_per_second": 2.0,
        "turn_in_ms": 2_000,
    }


def test_a_job_alone_tells_in_a_few_words_when_it_is_due() -> None:
    assert [None if found is None else found.brief for found in (not_due(job, NOW) for job in (FAILED_ONCE, HELD))] == [
        "retry in 1m",
        None,
    ]


def test_the_workers_of_all_servers_count_if_all_are_asked() -> None:
    here = QueueFacts(server_started_at_ms=NOW - MINUTE, servers=2)
    there = here._replace(last_dequeue_at_ms=NOW - 3 * MINUTE, server_started_at_ms=NOW - 9 * MINUTE)
    [reason] = reasons(NOW, WAITING, NONE, here.joined([here, there]), SHARD)
    assert reason.text == "No worker asks for jobs of the queue. The last one asked one of the 2 servers 3m ago."
    [reason] = reasons(NOW, WAITING, NONE, here.joined([here, here]), SHARD)
    assert reason.text == (
        "No worker asks for jobs of the queue. None has asked these 2 servers since the last of them started 1m ago."
    )
    asked = here.joined([here, there._replace(waiting_dequeues=1)])
    assert [reason.code for reason in reasons(NOW, WAITING, NONE, asked, SHARD)] == ["next"]


def test_a_server_does_not_say_that_no_worker_asks_the_others() -> None:
    here = WORKED._replace(waiting_dequeues=0, last_dequeue_at_ms=NOW - 20_000, servers=2)
    [behind] = reasons(NOW, WAITING, JobsAhead(4), here, SHARD)
    assert behind.text.endswith(
        "No worker asks this server now: the last one asked 20s ago; 2 servers share the shards."
    )
    [following] = reasons(NOW, WAITING, NONE, here, SHARD)
    assert following.text.endswith(
        "No worker waits for it at this server now. The last one asked 20s ago; 2 servers share the shards."
    )
    [behind] = reasons(NOW, WAITING, JobsAhead(4), here.joined([here, here]), SHARD)
    assert behind.text.endswith("No worker asks now: the last one asked one of the 2 servers 20s ago.")


def test_a_job_tells_how_many_on_the_former_shard_come_first() -> None:
    queue = WORKED._replace(paused=True)
    for jobs, said in (
        (1, "It waits for 1 job on shard 2,"),
        (10_000, "It waits for at least 10,000 jobs on shard 2,"),
        (None, "It waits for those on shard 2,"),
    ):
        paused, behind = reasons(NOW, WAITING, None, queue, SHARD, BehindFormer("2", jobs))
        assert (paused.code, behind.code) == ("paused", "behind_former")
        assert behind.text.startswith(said)
