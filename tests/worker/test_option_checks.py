"""What a task can't be registered or enqueued with is refused there and then, with the names of task and argument."""

from __future__ import annotations

import asyncio
import inspect
import logging
import numbers
import re
import typing
from collections.abc import Callable, Iterable, Sized
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pinlater.client import AsyncClient, AsyncEnqueueBatcher, Client
from pinlater.client.errors import InvalidArgument, PriorityNotSupported, QueueNotFound
from pinlater.client.values import ClaimedJob, Job, JobState, UniqueKey, UniqueScope
from pinlater.testing import InProcessService
from pinlater.worker import (
    JsonCodec,
    Kind,
    MessagePackCodec,
    Middleware,
    Reject,
    Retry,
    Snooze,
    UnusableHandler,
    Worker,
    WorkerSettings,
    by_error,
    constant,
    exponential,
    linear,
)
from pinlater.worker.context import JobContext, ServerCalls
from pinlater.worker.durations import as_duration_ms
from pinlater.worker.option_checks import JobOptions, check_options
from pinlater.worker.other_names import TASK_OPTIONS, USING_OPTIONS
from pinlater.worker.tasks import Task
from tests.worker.conftest import eventually
from tests.worker.test_worker import running


def task_of(**options: Any) -> Task[..., Any]:
    worker = Worker()

    def send(to: object, count: int = 1) -> None: ...

    return worker.task("q", **options)(send)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"attempts": 0}, ValueError, "task send: attempts must be at least 1"),
        ({"attempts": -1}, ValueError, "task send: attempts must be at least 1"),
        ({"attempts": "3"}, TypeError, "task send: attempts must be an integer, not str"),
        ({"attempts": True}, TypeError, "task send: attempts must be an integer, not bool"),
        ({"priority": 0}, ValueError, "task send: priority must be at least 1 and at most 127, not 0"),
        ({"priority": 128}, ValueError, "task send: priority must be at least 1 and at most 127, not 128"),
        ({"claim_timeout": 0}, ValueError, "task send: claim_timeout must be more than 0"),
        ({"claim_timeout": "soon"}, ValueError, "task send: claim_timeout: 'soon' is not a duration such as"),
        (
            {"log_level": "quiet"},
            ValueError,
            "task send: log_level must be one of 'debug', 'info', 'warning', 'error', not",
        ),
        ({"time_limit": -1}, ValueError, "task send: time_limit must not be negative"),
        ({"codec": 3}, TypeError, "task send: codec must be a codec such as JsonCodec(), with a content_type, not 3"),
        ({"codec": JsonCodec}, TypeError, "task send: codec must be a codec such as JsonCodec(), with a content_type"),
        ({"name": 5}, TypeError, "a task's name must be a text that is not empty, not 5"),
        ({"name": ""}, TypeError, "a task's name must be a text that is not empty, not ''"),
    ],
)
def test_options_of_a_task_are_checked_at_registration(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        task_of(**options)


def backoff(failures: int) -> int:
    """As other job systems take it."""
    return 3 * failures


class PolicyOfOnesOwn:
    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        return 0


@pytest.mark.parametrize(
    ("retry", "shown"),
    [
        (5, "not 5"),
        (object(), "not <object"),
        (exponential, "not exponential itself: call it, as in exponential()"),
        (PolicyOfOnesOwn, "not PolicyOfOnesOwn itself: call it, as in PolicyOfOnesOwn()"),
        (
            backoff,
            "not backoff; for delays of your own, give an object with the method delay_ms(attempt, error, spread)",
        ),
        (TimeoutError, "not TimeoutError; for delays"),
    ],
)
def test_a_retry_that_is_no_policy_is_refused_at_the_registration(retry: Any, shown: str) -> None:
    """At the first failure it would be too late."""
    with pytest.raises(TypeError, match=re.escape("task send: retry must be a retry policy")) as caught:
        task_of(retry=retry)
    assert shown in str(caught.value)
    with pytest.raises(TypeError, match=re.escape("Worker(): retry must be a retry policy")):
        Worker(retry=retry)
    with pytest.raises(TypeError, match=re.escape("by_error(): the value of ValueError must be a retry policy")):
        by_error({ValueError: retry})
    with pytest.raises(TypeError, match=re.escape("by_error(): otherwise must be a retry policy")):
        by_error({}, otherwise=retry)


@pytest.mark.parametrize("kind", ["ConnectionError", int, ValueError("x")])
def test_a_policy_by_error_wants_types_of_exceptions(kind: Any) -> None:
    with pytest.raises(TypeError, match="must be a type of exception such as ConnectionError, not"):
        by_error({kind: constant(1)})


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (
            Client("localhost"),
            TypeError,
            "a worker needs an AsyncClient, or the addresses of the servers, not a Client",
        ),
        (9010, TypeError, "servers must be 'host:port', a list of such, or a path, not int"),
        (b"localhost", TypeError, "servers must be 'host:port', a list of such, or a path, not bytes"),
        ([9010], TypeError, "a server must be 'host:port', not int"),
        ("localhost:abc", ValueError, "not a server address: 'localhost:abc'; write host:port"),
        (["localhost:1", "::x"], ValueError, "not a server address: '::x'"),
    ],
)
async def test_clients_given_to_a_worker_are_checked(given: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        Worker(given)
    worker = Worker()
    worker.task("q", name="look")(lambda: None)
    with pytest.raises(kind, match=re.escape(text)):
        await worker.run_until_idle(client=given)


@pytest.mark.parametrize(
    ("make", "options", "kind", "text"),
    [
        (
            WorkerSettings,
            {"grace_ms": "10m"},
            TypeError,
            "grace_ms must be an integer of milliseconds, not '10m'; write grace_ms=600_000",
        ),
        (WorkerSettings, {"grace_ms": "10 min"}, TypeError, "not '10 min'; write grace_ms=600_000"),
        (WorkerSettings, {"wait_ms": None}, TypeError, "wait_ms must be an integer of milliseconds, not NoneType"),
        (WorkerSettings, {"stuck_ms": 0}, ValueError, "stuck_ms must be at least 1, not 0"),
        (WorkerSettings, {"recycle_jobs_max": 1.5}, TypeError, "recycle_jobs_max must be an integer, not float"),
        (WorkerSettings, {"health_port": 65_536}, ValueError, "health_port must be at most 65535, not 65536"),
        (WorkerSettings, {"health_host": None}, TypeError, "health_host must be an address, not NoneType"),
        (WorkerSettings, {"auto_create": "no"}, TypeError, "auto_create must be True or False, not 'no'"),
        (Worker, {"concurrency": "3"}, TypeError, "concurrency must be an integer, not '3'"),
        (Worker, {"settings": {"concurrency": 3}}, TypeError, "settings must be WorkerSettings(...), not dict"),
        (Worker, {"concurrency": True}, TypeError, "concurrency must be an integer, not bool"),
        (
            Worker().queue,
            {"name": "emails", "concurrency": 0},
            ValueError,
            "queue emails: concurrency must be at least 1, not 0",
        ),
        (
            Worker().queue,
            {"name": "emails", "weight": "2"},
            TypeError,
            "queue emails: weight must be an integer, not '2'",
        ),
        (task_of, {"concurrency": 0}, ValueError, "queue q: concurrency must be at least 1, not 0"),
        (
            Client,
            {"timeout_ms": "10s"},
            TypeError,
            "timeout_ms must be an integer of milliseconds, not '10s'; write timeout_ms=10_000",
        ),
        (Client, {"retries": -1}, ValueError, "retries must be at least 0, not -1"),
        (AsyncClient, {"connections": 0}, ValueError, "connections must be at least 1, not 0"),
        (AsyncClient, {"source": 7}, TypeError, "source must be a text, not int"),
        (AsyncClient, {"request_keys": "yes"}, TypeError, "request_keys must be True or False, not 'yes'"),
        (
            AsyncEnqueueBatcher,
            {"client": AsyncClient(), "jobs_max": "9"},
            TypeError,
            "jobs_max must be an integer, not '9'",
        ),
        (
            AsyncEnqueueBatcher,
            {"client": AsyncClient(), "waiting_max": 0},
            ValueError,
            "waiting_max must be at least 1",
        ),
    ],
)
def test_settings_of_the_wrong_type_or_size_are_refused_at_the_construction(
    make: Callable[..., object], options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        make(**options)


@pytest.mark.parametrize("unique", ["", UniqueKey("")])
def test_an_empty_unique_key_is_refused(unique: str | UniqueKey) -> None:
    """It would be no key at all, and each enqueue another job."""
    with pytest.raises(ValueError, match="task send: unique must not be empty"):
        task_of().using(unique=unique)
    with InProcessService() as service, pytest.raises(InvalidArgument, match="a unique key must not be empty"):
        service.client.enqueue("q", [Job(b"x", unique=UniqueKey(""))])


def test_delays_of_policies_are_durations() -> None:
    """Seconds, timedeltas and texts, as everywhere."""
    error = ValueError()
    assert constant("5m").delay_ms(1, error, 0.5) == 300_000
    assert linear(1, step="2s", max="5s").delay_ms(9, error, 0.5) == 5_000
    assert exponential(timedelta(seconds=1), max=timedelta(seconds=3)).delay_ms(9, error, 0.5) == 3_000
    assert exponential(1, max=float("inf")).delay_ms(3, error, 0.5) == 4_000
    with pytest.raises(ValueError, match="max: 'soon' is not a duration such as"):
        exponential(max="soon")
    with pytest.raises(TypeError, match="seconds must be seconds, a timedelta or text"):
        constant(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"expression": "* * *"}, "not a cron expression"),
        ({"expression": "* * * * *", "tz": "Mars/Base"}, "no such time zone"),
        ({"expression": "* * * * *", "look_back": "soon"}, "look_back: 'soon' is not a duration"),
        ({"expression": "* * * * *", "missed": "no"}, "missed must be one of 'skip', 'latest', 'all', not 'no'"),
        ({"expression": "* * * * *", "name": "taken"}, "there is a cron entry called 'taken' already"),
    ],
)
async def test_a_cron_entry_that_is_refused_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture, wrong: dict[str, Any], text: str
) -> None:
    """In a notebook, a corrected second try would fail because the task of the first one is there."""
    worker = Worker()
    worker.cron("* * * * *", name="taken")(worker.task("q")(_sweep))

    def tick() -> None: ...

    with pytest.raises(ValueError, match=re.escape(text)):
        worker.cron(**{"queue": "ticks", "concurrency": 2, **wrong})(tick)
    assert list(worker.queues) == ["q"]
    worker.cron("* * * * *", queue="ticks", look_back="2h")(tick)
    assert (list(worker.queues), worker.cron_entries[-1].look_back) == (["q", "ticks"], timedelta(hours=2))
    assert "concurrency" not in (await queue_lines(worker, caplog))["ticks"]


