"""The worker's plain parts: retry policies, bodies, envelopes, endings."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict
from unittest.mock import Mock
from uuid import UUID

import msgspec
import pydantic
import pytest

from pinlater.client.values import AckResult, Checkpoint, ClaimedJob, Job, JobInfo, JobState, Outcome
from pinlater.domain.transitions import ERROR_TEXT_CHARS_MAX
from pinlater.testing import InProcessService, Ran
from pinlater.worker import Codec, Kind, Task, Worker, envelope, retries
from pinlater.worker.codecs import JsonCodec, MessagePackCodec
from pinlater.worker.context import JobContext, ServerCalls, current_job
from pinlater.worker.errors import ClaimLost, Reject, Snooze, UnusableHandler

JSON = JsonCodec()
JOB = ClaimedJob("q:s1:p1:1", "q", b"", token="t", attempts_allowed=3, attempts_remaining=2, headers={"h": "1"})


def context(job: ClaimedJob = JOB, **channel: Any) -> JobContext:
    return JobContext(job, "task", ServerCalls(lambda: 1_000, **channel), lambda value, _: JSON.encode(value))


# --- retry policies -------------------------------------------------------------------------------------------------------------
def delays(policy: retries.RetryPolicy, error: BaseException | None = None, spread: float = 0.5) -> list[int | None]:
    return [policy.delay_ms(attempt, error or ValueError(), spread) for attempt in (1, 2, 3, 4, 10_000)]


def test_policies_say_how_long_to_wait() -> None:
    assert delays(retries.constant(2)) == [2000] * 5
    assert delays(retries.linear(1, max=3)) == [1000, 2000, 3000, 3000, 3000]
    assert delays(retries.linear(1, step=0.5, max=9)) == [1000, 1500, 2000, 2500, 9000]
    assert delays(retries.exponential(1, max=60)) == [1000, 2000, 4000, 8000, 60_000]
    assert delays(retries.never()) == [None] * 5


async def test_a_task_without_a_policy_waits_a_second_and_then_twice_as_long_each_time() -> None:
    """Give or take a fifth."""
    worker, delays_ms = Worker(), list[int]()

    @worker.task("q", attempts=20)
    def fail() -> None:
        raise ValueError

    with InProcessService() as service, service.serving(worker):
        descriptor = (await fail.enqueue_async()).descriptor
        for _ in range(14):
            await service.run_until_idle(raise_errors=False)
            delays_ms.append((service.job(descriptor).run_after_ms or 0) - service.clock.now_ms())
            service.clock.advance(seconds=delays_ms[-1] / 1000)
    for delay_ms, expected_s in zip(
        delays_ms, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600], strict=True
    ):
        assert 0.8 * expected_s <= delay_ms / 1000 <= 1.2 * expected_s
    assert len({delay_ms % 1000 for delay_ms in delays_ms}) > 1


def test_jitter_spreads_within_its_bounds() -> None:
    policy = retries.exponential(10, jitter=0.2)
    assert policy.delay_ms(1, ValueError(), 0.0) == 8_000
    assert policy.delay_ms(1, ValueError(), 0.9999) == pytest.approx(12_000, abs=10)


def test_a_policy_by_error_uses_the_most_derived_type() -> None:
    policy = retries.by_error(
        {OSError: retries.constant(1), ConnectionError: retries.constant(2), KeyError: retries.never()},
        otherwise=retries.constant(9),
    )
    errors = [FileNotFoundError(), ConnectionResetError(), KeyError(), LookupError()]
    assert [policy.delay_ms(1, error, 0) for error in errors] == [1000, 2000, None, 9000]


@pytest.mark.parametrize(
    "make",
    [lambda: retries.constant(-1), lambda: retries.exponential(factor=0.5), lambda: retries.linear(1, jitter=2)],
)
def test_invalid_policies_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        make()


# --- bodies -----------------------------------------------------------------------------------------------------------------------
@dataclass
class MailDataclass:
    to: str
    copies: int = 1


class Model(pydantic.BaseModel):
    to: str
    when: datetime


class Struct(msgspec.Struct):
    to: str


class Typed(TypedDict):
    to: str


def named(to: str, at: datetime, copies: int = 1, *, id: UUID | None = None) -> None: ...
def whole(mail: MailDataclass) -> None: ...
def model(mail: Model) -> None: ...
def struct(mail: Struct) -> None: ...
def typed(mail: Typed) -> None: ...
def octets(body: bytes) -> None: ...
def nothing() -> None: ...
def with_job(job: ClaimedJob, context: JobContext, to: str) -> None: ...
def with_model_among_others(mail: Model, copies: int) -> None: ...


def task_of(function: Callable[..., Any], codec: Codec = JSON) -> Task[..., Any]:
    task: Task[..., Any] = Worker().task("q", name="task", codec=codec)(function)
    return task


def received(function: Callable[..., Any], *jobs: Job, codec: Codec = JSON) -> list[dict[str, Any] | str]:
    """What a worker passes to a function of that signature for each job; the type of the error if it can't."""
    calls: list[dict[str, Any] | str] = []

    @functools.wraps(function)
    def noting(**arguments: Any) -> None:
        calls.append(arguments)

    worker = Worker(codec=codec)
    worker.task("q", name="task", attempts=1)(noting)
    with InProcessService() as service, service.serving(worker):
        for job in jobs:
            service.client.enqueue("q", [job])
            [ran] = asyncio.run(service.run_until_idle(raise_errors=False))
            if ran.failed:
                calls.append(ran.error_type)
    return calls


