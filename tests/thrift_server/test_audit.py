"""Administrative calls in the log: each of them, who asked for what and what became of it; no secret, and no line that a caller forged."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater.domain.errors import OutcomeUnknown, PasswordInvalid, QueueNotFound, ShardConnectionFailed
from pinlater.server.features.all import METHODS
from pinlater.server.thrift.administrative import logger
from pinlater.supervision.logs import JsonFormatter, TextFormatter
from pinlater.wire.codec import encode_call
from pinlater.wire.generated import structs as types
from tests.compiled import ttypes
from tests.thrift_server.conftest import ThriftServerUnderTest
from tests.thrift_server.fake_operations import Gate

SECRET = "open sesame"
HOSTILE = 'q"\n2026-01-01T00:00:00.000Z INFO    administrative call outcome=ok \x1b[2J\u2028\u202e' + "x" * 10_000
AUDITED = [name for name, served in METHODS.items() if served.administrative is not None]
NOT_ADMINISTRATIVE = {
    "enqueueJobs", "dequeueJobs", "ackDequeuedJobs", "ackJobs", "checkpointJobs", "checkpointJobsFenced", "heartbeatClaims",
    "releaseJobs", "lookupJobs", "getJobCount", "getQueueNames", "scanJobs", "getQueueConfig", "getQueueStats", "getServerInfo",
    "countJobs", "getSettingsInForce", "getWaitingDequeues", "getWorkers", "getCluster", "explainJob", "getQueueOwners", "getAudit",
    "getQueueHistory", "getFailures", "getBulkRuns", "listBulkRuns", "findUniqueKey",
}  # fmt: skip


def calls(queue: str = "emails") -> dict[str, dict[str, Any]]:
    """One call of each administrative method, with something in each field that the log may not hold."""
    names = [f"{queue}:s1:p1:{number}" for number in range(3)]
    return {
        "createQueue": {"name": queue},
        "ensureQueue": {"name": queue},
        "createOrderedQueue": {"name": queue},
        "deleteQueue": {"name": queue, "password": SECRET},
        "configureQueue": {"queue": queue, "config": types.QueueConfig(max_jobs_per_second=2.5, max_backlog=7)},
        "addDeployMark": {"mark": types.DeployMark(1, "v2", queue)},
        "startBulkRun": {
            "order": types.BulkOrder(
                queue, ttypes.BulkAction.DELETE, types.JobFilter(3, 1, SECRET, ["send"], {"x": SECRET}, SECRET), 2, 5.0
            )
        },
        "startLimitedBulkRun": {
            "order": types.BulkOrder(queue, ttypes.BulkAction.DELETE, types.JobFilter(3, regex=SECRET), max_jobs=9)
        },
        "stopBulkRun": {"queue": queue, "run_id": "0123456789abcdef"},
        "muteFailures": {"mute": types.FailureMute(queue, "0123456789abcdef", 7)},
        "pauseQueue": {"queue": queue},
        "resumeQueue": {"queue": queue},
        "unblockKey": {"queue": queue, "ordering_key": "key"},
        "retryFailedJobs": {"request": types.RetryRequest(queue, priority=2, limit=9, skip_cancelled=True)},
        "deleteJobs": {"request": types.DeleteRequest(queue, 3, regex=SECRET, limit=9)},
        "deleteJobsByDescriptor": {"queue": queue, "descriptors": names},
        "deleteJobsInState": {"queue": queue, "descriptors": names, "state": 3},
        "cancelJobs": {"queue": queue, "descriptors": names},
        "runJobs": {"request": types.RunJobsRequest(queue, names)},
        "changePriority": {"request": types.ChangePriorityRequest(queue, names, 3)},
    }


class Lines(logging.Handler):
    """What the log holds, as records and as both formats write it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.formatters = (JsonFormatter(), TextFormatter())
        self.texts = [io.StringIO(), io.StringIO()]

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        for formatter, text in zip(self.formatters, self.texts, strict=True):
            text.write(formatter.format(record) + "\n")

    @property
    def only(self) -> dict[str, Any]:
        [record] = self.records
        return json.loads(self.formatters[0].format(record))  # type: ignore[no-any-return]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_every_method_is_administrative_or_known_not_to_be() -> None:
    assert set(AUDITED) == set(calls()) == set(METHODS) - NOT_ADMINISTRATIVE


@pytest.mark.parametrize("method", AUDITED)
async def test_an_administrative_call_is_one_line_with_caller_method_and_outcome(
    desk: ThriftServerUnderTest, lines: Lines, method: str
) -> None:
    client = await desk.connect()
    await client.call(method, **calls()[method])
    line = lines.only
    assert (line["level"], line["event"], line["method"]) == ("info", "administrative call", method)
    assert (line["source"], line["request_id"], line["queue"]) == ("worker-1", "request-1", "emails")
    host, port = client.writer.get_extra_info("sockname")
    assert line["peer"] == f"{host}:{port}"
    affected = {"retryFailedJobs": 4, "deleteJobs": 5, "deleteJobsByDescriptor": 6, "cancelJobs": 1, "runJobs": 1}
    affected |= {"changePriority": 2, "deleteJobsInState": 6}
    assert (line["outcome"], line.get("jobs")) == ("ok", affected.get(method))