def _sweep() -> None: ...


async def queue_lines(worker: Worker, caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    """What the worker's log says of each queue at the start."""
    caplog.set_level(logging.INFO, "pinlater.worker")
    with InProcessService() as service, service.serving(worker):
        async with running(worker):
            await eventually(
                lambda: len([line for line in caplog.messages if line.startswith("queue ")]) == len(worker.queues)
            )
    said = [(record.getMessage().removeprefix("queue "), vars(record)) for record in caplog.records]
    return {queue: fields for queue, fields in said if queue in worker.queues}


def test_a_state_or_a_unique_key_of_the_wrong_type_is_named() -> None:
    key: Any = UniqueKey("k", "TIME", 5)  # type: ignore[arg-type]
    for_an_hour: Any = UniqueKey("k", UniqueScope.TIME, "1h")  # type: ignore[arg-type]
    no_text: Any = UniqueKey(["k"])  # type: ignore[arg-type]
    text, span = "key must be a string, not ['k']", "for_ms must be an integer"
    scope = "scope must be a UniqueScope such as UniqueScope.TIME, not 'TIME'"
    for unique, told in ((no_text, text), (key, scope), (for_an_hour, span)):
        with pytest.raises(TypeError, match=f"task send: unique: {re.escape(told)}"):
            task_of().using(unique=unique)
    with InProcessService() as service:
        service.client.create_queue("q")
        for unique, told in ((no_text, text), (key, scope), (for_an_hour, span)):
            with pytest.raises(TypeError, match=re.escape(told)):
                service.client.enqueue("q", [Job(b"x", unique=unique)])
        failed: Any = "failed"
        for call in (service.client.count, service.client.scan, service.client.delete_jobs):
            with pytest.raises(TypeError, match=r"state must be a JobState such as JobState\.FAILED, not 'failed'"):
                call("q", failed)


def test_a_task_with_arguments_is_no_cron_task_and_is_not_registered() -> None:
    worker = Worker()
    with pytest.raises(ValueError, match="task send needs arguments, so it can't be a cron task"):

        @worker.cron("* * * * *")  # type: ignore[arg-type]
        def send(to: str) -> None: ...

    assert worker.queues == ()


async def test_a_refused_task_changes_no_setting_of_its_queue(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker()
    worker.task("q", name="sweep", concurrency=3)(_sweep)
    with pytest.raises(ValueError, match="attempts must be at least 1"):
        worker.task("q", concurrency=1, attempts=0)(_sweep)
    assert (await queue_lines(worker, caplog))["q"]["concurrency"] == 3


def test_enqueue_many_refuses_jobs_of_a_task_that_its_queue_does_not_have() -> None:
    """A worker would give them back for ever. The queue's other tasks, and jobs that name no task, are welcome."""
    worker = Worker()

    @worker.task("mails", default=True)
    def welcome(name: str) -> None: ...

    @worker.task("mails")
    def tips(name: str) -> None: ...

    @worker.task("images")
    def thumbnail(name: str) -> None: ...

    with InProcessService() as service, service.serving(worker):
        with pytest.raises(
            TypeError, match=re.escape("jobs[1] is a job of task thumbnail, which queue mails does not")
        ):
            welcome.enqueue_many([welcome.job("x"), thumbnail.job("x")])
        assert service.client.count("mails") == 0
        welcome.enqueue_many([welcome.job("x"), tips.job("x"), Job(b"{}", headers={"a": "b"}), Job(b"{}")])
        assert service.client.count("mails") == 4


async def test_enqueue_many_refuses_one_job_in_place_of_a_list() -> None:
    """Its fields would be taken for jobs."""
    send = Worker("127.0.0.1:1").task("q", name="send")(lambda: None)
    with pytest.raises(TypeError, match=r"^jobs must be a list of jobs, not one Job: enqueue_many\(\[job\]\)$"):
        send.enqueue_many(send.job())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^jobs must be a list of jobs, not one Job: enqueue_many_async\(\[job\]\)$"):
        await send.enqueue_many_async(send.job())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not one NoneType: enqueue_many"):
        send.enqueue_many(None)  # type: ignore[arg-type]


def at_a_task(option: str) -> object:
    return task_of(**{option: 3})


def at_an_entry(option: str) -> object:
    return Worker().cron("* * * * *", **{option: 3})(_sweep)  # type: ignore[arg-type]


def in_using(option: str) -> object:
    return task_of().using(**{option: 3})  # type: ignore[arg-type]


def at_a_worker(argument: str) -> object:
    return Worker(**{argument: 3})  # type: ignore[arg-type]


def in_a_call(argument: str) -> object:
    return task_of().enqueue("x", **{argument: 3})


def of_a_retry(argument: str) -> object:
    return Retry(**{argument: 3})  # type: ignore[arg-type]


def of_a_snooze(argument: str) -> object:
    return Snooze(**{argument: 3})


def of_a_task(method: str) -> object:
    return getattr(task_of(), method)


def of_a_task_with_options(method: str) -> object:
    return getattr(task_of().using(delay=5), method)


WITH_RETRY = "write @worker.task(..., retry=exponential() or by_error({...}))"
UNKNOWN: list[tuple[Callable[[str], object], dict[str, str]]] = [
    (
        at_a_worker,
        {
            "concurency": "did you mean concurrency?",
            "grace_ms": "write Worker(settings=WorkerSettings(grace_ms=...))",
            "auto_create": "write Worker(settings=WorkerSettings(auto_create=...))",
            "attempts": "write @worker.task(..., attempts=...)",
            "max_retries": "write @worker.task(..., attempts=...)",
            "broker_url": "has no argument 'broker_url'",
        },
    ),
    (
        at_a_task,
        {
            "max_retries": "write @worker.task(..., attempts=...), which counts the first attempt too",
            "actor_name": "write @worker.task(..., name=...)",
            "countdown": "write task.using(delay=...).enqueue(...)",
            "at": "write task.using(at=...).enqueue(...)",
            "soft_time_limit": "write @worker.task(..., time_limit=...)",
            "autoretry_for": WITH_RETRY,
            "retry_backoff": WITH_RETRY,
            "bind": "leave it out; the task calls current_job()",
            "rate_limit": "limit the queue: pinlater queue config QUEUE --max-jobs-per-second N",
            "atempts": "did you mean attempts?",
        },
    ),
    (
        at_an_entry,
        {
            "every": "write an expression, such as @worker.cron('*/5 * * * *')",
            "timezone": "write @worker.cron(..., tz=...)",
            "missd": "did you mean missed?",
            "max_retries": "write @worker.cron(..., attempts=...), which counts the first attempt too",
            "countdown": "write task.using(delay=...).enqueue(...)",
        },
    ),
    (
        in_using,
        {
            "max_retries": "write using(attempts=...), which counts the first attempt too",
            "countdown": "write using(delay=...)",
            "eta": "write using(at=...)",
            "time_limit": "write @worker.task(..., time_limit=...), for all jobs of the task",
            "actor_name": "write @worker.task(..., name=...), for all jobs of the task",
            "acks_late": "leave it out; a job is acknowledged after its task, always",
            "dealy": "did you mean delay?",
        },
    ),
    (
        in_a_call,
        {
            "countdown": "write task.using(delay=...).enqueue(...)",
            "time_limit": "write @worker.task(..., time_limit=...), for all jobs of the task",
            "subject": "argument 'subject'",
        },
    ),
    (
        of_a_retry,
        {
            "countdown": "write Retry(after=...), in seconds from now",
            "delay": "write Retry(after=...), in seconds from now",
            "max_retries": "write @worker.task(..., attempts=...), which counts the first attempt too",
            "other": "Retry() has no argument 'other'",
        },
    ),
    (of_a_snooze, {"countdown": "write Snooze(delay=...), in seconds from now"}),
    (
        of_a_task,
        {
            "delay": "write task.enqueue(...)",
            "s": "write task.job(...), and task.enqueue_many([...]) to enqueue it",
            "enqeue": "a task has no 'enqeue'",
        },
    ),
    (
        of_a_task_with_options,
        {
            "enqueue_many": "write later = task.using(...), and task.enqueue_many([later.job(...), ...])",
            "delay": "write task.using(...).enqueue(...)",
            "nothing": "a task with options has no 'nothing'",
        },
    ),
]


@pytest.mark.parametrize(
    ("use", "name", "told"), [(use, name, told) for use, names in UNKNOWN for name, told in names.items()]
)
def test_a_name_that_is_unknown_here_says_what_to_write(use: Callable[[str], object], name: str, told: str) -> None:
    """Other job systems have some of them."""
    with pytest.raises((TypeError, AttributeError), match=f"{re.escape(told)}$") as raised:
        use(name)
    assert repr(name) in str(raised.value)


def test_an_argument_of_the_function_may_have_the_name_of_an_option() -> None:
    def remind(to: str, delay: int) -> None: ...

    assert Worker().task("q")(remind).job("x", delay=3).body == b'{"to":"x","delay":3}'
    assert not hasattr(task_of(), "nothing")


def parameters_of(method: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters) - {"self", "unknown"}


def test_the_hints_know_all_options() -> None:
    assert parameters_of(Worker.task) == TASK_OPTIONS
    assert parameters_of(Task.using) == USING_OPTIONS


def test_workers_tasks_and_clients_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(["jobs1:9010", "jobs2:9010"])
    assert repr(worker) == "<Worker of jobs1:9010, jobs2:9010: no task>"
    send = worker.task("mails", name="send")(lambda: None)
    worker.task("mails", name="bill")(lambda: None)
    worker.task("images", name="resize")(lambda: None)
    assert repr(worker) == "<Worker of jobs1:9010, jobs2:9010: mails (send, bill), images (resize)>"
    assert repr(Worker(AsyncClient("jobs1"))) == "<Worker of jobs1:9010: no task>"
    monkeypatch.setenv("PINLATER_SERVERS", "jobs9:7")
    assert repr(Worker()) == "<Worker of jobs9:7: no task>"
    assert (repr(Client("jobs1,jobs2:1")), repr(AsyncClient("[::1]:7"))) == (
        "<Client of jobs1:9010, jobs2:1>",
        "<AsyncClient of [::1]:7>",
    )
    assert repr(send) == "<task send on mails>"
    assert repr(send.using(delay="5m", priority=2)) == "<task send on mails, using delay='5m', priority=2>"
    assert repr(send.using()) == "<task send on mails, using no option>"
    with InProcessService() as service, service.serving(worker):
        assert repr(worker).startswith("<Worker of a service of pinlater.testing: mails (send, bill)")
    job = ClaimedJob("mails:s1:p1:7", "mails", b"", attempt=2)
    context = JobContext(job, "send", ServerCalls(lambda: 0), lambda value, method: b"")
    assert repr(context) == "<job mails:s1:p1:7 of task send, attempt 2>"


@pytest.mark.parametrize("name", ["", "a-b", "süß", "x" * 65, "a b"])
def test_a_bad_queue_name_is_refused_with_the_rule(name: str) -> None:
    for register in (Worker().handler, Worker().queue):
        with pytest.raises(ValueError, match="1 to 64 ASCII letters, digits and underscores"):
            register(name)


def test_a_handler_without_its_queue_says_so() -> None:
    with pytest.raises(TypeError, match="queue must be a name, not function"):
        Worker().handler(task_of)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"attempts": 0}, ValueError, "task send: attempts must be at least 1"),
        ({"priority": 0}, ValueError, "task send: priority must be at least 1"),
        ({"delay": "5 parsecs"}, ValueError, "task send: delay: '5 parsecs' is not a duration such as"),
        ({"delay": -1}, ValueError, "task send: delay must not be negative"),
        ({"delay": [5]}, TypeError, "task send: delay must be seconds, a timedelta or text such as '5m', not list"),
        ({"expires_in": float("inf")}, ValueError, "task send: expires_in must not be negative or endless"),
        ({"at": timedelta(1)}, TypeError, "task send: at must be a datetime or milliseconds"),
        ({"at": 60}, ValueError, "task send: at: 60 milliseconds since the epoch are before 1974; for a duration use"),
        (
            {"at": 1_795_463_401},
            ValueError,
            "task send: at: 1795463401 milliseconds since the epoch are before 1974; is it in seconds? Multiply it by 1000",
        ),
        ({"headers": 5}, TypeError, "task send: headers must be a mapping of texts by names, not int"),
        ({"at": datetime(2026, 1, 1)}, ValueError, "task send: at: 2026-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
        ({"at": 0, "delay": 1}, ValueError, "task send: say either delay or at"),
        ({"unique": 7}, TypeError, "task send: unique must be a str or a UniqueKey, not int"),
        ({"unique": UniqueKey("k", UniqueScope.TIME)}, ValueError, "task send: unique of scope TIME needs for_ms"),
        ({"headers": {"a": 1}}, TypeError, "task send: headers must be texts by names"),
        ({"headers": {"pinlater-task": "other"}}, ValueError, "task send: headers must not have 'pinlater-task'"),
        ({"headers": {"content-type": "a/b"}}, ValueError, "task send: headers must not have 'content-type'"),
        ({"expires_in": 60, "delay": "5m"}, ValueError, "task send: expires_in (1m) is shorter than delay (5m)"),
    ],
)
def test_options_of_an_enqueue_are_checked(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        task_of().using(**options)


def test_a_job_that_expires_before_its_time_is_refused_by_enqueue() -> None:
    """It would be stored, and fail without a run."""
    worker = Worker()

    @worker.task("q")
    def send() -> None: ...

    with InProcessService() as service, service.serving(worker):
        at = service.clock.now + timedelta(hours=1)
        with pytest.raises(ValueError, match=re.escape(f"send: expires_in (59m) ends before the job is due (at {at})")):
            send.using(at=at, expires_in="59m").enqueue()
        send.using(at=at, expires_in="1h").enqueue()
        send.using(at=service.clock.now - timedelta(hours=1), expires_in=0).enqueue()
        send.using(delay=60, expires_in=60).enqueue()
        assert service.client.count("q", future=True) == 2


def test_a_priority_that_the_server_lacks_is_refused_with_the_names_of_task_and_argument() -> None:
    worker = Worker()

    @worker.task("q")
    def send() -> None: ...

    @worker.task("q", name="shout", priority=7)
    def send_loud() -> None: ...

    with InProcessService() as service, service.serving(worker):
        told = re.escape("Priority 9 is not supported: priorities run from 1 to 3 (task send: priority=9)")
        with pytest.raises(PriorityNotSupported, match=told) as caught:
            send.using(priority=9).enqueue()
        assert isinstance(caught.value, ValueError)
        with pytest.raises(PriorityNotSupported, match=told):
            asyncio.run(send.using(priority=9).enqueue_async())
        jobs = [send.job(), send_loud.job(), send.job()]
        with pytest.raises(PriorityNotSupported, match=re.escape("(task shout: priority=7)")):
            send.enqueue_many(jobs)
        with pytest.raises(PriorityNotSupported, match=re.escape("(task shout: priority=7)")):
            asyncio.run(send.enqueue_many_async(jobs))
        with pytest.raises(PriorityNotSupported, match=re.escape("(a job for queue q: priority=5)")):
            send.enqueue_many([send.job(), Job(b"", priority=5)])
        with pytest.raises(PriorityNotSupported, match=re.escape("(a job for queue q: priority=0)")):
            send.enqueue_many([Job(b"", priority=3), Job(b"", priority=0)])


@pytest.mark.parametrize("middleware", [[5], 5, Middleware, Middleware(), [Middleware]])
def test_middleware_of_another_type_is_refused(middleware: Any) -> None:
    with pytest.raises(TypeError, match=r"Worker\(\): middleware must be"):
        Worker(middleware=middleware)


def test_a_number_that_json_does_not_have_is_refused_by_enqueue() -> None:
    """It would be stored as null, and each attempt would fail."""
    for number in (float("nan"), float("inf"), [{"a": -float("inf")}]):
        with pytest.raises(ValueError, match="task send: argument 'to' can't be encoded: JSON has neither NaN nor"):
            task_of().job(number)
    assert task_of().job([None, "null", 1.5]).body == b'{"to":[null,"null",1.5]}'


def test_an_argument_that_cant_be_encoded_is_named() -> None:
    with pytest.raises(TypeError, match=r"task send: argument 'to' can't be encoded: .*object"):
        task_of().job(object(), count=2)
    with pytest.raises(TypeError, match=r"task mail\.send: argument 'to' can't be encoded: .*object"):
        task_of(name="mail.send").job(object())


class Smtp: ...


@pytest.mark.parametrize("kind", [numbers.Number, Iterable, Sized, typing.SupportsInt, object, typing.Any])
def test_a_parameter_of_an_abstract_class_may_get_a_value_of_json(kind: typing.Any) -> None:
    def count(value) -> None: ...  # type: ignore[no-untyped-def]

    count.__annotations__["value"] = kind
    assert Worker().task("q")(count).job(3).body


def test_a_parameter_of_a_class_that_no_job_can_carry_is_refused_at_the_registration() -> None:
    def save(path: Path) -> None: ...
    def send(to: str, server: Smtp) -> None: ...

    told = re.escape("task archive: argument 'path': no job can carry a Path; write a type of JSON, a date")
    with pytest.raises(UnusableHandler, match=told):
        Worker().task("q", name="archive")(save)
    with pytest.raises(UnusableHandler, match="task send: argument 'server': no job can carry a Smtp"):
        Worker().task("q", codec=MessagePackCodec())(send)


def test_a_parameter_that_some_job_may_carry_is_accepted() -> None:
    """A default is a value that no job carries, and a codec of the user may know more types."""

    class Pickles(JsonCodec):
        def decode(self, body: bytes, into: Any) -> Any: ...

    def anything(one, two: Any, three: object) -> None: ...  # type: ignore[no-untyped-def]
    def in_containers(one: Smtp | None, two: list[Smtp], three: Smtp = Smtp()) -> None: ...  # noqa: B008
    def known(one: UUID, two: Decimal, three: Kind, four: UniqueKey) -> None: ...
    def own(one: Smtp) -> None: ...

    for function in (anything, in_containers, known):
        Worker().task("q")(function)
    Worker().task("q", codec=Pickles())(own)


@pytest.mark.parametrize("name", ["a-b", "", "x" * 65])
def test_a_queue_that_can_not_exist_is_refused_with_the_rule_for_names(name: str) -> None:
    with InProcessService() as service:
        with pytest.raises(QueueNotFound, match=r"; a queue's name is 1 to 64 ASCII letters, digits and underscores$"):
            service.client.enqueue(name, [Job(b"")])
        with pytest.raises(QueueNotFound, match=r"(?m)^Queue not found: unknown$"):
            service.client.enqueue("unknown", [Job(b"")])


def test_tasks_have_five_attempts_and_a_claim_of_a_minute_and_the_wire_leaves_both_to_the_queue() -> None:
    assert (Job(b"").attempts_allowed, Job(b"").claim_timeout_ms) == (None, None)
    job = task_of().job("x")
    assert (job.attempts_allowed, job.claim_timeout_ms) == (5, 60_000)
    job = task_of(attempts=None, claim_timeout=None).job("x")
    assert (job.attempts_allowed, job.claim_timeout_ms) == (None, None)
    job = task_of(attempts=2, claim_timeout="10m").using(attempts=7, claim_timeout=timedelta(seconds=30)).job("x")
    assert (job.attempts_allowed, job.claim_timeout_ms) == (7, 30_000)


@pytest.mark.parametrize(("given", "expected"), [("5m", 300_000), ("90s", 90_000), ("10 min", 600_000), (1.5, 1500)])
def test_durations_are_seconds_a_timedelta_or_text(given: float | str, expected: int) -> None:
    assert as_duration_ms(given, "x") == expected
    assert as_duration_ms(timedelta(milliseconds=expected), "x") == expected
    assert check_options("send", JobOptions(delay=given)).delay_ms == expected
    assert (Snooze(given).delay_ms, Retry(after=given).delay_ms) == (expected, expected)


def test_a_negative_snooze_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Snooze(-1)


@pytest.mark.parametrize(
    ("attempts", "reason", "text"),
    [
        (2, "HTTP 429", "HTTP 429; again in 7 s"),
        (2, "", "again in 7 s"),
        (1, "HTTP 429", "HTTP 429"),
        (1, "", ""),
    ],
)
async def test_a_failure_may_choose_its_delay_spends_an_attempt_and_says_so_unless_it_was_the_last(
    attempts: int, reason: str, text: str
) -> None:
    worker = Worker()

    @worker.task("q", attempts=attempts)
    async def fetch() -> None:
        raise Retry(after=7, reason=reason)

    with InProcessService() as service, service.serving(worker):
        placed = await fetch.enqueue_async()
        [ran] = await service.run_until_idle()
        job, now_ms = service.job(placed.descriptor), service.clock.now_ms()
    assert (ran.kind, ran.error_text, job.attempts_remaining) == (Kind.FAILED, text, attempts - 1)
    if attempts > 1:
        assert (job.run_after_ms or 0) - now_ms == 7_000


def test_a_negative_delay_of_a_retry_is_refused() -> None:
    with pytest.raises(ValueError, match="after must not be negative"):
        Retry(after=-1)


@pytest.mark.parametrize("rejected", [Reject("no"), Reject(reason="no")])
async def test_a_reject_gives_the_job_up_with_its_reason(rejected: Reject) -> None:
    worker = Worker()

    @worker.task("q")
    async def fetch() -> None:
        raise rejected

    with InProcessService() as service, service.serving(worker):
        descriptor = (await fetch.enqueue_async()).descriptor
        [ran] = await service.run_until_idle(raise_errors=False)
        job = service.job(descriptor)
    assert (ran.kind, ran.error_text) == (Kind.GIVEN_UP, "no")
    assert (job.state, job.attempts_remaining) == (JobState.FAILED, 0)