REFUSED = "pinlater.worker.CantDecode"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("codec", [JSON, MessagePackCodec()])
@pytest.mark.parametrize(
    ("function", "args", "kwargs", "decoded"),
    [
        (named, ("x",), {"at": NOON}, {"to": "x", "at": NOON}),
        (named, ("x", NOON, 3), {"id": UUID(int=7)}, {"to": "x", "at": NOON, "copies": 3, "id": UUID(int=7)}),
        (whole, (MailDataclass("x"),), {}, {"mail": MailDataclass("x")}),
        (model, (Model(to="x", when=NOON),), {}, {"mail": Model(to="x", when=NOON)}),
        (struct, (Struct("x"),), {}, {"mail": Struct("x")}),
        (typed, ({"to": "x"},), {}, {"mail": {"to": "x"}}),
        (octets, (b"\xff\x00",), {}, {"body": b"\xff\x00"}),
        (nothing, (), {}, {}),
        (with_model_among_others, (Model(to="x", when=NOON), 2), {}, {"mail": Model(to="x", when=NOON), "copies": 2}),
    ],
)
def test_arguments_are_decoded_as_they_were_encoded(
    codec: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], decoded: dict[str, Any]
) -> None:
    job = task_of(function, codec).job(*args, **kwargs)
    assert received(function, job, codec=codec) == [decoded]


def test_a_json_body_is_plain_json() -> None:
    assert task_of(named).job("x", NOON).body == b'{"to":"x","at":"2026-01-01T12:00:00Z"}'
    assert task_of(whole).job(MailDataclass("x")).body == b'{"to":"x","copies":1}'


def test_the_worker_passes_the_job_and_its_context() -> None:
    job = task_of(with_job).job(to="x")
    assert job.body == b'{"to":"x"}'
    [arguments] = received(with_job, job)
    assert isinstance(arguments, dict)
    assert (arguments["to"], type(arguments["job"]), type(arguments["context"])) == ("x", ClaimedJob, JobContext)
    assert arguments["job"].descriptor == arguments["context"].descriptor