@pytest.mark.parametrize("method", AUDITED)
async def test_an_administrative_call_is_noted_with_what_the_log_shows(
    desk: ThriftServerUnderTest, lines: Lines, method: str
) -> None:
    client = await desk.connect()
    await client.call(method, **calls()[method])
    [entry] = desk.operations.noted
    line = lines.only
    assert (entry.operation, entry.queue, entry.outcome, entry.jobs) == (method, "emails", "ok", line.get("jobs"))
    assert (entry.source, entry.address, entry.roles) == ("worker-1", "127.0.0.1", [])
    assert entry.who == ("admin password" if method == "deleteQueue" else "no token")
    shown = {name: value for name, value in json.loads(entry.arguments).items() if name != "admin_password"}
    assert shown == {name: line[name] for name in shown}
    assert SECRET not in repr(entry)


async def test_a_move_to_another_priority_is_noted_with_both_descriptors(desk: ThriftServerUnderTest) -> None:
    """Nothing else leads from the one to the other. Jobs that had the priority already are not among them."""
    client = await desk.connect()
    await client.call("changePriority", **calls()["changePriority"])
    [entry] = desk.operations.noted
    assert json.loads(entry.arguments) == {
        "named": 3,
        "priority": 3,
        "moved": ["emails:s1:p2:9 to emails:s1:p3:9"],
    }


@pytest.mark.parametrize("method", AUDITED)
async def test_texts_of_a_caller_in_an_entry_are_bounded(desk: ThriftServerUnderTest, method: str) -> None:
    client = await desk.connect()
    client.writer.write(
        encode_call(method, 1, context=types.RequestContext(HOSTILE, HOSTILE), **calls(HOSTILE)[method])
    )
    await client.receive()
    [entry] = desk.operations.noted
    assert (entry.source, entry.queue) == (HOSTILE[:200], HOSTILE[:200])
    assert len(entry.arguments) < 500


async def test_the_text_of_a_mark_in_an_entry_is_bounded(desk: ThriftServerUnderTest) -> None:
    """A refused one may be as long as a frame."""
    client = await desk.connect()
    await client.call("addDeployMark", mark=types.DeployMark(1, "x" * 100_000, "emails"))
    [entry] = desk.operations.noted
    assert json.loads(entry.arguments)["text"] == "x" * 200


async def test_a_limit_that_json_has_no_number_for_is_noted_as_text(desk: ThriftServerUnderTest) -> None:
    client = await desk.connect()
    await client.call("configureQueue", queue="emails", config=types.QueueConfig(max_jobs_per_second=float("inf")))
    [entry] = desk.operations.noted
    assert json.loads(entry.arguments) == {"maxJobsPerSecond": "inf"}


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (QueueNotFound.of("emails"), "refused", "QUEUE_NOT_FOUND"),
        (ShardConnectionFailed("away"), "failed", "SHARD_CONNECTION_FAILED SHARD_UNREACHABLE"),
        (OutcomeUnknown("lost"), "unknown", "SHARD_CONNECTION_FAILED OUTCOME_UNKNOWN"),
        (RuntimeError("a bug"), "unknown", "UNKNOWN INTERNAL"),
    ],
)
async def test_an_entry_says_whether_a_call_was_refused_failed_or_is_unknown(
    desk: ThriftServerUnderTest, error: Exception, outcome: str, detail: str
) -> None:
    async def fail(name: str, *arguments: Any, **named: Any) -> None:
        raise error

    desk.operations.before = fail
    await (await desk.connect()).call("pauseQueue", queue="emails")
    [entry] = desk.operations.noted
    assert (entry.outcome, entry.detail, entry.jobs) == (outcome, detail, None)


async def test_other_calls_leave_no_line(desk: ThriftServerUnderTest, lines: Lines) -> None:
    client = await desk.connect()
    await client.call("getQueueNames")
    await client.call("enqueueJobs", request=types.EnqueueRequest("emails", [types.Job(b"x")]))
    assert lines.records == []


async def test_the_audit_log_shows_the_arguments_without_secrets(desk: ThriftServerUnderTest, lines: Lines) -> None:
    client = await desk.connect()
    for method, arguments in calls().items():
        await client.call(method, **arguments)
    shown = {record.__dict__["method"]: record.__dict__ for record in lines.records}
    assert (shown["configureQueue"]["maxJobsPerSecond"], shown["configureQueue"]["maxBacklog"]) == (2.5, 7)
    assert shown["configureQueue"].keys().isdisjoint({"claimTimeoutMillis", "defaultAttempts"})  # that it does not set
    assert (shown["retryFailedJobs"]["priority"], shown["retryFailedJobs"]["limit"]) == (2, 9)
    assert shown["retryFailedJobs"]["skipCancelled"] is True
    assert (shown["deleteJobs"]["state"], shown["deleteJobs"]["by_regex"]) == ("FAILED", True)
    assert shown["cancelJobs"]["named"] == 3
    assert shown["runJobs"]["named"] == 3
    assert (shown["changePriority"]["named"], shown["changePriority"]["priority"]) == (3, 3)
    for text in lines.texts:
        assert SECRET not in text.getvalue()


