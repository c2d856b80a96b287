"""Workers run by an in-process service: until nothing is due, on the test's loop, by the test's clock."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from pinlater import AsyncClient, JobState, Reject, Retry, Snooze, Worker, current_job
from pinlater.client.errors import QueueNotFound, ServerUnreachable
from pinlater.client.values import QueueConfig
from pinlater.testing import InProcessService, JobFailed, NeverIdle
from pinlater.worker import Kind, MessagePackCodec, WorkerSettings, constant
from tests.worker import process_tasks


@dataclass
class OfficeMail:
    to: str
    subject: str = "hello"


class Office:
    """A worker with a few tasks, and what they have done."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.worker = worker = Worker("nowhere.invalid:1", retry=constant(60))
        done = self.done

        @worker.task("mail", attempts=3)
        async def send(to: str, copies: int = 1) -> None:
            done.append((to, copies))
            if to == "fails":
                raise ValueError("no such address")

        @worker.task("mail")
        async def mail(mail: OfficeMail) -> None:
            done.append(mail)

        @worker.task("files")
        def convert(steps: int) -> None:
            done.append((steps, threading.current_thread() is threading.main_thread()))
            if steps:
                convert.enqueue(steps - 1)

        @worker.cron("*/20 * * * *", queue="clock")
        async def tick() -> None:
            done.append("tick")

        self.send, self.mail, self.convert, self.tick = send, mail, convert, tick


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def service(pinlater_service: InProcessService, office: Office) -> Any:
    with pinlater_service.serving(office.worker):
        yield pinlater_service


# --- what was enqueued --------------------------------------------------------------------------------------------------------
def test_plain_code_enqueues_here_while_the_worker_is_served(service: InProcessService, office: Office) -> None:
    office.send.using(delay=60, priority=2, unique="k", headers={"a": "b"}, expires_in=90).enqueue("x")
    office.send.using(unique="k").enqueue("y")  # there already
    (call,) = service.enqueued(office.send)
    assert (call.task, call.arguments, call.queue, call.priority) == ("send", {"to": "x", "copies": 1}, "mail", 2)
    now_ms = service.clock.now_ms()
    assert (call.run_after_ms, call.expires_at_ms, call.attempts_allowed) == (now_ms + 60_000, now_ms + 90_000, 3)
    assert (call.delay, call.headers) == (timedelta(seconds=60), {"a": "b"})
    assert call.unique is not None
    assert call.unique.key == "k"
    assert service.enqueued(office.convert) == []


async def test_coroutines_do_too(service: InProcessService, office: Office) -> None:
    await office.send.enqueue_async("x")
    await office.send.enqueue_many_async([office.send.job("y"), office.send.job("z", copies=2)])
    assert [call.arguments["to"] for call in service.enqueued(office.send)] == ["x", "y", "z"]
    with pytest.raises(RuntimeError, match="ends in _async"):
        office.send.enqueue("x")  # as it is with a real server


def test_a_call_is_found_by_its_arguments_however_they_were_written(service: InProcessService, office: Office) -> None:
    office.send.enqueue("x", copies=1)
    office.mail.enqueue(OfficeMail("a"))
    assert service.assert_enqueued(office.send, to="x").queue == "mail"
    assert service.assert_enqueued(office.mail, OfficeMail("a", "hello")).arguments == {"mail": OfficeMail("a")}


def test_the_error_about_a_missing_enqueue_lists_the_enqueues_that_were_made(
    service: InProcessService, office: Office
) -> None:
    with pytest.raises(AssertionError, match=r"send\(to='x', copies=1\) was not enqueued; enqueued were: none of this"):
        service.assert_enqueued(office.send, "x")
    for copies in range(25):
        office.send.enqueue("y", copies)
    with pytest.raises(AssertionError, match=r"send\(to='y', copies=24\)\n  and 5 more before"):
        service.assert_enqueued(office.send, "x")
    service.forget_enqueued()
    assert service.enqueued(office.send) == []
    assert len(service.jobs("mail")) == 25