def test_a_body_of_other_types_or_with_an_argument_that_the_function_does_not_know_is_an_error() -> None:
    bodies = [b"", b"[]", b"{}", b'{"to":1,"at":"2026-01-01T12:00:00Z"}', b'{"to":"x","at":"noon"}']
    assert received(named, *map(Job, bodies)) == [REFUSED] * len(bodies)
    assert received(with_job, Job(b'{"to":"x","cc":"y"}')) == [REFUSED]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nmae": "x"}, r"missing a required argument: 'name', and it has no 'nmae'; did you mean name\?"),
        ({"zzz": "x"}, "missing a required argument: 'name', and it has no 'zzz'"),
        ({"name": "x", "zzz": 1}, "got an unexpected keyword argument 'zzz'"),
    ],
)
def test_enqueue_names_an_argument_that_the_function_does_not_have(given: dict[str, Any], said: str) -> None:
    def greet(name: str) -> None: ...

    with pytest.raises(TypeError, match=rf"greet\(\) .*{said}$"):
        task_of(greet).job(**given)


def test_functions_that_no_body_can_call_are_refused() -> None:
    def variadic(*names: str) -> None: ...
    def keywords(**names: str) -> None: ...
    def positional(name: str, /) -> None: ...
    def unknown(name: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (variadic, keywords, positional, unknown):
        with pytest.raises(UnusableHandler, match=function.__name__):
            task_of(function)


def test_a_coroutine_that_is_to_run_in_a_process_is_refused_by_its_name() -> None:
    async def resize() -> None: ...

    with pytest.raises(UnusableHandler, match=r"^task shrink: the function is a coroutine"):
        Worker().task("q", name="shrink", process=True)(resize)


def test_a_function_with_a_yield_is_refused_by_its_name() -> None:
    """A call of it would run none of its lines, and the job would count as done."""

    def steps() -> Iterator[int]:
        yield 1

    async def asynchronous_steps() -> AsyncIterator[int]:
        yield 1

    class Steps:
        def __call__(self) -> Iterator[int]:
            yield 1

    for function in (steps, asynchronous_steps, Steps()):
        with pytest.raises(UnusableHandler, match=r"^task walk: the function has a `yield`"):
            Worker().task("q", name="walk")(function)


def test_a_parameter_without_a_type_takes_anything() -> None:
    def loose(thing, job) -> None: ...  # type: ignore[no-untyped-def]

    [arguments] = received(loose, Job(b'{"thing":[1,{"a":null}]}'))
    assert isinstance(arguments, dict)
    assert (arguments["thing"], type(arguments["job"])) == ([1, {"a": None}], ClaimedJob)


def whole_and_more(mail: MailDataclass, subject: str = "hello", copies: int = 1) -> None: ...
def model_and_more(mail: Model, subject: str = "hello") -> None: ...
def octets_and_more(body: bytes, *, note: str = "") -> None: ...


MAIL = MailDataclass("y")


def all_with_defaults(mail: MailDataclass = MAIL, to: str = "z") -> None: ...
def nothing_and_more(copies: int = 1) -> None: ...
def nothing_and_whole(mail: MailDataclass = MAIL) -> None: ...


@pytest.mark.parametrize("codec", [JSON, MessagePackCodec()])
@pytest.mark.parametrize(
    ("before", "args", "after", "decoded"),
    [
        (whole, (MailDataclass("x"),), whole_and_more, {"mail": MailDataclass("x")}),
        (model, (Model(to="x", when=NOON),), model_and_more, {"mail": Model(to="x", when=NOON)}),
        (octets, (b"\xff\x00",), octets_and_more, {"body": b"\xff\x00"}),
        (octets, (b"{}",), octets_and_more, {"body": b"{}"}),
        (octets, (b'{"note":"x"}',), octets_and_more, {"body": b'{"note":"x"}'}),
        (whole, (MailDataclass("x", 2),), all_with_defaults, {"mail": MailDataclass("x", 2)}),
        (nothing, (), nothing_and_more, {}),
        (nothing, (), nothing_and_whole, {}),
    ],
)
def test_a_job_that_waits_is_read_after_its_task_got_parameters_with_defaults(
    codec: Any, before: Callable[..., Any], args: tuple[Any, ...], after: Callable[..., Any], decoded: dict[str, Any]
) -> None:
    """Workers are deployed before producers."""
    assert received(after, task_of(before, codec).job(*args), codec=codec) == [decoded]


def test_octets_are_no_value_of_a_parameter_of_another_type() -> None:
    assert received(all_with_defaults, Job(b"{}", headers={"content-type": "application/octet-stream"})) == [{}]


@pytest.mark.parametrize(
    ("function", "body"),
    [
        (whole_and_more, b'{"mail":{"to":5}}'),
        (whole_and_more, b'{"mail":{"to":"x"},"cc":"y"}'),
        (whole_and_more, b'{"subject":"x"}'),
        (octets_and_more, b'{"body":"eA==","cc":"y"}'),
        (all_with_defaults, b'{"to":5}'),
        (with_model_among_others, b'{"to":"x","when":"2026-01-01T12:00:00Z"}'),
    ],
)
def test_an_object_of_parameters_with_a_mistake_is_not_taken_for_a_value(
    function: Callable[..., Any], body: bytes
) -> None:
    """It would run with arguments that no producer gave."""
    assert received(function, Job(body, headers={"content-type": JSON.content_type})) == [REFUSED]


def test_a_worker_of_before_refuses_jobs_with_the_new_parameters() -> None:
    """The other direction: what is read only after the workers were deployed."""
    job = task_of(whole_and_more).job(MailDataclass("x"), subject="hello")
    assert received(whole, job) == [REFUSED]


# --- envelopes ----------------------------------------------------------------------------------------------------------------------
def test_an_envelope_in_headers() -> None:
    headers = envelope.headers_for("send", "application/json", {"a": "b"})
    assert headers == {"a": "b", "pinlater-task": "send", "content-type": "application/json"}
    assert envelope.opened(b"{}", headers) == envelope.Opened("send", "application/json", b"{}", {"a": "b"})


@pytest.mark.parametrize(
    ("kind", "body"), [("application/json", b'{"to":"x"}'), ("application/msgpack", b"\xff\x81"), ("", b"")]
)
def test_an_envelope_in_the_body(kind: str, body: bytes) -> None:
    sealed = envelope.sealed("send", kind, {"a": "b"}, body)
    opened = envelope.opened(sealed, {})
    assert (opened.task, opened.body, opened.headers) == ("send", body, {"a": "b"})
    assert json.loads(sealed)["pinlater-task"] == "send"


def test_an_envelope_written_by_another_language_is_read() -> None:
    written = b' {\n "pinlater-task" : "send",\n "payload": {"to": "x"} }'
    assert json.loads(envelope.opened(written, {}).body) == {"to": "x"}
    octets = (
        b'{"pinlater-task":"send","content-type":"application/x","payload-base64":"' + base64.b64encode(b"\0") + b'"}'
    )
    assert envelope.opened(octets, {})[:3] == ("send", "application/x", b"\0")


@pytest.mark.parametrize(
    "body", [b"", b"plain", b'{"pinlater-task": 7}', b'{"pinlater-task": "x", "payload-base64": "%"}', b"{"]
)
def test_an_invalid_envelope_is_an_ordinary_body(body: bytes) -> None:
    assert envelope.opened(body, {"content-type": "c", "a": "b"}) == envelope.Opened("", "c", body, {"a": "b"})


# --- endings ------------------------------------------------------------------------------------------------------------------------
async def ending_of(
    error: BaseException | None,
    *,
    retry: retries.RetryPolicy | None = None,
    of_task: retries.RetryPolicy | None = None,
) -> tuple[Ran, JobInfo, int]:
    """The attempt of a task that raises it, its job afterwards, and after how many milliseconds that runs again.

    `retry`: its worker's policy; `of_task`: its own.
    """
    worker = Worker(retry=retry)

    @worker.task("q", retry=of_task)
    async def act() -> None:
        if error is not None:
            raise error

    with InProcessService() as service, service.serving(worker):
        descriptor = (await act.enqueue_async()).descriptor
        [ran] = await service.run_until_idle(raise_errors=False)
        job = service.job(descriptor)
        return ran, job, (job.run_after_ms or 0) - service.clock.now_ms()


@pytest.mark.parametrize(
    ("error", "kind", "again_ms"),
    [
        (None, Kind.SUCCEEDED, None),
        (ValueError("v"), Kind.FAILED, 3_000),
        (Reject("r"), Kind.GIVEN_UP, None),
        (Snooze(0.005), Kind.SNOOZED, 5),
    ],
)
async def test_the_ending_follows_from_the_tasks_exception(
    error: BaseException | None, kind: Kind, again_ms: int | None
) -> None:
    ran, job, delay_ms = await ending_of(error, retry=retries.constant(3))
    assert ran.kind is kind
    if again_ms is not None:
        attempts = 5 if kind is Kind.SNOOZED else 4
        assert (job.state, delay_ms, job.attempts_remaining) == (JobState.PENDING, again_ms, attempts)


async def test_a_policy_that_never_retries_gives_the_job_up() -> None:
    ran, job, _ = await ending_of(ValueError("v"), retry=retries.never())
    assert (ran.kind, job.state) == (Kind.GIVEN_UP, JobState.FAILED)


async def test_a_tasks_own_retry_policy_overrides_its_workers() -> None:
    ran, _, delay_ms = await ending_of(ValueError("v"), retry=retries.never(), of_task=retries.constant(3))
    assert (ran.kind, delay_ms) == (Kind.FAILED, 3_000)


async def test_a_failure_has_a_bounded_type_text_and_trace() -> None:
    def deep(depth: int) -> None:
        if not depth:
            raise KeyError("the cause")
        deep(depth - 1)

    with pytest.raises(KeyError) as raised:
        deep(200)
    ran, job, _ = await ending_of(raised.value)
    assert ran.error_type == "KeyError"
    assert ran.error_text.startswith("'the cause'\n")
    assert "raise KeyError" in ran.error_text
    assert len(ran.error_text) <= ERROR_TEXT_CHARS_MAX
    assert job.error_text == ran.error_text


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (OSError("no file na\udcefve"), "no file na\\udcefve"),
        (ValueError("\ud800" * 4_000), "\\ud800"),
    ],
    ids=["a file name", "a long text"],
)
async def test_any_text_of_a_failure_can_be_sent(
    caplog: pytest.LogCaptureFixture, error: BaseException, begins: str
) -> None:
    """Text that can't be sent would make the whole request of acks fail."""
    caplog.set_level(logging.CRITICAL, "pinlater.worker")  # nor can pytest send it to its main process
    _, job, _ = await ending_of(error)
    assert job.error_text.startswith(begins)
    assert len(job.error_text) <= ERROR_TEXT_CHARS_MAX