async def test_the_line_of_an_undo_has_only_what_counts_for_it(desk: ThriftServerUnderTest, lines: Lines) -> None:
    """The state and the filter of the order mean nothing there."""
    order = types.BulkOrder("emails", ttypes.BulkAction.RESTORE, types.JobFilter(0), undoes="0123456789abcdef")
    await (await desk.connect()).call("startBulkRun", order=order)
    shown = lines.only
    told = {"queue": "emails", "action": "restore", "undoes": "0123456789abcdef"}
    assert {name: shown[name] for name in told} == told
    assert not {"state", "by_regex", "by_error", "headers", "tasks", "group"} & shown.keys()


@pytest.mark.parametrize("method", AUDITED)
async def test_a_refusal_is_a_line_too(desk: ThriftServerUnderTest, lines: Lines, method: str) -> None:
    async def refuse(name: str, *arguments: Any, **named: Any) -> None:
        raise PasswordInvalid if method == "deleteQueue" else QueueNotFound.of("emails")

    desk.operations.before = refuse
    await (await desk.connect()).call(method, **calls()[method])
    assert lines.only["outcome"] == ("PASSWORD_INVALID" if method == "deleteQueue" else "QUEUE_NOT_FOUND")
    assert "jobs" not in lines.only


async def test_a_queue_that_a_task_may_not_create_has_no_entry(desk: ThriftServerUnderTest) -> None:
    """Tasks ask again; their refusals would push other entries out of the audit."""

    async def refuse(name: str, *arguments: Any, **named: Any) -> None:
        raise QueueNotFound.of("emails")

    desk.operations.before = refuse
    await (await desk.connect()).call("ensureQueue", name="emails")
    assert desk.operations.noted == []


async def test_a_failure_of_ours_and_an_overload_are_lines_too(start: Any, lines: Lines) -> None:
    desk = await start(max_concurrent_requests=1)
    gate = Gate("queue_names")
    desk.operations.before = gate
    busy = await desk.connect()
    busy.send("getQueueNames")
    await gate.arrived.wait()
    client = await desk.connect()
    await client.call("createQueue", name="emails")
    gate.open()
    await busy.receive()

    async def fail(name: str, *arguments: Any, **named: Any) -> None:
        raise RuntimeError("a bug")

    desk.operations.before = fail
    await client.call("createQueue", name="emails")
    outcomes = [(record.__dict__["outcome"], record.__dict__["detail"]) for record in lines.records]
    assert outcomes == [("UNKNOWN", "TOO_MANY_WAITING"), ("UNKNOWN", "INTERNAL")]


async def test_a_delete_by_regex_whose_caller_goes_is_a_line_too(desk: ThriftServerUnderTest, lines: Lines) -> None:
    """It may have deleted some of the jobs."""
    gate = Gate("delete_jobs")
    desk.operations.before = gate
    client = await desk.connect()
    request = types.DeleteRequest("emails", 0, 1, regex="x")
    client.send("deleteJobs", request=request)
    await gate.arrived.wait()
    client.close()
    await desk.until(lambda: desk.operations.cancelled)
    assert (lines.only["outcome"], lines.only["queue"]) == ("interrupted", "emails")


async def test_a_call_that_the_end_of_the_server_cuts_off_is_a_line_too(start: Any, lines: Lines) -> None:
    """It may or may not have taken effect; the peer is known though the connection is gone."""
    desk = await start()
    gate = Gate("delete_queue")
    desk.operations.before = gate
    client = await desk.connect()
    client.send("deleteQueue", name="emails", password=SECRET)
    await gate.arrived.wait()
    await desk.server.drain(0.01)
    await asyncio.sleep(0)
    assert (lines.only["outcome"], lines.only["queue"]) == ("interrupted", "emails")
    assert lines.only["peer"].startswith("127.0.0.1:")


@pytest.mark.parametrize("method", AUDITED)
async def test_no_name_forges_a_line_or_a_field(desk: ThriftServerUnderTest, lines: Lines, method: str) -> None:
    """Line breaks, escape sequences, direction marks and our own words, as the queue's name and as the source."""
    client = await desk.connect()
    context = types.RequestContext(HOSTILE, HOSTILE)
    client.writer.write(encode_call(method, 1, context=context, **calls(HOSTILE)[method]))
    await client.receive()
    as_json, as_text = (text.getvalue() for text in lines.texts)
    for written in (as_json, as_text):
        assert written.count("\n") == 1
        assert written.splitlines() == [written[:-1]]
        assert written[:-1].isprintable()
        assert len(written) < 20_000
    assert lines.only["outcome"] == "ok"
    assert lines.only["queue"].startswith(HOSTILE[:100])
    unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", as_text)
    assert (unquoted.count("outcome=ok"), unquoted.count("administrative call"), unquoted.count("INFO")) == (1, 1, 1)


def test_the_page_of_the_audit_names_each_call_that_has_an_entry() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "audit.md").read_text()
    assert [name for name in AUDITED if f"`{name}`" not in page] == []
