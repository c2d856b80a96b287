"""A value of a wrong type or beyond its range is refused before anything is sent, by an error that names method and argument."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from pinlater.client import (
    Ack,
    AckBatch,
    AsyncClient,
    AsyncEnqueueBatcher,
    Checkpoint,
    Claim,
    Client,
    EnqueueBatcher,
    Job,
    QueueConfig,
    UniqueKey,
    errors,
)
from pinlater.domain import errors as domain_errors
from tests.client.fake_server import FakeServer

A_MINUTE: Any = "1m"
SECONDS = 1_900_000_000
Call = Callable[[Any], Any]


def job(**fields: Any) -> Job:
    return Job(b"", **fields)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.enqueue("q", [job(run_after_ms=SECONDS)]),
        lambda client: client.enqueue("q", [job(expires_at_ms=SECONDS)]),
        lambda client: client.checkpoint("q", [Checkpoint("q:s1:p1:1", run_after_ms=SECONDS)]),
        lambda client: client.retry_failed("q", priority=1, run_after_ms=SECONDS),
        lambda client: client.run_jobs("q", ["q:s1:p1:1"], run_after_ms=SECONDS),
    ],
)
def test_a_time_in_seconds_is_refused_before_anything_is_sent(call: Call) -> None:
    """As milliseconds it would be in January 1970, and the job would run or end at once."""
    with Client("nowhere.invalid:1") as client, pytest.raises(errors.InvalidArgument, match="multiply it by 1000"):
        call(client)


WRONG_TYPES: list[tuple[Call, str]] = [
    (
        lambda client: client.enqueue("q", [b"x", job(run_after_ms=A_MINUTE)]),
        "enqueue: jobs[1].run_after_ms must be an integer of milliseconds since the epoch, not '1m'",
    ),
    (
        lambda client: client.enqueue("q", [job(claim_timeout_ms=A_MINUTE)]),
        "enqueue: jobs[0].claim_timeout_ms must be an integer of milliseconds, not '1m'",
    ),
    (
        lambda client: client.enqueue("q", [job(expires_at_ms=1.5)]),
        "enqueue: jobs[0].expires_at_ms must be an integer of milliseconds since the epoch, not float",
    ),
    (
        lambda client: client.enqueue("q", [job(attempts_allowed="3")]),
        "enqueue: jobs[0].attempts_allowed must be an integer, not '3'",
    ),
    (
        lambda client: client.enqueue("q", [job(priority="1")]),
        "enqueue: jobs[0].priority must be an integer, not '1'",
    ),
    (
        lambda client: client.enqueue("q", [job(headers={"a": 1})]),
        "enqueue: jobs[0].headers['a'] must be a text, not int",
    ),
    (
        lambda client: client.enqueue("q", [job(headers={1: "a"})]),
        "enqueue: a key of jobs[0].headers must be a text, not int",
    ),
    (
        lambda client: client.enqueue("q", [job(headers=["a"])]),
        "jobs[0].headers must be a mapping of texts by names, not ['a']",
    ),
    (
        lambda client: client.enqueue("q", [job(unique=UniqueKey(7))]),  # type: ignore[arg-type]
        "a job's unique key: key must be a string, not 7",
    ),
    (lambda client: client.enqueue(5, [b"x"]), "enqueue: queue must be a text, not int"),
    (lambda client: client.enqueue("q", 5), "jobs must be a list of jobs, not one int: enqueue(queue, [job])"),
    (
        lambda client: client.dequeue("q", wait_ms="5s"),
        "dequeue: wait_ms must be an integer of milliseconds, not '5s'; write wait_ms=5_000",
    ),
    (lambda client: client.dequeue("q", "5"), "dequeue: limit must be an integer, not '5'"),
    (
        lambda client: client.dequeue("q", acks=AckBatch("q", [Ack("q:s1:p1:1", retry_delay_ms=A_MINUTE)])),
        "dequeue: acks[...].retry_delay_ms must be an integer of milliseconds, not '1m'",
    ),
    (
        lambda client: client.ack("q", [Ack("q:s1:p1:1", succeeded=False, retry_delay_ms=A_MINUTE)]),
        "ack: acks[...].retry_delay_ms must be an integer of milliseconds, not '1m'",
    ),
    (
        lambda client: client.checkpoint("q", [Checkpoint("q:s1:p1:1", run_after_ms=A_MINUTE)]),
        "checkpoint: items[0].run_after_ms must be an integer of milliseconds since the epoch, not '1m'",
    ),
    (
        lambda client: client.checkpoint("q", ["q:s1:p1:1"]),
        "items must be a list of Checkpoint, not of str: checkpoint(queue, [Checkpoint(job.descriptor, job.token, new_body)])",
    ),
    (
        lambda client: client.heartbeat("q", 5),
        "claims must be a list of Claim, not int: [Claim(job.descriptor, job.token)]",
    ),
    (
        lambda client: client.release("q", [Claim("q:s1:p1:1", "t")], delay_ms="5s"),
        "release: delay_ms must be an integer of milliseconds, not '5s'",
    ),
    (
        lambda client: client.configure_queue("q", QueueConfig(max_jobs_per_second="5")),  # type: ignore[arg-type]
        "configure_queue: config.max_jobs_per_second must be a number, not '5'",
    ),
    (lambda client: client.scan("q", limit="5"), "scan: limit must be an integer, not '5'"),
    (lambda client: client.count("q", regex=5), "count: regex must be a text, not int"),
    (lambda client: client.run_jobs("q", ["a", 5], attempts=1), "run_jobs: descriptors[1] must be a text, not int"),
    (lambda client: client.mute_failures("q", 5), "mute_failures: group must be a text, not int"),
    (
        lambda client: client.add_mark("release", at_ms="now"),
        "add_mark: at_ms must be an integer of milliseconds since the epoch, not 'now'",
    ),
    (
        lambda client: client.queue_history("q", from_ms=1, step_s="1"),
        "queue_history: step_s must be an integer, not '1'",
    ),
]
OUT_OF_RANGE: list[tuple[Call, str]] = [
    (lambda client: client.dequeue("q", limit=0), "dequeue: limit must be at least 1, not 0"),
    (lambda client: client.dequeue("q", wait_ms=-1), "dequeue: wait_ms must be at least 0, not -1"),
    (
        lambda client: client.enqueue("q", [job(attempts_allowed=2**31)]),
        "enqueue: jobs[0].attempts_allowed must be from -2147483648 to 2147483647, not 2147483648",
    ),
    (
        lambda client: client.enqueue("q", [Job(b"", custom_status="\ud800")]),
        "enqueue: jobs[0].custom_status can't be encoded: 'utf-8' codec can't encode character '\\ud800' in position 0: "
        "surrogates not allowed",
    ),
]


async def raised_by(call: Call) -> list[Exception]:
    """What a call raises, of the async and of the sync client; nothing may reach the server."""
    caught: list[Exception] = []
    async with FakeServer() as server, AsyncClient(server.address) as asynchronous:
        with Client(server.address) as client:
            for attempt in (lambda: call(asynchronous), lambda: asyncio.to_thread(call, client)):
                try:
                    await attempt()
                except Exception as error:  # noqa: BLE001 - returned
                    caught.append(error)
        assert server.calls == []
    return caught


@pytest.mark.parametrize(("call", "message"), WRONG_TYPES)
async def test_a_value_of_a_wrong_type_is_a_type_error_that_names_it(call: Call, message: str) -> None:
    caught = await raised_by(call)
    assert [(isinstance(error, TypeError), str(error)) for error in caught] == [(True, message)] * 2


@pytest.mark.parametrize(("call", "message"), OUT_OF_RANGE)
async def test_a_value_out_of_range_is_a_value_error_that_names_it(call: Call, message: str) -> None:
    caught = await raised_by(call)
    assert [(isinstance(error, ValueError), str(error)) for error in caught] == [(True, message)] * 2


async def test_after_a_refused_call_the_client_goes_on() -> None:
    async with FakeServer(createQueue=lambda _: None) as server:

        def calls() -> None:
            with Client(server.address) as client:
                for wrong in (5, ["q"]):
                    with pytest.raises(TypeError):
                        client.create_queue(wrong)  # type: ignore[arg-type]
                client.create_queue("q")

        await asyncio.to_thread(calls)
        assert [arguments.name for arguments in server.called("createQueue")] == ["q"]


async def test_acks_alone_need_no_place_for_jobs() -> None:
    async with FakeServer() as server, AsyncClient(server.address) as client:
        with pytest.raises(errors.UnknownMethod):
            await client.dequeue("q", 0, acks=AckBatch("q", [Ack("q:s1:p1:1")]))
        assert [arguments.request.limit for arguments in server.called("dequeueJobs")] == [0]


async def test_the_batchers_name_the_value_when_the_job_is_handed_in() -> None:
    wrong, said = (
        Job(b"x", run_after_ms=A_MINUTE),
        r"^job\.run_after_ms must be an integer of milliseconds since the epoch, not '1m'$",
    )
    async with AsyncClient("127.0.0.1:1", retries=0) as asynchronous, AsyncEnqueueBatcher(asynchronous) as batcher:
        with pytest.raises(TypeError, match=said):
            await batcher.enqueue("q", wrong)
    with Client("127.0.0.1:1", retries=0) as client, EnqueueBatcher(client) as handed_in:
        with pytest.raises(TypeError, match=said):
            handed_in.submit("q", wrong)
        with pytest.raises(ValueError, match=re.escape("job.priority must be from -128 to 127, not 128")):
            handed_in.submit("q", Job(b"x", priority=128))


@pytest.mark.parametrize(
    "kind", [errors.InvalidArgument, errors.QueueNameInvalid, errors.QueueNameTooLong, errors.PriorityNotSupported]
)
def test_what_a_server_refuses_for_its_value_is_a_value_error(kind: type[Exception]) -> None:
    assert issubclass(kind, ValueError)
    assert issubclass(kind, domain_errors.CallerError)
