"""The traceback of a failed attempt in the worker's log: whole, from the task's own code on, without frames inside PinLater."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pydantic
import pytest

from pinlater import Reject, Retry, Snooze
from pinlater import worker as public
from pinlater.client import AsyncClient, Client, errors
from pinlater.domain import errors as domain_errors
from pinlater.supervision.logs import JsonFormatter, TextFormatter
from pinlater.worker import ClaimLost, Worker, current_job
from tests.worker import process_tasks
from tests.worker.attempts.test_attempts import FAST, running_processes
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

HEAD = "Traceback (most recent call last):"


class Mail(pydantic.BaseModel):
    to: str

    @pydantic.field_validator("to")
    @classmethod
    def has_at(cls, to: str) -> str:
        raise RuntimeError("of the user's validator")


async def failures(client: AsyncClient, worker: Worker, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of failures, once all jobs have failed."""

    def found() -> list[logging.LogRecord]:
        return [record for record in caplog.records if " failed in " in record.getMessage()]

    async with running(worker):
        await eventually(lambda: found() and worker.counts.failed == worker.counts.claimed)
    return found()


def traceback_in(record: logging.LogRecord) -> str:
    """What Python's own formatter writes below the line."""
    return logging.Formatter("").format(record).removeprefix(record.getMessage()).lstrip("\n")


def functions_in(text: str) -> list[str]:
    """Of all frames of the text."""
    return re.findall(r'^ +\|? *File ".*", line \d+, in (\w+)$', text, re.MULTILINE)


def names_a_missing_queue(worker: Worker) -> Any:
    """A task of a queue that does not exist."""

    @worker.task("missing", name="other")
    async def other(number: int) -> None: ...

    return other


def show_progress(_: Worker) -> None:
    current_job().progress(7.0)


def put_off(worker: Worker) -> None:
    names_a_missing_queue(worker).using(delay="soon")


def enqueue_into_a_missing_queue(worker: Worker) -> None:
    names_a_missing_queue(worker).enqueue(1)


def call_the_client(worker: Worker) -> None:
    with Client(str(current_job().headers["server"])) as client:
        client.dequeue("missing")


def save_what_does_not_fit(_: Worker) -> None:
    current_job().checkpoint({"how": 1, "more": 2})


def save_bytes_that_do_not_fit(_: Worker) -> None:
    current_job().checkpoint(b"1")


def reschedule_to_no_time(_: Worker) -> None:
    current_job().reschedule("soon")


def divide(_: Worker) -> None:
    1 / 0  # noqa: B018 - the shortest failure


WAYS: dict[str, tuple[Callable[[Worker], None], str]] = {
    way.__name__: (way, last)
    for way, last in (
        (divide, "ZeroDivisionError: division by zero"),
        (show_progress, "ValueError: done must be from 0 to 1, not 7.0"),
        (put_off, "ValueError: task other: delay: 'soon' "),
        (enqueue_into_a_missing_queue, "pinlater.client.errors.QueueNotFound: Queue not found: missing"),
        (call_the_client, "pinlater.client.errors.QueueNotFound: Queue not found: missing"),
        (save_what_does_not_fit, "TypeError: task fail: checkpoint() argument 'body' does not fit the task: "),
        (save_bytes_that_do_not_fit, "TypeError: task fail: checkpoint() argument 'body' does not fit the task: "),
        (reschedule_to_no_time, "ValueError: task fail: reschedule: at: 'soon' "),
    )
}