@pytest.mark.parametrize("fails", [False, True])
async def test_a_rescheduled_job_is_not_acked_and_a_failure_wins(*, fails: bool) -> None:
    worker = Worker(retry=retries.constant(3))

    @worker.task("q", attempts=3)
    async def move(to: str) -> None:
        current_job().reschedule(timedelta(seconds=5), {"to": "y"})
        if fails:
            raise ValueError

    with InProcessService() as service, service.serving(worker):
        descriptor = (await move.enqueue_async("x")).descriptor
        [ran] = await service.run_until_idle(raise_errors=False)
        job = service.job(descriptor)
        delay_ms = (job.run_after_ms or 0) - service.clock.now_ms()
    body, kind = (b'{"to":"x"}', Kind.FAILED) if fails else (b'{"to":"y"}', Kind.RESCHEDULED)
    assert (ran.kind, job.body, job.attempts_remaining, delay_ms) == (
        kind, body, 2 if fails else 3, 3_000 if fails else 5_000,
    )  # fmt: skip


# --- the context ----------------------------------------------------------------------------------------------------------------------
def test_times_are_taken_in_three_forms() -> None:
    here = context()
    for at in (NOON, round(NOON.timestamp() * 1000)):
        here.reschedule(at)
        assert here.rescheduling == (round(NOON.timestamp() * 1000), None)
    for duration in ("5m", timedelta(minutes=5)):
        here.reschedule(duration)
        assert here.rescheduling == (301_000, None)
    here.reschedule(0)
    assert here.rescheduling == (0, None)