async def test_a_worker_is_its_own_again_afterwards(pinlater_service: InProcessService) -> None:
    with InProcessService() as own:
        own.client.create_queue("mail")
        async with own.async_client() as client:
            worker = Worker(client)

            @worker.task("mail")
            async def send(to: str) -> None: ...

            with pinlater_service.serving(worker), pinlater_service.serving(worker):
                await send.using(delay=60).enqueue_async("within")
            began_ms = time.time_ns() // 1_000_000
            await send.using(delay=60).enqueue_async("afterwards")
        [within], [afterwards] = pinlater_service.jobs("mail"), own.jobs("mail")
    assert within.run_after_ms == pinlater_service.clock.now_ms() + 60_000
    assert afterwards.run_after_ms is not None
    assert afterwards.run_after_ms >= began_ms + 60_000, "it has its own clock again"


# --- running ------------------------------------------------------------------------------------------------------------------
async def test_everything_that_is_due_runs_and_what_it_enqueues(service: InProcessService, office: Office) -> None:
    await office.send.enqueue_async("x")
    await office.send.using(delay=3600).enqueue_async("later")
    await asyncio.to_thread(office.convert.enqueue, 2)
    ran = await service.run_until_idle(office.worker)
    assert sorted(one.task for one in ran) == ["convert", "convert", "convert", "send"]
    assert {one.kind for one in ran} == {Kind.SUCCEEDED}
    assert [entry for entry in office.done if entry != ("x", 1)] == [(2, False), (1, False), (0, False)]
    service.clock.advance(hours=1)
    await service.run_until_idle(office.worker, queues=["mail", "files"])
    assert office.done[-1] == ("later", 1)
    assert [job.state.name for job in service.jobs("mail")] == ["SUCCEEDED", "SUCCEEDED"]


async def test_handlers_run_on_the_tests_own_loop_one_at_a_time_by_priority(pinlater_service: InProcessService) -> None:
    worker, loops, order = Worker(), set(), []

    @worker.task("q")
    async def note(name: str) -> None:
        loops.add(asyncio.get_running_loop())
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    with pinlater_service.serving(worker):
        await note.using(priority=3).enqueue_async("c")
        await note.enqueue_many_async([note.job("a"), note.job("b")])
        await pinlater_service.run_until_idle(worker)
    assert loops == {asyncio.get_running_loop()}
    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_jobs_that_wait_for_each_other_run_side_by_side_on_request(pinlater_service: InProcessService) -> None:
    worker, barrier = Worker(), asyncio.Barrier(3)

    @worker.task("q")
    async def meet() -> None:
        await barrier.wait()

    with pinlater_service.serving(worker):
        await meet.enqueue_many_async([meet.job() for _ in range(3)])
        assert len(await pinlater_service.run_until_idle(worker, concurrency=3)) == 3


async def test_workers_that_enqueue_for_each_other_run_together(pinlater_service: InProcessService) -> None:
    one, other, seen = Worker(), Worker(), []

    @one.task("one")
    async def ping(left: int) -> None:
        seen.append(("ping", left))
        if left:
            await pong.enqueue_async(left - 1)

    @other.task("other")
    async def pong(left: int) -> None:
        seen.append(("pong", left))
        if left:
            await ping.enqueue_async(left - 1)

    with pinlater_service.serving(one, other):
        await ping.enqueue_async(3)
        await pinlater_service.run_until_idle(one, other)
    assert seen == [("ping", 3), ("pong", 2), ("ping", 1), ("pong", 0)]


async def test_without_a_name_those_run_that_are_being_served(pinlater_service: InProcessService) -> None:
    one, other, seen = Worker(retry=constant(60)), Worker(), []

    @one.task("one")
    async def ping() -> None:
        seen.append("ping")
        await pong.using(delay=60).enqueue_async()

    @other.task("other")
    async def pong() -> None:
        seen.append("pong")

    with pinlater_service.serving(one), pinlater_service.serving(other):
        await ping.enqueue_async()
        assert [ran.task for ran in await pinlater_service.run_until_idle()] == ["ping"]
        await pinlater_service.run_for(minutes=2)
    assert seen == ["ping", "pong"]
    with pytest.raises(ValueError, match="no worker to run"):
        await pinlater_service.run_until_idle()


