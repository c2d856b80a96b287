"""`scan`, `lookup`, `count`, `queue stats`, `queue config`, `workers`, `cron` and completion against a real server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO
from unittest.mock import AsyncMock

import pytest

from pinlater.cli.call import CommandReply
from pinlater.cli.commands.queue import answer_config
from pinlater.client import (
    Ack,
    AsyncClient,
    BulkAction,
    BulkOrder,
    BulkRun,
    BulkRunList,
    BulkState,
    Checkpoint,
    Claim,
    Client,
    Job,
    JobCount,
    JobState,
    QueueConfig,
    QueueInfo,
    QueueStats,
    SettingsInForce,
)
from pinlater.client.errors import ServerUnreachable
from pinlater.domain.job_filter import JobFilter
from pinlater.testing import RealServer
from tests.cli.conftest import COMMAND, Pinlater, on_terminal

CRON_MODULE = """\
from pinlater import Worker

worker = Worker()


@worker.cron("0 4 * * *", queue="nightly", tz="Europe/Berlin")
def tidy_up() -> None: ...


@worker.cron("*/30 * * * * *", queue="nightly", overlap=False)
def look() -> None: ...


@worker.cron("0 7 */2 * MON", queue="nightly")
def both() -> None: ...


@worker.cron("0 7 1-31/2 * MON", queue="nightly")
def either() -> None: ...
"""


def put(address: str, queue: str, *tasks: str, **headers: str) -> list[str]:
    """A job for each task, in this order."""
    with Client(address) as client:
        return [
            client.enqueue(queue, [Job(b"x", headers={"pinlater-task": task, **headers})]).descriptors[0]
            for task in tasks
        ]


def test_a_lookup_finds_the_job_that_holds_a_unique_key(pinlater: Pinlater, queue: str) -> None:
    held = pinlater.ok("job", "enqueue", queue, "--body", "x", "--unique-key", f"order-{queue}").out.strip()
    by_key = ("job", "show", "--unique-key", f"order-{queue}")
    [job] = pinlater.ok(*by_key, "--body", "--json").json["jobs"]
    assert (job["descriptor"], job["body"]) == (held, "x")
    assert pinlater.ok(*by_key, "--queue", queue).out.startswith(f"field\tvalue\ndescriptor\t{held}\n")
    assert pinlater(*by_key, "--queue", "another-queue").err.startswith("error: Queue not found: another-queue (")
    explained = pinlater.ok("job", "explain", "--unique-key", f"order-{queue}", "--queue", queue, "--json").json
    assert [job["descriptor"] for job in explained["jobs"]] == [held]
    pinlater.ok("job", "dequeue", queue)
    pinlater.ok("job", "ack", held)
    done = pinlater(*by_key)
    assert (done.code, done.err) == (1, f"error: no job holds the unique key 'order-{queue}' now\n")


def test_a_retry_says_that_expired_jobs_stay_failed(pinlater: Pinlater, queue: str) -> None:
    [expired] = pinlater.ok("job", "enqueue", queue, "--body", "x", "--expires-in", "1ms", "--json").json["descriptors"]
    deadline = time.monotonic() + 20
    while pinlater.ok("job", "count", queue, "--state", "failed", "--json").json["count"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    retried = pinlater("job", "retry", queue)
    assert retried.out.splitlines() == ["retried 0 jobs"]
    assert (
        retried.err
        == "1 stays failed: expired, cancelled (--cancelled takes these), or another job has their unique key\n"
    )
    run = pinlater("job", "run-now", expired)
    assert run.code == 1
    assert re.fullmatch(rf"expired at \S+Z: {expired}\n", run.out)
    assert re.search(r"^expires_at\t\S+Z$", pinlater.ok("job", "show", expired).out, re.MULTILINE)


def test_a_retry_says_that_retried_jobs_may_have_failed_again(
    pinlater: Pinlater, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncClient, "retry_failed", AsyncMock(return_value=3))
    monkeypatch.setattr(AsyncClient, "count_jobs", AsyncMock(return_value=JobCount(3)))
    retried = pinlater("job", "retry", queue)
    assert (retried.out, retried.err.partition(", or not retried")[0]) == (
        "retried 3 jobs; they are due now\n",
        "3 are failed now: retried and failed again",
    )


def test_a_scan_shows_a_due_time_of_waiting_jobs_only(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("job", "enqueue", queue, "--body", "x")
    columns, waiting = (line.split("\t") for line in pinlater.ok("job", "list", queue).out.splitlines())
    pinlater.ok("job", "cancel", waiting[0])
    failed = pinlater.ok("job", "list", queue, "--state", "failed").out.splitlines()[1].split("\t")
    due = columns.index("due")
    assert (waiting[due].endswith("Z"), failed[due]) == (True, "-")


def test_a_cancelled_job_is_retried_if_it_is_named(pinlater: Pinlater, queue: str) -> None:
    [cancelled] = pinlater.ok("job", "enqueue", queue, "--body", "x", "--json").json["descriptors"]
    pinlater.ok("job", "cancel", cancelled)
    assert pinlater("job", "retry", queue).out == "retried 0 jobs\n"
    assert pinlater.ok("job", "retry", "--descriptor", cancelled).out == f"retried {cancelled}; it is due now\n"


def test_a_scan_for_a_task_goes_on_where_it_stopped_and_shows_each_job_once(pinlater: Pinlater, queue: str) -> None:
    wanted = set(put(pinlater.address, queue, *(["a", "b"] * 7))[::2])
    seen: list[str] = []
    after = "0"
    while after is not None:
        page = pinlater("job", "list", queue, "--task", "a", "--limit", "3", "--after", after, "--json").json
        assert len(page["jobs"]) <= 3
        seen += [job["descriptor"] for job in page["jobs"]]
        after = page["continuation"]
    assert len(seen) == len(set(seen))
    assert set(seen) == wanted


def test_a_scan_of_a_shard_takes_its_name_as_in_descriptors(pinlater: Pinlater, queue: str) -> None:
    [descriptor] = put(pinlater.address, queue, "send")
    for name in ("1", "s1"):
        found = pinlater.ok("job", "list", queue, "--shard", name, "--json").json["jobs"]
        assert [job["descriptor"] for job in found] == [descriptor]
    refused = pinlater("job", "list", queue, "--shard", "7")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "error: There is no shard '7'; this server has 1\n"


def test_a_scan_goes_across_queues(pinlater: Pinlater, queue: str) -> None:
    other = f"{queue}_other"
    pinlater.ok("queue", "create", other)
    task = f"task_{queue}"
    put(pinlater.address, queue, task)
    put(pinlater.address, other, task)
    both = pinlater.ok("job", "list", queue, other, "--json").json
    assert {job["descriptor"].partition(":")[0] for job in both["jobs"]} == {queue, other}
    assert (both["continuation"], both["incomplete"]) == (None, False)
    everywhere = pinlater.ok("job", "list", "--task", task, "--json").json["jobs"]
    assert {job["descriptor"].partition(":")[0] for job in everywhere} == {queue, other}
    cut = pinlater("job", "list", queue, other, "--limit", "1", "--json").json
    assert (len(cut["jobs"]), cut["incomplete"]) == (1, True)


def test_scan_and_lookup_show_task_holder_and_age(pinlater: Pinlater, queue: str) -> None:
    [descriptor] = put(pinlater.address, queue, "send")
    with Client(pinlater.address, source="worker-7") as client:
        client.dequeue(queue)
    names, row = pinlater.ok("job", "list", queue, "--state", "in_progress").out.splitlines()
    found = dict(zip(names.split("\t"), row.split("\t"), strict=True))
    assert (found["task"], found["holder"]) == ("send", "worker-7")
    assert found["age"].endswith("s")
    shown = dict(line.split("\t") for line in pinlater.ok("job", "show", descriptor).out.splitlines())
    assert (shown["task"], shown["holder"], shown["headers"]) == ("send", "worker-7", "pinlater-task=send")
    assert shown["age"].endswith("s")
    assert pinlater.ok("job", "show", descriptor, "--json").json["jobs"][0]["holder"] == "worker-7"


def test_workers_shows_workers_that_hold_jobs_and_workers_that_wait(pinlater: Pinlater, queue: str) -> None:
    put(pinlater.address, queue, "a", "b")
    with Client(pinlater.address, source="holder") as client:
        client.dequeue(queue, 2)
    waiting = subprocess.Popen([*COMMAND, "job", "dequeue", queue, "--wait", "60s", "--server", pinlater.address])
    try:
        while True:
            rows = pinlater.ok("worker", "list", queue, "--json").json["workers"]
            if sum(sum(row["waits"].values()) for row in rows) == 1:
                break
    finally:
        waiting.send_signal(signal.SIGTERM)
        waiting.wait(30)
    [holder] = [row for row in rows if row["worker"] == "holder"]
    assert (holder["holds"], holder["waits"], holder["handed_out"], holder["trouble"]) == ({queue: 2}, {}, 2, "none")
    assert [each["process"] for each in holder["processes"]] == [0]
    [poll] = [row for row in rows if row["worker"] != "holder"]
    assert (poll["holds"], poll["waits"]) == ({}, {queue: 1})
    names, *lines = pinlater.ok("worker", "list", queue).out.splitlines()
    assert names == "worker\tstate\tversion\tqueues\tholds\twaits\theard\tlost\twhy"
    assert [line.split("\t")[2] for line in lines] == ["plain client"] * 2, "neither is a worker"


def test_workers_names_a_server_that_does_not_answer(pinlater: Pinlater, queue: str) -> None:
    """The second address stands for another server."""
    with Client(pinlater.address, source="holder") as client:
        client.dequeue(queue, 1)
    servers = f"{pinlater.address},127.0.0.1:1"
    found = pinlater.ok("worker", "list", queue, "--json", "--server", servers).json
    assert [row["worker"] for row in found["workers"]] == ["holder"]
    assert found["incomplete"]
    assert found["gaps"][0].startswith("127.0.0.1:1 does not answer: ")
    shown = pinlater("worker", "list", queue, "--server", servers)
    assert (shown.code, "incomplete: 127.0.0.1:1 does not answer" in shown.err) == (0, True)


def test_cron_shows_the_timetable_with_the_next_firings(
    offline: Pinlater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cron_of_mine.py").write_text(CRON_MODULE)
    monkeypatch.chdir(tmp_path)
    done = offline.ok("worker", "cron", "cron_of_mine:worker", "--after", "2030-01-31T12:00:01Z", "--next", "2")
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert [line[-2] for line in lines[3:]] == [
        "day of month and weekday must match",
        "day of month or weekday is enough",
    ]
    assert lines[:3] == [
        ["name", "expression", "zone", "queue", "missed", "overlap", "days", "next"],
        [
            "tidy_up",
            "0 4 * * *",
            "Europe/Berlin",
            "nightly",
            "latest",
            "yes",
            "-",
            "2030-02-01T04:00:00+01:00, 2030-02-02T04:00:00+01:00",
        ],
        [
            "look",
            "*/30 * * * * *",
            "UTC",
            "nightly",
            "skip",
            "no",
            "-",
            "2030-01-31T12:00:30+00:00, 2030-01-31T12:01:00+00:00",
        ],
    ]
    found = offline.ok("worker", "cron", "cron_of_mine:worker", "--after", "2030-01-31T12:00:01Z", "--json").json[
        "cron"
    ]
    assert (found[1]["next_ms"], found[1]["overlap"]) == ([1_896_091_230_000], False)
    assert [each["days"] for each in found] == [None, None, "both", "either"]


def test_queue_config_shows_what_is_in_force_and_where_it_comes_from(pinlater: Pinlater, queue: str) -> None:
    done = pinlater.ok("queue", "config", queue, "--claim-timeout", "5m")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert rows[:4] == [
        ["setting", "in force", "from"],
        ["paused", "no", "queue"],
        ["ordered", "no", "queue"],
        ["max_jobs_per_second", "-", "not set"],
    ]
    assert ["claim_timeout", "5m", "queue"] in rows
    assert ["failed_ttl", "7d", "server (jobs.failed_ttl_ms)"] in rows
    found = pinlater.ok("queue", "config", queue, "--json").json
    assert (found["claim_timeout_ms"], found["failed_ttl_ms"]) == (300_000, None)
    assert (found["in_force"]["failed_ttl_ms"], found["origins"]["failed_ttl_ms"]) == (
        604_800_000,
        "jobs.failed_ttl_ms",
    )


def test_queue_config_says_that_a_queue_is_ordered(pinlater: Pinlater) -> None:
    pinlater.ok("queue", "create", "bookings", "--ordered")
    rows = [line.split("\t") for line in pinlater.ok("queue", "config", "bookings").out.splitlines()]
    assert ["ordered", "yes", "queue"] in rows
    assert pinlater.ok("queue", "config", "bookings", "--json").json["ordered"] is True


def test_queue_config_says_that_a_stored_value_is_not_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    """A limits file of the server overrides what `queue config` has just stored."""
    own = QueueConfig(max_jobs_per_second=100, claim_timeout_ms=60_000)
    origins = {"max_jobs_per_second": "limits file", "claim_timeout_ms": "queue"}
    in_force = SettingsInForce(own._replace(max_jobs_per_second=2.0), origins)
    answer_config(CommandReply(), QueueInfo("q", own, False), in_force)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[3] == ["max_jobs_per_second", "2.0", "limits file; the queue's own 100 is stored, but not in force"]
    assert ["claim_timeout", "1m", "queue"] in rows


@pytest.mark.parametrize(
    ("command", "head"),
    [(("queue", "stats"), "queue "), (("worker", "list"), "worker ")],
)
@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_a_line_for_each_queue(
    monkeypatch: pytest.MonkeyPatch,
    pinlater: Pinlater,
    queue: str,
    columns: int,
    command: tuple[str, ...],
    head: str,
) -> None:
    name = f"q_{queue[-8:]}"
    pinlater.ok("queue", "create", name)
    pinlater.ok("job", "enqueue", name, "--body", "x", "--body", "y")
    monkeypatch.setattr(socket, "gethostname", lambda: "app-1.example.com")  # as wide on each machine
    pinlater.ok("job", "dequeue", name)
    lines = on_terminal(pinlater.address, columns, False, *command, name).splitlines()
    assert (len(lines), lines[0].startswith(head)) == (2, True)
    assert all(len(line) <= columns for line in lines)


@pytest.mark.parametrize(
    ("command", "name"), [(("worker", "list"), "workers"), (("queue", "stats"), "queues"), (("bulk", "list"), "runs")]
)
def test_a_watch_in_json_prints_a_document_per_line(
    pinlater: Pinlater, queue: str, command: tuple[str, ...], name: str
) -> None:
    words = [*COMMAND, *command, queue, "--watch", "--json", "--every", "100ms", "--server", pinlater.address]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 130
    assert all(isinstance(one[name], list) for one in found)


def test_stats_are_shown_again_and_again_until_an_interrupt(pinlater: Pinlater, queue: str) -> None:
    command = [*COMMAND, "queue", "stats", queue, "--watch", "--every", "100ms", "--server", pinlater.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(11)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 130
    pictures = re.fullmatch(
        rf"((20\S+Z)\nqueue\t.*\n{queue}\t.*\n\n){{2}}(20\S+Z)\nqueue\t.*\n{queue}\t.*\n", "".join(lines)
    )
    assert pictures
    assert pictures[2] < pictures[3]


def test_a_watch_outlives_a_restart_of_the_server_and_says_so(tmp_path: Path) -> None:
    with RealServer(tmp_path) as server, Client(server.address) as client:
        client.create_queue("watched")
        command = [*COMMAND, "queue", "stats", "watched", "--watch", "--every", "100ms", "--server", server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            assert watch.stderr is not None
            _read_until(watch.stdout, "watched")
            server.kill()
            _read_until(watch.stderr, "no answer, still watching: ")
            assert watch.poll() is None
            server.start()
            client.enqueue("watched", [Job(b"")] * 4321)
            _read_until(watch.stdout, "4321")
            watch.send_signal(signal.SIGINT)
            watch.communicate(timeout=30)
            assert watch.returncode == 130


def _read_until(lines: IO[str], text: str) -> None:
    assert any(text in line for line in lines)


def test_a_watch_of_a_server_that_never_answered_ends_at_once(offline: Pinlater) -> None:
    assert offline("queue", "stats", "--watch", "--timeout", "0.1").code == 3


def test_a_job_that_a_worker_put_off_says_so(pinlater: Pinlater, queue: str) -> None:
    """A worker that does not know the task gives the job back with a delay."""
    [descriptor] = put(pinlater.address, queue, "newer")
    assert pinlater.ok("job", "show", descriptor, "--json").json["jobs"][0]["waits"] is None
    with Client(pinlater.address) as client:
        [job] = client.dequeue(queue, 1).jobs
        client.release(queue, [Claim(job.descriptor, job.token)], delay_ms=600_000)
    shown = pinlater.ok("job", "show", descriptor).out
    assert re.search(r"put off \d+m?s ago without an attempt, due in 9m \d+s", shown)
    assert "a worker does not know the task 'newer' (its log says so)" in shown
    told = pinlater.ok("job", "explain", descriptor).out
    assert (
        "- It was put off because a worker does not know the task 'newer' (its log says so), the task snoozed" in told
    )
    assert "without an attempt, due in 9m" in pinlater.ok("job", "list", queue, "--future").out


def test_a_job_that_waits_for_its_time_or_its_retry_says_so(pinlater: Pinlater, queue: str) -> None:
    with Client(pinlater.address) as client:
        [later] = client.enqueue(queue, [Job(b"", run_after_ms=int(time.time() * 1000) + 600_000)]).descriptors
        [failed] = client.enqueue(queue, [b""]).descriptors
        [job] = client.dequeue(queue, 1).jobs
        client.ack(queue, [Ack(job.descriptor, succeeded=False, token=job.token, retry_delay_ms=600_000)])
    shown = pinlater.ok("job", "show", later, failed, "--json").json["jobs"]
    waits = {job["descriptor"]: job["waits"] for job in shown}
    assert waits[later].startswith("due in 9m ")
    assert waits[failed].startswith("retry in 9m ")


def test_the_progress_of_a_job_is_shown_apart_from_its_status(pinlater: Pinlater, queue: str) -> None:
    descriptor = pinlater.ok("job", "enqueue", queue, "--body", "x", "--status", "of tenant 7").out.strip()
    assert "progress" not in pinlater.ok("job", "show", descriptor).out
    (job,) = pinlater.ok("job", "show", descriptor, "--json").json["jobs"]
    assert (job["progress"], job["custom_status"]) == (None, "of tenant 7")
    with Client(pinlater.address) as client:
        [claimed] = client.dequeue(queue, 1).jobs
        client.checkpoint(queue, [Checkpoint(descriptor, claimed.token, prepend_status="[progress] 40 % row 2\n")])
    rows = pinlater.ok("job", "show", descriptor).out.splitlines()
    assert "progress\t40 % row 2" in rows
    assert "custom_status\tof tenant 7" in rows
    for found in (("job", "show", descriptor), ("job", "list", queue, "--state", "in_progress")):
        (job,) = pinlater.ok(*found, "--json").json["jobs"]
        assert (job["progress"], job["custom_status"]) == ("40 % row 2", "of tenant 7")
    names, row = pinlater.ok("job", "list", queue, "--state", "in_progress").out.splitlines()
    cells = dict(zip(names.split("\t"), row.split("\t"), strict=True))
    assert (cells["progress"], cells["status"]) == ("40 % row 2", "of tenant 7")


def test_a_success_after_a_failure_shows_its_present_state_and_the_error_as_one_of_the_past(
    pinlater: Pinlater, queue: str
) -> None:
    descriptor = pinlater.ok("job", "enqueue", queue, "--body", "x").out.strip()
    with Client(pinlater.address) as client:
        [job] = client.dequeue(queue, 1).jobs
        ack = Ack(job.descriptor, succeeded=False, token=job.token, error_type="Oops", error_text="no\nframes")
        client.ack(queue, [ack])
        pinlater.ok("job", "cancel", descriptor)
        assert "cancelled" in pinlater.ok("job", "show", descriptor).out
        pinlater.ok("job", "run-now", descriptor)
        pinlater.ok("job", "dequeue", queue, "--ack")
    shown = pinlater.ok("job", "show", descriptor).out
    assert "state\tsucceeded" in shown
    assert "cancelled" not in shown
    assert "error_type" not in shown
    assert "error of an earlier attempt:\nno\nframes" in shown


def test_an_incomplete_answer_is_marked_in_table_and_json(
    pinlater: Pinlater, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server of several shards answers while one is unreachable."""
    stats_of = AsyncClient.queue_stats

    async def queue_stats(client: AsyncClient, *names: str) -> list[QueueStats]:
        return [stats._replace(incomplete=True) for stats in await stats_of(client, *names)]

    monkeypatch.setattr(AsyncClient, "count_jobs", AsyncMock(return_value=JobCount(7, incomplete=True)))
    monkeypatch.setattr(AsyncClient, "queue_stats", queue_stats)
    counted = pinlater("job", "count", queue)
    assert (counted.code, counted.out) == (0, "7\n")
    assert counted.err == "incomplete: a shard is unreachable, and its jobs are not counted\n"
    assert pinlater("job", "count", queue, "--json").json["incomplete"] is True
    stats = pinlater("queue", "stats", queue)
    assert [line.split("\t")[-1] for line in stats.out.splitlines()] == ["incomplete", "yes"]
    assert stats.err.startswith("incomplete: ")
    found = pinlater("queue", "stats", queue, "--json").json
    assert (found["incomplete"], found["queues"][0]["incomplete"]) == (True, True)