@pytest.mark.parametrize("how", WAYS)
async def test_it_ends_at_the_users_frames_for_an_error_of_the_sdk_in_a_thread(
    client: AsyncClient, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    worker = Worker(client, settings=replace(FAST, auto_create=False))

    @worker.task("q", attempts=1)
    def fail(how: str) -> None:
        WAYS[how][0](worker)

    placed = await fail.using(headers={"server": str(client.servers[0])}).enqueue_async(how)
    text = traceback_in((await failures(client, worker, caplog))[0])
    assert functions_in(text) == ["fail", how]
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert functions_in(info.error_text) == [
        "fail",
        how,
    ]  # so the console's link to the source leads to the user's line
    assert text.startswith(HEAD)
    assert text.count(HEAD) == 1
    assert WAYS[how][1] in text


async def test_so_it_does_in_a_coroutine(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(client, settings=replace(FAST, auto_create=False))
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "progress": lambda: current_job().progress_async(7.0),
        "checkpoint": lambda: current_job().checkpoint_async(b"1"),
        "enqueue": lambda: names_a_missing_queue(worker).enqueue_async(1),
        "client": lambda: client.count("missing"),
    }

    @worker.task("q", attempts=1)
    async def fail(how: str) -> None:
        async with asyncio.timeout(60):
            await ways[how]()

    for how in ways:
        await fail.enqueue_async(how)
    texts = [traceback_in(record) for record in await failures(client, worker, caplog)]
    assert [(text.count(HEAD), functions_in(text)[0], "pinlater/" in text) for text in texts] == [
        (1, "fail", False)
    ] * len(ways)


async def test_in_a_process_it_is_as_whole(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """Its exception stays in that process; the text comes over, with all lines of the error's message."""
    async with running_processes(client) as worker:
        for how in ("divide", "checkpoint", "lines"):
            await process_tasks.fail.enqueue_async(how)
        await eventually(lambda: worker.counts.failed == 3)
    records = [record for record in caplog.records if " failed in " in record.getMessage()]
    by_last_line = {text.splitlines()[-1]: text for text in map(traceback_in, records)}
    [misfit] = [last for last in by_last_line if last.startswith("TypeError: task fail: checkpoint() argument 'body'")]
    assert set(by_last_line) == {"ZeroDivisionError: division by zero", misfit, "of two lines"}
    for text in by_last_line.values():
        assert (text.splitlines()[0], text.count(HEAD)) == (HEAD, 1)
        assert functions_in(text)[0] == "fail"
        assert "/pinlater/" not in text
    assert "ValueError: a message\nof two lines" in by_last_line["of two lines"]
    for record in records:  # by the worker's own formatters, too
        assert HEAD in TextFormatter().format(record)
        assert '"traceback": "Traceback (most recent call last):' in JsonFormatter().format(record)


async def test_at_the_level_debug_it_shows_all_frames_and_causes(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pinlater.worker")
    worker = Worker(client, settings=FAST)

    @worker.task("q", attempts=1)
    def fail(how: str) -> None:
        save_what_does_not_fit(worker)

    await fail.enqueue_async("")
    text = traceback_in((await failures(client, worker, caplog))[0])
    assert text.count(HEAD) == 2
    assert set(functions_in(text)) > {"call", "fail", "save_what_does_not_fit", "checkpoint", "next_body"}


async def test_causes_and_groups_of_the_users_own_stay(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(client, settings=FAST)

    def wait() -> None:
        current_job().progress(7.0)

    @worker.task("q", attempts=1, name="cause")
    def with_cause() -> None:
        try:
            wait()
        except ValueError as error:
            raise LookupError("mine") from error

    @worker.task("q", attempts=1, name="while handling")
    def while_handling(how: str = "") -> None:
        try:
            raise KeyError("first")
        except KeyError:
            current_job().checkpoint({"what": 1})

    @worker.task("q", attempts=1, name="validator")
    def with_validator(mail: Mail | None = None) -> None:
        current_job().checkpoint({"mail": {"to": "x"}})

    @worker.task("q", attempts=1, name="group")
    def with_group() -> None:
        try:
            wait()
        except ValueError as error:
            raise ExceptionGroup("several", [error, OSError("other")]) from None

    for task in (with_cause, while_handling, with_validator, with_group):
        await task.enqueue_async()
    found = {vars(record)["task"]: traceback_in(record) for record in await failures(client, worker, caplog)}
    assert functions_in(found["cause"]) == ["with_cause", "wait", "with_cause"]
    assert "The above exception was the direct cause of the following exception" in found["cause"]
    assert functions_in(found["while handling"]) == ["while_handling", "while_handling"]
    assert found["while handling"].startswith(HEAD)
    assert "KeyError: 'first'" in found["while handling"]
    assert "of the user's validator" in found["validator"]
    assert functions_in(found["validator"])[-1] == "with_validator"
    assert "has_at" in functions_in(found["validator"])
    assert functions_in(found["group"]) == ["with_group", "with_group", "wait"]
    assert "OSError: other" in found["group"]


async def test_the_log_and_the_server_have_frames_of_libraries_and_only_the_log_has_causes(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client, settings=FAST)

    @worker.task("q", attempts=1)
    def parse() -> None:
        try:
            {"name": ""}["text"]
        except KeyError:
            Fraction("no number")

    placed = await parse.enqueue_async()
    [record] = await failures(client, worker, caplog)
    assert functions_in(traceback_in(record)) == ["parse", "parse", "__new__"]
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert functions_in(info.error_text) == ["parse", "__new__"]


async def test_a_long_text_is_cut_and_leaves_the_frames(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """Some libraries put a whole answer into their errors; the log would have it twice for each attempt."""
    worker = Worker(client, settings=FAST)

    @worker.task("q", attempts=1)
    async def fetch() -> None:
        try:
            raise KeyError("k" * 200_000)
        except KeyError as error:
            raise ValueError("é" * 100_000) from error

    placed = await fetch.enqueue_async()
    [record] = await failures(client, worker, caplog)
    mark = "… (96,050 more characters)"
    assert record.getMessage().endswith("é" + mark)
    trace = traceback_in(record)
    assert functions_in(trace) == ["fetch", "fetch"]
    assert (trace.count("more characters)"), trace.endswith("more characters)")) == (2, True)
    assert len(record.getMessage()) + len(trace) < 13_000
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert info.error_text.partition("\n")[0] == "é" * 3_950 + mark


async def test_a_frame_of_the_user_below_ours_stays(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """Of a generator that `enqueue_many` reads, for example."""
    worker = Worker(client, settings=FAST)

    @worker.task("q", name="send")
    def send(number: int) -> None: ...

    def jobs() -> Any:
        yield send.job(1)
        raise RuntimeError("no more")

    @worker.task("q", attempts=1)
    async def fail() -> None:
        await send.enqueue_many_async(jobs())

    await fail.enqueue_async()
    async with running(worker):
        record = await eventually(
            lambda: next((each for each in caplog.records if " failed in " in each.message), None)
        )
    assert functions_in(traceback_in(record))[-1] == "jobs"


async def test_an_error_that_has_no_text_harms_nothing(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    worker = Worker(client, settings=FAST)

    @worker.task("q", attempts=1)
    async def fail() -> None:
        raise Odd

    placed = await fail.enqueue_async()
    [record] = await failures(client, worker, caplog)
    assert traceback_in(record).endswith("Odd: <exception str() failed>")
    info = (await client.lookup([placed.descriptor]))[placed.descriptor]
    assert info.error_text.startswith("(no text: str() raised RuntimeError)")


@pytest.mark.parametrize("kind", [Reject, Retry, Snooze, ClaimLost, public.CantDecode, public.ProcessDied])
def test_an_error_of_the_worker_is_named_as_it_is_imported(kind: type[Exception]) -> None:
    assert f"{kind.__module__}.{kind.__qualname__}" in {f"pinlater.{kind.__name__}", f"pinlater.worker.{kind.__name__}"}


def test_errors_of_the_client_are_named_as_they_are_imported() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PinLaterError)
    ]
    assert {kind.__module__ for kind in kinds} == {"pinlater.client.errors"}
    assert errors.QueueNotFound is domain_errors.QueueNotFound