def test_plain_tests_run_jobs_too(service: InProcessService, office: Office) -> None:
    """A Django test has no event loop of its own."""
    office.send.enqueue("x")
    asyncio.run(service.run_until_idle(office.worker))
    assert office.done == [("x", 1)]


async def test_nothing_to_do_is_soon_done(service: InProcessService, office: Office) -> None:
    assert await service.run_until_idle(office.worker) == []


async def test_a_job_that_enqueues_itself_for_ever_is_told(pinlater_service: InProcessService) -> None:
    worker = Worker()

    @worker.task("q")
    async def again() -> None:
        await again.enqueue_async()

    with pinlater_service.serving(worker):
        await again.enqueue_async()
        with pytest.raises(NeverIdle, match="'again'"):
            await pinlater_service.run_until_idle(worker, jobs_max=50)


async def test_jobs_wait_while_their_queue_is_paused_or_limited(service: InProcessService, office: Office) -> None:
    await office.send.enqueue_many_async([office.send.job(name) for name in "abc"])
    service.client.pause_queue("mail")
    assert await service.run_until_idle(office.worker) == []
    service.client.resume_queue("mail")
    service.client.configure_queue("mail", QueueConfig(max_jobs_per_second=1))
    assert 1 <= len(await service.run_until_idle(office.worker)) < 3
    await service.run_for(office.worker, seconds=10)
    service.clock.advance(seconds=10)
    await service.run_until_idle(office.worker)
    assert all(job.state is not JobState.IN_PROGRESS for job in service.jobs("mail"))


async def test_a_worker_without_a_queue_says_so(pinlater_service: InProcessService) -> None:
    worker = Worker(settings=WorkerSettings(auto_create=False))

    @worker.task("q")
    async def note() -> None: ...

    async with pinlater_service.async_client() as client:
        with pytest.raises(QueueNotFound):
            await worker.run_until_idle(client=client)


async def test_a_queue_without_a_task_is_an_error(service: InProcessService, office: Office) -> None:
    with pytest.raises(ValueError, match="no task for queue 'mial'"):
        await service.run_until_idle(office.worker, queues=["mial"])


async def test_a_served_worker_runs_here_and_nowhere_else(service: InProcessService, office: Office) -> None:
    """Its own address is not looked at: a test must never reach a real server by mistake."""
    running = asyncio.create_task(office.worker.run_async(queues=["mail"]))
    await office.send.enqueue_async("x")
    async with asyncio.timeout(30):
        while not office.done:
            await asyncio.sleep(0.001)
    office.worker.request_stop()
    await running
    assert [job.state for job in service.jobs("mail")] == [JobState.SUCCEEDED]


async def test_a_run_that_is_cancelled_leaves_the_job_to_its_claim(pinlater_service: InProcessService) -> None:
    worker, attempts, started = Worker(), [], asyncio.Event()

    @worker.task("q")
    async def hang() -> None:
        attempts.append(current_job().attempt)
        started.set()
        if attempts == [1]:
            await asyncio.Event().wait()

    with pinlater_service.serving(worker):
        await hang.enqueue_async()
        running = asyncio.create_task(pinlater_service.run_until_idle(worker))
        await asyncio.wait_for(started.wait(), 10)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert [job.state for job in pinlater_service.jobs("q")] == [JobState.IN_PROGRESS]
        await pinlater_service.run_for(worker, minutes=11)
    assert attempts == [1, 2]


async def test_jobs_of_several_queues_run_one_at_a_time_too(pinlater_service: InProcessService) -> None:
    worker, running, most = Worker(), 0, 0

    def register(queue: str) -> Any:
        @worker.task(queue)
        async def note() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

        return note

    tasks = [register(queue) for queue in ("a", "b", "c")]
    with pinlater_service.serving(worker):
        for task in tasks * 3:
            await task.enqueue_async()
        assert len(await pinlater_service.run_until_idle(worker)) == 9
    assert most == 1


