"""`pinlater job explain` against a real server."""

from __future__ import annotations

import re
import time

from pinlater.client import Ack, Client, Job, JobState
from tests.cli.conftest import Pinlater
from tests.cli.test_looking import put


def test_explain_tells_why_jobs_wait(pinlater: Pinlater, queue: str) -> None:
    with Client(pinlater.address) as client:
        [first, second] = client.enqueue(queue, [b"", b""]).descriptors
    pinlater.ok("queue", "pause", queue)
    done = pinlater("job", "explain", first, second, f"{queue}:s1:p1:7", "--json")
    jobs = done.json["jobs"]
    assert (done.code, done.json["missing"]) == (1, [f"{queue}:s1:p1:7"])
    assert [job["descriptor"] for job in jobs] == [first, second]
    assert [reason["code"] for reason in jobs[1]["reasons"]] == ["paused", "no_worker", "behind"]
    assert jobs[1]["reasons"][2]["figures"]["jobs_ahead"] == 1
    shown = pinlater.ok("job", "explain", first).out
    assert re.search(r"^- The queue is paused by \S+, since 20\S+Z, for \d+m?s\.$", shown, re.MULTILINE)
    pinlater.ok("queue", "resume", queue)


def test_a_job_behind_another_of_its_ordering_key_names_that_one_and_is_neither_run_nor_moved(
    pinlater: Pinlater, queue: str
) -> None:
    first, _, third = [
        pinlater.ok("job", "enqueue", queue, "--ordering-key", "k", "--body", body).out.strip() for body in "abc"
    ]
    told = pinlater.ok("job", "explain", third).out
    assert f"{queue}: 2 of the future jobs wait behind others" in pinlater("queue", "stats", queue).err
    [stats] = pinlater.ok("queue", "stats", queue, "--json").json["queues"]
    assert (stats["pending"], stats["future"], stats["behind_key"]) == (3, 2, 2)
    assert (
        f"- It waits behind {first}, the first job of its ordering key 'k': 2 jobs of the key come before it." in told
    )
    refused = f"waits behind {first} of its ordering key: {third}\n"
    for change in (["run-now"], ["change-priority", "--priority", "2"]):
        done = pinlater("job", *change, third)
        assert (done.code, done.out) == (1, refused)
        [result] = pinlater("job", *change, third, "--json").json["results"]
        assert (result["outcome"], result["reason"]) == ("STALE_CLAIM", f"waits behind {first} of its ordering key")


def test_explain_tells_the_last_error_of_a_failed_job_and_what_runs_it_again(pinlater: Pinlater, queue: str) -> None:
    [descriptor] = put(pinlater.address, queue, "x")
    with Client(pinlater.address) as client:
        [job] = client.dequeue(queue).jobs
        client.ack(
            queue, [Ack(descriptor, False, token=job.token, final=True, error_type="OSError", error_text="full")]
        )
    told = pinlater.ok("job", "explain", descriptor).out
    assert "- Its last error: OSError: full\n" in told
    assert f"- `pinlater job run-now {descriptor}` runs it again.\n" in told
    [job] = pinlater.ok("job", "explain", descriptor, "--json").json["jobs"]
    assert job["notes"] == ["Its last error: OSError: full", f"`pinlater job run-now {descriptor}` runs it again."]
    pinlater.ok("job", "run-now", descriptor)
    pinlater.ok("job", "cancel", descriptor)
    told = pinlater.ok("job", "explain", descriptor).out
    assert ("last error" in told, "run-now" in told) == (False, True)


def test_explain_tells_what_runs_a_quarantined_job_again(pinlater: Pinlater, queue: str) -> None:
    """Both commands do, and an operator must not choose between them without knowing what may happen."""
    deadline_s = time.monotonic() + 60
    with Client(pinlater.address) as client:
        job = Job(b"x", headers={"pinlater-task": "resize"}, attempts_allowed=9, claim_timeout_ms=1)
        [descriptor] = client.enqueue(queue, [job]).descriptors
        while client.lookup([descriptor])[descriptor].state is not JobState.FAILED:
            assert time.monotonic() < deadline_s
            client.dequeue(queue, wait_ms=1_000)
    told = pinlater.ok("job", "explain", descriptor).out
    assert (
        f"- `pinlater job run-now {descriptor}` runs it again, and so does `pinlater job retry`, which takes quarantined jobs as other "
        "failed ones. Find out first what its workers died of: if its next claim times out on the same day, it is quarantined again.\n"
    ) in told
    assert pinlater.ok("job", "retry", queue).out == "retried 1 job; it is due now\n"


def test_explain_asks_all_servers_for_their_workers(pinlater: Pinlater, queue: str) -> None:
    """The second address stands for another server; one that does not answer is left out."""
    [descriptor] = put(pinlater.address, queue, "x")
    servers = f"{pinlater.address},127.0.0.1:1"
    assert (
        "None has asked this server since its start"
        in pinlater.ok("job", "explain", descriptor, "--server", servers).out
    )
    pinlater.ok("job", "dequeue", queue, "--limit", "1", "--json")
    assert "has claimed it until" in pinlater.ok("job", "explain", descriptor).out


def test_a_wrong_descriptor_can_not_be_explained(pinlater: Pinlater) -> None:
    assert pinlater("job", "explain", "what").code == 1
    assert pinlater("job", "explain", "missing:s1:p1:1").code == 1
