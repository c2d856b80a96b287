"""Every command against a real server: what it prints, as text and as JSON, and what it did."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from pinlater.cli import exits
from pinlater.client import AsyncClient
from pinlater.client.errors import ServerUnreachable, UnknownMethod
from pinlater.domain.clock import SystemClock
from pinlater.testing import RealServer
from tests.cli.conftest import (
    COMMAND,
    PASSWORD,
    RUN_DELETED,
    RUN_DELETES,
    RUN_DELETES_JSON,
    Pinlater,
    every_command,
    on_terminal,
)


def enqueue(pinlater: Pinlater, queue: str, *bodies: str) -> list[str]:
    return pinlater.ok("job", "enqueue", queue, *(part for body in bodies for part in ("--body", body))).out.split()


def fail(pinlater: Pinlater, queue: str, *bodies: str) -> list[str]:
    """Jobs that have failed for good."""
    descriptors = enqueue(pinlater, queue, *bodies)
    pinlater.ok("job", "dequeue", queue, "--limit", str(len(bodies)))
    pinlater.ok("job", "ack", *descriptors, "--failed", "--final")
    return descriptors


def test_a_job_for_a_task_is_found_by_it(pinlater: Pinlater, queue: str) -> None:
    send = pinlater.ok("job", "enqueue", queue, "--task", "send", "--header", "tenant=a", "--body", "{}").out.strip()
    enqueue(pinlater, queue, "x")
    [job] = pinlater.ok("job", "list", queue, "--task", "send", "--json").json["jobs"]
    assert (job["descriptor"], job["headers"]) == (send, {"tenant": "a", "pinlater-task": "send"})


def test_a_job_from_enqueue_to_ack(pinlater: Pinlater, queue: str) -> None:
    descriptors = enqueue(pinlater, queue, "one", "two")
    assert pinlater.ok("job", "check-dequeue", queue, "--limit", "5").out == "Jobs available for dequeue: 2\n"
    assert pinlater.ok("job", "check-dequeue", queue, "--limit", "2").out == "Jobs available for dequeue: at least 2\n"
    assert pinlater.ok("job", "check-dequeue", queue, "--json").json == {
        "available": 1,
        "limit_reached": True,
        "paused": False,
        "descriptors": descriptors[:1],
    }
    assert [job["body"] for job in pinlater.ok("job", "peek", queue, "--json").json["jobs"]] == ["one", "two"]
    (job,) = pinlater.ok("job", "dequeue", queue, "--json").json["jobs"]
    assert (job["descriptor"], job["queue"], job["attempt"], job["attempts_allowed"]) == (descriptors[0], queue, 1, 2)
    assert job["claim_deadline_ms"] > job["created_at_ms"]
    stale = pinlater("job", "ack", descriptors[0], "--token", "of-no-claim", "--json")
    assert stale.code == 1
    assert stale.json["results"][0]["outcome"] == "STALE_CLAIM"
    assert stale.json["results"][0]["holder"]
    assert "applied" in pinlater.ok("job", "ack", descriptors[0], "--token", job["token"]).out
    assert pinlater("job", "ack", descriptors[0]).code == 1
    assert pinlater.ok("job", "count", queue, "--state", "succeeded").out == "1\n"
    assert pinlater.ok("job", "dequeue", queue, "--ack", "--body-only").out == "two"
    assert pinlater.ok("job", "count", queue, "--state", "succeeded", "--json").json == {
        "queue": queue,
        "state": "SUCCEEDED",
        "future": False,
        "count": 2,
        "incomplete": False,
    }


def test_a_failure_with_all_it_can_say(pinlater: Pinlater, queue: str) -> None:
    (descriptor,) = enqueue(pinlater, queue, "x")
    pinlater.ok("job", "dequeue", queue)
    said = ("--error-type", "Smtp", "--error-text", "mailbox full", "--status", "noted")
    pinlater.ok("job", "ack", descriptor, "--failed", "--retry-delay", "1h", *said)
    (job,) = pinlater.ok("job", "show", descriptor, "--body", "--json").json["jobs"]
    assert (job["state"], job["attempts_remaining"], job["body"], job["custom_status"]) == ("PENDING", 1, "x", "noted")
    assert (job["error_type"], job["error_text"]) == ("Smtp", "mailbox full")
    assert job["attempts"][0]["outcome"] == "failed"
    assert job["run_after_ms"] > job["created_at_ms"] + 3_500_000
    assert pinlater.ok("job", "count", queue, "--future").out == "1\n"
    shown = pinlater.ok("job", "show", descriptor).out
    assert "mailbox full" in shown
    assert re.search(r"run_after\t20\d\d-\d\d-\d\dT", shown)


def test_a_lookup_tells_when_a_job_is_due_only_while_it_waits(pinlater: Pinlater, queue: str) -> None:
    (descriptor,) = enqueue(pinlater, queue, "x")
    shown = ["run_after\t" in pinlater.ok("job", "show", descriptor).out]
    pinlater.ok("job", "dequeue", queue)
    shown.append("run_after\t" in pinlater.ok("job", "show", descriptor).out)
    pinlater.ok("job", "ack", descriptor)
    shown.append("run_after\t" in pinlater.ok("job", "show", descriptor).out)
    assert shown == [True, False, False]


def test_a_lookup_of_a_finished_job_shows_no_attempts_that_it_has_left(pinlater: Pinlater, queue: str) -> None:
    job = pinlater.ok("job", "enqueue", queue, "--body", "x", "--attempts", "5").out.strip()
    assert "attempts_remaining\t5" in pinlater.ok("job", "show", job).out
    pinlater.ok("job", "dequeue", queue)
    pinlater.ok("job", "ack", job)
    assert "attempts_remaining" not in pinlater.ok("job", "show", job).out
    assert pinlater.ok("job", "show", job, "--json").json["jobs"][0]["attempts_remaining"] == 5


def test_an_error_with_its_trace_is_one_line_in_tables_and_whole_in_a_lookup(pinlater: Pinlater, queue: str) -> None:
    (descriptor,) = enqueue(pinlater, queue, "x")
    pinlater.ok("job", "dequeue", queue)
    text = 'no such address\n  File "mails.py", line 7, in send\n\x1b[31m'
    pinlater.ok("job", "ack", descriptor, "--failed", "--final", "--error-type", "ValueError", "--error-text", text)
    (_, row) = pinlater.ok("job", "list", queue, "--state", "failed").out.splitlines()
    assert "ValueError: no such address\t" in row
    shown = pinlater.ok("job", "show", descriptor).out.splitlines()
    assert shown[-4:] == ["last error:", "no such address", '  File "mails.py", line 7, in send', "\\x1b[31m"]
    assert any(line.endswith("\tValueError: no such address") for line in shown)


def test_final_failures_are_scanned_retried_and_deleted(pinlater: Pinlater, queue: str) -> None:
    fail(pinlater, queue, "a", "b", "c")
    first = pinlater("job", "list", queue, "--state", "failed", "--limit", "2", "--body", "--json").json
    assert len(first["jobs"]) == 2
    rest = pinlater.ok(
        "job", "list", queue, "--state", "failed", "--after", first["continuation"], "--body", "--json"
    ).json
    assert {job["body"] for job in first["jobs"] + rest["jobs"]} == {"a", "b", "c"}
    assert (rest["continuation"], rest["incomplete"]) == (None, False)
    more = pinlater("job", "list", queue, "--state", "failed", "--limit", "1")
    assert (more.code, more.err.split()[:2]) == (0, ["more:", "--after"])
    assert pinlater("job", "retry", queue, "--attempts", "5", "--limit", "1").out == "retried 1 job; it is due now\n"
    assert pinlater.ok("job", "delete", queue, "--state", "failed", "--json").json == {
        "deleted": 2,
        "incomplete": False,
        "more": False,
    }
    (left,) = pinlater.ok("job", "list", queue, "--json").json["jobs"]
    assert left["attempts_remaining"] == 5
    assert pinlater.ok("job", "delete", "--descriptor", left["descriptor"]).out == "deleted 1 job\n"


def test_retries_and_deletes_are_of_all_priorities_unless_one_is_named(pinlater: Pinlater, queue: str) -> None:
    priorities = ("1", "2", "3")
    descriptors = [pinlater.ok("job", "enqueue", queue, "--body", "x", "-p", each).out.strip() for each in priorities]
    pinlater.ok("job", "dequeue", queue, "--limit", "3")
    pinlater.ok("job", "ack", *descriptors, "--failed", "--final")
    assert pinlater.ok("job", "retry", queue, "--priority", "2").out == "retried 1 job; it is due now\n"
    assert pinlater.ok("job", "retry", queue).out == "retried 2 jobs; they are due now\n"
    assert pinlater.ok("job", "delete", queue, "--state", "pending", "--priority", "3").out == "deleted 1 job\n"
    delete = ("job", "delete", queue, "--state", "pending")
    assert pinlater.ok(*delete, "--limit", "1", says=MORE).out == "deleted 1 job\n"
    assert pinlater.ok(*delete).out == "deleted 1 job\n"


MORE = "more may remain: repeat the command, or raise --limit\n"


@pytest.mark.parametrize("of_a_task", [False, True])
def test_a_retry_or_deletion_that_reached_its_limit_says_that_more_may_remain(
    pinlater: Pinlater, queue: str, of_a_task: bool
) -> None:
    named = ("--header", "pinlater-task=send")
    bodies = (part for number in range(6) for part in ("--body", str(number)))
    descriptors = pinlater.ok("job", "enqueue", queue, *named, *bodies).out.split()
    pinlater.ok("job", "dequeue", queue, "--limit", "6")
    pinlater.ok("job", "ack", *descriptors, "--failed", "--final")
    chosen = ("--task", "send") if of_a_task else ()
    retry = ("job", "retry", queue, *chosen, "--limit", "2")
    retried = pinlater(*retry)
    assert (retried.code, retried.out, retried.err) == (0, "retried 2 jobs; they are due now\n", MORE)
    assert pinlater.ok(*retry, "--json").json == {"retried": 2, "incomplete": False, "more": True}
    pinlater.ok("job", "retry", queue, *chosen, "--limit", "3")
    delete = ("job", "delete", queue, "--state", "pending", *chosen, "--limit", "4")
    assert pinlater.ok(*delete, says=(RUN_DELETED if of_a_task else "") + MORE).out == "deleted 4 jobs\n"
    rest = pinlater.ok(*delete, "--json", says=RUN_DELETES_JSON if of_a_task else "").json
    assert rest.pop("run", None) is not None or not of_a_task
    assert rest == {"deleted": 2, "incomplete": False, "more": False}


def test_a_retry_or_deletion_that_took_the_last_job_as_it_reached_its_limit_does_not_speak_of_more(
    pinlater: Pinlater, queue: str
) -> None:
    fail(pinlater, queue, "a", "b")
    assert pinlater.ok("job", "retry", queue, "--limit", "2", "--json").json["more"] is False
    deleted = pinlater.ok("job", "delete", queue, "--state", "pending", "--limit", "2", "--json").json
    assert deleted == {"deleted": 2, "incomplete": False, "more": False}


def test_cancelled_jobs_are_retried_only_if_asked(pinlater: Pinlater, queue: str) -> None:
    """They were cancelled by an operator or a program that did not want them."""
    failed, cancelled = enqueue(pinlater, queue, "a", "b")
    pinlater.ok("job", "dequeue", queue, "--limit", "2")
    pinlater.ok("job", "ack", failed, "--failed", "--final")
    pinlater("job", "cancel", cancelled)
    retried = pinlater("job", "retry", queue)
    assert (retried.code, retried.out) == (0, "retried 1 job; it is due now\n")
    assert "not retried (expired, cancelled (--cancelled takes these)" in retried.err
    assert pinlater.ok("job", "retry", queue, "--json").json == {"retried": 0, "incomplete": False, "more": False}
    assert pinlater.ok("job", "retry", queue, "--cancelled").out == "retried 1 job; it is due now\n"


def test_jobs_of_one_task_or_header_are_retried_and_deleted(pinlater: Pinlater, queue: str) -> None:
    made = [
        pinlater.ok(
            "job", "enqueue", queue, "--body", "x", "--header", f"pinlater-task={task}", "--header", f"tenant={tenant}"
        )
        for task, tenant in (("send", "acme"), ("send", "beta"), ("archive", "acme"), ("send", "acme"))
    ]
    descriptors = [done.out.strip() for done in made]
    pinlater.ok("job", "dequeue", queue, "--limit", "4")
    pinlater.ok("job", "ack", *descriptors[:3], "--failed", "--final")
    pinlater("job", "cancel", descriptors[3])
    assert (
        pinlater.ok("job", "retry", queue, "--task", "send", "--header", "tenant=acme").out
        == "retried 1 job; it is due now\n"
    )
    assert (
        pinlater("job", "retry", queue, "--task", "send", "--cancelled", "--limit", "1").out
        == "retried 1 job; it is due now\n"
    )
    assert pinlater.ok("job", "retry", queue, "--task", "send", "--cancelled", "--json").json == {
        "retried": 1,
        "incomplete": False,
        "more": False,
    }
    assert pinlater.ok("job", "retry", queue, "--error", "no such error").out == "retried 0 jobs\n"
    assert pinlater.ok("job", "list", queue, "--state", "failed", "--older-than", "1h", "--json").json["jobs"] == []
    failed, pending = ("job", "delete", queue, "--state", "failed"), ("job", "delete", queue, "--state", "pending")
    assert pinlater.ok(*failed, "--min-attempts", "9", says=RUN_DELETES).out == "deleted 0 jobs\n"
    assert pinlater.ok(*failed, "--task", "send", says=RUN_DELETES).out == "deleted 0 jobs\n"
    assert pinlater.ok(*failed, "--task", "archive", says=RUN_DELETED).out == "deleted 1 job\n"
    pinlater.ok("job", "enqueue", queue, "--body", "x", "--header", "pinlater-task=send", "--delay", "1h")
    assert pinlater.ok(*pending, "--header", "tenant=beta", says=RUN_DELETED).out == "deleted 1 job\n"
    assert pinlater.ok(*pending, "--task", "send", "--limit", "9", says=RUN_DELETED).out == "deleted 3 jobs\n"


def test_failed_jobs_are_retried_by_their_body_but_for_cancelled_ones(pinlater: Pinlater, queue: str) -> None:
    descriptors = enqueue(pinlater, queue, "red apple", "green apple", "red pear", "red plum")
    pinlater.ok("job", "dequeue", queue, "--limit", "4")
    pinlater.ok("job", "ack", *descriptors[:3], "--failed", "--final")
    pinlater("job", "cancel", descriptors[3])
    assert pinlater.ok("job", "retry", queue, "--regex", "^red").out == "retried 2 jobs; they are due now\n"
    assert pinlater.ok("job", "retry", queue, "--regex", "^red", "--cancelled").out == "retried 1 job; it is due now\n"
    assert pinlater.ok("job", "count", queue, "--state", "failed").out == "1\n"


def test_cancel(pinlater: Pinlater, queue: str) -> None:
    (descriptor,) = enqueue(pinlater, queue, "x")
    (other,) = enqueue(pinlater, queue, "y")
    assert pinlater.ok("job", "cancel", descriptor, "--json").json["results"][0]["outcome"] == "APPLIED"
    assert pinlater.ok("job", "cancel", other).out == f"cancelled {other}\n"
    again = pinlater("job", "cancel", descriptor, f"{queue}:s1:p1:1")
    assert (again.code, again.out) == (1, f"had finished before: {descriptor}\nno such job: {queue}:s1:p1:1\n")
    assert pinlater.ok("job", "show", descriptor, "--json").json["jobs"][0]["custom_status"] == "cancelled"


def test_the_cancel_of_a_running_job_names_its_holder_and_when_that_learns_of_it(
    pinlater: Pinlater, queue: str
) -> None:
    running, as_json, waiting = enqueue(pinlater, queue, "x", "y", "z")
    pinlater.ok("job", "dequeue", queue, "--limit", "2")
    holder = pinlater.ok("job", "show", running, "--json").json["jobs"][0]["holder"]
    cancelled = pinlater("job", "cancel", running, waiting)
    assert (cancelled.code, cancelled.out) == (0, f"cancelled {running}\ncancelled {waiting}\n")
    assert cancelled.err == (
        f"{running} runs on {holder} until that learns of it: with its next heartbeat, within a third of the claim timeout, or ack\n"
    )
    [result] = pinlater.ok("job", "cancel", as_json, "--json").json["results"]
    [job] = pinlater.ok("job", "show", as_json, "--json").json["jobs"]
    assert (result["outcome"], result["holder"]) == ("APPLIED", job["claim_descriptor"])
    assert result["held_since_ms"] == job["attempts"][0]["claimed_at_ms"]
    again = pinlater("job", "cancel", as_json, "--json").json["results"][0]
    assert (again["outcome"], again["holder"]) == ("ALREADY_FINAL", None)


def test_the_holder_of_an_earlier_attempt_is_not_named_by_a_cancel(pinlater: Pinlater, queue: str) -> None:
    (descriptor,) = enqueue(pinlater, queue, "x")
    pinlater.ok("job", "dequeue", queue)
    pinlater("job", "cancel", descriptor)
    pinlater.ok("job", "run-now", descriptor)
    assert pinlater.ok("job", "cancel", descriptor).out == f"cancelled {descriptor}\n"


def test_a_cancel_is_told_although_the_holder_can_not_be_looked_up(
    pinlater: Pinlater, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (descriptor,) = enqueue(pinlater, queue, "x")
    pinlater.ok("job", "dequeue", queue)
    monkeypatch.setattr(AsyncClient, "lookup", AsyncMock(side_effect=ServerUnreachable("gone")))
    assert pinlater.ok("job", "cancel", descriptor).out == f"cancelled {descriptor}\n"


def test_named_jobs_run_now(pinlater: Pinlater, queue: str) -> None:
    later, failed, held, done = (
        pinlater.ok("job", "enqueue", queue, "--body", "x", "--delay", delay).out.strip()
        for delay in ("1h", "0", "0", "0")
    )
    pinlater.ok("job", "dequeue", queue, "--limit", "3")
    pinlater.ok("job", "ack", failed, "--failed", "--final")
    pinlater.ok("job", "ack", done)
    assert pinlater.ok("job", "run-now", later).out == f"due now: {later}\n"
    assert pinlater.ok("job", "run-now", failed, "--attempts", "4", "--json").json["results"][0]["outcome"] == "APPLIED"
    left = pinlater("job", "run-now", held, done, f"{queue}:s1:p1:1")
    assert left.code == 1
    assert re.fullmatch(
        rf"held by \S+: {held}\nsucceeded before: {done}\nno such job: {queue}:s1:p1:1\n",
        left.out,
    )
    jobs = pinlater.ok("job", "list", queue, "--json").json["jobs"]
    assert {job["descriptor"]: job["attempts_remaining"] for job in jobs} == {later: 2, failed: 4}


def test_named_jobs_get_another_priority(pinlater: Pinlater, queue: str) -> None:
    later, failed, held, done = (
        pinlater.ok("job", "enqueue", queue, "--body", "x", "--delay", delay).out.strip()
        for delay in ("1h", "0", "0", "0")
    )
    pinlater.ok("job", "dequeue", queue, "--limit", "3")
    pinlater.ok("job", "ack", failed, "--failed", "--final")
    pinlater.ok("job", "ack", done)
    moved = later.replace(":p1:", ":p3:")
    assert pinlater.ok("job", "change-priority", later, "--priority", "3").out == f"moved to {moved}\n"
    assert pinlater.ok("job", "change-priority", later, "--priority", "3").out == f"moved to {moved}\n", (
        "a repeat is safe"
    )
    assert pinlater.ok("job", "change-priority", moved, "--priority", "3").out == f"has priority 3 already: {moved}\n"
    [result] = pinlater.ok("job", "change-priority", failed, "--priority", "2", "--json").json["results"]
    assert (result["outcome"], result["moved_to"]) == ("APPLIED", failed.replace(":p1:", ":p2:"))
    left = pinlater("job", "change-priority", held, done, f"{queue}:s1:p1:1", "--priority", "2")
    assert left.code == 1
    expected = rf"held by \S+: {held}\nsucceeded before: {done}\nno such job: {queue}:s1:p1:1\n"
    assert re.fullmatch(expected, left.out)
    assert pinlater("job", "show", later).code == 1
    assert pinlater("job", "change-priority", moved, "--priority", "9").err.startswith(
        "error: Priority 9 is not supported"
    )


def test_named_failed_jobs_are_retried(pinlater: Pinlater, queue: str) -> None:
    first, _ = fail(pinlater, queue, "a", "b")
    command = ("job", "retry", queue, "--descriptor", first, "--attempts", "3", "--delay", "1h")
    assert re.fullmatch(rf"retried {first}; it is due at \S+Z\n", pinlater.ok(*command).out)
    (job,) = pinlater.ok("job", "list", queue, "--future", "--json").json["jobs"]
    assert (job["descriptor"], job["attempts_remaining"]) == (first, 3)
    assert pinlater.ok("job", "count", queue, "--state", "failed").out == "1\n"


def test_bodies_come_from_options_files_and_standard_input(pinlater: Pinlater, queue: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00file")
    pinlater.ok("job", "enqueue", queue, "--body", "päper", "--body-file", str(tmp_path / "body"))
    pinlater.ok("job", "enqueue", queue, stdin=b"all\nof it\n")
    pinlater.ok("job", "enqueue", queue, "--body-file", "-", stdin=b"piped")
    pinlater.ok("job", "enqueue", queue, "--lines", stdin=b"l1\nl2\n")
    jobs = pinlater.ok("job", "dequeue", queue, "--limit", "9", "--json").json["jobs"]
    assert [job["body"] for job in jobs] == ["päper", None, "all\nof it\n", "piped", "l1", "l2"]
    assert jobs[1]["body_base64"] == "/wBmaWxl"
    assert "body_base64" not in jobs[0]
    assert pinlater("job", "enqueue", queue, "--lines").code == 2
    empty = pinlater("job", "enqueue", queue)
    assert (empty.code, "(--body '' stores an empty body)" in empty.err) == (2, True)
    pinlater.ok("job", "enqueue", queue, "--body", "")
    assert pinlater("job", "enqueue", queue, "--body-file", str(tmp_path / "none")).err.endswith(
        "No such file or directory\n"
    )


def test_more_jobs_than_a_request_may_hold(pinlater: Pinlater, queue: str) -> None:
    lines = b"\n".join(b"%d" % number for number in range(2_300))
    descriptors = pinlater.ok("job", "enqueue", queue, "--lines", "--request-key", "k", stdin=lines).out.split()
    again = pinlater.ok("job", "enqueue", queue, "--lines", "--request-key", "k", "--json", stdin=lines).json
    assert (len(set(descriptors)), again["descriptors"]) == (2_300, descriptors)
    assert pinlater.ok("job", "count", queue).out == "2300\n"


def test_every_field_of_a_job(pinlater: Pinlater, queue: str) -> None:
    first = pinlater.ok(
        *(
            "job",
            "enqueue",
            queue,
            "--body",
            "x",
            "--priority",
            "2",
            "--delay",
            "1h",
            "--attempts",
            "7",
            "--status",
            "s",
        ),
        *("--header", "a=b", "--header", "c=d=e", "--unique-key", "k", "--expires-in", "2d", "--claim-timeout", "90s"),
        "--json",
    ).json
    again = pinlater.ok("job", "enqueue", queue, "--body", "y", "--unique-key", "k", "--json").json
    assert (again["descriptors"], again["existing"]) == (first["descriptors"], [0])
    (job,) = pinlater.ok("job", "show", *first["descriptors"], "--json").json["jobs"]
    assert (job["attempts_allowed"], job["custom_status"], job["unique_key"]) == (7, "s", "k")
    assert job["headers"] == {"a": "b", "c": "d=e"}
    assert 3_500_000 < job["run_after_ms"] - job["created_at_ms"] <= 3_600_000
    assert ":p2:" in job["descriptor"]


def test_a_time_may_be_given_instead_of_a_delay(pinlater: Pinlater, queue: str) -> None:
    at = SystemClock().now_ms() + 1_000_000
    (descriptor,) = pinlater.ok("job", "enqueue", queue, "--body", "x", "--at", str(at)).out.split()
    assert pinlater.ok("job", "show", descriptor, "--json").json["jobs"][0]["run_after_ms"] == at
    in_a_hundred_days = datetime.now(UTC) + timedelta(days=100)
    pinlater.ok("job", "enqueue", queue, "--body", "x", "--at", f"{in_a_hundred_days:%Y-%m-%dT12:00:00Z}")
    assert pinlater.ok("job", "count", queue, "--future").out == "2\n"


def test_queues_are_listed_counted_paused_and_configured(pinlater: Pinlater, queue: str) -> None:
    enqueue(pinlater, queue, "x")
    assert queue in pinlater.ok("queue", "list").out.split()
    assert queue in pinlater.ok("queue", "list", "--json").json["queues"]
    (stats,) = pinlater.ok("queue", "stats", queue, "--json").json["queues"]
    assert (stats["queue"], stats["pending"], stats["enqueued_total"], stats["paused"]) == (queue, 1, 1, False)
    [counts] = stats["priorities"]
    assert (counts["priority"], counts["pending"], counts["future"]) == (1, 1, 0)
    assert counts["oldest_due_at_ms"] > 0
    assert set(stats["rates"]) == {"enqueued", "claimed", "succeeded", "failed", "retried"}
    pinlater.ok("job", "enqueue", queue, "--body", "x", "--delay", "1h")
    header, row = (line.split("\t") for line in pinlater.ok("queue", "stats", queue).out.splitlines())
    assert (header[1:3], row[:3]) == (["due", "future"], [queue, "1", "1"])
    assert pinlater.ok("queue", "pause", queue).out == f"paused {queue}\n"
    refused = pinlater("job", "dequeue", queue)
    assert (refused.code, "Dequeue rate limit exceeded" in refused.err) == (4, True)
    pinlater.ok("queue", "resume", queue)
    changed = pinlater.ok("queue", "config", queue, "--claim-timeout", "5m", "--max-backlog", "9", "--json").json
    assert (changed["claim_timeout_ms"], changed["max_backlog"], changed["failed_ttl_ms"]) == (300_000, 9, None)
    pinlater.ok("queue", "config", queue, "--max-backlog", "default", "--max-jobs-per-second", "0.5", "--burst", "3")
    now = pinlater.ok("queue", "config", queue, "--json").json
    assert (now["claim_timeout_ms"], now["max_backlog"], now["max_jobs_per_second"]) == (300_000, None, 0.5)
    assert now["burst"] == 3
    pinlater.ok("queue", "config", queue, "--after-failure", "stop", "--retry-place", "to_back")
    pinlater.ok("queue", "config", queue, "--max-in-hand-per-key", "4", "--retry-place", "default")
    now = pinlater.ok("queue", "config", queue, "--json").json
    assert (now["after_failure"], now["retry_place"], now["max_in_hand_per_key"]) == ("stop", None, 4)
    pinlater.ok("job", "enqueue", queue, "--ordering-key", "k", "--attempts", "1", "--body", "1", "--body", "2")
    held = pinlater.ok("job", "dequeue", queue, "--limit", "9", "--json").json["jobs"]
    pinlater.ok("job", "ack", "--failed", *[job["descriptor"] for job in held if job["body"] == "1"])
    assert pinlater.ok("queue", "unblock", queue, "--key", "k").out == "1 job stopped the key\n"
    assert pinlater.ok("queue", "unblock", queue, "--key", "k", "--json").json == {"jobs": 0}
    refused = pinlater("queue", "config", queue, "--after-failure", "wait")
    assert (refused.code, "after_failure must be continue or stop, not 'wait'" in refused.err) == (2, True)


def test_a_queue_is_deleted_with_the_password_from_standard_input_only(pinlater: Pinlater, queue: str) -> None:
    wrong = pinlater("queue", "delete", queue, "--password-stdin", stdin=b"wrong\n")
    assert (wrong.code, wrong.err) == (1, "error: Invalid admin password.\n")
    roles = pinlater("queue", "delete", queue, "--no-password")
    assert (roles.code, "the token must have the role admin" in roles.err) == (1, True)
    for options in ((), ("--password-stdin",)):
        none = pinlater("queue", "delete", queue, *options)
        assert (none.code, none.out, "--password-stdin" in none.err) == (2, "", True)
    pinlater.ok("queue", "delete", queue, "--password-stdin", stdin=f"{PASSWORD}\n".encode())
    assert queue not in pinlater.ok("queue", "list").out.split()


def test_changes_of_queues_say_what_they_did_as_json(pinlater: Pinlater, queue: str) -> None:
    other = f"{queue}_other"
    created = pinlater.ok("queue", "create", queue, other, "--json").json
    assert created == {"exists": [queue], "created": [other]}
    assert pinlater.ok("queue", "create", other, "--json").json == {"exists": [other], "created": []}
    assert pinlater.ok("queue", "create", other).out == f"exists {other}\n"
    assert pinlater.ok("queue", "pause", queue, other, "--json").json == {"paused": [queue, other]}
    assert pinlater.ok("queue", "resume", queue, "--json").json == {"resumed": [queue]}
    password = f"{PASSWORD}\n".encode()
    gone = pinlater.ok("queue", "delete", other, "--password-stdin", "--json", stdin=password)
    assert gone.json == {"deleted": [other], "absent": []}


def test_an_ordered_queue_is_created_and_a_queue_that_exists_keeps_its_order(pinlater: Pinlater, queue: str) -> None:
    ordered = f"{queue}_ordered"
    assert pinlater.ok("queue", "create", ordered, "--ordered").out == f"created {ordered}\n"
    for options in (["--ordered"], []):
        assert pinlater.ok("queue", "create", ordered, *options).out == f"exists {ordered}\n"
    refused = pinlater("queue", "create", queue, "--ordered")
    assert (refused.code, refused.out) == (exits.REFUSED, "")
    assert f"Queue {queue} exists, and its jobs are not in order as a whole" in refused.err
    first, second = pinlater.ok("job", "enqueue", ordered, "--body", "1", "--body", "2").out.split()
    assert f"behind {first}" in pinlater.ok("job", "explain", second).out


def test_looks_at_a_paused_queue_say_that_it_is_paused(pinlater: Pinlater, queue: str) -> None:
    """They show the jobs that a dequeue would get after `queue resume`."""
    enqueue(pinlater, queue, "one")
    assert pinlater.ok("job", "peek", queue, "--json").json["paused"] is False
    pinlater.ok("queue", "pause", queue)
    for command, shown in (("check-dequeue", "Jobs available for dequeue: 1\n"), ("peek", "one")):
        done = pinlater("job", command, queue, "--limit", "5")
        assert (done.code, done.err) == (0, "paused: a dequeue gets no jobs until `pinlater queue resume`\n")
        assert shown in done.out
        told = pinlater.ok("job", command, queue, "--limit", "5", "--json").json
        assert (told["paused"], len(told.get("jobs", told.get("descriptors")))) == (True, 1)
    assert pinlater.ok("job", "check-dequeue", queue, "--limit", "5", "--json").json["limit_reached"] is False


def test_a_look_at_a_queue_of_an_original_server_says_not_paused(
    pinlater: Pinlater, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncClient, "queue_config", AsyncMock(side_effect=UnknownMethod("getQueueConfig")))
    enqueue(pinlater, queue, "one")
    assert pinlater.ok("job", "peek", queue, "--json").json["paused"] is False


def test_the_deletion_of_a_queue_that_does_not_exist_says_absent(pinlater: Pinlater, queue: str) -> None:
    """Before it asks for a password, which would not help."""
    never = f"{queue}_never"
    for options in ((), ("--password-stdin",), ("--no-password",)):
        absent = pinlater("queue", "delete", never, *options)
        assert (absent.code, absent.out) == (0, f"absent {never}\n")
        assert absent.err == f"note: there is no queue {never} (`pinlater queue list` shows the queues)\n"
    assert pinlater("queue", "delete", never, "--json").json == {"deleted": [], "absent": [never]}


def test_the_json_names_the_queues_that_were_changed_before_a_refusal(pinlater: Pinlater, queue: str) -> None:
    done = pinlater("queue", "pause", queue, "no_such_queue", "--json")
    assert (done.code, done.json) == (1, {"paused": [queue]})
    assert "no_such_queue" in done.err


def test_load_measures_enqueues_and_dequeues(pinlater: Pinlater, queue: str) -> None:
    options = ("--queue", queue, "--num-queries", "40", "--batch-size", "5", "--concurrency", "4", "--json")
    sent = pinlater.ok("bench", "load", "--mode", "enqueue", "--body-size", "33", *options).json
    assert (sent["queries"], sent["jobs"], sent["errors"]) == (40, 200, 0)
    assert 0 < sent["latency_ms_p50"] <= sent["latency_ms_p99"] <= sent["latency_ms_max"]
    assert len(pinlater.ok("job", "peek", queue, "--json").json["jobs"][0]["body"]) == 33
    got = pinlater.ok("bench", "load", "--mode", "dequeue", "--dequeue-success-percent", "0", *options).json
    assert (got["jobs"], got["acked"], got["failed_on_purpose"]) == (200, 200, 200)
    assert pinlater.ok("job", "count", queue).out == "200\n"
    assert "jobs per second" in pinlater.ok("bench", "load", "--queue", queue, "--num-queries", "2").out


def test_load_without_end_stops_after_its_duration(pinlater: Pinlater, queue: str) -> None:
    """A duration alone bounds no number of queries."""
    done = pinlater.ok("bench", "load", "--queue", queue, "--duration", "1500ms", "--concurrency", "32", "--json").json
    assert done["seconds"] >= 1.5


@pytest.mark.parametrize("more", [("--batch-size", "10001"), ("--priority", "9"), ("--body-size", "2000000")])
def test_a_load_that_is_refused_ends_with_the_servers_words(
    pinlater: Pinlater, queue: str, more: tuple[str, str]
) -> None:
    done = pinlater("bench", "load", "--queue", queue, "--num-queries", "20", "--concurrency", "4", *more)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: ")  # behind the rates so far
    assert "unexpected" not in done.err


def test_the_originals_tool(pinlater: Pinlater) -> None:
    """Its options, and what people grep for in its output."""
    host, port = pinlater.address.split(":")
    queue = f"tool_{os.getpid()}"

    def tool(mode: str, *more: str) -> str:
        return pinlater.ok("client-tool", "--host", host, "--port", port, "--mode", mode, *more).out

    assert tool("create", "--queue", queue) == f"Created queue: {queue}\n"
    sent = tool("enqueue", "--queue", queue, "--num_queries", "3", "--batch_size", "2", "--concurrency", "2")
    assert re.fullmatch(r"(QPS: \d+ Avg Latency \(ms\): [\d.]+\n)+", sent)
    assert tool("get_job_count", "--queue", queue) == "# jobs: 6\n"
    assert tool("get_job_count", "--queue", queue, "--priority", "2") == "# jobs: 0\n"
    assert tool("get_job_count", "--queue", queue, "--job_state", "0", "--count_future_jobs", "true") == "# jobs: 0\n"
    assert tool("check_dequeue", "--queue", queue) == "Jobs available for dequeue: 1\n"
    assert f"{queue}" in tool("get_queue_names")
    assert tool("get_queue_names").startswith("Queues: [")
    (job,) = pinlater.ok("job", "peek", queue, "--limit", "1", "--json").json["jobs"]
    assert re.fullmatch(r"task_\d+", job["body"])
    found = tool("lookup", "--queue", queue, "--job_descriptor", job["descriptor"])
    assert found.startswith(f"Job: PinLaterJobInfo(jobDescriptor:{job['descriptor']}, jobState:PENDING,")
    assert job["body"] in found
    percent = ("--dequeue_success_percent", "100")
    assert "QPS: " in tool("dequeue", "--queue", queue, "--num_queries", "6", *percent)
    assert tool("get_job_count", "--queue", queue, "--job_state", "2") == "# jobs: 6\n"


def test_the_originals_tool_needs_what_its_mode_needs(pinlater: Pinlater) -> None:
    host, port = pinlater.address.split(":")
    for mode in ("create", "lookup"):
        done = pinlater("client-tool", "--host", host, "--port", port, "--mode", mode)
        assert done.code == 2
        assert "--queue" in done.err


def test_version(pinlater: Pinlater) -> None:
    alone = pinlater.ok("server", "version", "--json").json
    assert set(alone) == {"version", "python"}
    asked = pinlater.ok("server", "version", "--server", pinlater.address, "--json").json
    assert (asked["server"]["version"], asked["server"]["store_kind"]) == (alone["version"], "sqlite")


def test_settings_hash_password_backup_and_migrate_run(pinlater: Pinlater, tmp_path: Path) -> None:
    assert "thrift" in pinlater.ok("server", "settings", "--json").out
    assert pinlater("server", "hash-password", stdin=b"secret\n").code == 0
    assert (
        "secret" not in pinlater.ok("server", "hash-password", "--json", stdin=b"secret\n").json["admin_password_hash"]
    )
    store = f"sqlite:{tmp_path / 'new.db'}"
    assert pinlater("server", "migrate", "--store", store).code == 0
    assert pinlater("server", "backup", "--store", store, str(tmp_path / "copy.db")).code == 0
    assert (tmp_path / "copy.db").exists()


def test_a_missing_job_or_a_refused_request_gives_one_line_and_exit_code_1(pinlater: Pinlater, queue: str) -> None:
    for arguments in (
        ("job", "enqueue", "no_such_queue", "--body", "x"),
        ("job", "dequeue", "no_such_queue"),
        ("job", "count", "no_such_queue"),
        ("job", "count", queue, "--regex", "("),
        ("queue", "create", "no-dashes"),
        ("queue", "pause", "no_such_queue"),
        ("job", "enqueue", queue, "--body", "x", "--priority", "99"),
        ("job", "show", f"{queue}:s1:p1:1"),
        ("job", "show", "not a descriptor"),
        ("job", "cancel", "nor:this"),
    ):
        done = pinlater(*arguments)
        assert done.code == 1, arguments
        assert re.fullmatch(r"error: [^\n]+\n", done.err), arguments


def test_with_json_errors_are_json(pinlater: Pinlater, offline: Pinlater) -> None:
    refused = pinlater("job", "count", "no_such_queue", "--json")
    error = json.loads(refused.err)
    assert (refused.code, error["exit_code"], error["detail"]) == (1, 1, "QUEUE_NOT_FOUND")
    assert "no_such_queue" in error["error"]
    away = offline("queue", "list", "--json", "--timeout", "0.1")
    assert (away.code, json.loads(away.err)["exit_code"]) == (3, 3)
    assert pinlater("job", "count", "no_such_queue").err.startswith("error: ")


def test_a_wait_that_the_server_ends_early_is_said(pinlater: Pinlater, queue: str, tmp_path: Path) -> None:
    with RealServer(tmp_path, "--set", "jobs.max_wait_ms=100") as server:
        pinlater.ok("queue", "create", queue, "--server", server.address)
        early = pinlater("job", "dequeue", queue, "--wait", "5s", "--server", server.address)
        full = pinlater.ok("job", "dequeue", queue, "--wait", "100ms", "--server", server.address)
    assert (early.code, early.err[:40]) == (0, "note: the server ended the wait after 0.")
    assert full.err == ""


def test_a_server_without_an_admin_password_says_so(pinlater: Pinlater, queue: str, tmp_path: Path) -> None:
    with RealServer(tmp_path) as server:
        delete = ("queue", "delete", queue, "--server", server.address)
        pinlater.ok("queue", "create", queue, "--server", server.address)
        refused = pinlater(*delete, "--password-stdin", stdin=b"any\n")
        unasked = on_terminal(server.address, 200, False, *delete[:3], code=1)
        without = pinlater(*delete, "--no-password")
        assert queue in pinlater.ok("queue", "list", "--server", server.address).out.split()
    assert (refused.code, "has no admin password" in refused.err) == (1, True)
    assert (without.code, "without a password, the token" in without.err) == (1, False)
    assert unasked.startswith("error: This server has no admin password, so it deletes queues only for a token ")


def test_a_queue_that_the_token_is_not_for_is_not_called_absent(
    pinlater: Pinlater, offline: Pinlater, queue: str, tmp_path: Path
) -> None:
    """The list of queues, which `queue delete` reads, leaves it out."""
    tokens = str(tmp_path / "tokens.json")
    for name, pattern in (("all", "*"), ("mails", "mail*")):
        made = ("token", "create", name, "--role", "admin", "--queue", pattern, "--tokens", tokens)
        offline.ok(*made, "--output", str(tmp_path / name))
    with RealServer(tmp_path, "--tokens", tokens) as server:
        at = ("--server", server.address, "--token-file")
        pinlater.ok("queue", "create", queue, *at, str(tmp_path / "all"))
        delete = ("queue", "delete", "--no-password", *at, str(tmp_path / "mails"))
        refused = pinlater(*delete, queue)
        absent = pinlater(*delete, "mails")
    assert (refused.code, refused.out) == (1, "")
    assert f"token mails is not for queue {queue!r}" in refused.err
    assert (absent.code, absent.out) == (0, "absent mails\n")


def test_a_terminal_is_asked_for_no_password_for_a_queue_that_does_not_exist(pinlater: Pinlater) -> None:
    told = on_terminal(pinlater.address, 80, False, "queue", "delete", "never")
    assert told == "note: there is no queue never (`pinlater queue list` shows the queues)\nabsent never\n"
    assert "letters, digits" in on_terminal(pinlater.address, 200, False, "queue", "delete", "a-b", code=1)


@pytest.mark.parametrize("words", [words for words, _ in every_command()])
def test_every_command_has_help_with_an_example(pinlater: Pinlater, words: str) -> None:
    done = pinlater(*words.split(), "--help")
    assert done.code == 0
    assert f"Example: pinlater {words.removesuffix(' run')} " in " ".join(done.out.split())


def test_completion_knows_the_commands() -> None:
    environment = os.environ | {
        "_PINLATER_COMPLETE": "complete_bash",
        "COMP_WORDS": "pinlater job re",
        "COMP_CWORD": "2",
    }
    program = "import sys; sys.argv=['pinlater']; from pinlater.cli.main import main; main()"
    done = subprocess.run([COMMAND[0], "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["retry"]