async def test_many_jobs_of_many_queues_side_by_side_all_run(pinlater_service: InProcessService) -> None:
    worker, done = Worker(), []

    def register(number: int) -> Any:
        @worker.task(f"q{number}", name="note")
        async def note(left: int) -> None:
            await asyncio.sleep(0)
            done.append(left)
            if left:
                await tasks[(number + left) % 4].enqueue_async(left - 1)

        return note

    tasks = [register(number) for number in range(4)]
    with pinlater_service.serving(worker):
        for task in tasks:
            await task.enqueue_many_async([task.job(4) for _ in range(10)])
        ran = await pinlater_service.run_until_idle(worker, concurrency=8)
    assert len(ran) == len(done) == 4 * 10 * 5
    assert all(job.state is JobState.SUCCEEDED for n in range(4) for job in pinlater_service.jobs(f"q{n}"))


async def test_run_until_idle_raises_if_the_server_is_unreachable_instead_of_waiting() -> None:
    worker = Worker()

    @worker.task("q")
    async def note() -> None: ...

    @worker.task("other")
    async def other() -> None: ...

    async with AsyncClient("127.0.0.1:1", retries=0) as client:
        with pytest.raises(ServerUnreachable):
            await worker.run_until_idle(client=client)


# --- failures -----------------------------------------------------------------------------------------------------------------
async def test_the_first_error_of_a_handler_is_raised_when_all_is_done(
    service: InProcessService, office: Office
) -> None:
    await office.send.enqueue_async("fails")
    await office.send.enqueue_async("fails", 2)
    await office.send.enqueue_async("x")
    with pytest.raises(ValueError, match="no such address") as caught:
        await service.run_until_idle(office.worker)
    (note,) = caught.value.__notes__
    assert note.startswith("attempt 1 of task 'send', job mail:")
    assert note.endswith("1 more attempts failed, see `failures`")
    assert office.done[-1] == ("x", 1)
    assert [one.error_type for one in service.failures] == ["ValueError", "ValueError"]
    assert service.failures[0].error is caught.value


async def test_retries_wait_for_the_clock_and_end(service: InProcessService, office: Office) -> None:
    placed = await office.send.enqueue_async("fails")
    ran = await service.run_until_idle(office.worker, raise_errors=False)
    assert [(one.attempt, one.kind, one.failed) for one in ran] == [(1, Kind.FAILED, True)]
    assert await service.run_until_idle(office.worker) == []
    service.clock.advance(seconds=60)
    assert [one.attempt for one in await service.run_until_idle(office.worker, raise_errors=False)] == [2]
    await service.run_for(office.worker, minutes=10, raise_errors=False)
    job = service.job(placed.descriptor)
    assert (job.state, job.attempts_remaining, job.error_type) == (JobState.FAILED, 0, "ValueError")
    assert "no such address" in job.error_text
    assert len(service.failures) == 3


async def test_giving_up_and_snoozing_are_told_apart(pinlater_service: InProcessService) -> None:
    worker = Worker()

    @worker.task("q")
    async def reject() -> None:
        raise Reject("never")

    @worker.task("q")
    async def snooze() -> None:
        if current_job().job.created_at_ms == pinlater_service.clock.now_ms():
            raise Snooze(60)

    with pinlater_service.serving(worker):
        await reject.enqueue_async()
        await snooze.enqueue_async()
        ran = await pinlater_service.run_until_idle(worker, raise_errors=False)
        assert {one.task: (one.kind, one.failed) for one in ran} == {
            "reject": (Kind.GIVEN_UP, True),
            "snooze": (Kind.SNOOZED, False),
        }
        pinlater_service.clock.advance(seconds=60)
        assert [one.kind for one in await pinlater_service.run_until_idle(worker)] == [Kind.SUCCEEDED]


