"""`pinlater audit` against a real server."""

from __future__ import annotations

import re

from tests.cli.conftest import Pinlater, on_terminal


def test_changes_of_a_queue_are_listed_newest_first(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("queue", "pause", queue)
    pinlater.ok("queue", "resume", queue)
    found = pinlater.ok("audit", queue, "--json").json
    assert [entry["operation"] for entry in found["entries"]][:2] == ["resumeQueue", "pauseQueue"]
    entry = found["entries"][0]
    assert (entry["who"], entry["queue"], entry["outcome"], entry["jobs"]) == ("no token", queue, "ok", None)
    assert (found["continuation"], found["incomplete"]) == (None, False)


def test_entries_are_filtered_by_operation_caller_and_time(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("queue", "pause", queue)
    pinlater.ok("job", "retry", queue, "--limit", "7")

    def operations(*options: str) -> list[str]:
        return [entry["operation"] for entry in pinlater.ok("audit", queue, *options, "--json").json["entries"]]

    assert operations("--operation", "pauseQueue") == ["pauseQueue"]
    assert operations("--who", "bob") == []
    assert "pauseQueue" in operations("--since", "1h", "--until", "now")
    assert operations("--until", "1h") == []
    assert operations("--since", "2099-01-01") == []


def test_a_list_that_is_cut_says_how_to_go_on(pinlater: Pinlater, queue: str) -> None:
    for _ in range(2):
        pinlater.ok("queue", "pause", queue)
    done = pinlater("audit", queue, "--operation", "pauseQueue", "--limit", "1")
    [after] = re.findall("more: --after (\\S+)", done.err)
    later = pinlater.ok("audit", queue, "--operation", "pauseQueue", "--after", after, "--json").json
    assert len(later["entries"]) == 1


def test_a_table_for_programs_has_tabs_and_arguments(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("job", "retry", queue, "--priority", "1", "--limit", "7")
    head, line = pinlater.ok("audit", queue, "--operation", "retryFailedJobs").out.splitlines()
    assert head == "time\twho\toperation\tqueue\tjobs\toutcome\targuments\tfrom\tsource\tserver"
    assert "\tno token\tretryFailedJobs\t" in line
    assert "limit=" in line


def test_a_rate_limit_that_was_removed_is_said_to_be_none(pinlater: Pinlater, queue: str) -> None:
    """Also if other settings of the queue stay."""
    pinlater.ok("queue", "config", queue, "--max-jobs-per-second", "5", "--max-backlog", "9")
    pinlater.ok("queue", "config", queue, "--max-jobs-per-second", "default")
    pinlater.ok("queue", "config", queue, "--max-backlog", "default")
    _, *lines = pinlater.ok("audit", queue, "--operation", "configureQueue").out.splitlines()
    assert [line.split("\t")[6] for line in lines] == [
        "maxJobsPerSecond=none",
        "maxJobsPerSecond=none maxBacklog=9",
        "maxJobsPerSecond=5.0 maxBacklog=9",
    ]
    newest = pinlater.ok("audit", queue, "--operation", "configureQueue", "--json").json["entries"][0]
    assert newest["arguments"] == {"maxJobsPerSecond": "null"}


def test_a_queue_without_changes_is_said_to_have_none(pinlater: Pinlater) -> None:
    said = on_terminal(pinlater.address, 80, False, "audit", "never_changed")
    assert (
        said
        == "note: there is no queue never_changed (`pinlater queue list` shows the queues)\nno entry of the audit\n"
    )