@pytest.mark.parametrize(
    ("at", "kind", "text"),
    [
        (datetime(2026, 1, 1), ValueError, "at: 2026-01-01 00:00:00 has no time zone"),  # noqa: DTZ001 - that is the point
        ("soon", ValueError, "at: 'soon' is not a duration such as"),
        (
            60.0,
            TypeError,
            "at must be a datetime or milliseconds since the epoch, not float; a duration is a timedelta",
        ),
        (60, ValueError, "at: 60 milliseconds since the epoch are before 1974; a duration is a timedelta or text"),
        (timedelta(seconds=-1), ValueError, "at must not be negative"),
        (None, TypeError, "at must be a datetime or milliseconds"),
    ],
)
def test_what_is_no_time_reschedules_nothing(at: Any, kind: type[Exception], text: str) -> None:
    here = context()
    with pytest.raises(kind, match=re.escape(f"task task: reschedule: {text}")):
        here.reschedule(at)
    assert here.rescheduling is None


def test_a_checkpoint_of_a_lost_claim_raises_claim_lost() -> None:
    sent: list[Checkpoint] = []

    def lost(item: Checkpoint) -> AckResult:
        sent.append(item)
        return AckResult(item.descriptor, Outcome.STALE_CLAIM, "other")

    here = context(checkpoint=lost)
    with pytest.raises(ClaimLost, match="other holds the job now"):
        here.checkpoint({"to": "x"})
    with pytest.raises(ClaimLost):
        here.progress(0.5, "half")
    with pytest.raises(TypeError, match="the part that is done, from 0 to 1, and then a note; not '1 of 2'"):
        here.progress("1 of 2")  # type: ignore[arg-type]
    assert [(item.token, item.new_body, item.prepend_status) for item in sent] == [
        ("t", b'{"to":"x"}', ""),
        ("t", None, "[progress] 50 % half\n"),
    ]