async def test_a_planned_retry_spends_an_attempt_and_is_not_raised_while_a_rejection_is(
    pinlater_service: InProcessService,
) -> None:
    worker = Worker()

    @worker.task("q", attempts=2)
    async def retry() -> None:
        raise Retry(after=2)

    @worker.task("q")
    async def reject() -> None:
        raise Reject("never")

    with pinlater_service.serving(worker):
        placed = await retry.enqueue_async()
        (ran,) = await pinlater_service.run_until_idle()
        assert (ran.kind, ran.failed, ran.error_type) == (Kind.FAILED, True, "pinlater.Retry")
        assert pinlater_service.failures == [ran]
        assert pinlater_service.job(placed.descriptor).attempts_remaining == 1
        await reject.enqueue_async()
        with pytest.raises(Reject, match="never"):
            await pinlater_service.run_until_idle()


async def test_a_failure_without_an_exception_of_its_own_is_raised_as_one(pinlater_service: InProcessService) -> None:
    worker = Worker()

    @worker.task("q", time_limit=0.05)
    async def slow() -> None:
        await asyncio.sleep(10)

    @worker.task("q")
    async def rude() -> None:
        raise SystemExit(3)

    with pinlater_service.serving(worker):
        await rude.enqueue_async()
        with pytest.raises(JobFailed, match="SystemExit"):
            await pinlater_service.run_until_idle(worker)
        await slow.enqueue_async()
        with pytest.raises(Exception, match="time limit"):
            await pinlater_service.run_until_idle(worker)


async def test_a_handler_that_takes_longer_than_its_claim_loses_it(pinlater_service: InProcessService) -> None:
    """The clock may be turned by a handler, for what happens when time passes meanwhile: in a moment, not at once."""
    worker, seen = Worker(), []

    @worker.task("q")
    async def slow() -> None:
        seen.append(current_job().attempt)
        if seen == [1]:
            pinlater_service.clock.advance(hours=1)
            while pinlater_service.job(current_job().descriptor).state is JobState.IN_PROGRESS:
                await asyncio.sleep(0.001)

    with pinlater_service.serving(worker):
        placed = await slow.enqueue_async()
        await pinlater_service.run_until_idle(worker)
        assert seen == [1, 2]
        assert pinlater_service.job(placed.descriptor).attempts[0].outcome == "timed_out"


async def test_jobs_of_unknown_tasks_stay_pending(service: InProcessService, office: Office) -> None:
    service.client.enqueue("mail", [office.send.job("x")._replace(headers={"pinlater-task": "newer"})])
    assert await service.run_until_idle(office.worker) == []
    assert [job.state for job in service.jobs("mail")] == [JobState.PENDING]


# --- time ---------------------------------------------------------------------------------------------------------------------
async def test_cron_fires_for_the_time_that_has_passed(service: InProcessService, office: Office) -> None:
    await service.run_until_idle(office.worker)
    assert office.done == []
    service.clock.advance(hours=1)
    await service.run_until_idle(office.worker)
    assert office.done == ["tick"] * 3
    await service.run_until_idle(office.worker)
    assert office.done == ["tick"] * 3


async def test_a_jump_over_too_many_firings_is_an_error(service: InProcessService, office: Office) -> None:
    """Years of them at once are a typing error, and would take for ever."""
    service.clock.advance(days=365)
    with pytest.raises(ValueError, match="cron tick: more than 10000 firings"):
        await service.run_until_idle(office.worker)
    assert await service.run_until_idle(office.worker, queues=["mail", "files"]) == []
    await service.run_until_idle(office.worker)
    assert office.done == ["tick"]