@pytest.mark.parametrize(
    ("command", "what"), [(("job", "retry"), "retried"), (("job", "delete", "--state", "failed"), "deleted")]
)
@pytest.mark.parametrize("left", [JobCount(0, incomplete=True), ServerUnreachable("gone")])
def test_changes_of_many_jobs_say_their_number_and_if_it_is_unknown_whether_all_took_part(
    pinlater: Pinlater,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    what: str,
    left: JobCount | Exception,
) -> None:
    """A shard is unreachable after the change, or the server is."""
    assert pinlater.ok(*command, queue, "--json").json == {what: 0, "incomplete": False, "more": False}
    monkeypatch.setattr(AsyncClient, "count_jobs", AsyncMock(side_effect=[left] * 2))
    changed = pinlater(*command, queue)
    assert (changed.code, changed.out) == (0, f"{what} 0 jobs\n")
    assert changed.err.startswith("incomplete: a shard is unreachable, or the server did not say")
    assert pinlater.ok(*command, queue, "--json").json == {what: 0, "incomplete": True, "more": False}


def test_completion_knows_the_queues(pinlater: Pinlater, queue: str) -> None:
    """It asks as the shell does; a server that is away completes nothing and prints nothing."""
    assert complete(pinlater.address, f"pinlater job count {queue[:10]}", 3) == [queue]
    assert complete(pinlater.address, f"pinlater queue pause {queue[:10]}", 3) == [queue]
    assert complete(pinlater.address, f"pinlater bench load --queue {queue[:10]}", 4) == [queue]
    assert complete(pinlater.address, f"pinlater worker app:worker --queues {queue[:10]}", 4) == [queue]
    assert complete(pinlater.address, f"pinlater worker app:worker --queues other,{queue[:10]}", 4) == [
        f"other,{queue}"
    ]
    assert complete("127.0.0.1:1", f"pinlater job count {queue[:10]}", 3) == []


