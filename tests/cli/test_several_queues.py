"""Jobs of several queues in one command: what was done before a failure is printed, too."""

from __future__ import annotations

import json

import pytest

from pinlater.cli import exits
from tests.cli.conftest import Pinlater

COMMANDS = {
    "job ack": "applied",
    "job cancel": "cancelled",
    "job run-now": "due now",
    "job change-priority --priority 1": "has priority 1 already",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_queue_that_is_missing_hides_no_result_of_the_queues_before(
    pinlater: Pinlater, queue: str, command: str
) -> None:
    job = pinlater.ok("job", "enqueue", queue, "--body", "x").out.strip()
    if command == "job ack":
        pinlater.ok("job", "dequeue", queue)
    untried = f"{queue}:s1:p1:7".replace(queue, f"{queue}_later")
    named = (*command.split(), job, "emials:s1:p1:73", untried)
    done = pinlater(*named)
    assert done.code == exits.REFUSED
    assert (job in done.out, COMMANDS[command] in done.out) == (True, True)
    note, error = done.err.splitlines()
    assert note == f"not tried: {untried}"
    assert error.startswith("error: Queue not found: emials (")

    again = pinlater(*named, "--json")
    assert (again.code, [each["descriptor"] for each in again.json["results"]]) == (exits.REFUSED, [job])
    note, error = map(json.loads, again.err.splitlines())
    assert note == {"note": f"not tried: {untried}"}
    assert (error["detail"], error["exit_code"]) == ("QUEUE_NOT_FOUND", exits.REFUSED)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_before_any_result_is_all_that_is_said(pinlater: Pinlater, command: str) -> None:
    done = pinlater(*command.split(), "emials:s1:p1:73", "--json")
    assert (done.code, done.out) == (exits.REFUSED, "")
    assert json.loads(done.err)["detail"] == "QUEUE_NOT_FOUND"


def test_results_of_several_queues_are_one_document(pinlater: Pinlater, queue: str) -> None:
    other = f"{queue}_other"
    pinlater.ok("queue", "create", other)
    jobs = [pinlater.ok("job", "enqueue", name, "--body", "x").out.strip() for name in (queue, other)]
    found = pinlater.ok("job", "cancel", *jobs, "--json").json["results"]
    assert [(each["descriptor"], each["outcome"]) for each in found] == [(job, "APPLIED") for job in jobs]