@pytest.mark.parametrize(("missed", "made"), [("skip", 0), ("latest", 1), ("all", 6)])
async def test_firings_of_a_queue_that_was_left_out_were_missed(
    pinlater_service: InProcessService, missed: str, made: int
) -> None:
    """A frequent entry does not burden a test that has left it out once. Later ones are made as they come."""
    service, worker, fired = pinlater_service, Worker(), []

    @worker.task("mail")
    async def send() -> None: ...

    @worker.cron("*/10 * * * * *", queue="often", missed=missed, look_back=59)
    async def often() -> None:
        fired.append(service.clock.now)

    with service.serving(worker):
        await service.run_for(days=2, queues=["mail"])
        await service.run_for(days=1, queues=["mail"])
        await service.run_until_idle()
        assert len(fired) == made
        await service.run_for(minutes=1)
    assert len(fired) == made + 6


async def test_time_passes_with_the_worker_at_work(pinlater_service: InProcessService, office: Office) -> None:
    """Each thing happens at its own moment, not all at the end."""
    service, moments = pinlater_service, []
    worker = office.worker

    @worker.task("mail")
    async def when(name: str) -> None:
        moments.append((name, (service.clock.now - start).total_seconds()))

    start = service.clock.now
    with service.serving(worker):
        await when.using(delay=90).enqueue_async("a")
        await when.using(at=datetime(2026, 1, 1, 0, 5, tzinfo=UTC)).enqueue_async("b")
        await when.using(delay=timedelta(hours=2)).enqueue_async("c")
        await office.send.enqueue_async("fails")
        await service.run_for(worker, hours=1, raise_errors=False)
    assert moments == [("a", 90), ("b", 300)]
    assert office.done == [("fails", 1)] * 3 + ["tick"] * 3
    assert service.clock.now == start + timedelta(hours=1)


async def test_time_passes_for_some_queues_only(service: InProcessService, office: Office) -> None:
    """A test of mails over a year need not run the cron entries of every twenty minutes. Their jobs wait until they run next."""
    await office.send.using(delay=3600).enqueue_async("x")
    await service.run_for(office.worker, days=365, queues=["mail"])
    assert office.done == [("x", 1)]
    assert service.jobs("clock") == []


async def test_other_queues_do_not_stop_the_clock(service: InProcessService, office: Office) -> None:
    """Their due jobs and cron entries would else be found again and again."""
    await office.send.using(delay=60).enqueue_async("x")
    ran = await service.run_for(office.worker, hours=1, queues=["clock"])
    assert [(one.task, one.kind) for one in ran] == [("tick", Kind.SUCCEEDED)] * 3
    assert [job.state for job in service.jobs("mail")] == [JobState.PENDING]


async def test_a_span_for_a_queue_that_no_worker_serves_is_an_error(service: InProcessService, office: Office) -> None:
    before = service.clock.now
    with pytest.raises(ValueError, match="no task for queue 'mial'"):
        await service.run_for(office.worker, hours=1, queues=["mial"])
    assert service.clock.now == before


async def test_a_span_ends_at_the_limit_of_attempts_of_one_stop(pinlater_service: InProcessService) -> None:
    worker = Worker()

    @worker.task("q")
    async def again() -> None:
        await again.enqueue_async()

    with pinlater_service.serving(worker):
        await again.enqueue_async()
        with pytest.raises(NeverIdle, match="'again'"):
            await pinlater_service.run_for(worker, hours=1, jobs_max=50)