def test_completion_asks_the_server_that_the_command_names(pinlater: Pinlater, queue: str) -> None:
    host, port = pinlater.address.split(":")
    words = f"pinlater client-tool --host {host} --port {port} --mode create --queue {queue[:10]}"
    assert complete("127.0.0.1:1", words, 9) == [queue]
    assert complete("127.0.0.1:1", f"pinlater job count --server {pinlater.address} {queue[:10]}", 5) == [queue]
    words = f"pinlater worker app:worker --server {pinlater.address} --queues {queue[:10]}"
    assert complete("127.0.0.1:1", words, 6) == [queue]


def complete(address: str, words: str, word: int) -> list[str]:
    environment = os.environ | {
        "_PINLATER_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(word),
        "PINLATER_SERVERS": address,
    }
    program = "import sys; sys.argv=['pinlater']; from pinlater.cli.main import main; main()"
    done = subprocess.run([COMMAND[0], "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_list_of_bulk_runs_says_that_a_shard_is_unreachable(
    pinlater: Pinlater, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not pinlater.ok("bulk", "list", "--json").json["incomplete"]
    nowhere = pinlater("bulk", "list", "nope")
    assert (nowhere.code, nowhere.out, "Queue not found: nope" in nowhere.err) == (1, "", True)

    monkeypatch.setattr(AsyncClient, "list_bulk_runs", AsyncMock(return_value=BulkRunList([], True, ["2", "3"])))
    done = pinlater("bulk", "list")
    assert done.err.endswith("incomplete: shards 2, 3 are unreachable, and runs that they keep may be missing\n")
    shown = pinlater("bulk", "list", "--json").json
    assert (shown["incomplete"], shown["missing_shards"]) == (True, ["2", "3"])


def test_the_list_of_bulk_runs_tells_how_far_they_are_and_when_they_end(
    pinlater: Pinlater, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = BulkOrder("mail", BulkAction.DELETE, JobFilter(JobState.FAILED))
    running = BulkRun(
        "r1", order, "ops", 1, looked=42, changed=40, to_look_at=100, expected=90, percent=42, left_ms=170_000
    )

    found = BulkRunList([running, running._replace(state=BulkState.STOPPED, left_ms=None)])
    monkeypatch.setattr(AsyncClient, "list_bulk_runs", AsyncMock(return_value=found))
    shown = pinlater.ok("bulk", "list").out
    assert shown.count("42 %, done in about 3 min") == 1
    assert shown.count("40 of about 90") == 1
    first, second = pinlater.ok("bulk", "list", "--json").json["runs"]
    assert (first["to_look_at"], first["expected"], first["percent"], first["left_ms"]) == (100, 90, 42, 170_000)
    assert (second["percent"], second["left_ms"]) == (42, None)


def test_the_list_of_bulk_runs_says_which_run_undid_another(
    pinlater: Pinlater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undo that left jobs out, failed or was stopped can be repeated."""
    deleted = BulkRun(
        "d",
        BulkOrder("mail", BulkAction.DELETE, JobFilter(JobState.FAILED)),
        "ops",
        1,
        BulkState.DONE,
        undo_until_ms=86_400_000,
    )
    undo = BulkRun("u", deleted.order._replace(action=BulkAction.RESTORE, undoes="d"), "ops", 2, BulkState.DONE)
    listing = AsyncMock()
    monkeypatch.setattr(AsyncClient, "list_bulk_runs", listing)
    for whole in (undo, undo._replace(state=BulkState.RUNNING)):
        listing.return_value = BulkRunList([whole, deleted])
        assert "undone by u" in pinlater.ok("bulk", "list").out
        assert [run["undone_by"] for run in pinlater.ok("bulk", "list", "--json").json["runs"]] == [None, "u"]
    for part in (undo._replace(detail="1 job stayed away"), undo._replace(state=BulkState.STOPPED)):
        listing.return_value = BulkRunList([part, deleted])
        assert "until 1970-01-02T00:00:00.000Z" in pinlater.ok("bulk", "list").out
        assert pinlater.ok("bulk", "list", "--json").json["runs"][1]["undone_by"] is None


def test_a_bulk_run_knows_what_the_dry_run_told(pinlater: Pinlater) -> None:
    pinlater.ok("queue", "create", "expecting")
    run = pinlater(
        "bulk", "start", "expecting", "--action", "cancel", "--state", "pending", "--expect", "7", "--json"
    ).json
    assert (run["expected"], run["order"]["expected"]) == (7, 7)


def test_bulk_commands_say_which_jobs_and_that_a_run_had_ended(pinlater: Pinlater, queue: str) -> None:
    pinlater.ok("job", "enqueue", queue, *(part for number in range(12) for part in ("--body", str(number))))
    order = ("bulk", "start", queue, "--action", "delete", "--state", "pending")
    would = pinlater(*order, "--dry-run")
    assert would.out.startswith("12 pending jobs would change\n")
    assert would.err == "these are the newest 10 of them\n"
    assert pinlater("bulk", "start", queue, "--action", "retry", "--dry-run").out == "0 failed jobs would change\n"
    begun = pinlater(*order)
    assert begun.err.startswith(f"the servers delete pending jobs of {queue} now: ")
    run = begun.out.strip()
    deadline_s = time.monotonic() + 10
    while pinlater.ok("bulk", "list", queue, "--json").json["runs"][0]["state"] != "done":
        assert time.monotonic() < deadline_s
    assert pinlater("bulk", "stop", queue, run).err == "the run had ended: there was nothing to stop\n"