async def test_async_methods_work_in_coroutines_and_plain_ones_in_functions() -> None:
    async def applied(item: Checkpoint) -> AckResult:
        await asyncio.sleep(0)
        return AckResult(item.descriptor, Outcome.APPLIED)

    here = context(checkpoint_async=applied)
    await here.checkpoint_async(b"as it is")
    with pytest.raises(RuntimeError, match="ends in _async"):
        here.checkpoint()
    with pytest.raises(RuntimeError, match="without _async"):
        await context().progress_async(1)


def test_outside_of_a_job_there_is_no_current_job_and_the_error_says_what_a_test_can_do() -> None:
    with pytest.raises(RuntimeError, match=r"does not run in a job.*enqueue the task.*run_until_idle\(\)"):
        current_job()


def test_a_direct_call_of_a_task_that_declares_its_job_takes_a_mock() -> None:
    """As the page about tests says."""
    worker = Worker("127.0.0.1:1")

    @worker.task("q")
    def greet(job: JobContext, name: str) -> str:
        job.progress(0.5)
        return f"{name} {job.attempt}"

    job = Mock(spec=JobContext, attempt=2)
    assert greet(job, "ada") == "ada 2"
    job.progress.assert_called_once_with(0.5)


def test_a_single_argument_that_has_a_default_may_be_left_out() -> None:
    def octets(data: bytes = b"x") -> None: ...

    assert task_of(octets).job().body == b"x"