async def test_a_span_counts_the_attempts_of_all_its_stops_together(pinlater_service: InProcessService) -> None:
    worker, attempts = Worker(), []

    @worker.task("q")
    async def note(number: int) -> None:
        attempts.append(number)

    with pinlater_service.serving(worker):
        for number in range(6):
            await note.using(delay=60 * (1 + number // 3)).enqueue_async(number)
        with pytest.raises(NeverIdle, match=r"4 attempts were made until .*; the last: 'note'"):
            await pinlater_service.run_for(minutes=10, jobs_max=4)
    assert len(attempts) == 4


async def test_reschedule_and_checkpoint_go_by_the_services_clock(pinlater_service: InProcessService) -> None:
    worker, bodies = Worker(), []

    @worker.task("q")
    async def steps(done: int = 0) -> None:
        job = current_job()
        bodies.append(done)
        await job.progress_async(done / 2, "half")
        if done < 2:
            job.reschedule(timedelta(hours=1), {"done": done + 1})

    with pinlater_service.serving(worker):
        await steps.enqueue_async()
        await pinlater_service.run_until_idle(worker)
        assert bodies == [0]
        await pinlater_service.run_for(worker, hours=2)
    assert bodies == [0, 1, 2]


@pytest.mark.parametrize("body", [{"don": 5}, {"done": "x"}, 5, b"{}}"])
async def test_a_checkpoint_that_the_task_could_not_be_called_with_is_refused_at_the_call(
    body: Any, pinlater_service: InProcessService
) -> None:
    """It would fail the next attempt for good."""
    worker, errors = Worker(retry=constant(1)), []

    @worker.task("q")
    def in_thread(done: int = 0) -> None:
        for method in (current_job().checkpoint, partial(current_job().reschedule, timedelta(hours=1))):
            with pytest.raises(TypeError) as caught:
                method(body)
            errors.append(str(caught.value))

    @worker.task("q")
    async def on_loop(done: int = 0) -> None:
        with pytest.raises(TypeError, match=r"task on_loop: checkpoint_async\(\) argument 'body' does not fit"):
            await current_job().checkpoint_async(body)

    with pinlater_service.serving(worker):
        await in_thread.enqueue_async()
        await on_loop.enqueue_async()
        assert [ran.failed for ran in await pinlater_service.run_until_idle(worker)] == [False, False]
    assert [error.partition(" does not fit")[0] for error in errors] == [
        "task in_thread: checkpoint() argument 'body'",
        "task in_thread: reschedule() argument 'body'",
    ]


async def test_a_checkpoint_keeps_to_the_content_type_of_its_job(pinlater_service: InProcessService) -> None:
    """Its header stays what the producer said, and the next attempt reads the body by it."""
    worker, seen = Worker(retry=constant(0)), []
    packed = MessagePackCodec()

    @worker.task("q")
    def count(done: int = 0) -> None:
        seen.append(done)
        if not done:
            current_job().checkpoint({"done": 5})
            raise ConnectionError

    with pinlater_service.serving(worker):
        job = count.job()._replace(body=packed.encode({}), headers={"content-type": packed.content_type})
        await count.enqueue_many_async([job])
        await pinlater_service.run_for(worker, seconds=1, raise_errors=False)
    assert seen == [0, 5]


async def test_running_for_a_time_is_bounded_although_cron_fires_often(pinlater_service: InProcessService) -> None:
    """A day of an entry for every second would seem to hang."""
    worker = Worker()

    @worker.cron("* * * * * *", queue="outbox")
    def relay() -> None: ...

    @worker.task("q")
    def quiet() -> None: ...

    with pinlater_service.serving(worker):
        with pytest.raises(NeverIdle, match=r"20 attempts were made until .*; the last: 'relay'.*`queues`.*`jobs_max`"):
            await pinlater_service.run_for(days=1, jobs_max=20)
        assert await pinlater_service.run_for(days=1, jobs_max=20, queues=["q"]) == []


async def test_a_time_in_place_of_a_worker_is_refused(pinlater_service: InProcessService) -> None:
    with pytest.raises(TypeError, match=r"give a time by name: run_for\(hours=1\)"):
        await pinlater_service.run_for(timedelta(hours=1))  # type: ignore[arg-type]


# --- processes ----------------------------------------------------------------------------------------------------------------
async def test_handlers_for_processes_run_in_this_one_unless_asked_for(
    pinlater_service: InProcessService, tmp_path: Any
) -> None:
    worker = process_tasks.worker
    with pinlater_service.serving(worker):
        await process_tasks.note.enqueue_async(str(tmp_path))
        await pinlater_service.run_until_idle(worker)
        await process_tasks.note.enqueue_async(str(tmp_path))
        await pinlater_service.run_until_idle(worker, processes=True)
    here, there = [line.split()[0] for line in (tmp_path / "pids").read_text().splitlines()]
    assert here == str(os.getpid()) != there
